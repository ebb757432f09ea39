//! Progress of a run: ended tests, running tests by worker, and an estimate of the remaining time. Every
//! time is passed in; nothing here reads a clock.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use heeler_core::{FIXTURE_SUITE, Outcome, OutcomeCounts};

use super::{
    format::{self, SuiteNames},
    style::StyledLine,
    waits::DisplayedWait,
};
use heeler_report::TestReport;

/// Data known when a run begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunHead {
    /// The run's id.
    pub run: String,
    /// Number of selected tests.
    pub tests: usize,
    /// Number of tests left out by filters and partitions.
    pub filtered: usize,
    /// Number of programs with selected tests.
    pub programs: usize,
    pub workers: usize,
    /// Durations in earlier runs, by uid; may be empty. A test without one is assumed to take the median
    /// time.
    pub expected: HashMap<String, Duration>,
    /// Additional notes for the first line, such as a seed or a partition.
    pub notes: Vec<String>,
}

/// A test that a worker has started.
#[derive(Debug, Clone)]
pub(crate) struct StartedTest {
    pub(crate) uid: String,
    pub(crate) suite: Option<String>,
    /// The name to display.
    pub(crate) name: String,
    /// Number of the worker, from 1.
    pub(crate) worker: u32,
}

#[derive(Debug, Clone)]
pub(super) struct DisplayedTest {
    pub(super) worker: u32,
    pub(super) suite: Option<String>,
    pub(super) name: String,
    pub(super) since: Instant,
    /// Number of times that the test was reported as slow.
    pub(super) warnings: u32,
    expected: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct DisplayProgress {
    head: RunHead,
    started: Instant,
    last_end: Instant,
    paused: Option<Instant>,
    counts: OutcomeCounts,
    ended: HashMap<Box<str>, Outcome>,
    /// Ended tests that still await their verdict.
    unjudged: HashSet<Box<str>>,
    running: HashMap<Box<str>, DisplayedTest>,
    by_worker: HashMap<u32, Box<str>>,
    /// Reasons of waiting tests, largest group first.
    waits: Vec<DisplayedWait>,
    default_weight: Duration,
    weight_done: Duration,
    weight_total: Duration,
}

impl DisplayProgress {
    pub(super) fn new(head: RunHead, now: Instant) -> Self {
        let default_weight = median(head.expected.values().copied().collect());
        let unknown = u32::try_from(head.tests.saturating_sub(head.expected.len())).unwrap_or(u32::MAX);
        let known: Duration = head.expected.values().sum();
        Self {
            started: now,
            last_end: now,
            paused: None,
            counts: OutcomeCounts::default(),
            ended: HashMap::with_capacity(head.tests.min(1 << 20)),
            unjudged: HashSet::new(),
            running: HashMap::new(),
            by_worker: HashMap::new(),
            waits: Vec::new(),
            default_weight,
            weight_done: Duration::ZERO,
            weight_total: known + default_weight * unknown,
            head,
        }
    }

    pub(super) fn head(&self) -> &RunHead {
        &self.head
    }

    /// Returns whether names include their suites.
    pub(super) fn suites(&self) -> SuiteNames {
        SuiteNames::for_program_count(self.head.programs)
    }

    pub(super) fn counts(&self) -> &OutcomeCounts {
        &self.counts
    }

    /// Returns the counts as text, including tests that await their verdict.
    pub(super) fn counts_line(&self) -> StyledLine {
        let line = format::counts(&self.counts);
        match self.unjudged.len() {
            0 => line,
            count => line.with_plain(format!(", {} answered", format::grouped_number(count))),
        }
    }

    pub(super) fn done(&self) -> usize {
        self.counts.total() + self.unjudged.len()
    }

    /// Returns the number of tests known so far.
    pub(super) fn total(&self) -> usize {
        let is_test = |test: &&DisplayedTest| test.suite.as_deref() != Some(FIXTURE_SUITE);
        self.head.tests.max(self.done() + self.running.values().filter(is_test).count())
    }

    /// Returns the percentage of ended tests; 100 only when all tests have ended.
    pub(super) fn percent(&self) -> usize {
        (self.done() * 100).checked_div(self.total()).unwrap_or(0)
    }

    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        self.paused.unwrap_or(now).saturating_duration_since(self.started)
    }

    /// Records that a test runs, unless the test has ended.
    pub(super) fn start(&mut self, test: &StartedTest, now: Instant) {
        if self.ended.contains_key(test.uid.as_str()) {
            return;
        }
        let uid: Box<str> = test.uid.as_str().into();
        self.unjudged.remove(&uid);
        if let Some(before) = self.running.remove(&uid) {
            self.by_worker.remove(&before.worker);
        }
        // A worker runs one test at a time, so the process of its previous test has died.
        if let Some(before) = self.by_worker.insert(test.worker, uid.clone()) {
            self.running.remove(&before);
        }
        let running = DisplayedTest {
            worker: test.worker,
            suite: test.suite.clone(),
            name: test.name.clone(),
            since: now,
            warnings: 0,
            expected: self.head.expected.get(&*uid).copied(),
        };
        self.running.insert(uid, running);
    }

    /// Records the outcome of a test; returns whether the outcome is new. A group is not a test: only a
    /// failure of the program itself counts, once.
    pub(super) fn end(&mut self, report: &TestReport, now: Instant) -> bool {
        let (uid, outcome) = (report.uid.as_str(), report.outcome);
        if report.is_group {
            self.remove_running(uid);
            return outcome.is_failure() && self.ended.insert(uid.into(), outcome).is_none();
        }
        if report.is_leaky() && !self.ended.contains_key(uid) {
            self.counts.add_leaky(1);
        }
        self.remove_running(uid);
        self.unjudged.remove(uid);
        let replaced = match self.ended.get_mut(uid) {
            Some(known) if *known == outcome => return false,
            Some(known) => Some(std::mem::replace(known, outcome)),
            None => {
                self.ended.insert(uid.into(), outcome);
                self.weight_done += self.head.expected.get(uid).copied().unwrap_or(self.default_weight);
                None
            }
        };
        self.counts.add(outcome, replaced);
        self.last_end = now;
        true
    }

    /// Records that a test has ended and awaits its verdict.
    #[cfg(feature = "connect")]
    pub(super) fn await_verdict(&mut self, uid: &str, now: Instant) {
        self.remove_running(uid);
        if !self.ended.contains_key(uid) && self.unjudged.insert(uid.into()) {
            self.last_end = now;
        }
    }

    fn remove_running(&mut self, uid: &str) {
        if let Some(running) = self.running.remove(uid)
            && self.by_worker.get(&running.worker).is_some_and(|current| &**current == uid)
        {
            self.by_worker.remove(&running.worker);
        }
    }

    pub(super) fn set_waits(&mut self, waits: Vec<DisplayedWait>) {
        self.waits = waits;
    }

    /// Returns what waiting tests wait for, largest group first.
    pub(super) fn waits(&self) -> &[DisplayedWait] {
        &self.waits
    }

    /// Returns the running tests, longest first.
    pub(super) fn running(&self) -> Vec<&DisplayedTest> {
        let mut all: Vec<&DisplayedTest> = self.running.values().collect();
        all.sort_by(|left, right| {
            (left.since, left.worker, &left.name).cmp(&(right.since, right.worker, &right.name))
        });
        all
    }

    /// Returns the tests that have exceeded another slow period since the last call.
    pub(super) fn newly_slow(&mut self, now: Instant, slow_after: Duration) -> Vec<DisplayedTest> {
        let mut slow = Vec::new();
        for running in self.running.values_mut() {
            let ran = now.saturating_duration_since(running.since);
            if !slow_after.is_zero() && ran >= slow_after * (running.warnings + 1) {
                running.warnings =
                    u32::try_from(ran.as_nanos() / slow_after.as_nanos()).unwrap_or(u32::MAX - 1);
                slow.push(running.clone());
            }
        }
        slow.sort_by_key(|running| running.since);
        slow
    }

    /// Returns the estimated remaining time; `None` until a test has ended at least 0.5 s after the start,
    /// and after the last test.
    ///
    /// The estimate uses recorded durations if there are any, otherwise the number of tests. The estimate is
    /// never below the known remaining duration of a running test.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        let elapsed = self.last_end.saturating_duration_since(self.started);
        if self.done() == 0 || self.done() >= self.total() || elapsed < Duration::from_millis(500) {
            return None;
        }
        let (done, left) = if self.head.expected.is_empty() || self.weight_done.is_zero() {
            (self.done() as f64, (self.total() - self.done()) as f64)
        } else {
            (self.weight_done.as_secs_f64(), self.weight_total.saturating_sub(self.weight_done).as_secs_f64())
        };
        let estimate = Duration::try_from_secs_f64(elapsed.as_secs_f64() * left / done).ok()?;
        let estimate = estimate.saturating_sub(now.saturating_duration_since(self.last_end));
        let longest = self
            .running
            .values()
            .filter_map(|one| Some(one.expected?.saturating_sub(now.saturating_duration_since(one.since))))
            .max();
        Some(estimate.max(longest.unwrap_or_default())).filter(|left| !left.is_zero())
    }

    /// Stops the clock.
    pub(super) fn pause(&mut self, now: Instant) {
        self.paused.get_or_insert(now);
    }

    /// Restarts the clock from where it stopped.
    pub(super) fn resume(&mut self, now: Instant) {
        let Some(paused) = self.paused.take() else { return };
        let pause = now.saturating_duration_since(paused);
        self.started += pause;
        self.last_end += pause;
        for running in self.running.values_mut() {
            running.since += pause;
        }
    }
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use heeler_core::TestResult;
    use heeler_protocol::mtp::NodeDescription;

    use super::*;

    fn started(uid: &str, worker: u32) -> StartedTest {
        StartedTest { uid: uid.into(), suite: None, name: uid.into(), worker }
    }

    fn ended(uid: &str, outcome: Outcome) -> TestReport {
        let test = NodeDescription { uid, display_name: uid, ..NodeDescription::default() };
        TestReport::from_result(&test, &TestResult::new(outcome))
    }

    fn head(tests: usize, expected: &[(&str, u64)]) -> RunHead {
        let expected =
            expected.iter().map(|&(uid, seconds)| (uid.to_owned(), Duration::from_secs(seconds))).collect();
        RunHead { tests, expected, ..RunHead::default() }
    }

    fn names(progress: &DisplayProgress) -> Vec<&str> {
        progress.running().into_iter().map(|running| running.name.as_str()).collect()
    }

    #[test]
    fn worker_and_test_are_paired_one_to_one() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut progress = DisplayProgress::new(head(4, &[]), now);
        progress.start(&started("a", 1), at(0));
        progress.start(&started("b", 2), at(1));
        assert_eq!(names(&progress), ["a", "b"]);
        // Worker 1 died while running a. Worker 3 retries a, and worker 1 continues with c before the retry
        // is reported.
        progress.start(&started("c", 1), at(2));
        assert_eq!(names(&progress), ["b", "c"]);
        progress.start(&started("a", 3), at(3));
        assert_eq!(names(&progress), ["b", "c", "a"]);
        progress.start(&started("a", 2), at(4));
        assert_eq!(names(&progress), ["c", "a"]);
        progress.end(&ended("a", Outcome::Passed), at(5));
        progress.start(&started("a", 2), at(6));
        assert_eq!(names(&progress), ["c"]);
    }

    #[test]
    fn repeated_result_is_counted_once() {
        let now = Instant::now();
        let mut progress = DisplayProgress::new(head(1, &[]), now);
        assert!(progress.end(&ended("a", Outcome::Passed), now));
        assert!(!progress.end(&ended("a", Outcome::Passed), now));
        assert!(progress.end(&ended("a", Outcome::Failed), now));
        assert_eq!((progress.done(), progress.percent()), (1, 100));
    }

    #[test]
    fn test_that_awaits_its_verdict_is_done_and_has_no_outcome() {
        let now = Instant::now();
        let mut progress = DisplayProgress::new(head(2, &[]), now);
        progress.start(&started("a", 1), now);
        progress.await_verdict("a", now);
        progress.await_verdict("a", now);
        assert_eq!((progress.done(), progress.counts().total(), names(&progress).len()), (1, 0, 0));
        // The test runs again before its outcome is decided.
        progress.start(&started("a", 1), now);
        assert_eq!((progress.done(), names(&progress)), (0, vec!["a"]));
        progress.await_verdict("a", now);
        assert!(progress.end(&ended("a", Outcome::Failed), now));
        progress.await_verdict("a", now);
        assert_eq!((progress.done(), progress.counts().failing()), (1, 1));
    }

    #[test]
    fn estimate_by_count_shrinks_between_results() {
        let now = Instant::now();
        let mut progress = DisplayProgress::new(head(4, &[]), now);
        assert_eq!(progress.remaining(now), None);
        progress.end(&ended("a", Outcome::Passed), now + Duration::from_secs(2));
        let left = |seconds| progress.remaining(now + Duration::from_secs(seconds));
        assert_eq!(left(2), Some(Duration::from_secs(6)));
        assert_eq!(left(5), Some(Duration::from_secs(3)));
        assert_eq!(left(9), None);
    }

    #[test]
    fn estimate_uses_recorded_durations() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut progress = DisplayProgress::new(head(4, &[("a", 2), ("b", 10), ("c", 2)]), now);
        // The unknown test counts with the median of 2, so 14 of 16 seconds are left after the first.
        progress.end(&ended("a", Outcome::Passed), at(1));
        assert_eq!(progress.remaining(at(1)), Some(Duration::from_secs(7)));
        progress.start(&started("b", 1), at(1));
        assert_eq!(progress.remaining(at(1)), Some(Duration::from_secs(10)));
        assert_eq!(progress.remaining(at(10)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn pause_does_not_count_as_elapsed_time() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut progress = DisplayProgress::new(head(2, &[]), now);
        progress.start(&started("a", 1), at(1));
        progress.pause(at(2));
        assert_eq!(progress.elapsed(at(60)), Duration::from_secs(2));
        progress.resume(at(102));
        assert_eq!(progress.elapsed(at(103)), Duration::from_secs(3));
        assert_eq!(progress.running()[0].since, at(101));
    }

    #[test]
    fn slow_test_is_reported_once_per_period() {
        let now = Instant::now();
        let limit = Duration::from_secs(10);
        let mut progress = DisplayProgress::new(head(1, &[]), now);
        progress.start(&started("a", 1), now);
        let newly_slow: Vec<usize> = [5, 10, 11, 35, 36, 40]
            .map(|seconds| progress.newly_slow(now + Duration::from_secs(seconds), limit).len())
            .into();
        assert_eq!(newly_slow, [0, 1, 0, 1, 0, 1]);
    }
}
