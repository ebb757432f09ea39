//! Asks the adapters whether a program looks like one of theirs, by its kind and its bytes. The file is read
//! in pieces and not mapped: a program that is written to while it is read must not crash the worker.

use std::{
    fs::{self, File},
    io::Read as _,
};

use heeler_adapters::{Adapter, ClaimConfidence, DiscoveryTarget};
use heeler_protocol::control::TestProgram;

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
    let mut claims: Vec<FrameworkClaim> = heeler_adapters::all_adapters()
        .iter()
        .map(|adapter| (*adapter, ClaimConfidence::Unclaimed))
        .collect();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => raise_claims(&mut claims, &DiscoveryTarget::Directory { path }),
        // A pipe or a device is no program: it may block its reader, or have no end.
        Ok(found) if !found.is_file() => {}
        Ok(_) | Err(_) => claim_file(program, &mut claims).await,
    }
    claims.retain(|(_, confidence)| *confidence > ClaimConfidence::Unclaimed);
    claims.sort_by_key(|(_, confidence)| std::cmp::Reverse(*confidence));
    claims
}

async fn claim_file(program: &TestProgram, claims: &mut [FrameworkClaim]) {
    let mut file = File::open(program.path.as_path()).ok();
    let mut piece = vec![0; PIECE_BYTES];
    let (mut kept, mut total, mut is_native) = (0, 0, None);
    loop {
        let count = file.as_mut().and_then(|file| file.read(&mut piece[kept..]).ok()).unwrap_or(0);
        if count == 0 && total > 0 {
            return;
        }
        total += count;
        let bytes = &piece[..kept + count];
        let target = if *is_native.get_or_insert_with(|| bytes.starts_with(EXECUTABLE_MAGIC)) {
            DiscoveryTarget::Executable { image: bytes }
        } else {
            DiscoveryTarget::Command { script: bytes, args: &program.args }
        };
        raise_claims(claims, &target);
        let is_decided = claims.iter().all(|(_, confidence)| *confidence == ClaimConfidence::Likely);
        if count == 0 || total >= SEARCHED_BYTES || is_decided {
            return;
        }
        let filled = kept + count;
        kept = filled.min(OVERLAP_BYTES);
        piece.copy_within(filled - kept..filled, 0);
        // Yields, so that control messages are handled between pieces.
        tokio::task::yield_now().await;
    }
}

fn raise_claims(claims: &mut [FrameworkClaim], target: &DiscoveryTarget<'_>) {
    for (adapter, confidence) in claims {
        if *confidence < ClaimConfidence::Likely {
            *confidence = adapter.claims(target).max(*confidence);
        }
    }
}
