//! Asks the adapters whether a program looks like one of theirs, by its kind and its bytes. The file is read
//! in pieces and not mapped: a program that is written to while it is read must not crash the worker.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

use heeler_adapters::{Adapter, ClaimConfidence, DiscoveryTarget};
use heeler_protocol::control::TestProgram;
use object::{Object as _, ObjectSymbol as _, ReadCache};

/// The size of one piece, so that a program of any size takes the same memory.
const PIECE_BYTES: usize = 1 << 20;
/// The number of bytes that neighbouring pieces share, so that no text is cut.
const OVERLAP_BYTES: usize = 4 << 10;
/// The number of bytes searched: what frameworks leave in a program comes before its debug information.
const SEARCHED_BYTES: usize = 64 << 20;
/// The first bytes of a native executable.
const EXECUTABLE_MAGIC: &[u8] = b"\x7fELF";

/// The number of frameworks of which a tool for tests contains the marks; a test program has those of one, or
/// of two.
const FRAMEWORKS_OF_A_TOOL: usize = 4;

/// An adapter and how sure it is.
type FrameworkClaim = (&'static dyn Adapter, ClaimConfidence);

/// What a program is, by its kind and its bytes.
pub(super) struct RecognizedProgram {
    pub(super) kind: ProgramKind,
    /// The adapters that claim it, the surest first.
    pub(super) claims: Vec<FrameworkClaim>,
}

/// The kind of a program's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramKind {
    Native,
    /// A file of another kind, such as a script.
    Other,
    Empty,
    /// A directory, a device, or a file that can't be read; it may be executable all the same.
    Unread,
}

impl RecognizedProgram {
    /// Returns the labels of the frameworks whose marks it has, each once.
    pub(super) fn marks(&self) -> Vec<&'static str> {
        labels(&self.claims)
    }

    /// Returns whether the program is one test, whose exit code decides, if it does not list its tests. A
    /// program that a build tool built as a test, without the marks of a framework, has its own `main`.
    pub(super) fn is_one_test_without_listing(&self, program: &TestProgram) -> bool {
        self.marks().is_empty() && !program.tool_env.is_empty()
    }

    /// Returns whether it has the marks of so many frameworks that it is a tool for their programs.
    pub(super) fn is_tool(&self) -> bool {
        self.marks().len() >= FRAMEWORKS_OF_A_TOOL
    }

    /// Returns the names of the frameworks whose marks it has.
    pub(super) fn named_marks(&self) -> Vec<&'static str> {
        let likely = self.claims.iter().filter(|(_, confidence)| *confidence == ClaimConfidence::Likely);
        likely.map(|(adapter, _)| adapter.traits().name).collect()
    }
}

fn labels(claims: &[FrameworkClaim]) -> Vec<&'static str> {
    let likely = claims.iter().filter(|(_, confidence)| *confidence == ClaimConfidence::Likely);
    let mut labels: Vec<_> = likely.map(|(adapter, _)| adapter.traits().label).collect();
    labels.dedup();
    labels
}

/// Returns what a program is. Of a script only what is beside it counts: what it mentions says nothing about
/// what it does with a framework's arguments.
///
/// Cancel safe: yes, because it changes nothing.
pub(super) async fn recognize(program: &TestProgram) -> RecognizedProgram {
    let path = program.path.as_path();
    let mut claims = unclaimed();
    let kind = match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            raise_claims(&mut claims, &DiscoveryTarget::Directory { path });
            ProgramKind::Unread
        }
        // A pipe or a device is no program: it may block its reader, or have no end.
        Ok(found) if !found.is_file() => ProgramKind::Unread,
        Ok(_) | Err(_) => {
            raise_claims(&mut claims, &DiscoveryTarget::File { path });
            read_program(path, &mut claims).await
        }
    };
    settle_marks_of_a_tool(path, &mut claims);
    // What a build tool built as a test is one, whatever its bytes show: it may have a harness of its own.
    let is_built_as_test = !program.tool_env.is_empty() && kind == ProgramKind::Native;
    let least = if is_built_as_test { ClaimConfidence::Possible } else { ClaimConfidence::Likely };
    claims.retain(|(_, confidence)| *confidence >= least);
    claims.sort_by_key(|(_, confidence)| std::cmp::Reverse(*confidence));
    RecognizedProgram { kind, claims }
}

/// Decides by a program's symbols if it has the marks of so many frameworks that it is a tool for tests, or
/// the tests of such a tool: these mention frameworks, and contain the functions of one. A tool without
/// symbols, or that contains none of the frameworks, stays one.
fn settle_marks_of_a_tool(path: &Path, claims: &mut Vec<FrameworkClaim>) {
    if labels(claims).len() < FRAMEWORKS_OF_A_TOOL {
        return;
    }
    let mut contained = unclaimed();
    let is_read = visit_function_names(path, |names| {
        raise_claims(&mut contained, &DiscoveryTarget::Executable { image: names });
    });
    if is_read.is_some() && (1..FRAMEWORKS_OF_A_TOOL).contains(&labels(&contained).len()) {
        *claims = contained;
    }
}

/// Calls `visit` with the names of all functions that a program defines, one a line, in pieces; `None` if the
/// file has no symbols that can be read.
fn visit_function_names(path: &Path, mut visit: impl FnMut(&[u8])) -> Option<()> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let mut names = Vec::with_capacity(PIECE_BYTES);
    for symbol in file.symbols() {
        let is_function = symbol.is_definition() && symbol.kind() == object::SymbolKind::Text;
        let Some(name) = symbol.name_bytes().ok().filter(|_| is_function) else { continue };
        names.extend_from_slice(name);
        names.push(b'\n');
        if names.len() >= PIECE_BYTES {
            visit(&names);
            names.clear();
        }
    }
    visit(&names);
    Some(())
}

async fn read_program(path: &Path, claims: &mut [FrameworkClaim]) -> ProgramKind {
    let mut file = ProgramPieces::open(path);
    while file.read_piece(claims) {
        // Yields, so that control messages are handled between pieces.
        tokio::task::yield_now().await;
    }
    match (file.is_native, file.total) {
        (Some(true), _) => ProgramKind::Native,
        (_, 0) if file.file.is_some() => ProgramKind::Empty,
        (_, 0) => ProgramKind::Unread,
        (_, _) => ProgramKind::Other,
    }
}

/// Returns whether a file is a native executable that contains a test framework. It is only read.
#[must_use]
pub fn is_test_program(path: &Path) -> bool {
    likely_framework(path).is_some()
}

/// Returns the framework that a native executable contains. The file is only read.
#[must_use]
pub fn likely_framework(path: &Path) -> Option<&'static str> {
    let mut file = ProgramPieces::open(path);
    let mut claims = unclaimed();
    raise_claims(&mut claims, &DiscoveryTarget::File { path });
    while file.read_piece(&mut claims) {}
    settle_marks_of_a_tool(path, &mut claims);
    let is_test_program =
        file.is_native == Some(true) && (1..FRAMEWORKS_OF_A_TOOL).contains(&labels(&claims).len());
    let likely = claims.iter().find(|(_, confidence)| *confidence == ClaimConfidence::Likely);
    likely.filter(|_| is_test_program).map(|(adapter, _)| adapter.traits().name)
}

fn unclaimed() -> Vec<FrameworkClaim> {
    let adapters = heeler_adapters::all_adapters().iter();
    adapters.map(|adapter| (*adapter, ClaimConfidence::Unclaimed)).collect()
}

/// A program that is read in pieces.
struct ProgramPieces {
    file: Option<File>,
    piece: Vec<u8>,
    /// Number of bytes at the begin of the piece that are those at the end of the one before.
    kept: usize,
    total: usize,
    /// Known after the first piece.
    is_native: Option<bool>,
}

impl ProgramPieces {
    fn open(path: &Path) -> Self {
        let file = File::open(path).ok();
        Self { file, piece: vec![0; PIECE_BYTES], kept: 0, total: 0, is_native: None }
    }

    /// Has the adapters claim the next piece; returns whether another one may change their claims.
    fn read_piece(&mut self, claims: &mut [FrameworkClaim]) -> bool {
        let read = self.file.as_mut().and_then(|file| file.read(&mut self.piece[self.kept..]).ok());
        let count = read.unwrap_or(0);
        if count == 0 && self.total > 0 {
            return false;
        }
        self.total += count;
        let bytes = &self.piece[..self.kept + count];
        if !*self.is_native.get_or_insert_with(|| bytes.starts_with(EXECUTABLE_MAGIC)) {
            return false;
        }
        raise_claims(claims, &DiscoveryTarget::Executable { image: bytes });
        let is_decided = claims.iter().all(|(_, confidence)| *confidence == ClaimConfidence::Likely);
        if count == 0 || self.total >= SEARCHED_BYTES || is_decided {
            return false;
        }
        let filled = self.kept + count;
        self.kept = filled.min(OVERLAP_BYTES);
        self.piece.copy_within(filled - self.kept..filled, 0);
        true
    }
}

fn raise_claims(claims: &mut [FrameworkClaim], target: &DiscoveryTarget<'_>) {
    for (adapter, confidence) in claims {
        if *confidence < ClaimConfidence::Likely {
            *confidence = adapter.claims(target).max(*confidence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_values;

    #[test]
    fn only_a_test_of_a_build_tool_without_marks_is_one_test() {
        let plain = test_values::program();
        let built = TestProgram { tool_env: vec![("CARGO".into(), "/bin/cargo".into())], ..plain.clone() };
        let adapter = heeler_adapters::all_adapters()[0];
        for (program, confidence, expected) in [
            (&built, ClaimConfidence::Possible, true),
            (&built, ClaimConfidence::Likely, false),
            (&plain, ClaimConfidence::Possible, false),
        ] {
            let recognized =
                RecognizedProgram { kind: ProgramKind::Native, claims: vec![(adapter, confidence)] };
            assert_eq!(recognized.is_one_test_without_listing(program), expected, "{confidence:?}");
        }
    }
}
