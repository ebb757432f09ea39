//! Answers about runs, read from the files of the runs, which keeps test output out of memory. Reading may
//! take long, so it is done outside the session's task.

use std::{fmt::Write as _, path::Path};

use heeler_core::{NotRunReason, Outcome, OutcomeCounts, error_chain};
use heeler_protocol::mcp::{
    Cursor, FailureItem, GetFailuresArguments, GetOutputArguments, OutputAnswer, RunAnswer, RunCounts,
    answer_bytes, known_cursor, page, piece, shortened,
};
use heeler_report::{DetailSource as _, FailureDetail, RunSummary, TestReport, sanitise::xml_text};
use heeler_run_store::{DIR_NAME, EarlierRun, EarlierRunState, RecordedDetails, RecordedResult, RecordedRun};

/// Maximum number of warnings in an answer.
pub(super) const MAX_WARNINGS: usize = 3;

/// Whether more results may be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunLiveness {
    InProgress,
    Over,
}

/// Returns the answer for a run that has just ended.
///
/// # Errors
/// The run's files can't be read. The text is shown to the caller.
pub(super) fn ended_run(dir: &Path, warnings: Vec<String>) -> Result<RunAnswer, String> {
    let recorded = read(dir)?;
    run_answer(&recorded, RunLiveness::Over, None, warnings)
}

/// Returns a page of a run's failures.
///
/// # Errors
/// The run does not exist, or its files can't be read. The text is shown to the caller.
pub(super) fn failures(state_dir: &Path, arguments: &GetFailuresArguments) -> Result<RunAnswer, String> {
    let (recorded, liveness) = find(state_dir, &arguments.run)?;
    run_answer(&recorded, liveness, arguments.cursor, Vec::new())
}

/// Returns a part of a test's recorded output.
///
/// # Errors
/// The run or test does not exist, or its files can't be read. The text is shown to the caller.
pub(super) fn output(state_dir: &Path, arguments: &GetOutputArguments) -> Result<OutputAnswer, String> {
    let (recorded, liveness) = find(state_dir, &arguments.run)?;
    let run = recorded.manifest.head.run.clone();
    let recorded_test = find_test(&recorded, &arguments.test)
        .ok_or_else(|| format!("run {run} has no result of test {:?}", shortened(&arguments.test)))?;
    if liveness == RunLiveness::InProgress && recorded_test.outcome.lacks_result() {
        return Err(format!("test {:?} has no result yet", shortened(&arguments.test)));
    }
    let details = RecordedDetails::new([&recorded]);
    let detail = details.load_detail(&recorded_test.uid).map_err(|error| error.reason)?;
    let text = output_text(&detail);
    let test = shortened(&recorded_test.uid);
    let (from, piece) = piece(&text, arguments.from.unwrap_or(0), answer_bytes(&test));
    let end = from + piece.len();
    Ok(OutputAnswer {
        run,
        test,
        outcome: recorded_test.outcome.label().to_owned(),
        from,
        total: text.len(),
        text: piece.to_owned(),
        next: (end < text.len()).then_some(end),
    })
}

struct RecordedTest {
    uid: String,
    outcome: Outcome,
}

/// Finds the last result of a test or failed program by uid, or by name if the name is unique.
fn find_test(recorded: &RecordedRun, name: &str) -> Option<RecordedTest> {
    let tests = &recorded.manifest.plan.tests;
    let found = |result: &RecordedResult| match result {
        RecordedResult::Test(test) => {
            Some(RecordedTest { uid: tests.get(test.test.index())?.uid.clone(), outcome: test.outcome })
        }
        RecordedResult::Program(failure) => {
            Some(RecordedTest { uid: failure.uid(), outcome: Outcome::Failed })
        }
    };
    let of_uid = |uid: &str| recorded.results.iter().rev().filter_map(found).find(|test| test.uid == uid);
    let by_name = || {
        let has_name = |uid: &&str| uid.strip_suffix(name).is_some_and(|suite| suite.ends_with("::"));
        let mut named = tests.iter().map(|test| test.uid.as_str()).filter(has_name);
        named.next().filter(|_| named.next().is_none())
    };
    of_uid(name).or_else(|| of_uid(by_name()?))
}

fn read(dir: &Path) -> Result<RecordedRun, String> {
    heeler_run_store::read_run_files(dir)
        .map_err(|error| format!("failed to read the run: {}", error_chain(&error)))
}

fn find(state_dir: &Path, word: &str) -> Result<(RecordedRun, RunLiveness), String> {
    let runs = heeler_run_store::list_runs(state_dir);
    let dir = state_dir.join(DIR_NAME).display().to_string();
    let run = heeler_run_store::resolve_run(&runs, word, &dir).map_err(|error| error.to_string())?;
    Ok((read(&run.dir)?, liveness(run)))
}

fn liveness(run: &EarlierRun) -> RunLiveness {
    match run.state {
        EarlierRunState::Running { .. } | EarlierRunState::Finishing { .. } => RunLiveness::InProgress,
        EarlierRunState::Ended(_) | EarlierRunState::Interrupted { .. } | EarlierRunState::Unreadable => {
            RunLiveness::Over
        }
    }
}

fn run_answer(
    recorded: &RecordedRun,
    liveness: RunLiveness,
    cursor: Option<Cursor>,
    mut warnings: Vec<String>,
) -> Result<RunAnswer, String> {
    let summary = match liveness {
        RunLiveness::Over => recorded.summarise(),
        RunLiveness::InProgress => {
            // The full summary would report tests in progress as interrupted.
            let mut summary = RunSummary::new(None);
            summary.add_reports(recorded.reports().filter(|report| !report.outcome.lacks_result()));
            summary
        }
    };
    // Limit the warnings.
    warnings.extend(recorded.losses.iter().map(|loss| format!("results are incomplete: {loss}")));
    warnings.truncate(MAX_WARNINGS);
    let warnings: Vec<_> = warnings.iter().map(|text| shortened(text)).collect();
    // One page of failures, bounded in size.
    let failures: Vec<_> = failed_reports(&summary).collect();
    let cursor = known_cursor(cursor, failures.len())?;
    let items = failures.iter().skip(cursor.0).map(|report| failure_item(report).bounded());
    let warning_bytes = warnings.iter().map(|text| answer_bytes(text)).sum();
    let page = page(items, cursor, failures.len(), warning_bytes);
    Ok(RunAnswer {
        run: recorded.manifest.head.run.clone(),
        state: state(recorded, liveness),
        duration_ms: u64::try_from(recorded.duration().as_millis()).unwrap_or(u64::MAX),
        counts: counts(recorded.manifest.head.tests, &summary.counts()),
        total_failures: failures.len(),
        failures: page.items,
        next_cursor: page.next,
        warnings,
    })
}

/// Returns the programs that failed outside their tests, then the tests that fail the run, in the order they
/// ended.
fn failed_reports(summary: &RunSummary) -> impl Iterator<Item = &TestReport> {
    summary.failed_groups().chain(summary.records().iter().filter(|report| report.outcome.is_failure()))
}

fn failure_item(report: &TestReport) -> FailureItem {
    let place = report.place();
    FailureItem {
        test: report.uid.clone(),
        outcome: report.outcome.label().to_owned(),
        line: place.as_ref().and_then(|place| place.line),
        file: place.map(|place| place.file),
        message: report.detail_text(|detail| detail.message.as_ref()).map(xml_text),
    }
}

fn counts(selected: usize, counts: &OutcomeCounts) -> RunCounts {
    let count = |outcome: &Outcome| (outcome.label(), counts.with_outcome(*outcome));
    let by_outcome = OutcomeCounts::KINDS.iter().map(count).filter(|(_, count)| *count > 0).collect();
    RunCounts { selected, by_outcome }
}

fn state(recorded: &RecordedRun, liveness: RunLiveness) -> &'static str {
    match (liveness, recorded.end.as_ref().map(|end| end.stopped_by)) {
        (RunLiveness::InProgress, _) => "running",
        (RunLiveness::Over, None) => "interrupted",
        (RunLiveness::Over, Some(None)) => "completed",
        (RunLiveness::Over, Some(Some(NotRunReason::Cancelled))) => "cancelled",
        (RunLiveness::Over, Some(Some(_))) => "stopped",
    }
}

/// Returns everything recorded about a test as one text.
fn output_text(detail: &FailureDetail) -> String {
    let mut text = String::new();
    let mut add = |title: &str, part: Option<&str>| {
        let part = part.map(str::trim_end).filter(|part| !part.is_empty());
        // Writing to a string never fails.
        let _written = part.map(|part| writeln!(text, "--- {title} ---\n{}", xml_text(part)));
    };
    add("message", detail.message.as_deref());
    let place = detail.failed_at.as_ref().map(ToString::to_string);
    add("place", place.as_deref());
    add("stack", detail.stacktrace.as_deref());
    add("standard output", detail.stdout.as_deref());
    add("standard error", detail.stderr.as_deref());
    let attempts = heeler_core::describe::attempts_text(&detail.attempts);
    add("earlier attempts", Some(&attempts));
    let files = detail.files.iter().map(|(path, description)| format!("{path} ({description})\n"));
    add("files", Some(&files.collect::<String>()));
    add("rerun command", detail.reproduce.as_deref());
    text
}

#[cfg(test)]
mod tests {
    use heeler_core::SourcePlace;

    use super::*;

    #[test]
    fn output_has_every_part_that_is_recorded() {
        let detail = FailureDetail {
            message: Some("expected 1\u{1b}[31m\u{0}, got 2\n".to_owned()),
            failed_at: Some(SourcePlace { file: "a.cc".to_owned(), line: Some(7) }),
            stdout: Some("out\n\n".to_owned()),
            stderr: Some(" \n".to_owned()),
            files: vec![("/tmp/x.dmp".to_owned(), "minidump".to_owned())],
            ..FailureDetail::default()
        };
        assert_eq!(
            output_text(&detail),
            "--- message ---\nexpected 1, got 2\n--- place ---\na.cc:7\n--- standard output ---\nout\n--- files \
             ---\n/tmp/x.dmp (minidump)\n"
        );
        assert_eq!(output_text(&FailureDetail::default()), "");
    }

    #[test]
    fn counts_name_the_outcomes_that_occurred() {
        let mut of_run = OutcomeCounts::default();
        for outcome in [Outcome::Passed, Outcome::Passed, Outcome::TimedOut] {
            of_run.add(outcome, None);
        }
        assert_eq!(counts(4, &of_run).by_outcome, [("passed", 2), ("timed out", 1)]);
    }
}
