//! Asks the adapters whether a program looks like one of theirs, judging by file type and contents. Reads the
//! file in pieces instead of mapping it, because a program that is modified meanwhile must not crash the
//! worker.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

use heeler_adapters::{Adapter, ClaimConfidence, DiscoveryTarget};
use heeler_protocol::control::TestProgram;
use object::{Object as _, ObjectSymbol as _, ReadCache};

/// Size of one piece. Limits the memory used for large programs.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes shared by adjacent pieces, so that no text is missed at a boundary.
const OVERLAP_BYTES: usize = 4 << 10;
/// Maximum number of bytes searched. Marks of frameworks come before the debug information.
const SEARCHED_BYTES: usize = 64 << 20;
/// Magic bytes of an ELF executable.
const EXECUTABLE_MAGIC: &[u8] = b"\x7fELF";

/// Number of frameworks whose marks identify a program as a tool for tests. Test programs have the marks of
/// one or two.
const FRAMEWORKS_OF_A_TOOL: usize = 4;

type FrameworkClaim = (&'static dyn Adapter, ClaimConfidence);

pub(super) struct RecognizedProgram {
    pub(super) kind: ProgramKind,
    /// Adapters that claim the program, most confident first.
    pub(super) claims: Vec<FrameworkClaim>,
}

/// File type of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramKind {
    Native,
    /// A file of another type, such as a script.
    Other,
    Empty,
    /// A directory, a device, or an unreadable file, which may still be executable.
    Unread,
}

impl RecognizedProgram {
    /// Returns the labels of the frameworks whose marks the program has, without duplicates.
    pub(super) fn marks(&self) -> Vec<&'static str> {
        labels(&self.claims)
    }

    /// Returns whether a program that lists no tests counts as one test, decided by its exit code. A program
    /// that a build tool built as a test, without marks of a framework, has its own `main`.
    pub(super) fn is_one_test_without_listing(&self, program: &TestProgram) -> bool {
        self.marks().is_empty() && !program.tool_env.is_empty()
    }

    /// Returns whether a build tool built the program as a test and nothing in it lists tests. It must not be
    /// started for a listing.
    pub(super) fn has_own_main(&self, program: &TestProgram) -> bool {
        self.claims.is_empty() && self.kind == ProgramKind::Native && !program.tool_env.is_empty()
    }

    /// Returns whether the program has marks of more frameworks than a test program can have, so it must be a
    /// tool for test programs.
    pub(super) fn is_tool(&self) -> bool {
        self.marks().len() >= FRAMEWORKS_OF_A_TOOL
    }

    /// Returns the names of the frameworks whose marks the program has.
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

/// Recognizes a program. For a script, only the files next to it count: the script's text does not show what
/// it does with a framework's arguments.
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
        // A pipe or device is not a program. Reading it might block or never end.
        Ok(found) if !found.is_file() => ProgramKind::Unread,
        Ok(_) | Err(_) => {
            raise_claims(&mut claims, &DiscoveryTarget::File { path });
            read_program(path, &mut claims).await
        }
    };
    settle_marks_of_a_tool(path, &mut claims);
    // A program that a build tool built as a test is a test program, regardless of its contents. It may have
    // its own harness.
    let is_built_as_test = !program.tool_env.is_empty() && kind == ProgramKind::Native;
    let least = if is_built_as_test { ClaimConfidence::Possible } else { ClaimConfidence::Likely };
    claims.retain(|(_, confidence)| *confidence >= least);
    claims.sort_by_key(|(_, confidence)| std::cmp::Reverse(*confidence));
    RecognizedProgram { kind, claims }
}

/// Checks the symbols of a program with marks of many frameworks. A tool for tests only mentions frameworks,
/// but the tool's own tests define functions of one framework. Without symbols, or with functions of no
/// framework, the program stays a tool.
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

/// Calls `visit` with the names of all functions that a program defines, one per line, in pieces. `None` if
/// the file has no readable symbols.
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
        // Yield, so that control messages are handled between pieces.
        tokio::task::yield_now().await;
    }
    match (file.is_native, file.total) {
        (Some(true), _) => ProgramKind::Native,
        (_, 0) if file.file.is_some() => ProgramKind::Empty,
        (_, 0) => ProgramKind::Unread,
        (_, _) => ProgramKind::Other,
    }
}

/// Returns whether a file is a native executable that contains a test framework. The file is only read, never
/// run.
#[must_use]
pub fn is_test_program(path: &Path) -> bool {
    likely_framework(path).is_some()
}

/// Returns the framework that a native executable contains. The file is only read, never run.
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

/// A program read in pieces.
struct ProgramPieces {
    file: Option<File>,
    piece: Vec<u8>,
    /// Number of bytes at the start of the piece that repeat the end of the previous piece.
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

    /// Reads the next piece and lets the adapters raise their claims. Returns whether another piece may
    /// change the claims.
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
