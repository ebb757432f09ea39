//! The live view: a few lines that say where the run stands. What draws them is elsewhere.

use std::time::Instant;

use super::{
    Options, Size,
    format::{self, Suites, cut_name, grouped},
    progress::{Progress, Running},
    style::{LABEL_COLUMNS, Line, Tone},
};

/// So many running tests are shown.
const SLOTS: usize = 8;
/// A longer bar is not read better.
const BAR_COLUMNS: usize = 48;

/// Returns the lines of the view.
pub(super) fn frame(progress: &Progress, options: &Options, size: Size, now: Instant) -> Vec<Line> {
    let mut lines = vec![bar_line(progress, size, now), counts_line(progress)];
    let running = progress.running();
    let room = SLOTS.min(size.rows.saturating_sub(5));
    let shown = if running.len() > room { room.saturating_sub(1) } else { running.len() };
    let suites = if progress.head().programs == 1 { Suites::One } else { Suites::Many };
    for one in &running[..shown] {
        lines.push(running_line(one, suites, options, size, now));
    }
    if running.len() > shown {
        let more = format!("+{} more", grouped(running.len() - shown));
        lines.push(Line::labelled(Tone::Dim, "").with(Tone::Dim, more));
    }
    // While tests wait, slots are empty for moments only: the view keeps its height and does not jump.
    if progress.done() + running.len() < progress.total() {
        let slots = progress.head().workers.min(room);
        lines.resize(lines.len().max(slots + 2), Line::new());
    }
    lines.into_iter().map(|line| line.cut(size.columns.saturating_sub(1))).collect()
}

fn bar_line(progress: &Progress, size: Size, now: Instant) -> Line {
    let mut words = format!("{}/{}", grouped(progress.done()), grouped(progress.total()));
    words.push_str("  ");
    words.push_str(&format::rough(progress.elapsed(now)));
    if let Some(left) = progress.remaining(now) {
        words.push_str(&format!(", about {} left", format::estimate(left)));
    }
    let label = format!("{}%", progress.percent());
    let line = Line::labelled(if progress.counts().bad() > 0 { Tone::Bad } else { Tone::Good }, &label);
    // The estimate comes and goes; the bar keeps its length by leaving room for it.
    let room = size.columns.saturating_sub(LABEL_COLUMNS + 1 + 2 + words.len().max(36) + 1);
    let line = if room >= 8 { line.join(bar(progress, room.min(BAR_COLUMNS))).and("  ") } else { line };
    line.with(Tone::Bold, words)
}

/// Returns the bar: first what is broken, then what is well, then what waits.
fn bar(progress: &Progress, columns: usize) -> Line {
    let total = progress.total().max(1);
    // A single failure among thousands still has its cell; a run that is not over has not filled the bar.
    let bad = (progress.counts().bad() * columns).div_ceil(total).min(columns);
    let halves = (progress.done() * columns * 2 / total).max(bad * 2);
    let good = (halves / 2).saturating_sub(bad);
    let half = if halves % 2 == 1 { "╸" } else { "" };
    let rest = columns - bad - good - halves % 2;
    Line::new()
        .with(Tone::Bad, "━".repeat(bad))
        .with(Tone::Good, format!("{}{half}", "━".repeat(good)))
        .with(Tone::Dim, "─".repeat(rest))
}

fn counts_line(progress: &Progress) -> Line {
    Line::labelled(Tone::Plain, "").join(format::counts(progress.counts()))
}

fn running_line(one: &Running, suites: Suites, options: &Options, size: Size, now: Instant) -> Line {
    let label = one.worker.map(|worker| format!("worker {worker}")).unwrap_or_default();
    let ran = now.saturating_duration_since(one.since);
    let tone = if ran >= options.slow_after { Tone::Warn } else { Tone::Plain };
    let line = Line::labelled(Tone::Dim, &label).with(tone, format!("{:>9}", format::rough(ran))).and("  ");
    let columns = size.columns.saturating_sub(LABEL_COLUMNS + 1 + 9 + 2 + 1).max(8);
    line.join(running_name(one, suites, columns))
}

/// Returns `suite name` of a running test, cut to so many columns.
pub(super) fn running_name(one: &Running, suites: Suites, columns: usize) -> Line {
    let suite = one.suite.as_deref().filter(|_| suites == Suites::Many);
    let suite = suite.map(|suite| cut_name(suite, columns / 3));
    let left =
        suite.as_ref().map_or(columns, |suite| columns.saturating_sub(super::style::columns(suite) + 1));
    let name = Line::new().with(Tone::Bold, cut_name(&one.name, left));
    match suite {
        Some(suite) => Line::new().with(Tone::Suite, suite).and(" ").join(name),
        None => name,
    }
}
