//! The tests of a batch by place: which ones wait for a process, which run, and which have ended.

use std::{ops::Range, sync::Arc, time::Duration};

use heeler_protocol::control::{LeakedProcess, LeasedTest, ListedTest};

use super::process_leaks::{ProcessLeak, TestTimeSpans};
use crate::process::process_clock::ClockReading;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchTestState {
    Waiting,
    Running,
    /// Running, but waiting for other tests of the process.
    Paused,
    Done,
}

/// The tests of one process, their states, and which test ended last.
#[derive(Debug)]
pub(crate) struct TestOrder {
    tests: Vec<Arc<LeasedTest>>,
    states: Vec<BatchTestState>,
    /// Running tests in begin order, including paused ones.
    running: Vec<usize>,
    last_ended: Option<usize>,
    /// Running time at the begin of the first test.
    first_begun: Option<Duration>,
    /// Possible time spans of the tests, to attribute leaked processes.
    time_spans: TestTimeSpans,
    /// Time since boot of the previous read.
    read_before: Duration,
}

impl TestOrder {
    pub(super) fn new(tests: Vec<Arc<LeasedTest>>) -> Self {
        Self {
            states: vec![BatchTestState::Waiting; tests.len()],
            tests,
            running: Vec::new(),
            last_ended: None,
            first_begun: None,
            time_spans: TestTimeSpans::default(),
            read_before: Duration::ZERO,
        }
    }

    pub(super) fn tests(&self) -> &[Arc<LeasedTest>] {
        &self.tests
    }

    /// Returns the test at a place, as its framework lists it.
    pub(super) fn listed(&self, place: usize) -> &ListedTest {
        &self.tests[place].listed
    }

    /// Returns whether the process has only one test. The result of such a test depends on the end of the
    /// process.
    pub(crate) fn is_single(&self) -> bool {
        self.tests.len() == 1
    }

    /// Removes a test that has not begun. The places of later tests shift down by one.
    pub(super) fn remove(&mut self, place: usize) {
        self.tests.remove(place);
        self.states.remove(place);
    }

    /// Keeps only the first `count` tests, before any has begun.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.tests.truncate(count);
        self.states.truncate(count);
    }

    /// Adds tests and returns their places.
    pub(super) fn extend(&mut self, tests: Vec<Arc<LeasedTest>>) -> Range<usize> {
        let first = self.tests.len();
        self.tests.extend(tests);
        self.states.resize(self.tests.len(), BatchTestState::Waiting);
        first..self.tests.len()
    }

    /// Returns the state of a test, or `None` for a place without a test.
    fn state(&self, place: usize) -> Option<BatchTestState> {
        self.states.get(place).copied()
    }

    pub(super) fn is_waiting(&self, place: usize) -> bool {
        self.state(place) == Some(BatchTestState::Waiting)
    }

    pub(super) fn is_running(&self, place: usize) -> bool {
        matches!(self.state(place), Some(BatchTestState::Running | BatchTestState::Paused))
    }

    pub(super) fn is_paused(&self, place: usize) -> bool {
        self.state(place) == Some(BatchTestState::Paused)
    }

    /// Returns whether the test exists and has not ended.
    pub(super) fn is_open(&self, place: usize) -> bool {
        self.state(place).is_some_and(|state| state != BatchTestState::Done)
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.states.contains(&BatchTestState::Waiting)
    }

    pub(super) fn is_all_done(&self) -> bool {
        self.states.iter().all(|state| *state == BatchTestState::Done)
    }

    /// Returns the running tests in begin order, including paused ones.
    pub(crate) fn running(&self) -> &[usize] {
        &self.running
    }

    /// Returns the running test if exactly one runs.
    pub(super) fn only_running(&self) -> Option<usize> {
        if let [only] = self.running[..] { Some(only) } else { None }
    }

    pub(super) fn active(&self) -> impl Iterator<Item = usize> {
        self.running.iter().copied().filter(|place| !self.is_paused(*place))
    }

    /// Returns the running test that began first, as its framework lists it.
    pub(super) fn first_running(&self) -> Option<&ListedTest> {
        self.running.first().map(|place| self.listed(*place))
    }

    pub(crate) fn last_ended(&self) -> Option<usize> {
        self.last_ended
    }

    pub(crate) fn first_begun(&self) -> Option<Duration> {
        self.first_begun
    }

    /// Records that a begin marker was read at this running time.
    pub(super) fn record_begin_marker(&mut self, now: Duration) {
        self.first_begun.get_or_insert(now);
    }

    /// Records the time of the previous read: everything read now was written after that time.
    pub(super) fn on_read(&mut self, before: ClockReading) {
        self.read_before = before.since_boot;
    }

    /// Lets a test begin. Returns `false` if the test is not waiting.
    pub(super) fn begin(&mut self, place: usize) -> bool {
        let is_waiting = self.is_waiting(place);
        if is_waiting {
            self.time_spans.record_begin(place, self.read_before);
            self.run(place);
        }
        is_waiting
    }

    /// Marks a test as running, including a test that seemed to have ended.
    pub(super) fn run(&mut self, place: usize) {
        self.states[place] = BatchTestState::Running;
        self.running.push(place);
    }

    /// Marks a running test as waiting for other tests.
    pub(super) fn pause(&mut self, place: usize) {
        if self.state(place) == Some(BatchTestState::Running) {
            self.states[place] = BatchTestState::Paused;
        }
    }

    /// Marks a paused test as running again.
    pub(super) fn resume(&mut self, place: usize) {
        if self.is_paused(place) {
            self.states[place] = BatchTestState::Running;
        }
    }

    /// Records the time since boot at which an end marker was read, and the test's reported duration.
    pub(super) fn record_end_marker(&mut self, place: usize, now: Duration, took: Duration) {
        self.time_spans.record_end(place, now, took);
    }

    pub(super) fn finish(&mut self, place: usize) {
        self.leave(place, BatchTestState::Done);
        self.last_ended = Some(place);
    }

    /// Marks the waiting tests as done although they never began, and returns their places.
    pub(super) fn skip_waiting(&mut self) -> Vec<usize> {
        let waiting: Vec<_> = (0..self.states.len()).filter(|place| self.is_waiting(*place)).collect();
        waiting.iter().for_each(|place| self.states[*place] = BatchTestState::Done);
        waiting
    }

    /// Puts a test back into the queue for a process.
    pub(super) fn withdraw(&mut self, place: usize) {
        self.leave(place, BatchTestState::Waiting);
    }

    /// Puts the paused tests back into the queue for a process.
    pub(super) fn withdraw_paused(&mut self) {
        self.withdraw_if(|state| state == BatchTestState::Paused);
    }

    /// Puts all running tests back into the queue for a process.
    pub(super) fn withdraw_running(&mut self) {
        self.withdraw_if(|_| true);
    }

    fn withdraw_if(&mut self, is_withdrawn: impl Fn(BatchTestState) -> bool) {
        let states = &mut self.states;
        self.running.retain(|place| {
            let is_kept = !is_withdrawn(states[*place]);
            if !is_kept {
                states[*place] = BatchTestState::Waiting;
            }
            is_kept
        });
    }

    /// Clears the test that ended last, because another process reported its end.
    pub(super) fn forget_last_ended(&mut self) {
        self.last_ended = None;
    }

    fn leave(&mut self, place: usize, state: BatchTestState) {
        self.states[place] = state;
        self.running.retain(|running| *running != place);
    }

    /// Returns leaked processes, grouped by the tests that may have started them.
    pub(super) fn attribute_leaks(&self, leaked: &[LeakedProcess]) -> Vec<ProcessLeak> {
        self.time_spans.attribute(leaked, heeler_sys::process::start_time_resolution())
    }
}
