//! The end of a process that is not ours to wait for, or not yet.

use std::{future::pending, io};

use host::process::{Pid, pidfd_open};
use tokio::net::unix::pipe::Receiver;

/// Waits for the end of one process.
#[derive(Debug)]
pub struct ProcessEnd(Receiver);

impl ProcessEnd {
    /// Begins to watch a process.
    ///
    /// # Errors
    /// There is none of this number, or the system has no descriptor for it.
    pub fn of(process: Pid) -> io::Result<Self> {
        // A process descriptor becomes readable when the process ends; tokio's pipe type is its safe way to wait for that.
        pidfd_open(process).and_then(Receiver::from_owned_fd_unchecked).map(Self)
    }

    /// Returns when the process has ended; it may still wait to be reaped.
    ///
    /// Cancel safe: yes, because nothing is taken from the descriptor.
    pub async fn wait(&self) {
        if let Err(error) = self.0.readable().await {
            tracing::debug!(%error, "a process can't be watched any more");
            pending().await
        }
    }
}
