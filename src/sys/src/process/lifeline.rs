//! Liveness pipe: binds a process to the life of another process that is neither its parent nor its child.
//! The bound process is killed when the other end of the pipe is closed.
//!
//! ```text
//! holder ──writing end──► pipe ──reading end──► bound process and all that it starts
//!    └─ exits, for any reason ──► SIGKILL to the bound process, or to its group if it leads one
//! ```

use std::{
    fs, io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use rustix::{
    fs::{OFlags, fcntl_setfl},
    io::{FdFlags, fcntl_setfd},
};

use super::{Pid, Signal, process_tree, stat};
use crate::{check, io::pipe};

/// `fcntl` command that sets the signal for a ready descriptor; libc lacks it.
const F_SETSIG: libc::c_int = 10;

/// The holder's end. Dropping it kills the bound processes.
#[derive(Debug)]
pub struct Lifeline {
    _held: OwnedFd,
    /// Name of the pipe in procfs.
    name: String,
}

impl Lifeline {
    /// Returns a new lifeline, and the pipe end for the bound process.
    ///
    /// # Errors
    /// The system has no free descriptors.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, held) = pipe()?;
        let name = fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd()))?;
        let name = name.to_string_lossy().into_owned();
        Ok((Self { _held: held, name }, reader))
    }

    /// Returns the other processes that hold the pipe: the bound process, and its descendants that have not
    /// closed the pipe.
    #[must_use]
    pub fn holders(&self) -> Vec<Pid> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid));
        pids.filter(|pid| *pid != Pid::own() && self.is_held_by(*pid)).collect()
    }

    /// Kills all holders; returns the killed ones.
    #[must_use]
    pub fn kill_holders(&self) -> Vec<Pid> {
        let mut killed = self.holders();
        killed.retain(|pid| {
            // The pidfd refers to one process, so the check below applies to the process that is killed.
            let Ok(pidfd) = process_tree::pidfd_open(*pid) else { return false };
            let is_alive = stat(*pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'));
            is_alive && self.is_held_by(*pid) && process_tree::pidfd_signal(&pidfd, Signal::KILL).is_ok()
        });
        killed
    }

    fn is_held_by(&self, pid: Pid) -> bool {
        // Processes of other users cannot be inspected, and are never ours.
        let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        fds.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == &*self.name))
    }
}

/// Binds this process, and its group if it leads one, to the holder of a lifeline. The binding survives exec
/// unless the new program closes the descriptor.
///
/// # Errors
/// The holder has exited, or the system call failed.
pub fn bind_to(end: OwnedFd) -> io::Result<()> {
    let fd = end.as_raw_fd();
    let own = Pid::own();
    let is_leader = stat(own).is_some_and(|stat| stat.group == own);
    let owner = if is_leader { -own.0 } else { own.0 };
    // SAFETY: the descriptor is open, and the argument is a signal.
    check(unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGKILL) })?;
    // SAFETY: the descriptor is open, and the argument names this process or its group.
    check(unsafe { libc::fcntl(fd, libc::F_SETOWN, owner) })?;
    fcntl_setfl(&end, OFlags::ASYNC | OFlags::NONBLOCK)?;
    // The kernel sent no signal if the holder exited before the line above.
    if rustix::io::read(&end, &mut [0_u8]) == Ok(0) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // Keep the descriptor open in the executed program.
    fcntl_setfd(&end, FdFlags::empty())?;
    // The executed program now owns the descriptor, without knowing it.
    std::mem::forget(end);
    Ok(())
}
