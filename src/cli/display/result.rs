//! Display of one result: its line, and for a failure the block of details below it.

use std::{borrow::Cow, time::Duration};

use wire::mtp::LeftBehind;

use super::{
    format::{self, NAME_COLUMNS, Suites},
    style::{Colour, Line, Tone},
};
use crate::report::{
    Outcome, Record,
    text::{self, Colours},
};

/// Maximum number of lines shown of each output, half from its beginning and half from its end.
const SECTION_LINES: usize = 400;
/// Up to this many lines, an output is short enough that a message contained in it is not printed separately.
const GLANCE_LINES: usize = 40;
/// Indentation of a failure's output.
const INDENT: &str = "    ";

/// Settings that all results of a run share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner<'a> {
    pub(super) suites: Suites,
    pub(super) colour: Colour,
    pub(super) root: &'a str,
    pub(super) slow_after: Duration,
    /// Width of the terminal; unlimited for a log.
    pub(super) columns: usize,
}

impl Manner<'_> {
    /// Returns the number of columns available for a name after `used` columns.
    pub(super) fn name_columns(&self, used: usize) -> usize {
        // On a very narrow terminal, a name wraps rather than disappears.
        self.columns.saturating_sub(used + 1).clamp(24, NAME_COLUMNS)
    }
}

/// Returns the line of a result: label, time, `place` and name.
pub(super) fn line(record: &Record, manner: &Manner<'_>, place: &str) -> Line {
    let is_slow = record.duration.is_some_and(|took| took >= manner.slow_after);
    let time = record.duration.map(format::precise).unwrap_or_default();
    let tone = if record.is_leaky() && record.outcome == Outcome::Passed {
        Tone::Warn
    } else {
        format::tone(record.outcome)
    };
    let mut line = Line::labelled(tone, &format::label(record))
        .with(if is_slow { Tone::Warn } else { Tone::Plain }, format!("{time:>9}"))
        .and("  ");
    if !place.is_empty() {
        line = line.with(Tone::Dim, place).and("  ");
    }
    let columns = manner.name_columns(line.columns());
    line = line.join(format::name(record, manner.suites, columns));
    if record.is_group {
        line = line.with(Tone::Bold, " (outside any test)");
    }
    match (record.outcome, record.text(|detail| detail.message.as_ref())) {
        (Outcome::Skipped | Outcome::Cancelled | Outcome::NotRun, Some(reason)) => {
            line.with(Tone::Dim, format!("  ({})", format::cut_name(&text::headline(reason), 120)))
        }
        _ => line,
    }
}

/// Returns the details of a failure below its line, including its output.
pub(super) fn block(record: &Record, manner: &Manner<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(location) = location(record, manner.root) {
        lines.push(Line::labelled(Tone::Dim, "at").and(location));
    }
    let stdout = record.text(|detail| detail.stdout.as_ref());
    let stderr = record.text(|detail| detail.stderr.as_ref());
    if let Some(message) = record.text(|detail| detail.message.as_ref())
        && ![stdout, stderr].into_iter().flatten().any(|output| shows(output, message))
    {
        section(&mut lines, message, manner.colour);
    }
    lines.extend(assertion(record));
    // Frameworks print the stack themselves, and a single frame only repeats the location.
    let stack = record.text(|detail| detail.stacktrace.as_ref()).filter(|stack| {
        let is_shown = [stdout, stderr].into_iter().flatten().any(|output| output.contains(stack.trim()));
        stack.lines().nth(1).is_some() && !is_shown
    });
    let here = format!("{}/", manner.root.trim_end_matches('/'));
    let stack =
        stack.map(|stack| if manner.root.is_empty() { stack.to_owned() } else { stack.replace(&here, "") });
    for (label, output) in [("stack", stack.as_deref()), ("stdout", stdout), ("stderr", stderr)] {
        if let Some(output) = output {
            lines.push(Line::labelled(Tone::Dim, label).with(Tone::Dim, "────────"));
            section(&mut lines, output, manner.colour);
        }
    }
    for (path, description) in record.detail.iter().flat_map(|detail| &detail.files) {
        let path = text::one_line(below(path, manner.root)).into_owned();
        lines.push(Line::labelled(Tone::Dim, "file").and(path).with(Tone::Dim, format!("  ({description})")));
    }
    lines.extend(left_behind(record.leaked()).map(|line| Line::labelled(Tone::Warn, "left").join(line)));
    lines.extend(alone(record).map(|words| Line::labelled(Tone::Dim, "alone").and(words)));
    lines.extend(again(record, manner.root).map(|command| Line::labelled(Tone::Dim, "again").join(command)));
    lines.push(Line::new());
    lines
}

/// Returns `file:line`, relative to the root if the file is below it.
pub(super) fn location(record: &Record, root: &str) -> Option<String> {
    let detail = record.detail.as_deref()?;
    let file = format::cut_name(below(detail.file.as_deref()?, root), NAME_COLUMNS);
    Some(detail.line.map_or_else(|| file.clone(), |line| format!("{file}:{line}")))
}

/// Returns a path relative to the root if it is below the root, otherwise unchanged.
pub(super) fn below<'a>(file: &'a str, root: &str) -> &'a str {
    let root = root.trim_end_matches('/');
    file.strip_prefix(root)
        .and_then(|rest| rest.strip_prefix('/'))
        .filter(|_| !root.is_empty())
        .unwrap_or(file)
}

fn shows(output: &str, message: &str) -> bool {
    output.lines().count() <= GLANCE_LINES && output.contains(message.trim())
}

fn section(lines: &mut Vec<Line>, output: &str, colour: Colour) {
    let colours = match colour {
        Colour::On => Colours::Kept,
        Colour::Off => Colours::Dropped,
    };
    let mut shown = text::lines(output, colours);
    if shown.len() > SECTION_LINES {
        let hidden = shown.len() - SECTION_LINES;
        let note = format!("… {} not shown here …", format::count_of(hidden, "line"));
        shown.splice(SECTION_LINES / 2..SECTION_LINES / 2 + hidden, [note]);
    }
    lines.extend(
        shown.into_iter().map(
            |line| {
                if line.is_empty() { Line::new() } else { Line::new().and(INDENT).and(line) }
            },
        ),
    );
}

fn assertion(record: &Record) -> Vec<Line> {
    let message = record.text(|detail| detail.message.as_ref()).unwrap_or_default();
    let sides = [
        ("expected", record.text(|detail| detail.expected.as_ref())),
        ("actual", record.text(|detail| detail.actual.as_ref())),
    ];
    let told = |side: &str| message.contains(side);
    if sides.iter().all(|(_, side)| side.is_none_or(told)) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (label, side) in sides {
        for (place, line) in text::lines(side.unwrap_or_default(), Colours::Dropped).into_iter().enumerate() {
            lines.push(Line::labelled(Tone::Bold, if place == 0 { label } else { "" }).and(line));
        }
    }
    lines
}

/// Returns a line for each leaked process.
pub(super) fn left_behind(processes: &[LeftBehind]) -> impl Iterator<Item = Line> {
    processes.iter().map(|process| {
        let command = format::cut_name(&process.command, LEFT_COLUMNS);
        Line::new()
            .and(command)
            .with(Tone::Dim, format!("  (process {}, left behind and killed)", process.pid))
    })
}

/// Returns the result of the isolated rerun of the test suspected of a crash, unless the message includes it.
pub(super) fn alone(record: &Record) -> Option<String> {
    if record.text(|detail| detail.message.as_ref()).is_some_and(|message| message.contains("alone")) {
        return None;
    }
    Some(match record.text(|detail| detail.alone.as_ref())? {
        "crashes-alone" => "crashes alone, too".to_owned(),
        "passes-alone" => {
            "passes alone: another test, or the process that they share, may be the cause".to_owned()
        }
        "fails-alone" => "fails alone, without a crash".to_owned(),
        "hangs-alone" => "hangs alone".to_owned(),
        other => format::cut_name(other, NAME_COLUMNS),
    })
}

/// Returns the command that runs the test in isolation, quoted for a shell.
pub(super) fn again(record: &Record, root: &str) -> Option<Line> {
    let command = from_here(record.text(|detail| detail.reproduce.as_ref())?, root);
    let command = format::cut_name(&text::command_line(&command), COMMAND_COLUMNS);
    Some(Line::new().with(Tone::Dim, "$ ").and(command))
}

/// Shortens `(cd DIRECTORY && COMMAND)` for a user whose current directory is `root`.
fn from_here<'a>(command: &'a str, root: &str) -> Cow<'a, str> {
    let root = root.trim_end_matches('/');
    let rest =
        command.strip_prefix("(cd ").and_then(|rest| rest.strip_prefix(root)).filter(|_| !root.is_empty());
    let Some(rest) = rest else { return command.into() };
    if let Some(inner) = rest.strip_prefix(" && ").and_then(|rest| rest.strip_suffix(')')) {
        return inner.into();
    }
    rest.strip_prefix('/').map_or(command.into(), |rest| format!("(cd {rest}").into())
}

/// Maximum width of a leaked process's command line: its beginning identifies it.
const LEFT_COLUMNS: usize = 80;

/// Maximum width of a command: a longer one cannot be pasted into a shell anyway, because a terminal limits a
/// line.
const COMMAND_COLUMNS: usize = 4000;
