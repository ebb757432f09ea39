//! One test of a run, with the data that reports print.

use std::{sync::Arc, time::Duration};

use heeler_core::{
    Attempt, FIXTURE_SUITE, Outcome, ProgramFailure, RuntimeDeath, SourcePlace, TestResult, describe,
    milliseconds_of,
};
use heeler_protocol::{
    control::ReportName,
    mtp::{FailureInfo, LeakedProcessInfo, NodeDescription, TestPartInfo, iso8601},
};

use crate::test_steps::StepCounts;

/// A test, or a program that failed outside its tests.
#[derive(Debug, Clone, PartialEq)]
pub struct TestReport {
    /// Uid of the node.
    pub uid: String,
    /// Name of the suite, if the node has one; shared between the records of a suite.
    pub suite: Option<Arc<str>>,
    /// Display name, only if it has more information than the name.
    pub display: Option<String>,
    /// Class and name in JUnit reports, if they differ from suite and name.
    pub report_name: Option<Box<ReportName>>,
    pub outcome: Outcome,
    pub duration: Option<Duration>,
    /// CPU time of the test's process in milliseconds, if no other test ran in it.
    pub cpu_ms: Option<f64>,
    /// Peak memory of the test's process in KiB, if no other test ran in it.
    pub peak_kib: Option<u64>,
    /// Start time, in ISO 8601.
    pub start_utc: Option<String>,
    /// Number of the test's steps.
    pub steps: StepCounts,
    /// Place of the test's definition, if known.
    pub defined_at: Option<TestDefinition>,
    /// `true` for a suite or program that died outside its tests, and for a set-up or tear-down of a fixture.
    /// Such a report is not counted as a test.
    pub is_group: bool,
    /// All other data. For a test that passed at its first attempt without leaking processes, a summary keeps
    /// only files and steps, and outputs on request.
    pub detail: Option<Box<FailureDetail>>,
}

/// Place of a test's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestDefinition {
    /// Source file; shared between the records of a summary.
    pub file: Arc<str>,
    /// Line in the source file, from 1.
    pub line: Option<u32>,
}

/// Data of a result other than outcome and times.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FailureDetail {
    /// Name of the signal that killed the process.
    pub signal: Option<String>,
    /// How the language's runtime ended the process, if it reported that.
    pub runtime: Option<RuntimeDeath>,
    /// Exit code of a process that exited without a result.
    pub exit_code: Option<i64>,
    /// Reason for the failure or the skip.
    pub message: Option<String>,
    pub stacktrace: Option<String>,
    /// Actual value of a failed assertion.
    pub actual: Option<String>,
    /// Expected value of a failed assertion.
    pub expected: Option<String>,
    /// Place of the failure, if known.
    pub failed_at: Option<SourcePlace>,
    /// All failures in order, if there are several.
    pub failures: Vec<FailureInfo>,
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    /// Shell command that runs the test in isolation.
    pub reproduce: Option<String>,
    /// Result of the isolated rerun.
    pub isolated_rerun: Option<String>,
    /// Number of the deciding attempt, from 1.
    pub attempt: Option<u64>,
    /// Subtests, sections, data rows and points of the test.
    pub parts: Vec<TestPartInfo>,
    /// Attached files: path and description.
    pub files: Vec<(String, String)>,
    /// Earlier attempts, if reported.
    pub attempts: Vec<Attempt>,
    pub worker: Option<u64>,
    /// Processes that the test left behind.
    pub leaked: Vec<LeakedProcessInfo>,
    /// Whether outputs and other texts are omitted here and must be read from the run's record.
    pub is_abridged: bool,
}

impl TestReport {
    /// Creates the complete report of a result.
    #[must_use]
    pub fn from_result(test: &NodeDescription<'_>, result: &TestResult) -> Self {
        let outcome = result.outcome;
        let detail = FailureDetail::from_result(test, result);
        let suite = Some(test.suite).filter(|suite| !suite.is_empty());
        Self {
            uid: test.uid.to_owned(),
            suite: suite.map(Arc::from),
            display: informative_display_name(test.display_name, test.uid, suite),
            report_name: test.report_name.cloned().map(Box::new),
            outcome,
            duration: result.duration_us.map(Duration::from_micros),
            cpu_ms: result.usage.map(|usage| milliseconds_of(usage.cpu_us)),
            peak_kib: result.usage.map(|usage| usage.peak_kib),
            start_utc: result.started_ms.map(iso8601),
            is_group: suite.is_some_and(|suite| suite == test.uid || suite == FIXTURE_SUITE),
            steps: StepCounts::of(&detail.parts, result.parts_left_out),
            defined_at: TestDefinition::of_test(test, result),
            detail: Some(Box::new(detail)),
        }
    }

    /// Creates the report of a program that failed outside its tests.
    #[must_use]
    pub fn from_program_failure(failure: &ProgramFailure) -> Self {
        let (uid, display_name) = (failure.uid(), failure.display_name());
        let test = NodeDescription {
            uid: &uid,
            display_name: &display_name,
            suite: &failure.suite,
            ..NodeDescription::default()
        };
        let report = Self::from_result(&test, &TestResult::with_reason(Outcome::Failed, &failure.message));
        Self { is_group: true, ..report }
    }

    /// Returns whether this is a set-up or tear-down of a configured fixture.
    #[must_use]
    pub fn is_fixture(&self) -> bool {
        self.suite.as_deref() == Some(FIXTURE_SUITE)
    }

    /// Returns the framework's name of the test: the uid without the suite.
    #[must_use]
    pub fn name(&self) -> &str {
        without_suite(&self.uid, self.suite.as_deref())
    }

    #[must_use]
    pub fn shown_name(&self) -> &str {
        self.display.as_deref().unwrap_or_else(|| self.name())
    }

    /// Returns the text that `pick` selects from the detail, without trailing white space; `None` if the
    /// text is empty.
    #[must_use]
    pub fn detail_text(&self, pick: impl FnOnce(&FailureDetail) -> Option<&String>) -> Option<&str> {
        self.detail.as_deref().and_then(pick).map(|text| text.trim_end()).filter(|text| !text.is_empty())
    }

    /// Returns the place of the failure or, for a test that did not fail, of its definition. A failure at an
    /// unknown line has only the file, because the line of the definition is not the line of the failure.
    #[must_use]
    pub fn place(&self) -> Option<SourcePlace> {
        let failed_at = self.failed_place().cloned();
        let is_failure = self.outcome.is_failure();
        let line = |place: &SourcePlace| place.line.filter(|_| !is_failure);
        failed_at.or_else(|| self.definition().map(|place| SourcePlace { line: line(&place), ..place }))
    }

    /// Returns the place of the failure, if known.
    #[must_use]
    pub fn failed_place(&self) -> Option<&SourcePlace> {
        self.detail.as_deref()?.failed_at.as_ref()
    }

    /// Returns the place of the test's definition.
    #[must_use]
    pub fn definition(&self) -> Option<SourcePlace> {
        let TestDefinition { file, line } = self.defined_at.as_ref()?;
        Some(SourcePlace { file: file.as_ref().to_owned(), line: *line })
    }

    /// Returns whether the test wrote any output.
    #[must_use]
    pub fn has_output(&self) -> bool {
        let texts = [
            self.detail_text(|detail| detail.stdout.as_ref()),
            self.detail_text(|detail| detail.stderr.as_ref()),
        ];
        texts.iter().any(Option::is_some)
    }

    /// Returns whether the test passed, at any attempt.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        matches!(self.outcome, Outcome::Passed | Outcome::Flaky)
    }

    /// Returns whether the test is known to have left processes behind.
    #[must_use]
    pub fn is_leaky(&self) -> bool {
        !self.leaked().is_empty()
    }

    /// Returns the processes that the test is known to have left behind.
    #[must_use]
    pub fn leaked(&self) -> &[LeakedProcessInfo] {
        self.detail.as_deref().map_or(&[], |detail| &detail.leaked)
    }

    /// Adds processes that the test left behind.
    pub(super) fn add_leaked(&mut self, processes: &[LeakedProcessInfo]) {
        let leaked = &mut self.detail.get_or_insert_default().leaked;
        for process in processes {
            if !leaked.contains(process) {
                leaked.push(process.clone());
            }
        }
    }

    /// Returns the number of attempts, at least 1.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        let attempt_number =
            |detail: &FailureDetail| detail.attempt.unwrap_or(detail.attempts.len() as u64 + 1);
        self.detail.as_deref().map_or(1, attempt_number).max(1)
    }
}

impl TestDefinition {
    /// Returns the place that the framework lists; otherwise the place of the first failure with a file.
    fn of_test(test: &NodeDescription<'_>, result: &TestResult) -> Option<Self> {
        if let Some(file) = test.file {
            return Some(Self { file: file.into(), line: test.line });
        }
        let mut failures = result.failures.iter();
        failures.find_map(|one| Some(Self { file: one.file.as_deref()?.into(), line: one.line }))
    }
}

impl FailureDetail {
    fn from_result(test: &NodeDescription<'_>, result: &TestResult) -> Self {
        let exit = result.exit_reason.as_ref();
        let text = |text: Option<std::borrow::Cow<'_, str>>| text.map(std::borrow::Cow::into_owned);
        let comparison = result.failed_comparison();
        let is_retried = !result.attempts.is_empty();
        Self {
            signal: exit.and_then(|exit| exit.signal.clone()),
            runtime: exit.and_then(|exit| exit.runtime),
            exit_code: exit.and_then(|exit| exit.code).map(i64::from),
            message: text(describe::shown_message(result)),
            stacktrace: text(describe::shown_stack(result, test.file.is_some())),
            actual: comparison.and_then(|failure| failure.actual.clone()),
            expected: comparison.and_then(|failure| failure.expected.clone()),
            failed_at: result.failed_at.clone(),
            failures: FailureInfo::of_result(result),
            stdout: text(describe::shown_stdout(result)),
            stderr: text(describe::shown_stderr(result)),
            reproduce: result.reproduce.clone(),
            isolated_rerun: result.isolated_rerun.map(|rerun| rerun.as_str().to_owned()),
            attempt: is_retried.then_some(result.attempts.len() as u64 + 1),
            parts: result.parts.iter().map(TestPartInfo::from).collect(),
            files: result
                .files()
                .into_iter()
                .map(|file| (file.path.to_text().into_owned(), file.description))
                .collect(),
            attempts: result.attempts.clone(),
            worker: result.worker.map(u64::from),
            leaked: result.leaked.iter().map(LeakedProcessInfo::from).collect(),
            is_abridged: false,
        }
    }
}

/// Returns a test's name for display: its display name if that says more than its name.
#[must_use]
pub fn shown_name(test: &NodeDescription<'_>) -> String {
    let suite = Some(test.suite).filter(|suite| !suite.is_empty());
    informative_display_name(test.display_name, test.uid, suite)
        .unwrap_or_else(|| without_suite(test.uid, suite).to_owned())
}

/// Returns the display name if it says more than the end of the name. The display name of a test with
/// parameters, such as `Reads/0 (7)` for `Parser.Reads/0`, is completed with its groups.
fn informative_display_name(display: &str, uid: &str, suite: Option<&str>) -> Option<String> {
    let name = without_suite(uid, suite);
    // Display names are on one line, but uids contain the framework's text unchanged.
    let is_leaf_name = |name: &str| name.ends_with(display);
    if display.is_empty()
        || is_leaf_name(name)
        || is_leaf_name(&name.replace('\r', "\\r").replace('\n', "\\n"))
    {
        return None;
    }
    let is_leaf = |at: &usize| {
        let is_boundary = *at == 0 || name[..*at].ends_with(['.', ':', '/']);
        is_boundary && display.strip_prefix(&name[*at..]).is_some_and(|rest| rest.starts_with(" ("))
    };
    let leaf = name.char_indices().map(|(at, _)| at).find(is_leaf).unwrap_or(0);
    let groups = if display.starts_with(name) { "" } else { &name[..leaf] };
    Some(format!("{groups}{display}"))
}

pub(super) fn without_suite<'a>(uid: &'a str, suite: Option<&str>) -> &'a str {
    suite
        .and_then(|suite| uid.strip_prefix(suite)?.strip_prefix("::"))
        .filter(|name| !name.is_empty())
        .unwrap_or(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_name_is_completed_with_its_groups() {
        let shown = |display: &str, uid: &str| informative_display_name(display, uid, Some("unit"));
        for (display, uid, expected) in [
            ("Reads", "unit::Parser.Reads", None),
            ("Parser.Reads", "unit::Parser.Reads", None),
            ("Reads/0 (7)", "unit::I/Parser.Reads/0", Some("I/Parser.Reads/0 (7)")),
            ("I/Parser.Reads/0 (7)", "unit::I/Parser.Reads/0", Some("I/Parser.Reads/0 (7)")),
            ("Default (int)", "unit::Typed/0.Default", Some("Typed/0.Default (int)")),
            ("reads a file", "unit::Parser.Reads", Some("reads a file")),
            ("x-ray", "unit::box", Some("x-ray")),
            ("new\\nline", "unit::Odd.new\nline", None),
        ] {
            assert_eq!(shown(display, uid).as_deref(), expected, "{display} of {uid}");
        }
    }

    fn record(uid: &str, display_name: &str, suite: &str) -> TestReport {
        let test = NodeDescription { uid, display_name, suite, ..NodeDescription::default() };
        TestReport::from_result(&test, &TestResult::new(Outcome::Failed))
    }

    #[test]
    fn the_name_is_the_uid_without_the_suite() {
        assert_eq!(record("a::b::c", "c", "a::b").shown_name(), "c");
        assert_eq!(record("a::m::c", "c", "a").shown_name(), "m::c");
        assert_eq!(record("a::m::c", "c (x = 5)", "a").shown_name(), "m::c (x = 5)");
        assert_eq!(record("x", "", "a").shown_name(), "x");
        assert_eq!(record("a::", "", "a").name(), "a::");
    }

    #[test]
    fn a_test_with_the_uid_of_its_suite_is_a_group() {
        assert!(record("a", "a", "a").is_group);
        assert!(!record("a::a", "a", "a").is_group);
    }
}
