//! The summary of a run in Markdown, which GitHub shows on the page of a job.

use std::fmt::Write as _;

use heeler_core::{Outcome, SourcePlace};
use heeler_report::{RunSummary, TestReport, sanitise};

use super::{
    SummaryExtras,
    format::{self, grouped_number},
    style::{ColourMode, StyledLine},
    summary, test_line,
};

/// Maximum number of rows of each table. GitHub accepts one mebibyte for a step.
const MAX_ROWS: usize = 100;
/// Maximum width of names and messages.
const CELL_COLUMNS: usize = 300;

/// Returns the summary of a run: verdict, counts, and tables of failures, flaky and slow tests. Tests are
/// slow from `slow_after` on; paths below `root` are relative to it.
pub(crate) fn step_summary(
    summary: &RunSummary,
    end: &SummaryExtras,
    slow_after: std::time::Duration,
    root: &str,
) -> String {
    let mut page = format!("### {}\n\n", escaped(&plain(&summary::verdict_line(summary, end))));
    _ = writeln!(page, "{}", escaped(&plain(&format::counts(&summary.counts()))));
    for problem in &end.problems {
        _ = writeln!(page, "\nNote: {}", escaped(&sanitise::headline(problem)));
    }
    let failures = summary.failures().map(|record| {
        let place = record.failed_place().cloned().or_else(|| record.definition());
        let place = place.map(|place| {
            let file = test_line::relative_path(&place.file, root).to_owned();
            SourcePlace { file, ..place }.to_string()
        });
        let message = record.detail_text(|detail| detail.message.as_ref()).unwrap_or_default();
        vec![
            escaped(&format::result_label(record)),
            name(record),
            code(&place.unwrap_or_default()),
            escaped(&format::cut_name(&sanitise::headline(message), CELL_COLUMNS)),
        ]
    });
    push_table(&mut page, &["result", "test", "place", "message"], failures.collect());
    let flaky = summary.with_outcome(Outcome::Flaky);
    let flaky = flaky.map(|record| vec![name(record), record.attempts().to_string()]);
    push_table(&mut page, &["flaky test", "passed on attempt"], flaky.collect());
    let slow = summary.slowest(MAX_ROWS, slow_after).into_iter();
    let slow = slow
        .map(|record| vec![name(record), record.duration.map(format::precise_duration).unwrap_or_default()]);
    push_table(&mut page, &["slow test", "time"], slow.collect());
    page.push('\n');
    page
}

fn push_table(page: &mut String, head: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    _ = writeln!(page, "\n| {} |\n|{}", head.join(" | "), " --- |".repeat(head.len()));
    for row in rows.iter().take(MAX_ROWS) {
        _ = writeln!(page, "| {} |", row.join(" | "));
    }
    if rows.len() > MAX_ROWS {
        _ = writeln!(page, "\n+{} more", grouped_number(rows.len() - MAX_ROWS));
    }
}

/// Returns the uid of a test, which is unique in runs of several suites.
fn name(record: &TestReport) -> String {
    code(&format::cut_name(&record.uid, CELL_COLUMNS))
}

fn plain(line: &StyledLine) -> String {
    let mut text = String::new();
    line.render(ColourMode::Off, &mut text);
    text.trim().to_owned()
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("<code>{}</code>", escaped(text)) }
}

/// Returns text of a test for a table's cell. Characters with a meaning in Markdown or HTML become
/// references, so that a message can't change the page.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for char in sanitise::one_line(text).chars() {
        if "\\`*_[]<>&|~#@!:".contains(char) {
            _ = write!(out, "&#{};", u32::from(char));
        } else {
            out.push(char);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heeler_core::{Attempt, TestResult};
    use heeler_protocol::mtp::NodeDescription;

    use super::*;

    fn report(name: &str, result: &TestResult) -> TestReport {
        let uid = format!("core::{name}");
        let test =
            NodeDescription { uid: &uid, display_name: name, suite: "core", ..NodeDescription::default() };
        TestReport::from_result(&test, result)
    }

    #[test]
    fn failures_flaky_and_slow_tests_have_tables() {
        let bad = TestResult {
            failed_at: Some(SourcePlace { file: "/w/src/a.rs".into(), line: Some(7) }),
            ..TestResult::with_reason(Outcome::Failed, "1 | 2 <b>\nmore")
        };
        let flaky = TestResult {
            attempts: vec![Attempt::new(Outcome::Failed, "once")],
            ..TestResult::new(Outcome::Flaky)
        };
        let slow = TestResult { duration_us: Some(61_000_000), ..TestResult::new(Outcome::Passed) };
        let mut summary = RunSummary::new(Some(3));
        summary.add_reports([report("bad", &bad), report("shaky", &flaky), report("slow", &slow)]);
        let end = SummaryExtras { duration: Duration::from_secs(62), ..SummaryExtras::default() };
        let page = step_summary(&summary, &end, Duration::from_secs(60), "/w");
        assert!(
            page.starts_with("### FAILED 1 of 3 tests in 1m 02s\n\n2 passed (1 flaky), 1 failed\n"),
            "{page}"
        );
        for row in [
            "| FAIL | <code>core&#58;&#58;bad</code> | <code>src/a.rs&#58;7</code> | 1 &#124; 2 &#60;b&#62; · more |",
            "| <code>core&#58;&#58;shaky</code> | 2 |",
            "| <code>core&#58;&#58;slow</code> | 1m 01s |",
        ] {
            assert!(page.lines().any(|line| line == row), "{row}\n{page}");
        }
    }

    #[test]
    fn run_without_failures_has_no_table() {
        let mut summary = RunSummary::new(Some(1));
        summary.add_reports([report("good", &TestResult::new(Outcome::Passed))]);
        let page = step_summary(&summary, &SummaryExtras::default(), Duration::from_secs(60), "");
        assert!(page.starts_with("### PASSED 1 test in ") && !page.contains("| --- |"), "{page}");
    }
}
