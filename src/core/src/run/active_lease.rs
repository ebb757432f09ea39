//! One lease: a process from its start to its end, with all batches that it runs. When all its tests have
//! ended, the worker reports the lease as idle, and the run extends the lease or ends the process.

use std::time::Duration;

use super::{
    CancelMode,
    lease_holdings::LeaseHoldings,
    lease_pace::LeasePace,
    run_tests::{RunTests, TestSituation},
    set_up::LeaseSetUps,
};
use crate::{
    LeaseId, ProgramId, SetUpProgress, Slots, TestId,
    batching::{BusySlot, SlotLoads, TestBatch, TestQueue},
};

/// Tests are taken back only if the run then ends earlier by at least this multiple of the start cost,
/// because they need another process.
const SAVED_PER_START: u32 = 3;

/// Whether the process of a lease waits for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LeaseIdleness {
    /// The process runs tests, or has not reported their end.
    Busy,
    /// The process waits for more tests.
    Idle,
    /// The process was idle, and is being ended.
    Ending,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ActiveLease {
    id: LeaseId,
    batch: TestBatch,
    holdings: LeaseHoldings,
    /// Number of startup timeouts of the program's processes before this lease.
    start_timeouts: u32,
    /// How the lease was cancelled, if it was.
    cancel_mode: Option<CancelMode>,
    pace: LeasePace,
    /// Whether the lease was extended: its process had already run another batch.
    is_extended: bool,
    /// Whether the process was already running when the lease began.
    has_waited: bool,
    idleness: LeaseIdleness,
    /// Whether the watchdog has died, and the worker with it.
    is_lost_with_watchdog: bool,
    set_ups: LeaseSetUps,
}

impl ActiveLease {
    pub(super) fn new(
        id: LeaseId,
        batch: TestBatch,
        holdings: LeaseHoldings,
        start_timeouts: u32,
        has_waited: bool,
    ) -> Self {
        Self {
            id,
            batch,
            holdings,
            start_timeouts,
            cancel_mode: None,
            pace: LeasePace::default(),
            is_extended: false,
            has_waited,
            idleness: LeaseIdleness::Busy,
            is_lost_with_watchdog: false,
            set_ups: LeaseSetUps::default(),
        }
    }

    pub(super) fn id(&self) -> LeaseId {
        self.id
    }

    pub(super) fn batch(&self) -> &TestBatch {
        &self.batch
    }

    pub(super) fn program(&self) -> ProgramId {
        self.batch.program
    }

    pub(super) fn start_timeouts(&self) -> u32 {
        self.start_timeouts
    }

    /// Returns whether the process was already running when it received the batch.
    pub(super) fn is_ready(&self) -> bool {
        self.has_waited || self.is_extended
    }

    /// Returns whether the process is running and may be given more tests.
    pub(super) fn takes_tests(&self) -> bool {
        self.is_ready() && !self.is_cancelled() && self.idleness != LeaseIdleness::Ending
    }

    /// Returns whether the process has finished no test. `rest` are its tests without a result.
    pub(super) fn is_unproductive(&self, rest: &[TestId]) -> bool {
        !self.is_extended && rest.len() == self.batch.tests.len()
    }

    /// Returns whether the duration of a test includes the start of the process. Such a duration does not
    /// help to estimate other tests.
    pub(super) fn includes_start(&self, queue: &TestQueue, test: TestId) -> bool {
        !self.is_ready() && queue.includes_start(&self.batch, test)
    }

    /// Records that all tests of the lease have ended. Ignored if the lease is cancelled, because its process
    /// is being ended.
    pub(super) fn on_idle(&mut self) {
        if !self.is_cancelled() && self.idleness == LeaseIdleness::Busy {
            self.idleness = LeaseIdleness::Idle;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.idleness == LeaseIdleness::Idle
    }

    /// Returns whether the waiting process may be given more tests.
    pub(super) fn is_extendable(&self, tests: &RunTests) -> bool {
        // A process that reports itself idle although one of its tests has no result gets no more tests.
        let is_open = |test: &TestId| tests.location(*test).is_in(self.id);
        !self.batch.is_isolated && !self.batch.tests.iter().any(is_open)
    }

    pub(super) fn extend(&mut self, batch: TestBatch) {
        self.batch = batch;
        (self.is_extended, self.idleness) = (true, LeaseIdleness::Busy);
    }

    pub(super) fn end_process(&mut self) {
        self.idleness = LeaseIdleness::Ending;
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel_mode.is_some()
    }

    /// Cancels the lease; returns `false` if it was already cancelled in this mode or a stronger one.
    pub(super) fn cancel(&mut self, mode: CancelMode) -> bool {
        let is_new = self.cancel_mode < Some(mode);
        if is_new {
            self.cancel_mode = Some(mode);
        }
        is_new
    }

    pub(super) fn on_watchdog_died(&mut self) {
        self.is_lost_with_watchdog = true;
    }

    pub(super) fn is_lost_with_watchdog(&self) -> bool {
        self.is_lost_with_watchdog
    }

    pub(super) fn on_set_up(&mut self, fixture: String, progress: SetUpProgress) {
        self.set_ups.record(fixture, progress);
    }

    pub(super) fn has_set_up(&self, fixture: &str) -> bool {
        self.set_ups.has(fixture)
    }

    /// Returns the fixture that the process is setting up, unless the set-up already has a time limit or the
    /// process is being ended.
    pub(super) fn unlimited_set_up(&self) -> Option<&str> {
        self.set_ups.unlimited().filter(|_| !self.is_cancelled())
    }

    /// Starts the time limit of the current set-up.
    pub(super) fn limit_set_up(&mut self) {
        self.set_ups.limit();
    }

    /// Cancels the lease if a set-up has reached its time limit; returns the fixture.
    pub(super) fn cancel_set_up(&mut self) -> Option<String> {
        let fixture = self.set_ups.take_limited()?;
        self.cancel(CancelMode::Now);
        Some(fixture)
    }

    pub(super) fn holdings(&self) -> &LeaseHoldings {
        &self.holdings
    }

    pub(super) fn weight(&self) -> Slots {
        self.holdings.weight
    }

    pub(super) fn busy_slot(&self, remaining: Duration) -> BusySlot {
        let LeaseHoldings { weight, portions, .. } = self.holdings.clone();
        BusySlot { program: self.program(), weight, portions, remaining }
    }

    /// Returns how much longer the lease is expected to take, assuming that a running test is half done.
    pub(super) fn remaining_time(&self, tests: &RunTests) -> Duration {
        let of_test = |test: &TestId| {
            let duration = tests.expected_duration(*test);
            match tests.location(*test) {
                TestSituation::Leased(lease) if lease == self.id => duration,
                TestSituation::InFlight(lease) if lease == self.id => duration / 2,
                TestSituation::Leased(_)
                | TestSituation::InFlight(_)
                | TestSituation::Held(_)
                | TestSituation::Waiting
                | TestSituation::Settled => Duration::ZERO,
            }
        };
        let is_starting = !self.is_ready() && self.unstarted(tests).count() == self.batch.tests.len();
        let start = match is_starting {
            true => tests.queue().start_cost(self.program()) / 2,
            false => Duration::ZERO,
        };
        self.batch.tests.iter().map(of_test).fold(start, Duration::saturating_add)
    }

    fn unstarted<'a>(&'a self, tests: &'a RunTests) -> impl Iterator<Item = TestId> + 'a {
        let tests_of_batch = self.batch.tests.iter().copied();
        tests_of_batch.filter(|test| tests.location(*test) == TestSituation::Leased(self.id))
    }

    /// Records the actual and the expected duration of a test.
    pub(super) fn record_pace(&mut self, taken: Duration, expected: Duration) {
        self.pace.record(taken, expected);
    }

    /// Returns the expected duration of a test at the pace of the lease.
    pub(super) fn paced_duration(&self, tests: &RunTests, test: TestId) -> Option<Duration> {
        self.pace.estimate(tests.expected_duration(test))
    }

    /// Returns how much earlier the lease ends if idle slots share its waiting tests; `None` if the gain does
    /// not justify another process. Also `None` if the lease has finished no test: the other tests cannot be
    /// estimated then.
    pub(super) fn time_saved(&self, tests: &RunTests, loads: &SlotLoads, idle: usize) -> Option<Duration> {
        let (program, queue) = (self.program(), tests.queue());
        if !queue.process_traits(program).ends_between_tests || self.batch.is_isolated {
            return None;
        }
        let idle = (idle / self.weight().0.max(1)).min(queue.room_for(program, loads));
        let estimates = self.unstarted(tests).map(|test| self.paced_duration(tests, test));
        let estimates = estimates.collect::<Option<Vec<_>>>()?;
        let whole = estimates.iter().copied().fold(Duration::ZERO, Duration::saturating_add);
        let longest = estimates.iter().copied().max()?;
        let parts = u32::try_from(idle.saturating_add(1)).unwrap_or(u32::MAX);
        let saved = whole.saturating_sub((whole / parts).max(longest));
        (saved >= queue.start_cost(program).saturating_mul(SAVED_PER_START)).then_some(saved)
    }
}
