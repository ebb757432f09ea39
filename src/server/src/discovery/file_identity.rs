//! Identity of a file's content, which changes when a program is rebuilt.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use heeler_protocol::control::{OsText, TestProgram};

/// File metadata that changes when a program is rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// Identities of the files that a program's tests depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProgramIdentity(Vec<Option<FileIdentity>>);

/// Returns the identity of a program. It covers the program's file, files named by its arguments (a script's
/// program may be its interpreter), and the files and directories that its listing depends on. A directory
/// changes when an entry is added or removed.
pub(super) fn program_identity(program: &TestProgram, depends_on: &[OsText]) -> ProgramIdentity {
    let own = file_identity(program.path.as_path());
    let named = program.args.iter().filter(|word| !word.as_bytes().starts_with(b"-"));
    let named = named.filter_map(|word| {
        let path = program.cwd.as_path().join(word.as_path());
        path.is_file().then(|| file_identity(&path))
    });
    let others = depends_on.iter().map(|path| file_identity(path.as_path()));
    ProgramIdentity([own].into_iter().chain(named).chain(others).collect())
}

/// Returns the identity of the file at a path; `None` if there is none.
pub(super) fn file_identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}
