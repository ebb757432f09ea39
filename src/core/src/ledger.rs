//! The ledger records the results that a run has yet to deliver, and the results that are proven delivered.
//!
//! The ledger has one entry for each selected test and one for each stream that may carry results. A run may
//! complete only when the ledger balances: every test has exactly one terminal result, and each result is
//! either on a stream below the stream's proven position, or due to be sent by the finisher. An empty queue
//! proves nothing.

use std::collections::BTreeMap;

use crate::{Outcome, SynthesizedResult, TestId, WorkerId};

/// State of a test in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LedgerEntry {
    /// No result yet.
    Open,
    /// A worker has journalled the result and put it on its stream.
    Settled {
        outcome: Outcome,
        /// Worker whose stream has the result.
        worker: WorkerId,
        /// Position of the result on the stream, from 1.
        position: u64,
    },
    /// The finisher will send a synthesized result.
    Synthesized(SynthesizedResult),
}

impl LedgerEntry {
    /// Returns the outcome of the test, once it has a result.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Open => None,
            Self::Settled { outcome, .. } => Some(*outcome),
            Self::Synthesized(synthesized) => Some(synthesized.outcome()),
        }
    }
}

/// Position of a result on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamPosition {
    /// Worker whose stream has the result.
    pub worker: WorkerId,
    /// Position of the result on the stream, from 1.
    pub position: u64,
}

/// State of one worker's stream in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ResultStream {
    /// Results put on the stream.
    pub sent: u64,
    /// Results that the client is proven to have.
    pub proven: u64,
    /// Whether the stream is closed; its state is then final.
    pub is_closed: bool,
}

impl ResultStream {
    /// Returns whether the client is proven to have all results of the stream.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.proven >= self.sent
    }
}

/// A second result for a test: a protocol violation, never forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DuplicateResult {
    pub test: TestId,
    /// The entry of the first result.
    pub first: LedgerEntry,
}

/// The ledger of one run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ledger {
    entries: Vec<LedgerEntry>,
    open: usize,
    /// Number of results that are failures.
    failures: usize,
    streams: BTreeMap<WorkerId, ResultStream>,
}

impl Ledger {
    /// Creates a ledger for `selected` tests, all without a result.
    #[must_use]
    pub fn new(selected: usize) -> Self {
        Self {
            entries: vec![LedgerEntry::Open; selected],
            open: selected,
            failures: 0,
            streams: BTreeMap::new(),
        }
    }

    /// Adds tests without results, numbered after the existing ones.
    pub fn add_tests(&mut self, added: usize) {
        self.entries.extend(std::iter::repeat_n(LedgerEntry::Open, added));
        self.open += added;
    }

    /// Opens a worker's stream, which may carry messages of this run from now on, even if only the start of a
    /// test.
    pub(crate) fn open_stream(&mut self, worker: WorkerId) {
        self.streams.entry(worker).or_default();
    }

    /// Records a result that is on a worker's stream.
    ///
    /// # Errors
    /// The test already has a result. The ledger is unchanged, except that the stream counts one more result.
    pub fn settle(
        &mut self,
        test: TestId,
        outcome: Outcome,
        StreamPosition { worker, position }: StreamPosition,
    ) -> Result<(), DuplicateResult> {
        let stream = self.streams.entry(worker).or_default();
        stream.sent = stream.sent.max(position);
        self.record(test, LedgerEntry::Settled { outcome, worker, position })
    }

    /// Records a synthesized result, which the finisher sends.
    ///
    /// # Errors
    /// The test already has a result.
    pub(crate) fn record_synthesized(
        &mut self,
        test: TestId,
        result: SynthesizedResult,
    ) -> Result<(), DuplicateResult> {
        self.record(test, LedgerEntry::Synthesized(result))
    }

    fn record(&mut self, test: TestId, entry: LedgerEntry) -> Result<(), DuplicateResult> {
        let place = self.entries.get_mut(test.index()).expect("tests are numbered by the plan");
        if *place != LedgerEntry::Open {
            return Err(DuplicateResult { test, first: *place });
        }
        *place = entry;
        self.open -= 1;
        self.failures += usize::from(entry.outcome().is_some_and(Outcome::is_failure));
        Ok(())
    }

    /// Records the final proven position of a stream.
    pub fn close_stream(&mut self, worker: WorkerId, proven: u64) {
        let stream = self.streams.entry(worker).or_default();
        stream.proven = stream.proven.max(proven.min(stream.sent));
        stream.is_closed = true;
    }

    #[must_use]
    pub fn entry(&self, test: TestId) -> LedgerEntry {
        self.entries[test.index()]
    }

    /// Returns all entries, by test.
    #[must_use]
    pub fn entries(&self) -> &[LedgerEntry] {
        &self.entries
    }

    /// Returns the streams of the run, by worker.
    #[must_use]
    pub fn streams(&self) -> &BTreeMap<WorkerId, ResultStream> {
        &self.streams
    }

    /// Returns the workers whose streams are not proven yet.
    pub(crate) fn open_streams(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.streams.iter().filter(|(_, stream)| !stream.is_closed).map(|(worker, _)| *worker)
    }

    /// Returns the number of tests without a result.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open
    }

    /// Returns whether every test has a result and the state of every stream is final.
    #[must_use]
    pub(crate) fn is_balanced(&self) -> bool {
        self.open == 0 && self.streams.values().all(|stream| stream.is_closed)
    }

    /// Returns the streams that may have lost results, with their proven positions.
    #[must_use]
    pub fn unproven_streams(&self) -> Vec<(WorkerId, u64)> {
        self.streams
            .iter()
            .filter(|(_, stream)| !stream.is_proven())
            .map(|(worker, stream)| (*worker, stream.proven))
            .collect()
    }

    /// Returns the synthesized results, which the finisher sends.
    #[must_use]
    pub fn synthesized_results(&self) -> Vec<(TestId, SynthesizedResult)> {
        (0..)
            .map(TestId)
            .zip(&self.entries)
            .filter_map(|(test, entry)| match entry {
                LedgerEntry::Synthesized(result) => Some((test, *result)),
                LedgerEntry::Open | LedgerEntry::Settled { .. } => None,
            })
            .collect()
    }

    /// Returns the number of tests that have failed so far.
    #[must_use]
    pub fn failure_count(&self) -> usize {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NotRunReason;

    fn place(worker: u32, position: u64) -> StreamPosition {
        StreamPosition { worker: WorkerId(worker), position }
    }

    #[test]
    fn second_result_of_a_test_is_refused() {
        let mut ledger = Ledger::new(2);
        ledger.settle(TestId(0), Outcome::Passed, place(1, 1)).unwrap();
        let first = LedgerEntry::Settled { outcome: Outcome::Passed, worker: WorkerId(1), position: 1 };
        assert_eq!(
            ledger.settle(TestId(0), Outcome::Failed, place(2, 1)),
            Err(DuplicateResult { test: TestId(0), first })
        );
        assert_eq!(
            ledger.record_synthesized(TestId(0), SynthesizedResult::NotRun(NotRunReason::Cancelled)),
            Err(DuplicateResult { test: TestId(0), first })
        );
        assert_eq!(ledger.entry(TestId(0)), first);
        assert_eq!(ledger.open_count(), 1);
    }

    #[test]
    fn ledger_balances_only_with_all_streams_closed() {
        let mut ledger = Ledger::new(2);
        ledger.settle(TestId(0), Outcome::Passed, place(1, 1)).unwrap();
        ledger.record_synthesized(TestId(1), SynthesizedResult::NotRun(NotRunReason::Cancelled)).unwrap();
        assert!(!ledger.is_balanced());
        ledger.close_stream(WorkerId(1), 0);
        assert!(ledger.is_balanced());
        assert_eq!(ledger.unproven_streams(), [(WorkerId(1), 0)]);
    }

    #[test]
    fn stream_proves_at_most_what_it_carried() {
        let mut ledger = Ledger::new(1);
        ledger.settle(TestId(0), Outcome::Passed, place(1, 1)).unwrap();
        ledger.close_stream(WorkerId(1), 99);
        assert_eq!(ledger.unproven_streams(), []);
        assert_eq!(ledger.streams()[&WorkerId(1)].proven, 1);
    }
}
