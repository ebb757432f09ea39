//! Forked copies of this process, for a single-threaded process with little memory. No program is executed,
//! so nothing is loaded, relocated or initialised.

use std::{fs, io, os::fd::OwnedFd};

use crate::{
    check,
    process::{self, Pid, Signal, exit_immediately},
};

/// Proof that this process is single-threaded, so that a forked child is a complete copy of it.
#[derive(Debug)]
pub struct SingleThreaded(());

/// A process that was forked from this one, or started by another process. Dropping this value does not end
/// the process.
#[derive(Debug)]
pub struct ForkedChild {
    /// Process id, also the process group. May belong to another process after the parent has reaped it.
    pub pid: Pid,
    /// Becomes readable when the process has exited. Never refers to another process.
    pub pidfd: OwnedFd,
}

/// Side of a fork.
#[derive(Debug)]
pub enum ForkResult {
    /// The parent, with a handle of the child.
    Parent(ForkedChild),
    Child,
}

impl SingleThreaded {
    /// Returns the proof; `None` if there are more threads. The caller must not start a thread afterwards.
    #[must_use]
    pub fn check() -> Option<Self> {
        let count = fs::read_dir("/proc/self/task").ok()?.count();
        (count == 1).then_some(Self(()))
    }

    /// Forks this process. The child keeps all descriptors, has its own process group, and is killed when
    /// this process exits.
    ///
    /// # Errors
    /// The system could not create a process or its pidfd. No child is left behind.
    pub fn fork(&self) -> io::Result<ForkResult> {
        let original = Pid::own();
        // SAFETY: there is one thread, so no other thread holds a lock, and the child may do everything that
        // its parent may.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            tie_to_parent(original);
            return Ok(ForkResult::Child);
        }
        let pid = Pid(check(pid)?);
        // The child is not reaped yet, so its process id has not been reused.
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

/// Sets the parent-death signal in the child. On failure the child exits, because it must not outlive its
/// parent.
fn tie_to_parent(original: Pid) {
    let grouped = rustix::process::setpgid(None, None);
    let tied = process::kill_on_parent_exit();
    let parent = rustix::process::getppid().map(|parent| Pid(parent.as_raw_pid()));
    if grouped.is_err() || tied.is_err() || parent != Some(original) {
        exit_immediately(127)
    }
}

impl ForkedChild {
    /// Sends a signal to the process, never to a later process with the same id.
    ///
    /// # Errors
    /// The process has been reaped (`ESRCH`).
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
