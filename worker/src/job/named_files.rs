//! The files that the command of a test names: those that it needs, and those of its result.

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use heeler_adapters::OwnCommand;
use heeler_core::{DiagnosticsFile, TestDiagnostics};
use heeler_protocol::control::OsText;

use crate::{
    batch::RunningBatch,
    process::{evidence_files::plain_file_name, regular_file::read_regular_file},
};

/// Size of a file above which it is not attached.
const FILE_LIMIT_BYTES: u64 = 64 << 20;
/// Files that are attached to one result.
const MAX_FILES: usize = 100;

/// Returns why a command can't be run; `None` if everything that it needs is there.
pub(super) fn missing_need(command: &OwnCommand) -> Option<String> {
    let cwd = command.cwd.as_path();
    if !cwd.is_dir() {
        return Some(format!("its working directory {} does not exist", cwd.display()));
    }
    let missing = command.required_files.iter().map(|file| cwd.join(file.as_path()));
    if let Some(file) = missing.into_iter().find(|file| !file.exists()) {
        return Some(format!("the required file {} does not exist", file.display()));
    }
    let path = cwd.join(command.path.as_path());
    match fs::metadata(&path) {
        Err(_) => Some(format!("its program {} does not exist", path.display())),
        Ok(found) if !found.is_file() || found.permissions().mode() & 0o111 == 0 => {
            Some(format!("its program {} is not executable", path.display()))
        }
        Ok(_) => None,
    }
}

/// The files of a command's result.
#[derive(Debug)]
pub(super) struct NamedFiles {
    always: Vec<PathBuf>,
    on_failure: Vec<PathBuf>,
}

impl NamedFiles {
    /// Returns the files that a command names for its result, if it names any.
    pub(super) fn of_command(command: &OwnCommand) -> Option<Self> {
        let paths =
            |files: &[OsText]| files.iter().map(|file| command.cwd.as_path().join(file.as_path())).collect();
        let files = Self {
            always: paths(&command.attached_files),
            on_failure: paths(&command.attached_files_on_failure),
        };
        (!files.always.is_empty() || !files.on_failure.is_empty()).then_some(files)
    }

    /// Copies the files into a directory, and attaches the copies to the test that has just ended.
    pub(super) fn attach(self, batch: &mut RunningBatch, dir: &Path) {
        let Some(uid) = batch.tests().first().map(|test| plain_file_name(&test.uid)) else { return };
        let on_failure = if batch.has_held_failure() { self.on_failure } else { Vec::new() };
        let mut evidence = TestDiagnostics::default();
        for (number, path) in self.always.iter().chain(&on_failure).take(MAX_FILES).enumerate() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let target = dir.join(format!("{uid}.{number}.{}", plain_file_name(&name)));
            match copy(path, &target) {
                Ok(()) => evidence.files.push(DiagnosticsFile {
                    path: OsText::from(target.as_path()),
                    description: format!("attached file {name}"),
                }),
                Err(error) => evidence.notes.push(format!("attach {}: {error}", path.display())),
            }
        }
        batch.attach_to_held(evidence);
    }
}

/// Copies a regular file.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    use io::Write as _;
    let content = read_regular_file(from, FILE_LIMIT_BYTES).ok_or_else(|| {
        io::Error::other(format!("expected a regular file of at most {} MiB", FILE_LIMIT_BYTES >> 20))
    })?;
    heeler_sys::dirs::private_dir(to.parent().unwrap_or(to)).map_err(io::Error::other)?;
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    file.write_all(&content)
}
