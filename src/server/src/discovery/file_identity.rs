//! Identity of a file's content: what changes when a program is built again.

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

/// Identities of the files on which the tests of a program depend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProgramIdentity(Vec<Option<FileIdentity>>);

/// Returns the identity of a program: of its own file, of the files that its arguments name, since the
/// program of a script may be its interpreter, and of the files and directories on which its listing depends.
/// A directory changes when a file in it appears or disappears.
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
