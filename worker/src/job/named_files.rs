//! Files named by the command of a test: required files, and files to attach to its result.

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::PathBuf};

use heeler_adapters::OwnCommand;
use heeler_core::RecordSink;
use heeler_protocol::control::OsText;

use super::kept_files::{AttachedSource, FileKeeper, warn_of_loss};
use crate::batch::RunningBatch;

/// Returns why a command cannot be run, or `None` if everything it needs exists.
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

#[derive(Debug)]
pub(super) struct NamedFiles {
    always: Vec<PathBuf>,
    on_failure: Vec<PathBuf>,
}

impl NamedFiles {
    /// Returns the files to attach to the result of a command, if it names any.
    pub(super) fn of_command(command: &OwnCommand) -> Option<Self> {
        let paths =
            |files: &[OsText]| files.iter().map(|file| command.cwd.as_path().join(file.as_path())).collect();
        let files = Self {
            always: paths(&command.attached_files),
            on_failure: paths(&command.attached_files_on_failure),
        };
        (!files.always.is_empty() || !files.on_failure.is_empty()).then_some(files)
    }

    /// Attaches the files to the test of the process, which has just ended. Skips files that do not exist.
    pub(super) fn attach(
        self,
        keeper: &mut FileKeeper,
        batch: &mut RunningBatch,
        records: &mut dyn RecordSink,
    ) {
        let on_failure = if batch.held_tests.has_failure() { self.on_failure } else { Vec::new() };
        for path in self.always.iter().chain(&on_failure) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let source = AttachedSource { path, description: &format!("attached file {name}") };
            match keeper.keep(0, source, batch, records) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn_of_loss(batch.tests().first().map(|test| test.test), path, &error, records);
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}
