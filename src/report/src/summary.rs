//! Sums up a run: the latest report of each test by uid, the counts, and the data for report files.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use heeler_core::{NotRunReason, Outcome, OutcomeCounts, TestResult};
use heeler_protocol::mtp::{LargeProcess, NodeDescription, RunLeak};

use super::{FailureDetail, StepCounts, TestReport};

/// Maximum size of the texts kept by a summary: enough for the failures that people read, and small compared
/// to the rest of the process. Texts of further failures are read from the run's record.
const KEPT_DETAIL_BYTES: usize = 8 << 20;

/// State of a run, in progress or at its end.
///
/// A report may arrive twice, because results without proven delivery are sent again. Reports from different
/// workers may arrive in any order. The latest report of a test counts, and a start that arrives after it is
/// ignored.
#[derive(Debug, Clone, Default)]
pub struct RunSummary {
    selected: Option<usize>,
    counts: OutcomeCounts,
    records: Vec<TestReport>,
    indices: HashMap<Box<str>, usize>,
    groups: Vec<TestReport>,
    unfinished: HashSet<Box<str>>,
    suites: HashSet<Arc<str>>,
    /// Source files of the tests, each once.
    files: HashSet<Arc<str>>,
    ambiguous_leaks: Vec<RunLeak>,
    shared_processes: Vec<LargeProcess>,
    /// Total size of the texts of all records.
    detail_bytes: usize,
    passed_outputs: PassedOutputs,
}

/// Whether a summary keeps the outputs of passed tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PassedOutputs {
    #[default]
    Dropped,
    /// Keeps them up to the limit for all texts.
    Kept,
}

/// A test process with a reported peak memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemoryPeak<'a> {
    /// A process that ran only one test.
    Own(&'a TestReport),
    /// A process that ran several tests.
    Shared(&'a LargeProcess),
}

impl MemoryPeak<'_> {
    /// Returns the peak memory, if reported.
    #[must_use]
    pub fn peak_kib(&self) -> Option<u64> {
        match self {
            Self::Own(record) => record.peak_kib,
            Self::Shared(process) => Some(process.peak_memory_kib),
        }
    }
}

/// Result of the whole run, ordered from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunVerdict {
    /// All selected tests passed or were skipped.
    Passed,
    /// No test was selected, or no test ended.
    NothingRan,
    /// The user cancelled the run before any failure.
    Cancelled,
    /// A test or a program failed in any way.
    Failed,
    /// The counts do not match, because selected tests have no outcome.
    CountMismatch,
}

impl RunSummary {
    /// Creates an empty summary of a run with this number of tests. With `None`, the counts are not checked.
    #[must_use]
    pub fn new(selected: Option<usize>) -> Self {
        Self { selected, ..Self::default() }
    }

    /// Sets whether to keep the outputs of passed tests.
    #[must_use]
    pub fn with_passed_outputs(self, passed_outputs: PassedOutputs) -> Self {
        Self { passed_outputs, ..self }
    }

    /// Returns the same summary without the outputs of passed tests, if it kept them. Report files never
    /// contain such outputs, even if the outputs are displayed.
    #[must_use]
    pub fn without_passed_outputs(&self) -> Cow<'_, Self> {
        if self.passed_outputs == PassedOutputs::Dropped {
            return Cow::Borrowed(self);
        }
        let mut summary = Self { passed_outputs: PassedOutputs::Dropped, ..self.clone() };
        let mut records = std::mem::take(&mut summary.records);
        records.iter_mut().for_each(|record| summary.reduce(record));
        summary.records = records;
        Cow::Owned(summary)
    }

    /// Returns whether a test has ended, or a program has failed outside its tests.
    #[must_use]
    pub fn has_ended(&self, uid: &str) -> bool {
        self.indices.contains_key(uid) || self.groups.iter().any(|group| group.uid == uid)
    }

    /// Returns whether a test has started but not ended.
    #[must_use]
    pub fn is_unfinished(&self, uid: &str) -> bool {
        self.unfinished.contains(uid)
    }

    /// Records that a test has started, unless it has started or ended already. Returns whether the start was
    /// new.
    pub fn start(&mut self, uid: &str) -> bool {
        !self.indices.contains_key(uid) && self.unfinished.insert(uid.into())
    }

    /// Adds reports of ended tests, in order.
    pub fn add_reports(&mut self, reports: impl IntoIterator<Item = TestReport>) {
        for mut report in reports {
            if !report.is_fixture() {
                report.suite = report.suite.take().map(|suite| intern(&mut self.suites, suite));
            }
            if let Some(defined_at) = &mut report.defined_at {
                defined_at.file = intern(&mut self.files, Arc::clone(&defined_at.file));
            }
            self.record_end(report);
        }
    }

    /// Records a test of a run that the user aborted without waiting for running tests. Without a result, the
    /// test was interrupted or never ran.
    pub fn interrupt(&mut self, test: &NodeDescription<'_>) {
        if self.indices.contains_key(test.uid) {
            return;
        }
        let result = if self.unfinished.contains(test.uid) {
            let reason = "the test was running when the run was interrupted";
            TestResult::with_reason(Outcome::Interrupted, reason)
        } else {
            let outcome = Outcome::NotRun(NotRunReason::Unrunnable);
            TestResult::with_reason(outcome, "not run: the run was interrupted")
        };
        self.add_reports([TestReport::from_result(test, &result)]);
    }

    /// Abridges a record if its texts exceed the summary's limit.
    fn bound_detail(&mut self, record: &mut TestReport) {
        let Some(detail) = record.detail.as_deref_mut() else { return };
        if self.detail_bytes + detail.text_bytes() > KEPT_DETAIL_BYTES {
            detail.abridge();
        }
        self.detail_bytes += detail.text_bytes();
    }

    /// Drops data that no report prints, if the test passed at its first attempt.
    pub(super) fn reduce(&self, record: &mut TestReport) {
        let is_output_kept = self.passed_outputs == PassedOutputs::Kept && record.has_output();
        if record.outcome == Outcome::Passed && !record.is_leaky() && !is_output_kept {
            record.detail = record.detail.take().and_then(|detail| detail.of_pass()).map(Box::new);
        }
    }

    fn record_end(&mut self, mut record: TestReport) {
        self.reduce(&mut record);
        self.bound_detail(&mut record);
        if record.is_group {
            self.unfinished.remove(record.uid.as_str());
            match self.groups.iter_mut().find(|group| group.uid == record.uid) {
                Some(group) => {
                    self.detail_bytes -= detail_bytes(group);
                    *group = record;
                }
                None => self.groups.push(record),
            }
            return;
        }
        self.unfinished.remove(record.uid.as_str());
        match self.indices.get(record.uid.as_str()) {
            Some(&place) => {
                let known = &mut self.records[place];
                self.counts.add(record.outcome, Some(known.outcome));
                let leaked = known.leaked().to_vec();
                self.detail_bytes -= detail_bytes(known);
                *known = record;
                if !leaked.is_empty() {
                    known.add_leaked(&leaked);
                }
            }
            None => {
                self.counts.add(record.outcome, None);
                self.indices.insert(record.uid.as_str().into(), self.records.len());
                self.records.push(record);
            }
        }
    }

    /// Adds leaked processes from the run's result. Tests that ran in their own process have already reported
    /// their leaks.
    pub fn add_leaks(&mut self, leaks: &[RunLeak]) {
        for leak in leaks {
            let only = match leak.tests.as_slice() {
                [only] => self.indices.get(only.as_str()),
                _ => None,
            };
            match only {
                Some(&place) => self.records[place].add_leaked(&leak.processes),
                None => self.ambiguous_leaks.push(leak.clone()),
            }
        }
    }

    /// Adds shared processes with the highest memory use, from the run's result.
    pub fn add_shared_processes(&mut self, processes: &[LargeProcess]) {
        self.shared_processes.extend_from_slice(processes);
    }

    /// Returns up to `limit` processes with a peak memory of at least `from_kib`, largest first, whether one
    /// test or several tests used the process.
    #[must_use]
    pub fn largest(&self, limit: usize, from_kib: u64) -> Vec<MemoryPeak<'_>> {
        let own = self.records.iter().map(MemoryPeak::Own);
        let mut all: Vec<_> = own.chain(self.shared_processes.iter().map(MemoryPeak::Shared)).collect();
        all.retain(|one| one.peak_kib().is_some_and(|peak| peak >= from_kib));
        all.sort_by_key(|one| std::cmp::Reverse(one.peak_kib()));
        all.truncate(limit);
        all
    }

    /// Returns leaks that cannot be attributed to one test: leaked by one of several tests, or by a program
    /// outside its tests.
    #[must_use]
    pub fn ambiguous_leaks(&self) -> &[RunLeak] {
        &self.ambiguous_leaks
    }

    /// Returns the tests that left processes behind, in the order in which they ended.
    pub fn leaky_tests(&self) -> impl Iterator<Item = &TestReport> {
        self.records.iter().filter(|record| record.is_leaky())
    }

    /// Returns the number of tests per outcome.
    #[must_use]
    pub fn counts(&self) -> OutcomeCounts {
        let mut counts = self.counts;
        // A leak with several candidate tests counts as one leaky test, unless a candidate is already known.
        let is_known = |uid: &String| {
            self.indices.get(uid.as_str()).is_some_and(|&place| self.records[place].is_leaky())
        };
        let is_another = |leak: &&RunLeak| leak.tests.len() > 1 && !leak.tests.iter().any(is_known);
        counts.add_leaky(self.leaky_tests().count() + self.ambiguous_leaks.iter().filter(is_another).count());
        counts
    }

    /// Returns the number of steps of all tests.
    #[must_use]
    pub fn steps(&self) -> StepCounts {
        self.records.iter().map(|record| record.steps).sum()
    }

    /// Returns the number of selected tests: as reported at the start, otherwise the number of tests seen so
    /// far.
    #[must_use]
    pub fn selected(&self) -> usize {
        self.selected.unwrap_or(self.records.len() + self.unfinished.len())
    }

    /// Returns the ended tests, first ended first.
    #[must_use]
    pub fn records(&self) -> &[TestReport] {
        &self.records
    }

    /// Returns the tests with this kind of outcome, first ended first. [`Outcome::NotRun`] matches with any
    /// reason.
    pub fn with_outcome(&self, outcome: Outcome) -> impl Iterator<Item = &TestReport> {
        let is_same = move |other| match (outcome, other) {
            (Outcome::NotRun(_), Outcome::NotRun(_)) => true,
            (one, other) => one == other,
        };
        self.records.iter().filter(move |record| is_same(record.outcome))
    }

    /// Returns the number of tests that never started, for any reason.
    #[must_use]
    pub fn not_run_count(&self) -> usize {
        self.counts.with_outcome(Outcome::NotRun(NotRunReason::Unrunnable))
    }

    /// Returns the number of tests that failed in any way, excluding tests that never started.
    #[must_use]
    pub fn failed_count(&self) -> usize {
        self.counts.failing() + self.cancelled_before_start() - self.not_run_count()
    }

    /// Returns the number of tests that never started because the run ended earlier.
    /// [`Self::not_run_count`] includes them.
    #[must_use]
    pub fn cancelled_before_start(&self) -> usize {
        let is_stopped =
            |record: &&TestReport| matches!(record.outcome, Outcome::NotRun(reason) if reason.is_stop());
        self.records.iter().filter(is_stopped).count()
    }

    /// Returns the suites and programs that failed outside their tests.
    pub fn failed_groups(&self) -> impl Iterator<Item = &TestReport> {
        // The run may not have reached a fixture, or another fixture failed before. Neither is a new failure.
        let is_left_out = |group: &TestReport| match group.outcome {
            Outcome::NotRun(NotRunReason::PrerequisiteFailed { .. }) => true,
            Outcome::NotRun(reason) => reason.is_stop(),
            _ => false,
        };
        self.groups.iter().filter(move |group| group.outcome.is_failure() && !is_left_out(group))
    }

    /// Returns every failure to show individually: first suites, then tests, without tests that never ran.
    pub fn failures(&self) -> impl Iterator<Item = &TestReport> {
        let is_shown = |record: &&TestReport| {
            record.outcome.is_failure() && !matches!(record.outcome, Outcome::NotRun(_))
        };
        self.failed_groups().chain(self.records.iter().filter(is_shown))
    }

    /// Returns the tests that never ran, grouped by reason, most frequent reason first.
    #[must_use]
    pub fn not_run(&self) -> Vec<(&str, Vec<&TestReport>)> {
        let mut reasons: Vec<(&str, Vec<&TestReport>)> = Vec::new();
        let mut place: HashMap<&str, usize> = HashMap::new();
        for record in self.with_outcome(Outcome::NotRun(NotRunReason::Unrunnable)) {
            let reason = record.detail_text(|detail| detail.message.as_ref()).unwrap_or("no reason given");
            let index = *place.entry(reason).or_insert_with(|| {
                reasons.push((reason, Vec::new()));
                reasons.len() - 1
            });
            reasons[index].1.push(record);
        }
        reasons.sort_by_key(|(_, records)| std::cmp::Reverse(records.len()));
        reasons
    }

    /// Returns up to `limit` tests that took at least `from`, slowest first.
    #[must_use]
    pub fn slowest(&self, limit: usize, from: Duration) -> Vec<&TestReport> {
        let mut slow: Vec<&TestReport> =
            self.records.iter().filter(|record| record.duration.is_some_and(|took| took >= from)).collect();
        slow.sort_by(|left, right| right.duration.cmp(&left.duration).then_with(|| left.uid.cmp(&right.uid)));
        slow.truncate(limit);
        slow
    }

    /// Returns the number of suites seen.
    #[must_use]
    pub fn suite_count(&self) -> usize {
        self.suites.len()
    }

    /// Returns the number of selected tests without an outcome; negative if tests that were not selected
    /// have outcomes.
    #[must_use]
    pub fn missing_outcomes(&self) -> isize {
        self.selected().cast_signed() - self.counts.total().cast_signed()
    }

    /// Returns the tests that started but never ended, sorted by uid.
    #[must_use]
    pub fn unfinished_tests(&self) -> Vec<&str> {
        let mut open: Vec<&str> = self.unfinished.iter().map(AsRef::as_ref).collect();
        open.sort_unstable();
        open
    }

    /// Returns the result of the whole run.
    #[must_use]
    pub fn verdict(&self) -> RunVerdict {
        let called_off = self.cancelled_before_start();
        if self.missing_outcomes() != 0 {
            RunVerdict::CountMismatch
        } else if self.counts.failing() > 0 || self.failed_groups().next().is_some() {
            RunVerdict::Failed
        } else if self.counts.with_outcome(Outcome::Cancelled) + called_off > 0 {
            RunVerdict::Cancelled
        } else if self.counts.total() == 0 {
            RunVerdict::NothingRan
        } else {
            RunVerdict::Passed
        }
    }
}

/// Returns the known text equal to `text`, which becomes known.
fn intern(known: &mut HashSet<Arc<str>>, text: Arc<str>) -> Arc<str> {
    if let Some(known) = known.get(&text) {
        return Arc::clone(known);
    }
    known.insert(Arc::clone(&text));
    text
}

fn detail_bytes(record: &TestReport) -> usize {
    record.detail.as_deref().map_or(0, FailureDetail::text_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_reports::{reason_report, report, result_report};

    #[test]
    fn test_reported_twice_counts_once() {
        let mut summary = RunSummary::new(Some(2));
        summary.start("core::a");
        summary.add_reports([
            report("a", Outcome::Passed),
            report("b", Outcome::Failed),
            report("a", Outcome::Passed),
            report("b", Outcome::Passed),
        ]);
        summary.start("core::b");
        assert_eq!((summary.counts().total(), summary.counts().passed()), (2, 2));
        assert_eq!((summary.verdict(), summary.unfinished_tests().len()), (RunVerdict::Passed, 0));
    }

    #[test]
    fn count_mismatch_is_the_worst_verdict() {
        let mut summary = RunSummary::new(Some(3));
        summary.add_reports([report("a", Outcome::Passed), report("c", Outcome::Failed)]);
        summary.start("core::b");
        assert_eq!((summary.missing_outcomes(), summary.verdict()), (1, RunVerdict::CountMismatch));
        assert_eq!(summary.unfinished_tests(), ["core::b"]);
        summary.add_reports([report("b", Outcome::Passed), report("d", Outcome::Passed)]);
        assert_eq!((summary.missing_outcomes(), summary.verdict()), (-1, RunVerdict::CountMismatch));
    }

    #[test]
    fn suite_death_outside_tests_fails_the_run() {
        let mut summary = RunSummary::new(Some(1));
        let suite = TestReport { is_group: true, uid: "core".into(), ..report("", Outcome::Failed) };
        summary.add_reports([report("a", Outcome::Passed), suite.clone(), suite]);
        assert_eq!((summary.counts().total(), summary.missing_outcomes()), (1, 0));
        assert_eq!((summary.verdict(), summary.failures().count()), (RunVerdict::Failed, 1));
    }

    fn not_run(name: &str, reason: &str) -> TestReport {
        reason_report(name, Outcome::NotRun(NotRunReason::Unrunnable), reason)
    }

    #[test]
    fn tests_not_run_are_grouped_by_reason() {
        let mut summary = RunSummary::new(None);
        summary.add_reports([
            not_run("a", "gone"),
            not_run("b", "dies"),
            not_run("c", "dies"),
            not_run("d", ""),
        ]);
        let groups: Vec<_> =
            summary.not_run().into_iter().map(|(reason, records)| (reason, records.len())).collect();
        assert_eq!(groups, [("dies", 2), ("gone", 1), ("no reason given", 1)]);
        assert_eq!((summary.failures().count(), summary.verdict()), (0, RunVerdict::Failed));
    }

    #[test]
    fn cancelled_and_empty_runs_have_own_verdicts() {
        assert_eq!(RunSummary::new(Some(0)).verdict(), RunVerdict::NothingRan);
        let mut summary = RunSummary::new(None);
        summary.add_reports([report("a", Outcome::Passed), report("b", Outcome::Cancelled)]);
        assert_eq!(summary.verdict(), RunVerdict::Cancelled);
        summary.add_reports([report("c", Outcome::TimedOut)]);
        assert_eq!(summary.verdict(), RunVerdict::Failed);
    }

    #[test]
    fn tests_cancelled_before_start_are_no_failures() {
        let mut summary = RunSummary::new(None);
        let called_off =
            reason_report("a", Outcome::NotRun(NotRunReason::Cancelled), "the run was cancelled");
        summary.add_reports([called_off, report("b", Outcome::Passed)]);
        assert_eq!((summary.verdict(), summary.cancelled_before_start()), (RunVerdict::Cancelled, 1));
        summary.add_reports([not_run("c", "given up")]);
        assert_eq!((summary.verdict(), summary.cancelled_before_start()), (RunVerdict::Failed, 1));
    }

    #[test]
    fn interrupted_run_gives_each_test_without_a_result_one() {
        let mut summary = RunSummary::new(Some(3));
        summary.add_reports([report("a", Outcome::Passed)]);
        summary.start("core::b");
        for uid in ["core::a", "core::b", "core::c"] {
            let test = NodeDescription { uid, suite: "core", ..NodeDescription::default() };
            summary.interrupt(&test);
        }
        let outcomes: Vec<_> = summary.records().iter().map(|record| record.outcome).collect();
        let not_run = Outcome::NotRun(NotRunReason::Unrunnable);
        assert_eq!(outcomes, [Outcome::Passed, Outcome::Interrupted, not_run]);
        assert_eq!((summary.missing_outcomes(), summary.unfinished_tests().len()), (0, 0));
    }

    #[test]
    fn passed_outputs_that_are_kept_can_be_left_out() {
        let mut summary = RunSummary::new(Some(1)).with_passed_outputs(PassedOutputs::Kept);
        let result = TestResult { stdout: "out".into(), ..TestResult::new(Outcome::Passed) };
        summary.add_reports([result_report("a", result)]);
        assert!(summary.records()[0].has_output());
        let reduced = summary.without_passed_outputs();
        assert_eq!((reduced.records()[0].detail.is_none(), reduced.counts().passed()), (true, 1));
    }

    #[test]
    fn slowest_tests_are_sorted_and_limited() {
        let mut summary = RunSummary::new(None);
        for (name, milliseconds) in [("a", 5), ("b", 2000), ("c", 1000), ("d", 3000)] {
            let duration = Some(Duration::from_millis(milliseconds));
            summary.add_reports([TestReport { duration, ..report(name, Outcome::Passed) }]);
        }
        let slowest = |limit| -> Vec<&str> {
            let found = summary.slowest(limit, Duration::from_secs(1));
            found.into_iter().map(TestReport::name).collect()
        };
        assert_eq!(slowest(2), ["d", "b"]);
        assert_eq!(slowest(9), ["d", "b", "c"]);
    }
}
