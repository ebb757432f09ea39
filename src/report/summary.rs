//! The aggregate of a run's changes: the latest state by uid, the counts, and the data that reports need of
//! each test.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use wire::mtp::{Change, ExecutionState, LargeProcess, Leak, TestNode};

use super::{Counts, Outcome, Record};

/// The state of a run, in progress or at its end.
///
/// Changes may arrive twice (a result whose delivery is unproven is sent again) and, between tests of
/// different workers, in any order. The latest end of a test counts, and a start that arrives after an end is
/// ignored.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    selected: Option<usize>,
    counts: Counts,
    records: Vec<Record>,
    place: HashMap<Box<str>, usize>,
    groups: Vec<Record>,
    open: HashSet<Box<str>>,
    suites: HashSet<Arc<str>>,
    unsure_leaks: Vec<Leak>,
    shared: Vec<LargeProcess>,
}

/// A test process whose peak memory was reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Large<'a> {
    /// A process that ran one test only.
    Own(&'a Record),
    /// A process that ran several tests.
    Shared(&'a LargeProcess),
}

impl Large<'_> {
    /// Returns the peak memory, where it was reported.
    #[must_use]
    pub fn peak_kib(&self) -> Option<u64> {
        match self {
            Self::Own(record) => record.peak_kib,
            Self::Shared(process) => Some(process.peak_memory_kib),
        }
    }
}

/// The result of the run as a whole. Ordered from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every selected test passed or was skipped.
    Passed,
    /// No test was selected, or none ended.
    NothingRan,
    /// The user cancelled the run, and nothing failed before.
    Cancelled,
    /// A test or a program failed, in any way.
    Failed,
    /// The counts do not match: selected tests have no outcome.
    Unbalanced,
}

impl Summary {
    /// Returns an empty summary of a run over this many tests; `None` where the number is unknown, and then
    /// the counts are not checked.
    #[must_use]
    pub fn new(selected: Option<usize>) -> Self {
        Self { selected, ..Self::default() }
    }

    /// Applies changes in their order.
    pub fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            self.apply_node(&change.node);
        }
    }

    fn apply_node(&mut self, node: &TestNode) {
        if let Some(mut record) = Record::new(node) {
            record.suite = record.suite.take().map(|suite| self.intern(suite));
            self.settle(record);
        } else if node.state == Some(ExecutionState::InProgress)
            && !self.place.contains_key(node.uid.as_str())
            && !self.open.contains(node.uid.as_str())
        {
            self.open.insert(node.uid.as_str().into());
        }
    }

    fn intern(&mut self, suite: Arc<str>) -> Arc<str> {
        if let Some(known) = self.suites.get(&suite) {
            return Arc::clone(known);
        }
        self.suites.insert(Arc::clone(&suite));
        suite
    }

    fn settle(&mut self, record: Record) {
        if record.is_group {
            match self.groups.iter_mut().find(|group| group.uid == record.uid) {
                Some(group) => *group = record,
                None => self.groups.push(record),
            }
            return;
        }
        self.open.remove(record.uid.as_str());
        match self.place.get(record.uid.as_str()) {
            Some(&place) => {
                let known = &mut self.records[place];
                self.counts.count(record.outcome, Some(known.outcome));
                let leaked = known.leaked().to_vec();
                *known = record;
                if !leaked.is_empty() {
                    known.add_leaked(&leaked);
                }
            }
            None => {
                self.counts.count(record.outcome, None);
                self.place.insert(record.uid.as_str().into(), self.records.len());
                self.records.push(record);
            }
        }
    }

    /// Adds leaked processes from the result of the run. For a test in a process of its own, its node has
    /// reported them already.
    pub fn add_leaks(&mut self, leaks: &[Leak]) {
        for leak in leaks {
            let only = match leak.tests.as_slice() {
                [only] => self.place.get(only.as_str()),
                _ => None,
            };
            match only {
                Some(&place) => self.records[place].add_leaked(&leak.processes),
                None => self.unsure_leaks.push(leak.clone()),
            }
        }
    }

    /// Adds the processes with the highest memory use that several tests shared, from the result of the run.
    pub fn add_shared(&mut self, processes: &[LargeProcess]) {
        self.shared.extend_from_slice(processes);
    }

    /// Returns the `limit` processes with the highest peak memory of at least `from_kib`, largest first:
    /// those of single tests and those that several tests shared.
    #[must_use]
    pub fn largest(&self, limit: usize, from_kib: u64) -> Vec<Large<'_>> {
        let own = self.records.iter().map(Large::Own);
        let mut all: Vec<_> = own.chain(self.shared.iter().map(Large::Shared)).collect();
        all.retain(|one| one.peak_kib().is_some_and(|peak| peak >= from_kib));
        all.sort_by_key(|one| std::cmp::Reverse(one.peak_kib()));
        all.truncate(limit);
        all
    }

    /// Returns the leaks that cannot be attributed to one test: of several tests, or of a program outside its
    /// tests.
    #[must_use]
    pub fn unsure_leaks(&self) -> &[Leak] {
        &self.unsure_leaks
    }

    /// Returns the tests that left processes behind, in the order in which they ended.
    pub fn leaky(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.is_leaky())
    }

    /// Returns the number of tests per outcome.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts;
        // One of several tests is leaky, but which one is unknown; it may be one that is counted already.
        let is_known =
            |uid: &String| self.place.get(uid.as_str()).is_some_and(|&place| self.records[place].is_leaky());
        let is_another = |leak: &&Leak| leak.tests.len() > 1 && !leak.tests.iter().any(is_known);
        counts.count_leaky(self.leaky().count() + self.unsure_leaks.iter().filter(is_another).count());
        counts
    }

    /// Returns the number of selected tests: as reported at the start, otherwise the number of tests seen so
    /// far.
    #[must_use]
    pub fn selected(&self) -> usize {
        self.selected.unwrap_or(self.records.len() + self.open.len())
    }

    /// Returns every test that ended, in the order in which they ended.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the tests with this outcome, in the order in which they ended.
    pub fn with(&self, outcome: Outcome) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.outcome == outcome)
    }

    /// Returns the number of tests that never started because the run ended earlier. They are included in
    /// those not run.
    #[must_use]
    pub fn called_off(&self) -> usize {
        let is_called_off =
            |record: &&Record| record.detail.as_ref().is_some_and(|detail| detail.is_called_off);
        self.with(Outcome::NotRun).filter(is_called_off).count()
    }

    /// Returns the suites and programs that failed outside any test.
    pub fn troubled_groups(&self) -> impl Iterator<Item = &Record> {
        self.groups.iter().filter(|group| group.outcome.is_bad())
    }

    /// Returns every failure that is shown individually, in order: suites first, then tests, without the
    /// tests that never ran.
    pub fn failures(&self) -> impl Iterator<Item = &Record> {
        let is_shown = |record: &&Record| record.outcome.is_bad() && record.outcome != Outcome::NotRun;
        self.troubled_groups().chain(self.records.iter().filter(is_shown))
    }

    /// Returns the tests that never ran, grouped by reason, most frequent reason first.
    #[must_use]
    pub fn not_run(&self) -> Vec<(&str, Vec<&Record>)> {
        let mut reasons: Vec<(&str, Vec<&Record>)> = Vec::new();
        let mut place: HashMap<&str, usize> = HashMap::new();
        for record in self.with(Outcome::NotRun) {
            let reason = record.text(|detail| detail.message.as_ref()).unwrap_or("no reason was told");
            let index = *place.entry(reason).or_insert_with(|| {
                reasons.push((reason, Vec::new()));
                reasons.len() - 1
            });
            reasons[index].1.push(record);
        }
        reasons.sort_by_key(|(_, records)| std::cmp::Reverse(records.len()));
        reasons
    }

    /// Returns the `limit` slowest tests that took at least `from`, slowest first.
    #[must_use]
    pub fn slowest(&self, limit: usize, from: Duration) -> Vec<&Record> {
        let mut slow: Vec<&Record> =
            self.records.iter().filter(|record| record.duration.is_some_and(|took| took >= from)).collect();
        slow.sort_by(|left, right| right.duration.cmp(&left.duration).then_with(|| left.uid.cmp(&right.uid)));
        slow.truncate(limit);
        slow
    }

    /// Returns the sum of the durations of all tests.
    #[must_use]
    pub fn test_time(&self) -> Duration {
        self.records.iter().filter_map(|record| record.duration).sum()
    }

    /// Returns the number of suites seen.
    #[must_use]
    pub fn suite_count(&self) -> usize {
        self.suites.len()
    }

    /// Returns the number of selected tests without an outcome; negative where there are outcomes of tests
    /// that were not selected.
    #[must_use]
    pub fn missing(&self) -> isize {
        self.selected().cast_signed() - self.counts.total().cast_signed()
    }

    /// Returns the tests that started and never ended, in the order of their names.
    #[must_use]
    pub fn unended(&self) -> Vec<&str> {
        let mut open: Vec<&str> = self.open.iter().map(AsRef::as_ref).collect();
        open.sort_unstable();
        open
    }

    /// Returns the result of the run as a whole.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let called_off = self.called_off();
        if self.missing() != 0 {
            Verdict::Unbalanced
        } else if self.counts.bad() > called_off || self.troubled_groups().next().is_some() {
            Verdict::Failed
        } else if self.counts.of(Outcome::Cancelled) + called_off > 0 {
            Verdict::Cancelled
        } else if self.counts.total() == 0 {
            Verdict::NothingRan
        } else {
            Verdict::Passed
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::mtp::key;

    use super::*;

    fn change(uid: &str, state: ExecutionState) -> Change {
        Change { parent: None, node: TestNode::test(uid, uid, state) }
    }

    fn not_run(uid: &str, reason: &str) -> Change {
        let mut change = change(uid, ExecutionState::Error);
        change.node.outcome_kind = Some("not-run".into());
        change.node.error_message = Some(reason.into());
        change
    }

    #[test]
    fn a_test_that_is_told_twice_counts_once_and_its_latest_end_counts() {
        let mut summary = Summary::new(Some(2));
        summary.apply(&[
            change("a", ExecutionState::InProgress),
            change("a", ExecutionState::Passed),
            change("b", ExecutionState::Failed),
            change("a", ExecutionState::Passed),
            change("b", ExecutionState::Passed),
            change("b", ExecutionState::InProgress),
        ]);
        assert_eq!((summary.counts().total(), summary.counts().passed()), (2, 2));
        assert_eq!((summary.verdict(), summary.unended().len()), (Verdict::Passed, 0));
    }

    #[test]
    fn books_that_do_not_balance_are_the_worst_verdict() {
        let mut summary = Summary::new(Some(3));
        summary.apply(&[
            change("a", ExecutionState::Passed),
            change("b", ExecutionState::InProgress),
            change("c", ExecutionState::Failed),
        ]);
        assert_eq!((summary.missing(), summary.verdict()), (1, Verdict::Unbalanced));
        assert_eq!(summary.unended(), ["b"]);
        summary.apply(&[change("b", ExecutionState::Passed), change("d", ExecutionState::Passed)]);
        assert_eq!((summary.missing(), summary.verdict()), (-1, Verdict::Unbalanced));
    }

    #[test]
    fn a_suite_that_died_outside_its_tests_is_red_without_being_a_test() {
        let mut summary = Summary::new(Some(1));
        let mut suite = change("core", ExecutionState::Error);
        suite.node.other.insert(key::SUITE.into(), "core".into());
        summary.apply(&[change("core::a", ExecutionState::Passed), suite.clone(), suite]);
        assert_eq!((summary.counts().total(), summary.missing()), (1, 0));
        assert_eq!((summary.verdict(), summary.failures().count()), (Verdict::Failed, 1));
    }

    #[test]
    fn tests_that_never_ran_are_grouped_by_reason_most_frequent_first() {
        let mut summary = Summary::new(None);
        summary.apply(&[not_run("a", "gone"), not_run("b", "dies"), not_run("c", "dies"), not_run("d", "")]);
        let groups: Vec<_> =
            summary.not_run().into_iter().map(|(reason, records)| (reason, records.len())).collect();
        assert_eq!(groups, [("dies", 2), ("gone", 1), ("no reason was told", 1)]);
        assert_eq!((summary.failures().count(), summary.verdict()), (0, Verdict::Failed));
    }

    #[test]
    fn cancelled_and_empty_runs_have_verdicts_of_their_own() {
        assert_eq!(Summary::new(Some(0)).verdict(), Verdict::NothingRan);
        let mut summary = Summary::new(None);
        summary.apply(&[change("a", ExecutionState::Passed), change("b", ExecutionState::Cancelled)]);
        assert_eq!(summary.verdict(), Verdict::Cancelled);
        summary.apply(&[change("c", ExecutionState::TimedOut)]);
        assert_eq!(summary.verdict(), Verdict::Failed);
    }

    #[test]
    fn tests_that_never_ran_because_the_user_ended_the_run_are_no_failures() {
        let mut summary = Summary::new(None);
        let mut called_off = not_run("a", "the run was cancelled");
        called_off.node.state = Some(ExecutionState::Cancelled);
        summary.apply(&[called_off, change("b", ExecutionState::Passed)]);
        assert_eq!((summary.verdict(), summary.called_off()), (Verdict::Cancelled, 1));
        summary.apply(&[not_run("c", "given up")]);
        assert_eq!((summary.verdict(), summary.called_off()), (Verdict::Failed, 1));
    }

    #[test]
    fn the_slowest_come_first_and_only_from_the_limit_on() {
        let mut summary = Summary::new(None);
        for (uid, milliseconds) in [("a", 5.0), ("b", 2000.0), ("c", 1000.0), ("d", 3000.0)] {
            let mut change = change(uid, ExecutionState::Passed);
            change.node.duration_ms = Some(milliseconds);
            summary.apply(&[change]);
        }
        let slowest = |limit| -> Vec<&str> {
            let found = summary.slowest(limit, Duration::from_secs(1));
            found.into_iter().map(|record| record.uid.as_str()).collect()
        };
        assert_eq!(slowest(2), ["d", "b"]);
        assert_eq!(slowest(9), ["d", "b", "c"]);
        assert_eq!(summary.test_time(), Duration::from_millis(6005));
    }
}
