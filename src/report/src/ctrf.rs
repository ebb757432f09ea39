//! CTRF report (Common Test Report Format): JSON that several CI tools read. The schema allows custom members
//! only in `extra`.

use std::{io::Write, path::Path};

use heeler_core::{Attempt, Outcome, OutcomeCounts};
use heeler_protocol::mtp::{FailureInfo, LeakedProcessInfo, TestPartInfo};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};

use super::{
    FailureDetail, ReportContent, ReportError, ReportFormat, ReportRunInfo, RunSummary, TestReport,
    report_paths::{ReportAttachment, attachments, relative_to},
    test_steps::{StepCounts, StepEnd},
};

/// Version of the specification whose schema the reports follow.
const SPEC_VERSION: &str = "0.0.0";

/// The format `ctrf`.
pub(super) static FORMAT: ReportFormat =
    ReportFormat { name: "ctrf", title: "CTRF", default_file: "ctrf-report.json", write: write_report };

fn write_report(content: &ReportContent<'_>, writer: &mut dyn Write) -> Result<(), ReportError> {
    let ReportContent { summary, info, .. } = content;
    let head = json!({"name": "heeler", "version": env!("CARGO_PKG_VERSION")});
    write!(writer, r#"{{"reportFormat":"CTRF","specVersion":"{SPEC_VERSION}","generatedBy":"heeler","#)?;
    if !info.run.is_empty() {
        write!(writer, r#""runId":{},"#, json!(info.run))?;
    }
    let counts = run_counts(summary, info);
    write!(writer, r#""results":{{"tool":{head},"summary":{counts},"tests":["#)?;
    // Write one test at a time, so that the report of a large run is never in memory as a whole.
    let mut separator = "\n";
    for record in summary.records().iter().chain(summary.failed_groups()) {
        writer.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut *writer, &CtrfTest::of(&content.with_whole_detail(record), info.root))?;
        separator = ",\n";
    }
    let mut environment = Map::new();
    if !info.name.is_empty() {
        environment.insert("reportName".into(), info.name.into());
    }
    writeln!(writer, "\n],\"environment\":{}}}}}", Value::Object(environment))?;
    Ok(())
}

fn run_counts(summary: &RunSummary, info: &ReportRunInfo<'_>) -> Value {
    let counts = summary.counts();
    let groups = summary.failed_groups().count();
    let start = epoch_ms(info.start_utc).unwrap_or(0);
    let duration = whole_ms(info.duration);
    let by_status = |status| {
        let is_counted = |outcome: &Outcome| ctrf_status(*outcome) == status;
        OutcomeCounts::KINDS.into_iter().filter(is_counted).map(|one| counts.with_outcome(one)).sum::<usize>()
    };
    json!({
        "tests": counts.total() + groups,
        "passed": by_status("passed"),
        // A program that failed outside its tests counts as one failed entry.
        "failed": by_status("failed") + groups,
        "skipped": by_status("skipped"),
        "pending": by_status("pending"),
        "other": by_status("other"),
        "flaky": counts.with_outcome(Outcome::Flaky),
        "suites": summary.suite_count(),
        "start": start,
        "stop": start.saturating_add(duration),
        "duration": duration,
        "extra": own_counts(&counts, summary.steps()),
    })
}

/// Returns Heeler's own counts per outcome, which are finer than the format's statuses.
fn own_counts(counts: &OutcomeCounts, steps: StepCounts) -> Value {
    let numbers = OutcomeCounts::KINDS.into_iter().map(|outcome| (outcome, counts.with_outcome(outcome)));
    let numbers = numbers.map(|(outcome, number)| (raw_status(outcome), number.into()));
    let steps = (steps.total() > 0).then(|| ("steps".to_owned(), json!(steps.by_kind())));
    Value::Object(numbers.chain([("leaky".to_owned(), counts.leaky().into())]).chain(steps).collect())
}

/// Returns the format's status of an outcome. A test without a verdict is `other`.
fn ctrf_status(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed | Outcome::Flaky => "passed",
        Outcome::Skipped => "skipped",
        Outcome::Failed
        | Outcome::TimedOut
        | Outcome::Idle
        | Outcome::Crashed
        | Outcome::ExitedEarly
        | Outcome::OutOfMemory => "failed",
        Outcome::Lost | Outcome::Interrupted | Outcome::Cancelled | Outcome::NotRun(_) => "other",
    }
}

/// Returns Heeler's own outcome, for `rawStatus`.
fn raw_status(outcome: Outcome) -> String {
    outcome.label().replace(' ', "-")
}

/// Entry of one test.
struct CtrfTest<'a> {
    /// All members; the outputs are `null` here and written separately.
    members: Map<String, Value>,
    stdout: Option<&'a str>,
    stderr: Option<&'a str>,
}

/// An output as the format's array of lines. Serialised line by line, because an output may be a megabyte of
/// empty lines.
struct OutputLines<'a>(&'a str);

impl Serialize for OutputLines<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.lines())
    }
}

impl Serialize for CtrfTest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.members.len()))?;
        for (name, value) in &self.members {
            match (name.as_str(), self.stdout, self.stderr) {
                (STDOUT, Some(text), _) | (STDERR, _, Some(text)) => {
                    map.serialize_entry(name, &OutputLines(text))?;
                }
                (_, _, _) => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

impl<'a> CtrfTest<'a> {
    fn of(record: &'a TestReport, root: &Path) -> Self {
        let output = |pick: fn(&FailureDetail) -> Option<&String>| {
            let text = record.detail.as_deref().and_then(pick).map(String::as_str);
            text.filter(|text| !text.is_empty())
        };
        let (stdout, stderr) =
            (output(|detail| detail.stdout.as_ref()), output(|detail| detail.stderr.as_ref()));
        let mut members = members_without_outputs(record, root);
        for (name, text) in [(STDOUT, stdout), (STDERR, stderr)] {
            if text.is_some() {
                members.insert(name.to_owned(), Value::Null);
            }
        }
        Self { members, stdout, stderr }
    }
}

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";

fn members_without_outputs(record: &TestReport, root: &Path) -> Map<String, Value> {
    let mut test = Map::new();
    let mut put = |name: &str, value: Value| drop(test.insert(name.to_owned(), value));
    // First the members that the format requires. Its schema rejects an empty name.
    let name = [record.name(), record.uid.as_str(), "(no name)"].into_iter().find(|name| !name.is_empty());
    put("name", name.into());
    put("status", ctrf_status(record.outcome).into());
    put("rawStatus", raw_status(record.outcome).into());
    put("duration", record.duration.map_or(0, whole_ms).into());
    if !record.uid.is_empty() {
        put("testId", record.uid.as_str().into());
    }
    if let Some(suite) = record.suite.as_deref().filter(|suite| !suite.is_empty()) {
        put("suite", json!([suite]));
    }
    if let Some(start) = record.start_utc.as_deref().and_then(epoch_ms) {
        put("start", start.into());
        put("stop", start.saturating_add(record.duration.map_or(0, whole_ms)).into());
    }
    if record.outcome == Outcome::Flaky {
        put("flaky", true.into());
    }
    if let Some(place) = record.place() {
        put("filePath", relative_to(&place.file, root).into());
        if let Some(line) = place.line {
            put("line", line.into());
        }
    }
    // Data without a member in the format.
    let mut extra = Map::new();
    if let Some(cpu) = record.cpu_ms {
        extra.insert("cpuMs".into(), cpu.into());
    }
    if let Some(peak) = record.peak_kib {
        extra.insert("peakMemoryKiB".into(), peak.into());
    }
    if record.steps.left_out > 0 {
        extra.insert("stepsLeftOut".into(), record.steps.left_out.into());
    }
    if let Some(detail) = record.detail.as_deref() {
        put_detail(&mut test, &mut extra, detail, root);
        put_attempts(&mut test, record, detail);
    }
    if !extra.is_empty() {
        test.insert("extra".into(), extra.into());
    }
    test
}

fn put_detail(
    test: &mut Map<String, Value>,
    extra: &mut Map<String, Value>,
    detail: &FailureDetail,
    root: &Path,
) {
    let texts = [("message", &detail.message), ("trace", &detail.stacktrace)];
    for (name, text) in texts {
        if let Some(text) = text {
            test.insert(name.into(), text.as_str().into());
        }
    }
    if let Some(worker) = detail.worker {
        test.insert("threadId".into(), worker.to_string().into());
    }
    // Includes the files of earlier attempts.
    let files: Vec<_> = attachments(detail, root).iter().map(attachment).collect();
    if !files.is_empty() {
        test.insert("attachments".into(), files.into());
    }
    if !detail.parts.is_empty() {
        test.insert("steps".into(), detail.parts.iter().map(step).collect());
    }
    let own = [
        ("signal", &detail.signal),
        ("expected", &detail.expected),
        ("actual", &detail.actual),
        ("reproduce", &detail.reproduce),
        ("isolatedRerun", &detail.isolated_rerun),
    ];
    for (name, text) in own {
        if let Some(text) = text {
            extra.insert(name.into(), text.as_str().into());
        }
    }
    if let Some(code) = detail.exit_code {
        extra.insert("exitCode".into(), code.into());
    }
    if !detail.failures.is_empty() {
        extra.insert("failures".into(), detail.failures.iter().map(|one| failure(one, root)).collect());
    }
    if !detail.leaked.is_empty() {
        let leaked = detail.leaked.iter().map(leaked_process);
        extra.insert("leakedProcesses".into(), leaked.collect());
    }
}

fn step(part: &TestPartInfo) -> Value {
    let status = match StepEnd::of(part) {
        StepEnd::Passed => "passed",
        StepEnd::Failed => "failed",
        StepEnd::Skipped => "skipped",
        StepEnd::Unfinished => "other",
    };
    match &part.message {
        Some(message) => json!({"name": part.name, "status": status, "extra": {"message": message}}),
        None => json!({"name": part.name, "status": status}),
    }
}

fn failure(failure: &FailureInfo, root: &Path) -> Value {
    let texts = [
        ("message", failure.message.as_deref()),
        ("trace", failure.stacktrace.as_deref()),
        ("filePath", failure.file.as_deref().map(|file| relative_to(file, root))),
        ("expected", failure.expected.as_deref()),
        ("actual", failure.actual.as_deref()),
    ];
    let texts = texts.into_iter().filter_map(|(name, text)| Some((name, Value::from(text?))));
    let line = failure.line.map(|line| ("line", line.into()));
    Value::Object(texts.chain(line).map(|(name, value)| (name.to_owned(), value)).collect())
}

fn leaked_process(process: &LeakedProcessInfo) -> Value {
    let mut members = json!({"pid": process.pid, "command": process.command});
    if let Some(facts) = process.facts() {
        members["name"] = facts.name.into();
        members["ageSeconds"] = facts.age_s.into();
        members["memoryKiB"] = facts.memory_kib.into();
    }
    if process.is_running {
        members["isRunning"] = true.into();
    }
    members
}

fn put_attempts(test: &mut Map<String, Value>, record: &TestReport, detail: &FailureDetail) {
    if record.attempts() > 1 {
        test.insert("retries".into(), (record.attempts() - 1).into());
    }
    let attempts: Vec<_> = (1..).zip(&detail.attempts).map(|(number, one)| attempt(number, one)).collect();
    if !attempts.is_empty() {
        test.insert("retryAttempts".into(), attempts.into());
    }
}

fn attempt(number: u64, attempt: &Attempt) -> Value {
    let status = ctrf_status(attempt.outcome);
    let mut value = json!({"attempt": number, "status": status, "duration": attempt.duration_us / 1000});
    let mut put = |name: &str, member: Value| value[name] = member;
    if !attempt.message.is_empty() {
        put("message", attempt.message.as_str().into());
    }
    for (name, text) in [("stdout", &attempt.stdout), ("stderr", &attempt.stderr)] {
        if let Some(lines) = output_lines(text) {
            put(name, lines);
        }
    }
    if let Some(diagnostics) = &attempt.diagnostics
        && !diagnostics.stack.is_empty()
    {
        put("trace", diagnostics.stack.as_str().into());
    }
    if let Some(reason) = &attempt.exit_reason {
        put("extra", json!({"exitReason": reason.to_string()}));
    }
    value
}

/// Returns an output as the format's array of lines; `None` for an empty output.
fn output_lines(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| text.lines().collect())
}

fn attachment(file: &ReportAttachment<'_>) -> Value {
    let ReportAttachment { path, description, content_type } = file;
    let file_name = || Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    let name =
        if description.is_empty() { file_name().unwrap_or_default() } else { (*description).to_owned() };
    json!({"name": name, "contentType": content_type, "path": path})
}

fn epoch_ms(utc: &str) -> Option<i64> {
    utc.parse::<jiff::Timestamp>().ok().map(|at| at.as_millisecond())
}

fn whole_ms(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heeler_core::{DiagnosticsFile, NotRunReason, OsText, Outcome, TestResult};

    use super::*;
    use crate::{
        UnavailableDetails,
        sample_reports::{
            crashed, failed, failure, flaky, located_report, reason_report, report, result_report, unequal,
        },
    };

    /// Returns the report, validated by the format's own schema.
    #[track_caller]
    fn valid_report(reports: &[TestReport]) -> Value {
        let mut summary = RunSummary::new(None);
        summary.add_reports(reports.iter().cloned());
        let info = ReportRunInfo {
            name: "default",
            run: "r \"1\"",
            start_utc: "2026-03-01T02:00:00Z",
            duration: Duration::from_secs(7),
            root: Path::new("/w"),
        };
        let mut out = Vec::new();
        let details = &UnavailableDetails { reason: "none are needed".to_owned() };
        (FORMAT.write)(&ReportContent { summary: &summary, info, details }, &mut out).unwrap();
        let report: Value = serde_json::from_slice(&out).unwrap();
        let schema = include_str!("../../../tests/schema/ctrf/schema.json");
        let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
        let errors: Vec<_> =
            schema.iter_errors(&report).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{report:#}");
        report
    }

    #[test]
    fn each_outcome_has_its_status() {
        let output = DiagnosticsFile { path: OsText::from("/tmp/out.txt"), description: "output".into() };
        let fails = TestResult {
            stdout: "one\ntwo\n".into(),
            reproduce: Some("./core fails".into()),
            attached: vec![output],
            ..TestResult::with_reason(Outcome::Failed, "1 < 2")
        };
        let changes = [
            report("adds", Outcome::Passed),
            located_report("fails", Some(("src/a.rs", 7)), fails),
            result_report("crashes", crashed()),
            report("hangs", Outcome::TimedOut),
            report("broken", Outcome::Failed),
            reason_report("ignored", Outcome::Skipped, "needs net"),
            report("waits", Outcome::NotRun(NotRunReason::Unrunnable)),
            report("stopped", Outcome::Cancelled),
            result_report("flaky", flaky()),
        ];
        let report = valid_report(&changes);
        let tests = report["results"]["tests"].as_array().unwrap();
        let test_states: Vec<_> = tests
            .iter()
            .map(|test| ["name", "status", "rawStatus"].map(|name| test[name].as_str().unwrap()))
            .collect();
        assert_eq!(
            test_states,
            [
                ["adds", "passed", "passed"],
                ["fails", "failed", "failed"],
                ["crashes", "failed", "crashed"],
                ["hangs", "failed", "timed-out"],
                ["broken", "failed", "failed"],
                ["ignored", "skipped", "skipped"],
                ["waits", "other", "not-run"],
                ["stopped", "other", "cancelled"],
                ["flaky", "passed", "flaky"],
            ]
        );
        let counts = &report["results"]["summary"];
        let number = |name: &str| counts[name].as_u64().unwrap();
        let numbers = ["tests", "passed", "failed", "skipped", "pending", "other", "flaky"].map(number);
        assert_eq!(numbers, [9, 2, 4, 1, 0, 2, 1]);
        assert_eq!(number("stop") - number("start"), 7000);
        assert_eq!(tests[1]["stdout"], json!(["one", "two"]));
        assert_eq!(tests[1]["attachments"][0]["contentType"], "text/plain");
        // The line of the test's definition is not the line of the failure.
        assert_eq!((&tests[1]["filePath"], tests[1].get("line")), (&json!("src/a.rs"), None));
        assert_eq!(tests[1]["suite"], json!(["core"]));
        assert_eq!((&tests[2]["threadId"], &tests[2]["trace"]), (&json!("2"), &json!("#0 main")));
        assert_eq!(tests[8]["retryAttempts"][0]["extra"]["exitReason"], "SIGABRT");
        assert_eq!(report["runId"], "r \"1\"");
    }

    #[test]
    fn several_failures_are_extra() {
        let changes = [result_report("fails", failed(vec![failure("bad", 4), unequal()]))];
        let expected =
            json!([{"message": "bad", "filePath": "x.cc", "line": 4}, {"expected": "2", "actual": "1"}]);
        assert_eq!(valid_report(&changes)["results"]["tests"][0]["extra"]["failures"], expected);
    }

    #[test]
    fn hostile_texts_and_failed_programs_stay_valid() {
        let nasty = "]]></script>\u{0}\u{202e}\u{1b}[31m\"\\";
        let program =
            TestReport { uid: "core".into(), is_group: true, ..reason_report("", Outcome::Failed, nasty) };
        let long = "n".repeat(1 << 20);
        let fails = TestResult { stderr: nasty.into(), ..TestResult::with_reason(Outcome::Failed, nasty) };
        let start_utc = Some("yesterday".to_owned());
        let changes = [
            result_report(nasty, fails),
            TestReport { start_utc, ..report(&long, Outcome::Passed) },
            program,
        ];
        let report = valid_report(&changes);
        assert_eq!(report["results"]["summary"]["tests"], 3);
        assert_eq!(report["results"]["summary"]["failed"], 2);
        assert_eq!(report["results"]["tests"][0]["name"], nasty);
    }

    #[test]
    fn run_without_tests_is_valid() {
        assert_eq!(valid_report(&[])["results"]["tests"], json!([]));
    }
}
