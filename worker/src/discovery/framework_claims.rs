//! Asks the adapters whether a program looks like one of theirs, by its kind and its bytes. The file is read
//! in pieces and not mapped: a program that is written to while it is read must not crash the worker.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

use heeler_adapters::{Adapter, ClaimConfidence, DiscoveryTarget};
use heeler_protocol::control::{OsText, TestProgram};

/// The size of one piece, so that a program of any size takes the same memory.
const PIECE_BYTES: usize = 1 << 20;
/// The number of bytes that neighbouring pieces share, so that no text is cut.
const OVERLAP_BYTES: usize = 4 << 10;
/// The number of bytes searched: what frameworks leave in a program comes before its debug information.
const SEARCHED_BYTES: usize = 64 << 20;
/// The first bytes of a native executable.
const EXECUTABLE_MAGIC: &[u8] = b"\x7fELF";

/// An adapter and how sure it is.
type FrameworkClaim = (&'static dyn Adapter, ClaimConfidence);

/// Returns the adapters that claim the program, the surest first.
///
/// A program that can't be read is claimed as an empty one: it may be executable all the same.
///
/// Cancel safe: yes, because it changes nothing.
pub(super) async fn framework_claims(program: &TestProgram) -> Vec<FrameworkClaim> {
    let path = program.path.as_path();
    let mut claims = unclaimed();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => raise_claims(&mut claims, &DiscoveryTarget::Directory { path }),
        // A pipe or a device is no program: it may block its reader, or have no end.
        Ok(found) if !found.is_file() => {}
        Ok(_) | Err(_) => {
            raise_claims(&mut claims, &DiscoveryTarget::File { path });
            claim_file(program, &mut claims).await
        }
    }
    claims.retain(|(_, confidence)| *confidence > ClaimConfidence::Unclaimed);
    claims.sort_by_key(|(_, confidence)| std::cmp::Reverse(*confidence));
    claims
}

async fn claim_file(program: &TestProgram, claims: &mut Vec<FrameworkClaim>) {
    let mut file = ProgramFile::open(program.path.as_path());
    while file.read_piece(&program.args, claims) {
        // Yields, so that control messages are handled between pieces.
        tokio::task::yield_now().await;
    }
    // To run a script in order to find out what it is could do anything.
    if file.is_script() {
        claims.retain(|(_, confidence)| *confidence == ClaimConfidence::Likely);
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
    let mut file = ProgramFile::open(path);
    let mut claims = unclaimed();
    raise_claims(&mut claims, &DiscoveryTarget::File { path });
    let likely = |claims: &[FrameworkClaim]| {
        let found = claims.iter().find(|(_, confidence)| *confidence == ClaimConfidence::Likely);
        found.map(|(adapter, _)| adapter.traits().name)
    };
    while file.read_piece(&[], &mut claims) {
        if likely(&claims).is_some() || file.is_native != Some(true) {
            break;
        }
    }
    likely(&claims).filter(|_| file.is_native == Some(true))
}

fn unclaimed() -> Vec<FrameworkClaim> {
    let adapters = heeler_adapters::all_adapters().iter();
    adapters.map(|adapter| (*adapter, ClaimConfidence::Unclaimed)).collect()
}

/// A program that is read in pieces.
struct ProgramFile {
    file: Option<File>,
    piece: Vec<u8>,
    /// Number of bytes at the begin of the piece that are those at the end of the one before.
    kept: usize,
    total: usize,
    /// Known after the first piece.
    is_native: Option<bool>,
}

impl ProgramFile {
    fn open(path: &Path) -> Self {
        let file = File::open(path).ok();
        Self { file, piece: vec![0; PIECE_BYTES], kept: 0, total: 0, is_native: None }
    }

    /// Returns whether the file was read, and is no native executable.
    fn is_script(&self) -> bool {
        self.total > 0 && self.is_native == Some(false)
    }

    /// Has the adapters claim the next piece; returns whether another one may change their claims.
    fn read_piece(&mut self, args: &[OsText], claims: &mut [FrameworkClaim]) -> bool {
        let read = self.file.as_mut().and_then(|file| file.read(&mut self.piece[self.kept..]).ok());
        let count = read.unwrap_or(0);
        if count == 0 && self.total > 0 {
            return false;
        }
        self.total += count;
        let bytes = &self.piece[..self.kept + count];
        let target = if *self.is_native.get_or_insert_with(|| bytes.starts_with(EXECUTABLE_MAGIC)) {
            DiscoveryTarget::Executable { image: bytes }
        } else {
            DiscoveryTarget::Command { script: bytes, args }
        };
        raise_claims(claims, &target);
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
