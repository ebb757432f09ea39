//! Has workers list the programs that are not known yet, as many at once as there are slots.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::sync::mpsc;
use wire::control::{DiscoverJob, FromWorker, ToWorker, WorkerId};

use super::{Answer, Catalogue};
use crate::{
    pool::{Pool, PoolEvent},
    run::RunCommand,
};

/// A program under whose listing workers keep dying is given up.
const TRIES: u32 = 2;

/// Lists what is not known. Returns whether it came to its end, that is, was not cancelled.
///
/// A program that can't be listed is no error here: the catalogue tells what is wrong with it.
///
/// Cancel safe: no, because answers of workers would be lost; send [`RunCommand::Cancel`].
pub async fn discover(
    pool: &mut Pool,
    catalogue: &mut Catalogue,
    (slots, timeout): (usize, Duration),
    commands: &mut mpsc::Receiver<RunCommand>,
) -> bool {
    let waiting: VecDeque<_> = catalogue.unlisted().into_iter().map(|program| (program, 0)).collect();
    let mut driver = Driver { pool, catalogue, timeout, waiting, running: BTreeMap::new(), starting: 0 };
    let wanted = slots.min(driver.waiting.len());
    let ready = driver.pool.ready_workers();
    for _ in ready.len()..wanted {
        driver.pool.start_worker().await;
        driver.starting += 1;
    }
    for worker in ready.into_iter().take(wanted) {
        driver.hand_out(worker).await;
    }
    while !driver.waiting.is_empty() || !driver.running.is_empty() {
        tokio::select! {
            event = driver.pool.next() => driver.handle(event).await,
            () = cancelled(commands) => {
                driver.give_up().await;
                return false;
            }
        }
    }
    driver.catalogue.index();
    true
}

/// Waits until a cancellation comes. Nothing of the user's runs for long here, so pauses are answered at once.
async fn cancelled(commands: &mut mpsc::Receiver<RunCommand>) {
    loop {
        match commands.recv().await {
            Some(RunCommand::Cancel) | None => return,
            Some(RunCommand::Pause(done)) => {
                // Whoever asked may be gone.
                let _gone = done.send(());
            }
            Some(RunCommand::Resume) => {}
        }
    }
}

struct Driver<'a> {
    pool: &'a mut Pool,
    catalogue: &'a mut Catalogue,
    timeout: Duration,
    /// Programs and how often they were tried.
    waiting: VecDeque<(usize, u32)>,
    running: BTreeMap<WorkerId, (usize, u32)>,
    starting: usize,
}

impl Driver<'_> {
    async fn hand_out(&mut self, worker: WorkerId) {
        let Some((program, tries)) = self.waiting.pop_front() else { return };
        self.running.insert(worker, (program, tries + 1));
        let job = DiscoverJob {
            job: u32::try_from(program).unwrap_or(u32::MAX),
            program: self.catalogue.programs()[program].source.program.clone(),
            timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
        };
        self.pool.tell(worker, &ToWorker::Discover(job)).await;
    }

    async fn handle(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::WorkerReady(worker) => {
                self.starting = self.starting.saturating_sub(1);
                self.hand_out(worker).await;
            }
            PoolEvent::WorkerNotStarted { error, .. } => {
                self.starting = self.starting.saturating_sub(1);
                self.without_workers(&error);
            }
            PoolEvent::Worker(worker, FromWorker::Discovered { framework, nesting, tests, start_us, .. }) => {
                let start = Duration::from_micros(start_us);
                self.answered(worker, Ok(Answer { framework, nesting, tests, start })).await;
            }
            PoolEvent::Worker(worker, FromWorker::NotDiscovered { error, .. }) => {
                self.answered(worker, Err(error)).await;
            }
            PoolEvent::Worker(_, _) | PoolEvent::Watchdog(_) => {}
            PoolEvent::WorkerGone { worker, .. } => self.died(worker).await,
            PoolEvent::WatchdogReplaced => {
                if let Err(error) = self.pool.await_replacement().await {
                    self.without_workers(&error.to_string());
                }
            }
            PoolEvent::WatchdogLost(error) => {
                self.starting = 0;
                self.running.clear();
                self.without_workers(&error.to_string());
            }
        }
    }

    async fn answered(&mut self, worker: WorkerId, answer: Result<Answer, String>) {
        if let Some((program, _)) = self.running.remove(&worker) {
            self.catalogue.list(program, answer);
        }
        self.hand_out(worker).await;
    }

    async fn died(&mut self, worker: WorkerId) {
        if let Some((program, tries)) = self.running.remove(&worker) {
            if tries >= TRIES {
                let error = format!("its worker died {tries} times while it was listed");
                self.catalogue.list(program, Err(error));
            } else {
                self.waiting.push_back((program, tries));
            }
        }
        if !self.waiting.is_empty() && self.running.is_empty() && self.starting == 0 {
            self.pool.start_worker().await;
            self.starting += 1;
        }
    }

    /// When nobody is left who could list, every waiting program is told so.
    fn without_workers(&mut self, error: &str) {
        if self.starting > 0 || !self.running.is_empty() || !self.pool.ready_workers().is_empty() {
            return;
        }
        for (program, _) in std::mem::take(&mut self.waiting) {
            self.catalogue.list(program, Err(format!("no worker could be started to list it: {error}")));
        }
    }

    /// Ends listings that nobody wants any more. A worker that lists can't be told to stop, so it goes.
    async fn give_up(&mut self) {
        for worker in std::mem::take(&mut self.running).into_keys() {
            self.pool.kill(worker).await;
        }
    }
}
