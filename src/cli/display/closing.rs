//! The end of a run: what was slow, flaky, not run and broken, and in the last lines the counts and the verdict.
//! The most important stands last, where the eye is.

use std::time::Duration;

use super::{
    format::{self, NAME_COLUMNS, count_of, grouped},
    result::{self, Manner},
    style::{LABEL_COLUMNS, Line, Tone},
};
use crate::report::{Outcome, Record, Summary, Verdict, text};

/// What is said at the end beside the summary itself.
#[derive(Debug, Clone, Default)]
pub struct End {
    /// How long the run took.
    pub duration: Duration,
    /// How many of the slowest tests to list; `None` lists up to three, and only those over a second.
    pub slowest: Option<usize>,
    /// Troubles that did not change any result, in words.
    pub troubles: Vec<String>,
    /// Files that were written: what, and where.
    pub files: Vec<(String, String)>,
}

/// So many names of one kind are listed; the rest is counted.
const LISTED: usize = 200;
/// So many names stand for the tests that never ran for one reason.
const EXAMPLES: usize = 5;
/// Where names begin: label, time, and the spaces between.
const NAME_COLUMN: usize = LABEL_COLUMNS + 1 + 9 + 2;

/// Returns the lines of the end.
pub(super) fn lines(summary: &Summary, end: &End, manner: &Manner<'_>) -> Vec<Line> {
    let mut lines = vec![Line::new().with(Tone::Dim, "─".repeat(LABEL_COLUMNS))];
    slowest(&mut lines, summary, end, manner);
    flaky(&mut lines, summary, manner);
    not_run(&mut lines, summary, manner);
    failures(&mut lines, summary, manner);
    for trouble in &end.troubles {
        lines.push(Line::labelled(Tone::Warn, "Note").and(text::headline(trouble)));
    }
    for (what, path) in &end.files {
        lines.push(Line::labelled(Tone::Good, "Written").and(format!("{what}: {}", text::one_line(path))));
    }
    lines.push(
        Line::labelled(tone(summary), "Summary")
            .and(format!("{:>9}  ", format::precise(end.duration)))
            .with(Tone::Bold, count_of(summary.selected(), "test"))
            .and(": ")
            .join(format::counts(summary.counts())),
    );
    books(&mut lines, summary);
    lines.push(verdict(summary));
    lines
}

fn slowest(lines: &mut Vec<Line>, summary: &Summary, end: &End, manner: &Manner<'_>) {
    let (limit, from) = match end.slowest {
        Some(limit) => (limit, Duration::ZERO),
        None => (3, Duration::from_secs(1)),
    };
    for (place, record) in summary.slowest(limit, from).into_iter().enumerate() {
        lines.push(named(Tone::Bold, if place == 0 { "Slowest" } else { "" }, record, manner));
    }
}

fn flaky(lines: &mut Vec<Line>, summary: &Summary, manner: &Manner<'_>) {
    for (place, record) in summary.with(Outcome::Flaky).enumerate() {
        if place == LISTED {
            lines.push(more(summary.counts().of(Outcome::Flaky) - LISTED));
            break;
        }
        let attempt = format!("  (passed at attempt {})", record.attempts());
        let line = named(Tone::Warn, if place == 0 { "Flaky" } else { "" }, record, manner);
        lines.push(line.with(Tone::Warn, attempt));
    }
}

fn named(tone: Tone, label: &str, record: &Record, manner: &Manner<'_>) -> Line {
    let time = record.duration.map(format::precise).unwrap_or_default();
    Line::labelled(tone, label).and(format!("{time:>9}  ")).join(format::name(
        record,
        manner.suites,
        NAME_COLUMNS,
    ))
}

fn not_run(lines: &mut Vec<Line>, summary: &Summary, manner: &Manner<'_>) {
    for (reason, records) in summary.not_run() {
        lines.push(
            Line::labelled(Tone::Bad, "Not run")
                .with(Tone::Bold, count_of(records.len(), "test"))
                .and(": ")
                .and(format::cut_name(&text::headline(reason), NAME_COLUMNS)),
        );
        for record in records.iter().take(EXAMPLES) {
            lines.push(indented(format::name(record, manner.suites, NAME_COLUMNS)));
        }
        if records.len() > EXAMPLES {
            lines.push(more(records.len() - EXAMPLES));
        }
    }
}

fn failures(lines: &mut Vec<Line>, summary: &Summary, manner: &Manner<'_>) {
    let total = summary.failures().count();
    for record in summary.failures().take(LISTED) {
        lines.push(result::line(record, manner, ""));
        let headline = record.text(|detail| detail.message.as_ref()).map(text::headline).unwrap_or_default();
        let location = result::location(record, manner.root);
        let why = match (location, headline.is_empty()) {
            // A framework whose messages begin with the location has told it already.
            (Some(location), false) if !headline.contains(&location) => format!("{location}: {headline}"),
            (Some(location), true) => location,
            (_, _) => headline,
        };
        if !why.is_empty() {
            lines.push(indented(Line::new().and(format::cut_name(&why, NAME_COLUMNS))));
        }
        lines.extend(result::alone(record).map(|words| indented(Line::new().and(words))));
        lines.extend(result::again(record, NAME_COLUMN - 1));
    }
    if total > LISTED {
        lines.push(more(total - LISTED));
    }
}

fn indented(line: Line) -> Line {
    Line::new().and(" ".repeat(NAME_COLUMN)).join(line)
}

fn more(number: usize) -> Line {
    indented(Line::new().with(Tone::Dim, format!("+{} more", grouped(number))))
}

fn books(lines: &mut Vec<Line>, summary: &Summary) {
    if summary.missing() == 0 {
        return;
    }
    lines.push(Line::labelled(Tone::Bad, "BROKEN").with(
        Tone::Bad,
        format!(
            "{} selected, but {} an outcome: results are missing or too many, so nothing here is to be trusted",
            count_of(summary.selected(), "test"),
            match summary.counts().total() {
                1 => "1 has".to_owned(),
                total => format!("{} have", grouped(total)),
            }
        ),
    ));
    let unended = summary.unended();
    for uid in unended.iter().take(EXAMPLES) {
        let name = format::cut_name(uid, NAME_COLUMNS);
        lines.push(indented(Line::new().with(Tone::Bold, name).and(" began and never ended")));
    }
    if unended.len() > EXAMPLES {
        lines.push(more(unended.len() - EXAMPLES));
    }
}

fn tone(summary: &Summary) -> Tone {
    match summary.verdict() {
        Verdict::Passed => Tone::Good,
        Verdict::NothingRan | Verdict::Cancelled => Tone::Warn,
        Verdict::Failed | Verdict::Unbalanced => Tone::Bad,
    }
}

/// Returns the last line.
fn verdict(summary: &Summary) -> Line {
    let counts = summary.counts();
    let selected = count_of(summary.selected(), "test");
    let (label, words) = match summary.verdict() {
        Verdict::Passed => {
            let passed = count_of(counts.passed(), "test");
            let skipped = match counts.of(Outcome::Skipped) {
                0 => String::new(),
                skipped => format!(", {} skipped", grouped(skipped)),
            };
            ("PASSED", format!("{passed} passed{skipped}"))
        }
        Verdict::NothingRan => ("NOTHING RAN", "no test was selected".to_owned()),
        Verdict::Cancelled => (
            "CANCELLED",
            format!("{} of {selected} did not come to an end", grouped(counts.of(Outcome::Cancelled))),
        ),
        Verdict::Failed => ("FAILED", failed_words(summary)),
        Verdict::Unbalanced => ("FAILED", "the books do not balance".to_owned()),
    };
    Line::labelled(tone(summary), label).with(tone(summary), words)
}

fn failed_words(summary: &Summary) -> String {
    let bad = summary.counts().bad();
    let groups = summary.troubled_groups().count();
    let tests = format!("{} of {}", grouped(bad), count_of(summary.selected(), "test"));
    let programs = format!("{} outside any test", count_of(groups, "program"));
    match (bad, groups) {
        (_, 0) => tests,
        (0, _) => format!("{programs}; {} passed", count_of(summary.counts().passed(), "test")),
        (_, _) => format!("{tests}, and {programs}"),
    }
}
