//! Starts watchdog processes.

use std::{
    ffi::OsString,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
};

use heeler_sys::spawn::{ChildStdio, SpawnError, SpawnOptions, SpawnedChild};
use tokio::time::Instant;

use super::{
    deadlines::{SPAWN_RETRY_FOR, SPAWN_RETRY_PAUSE},
    orphans,
};

/// Environment variable of test processes whose coordinator holds a slot for them. A coordinator below such a
/// process always has this slot. Otherwise it would wait for a slot that is free only after its own end.
pub(crate) const SLOT_VARIABLE: &str = "HEELER_HOLDS_SLOT";

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

/// Parameters of every watchdog of a pool.
#[derive(Debug)]
pub(super) struct WatchdogStart {
    /// Heeler's own program.
    pub(super) program: PathBuf,
    /// Socket where the watchdog joins.
    pub(super) socket: PathBuf,
    pub(super) worker_stdout: WorkerStdout,
    /// Descriptor of the machine's slots, which the watchdog keeps open until it exits: if the coordinator is
    /// killed, no other coordinator may use the slots before all test processes have ended.
    pub(super) machine_slots: Option<OwnedFd>,
}

impl WatchdogStart {
    /// Starts the first watchdog. Retries while the system temporarily can't create processes.
    ///
    /// Cancel safe: yes, because it waits only before the process is started.
    pub(super) async fn spawn_first(&self) -> Result<SpawnedChild, SpawnError> {
        let deadline = Instant::now() + SPAWN_RETRY_FOR;
        loop {
            match self.spawn() {
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
    pub(super) fn spawn(&self) -> Result<SpawnedChild, SpawnError> {
        let mut spawn = SpawnOptions::new(self.program.clone());
        spawn.args = vec![OsString::from("__watchdog"), self.socket.as_os_str().to_owned()];
        spawn.env = Some(self.environment());
        let failed = |source| SpawnError::Create { program: self.program.clone(), source };
        spawn.stdout = self.worker_stdout.open().map_err(failed)?;
        // Nothing is sent on this descriptor. The watchdog only has it, and its children don't inherit it.
        spawn.channel = self.machine_slots.as_ref().map(OwnedFd::try_clone).transpose().map_err(failed)?;
        let child = heeler_sys::fail::at("pool.watchdog")
            .map_err(failed)
            .and_then(|()| heeler_sys::spawn::spawn(spawn))?;
        orphans::register_watchdog(child.pid());
        Ok(child)
    }

    /// Returns this process's environment. A variable shows test processes whether they have a slot of the
    /// machine.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let inherited = std::env::vars_os().filter(|(name, _)| name != SLOT_VARIABLE);
        let own = self.machine_slots.iter().map(|_| (SLOT_VARIABLE.into(), "1".into()));
        inherited.chain(own).collect()
    }
}
