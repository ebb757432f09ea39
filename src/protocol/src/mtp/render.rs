//! Renders tests, results and groups as nodes. Only this module writes test nodes as JSON. The JSON is
//! appended to the caller's buffer, because a worker renders a hundred thousand nodes per second.

use std::borrow::Cow;

use heeler_core::{
    DiagnosticsFile, FIXTURE_SUITE, IsolatedRerun, Outcome, PartResult, TestResult, describe,
    milliseconds_of, test_path::PARAMETER_SEPARATOR,
};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    ExecutionState, FailureInfo, LeakedProcessInfo, TestNode, TestPartInfo, attempts::RenderedAttempt,
    file_uri, group_path, key, utc_time,
};
use crate::control::{ReportName, TraitPair};

/// Values of `outcome-kind`, which are more specific than the states.
pub mod outcome_kind {
    /// The test passed after an attempt that did not.
    pub const FLAKY: &str = "passed-with-retries";
    /// The test passed and left processes behind.
    pub(crate) const LEAKY: &str = "leaky";
    /// The idle timeout of the test expired.
    pub const IDLE: &str = "idle";
    /// A signal killed the process of the test.
    pub(crate) const CRASHED: &str = "crashed";
    /// The process of the test exited before the test had ended.
    pub(crate) const EXITED_EARLY: &str = "exited-early";
    /// The process of the test was killed because of its memory use.
    pub(crate) const OUT_OF_MEMORY: &str = "out-of-memory";
    /// The test may have a result, but the result is unknown.
    pub const LOST: &str = "lost";
    /// The test was running when the run was interrupted.
    pub const INTERRUPTED: &str = "interrupted";
    /// The test was selected, but never run.
    pub const NOT_RUN: &str = "not-run";
    /// The program failed outside its tests.
    pub const PROGRAM_FAILURE: &str = "program-failure";
}

/// Description of a group of tests: suite, class or module.
#[derive(Debug, Clone, Copy, Default)]
pub struct GroupDescription<'a> {
    /// Uid of the group: the common prefix of the uids of its tests.
    pub uid: &'a str,
    /// Name of the group without its parents.
    pub name: &'a str,
    /// Uid of the parent group.
    pub parent: Option<&'a str>,
    /// Source file shared by all tests of the group, if there is one.
    pub file: Option<&'a str>,
    /// First line of the group's tests in that file, from 1.
    pub line: Option<u32>,
    /// Members that the client added, as JSON: `"name":value,…`.
    pub client_members: Option<&'a str>,
}

/// Static description of a test, including its position in the tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeDescription<'a> {
    /// Uid of the test for clients.
    pub uid: &'a str,
    /// Display name of the test.
    pub display_name: &'a str,
    /// Class and name of the test in JUnit reports, if they differ from suite and name.
    pub report_name: Option<&'a ReportName>,
    /// Uid of the parent group.
    pub parent: Option<&'a str>,
    /// Suite name; empty for a test without a suite.
    pub suite: &'a str,
    /// Path of the test program as text.
    pub program: &'a str,
    /// Framework that listed the test; empty if unknown.
    pub framework: &'a str,
    /// Source file, if the framework reports it.
    pub file: Option<&'a str>,
    /// Line in the source file, from 1.
    pub line: Option<u32>,
    /// Traits that the framework assigns.
    pub traits: &'a [TraitPair],
    /// Members that the client added, as JSON: `"name":value,…`.
    pub client_members: Option<&'a str>,
}

impl<'a> NodeDescription<'a> {
    /// Returns the description of a uid that no listing has: a command of a fixture, or an unknown test.
    #[must_use]
    pub fn unlisted(uid: &'a str) -> Self {
        let fixture = uid.strip_prefix(FIXTURE_SUITE).and_then(|name| name.strip_prefix("::"));
        let suite = if fixture.is_some() { FIXTURE_SUITE } else { "" };
        Self { uid, display_name: fixture.unwrap_or(uid), suite, ..Self::default() }
    }
}

impl From<Outcome> for ExecutionState {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Passed | Outcome::Flaky => Self::Passed,
            Outcome::Skipped => Self::Skipped,
            Outcome::Failed => Self::Failed,
            Outcome::TimedOut | Outcome::Idle => Self::TimedOut,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::NotRun(reason) if reason.is_stop() => Self::Cancelled,
            Outcome::Crashed
            | Outcome::ExitedEarly
            | Outcome::OutOfMemory
            | Outcome::Lost
            | Outcome::Interrupted
            | Outcome::NotRun(_) => Self::Error,
        }
    }
}

/// Returns the outcome kind of an outcome; `None` if the state is specific enough.
pub(super) fn kind_of(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Flaky => Some(outcome_kind::FLAKY),
        Outcome::Idle => Some(outcome_kind::IDLE),
        Outcome::Crashed => Some(outcome_kind::CRASHED),
        Outcome::ExitedEarly => Some(outcome_kind::EXITED_EARLY),
        Outcome::OutOfMemory => Some(outcome_kind::OUT_OF_MEMORY),
        Outcome::Lost => Some(outcome_kind::LOST),
        Outcome::Interrupted => Some(outcome_kind::INTERRUPTED),
        Outcome::NotRun(_) => Some(outcome_kind::NOT_RUN),
        Outcome::Passed | Outcome::Skipped | Outcome::Failed | Outcome::TimedOut | Outcome::Cancelled => None,
    }
}

/// Returns the outcome of a node sent by a server; `None` while the test has not ended. For clients only.
#[must_use]
pub fn outcome_of_node(node: &TestNode) -> Option<Outcome> {
    let state = node.state.filter(|state| state.is_terminal())?;
    read_outcome(state, node.outcome_kind.as_deref(), node.members.contains_key(key::SIGNAL))
}

pub(super) fn read_outcome(state: ExecutionState, kind: Option<&str>, has_signal: bool) -> Option<Outcome> {
    use heeler_core::NotRunReason;
    Some(match (state, kind) {
        (ExecutionState::Cancelled, Some(outcome_kind::NOT_RUN)) => Outcome::NotRun(NotRunReason::Cancelled),
        (_, Some(outcome_kind::NOT_RUN)) => Outcome::NotRun(NotRunReason::Unrunnable),
        (ExecutionState::Passed, Some(outcome_kind::FLAKY)) => Outcome::Flaky,
        (ExecutionState::Passed, _) => Outcome::Passed,
        (ExecutionState::Skipped, _) => Outcome::Skipped,
        (ExecutionState::Failed, _) => Outcome::Failed,
        (ExecutionState::TimedOut, Some(outcome_kind::IDLE)) => Outcome::Idle,
        (ExecutionState::TimedOut, _) => Outcome::TimedOut,
        (ExecutionState::Cancelled, _) => Outcome::Cancelled,
        (ExecutionState::Error, Some(outcome_kind::OUT_OF_MEMORY)) => Outcome::OutOfMemory,
        (ExecutionState::Error, Some(outcome_kind::INTERRUPTED)) => Outcome::Interrupted,
        (ExecutionState::Error, Some(outcome_kind::LOST)) => Outcome::Lost,
        (ExecutionState::Error, Some(outcome_kind::EXITED_EARLY)) => Outcome::ExitedEarly,
        (ExecutionState::Error, Some(outcome_kind::CRASHED)) => Outcome::Crashed,
        (ExecutionState::Error, _) if has_signal => Outcome::Crashed,
        // Another server may report its own failures as plain errors.
        (ExecutionState::Error, _) => Outcome::Failed,
        (ExecutionState::Discovered | ExecutionState::InProgress | ExecutionState::Unknown, _) => {
            return None;
        }
    })
}

/// Appends the change of a group.
pub fn render_group(out: &mut Vec<u8>, group: &GroupDescription<'_>) {
    #[derive(Serialize)]
    struct RenderedGroup<'a> {
        uid: &'a str,
        #[serde(rename = "display-name")]
        display_name: &'a str,
        #[serde(rename = "node-type")]
        node_type: &'static str,
        #[serde(rename = "location.file", skip_serializing_if = "Option::is_none")]
        location_file: Option<&'a str>,
        #[serde(rename = "location.line-start", skip_serializing_if = "Option::is_none")]
        location_line_start: Option<u32>,
        #[serde(rename = "location.line-end", skip_serializing_if = "Option::is_none")]
        location_line_end: Option<u32>,
    }
    let node = RenderedGroup {
        uid: group.uid,
        display_name: group.name,
        node_type: "group",
        location_file: group.file,
        location_line_start: group.line,
        location_line_end: group.line,
    };
    render(out, group.parent, &node, group.client_members);
}

/// Appends the change of a discovered test.
pub fn render_discovered(out: &mut Vec<u8>, test: &NodeDescription<'_>) {
    let node = RenderedNode {
        traits: RenderedTraits(test.traits),
        report_class: test.report_name.map(|reported| reported.class.as_str()),
        report_name: test.report_name.map(|reported| reported.name.as_str()),
        program: non_empty(test.program),
        framework: non_empty(test.framework),
        ..RenderedNode::new(test, ExecutionState::Discovered, NodeLocation::of_test(test))
    };
    render_test(out, test, &node);
}

/// Appends the change of a test with its result.
pub fn render_result(out: &mut Vec<u8>, test: &NodeDescription<'_>, result: &TestResult) {
    let is_leaky = result.outcome == Outcome::Passed && !result.leaked.is_empty();
    // If the location of the test is unknown, use its first failure with a location.
    let failure = result.failures.iter().find(|failure| failure.file.is_some());
    let (file, line) = match (test.file, failure) {
        (None, Some(failure)) => (failure.file.as_deref(), failure.line),
        (file, _) => (file, test.line),
    };
    // All members. Absent values are not written.
    let exit = result.exit_reason.as_ref();
    let comparison = result.failed_comparison();
    let node = RenderedNode {
        outcome_kind: kind_of(result.outcome).or(is_leaky.then_some(outcome_kind::LEAKY)),
        start_utc: result.started_ms.map(IsoTime),
        stop_utc: result.ended_ms.map(IsoTime),
        duration_ms: result.duration_us.map(milliseconds_of),
        error_message: describe::shown_message(result),
        error_stacktrace: describe::shown_stack(result, test.file.is_some()),
        assert_actual: comparison.and_then(|failure| failure.actual.as_deref()),
        assert_expected: comparison.and_then(|failure| failure.expected.as_deref()),
        standard_output: describe::shown_stdout(result),
        standard_error: describe::shown_stderr(result),
        traits: RenderedTraits(test.traits),
        report_class: test.report_name.map(|reported| reported.class.as_str()),
        report_name: test.report_name.map(|reported| reported.name.as_str()),
        program: non_empty(test.program),
        worker: result.worker,
        reproduce: result.reproduce.as_deref(),
        signal: exit.and_then(|exit| exit.signal.as_deref()),
        exit_code: exit.and_then(|exit| exit.code),
        isolated_rerun: result.isolated_rerun.map(IsolatedRerun::as_str),
        cpu_ms: result.usage.map(|usage| milliseconds_of(usage.cpu_us)),
        peak_memory_kib: result.usage.map(|usage| usage.peak_kib),
        leaked: result.leaked.iter().map(LeakedProcessInfo::from).collect(),
        parts: result.parts.iter().map(TestPartInfo::from).collect(),
        parts_left_out: Some(result.parts_left_out).filter(|number| *number > 0),
        failures: FailureInfo::of_result(result),
        iterations: result.iterations,
        attachments: RenderedAttachments(result.files()),
        attempt: (!result.attempts.is_empty()).then_some(result.attempts.len() + 1),
        attempts: result.attempts.iter().map(RenderedAttempt::new).collect(),
        ..RenderedNode::new(test, result.outcome.into(), NodeLocation { file, line })
    };
    render_test(out, test, &node);
}

impl From<&PartResult> for TestPartInfo {
    fn from(part: &PartResult) -> Self {
        let state = part.outcome.map_or(ExecutionState::InProgress, ExecutionState::from);
        Self { name: part.name.clone(), state: state.as_str().to_owned(), message: part.message.clone() }
    }
}

/// Appends the change of a test that has started.
pub fn render_started(out: &mut Vec<u8>, test: &NodeDescription<'_>, started_ms: u64, worker: u32) {
    let node = RenderedNode {
        start_utc: Some(IsoTime(started_ms)),
        worker: Some(worker),
        ..RenderedNode::new(test, ExecutionState::InProgress, NodeLocation::of_test(test))
    };
    render_test(out, test, &node);
}

/// Appends the change of a running test with its latest output.
pub(crate) fn render_output(out: &mut Vec<u8>, test: &NodeDescription<'_>, started_ms: u64, output: &str) {
    let node = RenderedNode {
        start_utc: Some(IsoTime(started_ms)),
        output: non_empty(output),
        ..RenderedNode::new(test, ExecutionState::InProgress, NodeLocation::of_test(test))
    };
    render_test(out, test, &node);
}

/// Appends the change of a program that failed outside its tests, or in the set-up or tear-down of a suite.
pub(crate) fn render_program_failure(out: &mut Vec<u8>, failure: &heeler_core::ProgramFailure) {
    let (uid, display_name) = (failure.uid(), failure.display_name());
    let program = failure.program.to_text();
    let test = NodeDescription {
        uid: &uid,
        display_name: &display_name,
        suite: &failure.suite,
        program: &program,
        ..NodeDescription::default()
    };
    let node = RenderedNode {
        outcome_kind: Some(outcome_kind::PROGRAM_FAILURE),
        error_message: Some(failure.message.as_str().into()),
        program: non_empty(&program),
        ..RenderedNode::new(&test, ExecutionState::Error, NodeLocation::default())
    };
    render_test(out, &test, &node);
}

fn render_test(out: &mut Vec<u8>, test: &NodeDescription<'_>, node: &RenderedNode<'_>) {
    render(out, test.parent, node, test.client_members);
}

fn render<N: Serialize>(out: &mut Vec<u8>, parent: Option<&str>, node: &N, client_members: Option<&str>) {
    let change = RenderedChange { parent, node };
    serde_json::to_writer(&mut *out, &change).expect("a node is a struct with text keys");
    if let Some(members) = client_members {
        out.truncate(out.len() - "}}".len());
        out.push(b',');
        out.extend_from_slice(members.as_bytes());
        out.extend_from_slice(b"}}");
    }
}

#[derive(Serialize)]
struct RenderedChange<'a, N> {
    parent: Option<&'a str>,
    node: &'a N,
}

/// Location in a source file.
#[derive(Default)]
struct NodeLocation<'a> {
    file: Option<&'a str>,
    line: Option<u32>,
}

impl<'a> NodeLocation<'a> {
    fn of_test(test: &NodeDescription<'a>) -> Self {
        Self { file: test.file, line: test.line }
    }
}

/// A node with all members that Heeler writes, in writing order.
#[derive(Serialize)]
struct RenderedNode<'a> {
    uid: &'a str,
    #[serde(rename = "display-name")]
    display_name: Cow<'a, str>,
    #[serde(rename = "node-type")]
    node_type: &'static str,
    #[serde(rename = "execution-state")]
    state: ExecutionState,
    #[serde(rename = "outcome-kind", skip_serializing_if = "Option::is_none")]
    outcome_kind: Option<&'static str>,
    #[serde(rename = "location.type", skip_serializing_if = "Option::is_none")]
    location_type: Option<&'a str>,
    #[serde(rename = "location.method", skip_serializing_if = "Option::is_none")]
    location_method: Option<&'a str>,
    #[serde(rename = "location.file", skip_serializing_if = "Option::is_none")]
    location_file: Option<&'a str>,
    #[serde(rename = "location.line-start", skip_serializing_if = "Option::is_none")]
    location_line_start: Option<u32>,
    #[serde(rename = "location.line-end", skip_serializing_if = "Option::is_none")]
    location_line_end: Option<u32>,
    #[serde(rename = "time.start-utc", skip_serializing_if = "Option::is_none")]
    start_utc: Option<IsoTime>,
    #[serde(rename = "time.stop-utc", skip_serializing_if = "Option::is_none")]
    stop_utc: Option<IsoTime>,
    #[serde(rename = "time.duration-ms", skip_serializing_if = "Option::is_none")]
    duration_ms: Option<f64>,
    #[serde(rename = "error.message", skip_serializing_if = "Option::is_none")]
    error_message: Option<Cow<'a, str>>,
    #[serde(rename = "error.stacktrace", skip_serializing_if = "Option::is_none")]
    error_stacktrace: Option<Cow<'a, str>>,
    #[serde(rename = "assert.actual", skip_serializing_if = "Option::is_none")]
    assert_actual: Option<&'a str>,
    #[serde(rename = "assert.expected", skip_serializing_if = "Option::is_none")]
    assert_expected: Option<&'a str>,
    #[serde(rename = "standardOutput", skip_serializing_if = "Option::is_none")]
    standard_output: Option<Cow<'a, str>>,
    #[serde(rename = "standardError", skip_serializing_if = "Option::is_none")]
    standard_error: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "RenderedTraits::is_empty")]
    traits: RenderedTraits<'a>,
    #[serde(rename = "heeler.suite", skip_serializing_if = "Option::is_none")]
    suite: Option<&'a str>,
    #[serde(rename = "heeler.report-class", skip_serializing_if = "Option::is_none")]
    report_class: Option<&'a str>,
    #[serde(rename = "heeler.report-name", skip_serializing_if = "Option::is_none")]
    report_name: Option<&'a str>,
    #[serde(rename = "heeler.program", skip_serializing_if = "Option::is_none")]
    program: Option<&'a str>,
    #[serde(rename = "heeler.framework", skip_serializing_if = "Option::is_none")]
    framework: Option<&'a str>,
    #[serde(rename = "heeler.output", skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    #[serde(rename = "heeler.worker", skip_serializing_if = "Option::is_none")]
    worker: Option<u32>,
    #[serde(rename = "heeler.reproduce", skip_serializing_if = "Option::is_none")]
    reproduce: Option<&'a str>,
    #[serde(rename = "heeler.signal", skip_serializing_if = "Option::is_none")]
    signal: Option<&'a str>,
    #[serde(rename = "heeler.exit-code", skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(rename = "heeler.isolated-rerun", skip_serializing_if = "Option::is_none")]
    isolated_rerun: Option<&'static str>,
    #[serde(rename = "heeler.cpu-ms", skip_serializing_if = "Option::is_none")]
    cpu_ms: Option<f64>,
    #[serde(rename = "heeler.peak-memory-kib", skip_serializing_if = "Option::is_none")]
    peak_memory_kib: Option<u64>,
    #[serde(rename = "heeler.leaked", skip_serializing_if = "Vec::is_empty")]
    leaked: Vec<LeakedProcessInfo>,
    #[serde(rename = "heeler.parts", skip_serializing_if = "Vec::is_empty")]
    parts: Vec<TestPartInfo>,
    #[serde(rename = "heeler.parts-left-out", skip_serializing_if = "Option::is_none")]
    parts_left_out: Option<u32>,
    #[serde(rename = "heeler.failures", skip_serializing_if = "Vec::is_empty")]
    failures: Vec<FailureInfo>,
    #[serde(rename = "heeler.iterations", skip_serializing_if = "Option::is_none")]
    iterations: Option<u32>,
    #[serde(flatten)]
    attachments: RenderedAttachments,
    #[serde(rename = "retry.attempt", skip_serializing_if = "Option::is_none")]
    attempt: Option<usize>,
    #[serde(rename = "heeler.attempts", skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<RenderedAttempt<'a>>,
}

/// Returns the part of a test's display name below its group, on one line. The groups show the rest.
fn leaf_name<'a>(test: &NodeDescription<'a>) -> Cow<'a, str> {
    let group = test.parent.and_then(|group| group.strip_prefix(test.suite)?.strip_prefix("::"));
    let leaf = group.and_then(|group| test.display_name.strip_prefix(group));
    // CTest's name of a parameterized test may end with the parameter's value instead of its number. The
    // value alone would be meaningless.
    let number = group.filter(|group| group.ends_with(PARAMETER_SEPARATOR)).and(test.parent);
    let number = number.and_then(|parent| test.uid.strip_prefix(parent)).unwrap_or_default();
    let leaf = leaf.filter(|leaf| !leaf.is_empty() && leaf.starts_with(number)).unwrap_or(test.display_name);
    if leaf.contains(['\n', '\r']) {
        return Cow::Owned(leaf.replace('\r', "\\r").replace('\n', "\\n"));
    }
    Cow::Borrowed(leaf)
}

/// Returns the group of a test's class, given the innermost group. For a parameterized test, that is the
/// group above.
fn class_group(group: &str) -> &str {
    let is_of_parameterised_test = group.ends_with(PARAMETER_SEPARATOR);
    let class_end = group.rfind('.').filter(|_| is_of_parameterised_test);
    class_end.map_or(group, |at| &group[..=at])
}

impl<'a> RenderedNode<'a> {
    /// Returns a test node with its description and without a result.
    fn new(test: &NodeDescription<'a>, state: ExecutionState, location: NodeLocation<'a>) -> Self {
        let NodeLocation { file, line } = location;
        // Write only the description; callers add the result.
        let line = line.filter(|_| file.is_some());
        Self {
            uid: test.uid,
            display_name: leaf_name(test),
            node_type: "action",
            state,
            outcome_kind: None,
            location_type: test.parent.map(|group| group_path(class_group(group), test.suite)),
            location_method: test.parent.and_then(|group| test.uid.strip_prefix(class_group(group))),
            location_file: file,
            location_line_start: line,
            location_line_end: line,
            start_utc: None,
            stop_utc: None,
            duration_ms: None,
            error_message: None,
            error_stacktrace: None,
            assert_actual: None,
            assert_expected: None,
            standard_output: None,
            standard_error: None,
            traits: RenderedTraits(&[]),
            suite: non_empty(test.suite),
            report_class: None,
            report_name: None,
            program: None,
            framework: None,
            output: None,
            worker: None,
            reproduce: None,
            signal: None,
            exit_code: None,
            isolated_rerun: None,
            cpu_ms: None,
            peak_memory_kib: None,
            leaked: Vec::new(),
            parts: Vec::new(),
            parts_left_out: None,
            failures: Vec::new(),
            iterations: None,
            attachments: RenderedAttachments(Vec::new()),
            attempt: None,
            attempts: Vec::new(),
        }
    }
}

/// Files of a result as numbered members `attachments.N.*`.
struct RenderedAttachments(Vec<DiagnosticsFile>);

impl Serialize for RenderedAttachments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (number, file) in self.0.iter().enumerate() {
            let path = file.path.to_text();
            let name = path.rsplit('/').next().unwrap_or_default();
            map.serialize_entry(&format!("attachments.{number}.uri"), &file_uri(&file.path))?;
            map.serialize_entry(&format!("attachments.{number}.display-name"), name)?;
            map.serialize_entry(&format!("attachments.{number}.description"), &file.description)?;
        }
        map.end()
    }
}

/// Traits as a list of objects with one member each.
struct RenderedTraits<'a>(&'a [TraitPair]);

impl RenderedTraits<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for RenderedTraits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|pair| super::node::RenderedTrait(&pair.name, &pair.value)))
    }
}

/// Milliseconds since 1970, written in ISO 8601.
struct IsoTime(u64);

impl Serialize for IsoTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        utc_time::with_iso8601(self.0, |text| serializer.serialize_str(text))
    }
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
