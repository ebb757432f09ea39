//! Starts the watchdog process and waits for its exit.

use std::{ffi::OsString, future::pending, path::Path};

use heeler_sys::spawn::{ChildStdio, SpawnError, SpawnOptions, SpawnedChild};
use tokio::time::Instant;

use super::{
    deadlines::{SPAWN_RETRY_FOR, SPAWN_RETRY_PAUSE},
    exit_watch::ProcessExitWatch,
    orphans,
};

/// Waits for a process's exit; forever if it can't be watched, so that only the deadline applies.
pub(super) async fn wait_for_exit(end: Option<&ProcessExitWatch>) {
    match end {
        Some(end) => end.wait().await,
        None => pending().await,
    }
}

/// Starts the first watchdog; retries while the system temporarily has no process to spare.
pub(super) async fn spawn_first_watchdog(
    program: &Path,
    socket: &Path,
    is_output_shared: bool,
) -> Result<SpawnedChild, SpawnError> {
    let deadline = Instant::now() + SPAWN_RETRY_FOR;
    loop {
        match spawn_watchdog(program, socket, is_output_shared) {
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
    is_output_shared: bool,
) -> Result<SpawnedChild, SpawnError> {
    let mut spawn = SpawnOptions::new(program.to_owned());
    spawn.args = vec![OsString::from("__watchdog"), socket.as_os_str().to_owned()];
    spawn.stdout = if is_output_shared { ChildStdio::Inherit } else { ChildStdio::Null };
    let child = heeler_sys::fail::at("pool.watchdog")
        .map_err(|source| SpawnError::Create { program: program.to_owned(), source })
        .and_then(|()| heeler_sys::spawn::spawn(spawn))?;
    orphans::register_watchdog(child.pid());
    Ok(child)
}
