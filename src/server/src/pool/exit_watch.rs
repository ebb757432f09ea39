//! Watches the exit of a process that is not our child, or must not be reaped yet.

use std::{future::pending, io};

use heeler_sys::process::{Pid, pidfd_open};
use tokio::net::unix::pipe::Receiver;

/// Watches the exit of one process.
#[derive(Debug)]
pub struct ProcessExitWatch(Receiver);

impl ProcessExitWatch {
    /// Starts watching a process.
    ///
    /// # Errors
    /// No process has this id, or the system can't open a descriptor for it.
    pub fn watch(process: Pid) -> io::Result<Self> {
        // A pidfd becomes readable when its process exits. Tokio's pipe type can wait for that in safe code.
        pidfd_open(process).and_then(Receiver::from_owned_fd_unchecked).map(Self)
    }

    /// Returns when the process has exited. It may still be a zombie.
    ///
    /// Cancel safe: yes, because nothing is read from the descriptor.
    pub async fn wait(&self) {
        if let Err(error) = self.0.readable().await {
            tracing::debug!(%error, "can no longer watch a process");
            pending().await
        }
    }
}

/// Waits for the process to exit; forever without a process.
///
/// Cancel safe: yes, as [`ProcessExitWatch::wait`].
pub(crate) async fn wait_for_exit(process: Option<&ProcessExitWatch>) {
    match process {
        Some(process) => process.wait().await,
        None => pending().await,
    }
}
