//! Reads a program's file in pieces for the frameworks' hints. The file is not mapped: a program that is
//! written to while it is read must not crash the worker.

use std::{fs::File, io::Read as _, path::Path};

/// The size of one piece, so that a program of any size takes the same memory.
const PIECE_BYTES: usize = 1 << 20;
/// The number of bytes that neighbouring pieces share, so that no hint is cut.
const OVERLAP_BYTES: usize = 4 << 10;
/// The number of bytes searched: what frameworks leave in a program comes before its debug information.
const SEARCHED_BYTES: usize = 64 << 20;

/// Returns the names of the frameworks that the program's bytes hint at.
///
/// A program that can't be read hints at none: it may be executable all the same.
///
/// Cancel safe: yes, because it changes nothing.
pub(super) async fn hinted_frameworks(path: &Path) -> Vec<&'static str> {
    let mut hinted: Vec<&'static str> = Vec::new();
    let Ok(mut file) = File::open(path) else { return hinted };
    let mut piece = vec![0; PIECE_BYTES];
    let (mut kept, mut total) = (0, 0);
    while total < SEARCHED_BYTES && hinted.len() < heeler_adapters::detectable_adapters().len() {
        let count = match file.read(&mut piece[kept..]) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        total += count;
        let filled = kept + count;
        for adapter in heeler_adapters::detectable_adapters() {
            if !hinted.contains(&adapter.name()) && adapter.looks_like(&piece[..filled]) {
                hinted.push(adapter.name());
            }
        }
        kept = filled.min(OVERLAP_BYTES);
        piece.copy_within(filled - kept..filled, 0);
        // Yields, so that control messages are handled between pieces.
        tokio::task::yield_now().await;
    }
    hinted
}
