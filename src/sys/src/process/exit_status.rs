//! Exits of processes: the only place where a wait status becomes a value.

use std::{io, time::Duration};

use rustix::{
    io::retry_on_intr,
    process::{WaitId, WaitIdOptions, waitid},
};

use super::Pid;
use crate::check;

/// Exit of a process, as the system reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExitStatus {
    /// The exit code of a process that exited by itself.
    pub code: Option<i32>,
    /// The number of the signal that killed it.
    pub signal: Option<i32>,
    /// Whether the system wrote a core file, or would have written one with a place for it.
    pub has_core: bool,
    /// User and system time of the process and of its children that it waited for.
    pub cpu: Duration,
    /// Peak of its resident memory in KiB.
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

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Reaps one child that has exited, regardless of which process started it; adopted orphans included. `None`:
/// no child has exited, or there is none.
///
/// It also collects the exit of every [`crate::spawn::SpawnedChild`] of this process: a caller of this
/// function must not wait for them elsewhere.
///
/// # Errors
/// The system call failed with another error than `ECHILD`.
pub fn reap_any() -> io::Result<Option<(Pid, ExitStatus)>> {
    Ok(wait_for_any(libc::WNOHANG)?.map(|waited| (waited.pid, waited.exit())))
}

/// Waits for the exit of one child that no other code waits for, such as an orphan that was adopted and
/// killed.
///
/// # Errors
/// The process is no child of this process, or has been reaped.
pub fn reap_child(pid: Pid) -> io::Result<ExitStatus> {
    loop {
        if let Some(exit) = wait_for(pid, 0)? {
            return Ok(exit);
        }
    }
}

/// Returns whether this process has children, running or not yet reaped.
///
/// For a subreaper that is exact: while any process of its tree lives, the topmost of them is a child.
#[must_use]
pub fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    retry_on_intr(|| waitid(WaitId::All, options)).is_ok()
}

/// Waits for one child: without blocking (`WNOHANG`) or until it exits (0).
pub(crate) fn wait_for(pid: Pid, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
    Ok(wait4(pid.0, options)?.map(|waited| waited.exit()))
}

/// Waits for any child, and returns `None` also if there is no child.
pub(crate) fn wait_for_any(options: libc::c_int) -> io::Result<Option<WaitResult>> {
    match wait4(-1, options) {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        outcome => outcome,
    }
}

/// The child or traced thread that a wait returned.
pub(crate) struct WaitResult {
    pub(crate) pid: Pid,
    /// The wait status, which is a stop or an exit.
    pub(crate) status: libc::c_int,
    usage: libc::rusage,
}

impl WaitResult {
    /// Returns the exit, if the status is one.
    pub(crate) fn exit(&self) -> ExitStatus {
        ExitStatus::new(self.status, &self.usage)
    }
}

/// Performs a wait, again after each interruption by a signal; `None`: nothing has changed and the options
/// say not to block. rustix and nix have no wait that returns the resource usage.
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
