//! The JUnit XML report, in the format that cargo-nextest writes and CI servers read: one `testsuite` for
//! each suite, `classname` is the suite, `name` the test's full name. Output is included for tests that did
//! not pass at the first attempt.

use std::{collections::HashMap, time::Duration};

use heeler_core::{
    Attempt, Outcome,
    describe::{RUNNING_LEAK, process_text},
};
use heeler_protocol::mtp::{FailureInfo, LeakedProcessInfo, RunLeak};
use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestRerun, TestSuite};

use super::{
    FailureDetail, ReportFormat, ReportRunInfo, RunSummary, TestReport,
    sanitise::{headline, xml_text},
};

/// The suite name of tests that have none.
const NO_SUITE: &str = "tests";

/// The format `junit`.
pub(super) static FORMAT: ReportFormat = ReportFormat {
    name: "junit",
    title: "JUnit",
    default_file: "junit.xml",
    write: |summary, info, writer| Ok(report(summary, info).serialize(writer)?),
};

fn report(summary: &RunSummary, head: &ReportRunInfo<'_>) -> Report {
    let mut report = Report::new(xml_text(head.name));
    report.timestamp = head.start_utc.parse().ok();
    report.set_time(head.duration);
    if let Ok(run) = head.run.parse() {
        report.set_uuid(run);
    }
    let mut suites: Vec<TestSuite> = Vec::new();
    let mut place: HashMap<&str, usize> = HashMap::new();
    for record in summary.records().iter().chain(summary.failed_groups()) {
        let name = suite_name(record);
        let index = *place.entry(name).or_insert_with(|| {
            suites.push(TestSuite::new(xml_text(name)));
            suites.len() - 1
        });
        suites[index].add_test_case(test_case(record));
    }
    for suite in &mut suites {
        suite.set_time(suite.test_cases.iter().filter_map(|case| case.time).sum());
    }
    write_ambiguous_leaks(&mut suites, summary.ambiguous_leaks());
    report.add_test_suites(suites);
    report
}

fn suite_name(record: &TestReport) -> &str {
    match &record.suite {
        Some(suite) => suite,
        None => NO_SUITE,
    }
}

fn test_case(record: &TestReport) -> TestCase {
    let mut case = TestCase::new(xml_text(record.name()), status(record));
    case.set_classname(xml_text(suite_name(record)));
    case.time = record.duration;
    case.timestamp = record.start_utc.as_deref().and_then(|start| start.parse().ok());
    let numbers = [
        ("heeler.cpu-ms", record.cpu_ms.map(|cpu| cpu.to_string())),
        ("heeler.peak-memory-kib", record.peak_kib.map(|peak| peak.to_string())),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, text)| Some(Property::new(name, text?)));
    case.add_properties(numbers);
    if let Some(detail) = record.detail.as_deref() {
        let stdout = with_files(detail);
        if !stdout.is_empty() {
            case.set_system_out(xml_text(&stdout));
        }
        let stderr = with_leaks(detail);
        if !stderr.is_empty() {
            case.set_system_err(xml_text(&stderr));
        }
        case.add_properties(properties(detail));
        add_location(&mut case, detail);
    }
    case
}

/// Returns the output followed by the attached files, in the notation that CI systems collect.
fn with_files(detail: &FailureDetail) -> String {
    let mut text = detail.stdout.clone().unwrap_or_default();
    for (path, _) in &detail.files {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[[ATTACHMENT|{path}]]\n"));
    }
    text
}

/// Returns the error output followed by the leaked processes, unless it names them already.
fn with_leaks(detail: &FailureDetail) -> String {
    let mut text = detail.stderr.clone().unwrap_or_default();
    if text.contains("[heeler: the test left") {
        return text;
    }
    for process in &detail.leaked {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&leaked_process_line("the test", process));
    }
    text
}

fn leaked_process_line(who: &str, process: &LeakedProcessInfo) -> String {
    let fate = if process.is_running { RUNNING_LEAK } else { "was killed" };
    format!("[heeler: {who} left a process behind, which {fate}: {}]\n", leaked_process(process))
}

/// Returns the command line of a leaked process, with its id, age and memory.
fn leaked_process(process: &LeakedProcessInfo) -> String {
    let LeakedProcessInfo { pid, command, .. } = process;
    format!("{command} ({})", process_text(*pid, command, process.facts().as_ref()))
}

/// Writes leaked processes that one of several tests, or no test, left behind into the output of their suite.
fn write_ambiguous_leaks(suites: &mut [TestSuite], leaks: &[RunLeak]) {
    for suite in suites {
        let mut text = String::new();
        for leak in leaks.iter().filter(|leak| xml_text(suite_of(leak)) == suite.name.as_str()) {
            let who = match leak.tests.as_slice() {
                [] => "the program, outside its tests,".to_owned(),
                tests => format!("one of these {} tests ({})", tests.len(), tests.join(", ")),
            };
            leak.processes.iter().for_each(|process| text.push_str(&leaked_process_line(&who, process)));
        }
        if !text.is_empty() {
            suite.set_system_err(xml_text(&text));
        }
    }
}

fn suite_of(leak: &RunLeak) -> &str {
    if leak.suite.is_empty() { NO_SUITE } else { &leak.suite }
}

fn add_location(case: &mut TestCase, detail: &FailureDetail) {
    if let Some(file) = &detail.file {
        case.extra.insert("file".into(), xml_text(file).into());
        if let Some(line) = detail.line {
            case.extra.insert("line".into(), line.to_string().into());
        }
    }
}

fn properties(detail: &FailureDetail) -> Vec<Property> {
    let texts = [
        ("heeler.reproduce", detail.reproduce.clone()),
        ("heeler.isolated-rerun", detail.isolated_rerun.clone()),
        ("heeler.signal", detail.signal.clone()),
        ("heeler.exit-code", detail.exit_code.map(|code| code.to_string())),
        ("heeler.worker", detail.worker.map(|worker| worker.to_string())),
    ];
    let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let left = detail.leaked.iter().map(|one| ("heeler.leaked", leaked_process(one)));
    texts.chain(left).map(|(name, text)| Property::new(name, xml_text(&text))).collect()
}

fn status(record: &TestReport) -> TestCaseStatus {
    let mut status = match record.outcome {
        Outcome::Passed | Outcome::Flaky => TestCaseStatus::success(),
        Outcome::Skipped => TestCaseStatus::skipped(),
        Outcome::Failed => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Outcome::TimedOut
        | Outcome::Idle
        | Outcome::Crashed
        | Outcome::ExitedEarly
        | Outcome::OutOfMemory
        | Outcome::Lost
        | Outcome::Interrupted
        | Outcome::Cancelled
        | Outcome::NotRun(_) => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    if let Some(kind) = type_attribute(record) {
        status.set_type(kind);
    }
    if let Some(message) = record.detail_text(|detail| detail.message.as_ref()) {
        status.set_message(xml_text(&headline(message)));
    }
    if let Some(description) = description(record) {
        status.set_description(xml_text(&description));
    }
    if let Some(detail) = record.detail.as_deref() {
        status.add_reruns(reruns(detail, record.outcome));
    }
    status
}

fn type_attribute(record: &TestReport) -> Option<String> {
    let detail = record.detail.as_deref()?;
    let exit_code = detail.exit_code.and_then(|code| i32::try_from(code).ok());
    failure_type(record.outcome, detail.signal.as_deref(), exit_code)
}

/// Returns the attribute `type` of an outcome: for a crash the name of the signal, because that is the most
/// specific; `None` for an outcome that is no failure.
fn failure_type(outcome: Outcome, signal: Option<&str>, exit_code: Option<i32>) -> Option<String> {
    Some(match (outcome, signal, exit_code) {
        (Outcome::Passed | Outcome::Flaky | Outcome::Skipped, _, _) => return None,
        (Outcome::Crashed, Some(signal), _) => xml_text(signal),
        (Outcome::Crashed | Outcome::ExitedEarly, _, Some(code)) => format!("exit code {code}"),
        (Outcome::Crashed | Outcome::ExitedEarly, _, None) => "crash".to_owned(),
        (Outcome::OutOfMemory, _, _) => "out-of-memory".to_owned(),
        (Outcome::Failed, _, _) => "failure".to_owned(),
        (Outcome::TimedOut, _, _) => "timeout".to_owned(),
        (Outcome::Idle, _, _) => "idle".to_owned(),
        (Outcome::Lost, _, _) => "lost".to_owned(),
        (Outcome::Interrupted, _, _) => "interrupted".to_owned(),
        (Outcome::Cancelled, _, _) => "cancelled".to_owned(),
        (Outcome::NotRun(_), _, _) => "not-run".to_owned(),
    })
}

fn description(record: &TestReport) -> Option<String> {
    let detail = record.detail.as_deref()?;
    let mut parts: Vec<String> = Vec::new();
    parts.extend(detail.message.clone());
    if let (Some(expected), Some(actual), []) = (&detail.expected, &detail.actual, &detail.failures[..]) {
        parts.push(format!("expected: {expected}\n  actual: {actual}"));
    }
    parts.extend(detail.failures.iter().filter_map(failed_comparison));
    parts.extend(detail.stacktrace.clone());
    (!parts.is_empty()).then(|| parts.join("\n"))
}

/// Returns the values of one of several failures, with its place.
fn failed_comparison(failure: &FailureInfo) -> Option<String> {
    let (expected, actual) = failure.expected.as_deref().zip(failure.actual.as_deref())?;
    let line = failure.line.map(|line| format!(":{line}")).unwrap_or_default();
    let place = failure.file.as_deref().map(|file| format!("{file}{line}: ")).unwrap_or_default();
    Some(format!("{place}expected: {expected}\n  actual: {actual}"))
}

/// Returns the attempts before the deciding one. Where only their number is known, they are written without
/// text, because CI servers count them.
fn reruns(detail: &FailureDetail, outcome: Outcome) -> Vec<TestRerun> {
    if !detail.attempts.is_empty() {
        return detail.attempts.iter().map(rerun).collect();
    }
    let before = match outcome {
        Outcome::Flaky => detail.attempt.unwrap_or(2).saturating_sub(1).clamp(1, 100),
        _ => detail.attempt.unwrap_or(1).saturating_sub(1).min(100),
    };
    (0..before).map(|_| TestRerun::new(NonSuccessKind::Failure)).collect()
}

fn rerun(attempt: &Attempt) -> TestRerun {
    let is_failure = attempt.outcome == Outcome::Failed;
    let mut rerun = TestRerun::new(if is_failure { NonSuccessKind::Failure } else { NonSuccessKind::Error });
    rerun.set_time(Duration::from_micros(attempt.duration_us));
    rerun.set_message(xml_text(&headline(&attempt.message)));
    rerun.set_description(xml_text(&attempt.message));
    let exit = attempt.exit_reason.as_ref();
    let (signal, code) = (exit.and_then(|exit| exit.signal.as_deref()), exit.and_then(|exit| exit.code));
    if let Some(kind) = failure_type(attempt.outcome, signal, code) {
        rerun.set_type(kind);
    }
    if !attempt.stdout.is_empty() {
        rerun.set_system_out(xml_text(&attempt.stdout));
    }
    if !attempt.stderr.is_empty() {
        rerun.set_system_err(xml_text(&attempt.stderr));
    }
    rerun
}

#[cfg(test)]
mod tests {
    use heeler_protocol::mtp::{ExecutionState, NodeChange, TestNode, key};
    use serde_json::json;

    use super::*;

    fn change(name: &str, state: ExecutionState, more: serde_json::Value) -> NodeChange {
        let mut node = json!({"uid": format!("core::{name}"), "display-name": name, "execution-state": state.as_str(),
            "time.duration-ms": 1500.0, (key::SUITE): "core"});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        NodeChange { parent: None, node: serde_json::from_value::<TestNode>(node).unwrap() }
    }

    fn xml(changes: &[NodeChange]) -> String {
        let mut summary = RunSummary::new(None);
        summary.apply(changes);
        let head = ReportRunInfo {
            name: "default",
            run: "7f0c2a11-2f4e-4c60-9d0e-5c3b1a2d4e6f",
            start_utc: "2026-03-01T02:00:00Z",
            duration: Duration::from_secs(7),
        };
        let mut out = Vec::new();
        (FORMAT.write)(&summary, &head, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_of_several_failures_have_their_places() {
        let failures =
            json!([{"file": "x.cc", "line": 4}, {"file": "x.cc", "line": 9, "expected": "2", "actual": "1"}]);
        let more = json!({"error.message": "bad\nx.cc:9: worse", "assert.expected": "2", "assert.actual": "1",
            "error.stacktrace": "x.cc:4\nx.cc:9", (key::FAILURES): failures});
        let report = xml(&[change("fails", ExecutionState::Failed, more)]);
        let text = ">bad\nx.cc:9: worse\nx.cc:9: expected: 2\n  actual: 1\nx.cc:4\nx.cc:9</failure>";
        assert!(report.contains(text), "{report}");
    }

    #[test]
    fn each_outcome_has_its_element() {
        let changes = [
            change("adds", ExecutionState::Passed, json!({"time.start-utc": "2026-03-01T02:00:01.5Z"})),
            change(
                "fails",
                ExecutionState::Failed,
                json!({"error.message": "1 < 2 & \"so\"\n  left: 3", "location.file": "src/a.rs",
                "location.line-start": 7, "standardOutput": "out \u{1b}[31mred\u{1b}[0m\u{0}\tx", "heeler.reproduce": "./core --exact fails"}),
            ),
            change(
                "crashes",
                ExecutionState::Error,
                json!({"heeler.signal": "SIGSEGV", "error.message": "killed by SIGSEGV",
                "error.stacktrace": "#0 main", "heeler.isolated-rerun": "crashes", "heeler.worker": 2}),
            ),
            change(
                "leaves",
                ExecutionState::Error,
                json!({"outcome-kind": "exited-early", "heeler.exit-code": 0}),
            ),
            change("hangs", ExecutionState::TimedOut, json!({})),
            change("ignored", ExecutionState::Skipped, json!({"error.message": "needs net"})),
            change(
                "waits",
                ExecutionState::Error,
                json!({"outcome-kind": "not-run", "error.message": "gone"}),
            ),
            change(
                "flaky",
                ExecutionState::Passed,
                json!({"outcome-kind": "passed-with-retries", "retry.attempt": 2,
                "heeler.attempts": [{"execution-state": "error", "outcome-kind": "crashed", "message": "died", "signal": "SIGABRT",
                "standard-output": "o", "duration-ms": 2.0}]}),
            ),
        ];
        insta::assert_snapshot!(xml(&changes), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites name="default" tests="8" skipped="1" failures="1" errors="4" uuid="7f0c2a11-2f4e-4c60-9d0e-5c3b1a2d4e6f" timestamp="2026-03-01T02:00:00.000+00:00" time="7.000">
            <testsuite name="core" tests="8" skipped="1" errors="4" failures="1" time="12.000">
                <testcase name="adds" classname="core" timestamp="2026-03-01T02:00:01.500+00:00" time="1.500"/>
                <testcase name="fails" classname="core" time="1.500" file="src/a.rs" line="7">
                    <properties>
                        <property name="heeler.reproduce" value="./core --exact fails"/>
                    </properties>
                    <failure message="1 &lt; 2 &amp; &quot;so&quot; · left: 3" type="failure">1 &lt; 2 &amp; &quot;so&quot;
          left: 3</failure>
                    <system-out>out red    x</system-out>
                </testcase>
                <testcase name="crashes" classname="core" time="1.500">
                    <properties>
                        <property name="heeler.isolated-rerun" value="crashes"/>
                        <property name="heeler.signal" value="SIGSEGV"/>
                        <property name="heeler.worker" value="2"/>
                    </properties>
                    <error message="killed by SIGSEGV" type="SIGSEGV">killed by SIGSEGV
        #0 main</error>
                </testcase>
                <testcase name="leaves" classname="core" time="1.500">
                    <properties>
                        <property name="heeler.exit-code" value="0"/>
                    </properties>
                    <error type="exit code 0"/>
                </testcase>
                <testcase name="hangs" classname="core" time="1.500">
                    <error type="timeout"/>
                </testcase>
                <testcase name="ignored" classname="core" time="1.500">
                    <skipped message="needs net">needs net</skipped>
                </testcase>
                <testcase name="waits" classname="core" time="1.500">
                    <error message="gone" type="not-run">gone</error>
                </testcase>
                <testcase name="flaky" classname="core" time="1.500">
                    <flakyError time="0.002" message="died" type="SIGABRT">died
                        <system-out>o</system-out>
                    </flakyError>
                </testcase>
            </testsuite>
        </testsuites>
        "#);
    }

    #[test]
    fn flaky_test_lists_attempts_without_details() {
        let kinds = json!({"outcome-kind": "passed-with-retries", "retry.attempt": 3});
        let text = xml(&[change("flaky", ExecutionState::Passed, kinds)]);
        assert_eq!(text.matches("<flakyFailure").count(), 2, "{text}");
    }

    #[test]
    fn suite_death_outside_tests_is_its_own_case() {
        let mut suite = change("x", ExecutionState::Error, json!({"error.message": "died while listing"}));
        suite.node.uid = "core".into();
        let text = xml(&[suite]);
        assert!(text.contains(r#"<testcase name="core" classname="core""#), "{text}");
    }
}
