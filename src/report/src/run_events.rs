//! The event stream of a run: one JSON object per line, similar to libtest's, for programs that read results
//! as they arrive. `docs/reference/run-events.schema.json` is generated from these types.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use heeler_core::{Attempt, Outcome, OutcomeCounts};
use heeler_protocol::mtp::{FailureInfo, TestPartInfo};
use serde::Serialize;

use super::{FailureDetail, RunSummary, TestReport, test_steps::StepEnd};

/// Version of this format. Adding members does not change the version.
const FORMAT_VERSION: u32 = 1;

/// One line of the stream. The first line is `suite` `started`, unless the run could not start. Each selected
/// test has exactly one line for its end. The last line is `suite` `ok` or `suite` `failed`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEventLine<'a> {
    /// Start or end of the run.
    Suite(SuiteEvent<'a>),
    /// Start or end of a test.
    Test(Box<TestEventLine<'a>>),
    /// A failure outside of tests, which does not count as a test.
    Program(Box<ProgramEvent<'a>>),
}

/// Start or end of the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SuiteEvent<'a> {
    /// The run starts.
    Started(RunStarted<'a>),
    /// All tests passed or were skipped.
    Ok(Box<RunEnded<'a>>),
    /// Anything else, including a run that could not start or was cancelled.
    Failed(Box<RunEnded<'a>>),
}

/// Start or end of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TestEventLine<'a> {
    /// The test starts. Sent exactly once for each test, unless it ends as `not_run`.
    Started(ReportedName<'a>),
    /// The test passed, on any attempt.
    Ok(TestEnded<'a>),
    /// The test failed, crashed, timed out or ended badly in another way.
    Failed(TestEnded<'a>),
    /// The test was skipped by its framework or by itself.
    Ignored(TestEnded<'a>),
    /// The test was selected but never started.
    NotRun(TestEnded<'a>),
    /// The test was running when the run was cancelled.
    Cancelled(TestEnded<'a>),
}

/// A failure outside of tests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProgramEvent<'a> {
    /// A program, or the set-up or tear-down of a suite in it, failed.
    Failed(TestEnded<'a>),
}

/// Start of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunStarted<'a> {
    /// Version of this format.
    pub format_version: u32,
    /// ID of the run, as accepted by `heeler report`.
    pub run: &'a str,
    /// Number of selected tests.
    pub test_count: usize,
}

/// End of a run, with the number of tests by result. `passed`, `failed`, `ignored`, `not_run` and `cancelled`
/// add up to `test_count`, unless results are missing.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunEnded<'a> {
    /// ID of the run; absent if the run could not start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<&'a str>,
    /// Exit code of the command.
    pub exit_code: u8,
    /// Number of selected tests.
    pub test_count: usize,
    /// Tests that passed, including flaky ones.
    pub passed: usize,
    /// Tests that failed in any way.
    pub failed: usize,
    /// Skipped tests.
    pub ignored: usize,
    /// Always 0; present for readers of libtest's format.
    pub measured: usize,
    /// Tests that were found but not selected.
    pub filtered_out: usize,
    /// Selected tests that never started.
    pub not_run: usize,
    /// Tests that were running when the run was cancelled.
    pub cancelled: usize,
    /// Programs, set-ups and tear-downs that failed outside of tests.
    pub failed_programs: usize,
    /// Number of steps of all tests by outcome. `not-listed` counts the steps beyond the limits per test
    /// (10,000 steps, 2 MiB). Absent if no test has steps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<&'static str, u32>,
    /// Number of tests by outcome, for outcomes that occurred.
    pub outcomes: BTreeMap<String, usize>,
    /// Duration of the run in seconds.
    pub exec_time: f64,
    /// Error that ended the command, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Names of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReportedName<'a> {
    /// Name in the test framework.
    pub name: Cow<'a, str>,
    /// Unique name in the run, which filters match.
    pub uid: Cow<'a, str>,
    /// Name of the suite in heeler.toml, or of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<Cow<'a, str>>,
}

/// End of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TestEnded<'a> {
    #[serde(flatten)]
    pub name: ReportedName<'a>,
    /// passed, flaky, failed, crashed, exited-early, out-of-memory, timed-out, idle, lost, interrupted,
    /// not-run, cancelled or skipped.
    pub outcome: String,
    /// Duration in seconds; absent if the test did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec_time: Option<f64>,
    /// Start time in ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<&'a str>,
    /// Number of the attempt that decided the result, from 1.
    pub attempt: u64,
    /// The reason for a failure or a skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
    /// All failures, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<TestFailure<'a>>,
    /// Standard output, up to `output-limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<&'a str>,
    /// Standard error, up to `output-limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<&'a str>,
    /// Stack trace of a crash, hang or failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacktrace: Option<&'a str>,
    /// Source file that defines the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<&'a str>,
    /// Line of the definition, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Name of the signal that killed the test process, such as SIGSEGV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<&'a str>,
    /// Exit code of a test process that exited before the test had a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Result of the isolated rerun of a test whose process died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated_rerun: Option<&'a str>,
    /// Shell command that reproduces the result by running the test again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<&'a str>,
    /// Number of the worker that ran the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<u64>,
    /// CPU time in milliseconds, if the test had a process of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<f64>,
    /// Peak memory in KiB, if the test had a process of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_kib: Option<u64>,
    /// Steps of the test: subtests, sections, data rows, TAP points. At most 10,000 steps and 2 MiB are
    /// listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<TestStep<'a>>,
    /// Number of steps that are not listed, because the test exceeds the limit of 10,000 steps or 2 MiB.
    #[serde(skip_serializing_if = "is_zero")]
    pub steps_left_out: u32,
    /// Files of the test and of its earlier attempts: attachments, and evidence such as minidumps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<TestAttachment<'a>>,
    /// Attempts before the one that decided the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier_attempts: Vec<EarlierAttempt<'a>>,
    /// Processes that outlived the test process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaked_processes: Vec<LeftProcess<'a>>,
}

/// One failure of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TestFailure<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
    /// Source file of the failed check, or of the code that crashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<&'a str>,
    /// Line in the file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Expected value of a failed comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<&'a str>,
    /// Actual value of a failed comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<&'a str>,
    /// Stack trace of this failure, if the test has several failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacktrace: Option<&'a str>,
}

/// A step of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TestStep<'a> {
    /// Name within the test, including the names of the enclosing steps.
    pub name: &'a str,
    /// passed, failed, skipped, or unfinished if the test ended during the step.
    pub outcome: &'static str,
    /// The reason for a failure or a skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A file of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TestAttachment<'a> {
    pub path: &'a str,
    pub description: &'a str,
}

/// An attempt that did not decide the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EarlierAttempt<'a> {
    pub outcome: String,
    /// Duration in seconds.
    pub exec_time: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<&'a str>,
}

/// A process that outlived the test process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftProcess<'a> {
    pub pid: u32,
    pub command: &'a str,
    /// Whether the process is still running, because it could not be killed.
    pub is_running: bool,
}

impl<'a> RunEventLine<'a> {
    /// Returns the first event of a run.
    #[must_use]
    pub fn run_started(run: &'a str, test_count: usize) -> Self {
        Self::Suite(SuiteEvent::Started(RunStarted { format_version: FORMAT_VERSION, run, test_count }))
    }

    /// Returns the event of a test's start.
    #[must_use]
    pub fn test_started(uid: &'a str, suite: Option<&'a str>) -> Self {
        let name = super::test_report::without_suite(uid, suite);
        let name = ReportedName { name: name.into(), uid: uid.into(), suite: suite.map(Cow::Borrowed) };
        Self::Test(Box::new(TestEventLine::Started(name)))
    }

    /// Returns the event of an ended test, or of a program that failed outside its tests.
    #[must_use]
    pub fn test_ended(report: &'a TestReport) -> Self {
        let ended = TestEnded::new(report);
        if report.is_group {
            return Self::Program(Box::new(ProgramEvent::Failed(ended)));
        }
        let event = match report.outcome {
            Outcome::Passed | Outcome::Flaky => TestEventLine::Ok(ended),
            Outcome::Skipped => TestEventLine::Ignored(ended),
            Outcome::NotRun(_) => TestEventLine::NotRun(ended),
            Outcome::Cancelled => TestEventLine::Cancelled(ended),
            Outcome::Failed
            | Outcome::TimedOut
            | Outcome::Idle
            | Outcome::Crashed
            | Outcome::ExitedEarly
            | Outcome::OutOfMemory
            | Outcome::Lost
            | Outcome::Interrupted => TestEventLine::Failed(ended),
        };
        Self::Test(Box::new(event))
    }

    /// Returns the last event of a run.
    #[must_use]
    pub fn run_ended(ended: RunEnded<'a>, is_ok: bool) -> Self {
        let ended = Box::new(ended);
        Self::Suite(if is_ok { SuiteEvent::Ok(ended) } else { SuiteEvent::Failed(ended) })
    }
}

impl RunEnded<'_> {
    /// Returns the end of a run with this summary and duration.
    #[must_use]
    pub fn of_summary(summary: &RunSummary, duration: Duration) -> Self {
        let counts = summary.counts();
        let occurred =
            OutcomeCounts::KINDS.into_iter().map(|kind| (word_of(kind), counts.with_outcome(kind)));
        let not_run = summary.not_run_count();
        let cancelled = counts.with_outcome(Outcome::Cancelled);
        let ignored = counts.with_outcome(Outcome::Skipped);
        Self {
            test_count: summary.selected(),
            passed: counts.passed(),
            failed: summary.failed_count(),
            ignored,
            not_run,
            cancelled,
            failed_programs: summary.failed_groups().count(),
            steps: summary.steps().by_kind(),
            outcomes: occurred.filter(|(_, number)| *number > 0).collect(),
            exec_time: duration.as_secs_f64(),
            ..Self::default()
        }
    }
}

impl<'a> TestEnded<'a> {
    fn new(report: &'a TestReport) -> Self {
        let name = ReportedName {
            name: report.name().into(),
            uid: report.uid.as_str().into(),
            suite: report.suite.as_deref().map(Cow::Borrowed),
        };
        let ended = Self {
            name,
            outcome: word_of(report.outcome),
            exec_time: report.duration.map(|took| took.as_secs_f64()),
            start_time: report.start_utc.as_deref(),
            attempt: report.attempts(),
            message: None,
            failures: Vec::new(),
            stdout: None,
            stderr: None,
            stacktrace: None,
            file: report.defined_at.as_ref().map(|place| place.file.as_ref()),
            line: report.defined_at.as_ref().and_then(|place| place.line),
            signal: None,
            exit_code: None,
            isolated_rerun: None,
            reproduce: None,
            worker: None,
            cpu_ms: report.cpu_ms,
            peak_memory_kib: report.peak_kib,
            steps: Vec::new(),
            steps_left_out: report.steps.left_out,
            attachments: Vec::new(),
            earlier_attempts: Vec::new(),
            leaked_processes: Vec::new(),
        };
        match report.detail.as_deref() {
            Some(detail) => ended.with_detail(report, detail),
            None => ended,
        }
    }

    fn with_detail(self, report: &TestReport, detail: &'a FailureDetail) -> Self {
        let text = |text: &'a Option<String>| text.as_deref().filter(|text| !text.is_empty());
        let attachment = |(path, description): &'a (String, String)| TestAttachment { path, description };
        Self {
            message: text(&detail.message),
            failures: if report.outcome.is_failure() { failures(detail) } else { Vec::new() },
            stdout: text(&detail.stdout),
            stderr: text(&detail.stderr),
            stacktrace: text(&detail.stacktrace),
            signal: text(&detail.signal),
            exit_code: detail.exit_code.and_then(|code| i32::try_from(code).ok()),
            isolated_rerun: text(&detail.isolated_rerun),
            reproduce: text(&detail.reproduce),
            worker: detail.worker,
            steps: detail.parts.iter().map(TestStep::from).collect(),
            attachments: detail.files.iter().map(attachment).collect(),
            earlier_attempts: detail.attempts.iter().map(EarlierAttempt::new).collect(),
            leaked_processes: detail
                .leaked
                .iter()
                .map(|one| LeftProcess { pid: one.pid, command: &one.command, is_running: one.is_running })
                .collect(),
            ..self
        }
    }
}

/// Returns the failures of a test. The detail lists failures only if there are several.
fn failures(detail: &FailureDetail) -> Vec<TestFailure<'_>> {
    if detail.failures.is_empty() {
        let place = detail.failed_at.as_ref();
        return vec![TestFailure {
            message: detail.message.as_deref(),
            file: place.map(|place| place.file.as_str()),
            line: place.and_then(|place| place.line),
            expected: detail.expected.as_deref(),
            actual: detail.actual.as_deref(),
            stacktrace: None,
        }];
    }
    detail.failures.iter().map(TestFailure::from).collect()
}

impl<'a> From<&'a FailureInfo> for TestFailure<'a> {
    fn from(failure: &'a FailureInfo) -> Self {
        Self {
            message: failure.message.as_deref(),
            file: failure.file.as_deref(),
            line: failure.line,
            expected: failure.expected.as_deref(),
            actual: failure.actual.as_deref(),
            stacktrace: failure.stacktrace.as_deref(),
        }
    }
}

impl<'a> From<&'a TestPartInfo> for TestStep<'a> {
    fn from(part: &'a TestPartInfo) -> Self {
        Self { name: &part.name, outcome: StepEnd::of(part).as_str(), message: part.message.as_deref() }
    }
}

impl<'a> EarlierAttempt<'a> {
    fn new(attempt: &'a Attempt) -> Self {
        let text = |text: &'a String| Some(text.as_str()).filter(|text| !text.is_empty());
        Self {
            outcome: word_of(attempt.outcome),
            exec_time: Duration::from_micros(attempt.duration_us).as_secs_f64(),
            message: text(&attempt.message),
            stdout: text(&attempt.stdout),
            stderr: text(&attempt.stderr),
        }
    }
}

/// Returns an outcome's name in the stream.
fn word_of(outcome: Outcome) -> String {
    outcome.label().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use heeler_core::{Failure, NotRunReason, ProgramFailure, TestResult};
    use serde_json::{Value, json};

    use super::*;
    use crate::sample_reports::{crashed, failed, failure, report, result_report, unequal};

    fn schema() -> Value {
        let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
        let schema = settings.into_generator().into_root_schema_for::<RunEventLine<'_>>();
        serde_json::to_value(schema).unwrap()
    }

    #[test]
    fn json_schema_of_run_events_is_generated_from_the_types() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs/reference/run-events.schema.json");
        let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        let command = "UPDATE_GOLDEN=1 cargo test -p heeler-report --lib json_schema";
        assert!(found == text, "docs/reference/run-events.schema.json is not up to date: {command}");
    }

    /// Returns a result's event as JSON, validated by the schema.
    #[track_caller]
    fn event(result: TestResult) -> Value {
        valid(&RunEventLine::test_ended(&result_report("A.b", result)))
    }

    #[track_caller]
    fn valid(event: &RunEventLine<'_>) -> Value {
        let event = serde_json::to_value(event).unwrap();
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let errors: Vec<_> = validator.iter_errors(&event).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{event:#}");
        event
    }

    #[test]
    fn passed_test_has_its_names_duration_and_output() {
        let found = event(TestResult { stdout: "hello\n".into(), ..TestResult::new(Outcome::Passed) });
        let expected = json!({"type": "test", "event": "ok", "name": "A.b", "uid": "core::A.b", "suite": "core",
            "outcome": "passed", "exec_time": 1.5, "attempt": 1, "stdout": "hello\n"});
        assert_eq!(found, expected);
    }

    #[test]
    fn single_failure_is_listed_as_several_are() {
        let message = Some("1 < 2".into());
        let single = Failure { message, stack: Some("a.cc:7\nlib.cc:9".into()), ..unequal() };
        let failed_at = Some(heeler_core::SourcePlace { file: "a.cc".to_owned(), line: Some(7) });
        let found = event(TestResult { failed_at, ..failed(vec![single]) });
        assert_eq!(found["event"], "failed");
        let expected =
            json!([{"message": "1 < 2", "file": "a.cc", "line": 7, "expected": "2", "actual": "1"}]);
        assert_eq!(found["failures"], expected);
        let expected =
            json!([{"message": "bad", "file": "x.cc", "line": 4}, {"expected": "2", "actual": "1"}]);
        assert_eq!(event(failed(vec![failure("bad", 4), unequal()]))["failures"], expected);
    }

    #[test]
    fn each_outcome_has_its_event() {
        let not_run = Outcome::NotRun(NotRunReason::Unrunnable);
        for (result, expected) in [
            (TestResult::new(Outcome::Flaky), ["ok", "flaky"]),
            (TestResult::new(Outcome::Skipped), ["ignored", "skipped"]),
            (TestResult::new(Outcome::TimedOut), ["failed", "timed-out"]),
            (crashed(), ["failed", "crashed"]),
            (TestResult::new(not_run), ["not_run", "not-run"]),
            (TestResult::new(Outcome::Cancelled), ["cancelled", "cancelled"]),
        ] {
            let found = event(result);
            assert_eq!([&found["event"], &found["outcome"]], expected);
        }
        let failure = ProgramFailure {
            suite: "core".into(),
            program: "/bin/core".into(),
            fixture: None,
            message: "died".into(),
        };
        let program = valid(&RunEventLine::test_ended(&TestReport::from_program_failure(&failure)));
        assert_eq!((&program["type"], &program["event"]), (&json!("program"), &json!("failed")));
    }

    #[test]
    fn first_and_last_event_are_of_the_suite() {
        let first = valid(&RunEventLine::run_started("r", 2));
        assert_eq!(
            first,
            json!({"type": "suite", "event": "started", "format_version": 1, "run": "r", "test_count": 2})
        );
        let mut summary = RunSummary::new(Some(2));
        summary.add_reports([report("a", Outcome::Passed)]);
        let ended = RunEnded::of_summary(&summary, Duration::from_millis(1500));
        let last = valid(&RunEventLine::run_ended(RunEnded { run: Some("r"), exit_code: 2, ..ended }, false));
        assert_eq!(
            (&last["type"], &last["event"], &last["exec_time"]),
            (&json!("suite"), &json!("failed"), &json!(1.5))
        );
        assert_eq!(
            (&last["passed"], &last["test_count"], &last["exit_code"]),
            (&json!(1), &json!(2), &json!(2))
        );
        assert_eq!(last["outcomes"], json!({"passed": 1}));
    }
}
