//! Exits of processes: the only place where a wait status becomes a value.

use std::{io, time::Duration};

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
    pub(crate) fn new(status: libc::c_int, usage: &libc::rusage) -> Self {
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
/// It also collects the exit of every [`crate::spawn::SpawnedChild`] of this process: a caller of this function must
/// not wait for them elsewhere.
///
/// # Errors
/// The system call failed with another error than `ECHILD`.
pub fn reap_any() -> io::Result<Option<(Pid, ExitStatus)>> {
    match wait(-1, libc::WNOHANG) {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        outcome => outcome,
    }
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
    loop {
        // SAFETY: siginfo_t is a plain C struct that may be all zero.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `info` is valid for writing during the call.
        let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) };
        match check(result) {
            Ok(_) => return true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Waits for one child: without blocking (`WNOHANG`) or until it exits (0).
pub(crate) fn wait_for(pid: Pid, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
    Ok(wait(pid.0, options)?.map(|(_, exit)| exit))
}

fn wait(pid: libc::pid_t, options: libc::c_int) -> io::Result<Option<(Pid, ExitStatus)>> {
    loop {
        let mut status = 0;
        // SAFETY: rusage is a plain C struct that may be all zero.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live locals of the right types.
        let result = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
        match check(result) {
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some((Pid(pid), ExitStatus::new(status, &usage)))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
