//! Display of one result: its line, and for a failure the block of details below it.

use std::{borrow::Cow, time::Duration};

use heeler_core::{Outcome, SourcePlace};
use heeler_protocol::mtp::{FailureInfo, LeakedProcessInfo};

use super::{
    format::{self, NAME_COLUMNS, SuiteNames},
    style::{ColourMode, Style, StyledLine},
};
use heeler_report::{
    FailureDetail, TestReport,
    sanitise::{self, ColourPolicy},
};

/// Maximum number of lines shown of each output, half from its beginning and half from its end.
const SECTION_LINES: usize = 400;
/// Maximum number of lines shown of each output to a coding agent, which can request the rest.
const BRIEF_SECTION_LINES: usize = 60;
/// Maximum number of lines of a short output. A message contained in a short output is not printed
/// separately.
const SHORT_OUTPUT_LINES: usize = 40;
/// Width from which a line has room for a name next to label, time and place.
const MIN_WIDE_COLUMNS: usize = 60;
/// Indentation of a failure's output.
const INDENT: &str = "    ";

/// Settings that all results of a run share.
#[derive(Debug, Clone, Copy)]
pub(super) struct DetailLevel<'a> {
    pub(super) suites: SuiteNames,
    pub(super) colour: ColourMode,
    pub(super) root: &'a str,
    pub(super) slow_after: Duration,
    /// Width of the terminal; unlimited for a log.
    pub(super) columns: usize,
    /// Whether failures are shown once, with short outputs.
    pub(super) is_brief: bool,
}

impl DetailLevel<'_> {
    /// Wraps a line to the width of the terminal.
    pub(super) fn wrapped(&self, line: StyledLine) -> Vec<StyledLine> {
        line.wrapped(self.columns.saturating_sub(1))
    }

    /// Cuts a line that would take many rows of a narrow terminal.
    pub(super) fn cut_if_narrow(&self, line: StyledLine) -> StyledLine {
        if self.is_narrow() { line.cut(self.columns.saturating_sub(1)) } else { line }
    }

    /// Returns the number of columns available for a name after `used` columns. A narrow terminal shows names
    /// whole, on their own lines, because little of a cut name would be left.
    pub(super) fn name_columns(&self, used: usize) -> usize {
        if self.is_narrow() { NAME_COLUMNS } else { self.columns.saturating_sub(used + 1).min(NAME_COLUMNS) }
    }

    fn is_narrow(&self) -> bool {
        self.columns < MIN_WIDE_COLUMNS
    }
}

/// Returns the line of a result: label, time, `place` and name.
pub(super) fn result_line(record: &TestReport, manner: &DetailLevel<'_>, place: &str) -> StyledLine {
    let is_slow = record.duration.is_some_and(|took| took >= manner.slow_after);
    let time = record.duration.map(format::precise_duration).unwrap_or_default();
    let tone = if record.is_leaky() && record.outcome == Outcome::Passed {
        Style::Warning
    } else {
        format::outcome_style(record.outcome)
    };
    let mut line = StyledLine::with_label(tone, &format::result_label(record))
        .with(if is_slow { Style::Warning } else { Style::Plain }, format!("{time:>9}"))
        .with_plain("  ");
    if !place.is_empty() {
        line = line.with(Style::Dim, place).with_plain("  ");
    }
    let columns = manner.name_columns(line.columns());
    line = line.join(format::test_name(record, manner.suites, columns));
    if record.is_group && !record.is_fixture() {
        line = line.with(Style::Bold, " (outside any test)");
    }
    // The place of the failure is printed below; the place of the test is printed only here.
    if let (true, Some(definition)) = (record.outcome.is_failure(), record.definition())
        && record.failed_place() != Some(&definition)
    {
        line = line.with(Style::Dim, format!("  {}", relative_place(&definition, manner.root)));
    }
    match (record.outcome, record.detail_text(|detail| detail.message.as_ref())) {
        (Outcome::Skipped | Outcome::Cancelled | Outcome::NotRun(_), Some(reason)) => {
            // The reason of an unlistable program continues with a stack and files, which have been shown
            // already.
            let reason = reason.lines().next().unwrap_or_default();
            line.with(Style::Dim, format!("  ({})", format::cut_name(&sanitise::headline(reason), 120)))
        }
        _ => line,
    }
}

/// Adds to a failure's line the name of the earlier test with the same failure, if any.
pub(super) fn folded(line: StyledLine, earlier: Option<&str>) -> StyledLine {
    match earlier {
        Some(name) => {
            line.with(Style::Dim, format!("  (same failure as {})", format::cut_name(name, NAME_COLUMNS)))
        }
        None => line,
    }
}

/// Whether a failure's details include the test's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownOutputs {
    Shown,
    Hidden,
}

pub(super) fn output_sections(record: &TestReport, manner: &DetailLevel<'_>) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    let stdout = record.detail_text(|detail| detail.stdout.as_ref());
    let stderr = record.detail_text(|detail| detail.stderr.as_ref());
    push_sections(&mut lines, &[("stdout", stdout), ("stderr", stderr)], manner);
    lines.push(StyledLine::new());
    lines
}

fn push_sections(lines: &mut Vec<StyledLine>, sections: &[(&str, Option<&str>)], manner: &DetailLevel<'_>) {
    for (label, output) in sections {
        if let Some(output) = output {
            lines.push(StyledLine::with_label(Style::Dim, label).with(Style::Dim, "────────"));
            push_output(lines, output, manner);
        }
    }
}

/// Returns the details printed below a failure's line.
pub(super) fn failure_details(
    record: &TestReport,
    manner: &DetailLevel<'_>,
    outputs: ShownOutputs,
) -> Vec<StyledLine> {
    // Locations of the failures.
    let at = |location| StyledLine::with_label(Style::Dim, "at").with_plain(location);
    let places = places_of_failures(record, manner.root);
    let mut lines: Vec<_> = if places.is_empty() {
        failed_location(record, manner.root).map(at).into_iter().collect()
    } else {
        places.into_iter().map(at).collect()
    };
    // The message, unless a short output contains it.
    let output = |pick: fn(&FailureDetail) -> Option<&String>| {
        record.detail_text(pick).filter(|_| outputs == ShownOutputs::Shown)
    };
    let stdout = output(|detail| detail.stdout.as_ref());
    let stderr = output(|detail| detail.stderr.as_ref());
    let failures = record.detail.as_deref().map_or(&[][..], |detail| &detail.failures);
    if let Some(message) = record.detail_text(|detail| detail.message.as_ref())
        && ![stdout, stderr].into_iter().flatten().any(|output| contains_message(output, message, failures))
    {
        push_output(&mut lines, message, manner);
    }
    lines.extend(assertion_lines(record));
    // Omit a stack that a framework has printed itself. Omit also a single frame, or only the places of the
    // failures, since these repeat the locations.
    let stack = record.detail_text(|detail| detail.stacktrace.as_ref()).filter(|stack| {
        let is_shown = [stdout, stderr].into_iter().flatten().any(|output| output.contains(stack.trim()));
        let is_places = failures.len() > 1 && stack.lines().all(|line| is_place_of_one(line, failures));
        stack.lines().nth(1).is_some() && !is_shown && !is_places
    });
    let here = format!("{}/", manner.root.trim_end_matches('/'));
    let stack =
        stack.map(|stack| if manner.root.is_empty() { stack.to_owned() } else { stack.replace(&here, "") });
    let sections = [("stack", stack.as_deref()), ("stdout", stdout), ("stderr", stderr)];
    push_sections(&mut lines, &sections, manner);
    // Files, leaked processes, the isolated rerun and the reproduce command.
    let evidence = record.detail.as_deref().and_then(|detail| evidence_line(&detail.files, manner.root));
    lines.extend(evidence.into_iter().flat_map(|line| manner.wrapped(line)));
    lines.extend(
        leaked_process_lines(record.leaked())
            .map(|line| StyledLine::with_label(Style::Warning, "left").join(line)),
    );
    lines.extend(
        isolated_rerun_result(record).into_iter().flat_map(|words| {
            manner.wrapped(StyledLine::with_label(Style::Dim, "isolated").with_plain(words))
        }),
    );
    lines.extend(
        reproduce_command(record, manner.root)
            .map(|command| StyledLine::with_label(Style::Dim, "again").join(command)),
    );
    lines.push(StyledLine::new());
    lines
}

/// Returns one line for all files of a failure: the common beginning of their names, as a shell pattern, and
/// their descriptions.
fn evidence_line(files: &[(String, String)], root: &str) -> Option<StyledLine> {
    let (first, _) = files.first()?;
    let common = files.iter().skip(1).fold(first.as_str(), |common, (path, _)| {
        let length = common.bytes().zip(path.bytes()).take_while(|(one, other)| one == other).count();
        &common[..common.floor_char_boundary(length)]
    });
    let path = if files.len() == 1 { common.to_owned() } else { format!("{common}*") };
    let mut what: Vec<&str> = Vec::new();
    for (_, description) in files {
        if !what.contains(&description.as_str()) {
            what.push(description);
        }
    }
    let label = if files.len() == 1 { "file" } else { "files" };
    let path = sanitise::one_line(relative_path(&path, root)).into_owned();
    Some(
        StyledLine::with_label(Style::Dim, label)
            .with_plain(path)
            .with(Style::Dim, format!("  ({})", what.join(", "))),
    )
}

/// Returns `file:line` of the failure, relative to the root if the file is below the root. Returns `None` if
/// only the test's place is known, which is printed next to its name.
pub(super) fn failed_location(record: &TestReport, root: &str) -> Option<String> {
    record.failed_place().map(|place| relative_place(place, root))
}

/// Returns `file:line` of each failure of a test with several failures, if all are known.
fn places_of_failures(record: &TestReport, root: &str) -> Vec<String> {
    let failures = record.detail.as_deref().map_or(&[][..], |detail| &detail.failures);
    if failures.len() < 2 {
        return Vec::new();
    }
    let place = |one: &FailureInfo| failure_location(one, root);
    failures.iter().map(place).collect::<Option<_>>().unwrap_or_default()
}

/// Returns `file:line` of one of several failures.
pub(super) fn failure_location(failure: &FailureInfo, root: &str) -> Option<String> {
    let place = SourcePlace { file: failure.file.clone()?, line: failure.line };
    Some(relative_place(&place, root))
}

/// Returns whether a stack line is only the place of one of the failures.
fn is_place_of_one(line: &str, failures: &[FailureInfo]) -> bool {
    let line = line.trim();
    failures.iter().any(|one| {
        let rest = one.file.as_deref().and_then(|file| line.strip_prefix(file));
        rest.is_some_and(|rest| rest.is_empty() || one.line.is_some_and(|line| rest == format!(":{line}")))
    })
}

fn relative_place(place: &SourcePlace, root: &str) -> String {
    let file = format::cut_name(relative_path(&place.file, root), NAME_COLUMNS);
    SourcePlace { file, line: place.line }.to_string()
}

/// Returns a path relative to the root if it is below the root, otherwise unchanged.
pub(super) fn relative_path<'a>(file: &'a str, root: &str) -> &'a str {
    let root = root.trim_end_matches('/');
    file.strip_prefix(root)
        .and_then(|rest| rest.strip_prefix('/'))
        .filter(|_| !root.is_empty())
        .unwrap_or(file)
}

/// Returns whether a short output contains the message or, for several failures, the message of each.
fn contains_message(output: &str, message: &str, failures: &[FailureInfo]) -> bool {
    let is_contained = |text: &String| output.contains(text.trim());
    let is_each_contained =
        || failures.len() > 1 && failures.iter().all(|one| one.message.as_ref().is_some_and(is_contained));
    output.lines().count() <= SHORT_OUTPUT_LINES && (output.contains(message.trim()) || is_each_contained())
}

fn push_output(lines: &mut Vec<StyledLine>, output: &str, manner: &DetailLevel<'_>) {
    let limit = if manner.is_brief { BRIEF_SECTION_LINES } else { SECTION_LINES };
    let colours = match manner.colour {
        ColourMode::On => ColourPolicy::Kept,
        ColourMode::Off => ColourPolicy::Dropped,
    };
    let sanitise::SanitisedExcerpt { first, hidden, last } =
        sanitise::sanitised_excerpt(output, colours, limit / 2);
    let note = (hidden > 0).then(|| format!("… {} omitted …", format::count_of(hidden, "line")));
    lines.extend(first.into_iter().chain(note).chain(last).map(|line| {
        if line.is_empty() {
            StyledLine::new()
        } else {
            StyledLine::new().with_plain(INDENT).with_plain(line)
        }
    }));
}

fn assertion_lines(record: &TestReport) -> Vec<StyledLine> {
    let message = record.detail_text(|detail| detail.message.as_ref()).unwrap_or_default();
    let sides = [
        ("expected", record.detail_text(|detail| detail.expected.as_ref())),
        ("actual", record.detail_text(|detail| detail.actual.as_ref())),
    ];
    let is_in_message = |side: &str| message.contains(side);
    if sides.iter().all(|(_, side)| side.is_none_or(is_in_message)) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (label, side) in sides {
        for (place, line) in
            sanitise::sanitised_lines(side.unwrap_or_default(), ColourPolicy::Dropped).into_iter().enumerate()
        {
            lines.push(
                StyledLine::with_label(Style::Bold, if place == 0 { label } else { "" }).with_plain(line),
            );
        }
    }
    lines
}

pub(super) fn leaked_process_lines(processes: &[LeakedProcessInfo]) -> impl Iterator<Item = StyledLine> {
    processes.iter().map(|process| {
        let command = format::cut_name(&process.command, LEAK_COLUMNS);
        let fate = if process.is_running { "still running" } else { "killed" };
        StyledLine::new()
            .with_plain(command)
            .with(Style::Dim, format!("  ({}, {fate})", process_text(process)))
    })
}

/// Returns the id, age and memory of a leaked process.
fn process_text(process: &LeakedProcessInfo) -> String {
    heeler_core::describe::process_text(process.pid, &process.command, process.facts().as_ref())
}

/// Returns the result of the isolated rerun of a test suspected of a crash, unless the message includes it.
pub(super) fn isolated_rerun_result(record: &TestReport) -> Option<String> {
    if record
        .detail_text(|detail| detail.message.as_ref())
        .is_some_and(|message| message.contains("in isolation"))
    {
        return None;
    }
    Some(match record.detail_text(|detail| detail.isolated_rerun.as_ref())? {
        "crashes" => "also crashes in isolation".to_owned(),
        "passes" => "passes in isolation: another test, or the shared process, may be the cause".to_owned(),
        "fails" => "fails in isolation, without a crash".to_owned(),
        "hangs" => "hangs in isolation".to_owned(),
        other => format::cut_name(other, NAME_COLUMNS),
    })
}

/// Returns the shell-quoted command that runs the test in isolation.
pub(super) fn reproduce_command(record: &TestReport, root: &str) -> Option<StyledLine> {
    let command = shorten_directory(record.detail_text(|detail| detail.reproduce.as_ref())?, root);
    let command = format::cut_name(&command, COMMAND_COLUMNS);
    Some(StyledLine::new().with(Style::Dim, "$ ").with_plain(command))
}

/// Shortens `(cd DIRECTORY && COMMAND)` for a user whose current directory is `root`.
fn shorten_directory<'a>(command: &'a str, root: &str) -> Cow<'a, str> {
    let root = root.trim_end_matches('/');
    let rest =
        command.strip_prefix("(cd ").and_then(|rest| rest.strip_prefix(root)).filter(|_| !root.is_empty());
    let Some(rest) = rest else { return command.into() };
    if let Some(inner) = rest.strip_prefix(" && ").and_then(|rest| rest.strip_suffix(')')) {
        return inner.into();
    }
    rest.strip_prefix('/').map_or(command.into(), |rest| format!("(cd {rest}").into())
}

/// Maximum width of a leaked process's command line. Its beginning identifies the process.
const LEAK_COLUMNS: usize = 80;

/// Maximum width of a command. Terminals limit a line, so a longer command cannot be pasted into a shell.
const COMMAND_COLUMNS: usize = 4000;
