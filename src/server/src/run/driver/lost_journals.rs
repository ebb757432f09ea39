//! Journals of dead workers, which the watchdog reads.

use std::{collections::BTreeMap, time::Duration};

use heeler_protocol::control::WorkerId;
use tokio::time::Instant;

/// Time limit for reading a journal.
const JOURNAL_DEADLINE: Duration = Duration::from_secs(10);

/// A journal that is being read.
struct AwaitedJournal {
    /// The client is proven to have received the worker's results up to this position.
    proven: u64,
    deadline: Instant,
}

/// Journals that are being read.
#[derive(Default)]
pub(super) struct LostJournals(BTreeMap<WorkerId, AwaitedJournal>);

impl LostJournals {
    pub(super) fn add(&mut self, worker: WorkerId, proven: u64) {
        let deadline = Instant::now() + JOURNAL_DEADLINE;
        self.0.insert(worker, AwaitedJournal { proven, deadline });
    }

    /// Removes a journal that was read. Returns how far the client is proven to have received the
    /// worker's results.
    pub(super) fn remove(&mut self, worker: WorkerId) -> Option<u64> {
        self.0.remove(&worker).map(|journal| journal.proven)
    }

    pub(super) fn contains(&self, worker: WorkerId) -> bool {
        self.0.contains_key(&worker)
    }

    pub(super) fn workers(&self) -> Vec<WorkerId> {
        self.0.keys().copied().collect()
    }

    pub(super) fn proven(&self, worker: WorkerId) -> u64 {
        self.0.get(&worker).map_or(0, |journal| journal.proven)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.values().map(|journal| journal.deadline).min()
    }

    /// Returns the workers whose journals were not read in time.
    pub(super) fn late(&self, now: Instant) -> Vec<WorkerId> {
        self.0.iter().filter(|(_, journal)| journal.deadline <= now).map(|(worker, _)| *worker).collect()
    }
}
