//! Summary at the end of a run: slowest, flaky, leaky, not-run and failed tests, then the counts and the
//! verdict. The most important comes last, next to the shell's prompt.

use std::time::Duration;

use super::{
    format::{self, NAME_COLUMNS, count_of, grouped},
    result::{self, Manner},
    style::{LABEL_COLUMNS, Line, Tone},
};
use crate::report::{Large, Outcome, Record, Summary, Verdict, text};

/// Data for the end of a run that is not in the summary.
#[derive(Debug, Clone, Default)]
pub struct End {
    /// Duration of the run.
    pub duration: Duration,
    /// Maximum number of slowest tests and of largest processes to list; `None` lists up to three of each,
    /// and only those over a second or 256 MiB.
    pub slowest: Option<usize>,
    /// Problems that did not change any result, as text.
    pub troubles: Vec<String>,
    /// Files that were written: description and path.
    pub files: Vec<(String, String)>,
}

/// Maximum number of names listed of one kind; the rest is only counted.
const LISTED: usize = 200;
/// Memory below which a process is not listed unless requested.
const NOTEWORTHY_KIB: u64 = 256 << 10;
/// Number of example names listed for the tests that did not run for one reason.
const EXAMPLES: usize = 5;

/// Indentation of details, which aligns them with the text of the line above.
const INDENT: usize = LABEL_COLUMNS + 1;
/// Suffix of a flaky test's name; names are cut to leave room for it.
const ATTEMPT: &str = "  (passed at attempt ";

/// Returns the lines of the summary.
pub(super) fn lines(summary: &Summary, end: &End, manner: &Manner<'_>) -> Vec<Line> {
    let mut lines = vec![Line::new().with(Tone::Dim, "─".repeat(LABEL_COLUMNS))];
    slowest(&mut lines, summary, end, manner);
    largest(&mut lines, summary, end, manner);
    flaky(&mut lines, summary, manner);
    leaky(&mut lines, summary, manner);
    not_run(&mut lines, summary, manner);
    failures(&mut lines, summary, manner);
    for trouble in &end.troubles {
        lines.push(Line::labelled(Tone::Warn, "Note").and(text::headline(trouble)));
    }
    for (what, path) in &end.files {
        lines.push(Line::labelled(Tone::Good, "Written").and(format!("{what}: {}", text::one_line(path))));
    }
    lines.push(Line::labelled(tone(summary), "Summary").join(format::counts(&summary.counts())));
    books(&mut lines, summary);
    lines.push(verdict(summary, end));
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

fn largest(lines: &mut Vec<Line>, summary: &Summary, end: &End, manner: &Manner<'_>) {
    let (limit, from_kib) = match end.slowest {
        Some(limit) => (limit, 0),
        None => (3, NOTEWORTHY_KIB),
    };
    for (place, large) in summary.largest(limit, from_kib).into_iter().enumerate() {
        let size = format!("{:>10}  ", format::memory(large.peak_kib().unwrap_or_default()));
        let line = Line::labelled(Tone::Bold, if place == 0 { "Largest" } else { "" }).and(size);
        let columns = manner.name_columns(line.columns() + 24);
        lines.push(match large {
            Large::Own(record) => line.join(format::name(record, manner.suites, columns)),
            Large::Shared(process) => {
                let tests = count_of(usize::try_from(process.tests).unwrap_or(usize::MAX), "test");
                line.with(Tone::Suite, format::cut_name(&process.suite, columns))
                    .with(Tone::Dim, format!("  (a process of {tests})"))
            }
        });
    }
}

fn flaky(lines: &mut Vec<Line>, summary: &Summary, manner: &Manner<'_>) {
    for (place, record) in summary.with(Outcome::Flaky).enumerate() {
        if place == LISTED {
            lines.push(more(summary.counts().of(Outcome::Flaky) - LISTED));
            break;
        }
        let line = named(Tone::Warn, if place == 0 { "Flaky" } else { "" }, record, manner);
        lines.push(line.with(Tone::Warn, format!("{ATTEMPT}{})", record.attempts())));
    }
}

/// Adds leaked processes, with their tests as far as these are known.
fn leaky(lines: &mut Vec<Line>, summary: &Summary, manner: &Manner<'_>) {
    let mut total = 0;
    for record in summary.leaky() {
        total += 1;
        if total > LISTED {
            continue;
        }
        lines.push(named(Tone::Warn, if total == 1 { "Leaky" } else { "" }, record, manner));
        lines.extend(result::left_behind(record.leaked()).map(indented));
    }
    if total > LISTED {
        lines.push(more(total - LISTED));
    }
    for leak in summary.unsure_leaks().iter().take(LISTED) {
        let words = match leak.tests.as_slice() {
            [] => Line::new()
                .with(Tone::Bold, format::cut_name(&leak.suite, NAME_COLUMNS))
                .and(" outside its tests"),
            tests => Line::new()
                .and("one of ")
                .with(Tone::Bold, count_of(tests.len(), "test"))
                .and(", which ran too close together to tell (--isolate would)"),
        };
        lines.push(Line::labelled(Tone::Warn, "Leaky").join(words));
        for uid in leak.tests.iter().take(EXAMPLES) {
            let name = format::cut_name(uid, manner.name_columns(INDENT));
            lines.push(indented(Line::new().with(Tone::Bold, name)));
        }
        if leak.tests.len() > EXAMPLES {
            lines.push(more(leak.tests.len() - EXAMPLES));
        }
        lines.extend(result::left_behind(&leak.processes).map(indented));
    }
    if summary.unsure_leaks().len() > LISTED {
        lines.push(more(summary.unsure_leaks().len() - LISTED));
    }
}

fn named(tone: Tone, label: &str, record: &Record, manner: &Manner<'_>) -> Line {
    let time = record.duration.map(format::precise).unwrap_or_default();
    let line = Line::labelled(tone, label).and(format!("{time:>9}  "));
    let columns = manner.name_columns(line.columns() + ATTEMPT.len() + 3);
    line.join(format::name(record, manner.suites, columns))
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
            lines.push(indented(format::name(record, manner.suites, manner.name_columns(INDENT))));
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
            // The messages of some frameworks begin with the location already.
            (Some(location), false) if !headline.contains(&location) => format!("{location}: {headline}"),
            (Some(location), true) => location,
            (_, _) => headline,
        };
        if !why.is_empty() {
            lines.push(indented(Line::new().and(format::cut_name(&why, NAME_COLUMNS))));
        }
        lines.extend(result::alone(record).map(|words| indented(Line::new().and(words))));
        lines.extend(result::again(record, manner.root).map(indented));
    }
    if total > LISTED {
        lines.push(more(total - LISTED));
    }
}

fn indented(line: Line) -> Line {
    Line::new().and(" ".repeat(INDENT)).join(line)
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

/// Returns the last line, with the verdict.
fn verdict(summary: &Summary, end: &End) -> Line {
    let counts = summary.counts();
    let time = format::rough(end.duration);
    let (label, words) = match summary.verdict() {
        Verdict::Passed => {
            let skipped = match counts.of(Outcome::Skipped) {
                0 => String::new(),
                skipped => format!(", {} skipped", grouped(skipped)),
            };
            ("PASSED", format!("{} in {time}{skipped}", count_of(counts.passed(), "test")))
        }
        Verdict::NothingRan => ("NOTHING RAN", "no test was selected".to_owned()),
        Verdict::Cancelled => {
            let cancelled = grouped(counts.of(Outcome::Cancelled) + summary.called_off());
            let selected = count_of(summary.selected(), "test");
            ("CANCELLED", format!("{cancelled} of {selected} did not come to an end, after {time}"))
        }
        Verdict::Failed => ("FAILED", format!("{} in {time}", failed_words(summary))),
        Verdict::Unbalanced => ("FAILED", format!("the books do not balance, after {time}")),
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
        (0, _) => programs,
        (_, _) => format!("{tests}, and {programs}"),
    }
}
