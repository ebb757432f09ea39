//! Copies of this process, for one that has a single thread and little memory: no program is executed, so there is
//! nothing to load, to relocate or to set up.

use std::{fs, io, os::fd::OwnedFd};

use crate::{
    check,
    process::{self, Pid, Signal},
};

/// The proof that this process has one thread, so that a copy of it has all that the original had.
#[derive(Debug)]
pub struct OneThread(());

/// A process that was started by another than this one, or as a copy of this one. Dropping it does not end it.
#[derive(Debug)]
pub struct Twin {
    /// Its id, which is also its process group. Another's, once whoever started it has reaped it.
    pub pid: Pid,
    /// Becomes readable when the process has ended, and never stands for another.
    pub pidfd: OwnedFd,
}

/// On which side of a copy the caller finds itself.
#[derive(Debug)]
pub enum Side {
    /// In the original, with what stands for the copy.
    Original(Twin),
    /// In the copy.
    Copy,
}

impl OneThread {
    /// Returns the proof; `None` if there are more threads. Whoever holds it starts none.
    #[must_use]
    pub fn proven() -> Option<Self> {
        let count = fs::read_dir("/proc/self/task").ok()?.count();
        (count == 1).then_some(Self(()))
    }

    /// Makes a copy of this process: in its own process group, killed when this one ends. It keeps all descriptors.
    ///
    /// # Errors
    /// The system gave no process, or nothing to stand for it. No copy is left then.
    pub fn copy(&self) -> io::Result<Side> {
        let original = Pid::own();
        // SAFETY: there is one thread, so no lock is held by another and the copy may do all that the original may.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            settle(original);
            return Ok(Side::Copy);
        }
        let pid = Pid(check(pid)?);
        // Nobody has reaped it, so the number is still its own.
        match process::pidfd_open(pid) {
            Ok(pidfd) => Ok(Side::Original(Twin { pid, pidfd })),
            Err(error) => {
                process::kill_child(pid);
                process::reap_child(pid)?;
                Err(error)
            }
        }
    }
}

/// Ties a copy's life to the original's, or ends it: a copy that cannot be tied must not be.
fn settle(original: Pid) {
    // SAFETY: setpgid touches no memory.
    let grouped = check(unsafe { libc::setpgid(0, 0) });
    let tied = process::die_with_parent();
    // SAFETY: getppid has no preconditions.
    let parent = Pid(unsafe { libc::getppid() });
    if grouped.is_err() || tied.is_err() || parent != original {
        // SAFETY: _exit runs nothing of the original's.
        unsafe { libc::_exit(127) }
    }
}

impl Twin {
    /// Sends a signal to the process. It never reaches a later process of the same number.
    ///
    /// # Errors
    /// The process is reaped (`ESRCH`).
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        process::pidfd_signal(&self.pidfd, signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_several_threads_has_no_proof_that_it_has_one() {
        std::thread::scope(|scope| {
            let (keep, kept) = std::sync::mpsc::sync_channel::<()>(0);
            scope.spawn(move || kept.recv().ok());
            assert!(OneThread::proven().is_none());
            drop(keep);
        });
    }
}
