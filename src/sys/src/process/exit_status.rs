//! Exits of processes. Only this module decodes wait statuses.

use std::{io, time::Duration};

use rustix::{
    io::retry_on_intr,
    process::{WaitId, WaitIdOptions, waitid},
};

use super::{Pid, Signal};
use crate::check;

/// Exit of a process as reported by the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExitStatus {
    /// Exit code of a process that exited by itself.
    pub code: Option<i32>,
    /// Number of the signal that killed the process.
    pub signal: Option<i32>,
    /// Whether the kernel reports a core dump (`WCOREDUMP`), even if no core file was kept.
    pub has_core: bool,
    /// User and system time of the process and the children that it waited for.
    pub cpu: Duration,
    /// Peak resident memory in KiB.
    pub peak_kib: u64,
}

impl ExitStatus {
    fn new(status: libc::c_int, usage: &libc::rusage) -> Self {
        let is_signaled = libc::WIFSIGNALED(status);
        Self {
            code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: is_signaled.then(|| libc::WTERMSIG(status)),
            has_core: is_signaled && libc::WCOREDUMP(status),
            cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
            peak_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
        }
    }
}

/// Describes an exit in messages: `exit code 3`, `SIGKILL`, `unknown exit status`.
#[must_use]
pub fn exit_text(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => Signal(signal).name(),
        (None, None) => "unknown exit status".to_owned(),
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Reaps one exited child, regardless of who started it, including adopted orphans. `None` if no child has
/// exited or there are no children.
///
/// This also collects exits of every [`crate::spawn::SpawnedChild`] of this process, so callers must not wait
/// for those elsewhere.
///
/// # Errors
/// The system call failed with an error other than `ECHILD`.
pub fn reap_any() -> io::Result<Option<(Pid, ExitStatus)>> {
    Ok(wait_for_any(libc::WNOHANG)?.map(|waited| (waited.pid, waited.exit())))
}

/// Waits for the exit of a child that no other code waits for, such as an adopted orphan that was killed.
///
/// # Errors
/// The process is not a child of this process, or has been reaped.
pub fn reap_child(pid: Pid) -> io::Result<ExitStatus> {
    loop {
        if let Some(exit) = wait_for(pid, 0)? {
            return Ok(exit);
        }
    }
}

/// Returns whether this process has children that are running or not yet reaped.
///
/// For a subreaper, the answer covers its whole tree: while any process below it lives, the topmost one is
/// its child.
#[must_use]
pub fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    retry_on_intr(|| waitid(WaitId::All, options)).is_ok()
}

/// Waits for one child: without blocking (`WNOHANG`) or until it exits (0).
pub(crate) fn wait_for(pid: Pid, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
    Ok(wait4(pid.0, options)?.map(|waited| waited.exit()))
}

/// Waits for any child. Also returns `None` if there are no children.
pub(crate) fn wait_for_any(options: libc::c_int) -> io::Result<Option<WaitResult>> {
    match wait4(-1, options) {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        outcome => outcome,
    }
}

/// Child or traced thread that a wait returned.
pub(crate) struct WaitResult {
    pub(crate) pid: Pid,
    /// Wait status: a stop or an exit.
    pub(crate) status: libc::c_int,
    usage: libc::rusage,
}

impl WaitResult {
    /// Returns the exit, if the status is one.
    pub(crate) fn exit(&self) -> ExitStatus {
        ExitStatus::new(self.status, &self.usage)
    }
}

/// Waits, and repeats the wait after interruptions by signals. `None` if nothing has changed and the options
/// forbid blocking. rustix and nix have no wait that returns resource usage.
pub(crate) fn wait4(pid: libc::pid_t, options: libc::c_int) -> io::Result<Option<WaitResult>> {
    loop {
        let mut status = 0;
        // SAFETY: rusage is a plain C struct that may be all zero.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live locals of the right types.
        let result = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
        match check(result) {
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some(WaitResult { pid: Pid(pid), status, usage })),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
