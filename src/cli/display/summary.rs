//! Summary at the end of a run: slowest, flaky, leaky, not-run and failed tests, then the counts and the
//! verdict. The most important line comes last, next to the shell's prompt. Only an explanation follows it.

use std::time::Duration;

use super::{
    explanation::explanation_lines,
    format::{self, NAME_COLUMNS, count_of, grouped_number},
    same_failures,
    style::{LABEL_COLUMNS, Style, StyledLine},
    test_line::{self, DetailLevel},
};
use heeler_config::FinalStatusLevel;
use heeler_core::{Outcome, describe::without_earlier_attempts};
use heeler_protocol::mtp::FailureInfo;
use heeler_report::{MemoryPeak, RunExplanation, RunSummary, RunVerdict, StepCounts, TestReport, sanitise};

/// Data for the end of a run that the summary does not contain.
#[derive(Debug, Clone, Default)]
pub(crate) struct SummaryExtras {
    /// Duration of the run.
    pub duration: Duration,
    /// Maximum number of slowest tests, and of largest processes, to list. `None` lists up to three of each,
    /// if over one second or 256 MiB.
    pub slowest: Option<usize>,
    /// Problems that did not change any result.
    pub problems: Vec<String>,
    /// Report files that were written: description and path of each.
    pub files: Vec<(String, String)>,
    /// Commands that show or run what a brief display omits.
    pub commands: Vec<String>,
    /// Why the run took as long as it did, if requested.
    pub explanation: Option<RunExplanation>,
    /// Whether the user cancelled the run. A cancelled run has not passed, regardless of its results.
    pub is_cancelled: bool,
}

/// Maximum number of names listed of one kind; the rest is counted.
const MAX_LISTED: usize = 200;
/// Memory below which a process is not listed unless requested.
const NOTEWORTHY_KIB: u64 = 256 << 10;
/// Maximum number of earlier attempts listed for a flaky test.
const MAX_ATTEMPTS: usize = 3;
/// Maximum number of failures listed for one test.
const MAX_REASONS: usize = 5;
/// Maximum number of example names listed for each reason why tests did not run.
const MAX_EXAMPLES: usize = 5;

/// Indentation of details, which aligns them with the text of the line above.
const INDENT: usize = LABEL_COLUMNS + 1;
/// Suffix of a flaky test's name; names are cut to leave room for the suffix.
const ATTEMPT_SUFFIX: &str = "  (passed on attempt ";

/// Returns the lines of the summary. With `None` as level, lists failed, flaky and leaky tests, and the
/// slowest and largest ones.
pub(super) fn summary_lines(
    summary: &RunSummary,
    end: &SummaryExtras,
    level: Option<FinalStatusLevel>,
    manner: &DetailLevel<'_>,
) -> Vec<StyledLine> {
    let mut lines = vec![StyledLine::new().with(Style::Dim, "─".repeat(LABEL_COLUMNS))];
    push_unremarkable(&mut lines, summary, level.unwrap_or(FinalStatusLevel::None), manner);
    let is_listed = |least| level.is_none_or(|level| level >= least);
    if is_listed(FinalStatusLevel::Slow) && !manner.is_brief {
        push_slowest(&mut lines, summary, end, manner);
        push_largest(&mut lines, summary, end, manner);
    }
    if is_listed(FinalStatusLevel::Flaky) {
        push_flaky(&mut lines, summary, manner);
        push_leaky(&mut lines, summary, manner);
    }
    if is_listed(FinalStatusLevel::Fail) {
        push_not_run(&mut lines, summary, manner);
        push_failures(&mut lines, summary, manner);
    }
    for problem in &end.problems {
        lines.push(StyledLine::with_label(Style::Warning, "Note").with_plain(sanitise::headline(problem)));
    }
    for (what, path) in &end.files {
        lines.push(
            StyledLine::with_label(Style::Success, "Written")
                .with_plain(format!("{what}: {}", sanitise::one_line(path))),
        );
    }
    let commands = end.commands.join("; ");
    if manner.is_brief && !commands.is_empty() {
        lines.push(StyledLine::with_label(Style::Dim, "More").with_plain(sanitise::one_line(&commands)));
    }
    let counts = format::counts(&summary.counts());
    let counts = StyledLine::with_label(verdict_style(summary, end), "Summary").join(counts);
    lines.extend(manner.wrapped(counts));
    lines.extend(steps_line(summary.steps()).into_iter().flat_map(|line| manner.wrapped(line)));
    push_missing_results(&mut lines, summary);
    lines.push(verdict_line(summary, end));
    lines.extend(end.explanation.iter().flat_map(|one| explanation_lines(one, manner)));
    lines
}

/// Returns the numbers of subtests (sections, data rows, points) of all tests, if there are any.
fn steps_line(steps: StepCounts) -> Option<StyledLine> {
    let kinds = [
        (steps.passed, "passed"),
        (steps.failed, "failed"),
        (steps.skipped, "skipped"),
        (steps.unfinished, "unfinished"),
        (steps.left_out, "not listed"),
    ];
    let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<_> =
        kinds.map(|(count, word)| format!("{} {word}", grouped_number(count as usize))).collect();
    (steps.total() > 0).then(|| {
        let text = format!("{}: {}", grouped_number(steps.total()), kinds.join(", "));
        StyledLine::with_label(Style::Dim, "Subtests").with_plain(text)
    })
}

/// Adds passed, skipped and slow tests; slow tests come last, because they need most attention.
fn push_unremarkable(
    lines: &mut Vec<StyledLine>,
    summary: &RunSummary,
    level: FinalStatusLevel,
    manner: &DetailLevel<'_>,
) {
    let is_slow = |record: &TestReport| record.duration.is_some_and(|took| took >= manner.slow_after);
    let mut push = |least, is_listed: &dyn Fn(&TestReport) -> bool| {
        let records = summary.records().iter().filter(|record| level >= least && is_listed(record));
        lines.extend(records.flat_map(|record| manner.wrapped(test_line::result_line(record, manner, ""))));
    };
    let passed = |record: &TestReport| record.outcome == Outcome::Passed && !record.is_leaky();
    push(FinalStatusLevel::Pass, &|record| passed(record) && !is_slow(record));
    push(FinalStatusLevel::Skip, &|record| record.outcome == Outcome::Skipped);
    push(FinalStatusLevel::Slow, &|record| passed(record) && is_slow(record));
}

fn push_slowest(
    lines: &mut Vec<StyledLine>,
    summary: &RunSummary,
    end: &SummaryExtras,
    manner: &DetailLevel<'_>,
) {
    let (limit, from) = match end.slowest {
        Some(limit) => (limit, Duration::ZERO),
        None => (3, Duration::from_secs(1)),
    };
    for (place, record) in summary.slowest(limit, from).into_iter().enumerate() {
        let line = named_line(Style::Bold, if place == 0 { "Slowest" } else { "" }, record, manner);
        lines.extend(manner.wrapped(line));
    }
}

fn push_largest(
    lines: &mut Vec<StyledLine>,
    summary: &RunSummary,
    end: &SummaryExtras,
    manner: &DetailLevel<'_>,
) {
    let (limit, from_kib) = match end.slowest {
        Some(limit) => (limit, 0),
        None => (3, NOTEWORTHY_KIB),
    };
    for (place, large) in summary.largest(limit, from_kib).into_iter().enumerate() {
        let size =
            format!("{:>10}  ", heeler_core::system_facts::memory_size(large.peak_kib().unwrap_or_default()));
        let line =
            StyledLine::with_label(Style::Bold, if place == 0 { "Largest" } else { "" }).with_plain(size);
        let columns = manner.name_columns(line.columns() + 24);
        let line = match large {
            MemoryPeak::Own(record) => line.join(format::test_name(record, manner.suites, columns)),
            MemoryPeak::Shared(process) => {
                let tests = count_of(usize::try_from(process.tests).unwrap_or(usize::MAX), "test");
                line.with(Style::Suite, format::cut_name(&process.suite, columns))
                    .with(Style::Dim, format!("  (process with {tests})"))
            }
        };
        lines.extend(manner.wrapped(line));
    }
}

fn push_flaky(lines: &mut Vec<StyledLine>, summary: &RunSummary, manner: &DetailLevel<'_>) {
    for (place, record) in summary.with_outcome(Outcome::Flaky).enumerate() {
        if place == MAX_LISTED {
            lines.push(more_line(summary.counts().with_outcome(Outcome::Flaky) - MAX_LISTED));
            break;
        }
        let line = named_line(Style::Warning, if place == 0 { "Flaky" } else { "" }, record, manner);
        let line = line.with(Style::Warning, format!("{ATTEMPT_SUFFIX}{})", record.attempts()));
        lines.extend(manner.wrapped(line));
        let attempts = record.detail.as_deref().map_or(&[][..], |detail| &detail.attempts);
        for (number, attempt) in (1..).zip(attempts.iter().take(MAX_ATTEMPTS)) {
            let words = format!("attempt {number} {}: ", attempt.outcome.label());
            let message = format::cut_name(&sanitise::headline(&attempt.message), NAME_COLUMNS);
            lines.extend(manner.wrapped(indented(StyledLine::new().with_plain(words + &message))));
        }
    }
}

/// Adds leaked processes, with their tests if known.
fn push_leaky(lines: &mut Vec<StyledLine>, summary: &RunSummary, manner: &DetailLevel<'_>) {
    let mut total = 0;
    for record in summary.leaky_tests() {
        total += 1;
        if total > MAX_LISTED {
            continue;
        }
        let line = named_line(Style::Warning, if total == 1 { "Leaky" } else { "" }, record, manner);
        lines.extend(manner.wrapped(line));
        let processes = test_line::leaked_process_lines(record.leaked());
        lines.extend(processes.map(|line| manner.cut_if_narrow(indented(line))));
    }
    if total > MAX_LISTED {
        lines.push(more_line(total - MAX_LISTED));
    }
    for leak in summary.ambiguous_leaks().iter().take(MAX_LISTED) {
        let words = match leak.tests.as_slice() {
            [] => StyledLine::new()
                .with(Style::Bold, format::cut_name(&leak.suite, NAME_COLUMNS))
                .with_plain(" outside any test"),
            tests => StyledLine::new()
                .with_plain("one of ")
                .with(Style::Bold, count_of(tests.len(), "test"))
                .with_plain(" that ran around its start time (--isolate shows which)"),
        };
        lines.push(StyledLine::with_label(Style::Warning, "Leaky").join(words));
        for uid in leak.tests.iter().take(MAX_EXAMPLES) {
            let name = format::cut_name(uid, manner.name_columns(INDENT));
            lines.push(indented(StyledLine::new().with(Style::Bold, name)));
        }
        if leak.tests.len() > MAX_EXAMPLES {
            lines.push(more_line(leak.tests.len() - MAX_EXAMPLES));
        }
        let processes = test_line::leaked_process_lines(&leak.processes);
        lines.extend(processes.map(|line| manner.cut_if_narrow(indented(line))));
    }
    if summary.ambiguous_leaks().len() > MAX_LISTED {
        lines.push(more_line(summary.ambiguous_leaks().len() - MAX_LISTED));
    }
}

fn named_line(tone: Style, label: &str, record: &TestReport, manner: &DetailLevel<'_>) -> StyledLine {
    let time = record.duration.map(format::precise_duration).unwrap_or_default();
    let line = StyledLine::with_label(tone, label).with_plain(format!("{time:>9}  "));
    let columns = manner.name_columns(line.columns() + ATTEMPT_SUFFIX.len() + 3);
    line.join(format::test_name(record, manner.suites, columns))
}

fn push_not_run(lines: &mut Vec<StyledLine>, summary: &RunSummary, manner: &DetailLevel<'_>) {
    for (reason, records) in summary.not_run() {
        // The label already says "not run".
        let reason = reason.strip_prefix("not run: ").unwrap_or(reason);
        lines.push(
            StyledLine::with_label(Style::Failure, "Not run")
                .with(Style::Bold, count_of(records.len(), "test"))
                .with_plain(": ")
                .with_plain(format::cut_name(&sanitise::headline(reason), NAME_COLUMNS)),
        );
        for record in records.iter().take(MAX_EXAMPLES) {
            lines.push(indented(format::test_name(record, manner.suites, manner.name_columns(INDENT))));
        }
        if records.len() > MAX_EXAMPLES {
            lines.push(more_line(records.len() - MAX_EXAMPLES));
        }
    }
}

fn push_failures(lines: &mut Vec<StyledLine>, summary: &RunSummary, manner: &DetailLevel<'_>) {
    // A brief display has shown each failure on arrival, except of tests that never ended.
    let is_listed = |record: &&TestReport| !manner.is_brief || record.outcome == Outcome::Interrupted;
    let groups =
        same_failures::grouped(summary.failures().filter(is_listed), |record| reasons(record, manner.root));
    for group in groups.iter().take(MAX_LISTED) {
        let [record, same @ ..] = group.as_slice() else { continue };
        lines.extend(manner.wrapped(test_line::result_line(record, manner, "")));
        for why in reasons(record, manner.root) {
            let why = StyledLine::new().with_plain(format::cut_name(&why, NAME_COLUMNS));
            lines.extend(manner.wrapped(indented(why)));
        }
        lines.extend(
            test_line::isolated_rerun_result(record)
                .map(|words| indented(StyledLine::new().with_plain(words))),
        );
        // The details of the failure have the whole command.
        let command = test_line::reproduce_command(record, manner.root);
        lines.extend(command.map(|command| manner.cut_if_narrow(indented(command))));
        push_same(lines, same, manner);
    }
    if groups.len() > MAX_LISTED {
        lines.push(more_line(groups.iter().skip(MAX_LISTED).map(Vec::len).sum()));
    }
}

/// Adds the tests with the same failure as the preceding test.
fn push_same(lines: &mut Vec<StyledLine>, same: &[&TestReport], manner: &DetailLevel<'_>) {
    if same.is_empty() {
        return;
    }
    let number = grouped_number(same.len());
    lines.push(indented(StyledLine::new().with_plain(format!("{number} more with the same failure:"))));
    for record in same.iter().take(MAX_EXAMPLES) {
        lines.push(indented(format::test_name(record, manner.suites, manner.name_columns(INDENT))));
    }
    if same.len() > MAX_EXAMPLES {
        lines.push(more_line(same.len() - MAX_EXAMPLES));
    }
}

/// Returns a line for each failure, with its place and message; only the first few are listed.
fn reasons(record: &TestReport, root: &str) -> Vec<String> {
    let failures = record.detail.as_deref().map_or(&[][..], |detail| &detail.failures);
    if failures.len() > 1 {
        let reason = |one: &FailureInfo| {
            let message = one.message.as_deref().map(sanitise::headline).unwrap_or_default();
            located(test_line::failure_location(one, root), message)
        };
        let more = failures.len().saturating_sub(MAX_REASONS);
        let more = (more > 0).then(|| format!("and {}", count_of(more, "further failure")));
        return failures.iter().take(MAX_REASONS).map(reason).chain(more).collect();
    }
    let message = record.detail_text(|detail| detail.message.as_ref()).map(without_earlier_attempts);
    // The result line of a test that was not run already has the reason.
    let message = message.filter(|_| !matches!(record.outcome, Outcome::NotRun(_)));
    let headline = message.map(sanitise::headline).unwrap_or_default();
    // Some frameworks begin their messages with the location; do not repeat it.
    let first_line = message.and_then(|message| message.lines().find(|line| !line.trim().is_empty()));
    let location = test_line::failed_location(record, root)
        .filter(|location| first_line.is_none_or(|line| !line.contains(location)));
    let reason = located(location, headline);
    if reason.is_empty() { Vec::new() } else { vec![reason] }
}

fn located(location: Option<String>, headline: String) -> String {
    match (location, headline.is_empty()) {
        (Some(location), false) => format!("{location}: {headline}"),
        (Some(location), true) => location,
        (None, _) => headline,
    }
}

fn indented(line: StyledLine) -> StyledLine {
    StyledLine::new().with_plain(" ".repeat(INDENT)).join(line)
}

fn more_line(number: usize) -> StyledLine {
    indented(StyledLine::new().with(Style::Dim, format!("+{} more", grouped_number(number))))
}

fn push_missing_results(lines: &mut Vec<StyledLine>, summary: &RunSummary) {
    if summary.missing_outcomes() == 0 {
        return;
    }
    lines.push(StyledLine::with_label(Style::Failure, "BROKEN").with(
        Style::Failure,
        format!(
            "{} selected, but {} an outcome: results are missing or duplicated, so this report is unreliable",
            count_of(summary.selected(), "test"),
            match summary.counts().total() {
                1 => "1 has".to_owned(),
                total => format!("{} have", grouped_number(total)),
            }
        ),
    ));
    let unended = summary.unfinished_tests();
    for uid in unended.iter().take(MAX_EXAMPLES) {
        let name = format::cut_name(uid, NAME_COLUMNS);
        lines
            .push(indented(StyledLine::new().with(Style::Bold, name).with_plain(" started but never ended")));
    }
    if unended.len() > MAX_EXAMPLES {
        lines.push(more_line(unended.len() - MAX_EXAMPLES));
    }
}

fn verdict_style(summary: &RunSummary, end: &SummaryExtras) -> Style {
    match summary.verdict() {
        RunVerdict::Passed if end.is_cancelled => Style::Warning,
        RunVerdict::Passed => Style::Success,
        RunVerdict::NothingRan | RunVerdict::Cancelled => Style::Warning,
        RunVerdict::Failed | RunVerdict::CountMismatch => Style::Failure,
    }
}

/// Returns the last line, with the verdict.
pub(super) fn verdict_line(summary: &RunSummary, end: &SummaryExtras) -> StyledLine {
    let counts = summary.counts();
    let time = format::rough_duration(end.duration);
    let (label, words) = match summary.verdict() {
        RunVerdict::Passed if end.is_cancelled => {
            let passed = count_of(counts.passed(), "test");
            ("CANCELLED", format!("after all results: {passed} passed in {time}"))
        }
        RunVerdict::Passed => {
            let skipped = match counts.with_outcome(Outcome::Skipped) {
                0 => String::new(),
                skipped => format!(", {} skipped", grouped_number(skipped)),
            };
            ("PASSED", format!("{} in {time}{skipped}", count_of(counts.passed(), "test")))
        }
        RunVerdict::NothingRan => ("NOTHING RAN", "no test was selected".to_owned()),
        RunVerdict::Cancelled => {
            let cancelled =
                grouped_number(counts.with_outcome(Outcome::Cancelled) + summary.cancelled_before_start());
            let selected = count_of(summary.selected(), "test");
            ("CANCELLED", format!("{cancelled} of {selected} did not finish, after {time}"))
        }
        RunVerdict::Failed => {
            ("FAILED", format!("{} in {time}{}", describe_failures(summary), describe_rest(summary)))
        }
        RunVerdict::CountMismatch => ("FAILED", format!("results are missing or duplicated, after {time}")),
    };
    StyledLine::with_label(verdict_style(summary, end), label).with(verdict_style(summary, end), words)
}

/// Returns the counts of cancelled and not-run tests, if some tests failed.
fn describe_rest(summary: &RunSummary) -> String {
    if summary.failed_count() == 0 && summary.failed_groups().next().is_none() {
        return String::new();
    }
    let cancelled = summary.counts().with_outcome(Outcome::Cancelled);
    let rest = [(summary.not_run_count(), "not run"), (cancelled, "cancelled")];
    let rest = rest.into_iter().filter(|(number, _)| *number > 0);
    rest.map(|(number, what)| format!(", {} {what}", grouped_number(number))).collect()
}

fn describe_failures(summary: &RunSummary) -> String {
    let bad = summary.failed_count();
    let fixtures = summary.failed_groups().filter(|group| group.is_fixture()).count();
    let programs = summary.failed_groups().count() - fixtures;
    let selected = count_of(summary.selected(), "test");
    if bad + programs + fixtures == 0 {
        return format!("{} of {selected} not run,", grouped_number(summary.not_run_count()));
    }
    let failed = [
        (bad > 0).then(|| format!("{} of {selected}", grouped_number(bad))),
        (programs > 0).then(|| count_of(programs, "program")),
        (fixtures > 0).then(|| count_of(fixtures, "fixture command")),
    ];
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    failed.join(" and ")
}
