//! Identity of a file's content: what changes when a program is built again.

use std::{os::unix::fs::MetadataExt as _, path::Path};

/// File metadata that changes when a program is rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// Returns the identity of the file that a path leads to; `None` if there is none.
pub(super) fn file_identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}
