//! Files written about crashed and hung processes: dumps and stack traces.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::error_chain;
use heeler_crash::dump::{self, DumpPlan, DumpTarget};
use heeler_protocol::control::{DumpKinds, OsText, TracePlan};
use heeler_sys::{process::Pid, trace::KillTimer};

/// Time limit for a dump, which normally takes milliseconds. The process is then killed, which ends every
/// wait of the writer.
const DUMP_TIME_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for a process to stop for its dump.
pub(super) const STOP_LIMIT: Duration = Duration::from_millis(500);

/// Names and limits of the files of one test process.
pub(super) struct EvidenceFiles {
    dumps: DumpKinds,
    dir: OsText,
    name: String,
    limit_bytes: u64,
    keeps_environment: bool,
}

impl EvidenceFiles {
    pub(super) fn new(plan: TracePlan) -> Self {
        let TracePlan { dumps, dir, name, limit_bytes, keeps_environment, .. } = plan;
        Self { dumps, dir, name, limit_bytes, keeps_environment }
    }

    pub(super) fn dumps(&self) -> DumpKinds {
        self.dumps
    }

    /// Writes a dump within the time limit, and returns its path. `what`: suffix of the file name.
    pub(super) fn write_dump(
        &self,
        what: &str,
        process: Pid,
        target: &DumpTarget,
        errors: &mut Vec<String>,
    ) -> Option<OsText> {
        let plan = DumpPlan {
            path: self.path(what, "dmp"),
            limit_bytes: if self.limit_bytes == 0 { u64::MAX } else { self.limit_bytes },
            keeps_environment: self.keeps_environment,
            stop_timeout: STOP_LIMIT,
        };
        let written = KillTimer::arm(process, DUMP_TIME_LIMIT)
            .map_err(|error| format!("no minidump: cannot set its time limit: {error}"))
            .and_then(|_fuse| dump::write(target, &plan).map_err(|error| error_chain(&error)));
        match written {
            Ok(file) => {
                errors.extend(file.soft_errors);
                Some(OsText::from(file.path.as_path()))
            }
            Err(error) => {
                errors.push(error);
                None
            }
        }
    }

    /// Writes the stack traces of a process to a file that only the owner can read. Returns the path, or
    /// `None` if no files are written. `what`: suffix of the file name.
    pub(super) fn write_stacks(
        &self,
        what: &str,
        text: impl FnOnce() -> String,
    ) -> Result<Option<OsText>, String> {
        if self.dir.as_bytes().is_empty() {
            return Ok(None);
        }
        let path = self.path(what, "txt");
        match write_private_file(&path, &text()) {
            Ok(()) => Ok(Some(OsText::from(path.as_path()))),
            Err(error) => Err(format!("cannot write {}: {error}", path.display())),
        }
    }

    fn path(&self, what: &str, extension: &str) -> PathBuf {
        self.dir.as_path().join(format!("{}-{what}.{extension}", self.name))
    }
}

fn write_private_file(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // Remove a truncated text.
    file.write_all(text.as_bytes()).inspect_err(|_| drop(std::fs::remove_file(path)))
}
