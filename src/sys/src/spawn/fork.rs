//! Forked copies of this process, for a process with a single thread and little memory: no program is
//! executed, so there is nothing to load, to relocate or to set up.

use std::{fs, io, os::fd::OwnedFd};

use crate::{
    check,
    process::{self, Pid, Signal, exit_immediately},
};

/// Proof that this process has one thread, so that a forked child has all that its parent had.
#[derive(Debug)]
pub struct SingleThreaded(());

/// A process that was started by another process, or forked from this one. Dropping it does not terminate it.
#[derive(Debug)]
pub struct ForkedChild {
    /// The process id, which is also its process group. It may belong to another process once its parent has
    /// reaped it.
    pub pid: Pid,
    /// Becomes readable when the process has exited, and never refers to another process.
    pub pidfd: OwnedFd,
}

/// The side of a fork that the caller is on.
#[derive(Debug)]
pub enum ForkResult {
    /// The parent, with the handle of the child.
    Parent(ForkedChild),
    /// The child.
    Child,
}

impl SingleThreaded {
    /// Returns the proof; `None` if there are more threads. The holder of the proof must not start any.
    #[must_use]
    pub fn check() -> Option<Self> {
        let count = fs::read_dir("/proc/self/task").ok()?.count();
        (count == 1).then_some(Self(()))
    }

    /// Forks this process: the child has its own process group and is killed when this process exits. It
    /// keeps all descriptors.
    ///
    /// # Errors
    /// The system could not create a process, or a pidfd for it. No child is left then.
    pub fn fork(&self) -> io::Result<ForkResult> {
        let original = Pid::own();
        // SAFETY: there is one thread, so no other thread holds a lock and the child may do everything
        // that its parent may.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            tie_to_parent(original);
            return Ok(ForkResult::Child);
        }
        let pid = Pid(check(pid)?);
        // The child is not reaped yet, so the process id is still its own.
        match process::pidfd_open(pid) {
            Ok(pidfd) => Ok(ForkResult::Parent(ForkedChild { pid, pidfd })),
            Err(error) => {
                let _is_permitted = process::kill_child(pid);
                process::reap_child(pid)?;
                Err(error)
            }
        }
    }
}

/// Sets the parent-death signal in the child, or exits: an untied child must not survive.
fn tie_to_parent(original: Pid) {
    let grouped = rustix::process::setpgid(None, None);
    let tied = process::kill_on_parent_exit();
    let parent = rustix::process::getppid().map(|parent| Pid(parent.as_raw_pid()));
    if grouped.is_err() || tied.is_err() || parent != Some(original) {
        exit_immediately(127)
    }
}

impl ForkedChild {
    /// Sends a signal to the process. It never reaches a later process with the same id.
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
    fn several_threads_yield_no_single_thread_proof() {
        std::thread::scope(|scope| {
            let (keep, kept) = std::sync::mpsc::sync_channel::<()>(0);
            scope.spawn(move || kept.recv().ok());
            assert!(SingleThreaded::check().is_none());
            drop(keep);
        });
    }
}
