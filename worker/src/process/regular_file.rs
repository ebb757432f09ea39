//! Reads files that a test process may have written or replaced.

use std::{fs::File, io::Read as _, path::Path};

/// Returns the content of a regular file of at most this size, or `None` for anything else. Does not block on
/// a pipe without a writer, and does not read a growing file forever.
pub(crate) fn read_regular_file(path: &Path, limit_bytes: u64) -> Option<Vec<u8>> {
    let file = heeler_sys::io::open_without_waiting(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    read_within(&file, limit_bytes)
}

fn read_within(file: &File, limit_bytes: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= limit_bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a named pipe is made by a program, outside any guard")]
    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_regular_file(&path, 5).unwrap(), b"12345");
        assert_eq!(read_regular_file(&path, 4), None);
        assert_eq!(read_regular_file(dir.path(), 5), None);
        assert_eq!(read_regular_file(Path::new("/dev/zero"), 5), None);
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read_regular_file(&pipe, 5), None);
    }
}
