//! Watches the exit of a process that is not our child, or that is not to be reaped yet.

use std::{future::pending, io};

use heeler_sys::process::{Pid, pidfd_open};
use tokio::net::unix::pipe::Receiver;

/// Watches the exit of one process.
#[derive(Debug)]
pub struct ProcessExitWatch(Receiver);

impl ProcessExitWatch {
    /// Begins to watch a process.
    ///
    /// # Errors
    /// There is no process with this id, or the system has no descriptor for it.
    pub fn watch(process: Pid) -> io::Result<Self> {
        // A pidfd becomes readable when its process exits; tokio's pipe type is the safe way to wait for
        // that.
        pidfd_open(process).and_then(Receiver::from_owned_fd_unchecked).map(Self)
    }

    /// Returns when the process has exited; it may be a zombie still.
    ///
    /// Cancel safe: yes, because nothing is read from the descriptor.
    pub async fn wait(&self) {
        if let Err(error) = self.0.readable().await {
            tracing::debug!(%error, "a process can't be watched any more");
            pending().await
        }
    }
}

/// Waits for a process's exit; forever if there is none to watch.
///
/// Cancel safe: yes, as [`ProcessExitWatch::wait`].
pub(crate) async fn wait_for_exit(process: Option<&ProcessExitWatch>) {
    match process {
        Some(process) => process.wait().await,
        None => pending().await,
    }
}
