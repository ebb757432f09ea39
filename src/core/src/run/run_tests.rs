//! Tests of a run: location, attempts and result of each.
//!
//! A test is in exactly one place: waiting (in the queue, for prerequisites, for its retry delay, or for the
//! next round of iterations), in one lease, or settled in the ledger.

use std::{collections::BTreeSet, time::Duration};

use super::{
    BatchLease, ScheduledTest,
    attempts::TestAttempts,
    lease_holdings::LeaseHoldings,
    prerequisites::{BlockedTests, FailedBefore, ReleasedTests},
    tear_downs::TearDowns,
};
use crate::{
    GuardLoss, LeaseId, NotRunReason, Outcome, ProgramId, ProvisionalReason, SynthesizedResult, TestId,
    WorkerId,
    batching::{ProgramCosts, QueuedTest, TestBatch, TestQueue},
    ledger::{Ledger, ResultStream, StreamPosition},
};

/// Scheduling state of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TestSituation {
    /// In the queue, or another place where tests wait.
    Waiting,
    /// Leased to a worker.
    Leased(LeaseId),
    /// Leased to a worker, and running.
    InFlight(LeaseId),
    /// Leased to a worker, and ended; the result is not confirmed yet.
    Held(LeaseId),
    /// The ledger has the test's final result.
    Settled,
}

impl TestSituation {
    pub(super) fn is_in(self, lease: LeaseId) -> bool {
        [Self::Leased(lease), Self::InFlight(lease), Self::Held(lease)].contains(&self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RunTest {
    /// The planned test without its prerequisites, which are stored in `blocked`, and without its set-ups,
    /// which are stored in `tear_downs`.
    planned: ScheduledTest,
    location: TestSituation,
    attempts: TestAttempts,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RunTests {
    tests: Vec<RunTest>,
    queue: TestQueue,
    blocked: BlockedTests,
    tear_downs: TearDowns,
    /// Tests that wait for their retry delay.
    delayed: BTreeSet<TestId>,
    /// Tests that have passed an iteration, and run again when no other test waits.
    next_round: Vec<TestId>,
    ledger: Ledger,
    /// Whether tests may be added. Cleared by the first result that is sent only at the end of the run,
    /// because a client may wait for that result before it adds tests.
    is_open: bool,
    /// Seed of the jitter of retry delays.
    retry_seed: u64,
}

impl RunTests {
    /// Creates the state for these programs, without tests. `is_open`: whether tests may be added during the
    /// run.
    pub(super) fn new(
        programs: Vec<ProgramCosts>,
        capacities: Vec<Vec<u32>>,
        batch_limit: Option<Duration>,
        is_open: bool,
        retry_seed: u64,
    ) -> Self {
        let mut queue = TestQueue::new(programs).with_capacities(capacities);
        queue.limit_batches(batch_limit);
        Self {
            tests: Vec::new(),
            queue,
            blocked: BlockedTests::default(),
            tear_downs: TearDowns::default(),
            delayed: BTreeSet::new(),
            next_round: Vec::new(),
            ledger: Ledger::new(0),
            is_open,
            retry_seed,
        }
    }

    /// Adds tests, numbered after the existing ones.
    pub(super) fn add(&mut self, added: Vec<ScheduledTest>) {
        let first = u32::try_from(self.tests.len()).unwrap_or(u32::MAX);
        self.ledger.add_tests(added.len());
        let mut waiting = Vec::with_capacity(added.len());
        for (test, mut planned) in (first..).map(TestId).zip(added) {
            let prerequisites = std::mem::take(&mut planned.prerequisites);
            let set_ups = std::mem::take(&mut planned.tears_down);
            if !set_ups.is_empty() {
                self.tear_downs.insert(test, set_ups);
            }
            let (queued, is_unrunnable) = (planned.queued(test), planned.is_unrunnable);
            let (location, attempts) = (TestSituation::Waiting, TestAttempts::default());
            self.tests.push(RunTest { planned, location, attempts });
            if is_unrunnable {
                self.record_synthesized(test, SynthesizedResult::NotRun(NotRunReason::Unrunnable));
            } else if !prerequisites.is_empty() {
                self.blocked.insert(test, prerequisites);
            } else {
                waiting.push(queued);
            }
        }
        self.queue.add(waiting);
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Stops accepting tests.
    pub(super) fn close(&mut self) {
        self.is_open = false;
    }

    pub(super) fn limit_batches(&mut self, batch_limit: Option<Duration>) {
        self.queue.limit_batches(batch_limit);
    }

    pub(super) fn queue(&self) -> &TestQueue {
        &self.queue
    }

    pub(super) fn blocked(&self) -> &BlockedTests {
        &self.blocked
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn location(&self, test: TestId) -> TestSituation {
        self.tests[test.index()].location
    }

    pub(super) fn program_of(&self, test: TestId) -> ProgramId {
        self.tests[test.index()].planned.program
    }

    pub(super) fn expected_duration(&self, test: TestId) -> Duration {
        let planned = &self.tests[test.index()].planned;
        self.queue.estimated_duration(planned.program, planned.weight)
    }

    /// Returns the tests of a batch that are still in this lease.
    pub(super) fn unfinished(&self, lease: LeaseId, batch: &TestBatch) -> Vec<TestId> {
        batch.tests.iter().copied().filter(|test| self.location(*test).is_in(lease)).collect()
    }

    pub(super) fn next_batch(
        &mut self,
        take: impl Fn(&mut TestQueue) -> Option<TestBatch>,
    ) -> Option<TestBatch> {
        loop {
            let mut batch = take(&mut self.queue)?;
            // Skip tests that have received a result in another way.
            batch.tests.retain(|test| self.location(*test) == TestSituation::Waiting);
            if !batch.tests.is_empty() {
                return Some(batch);
            }
        }
    }

    /// Assigns the tests of a batch to a lease. From now on the worker may send a message of this run, even
    /// if only the start of a test, so its stream must be drained.
    pub(super) fn assign(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        batch: TestBatch,
        holdings: &LeaseHoldings,
        start_timeouts: u32,
    ) -> BatchLease {
        self.ledger.open_stream(worker);
        let mut is_failure_provisional = Vec::with_capacity(batch.tests.len());
        let mut passed_iterations = Vec::with_capacity(batch.tests.len());
        for test in &batch.tests {
            let RunTest { planned, location, attempts } = &mut self.tests[test.index()];
            *location = TestSituation::Leased(lease);
            self.tear_downs.on_leased(*test);
            is_failure_provisional.push(attempts.is_failure_provisional(planned.retries));
            passed_iterations.push(attempts.passed_iterations());
        }
        BatchLease {
            lease,
            worker,
            batch,
            is_failure_provisional,
            passed_iterations,
            start_timeouts,
            slot: holdings.slot,
            portions: holdings.portions.clone(),
        }
    }

    pub(super) fn on_started(&mut self, lease: LeaseId, test: TestId) {
        let location = &mut self.tests[test.index()].location;
        if *location == TestSituation::Leased(lease) {
            *location = TestSituation::InFlight(lease);
        }
    }

    pub(super) fn on_held(&mut self, lease: LeaseId, test: TestId) {
        let location = &mut self.tests[test.index()].location;
        if location.is_in(lease) {
            *location = TestSituation::Held(lease);
        }
    }

    /// Records a result on a worker's stream; returns whether it is the test's first.
    pub(super) fn settle(&mut self, test: TestId, outcome: Outcome, at: StreamPosition) -> bool {
        let is_first = self.ledger.settle(test, outcome, at).is_ok();
        if is_first {
            self.tests[test.index()].location = TestSituation::Settled;
        }
        is_first
    }

    /// Closes the stream of a worker that will report no more results.
    pub(super) fn close_stream(&mut self, worker: WorkerId, proven: u64) {
        self.ledger.close_stream(worker, proven);
        // Results that the client may lack are sent again at the end of the run.
        self.is_open &= self.ledger.streams().get(&worker).is_none_or(ResultStream::is_proven);
    }

    fn synthesize(&mut self, test: TestId, why: NotRunReason) {
        self.record_synthesized(test, self.tests[test.index()].attempts.synthesized(why));
    }

    fn record_synthesized(&mut self, test: TestId, result: SynthesizedResult) {
        self.tests[test.index()].location = TestSituation::Settled;
        self.is_open = false;
        let _earlier_result = self.ledger.record_synthesized(test, result);
    }

    /// Settles the program's waiting tests, and these unfinished tests of its process, as not run.
    pub(super) fn give_up_program(&mut self, program: ProgramId, rest: Vec<TestId>, why: NotRunReason) {
        let queued = self.queue.take_program(program);
        let blocked = self.blocked.take(|test| self.tests[test.index()].planned.program == program);
        for test in queued.into_iter().chain(blocked).chain(rest) {
            self.synthesize(test, why);
        }
    }

    /// Returns whether this is a tear-down, which runs even after the run has stopped.
    pub(super) fn is_tear_down(&self, test: TestId) -> bool {
        self.tear_downs.is_tear_down(test)
    }

    /// Settles the waiting tests of a stopped run as not run, except tear-downs that are due, if a worker can
    /// run them. These enter the queue when the users of their fixtures have ended.
    pub(super) fn give_up_waiting(&mut self, why: NotRunReason) {
        let (tear_downs, has_worker) = (&self.tear_downs, why != NotRunReason::NoWorker);
        let is_given_up = |test: TestId| !(has_worker && tear_downs.is_due(test));
        let mut given_up = self.queue.take(is_given_up);
        given_up.extend(self.delayed.extract_if(.., |test| is_given_up(*test)));
        given_up.extend(self.next_round.extract_if(.., |test| is_given_up(*test)));
        given_up.extend(self.blocked.take(is_given_up));
        for test in given_up {
            if self.location(test) == TestSituation::Waiting {
                self.synthesize(test, why);
            }
        }
        self.release_blocked();
    }

    /// Queues the tests whose prerequisites are met, and settles the tests with a failed prerequisite.
    pub(super) fn release_blocked(&mut self) {
        loop {
            let mut released = self.blocked.release(&self.ledger);
            if released == ReleasedTests::default() {
                return;
            }
            // A tear-down has nothing to do if no set-up has begun.
            released.met.retain(|test| match self.tear_downs.set_up_not_begun(*test) {
                Some(failed) => {
                    released.failed.push(FailedBefore { test: *test, failed });
                    false
                }
                None => true,
            });
            self.queue.add(released.met.iter().map(|test| self.tests[test.index()].planned.queued(*test)));
            if released.failed.is_empty() {
                return;
            }
            // Tests settled here may be prerequisites of others.
            for FailedBefore { test, failed } in released.failed {
                self.synthesize(test, NotRunReason::PrerequisiteFailed { test: failed });
            }
        }
    }

    /// Records a provisional result; returns the retry delay if the test waits for one.
    pub(super) fn record_provisional(
        &mut self,
        test: TestId,
        by: ProvisionalReason,
        is_isolated: bool,
    ) -> Option<Duration> {
        let RunTest { planned, location, attempts } = &mut self.tests[test.index()];
        if attempts.record_provisional(by, planned.retries, is_isolated) {
            self.record_synthesized(test, SynthesizedResult::Provisional(by));
            return None;
        }
        let delay = attempts.delay(test, planned.retries, self.retry_seed);
        if delay.is_zero() {
            self.requeue_isolated(test);
            return None;
        }
        *location = TestSituation::Waiting;
        self.delayed.insert(test);
        Some(delay)
    }

    pub(super) fn is_delayed(&self, test: TestId) -> bool {
        self.delayed.contains(&test)
    }

    pub(super) fn on_retry_due(&mut self, test: TestId) {
        if self.delayed.remove(&test) && self.location(test) == TestSituation::Waiting {
            self.requeue_isolated(test);
        }
    }

    /// Lets a test that has passed an iteration wait for the next round.
    pub(super) fn on_iteration_passed(&mut self, test: TestId, duration: Duration) {
        let RunTest { location, attempts, .. } = &mut self.tests[test.index()];
        *location = TestSituation::Waiting;
        attempts.pass_iteration();
        self.next_round.push(test);
        self.observe_duration(test, duration);
    }

    /// Queues the tests that have passed an iteration, once no other test waits. If they were queued earlier,
    /// each would become a separate batch.
    pub(super) fn begin_next_round(&mut self) {
        if self.next_round.is_empty() || !self.queue.is_empty() {
            return;
        }
        let mut round = std::mem::take(&mut self.next_round);
        round.sort_unstable();
        round.retain(|test| self.location(*test) == TestSituation::Waiting);
        self.queue.add(round.into_iter().map(|test| self.tests[test.index()].planned.queued(test)));
    }

    fn requeue_isolated(&mut self, test: TestId) {
        let RunTest { planned, location, .. } = &mut self.tests[test.index()];
        *location = TestSituation::Waiting;
        self.queue.add_isolated(planned.program, test, planned.weight);
    }

    /// Returns tests of a batch to the queue: isolated tests one by one, others together.
    pub(super) fn requeue(&mut self, batch: &TestBatch, rest: Vec<TestId>) {
        if batch.is_isolated {
            return rest.into_iter().for_each(|test| self.requeue_isolated(test));
        }
        for test in &rest {
            self.tests[test.index()].location = TestSituation::Waiting;
        }
        self.queue.add_remainder(batch.program, rest);
    }

    /// Puts a test that could not start in isolation after all others of its program. Perhaps only this test
    /// is affected.
    pub(super) fn requeue_last(&mut self, test: TestId, why: NotRunReason) {
        let RunTest { planned, location, attempts } = &mut self.tests[test.index()];
        if attempts.count_unproductive_exit(why) {
            return self.synthesize(test, why);
        }
        *location = TestSituation::Waiting;
        self.queue.add_last(planned.program, test, planned.weight);
    }

    /// Returns a test to the queue, with its new estimate, after its process was ended between two tests. A
    /// test that had started anyway runs again like the others.
    pub(super) fn requeue_unstarted(&mut self, test: TestId, expected: Option<Duration>) {
        let RunTest { planned, location, .. } = &mut self.tests[test.index()];
        *location = TestSituation::Waiting;
        let (program, item) = planned.queued(test);
        let weight = expected.or(item.weight);
        self.queue.add_returned([(program, QueuedTest { weight, is_isolated: false, ..item })]);
    }

    /// Reruns a test in isolation after a worker died during it, alone or with the watchdog. Gives the test
    /// up after too many deaths.
    pub(super) fn rerun_after_death(&mut self, test: TestId, is_with_watchdog: bool) {
        match self.tests[test.index()].attempts.count_death(is_with_watchdog) {
            Some(why) => self.synthesize(test, why),
            None => self.requeue_isolated(test),
        }
    }

    /// Reruns a test in isolation after its guard was lost, unless that has happened too often.
    pub(super) fn rerun_after_guard_loss(&mut self, test: TestId, loss: GuardLoss, has_begun: bool) {
        match self.tests[test.index()].attempts.count_guard_loss(loss, has_begun) {
            Some(why) => self.synthesize(test, why),
            None => self.requeue_isolated(test),
        }
    }

    /// Records the duration of a test, to estimate others.
    pub(super) fn observe_duration(&mut self, test: TestId, duration: Duration) {
        self.queue.observe_duration(self.tests[test.index()].planned.program, duration);
    }

    /// Records the time from the start of a process to its first test.
    pub(super) fn observe_start(&mut self, program: ProgramId, start: Duration) {
        self.queue.observe_start(program, start);
    }

    /// Makes a program's batches smaller after the death of a process with this number of tests.
    pub(super) fn shrink_batches(&mut self, program: ProgramId, died_with: usize) {
        self.queue.shrink_batches(program, died_with);
    }

    /// Lets a program's batches grow again after a batch ended well.
    pub(super) fn grow_batches(&mut self, program: ProgramId, ended_with: usize) {
        self.queue.grow_batches(program, ended_with);
    }

    pub(super) fn limit_to_one_process(&mut self, program: ProgramId) {
        self.queue.limit_to_one_process(program);
    }
}
