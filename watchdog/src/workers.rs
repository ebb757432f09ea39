//! Starts and observes workers. An exit is reported only after the worker's whole process tree is gone.
//!
//! A dying worker takes its guards with it, and a dying guard its test. Processes left behind by a test are
//! reparented to the watchdog before their parent's exit can be noticed. A child that is not a worker is
//! therefore an orphan, and without such children the whole tree is gone.

use std::{
    collections::HashMap,
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};

use heeler_protocol::control::{FromWatchdog, WorkerId};
use heeler_sys::{
    process::{self, ExitStatus, Pid, Signal},
    spawn::{ChildStdio, SpawnError, SpawnOptions, SpawnedChild, spawn},
};

/// A worker's exit is reported after this time even if a descendant hangs in the kernel.
const EXIT_REPORT_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct WorkerProcesses {
    running: HashMap<Pid, (WorkerId, SpawnedChild)>,
    unreported_exits: Vec<WorkerExit>,
}

#[derive(Debug)]
struct WorkerExit {
    worker: WorkerId,
    exit: ExitStatus,
    reaped_at: Instant,
}

impl WorkerProcesses {
    /// Starts a worker, which joins at the coordinator's socket.
    pub(crate) fn start(&mut self, worker: WorkerId, socket_path: &Path) -> Result<(), SpawnError> {
        let args =
            ["__worker".into(), socket_path.as_os_str().to_owned(), OsString::from(worker.to_string())];
        // The worker's output goes where the watchdog's goes: to the user, or nowhere if output is captured.
        let spawned = SpawnOptions {
            args: args.into(),
            stdout: ChildStdio::Inherit,
            ..SpawnOptions::new(process::own_program_path())
        };
        let child = heeler_sys::fail::at("watchdog.worker")
            .map_err(|source| SpawnError::Create { program: process::own_program_path(), source })
            .and_then(|()| spawn(spawned))?;
        self.running.insert(child.pid(), (worker, child));
        Ok(())
    }

    /// Kills a worker if it is alive. Its exit is reported as usual.
    pub(crate) fn kill(&mut self, worker: WorkerId) {
        for (_, child) in self.running.values().filter(|(one, _)| *one == worker) {
            // Ignore errors: the worker may have exited by itself meanwhile.
            let _gone = child.signal(Signal::KILL);
        }
    }

    /// Kills all workers and all other descendants.
    pub(crate) fn kill_all(&mut self) {
        let _reached = process::signal_descendants(Pid::own(), Signal::KILL, |_, _| true);
    }

    /// Reaps exited children, kills orphans, and returns completed worker exits.
    pub(crate) fn collect_exits(&mut self) -> Vec<FromWatchdog> {
        self.reap();
        let is_clear = self.kill_orphans() == 0;
        let is_complete = |ended: &mut WorkerExit| is_clear || ended.reaped_at.elapsed() > EXIT_REPORT_LIMIT;
        let to_message = |ended: WorkerExit| {
            let WorkerExit { worker, exit, .. } = ended;
            FromWatchdog::WorkerEnded { worker, code: exit.code, signal: exit.signal }
        };
        self.unreported_exits.extract_if(.., is_complete).map(to_message).collect()
    }

    fn reap(&mut self) {
        loop {
            match process::reap_any() {
                Ok(Some((pid, exit))) => {
                    if let Some((worker, _)) = self.running.remove(&pid) {
                        self.unreported_exits.push(WorkerExit { worker, exit, reaped_at: Instant::now() });
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "cannot reap child processes");
                    return;
                }
            }
        }
    }

    fn kill_orphans(&self) -> usize {
        let mut count = 0;
        for pid in process::children(Pid::own()) {
            if !self.running.contains_key(&pid) {
                count += 1;
                let _is_permitted = process::kill_child(pid);
                // Otherwise the orphan's descendants would be reparented to the watchdog one generation at a
                // time.
                let _reached = process::signal_descendants(pid, Signal::KILL, |_, _| true);
            }
        }
        count
    }
}
