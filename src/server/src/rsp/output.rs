//! Texts about tests and runs that clients show to users as lines of process output. Pure.

use std::{fmt::Write as _, time::Duration};

use heeler_core::{NotRunReason, Outcome, OutcomeCounts, ProgramFailure, TestResult};
use heeler_protocol::rsp::StreamType;
use heeler_report::sanitise::{self, ColourPolicy, SanitisedExcerpt};

/// Maximum number of lines shown from the beginning and from the end of each output, as on a terminal.
const EXCERPT_LINES: usize = 200;

/// Text for one stream of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OutputText {
    pub(super) stream: StreamType,
    pub(super) text: String,
}

impl OutputText {
    pub(super) fn new(stream: StreamType, text: String) -> Self {
        Self { stream, text }
    }
}

/// Returns the texts for a test that has ended: a result line, and for a failure also its message, output and
/// collected files.
pub(super) fn test_texts(uid: &str, result: &TestResult) -> Vec<OutputText> {
    let mut texts = vec![OutputText::new(StreamType::Output, result_line(uid, result))];
    if !result.outcome.is_failure() {
        return texts;
    }
    let is_repeated =
        |message: &str| [&result.stdout, &result.stderr].iter().any(|output| output.contains(message.trim()));
    let place = result.failed_at.as_ref().map(ToString::to_string);
    let mut message = place.map(|place| format!("at {}\n", sanitise::one_line(&place))).unwrap_or_default();
    if let Some(text) = result.message().filter(|text| !is_repeated(text)) {
        message += &excerpt(&text);
    }
    let outputs = [
        (StreamType::Error, message),
        (StreamType::Output, excerpt(&result.stdout)),
        (StreamType::Error, excerpt(&result.stderr)),
        (StreamType::Other, file_lines(result)),
    ];
    let outputs = outputs.into_iter().filter(|(_, text)| !text.is_empty());
    texts.extend(outputs.map(|(stream, text)| OutputText::new(stream, text)));
    texts
}

/// Returns the text for a program that failed outside its tests.
pub(super) fn program_failure_text(failure: &ProgramFailure) -> OutputText {
    let text = format!("{} failed outside any test:\n{}", failure.uid(), excerpt(&failure.message));
    OutputText::new(StreamType::Error, text)
}

fn result_line(uid: &str, result: &TestResult) -> String {
    let time = result.duration_us.map(|duration| seconds(Duration::from_micros(duration)));
    let mut line = format!(
        "{:<13} {:>9}  {}",
        result.outcome.label(),
        time.unwrap_or_default(),
        sanitise::one_line(uid)
    );
    let has_reason = matches!(result.outcome, Outcome::Skipped | Outcome::Cancelled | Outcome::NotRun(_));
    if let Some(reason) = result.reason.as_deref().filter(|_| has_reason) {
        line += &format!("  ({})", sanitise::headline(reason));
    }
    line.push('\n');
    line
}

/// Returns one line for each collected file, and the command to reproduce the result.
fn file_lines(result: &TestResult) -> String {
    let mut lines = String::new();
    for file in result.files() {
        let path = file.path.to_text();
        // Writing to a string never fails.
        let _ok = writeln!(lines, "{}: {}", file.description, sanitise::one_line(&path));
    }
    if let Some(command) = &result.reproduce {
        let _ok = writeln!(lines, "run again: {}", sanitise::one_line(command));
    }
    lines
}

/// Returns output as lines, without the middle of a long one.
fn excerpt(text: &str) -> String {
    if text.trim().is_empty() {
        return String::new();
    }
    let SanitisedExcerpt { first, hidden, last } =
        sanitise::sanitised_excerpt(text, ColourPolicy::Dropped, EXCERPT_LINES);
    let note = (hidden > 0).then(|| format!("… {hidden} lines not shown here …"));
    let mut out = String::new();
    for line in first.into_iter().chain(note).chain(last) {
        out += &line;
        out.push('\n');
    }
    out
}

fn seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}

/// Returns the number of tests by outcome, in one line.
pub(super) fn counts_line(counts: &OutcomeCounts, selected: usize) -> String {
    let total = counts.total();
    let mut line = match (total == selected, selected) {
        (true, 1) => "1 test".to_owned(),
        (true, _) => format!("{total} tests"),
        (false, _) => format!("{total} of {selected} tests"),
    };
    let mut separator = ": ";
    for outcome in OutcomeCounts::KINDS {
        let count = counts.with_outcome(outcome);
        if count > 0 {
            line += &format!("{separator}{count} {}", outcome.label());
            separator = ", ";
        }
    }
    line
}

/// Returns why a run was stopped, as text for users; `None` if it was not.
pub(super) fn stop_text(reason: Option<NotRunReason>) -> Option<&'static str> {
    match reason? {
        NotRunReason::Cancelled => Some("cancelled"),
        NotRunReason::TooManyFailures => Some("stopped at the failure limit"),
        NotRunReason::TimeLimitReached => Some("stopped at the time limit (run-timeout)"),
        NotRunReason::Unrunnable
        | NotRunReason::ProgramGivenUp { .. }
        | NotRunReason::StartTimedOut { .. }
        | NotRunReason::NeverStarted
        | NotRunReason::WorkerDied
        | NotRunReason::GuardLost { .. }
        | NotRunReason::ProgramGuardsLost { .. }
        | NotRunReason::PrerequisiteFailed { .. }
        | NotRunReason::NoWorker
        | NotRunReason::RunInterrupted => Some("stopped because no worker could run its tests"),
    }
}

#[cfg(test)]
mod tests {
    use heeler_core::{DiagnosticsFile, Failure, SourcePlace, TestDiagnostics};

    use super::*;

    #[test]
    fn passed_test_has_one_line() {
        let result = TestResult { duration_us: Some(12_345), ..TestResult::new(Outcome::Passed) };
        let texts = test_texts("unit::Parser.Reads", &result);
        let line = "passed          0.012 s  unit::Parser.Reads\n".to_owned();
        assert_eq!(texts, [OutputText::new(StreamType::Output, line)]);
        let result = TestResult::with_reason(Outcome::Skipped, "not\ntoday");
        assert_eq!(
            test_texts("u::\u{1b}[2Jx", &result)[0].text,
            "skipped                  u::\\u{1b}[2Jx  (not · today)\n"
        );
    }

    #[test]
    fn failed_test_shows_message_outputs_and_files() {
        let failure = Failure {
            message: Some("1 is not 2".into()),
            file: Some("a.cc".into()),
            line: Some(7),
            ..Failure::default()
        };
        let file = DiagnosticsFile { path: "/run/dump.dmp".into(), description: "minidump".to_owned() };
        let result = TestResult {
            failures: vec![failure],
            stdout: "out\n\n".into(),
            stderr: "err".into(),
            diagnostics: Some(Box::new(TestDiagnostics { files: vec![file], ..TestDiagnostics::default() })),
            reproduce: Some("./a --gtest_filter=A.b".into()),
            failed_at: Some(SourcePlace { file: "a.cc".into(), line: Some(7) }),
            ..TestResult::new(Outcome::Failed)
        };
        let texts = test_texts("a::A.b", &result);
        let shown: Vec<_> = texts.iter().map(|one| (one.stream, one.text.as_str())).collect();
        assert_eq!(
            shown[1..],
            [
                (StreamType::Error, "at a.cc:7\n1 is not 2\n"),
                (StreamType::Output, "out\n"),
                (StreamType::Error, "err\n"),
                (StreamType::Other, "minidump: /run/dump.dmp\nrun again: ./a --gtest_filter=A.b\n"),
            ]
        );
        let repeated = TestResult { stdout: "a.cc:7: 1 is not 2\n".into(), ..result };
        assert_eq!(test_texts("a::A.b", &repeated)[1].text, "at a.cc:7\n");
    }

    #[test]
    fn middle_of_a_long_output_is_left_out() {
        let text = excerpt(&"line\n".repeat(1000));
        assert_eq!(text.lines().count(), 2 * EXCERPT_LINES + 1);
        assert!(text.contains("… 600 lines not shown here …"));
    }

    #[test]
    fn counts_name_each_outcome_that_occurred() {
        let mut counts = OutcomeCounts::default();
        assert_eq!(counts_line(&counts, 0), "0 tests");
        counts.add(Outcome::Passed, None);
        assert_eq!(counts_line(&counts, 1), "1 test: 1 passed");
        counts.add(Outcome::Crashed, None);
        assert_eq!(counts_line(&counts, 3), "2 of 3 tests: 1 passed, 1 crashed");
    }
}
