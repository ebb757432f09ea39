//! JUnit XML report, in the format that cargo-nextest writes and CI servers read, with one `testsuite` per
//! suite. `classname` and `name` are the same as in the framework's own reports or, if it has none, the suite
//! and the test's full name. Includes the output of tests that did not pass at their first attempt. Only one
//! test is in memory at a time.

use std::{
    collections::HashMap,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use heeler_core::{
    Outcome, RuntimeDeath,
    describe::{RUNNING_LEAK, process_text},
};
use heeler_protocol::mtp::{FailureInfo, LeakedProcessInfo, RunLeak};

use super::{
    FailureDetail, ReportContent, ReportError, ReportFormat, RunSummary, TestReport,
    junit_parts::{rerun_count, write_reruns, write_steps},
    report_paths::{ReportAttachment, attachments, relative_to},
    sanitise::{headline, xml_text},
    xml::{ElementStart, XmlWriter},
};

/// Suite name of tests without a suite.
const NO_SUITE: &str = "tests";

/// The format `junit`.
pub(super) static FORMAT: ReportFormat =
    ReportFormat { name: "junit", title: "JUnit", default_file: "junit.xml", write: write_report };

/// The format `junit-subtests`: each test's case is followed by a case for each of its steps.
pub(super) static FORMAT_WITH_SUBTESTS: ReportFormat = ReportFormat {
    name: "junit-subtests",
    title: "JUnit with subtests",
    default_file: "junit-subtests.xml",
    write: write_report_with_subtests,
};

/// Whether each step of a test gets its own case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepCases {
    None,
    All,
}

/// Kind of element that represents a test's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaseKind {
    Success,
    Skipped,
    Failure,
    Error,
}

/// Numbers of cases in the attributes of a suite and of the document.
#[derive(Debug, Clone, Copy, Default)]
struct CaseCounts {
    tests: usize,
    skipped: usize,
    failures: usize,
    errors: usize,
    time: Duration,
}

impl CaseCounts {
    fn of<'r>(records: impl IntoIterator<Item = &'r TestReport>, steps: StepCases) -> Self {
        let mut counts = Self::default();
        for record in records {
            if steps == StepCases::All {
                let steps = record.steps;
                counts.tests += steps.listed();
                counts.skipped += steps.skipped as usize;
                counts.failures += steps.failed as usize;
                counts.errors += steps.unfinished as usize;
            }
            counts.tests += 1;
            counts.time += record.duration.unwrap_or_default();
            match case_kind(record.outcome) {
                CaseKind::Success => {}
                CaseKind::Skipped => counts.skipped += 1,
                CaseKind::Failure => counts.failures += 1,
                CaseKind::Error => counts.errors += 1,
            }
        }
        counts
    }
}

/// Cases of one suite, in order.
struct CaseSuite<'r> {
    name: &'r str,
    records: Vec<&'r TestReport>,
}

fn write_report(content: &ReportContent<'_>, writer: &mut dyn Write) -> Result<(), ReportError> {
    write_document(content, writer, StepCases::None)
}

fn write_report_with_subtests(
    content: &ReportContent<'_>,
    writer: &mut dyn Write,
) -> Result<(), ReportError> {
    write_document(content, writer, StepCases::All)
}

fn write_document(
    content: &ReportContent<'_>,
    writer: &mut dyn Write,
    steps: StepCases,
) -> Result<(), ReportError> {
    // Count all cases, because the attributes precede the cases.
    let ReportContent { summary, info, .. } = content;
    let suites = case_suites(summary);
    let all = CaseCounts::of(suites.iter().flat_map(|suite| &suite.records).copied(), steps);
    let mut xml = XmlWriter::begin(writer)?;
    let mut root = ElementStart::new("testsuites")
        .attribute("name", &xml_text(info.name))
        .attribute("tests", &all.tests.to_string())
        .attribute("skipped", &all.skipped.to_string())
        .attribute("failures", &all.failures.to_string())
        .attribute("errors", &all.errors.to_string());
    // A client may choose a run id that is not a UUID.
    if let Ok(run) = uuid::Uuid::try_parse(info.run) {
        root = root.attribute("uuid", &run.hyphenated().to_string());
    }
    if let Some(start) = timestamp(info.start_utc) {
        root = root.attribute("timestamp", &start);
    }
    xml.open(root.attribute("time", &seconds(info.duration)))?;
    for suite in &suites {
        write_suite(&mut xml, content, suite, steps)?;
    }
    xml.close("testsuites")?;
    Ok(xml.end()?)
}

/// Groups the tests by suite, in the order of each suite's first test.
fn case_suites(summary: &RunSummary) -> Vec<CaseSuite<'_>> {
    let mut suites: Vec<CaseSuite<'_>> = Vec::new();
    let mut place: HashMap<&str, usize> = HashMap::new();
    for record in summary.records().iter().chain(summary.failed_groups()) {
        let name = suite_name(record);
        let index = *place.entry(name).or_insert_with(|| {
            suites.push(CaseSuite { name, records: Vec::new() });
            suites.len() - 1
        });
        suites[index].records.push(record);
    }
    suites
}

fn write_suite(
    xml: &mut XmlWriter<'_>,
    content: &ReportContent<'_>,
    suite: &CaseSuite<'_>,
    steps: StepCases,
) -> io::Result<()> {
    let counts = CaseCounts::of(suite.records.iter().copied(), steps);
    let head = ElementStart::new("testsuite")
        .attribute("name", &xml_text(suite.name))
        .attribute("tests", &counts.tests.to_string())
        .attribute("skipped", &counts.skipped.to_string())
        .attribute("errors", &counts.errors.to_string())
        .attribute("failures", &counts.failures.to_string())
        .attribute("time", &seconds(counts.time));
    xml.open(head)?;
    for record in &suite.records {
        let record = content.with_whole_detail(record);
        write_case(xml, &record, content.info.root)?;
        if steps == StepCases::All {
            write_steps(xml, &record)?;
        }
    }
    let leaks = ambiguous_leaks(suite.name, content.summary.ambiguous_leaks());
    if !leaks.is_empty() {
        xml.text_element("system-err", &xml_text(&leaks))?;
    }
    xml.close("testsuite")
}

fn suite_name(record: &TestReport) -> &str {
    match &record.suite {
        Some(suite) => suite,
        None => NO_SUITE,
    }
}

fn write_case(xml: &mut XmlWriter<'_>, record: &TestReport, root: &Path) -> io::Result<()> {
    let head = case_head(record, root);
    let properties = properties(record);
    let detail = record.detail.as_deref();
    let stdout = detail.map(|detail| with_files(detail, root)).unwrap_or_default();
    let stderr = detail.map(with_leaks).unwrap_or_default();
    let kind = case_kind(record.outcome);
    let reruns = detail.map(|detail| rerun_count(detail, record.outcome)).unwrap_or_default();
    let is_childless = properties.is_empty()
        && stdout.is_empty()
        && stderr.is_empty()
        && kind == CaseKind::Success
        && reruns == 0;
    if is_childless {
        return xml.empty(head);
    }
    xml.open(head)?;
    if !properties.is_empty() {
        xml.open(ElementStart::new("properties"))?;
        for (name, value) in properties {
            xml.empty(ElementStart::new("property").attribute("name", name).attribute("value", &value))?;
        }
        xml.close("properties")?;
    }
    write_status(xml, record)?;
    if let Some(detail) = detail.filter(|_| kind != CaseKind::Skipped) {
        write_reruns(xml, detail, kind, reruns)?;
    }
    for (tag, text) in [("system-out", stdout), ("system-err", stderr)] {
        if !text.is_empty() {
            xml.text_element(tag, &xml_text(&text))?;
        }
    }
    xml.close("testcase")
}

/// Returns the class and name of a test's case.
pub(super) fn case_names(record: &TestReport) -> (&str, &str) {
    match &record.report_name {
        Some(reported) => (&reported.class, &reported.name),
        None => (suite_name(record), record.name()),
    }
}

fn case_head(record: &TestReport, root: &Path) -> ElementStart {
    let (class, name) = case_names(record);
    let mut head = ElementStart::new("testcase")
        .attribute("name", &xml_text(name))
        .attribute("classname", &xml_text(class));
    if let Some(start) = record.start_utc.as_deref().and_then(timestamp) {
        head = head.attribute("timestamp", &start);
    }
    if let Some(took) = record.duration {
        head = head.attribute("time", &seconds(took));
    }
    if let Some(place) = record.place() {
        head = head.attribute("file", &xml_text(relative_to(&place.file, root)));
        if let Some(line) = place.line {
            head = head.attribute("line", &line.to_string());
        }
    }
    head
}

/// Writes the status element, unless the test succeeded.
fn write_status(xml: &mut XmlWriter<'_>, record: &TestReport) -> io::Result<()> {
    let tag = match case_kind(record.outcome) {
        CaseKind::Success => return Ok(()),
        CaseKind::Skipped => "skipped",
        CaseKind::Failure => "failure",
        CaseKind::Error => "error",
    };
    let mut status = ElementStart::new(tag);
    if let Some(message) = record.detail_text(|detail| detail.message.as_ref()) {
        status = status.attribute("message", &xml_text(&headline(message)));
    }
    if let Some(kind) = type_attribute(record) {
        status = status.attribute("type", &kind);
    }
    match description(record) {
        Some(description) => xml.text_in(status, &xml_text(&description)),
        None => xml.empty(status),
    }
}

fn case_kind(outcome: Outcome) -> CaseKind {
    match outcome {
        Outcome::Passed | Outcome::Flaky => CaseKind::Success,
        Outcome::Skipped => CaseKind::Skipped,
        Outcome::Failed => CaseKind::Failure,
        Outcome::TimedOut
        | Outcome::Idle
        | Outcome::Crashed
        | Outcome::ExitedEarly
        | Outcome::OutOfMemory
        | Outcome::Lost
        | Outcome::Interrupted
        | Outcome::Cancelled
        | Outcome::NotRun(_) => CaseKind::Error,
    }
}

/// Returns a duration with three decimal places, as the format requires.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64())
}

fn timestamp(utc: &str) -> Option<String> {
    let at: jiff::Timestamp = utc.parse().ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%S%.3f+00:00").to_string())
}

/// Returns the output followed by the attached files, in the notation that CI systems collect.
fn with_files(detail: &FailureDetail, root: &Path) -> String {
    let mut text = detail.stdout.clone().unwrap_or_default();
    for ReportAttachment { path, .. } in attachments(detail, root) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[[ATTACHMENT|{path}]]\n"));
    }
    text
}

/// Returns the error output followed by the leaked processes, unless the output already names them.
fn with_leaks(detail: &FailureDetail) -> String {
    let mut text = detail.stderr.clone().unwrap_or_default();
    if text.contains("[heeler: the test leaked") {
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
    format!("[heeler: {who} leaked a process, which {fate}: {}]\n", leaked_process(process))
}

/// Returns a leaked process's command line, with its id, age and memory.
fn leaked_process(process: &LeakedProcessInfo) -> String {
    let LeakedProcessInfo { pid, command, .. } = process;
    format!("{command} ({})", process_text(*pid, command, process.facts().as_ref()))
}

fn suite_of(leak: &RunLeak) -> &str {
    if leak.suite.is_empty() { NO_SUITE } else { &leak.suite }
}

fn properties(record: &TestReport) -> Vec<(&'static str, String)> {
    let numbers = [
        ("heeler.cpu-ms", record.cpu_ms.map(|cpu| cpu.to_string())),
        ("heeler.peak-memory-kib", record.peak_kib.map(|peak| peak.to_string())),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, text)| Some((name, text?)));
    numbers.chain(record.detail.as_deref().map(detail_properties).unwrap_or_default()).collect()
}

fn detail_properties(detail: &FailureDetail) -> Vec<(&'static str, String)> {
    let texts = [
        ("heeler.reproduce", detail.reproduce.clone()),
        ("heeler.isolated-rerun", detail.isolated_rerun.clone()),
        ("heeler.signal", detail.signal.clone()),
        ("heeler.exit-code", detail.exit_code.map(|code| code.to_string())),
        ("heeler.worker", detail.worker.map(|worker| worker.to_string())),
    ];
    let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let left = detail.leaked.iter().map(|one| ("heeler.leaked", leaked_process(one)));
    texts.chain(left).map(|(name, text)| (name, xml_text(&text))).collect()
}

fn type_attribute(record: &TestReport) -> Option<String> {
    let detail = record.detail.as_deref()?;
    let exit_code = detail.exit_code.and_then(|code| i32::try_from(code).ok());
    failure_type(record.outcome, detail.signal.as_deref(), detail.runtime, exit_code)
}

/// Returns the attribute `type` of an outcome; `None` if the outcome is not a failure. For a crash, the name
/// of the signal or the runtime's word is the most specific type.
pub(super) fn failure_type(
    outcome: Outcome,
    signal: Option<&str>,
    runtime: Option<RuntimeDeath>,
    exit_code: Option<i32>,
) -> Option<String> {
    let cause = signal.map(xml_text).or(runtime.map(|runtime| runtime.label().to_owned()));
    Some(match (outcome, cause, exit_code) {
        (Outcome::Passed | Outcome::Flaky | Outcome::Skipped, _, _) => return None,
        (Outcome::Crashed, Some(cause), _) => cause,
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

/// Returns the compared values of a failure, with its place.
fn failed_comparison(failure: &FailureInfo) -> Option<String> {
    let (expected, actual) = failure.expected.as_deref().zip(failure.actual.as_deref())?;
    let line = failure.line.map(|line| format!(":{line}")).unwrap_or_default();
    let place = failure.file.as_deref().map(|file| format!("{file}{line}: ")).unwrap_or_default();
    Some(format!("{place}expected: {expected}\n  actual: {actual}"))
}

/// Returns the text about leaked processes that can't be attributed to a single test of the suite.
fn ambiguous_leaks(suite: &str, leaks: &[RunLeak]) -> String {
    let mut text = String::new();
    for leak in leaks.iter().filter(|leak| suite_of(leak) == suite) {
        let who = match leak.tests.as_slice() {
            [] => "the program (outside its tests)".to_owned(),
            tests => format!("one of these {} tests ({})", tests.len(), tests.join(", ")),
        };
        leak.processes.iter().for_each(|process| text.push_str(&leaked_process_line(&who, process)));
    }
    text
}

#[cfg(test)]
mod tests {
    use heeler_core::{
        Attempt, DiagnosticsFile, ExitReason, Failure, IsolatedRerun, NotRunReason, TestResult,
    };

    use super::*;
    use crate::{
        ReportRunInfo, UnavailableDetails,
        sample_reports::{
            crashed, failed, failure, flaky, located_report, reason_report, report, result_report, unequal,
        },
    };

    fn xml(reports: &[TestReport]) -> String {
        let mut summary = RunSummary::new(None);
        summary.add_reports(reports.iter().cloned());
        let head = ReportRunInfo {
            name: "default",
            run: "7f0c2a11-2f4e-4c60-9d0e-5c3b1a2d4e6f",
            start_utc: "2026-03-01T02:00:00Z",
            duration: Duration::from_secs(7),
            root: Path::new("/w"),
        };
        let mut out = Vec::new();
        let details = &UnavailableDetails { reason: "none are needed".to_owned() };
        (FORMAT.write)(&ReportContent { summary: &summary, info: head, details }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_of_several_failures_have_their_places() {
        let worse = failure("worse", 9);
        let worse = Failure { message: worse.message, file: worse.file, line: worse.line, ..unequal() };
        let report = xml(&[result_report("fails", failed(vec![failure("bad", 4), worse]))]);
        let text = ">bad\nx.cc:9: worse\nx.cc:9: expected: 2\n  actual: 1\nx.cc:4\nx.cc:9</failure>";
        assert!(report.contains(text), "{report}");
    }

    #[test]
    fn each_outcome_has_its_element() {
        let fails = TestResult {
            stdout: "out \u{1b}[31mred\u{1b}[0m\u{0}\tx".into(),
            reproduce: Some("./core --exact fails".into()),
            ..TestResult::with_reason(Outcome::Failed, "1 < 2 & \"so\"\n  left: 3")
        };
        let crashes = TestResult { isolated_rerun: Some(IsolatedRerun::Crashes), ..crashed() };
        let leaves = TestResult {
            exit_reason: Some(ExitReason { code: Some(0), ..ExitReason::default() }),
            ..TestResult::new(Outcome::ExitedEarly)
        };
        let passes = TestResult { started_ms: Some(1_772_330_401_500), ..TestResult::new(Outcome::Passed) };
        let changes = [
            located_report("adds", Some(("/w/src/a.rs", 3)), passes),
            located_report("fails", Some(("/w/src/a.rs", 7)), fails),
            result_report("crashes", crashes),
            result_report("leaves", leaves),
            report("hangs", Outcome::TimedOut),
            reason_report("ignored", Outcome::Skipped, "needs net"),
            reason_report("waits", Outcome::NotRun(NotRunReason::Unrunnable), "gone"),
            result_report("flaky", flaky()),
        ];
        insta::assert_snapshot!(xml(&changes), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites name="default" tests="8" skipped="1" failures="1" errors="4" uuid="7f0c2a11-2f4e-4c60-9d0e-5c3b1a2d4e6f" timestamp="2026-03-01T02:00:00.000+00:00" time="7.000">
            <testsuite name="core" tests="8" skipped="1" errors="4" failures="1" time="12.000">
                <testcase name="adds" classname="core" timestamp="2026-03-01T02:00:01.500+00:00" time="1.500" file="src/a.rs" line="3"/>
                <testcase name="fails" classname="core" time="1.500" file="src/a.rs">
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
                    <system-out>attempt 1 (crashed): died
        </system-out>
                </testcase>
            </testsuite>
        </testsuites>
        "#);
    }

    #[test]
    fn first_attached_file_is_readable_and_below_the_root() {
        let file = |path: &str| DiagnosticsFile { path: path.into(), description: "of a crash".into() };
        let result = TestResult {
            attached: vec![file("/w/runs/a.dmp"), file("/w/runs/a.stacks.txt"), file("/tmp/core")],
            ..crashed()
        };
        let text = xml(&[result_report("crashes", result)]);
        let expected =
            "[[ATTACHMENT|runs/a.stacks.txt]]\n[[ATTACHMENT|runs/a.dmp]]\n[[ATTACHMENT|/tmp/core]]\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn panic_has_one_type_as_result_and_as_earlier_attempt() {
        let exit_reason =
            Some(ExitReason { code: Some(2), runtime: Some(RuntimeDeath::Panic), ..ExitReason::default() });
        let attempt =
            Attempt { exit_reason: exit_reason.clone(), ..Attempt::new(Outcome::Crashed, "panic: a") };
        let again = TestResult {
            exit_reason,
            attempts: vec![attempt],
            ..TestResult::with_reason(Outcome::Crashed, "panic: a")
        };
        let text = xml(&[result_report("again", again)]);
        assert_eq!(text.matches("type=\"panic\"").count(), 2, "{text}");
    }

    #[test]
    fn flaky_test_lists_attempts_without_details() {
        let mut flaky = report("flaky", Outcome::Flaky);
        flaky.detail.as_mut().unwrap().attempt = Some(3);
        let text = xml(&[flaky]);
        assert_eq!(text.matches("<flakyFailure").count(), 2, "{text}");
    }

    #[test]
    fn suite_death_outside_tests_is_its_own_case() {
        let suite = TestReport {
            uid: "core".into(),
            is_group: true,
            ..reason_report("", Outcome::Failed, "died while listing")
        };
        let text = xml(&[suite]);
        assert!(text.contains(r#"<testcase name="core" classname="core""#), "{text}");
    }
}
