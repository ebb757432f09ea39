//! Minidumps: reading any file ends with a summary or an error.

/// Checks the reader of `heeler dump`.
pub fn minidump(bytes: &[u8]) {
    match heeler_crash::dump::parse(bytes) {
        Ok(summary) => {
            let _words = summary.stacks.to_text();
            assert!(summary.modules.iter().all(|module| module.range.start <= module.range.end));
        }
        Err(what) => assert!(!what.is_empty() && what.len() < 1 << 12, "{what}"),
    }
}
