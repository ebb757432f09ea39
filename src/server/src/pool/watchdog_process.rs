//! Starts watchdog processes.

use std::{ffi::OsString, os::fd::AsFd as _, path::Path};

use heeler_sys::spawn::{ChildStdio, SpawnError, SpawnOptions, SpawnedChild};
use tokio::time::Instant;

use super::{
    deadlines::{SPAWN_RETRY_FOR, SPAWN_RETRY_PAUSE},
    orphans,
};

/// Destination of the watchdog's and the workers' standard output. Workers write test output there that is
/// not captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerStdout {
    /// Nowhere, because all output is captured.
    Discarded,
    /// Our standard output.
    StandardOutput,
    /// Our standard error, because our standard output carries a protocol.
    StandardError,
}

impl WorkerStdout {
    fn open(self) -> std::io::Result<ChildStdio> {
        Ok(match self {
            Self::Discarded => ChildStdio::Null,
            Self::StandardOutput => ChildStdio::Inherit,
            Self::StandardError => ChildStdio::Fd(std::io::stderr().as_fd().try_clone_to_owned()?),
        })
    }
}

/// Starts the first watchdog. Retries while the system temporarily can't create processes.
pub(super) async fn spawn_first_watchdog(
    program: &Path,
    socket: &Path,
    stdout: WorkerStdout,
) -> Result<SpawnedChild, SpawnError> {
    let deadline = Instant::now() + SPAWN_RETRY_FOR;
    loop {
        match spawn_watchdog(program, socket, stdout) {
            Err(SpawnError::Create { source, .. })
                if source.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < deadline =>
            {
                tokio::time::sleep(SPAWN_RETRY_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Starts a watchdog that joins at the socket.
pub(super) fn spawn_watchdog(
    program: &Path,
    socket: &Path,
    stdout: WorkerStdout,
) -> Result<SpawnedChild, SpawnError> {
    let mut spawn = SpawnOptions::new(program.to_owned());
    spawn.args = vec![OsString::from("__watchdog"), socket.as_os_str().to_owned()];
    let failed = |source| SpawnError::Create { program: program.to_owned(), source };
    spawn.stdout = stdout.open().map_err(failed)?;
    let child = heeler_sys::fail::at("pool.watchdog")
        .map_err(failed)
        .and_then(|()| heeler_sys::spawn::spawn(spawn))?;
    orphans::register_watchdog(child.pid());
    Ok(child)
}
