//! Has workers list the programs that are not known yet. Pure but for what it tells workers: whoever owns the pool hands
//! it workers and their answers.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use model::share::Demand;
use wire::control::{DiscoverJob, FromWorker, ToWorker, WorkerId};

use super::{Answer, Catalogue};
use crate::pool::Pool;

/// For each slot a worker that does not come is asked for so often; whoever kills one must not cost a program its
/// listing.
const STARTS: usize = 4;
/// A program under whose listing workers keep dying is given up. Its tests are then unknown, so whoever kills one or two
/// workers for reasons of his own must not cost them.
const TRIES: u32 = 4;

/// One listing of all programs that were not known when it began.
#[derive(Debug)]
pub struct Lister {
    timeout: Duration,
    /// Programs and how often they were tried.
    waiting: VecDeque<(usize, u32)>,
    running: BTreeMap<WorkerId, (usize, u32)>,
    served: u64,
    /// How often nobody came of whom it asked for.
    failed_starts: usize,
}

impl Lister {
    /// Begins a listing of these programs. Each may take as long as the timeout says.
    ///
    /// A program that can't be listed is no error: the catalogue tells what is wrong with it.
    #[must_use]
    pub fn new(programs: Vec<usize>, timeout: Duration) -> Self {
        let waiting = programs.into_iter().map(|program| (program, 0)).collect();
        Self { timeout, waiting, running: BTreeMap::new(), served: 0, failed_starts: 0 }
    }

    /// Returns what the listing could use of the slots.
    #[must_use]
    pub fn demand(&self) -> Demand {
        Demand { wanted: self.running.len() + self.waiting.len(), served: self.served }
    }

    /// Returns how many workers list.
    #[must_use]
    pub fn jobs_in_hand(&self) -> usize {
        self.running.len()
    }

    /// Returns whether every program has its answer.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Gives a worker the next program.
    ///
    /// Cancel safe: no, because the worker may have been told or not.
    pub async fn give(&mut self, pool: &mut Pool, catalogue: &Catalogue, worker: WorkerId) {
        let Some((program, tries)) = self.waiting.pop_front() else { return };
        self.running.insert(worker, (program, tries + 1));
        self.served += 1;
        let job = DiscoverJob {
            job: u32::try_from(program).unwrap_or(u32::MAX),
            program: catalogue.programs()[program].source.program.clone(),
            timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
        };
        pool.tell(worker, &ToWorker::Discover(job)).await;
    }

    /// Takes in what a worker says; returns whether it is free again.
    pub fn hear(&mut self, catalogue: &mut Catalogue, worker: WorkerId, message: FromWorker) -> bool {
        match message {
            FromWorker::Discovered { framework, nesting, tests, start_us, .. } => {
                let start = Duration::from_micros(start_us);
                self.answered(catalogue, worker, Ok(Answer { framework, nesting, tests, start }))
            }
            FromWorker::NotDiscovered { error, .. } => self.answered(catalogue, worker, Err(error)),
            FromWorker::Reports { .. }
            | FromWorker::LeaseEnded { .. }
            | FromWorker::Paused
            | FromWorker::Drained { .. }
            | FromWorker::Log { .. } => false,
        }
    }

    fn answered(
        &mut self,
        catalogue: &mut Catalogue,
        worker: WorkerId,
        answer: Result<Answer, String>,
    ) -> bool {
        let Some((program, _)) = self.running.remove(&worker) else { return false };
        catalogue.list(program, answer);
        true
    }

    /// Takes in a worker's death.
    pub fn worker_gone(&mut self, catalogue: &mut Catalogue, worker: WorkerId) {
        let Some((program, tries)) = self.running.remove(&worker) else { return };
        if tries >= TRIES {
            let error = format!("its worker died {tries} times while it was listed");
            catalogue.list(program, Err(error));
        } else {
            self.waiting.push_back((program, tries));
        }
    }

    /// Takes in that a worker did not come; returns whether that was tried often enough, for so many slots.
    pub fn has_tried_enough(&mut self, slots: usize) -> bool {
        self.failed_starts += 1;
        self.failed_starts >= STARTS * slots
    }

    /// When nobody is left who could list, every waiting program is told so.
    pub fn without_workers(&mut self, catalogue: &mut Catalogue, error: &str) {
        let running = std::mem::take(&mut self.running).into_values();
        for (program, _) in running.chain(std::mem::take(&mut self.waiting)) {
            catalogue.list(program, Err(format!("no worker could be started to list it: {error}")));
        }
    }

    /// Ends a listing that nobody wants any more. A worker that lists can't be told to stop, so it goes.
    ///
    /// Cancel safe: no, because some workers may be left.
    pub async fn give_up(self, pool: &mut Pool) {
        for worker in self.running.into_keys() {
            pool.kill(worker).await;
        }
    }
}
