//! Lives and deaths of workers. A death is told when all that was below the worker is gone too.
//!
//! A dying worker takes its guards along, a dying guard its test; what a test has left becomes the watchdog's child,
//! before the death above it can be noticed. So a child that is no worker is an orphan, and when there is none, all is
//! gone.

use std::{
    collections::HashMap,
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};

use host::{
    process::{self, Pid, RawExit, Signal},
    spawn::{Child, Spawn, SpawnError, Stream, spawn},
};
use wire::control::{FromWatchdog, WorkerId};

/// A death is told after this time even if something below hangs in the kernel.
const CLEAR_LIMIT: Duration = Duration::from_secs(5);

/// All workers of the session.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    living: HashMap<Pid, (WorkerId, Child)>,
    ended: Vec<Ended>,
}

#[derive(Debug)]
struct Ended {
    worker: WorkerId,
    exit: RawExit,
    at: Instant,
}

impl Workers {
    /// Starts a worker, which will join at the coordinator's socket.
    pub(crate) fn start(&mut self, worker: WorkerId, socket_path: &Path) -> Result<(), SpawnError> {
        let args =
            ["__worker".into(), socket_path.as_os_str().to_owned(), OsString::from(worker.to_string())];
        // Its output goes where ours goes: to the user when output is not captured, else nowhere.
        let spawned =
            Spawn { args: args.into(), stdout: Stream::Inherit, ..Spawn::new(process::own_image()) };
        let child = host::fail::at("watchdog.worker")
            .map_err(|source| SpawnError::Create { program: process::own_image(), source })
            .and_then(|()| spawn(spawned))?;
        self.living.insert(child.pid(), (worker, child));
        Ok(())
    }

    /// Kills a worker, if it lives; its end is noticed as any other.
    pub(crate) fn kill(&mut self, worker: WorkerId) {
        for (_, child) in self.living.values().filter(|(one, _)| *one == worker) {
            // A worker that has ended by itself meanwhile is as good.
            let _gone = child.signal(Signal::KILL);
        }
    }

    /// Kills all workers and everything else below.
    pub(crate) fn kill_all(&mut self) {
        let _reached = process::signal_descendants(Pid::own(), Signal::KILL, |_, _| true);
    }

    /// Reaps what has ended, kills what was orphaned, and returns the deaths that are complete.
    pub(crate) fn settle(&mut self) -> Vec<FromWatchdog> {
        self.reap();
        let is_clear = self.kill_orphans() == 0;
        let is_complete = |ended: &mut Ended| is_clear || ended.at.elapsed() > CLEAR_LIMIT;
        let told = |ended: Ended| {
            let Ended { worker, exit, .. } = ended;
            FromWatchdog::WorkerEnded { worker, code: exit.code, signal: exit.signal }
        };
        self.ended.extract_if(.., is_complete).map(told).collect()
    }

    fn reap(&mut self) {
        loop {
            match process::reap_any() {
                Ok(Some((pid, exit))) => {
                    if let Some((worker, _)) = self.living.remove(&pid) {
                        self.ended.push(Ended { worker, exit, at: Instant::now() });
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "children cannot be reaped");
                    return;
                }
            }
        }
    }

    fn kill_orphans(&self) -> usize {
        let mut count = 0;
        for pid in process::children(Pid::own()) {
            if !self.living.contains_key(&pid) {
                count += 1;
                process::kill_child(pid);
                // What is below would come to us one generation after the other.
                let _reached = process::signal_descendants(pid, Signal::KILL, |_, _| true);
            }
        }
        count
    }
}
