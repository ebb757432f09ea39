//! The live view: a few lines with the progress of the run. `screen` draws them.

use std::time::{Duration, Instant};

use super::{
    TerminalSize,
    format::{self, SuiteNames, cut_name, grouped_number},
    progress::{DisplayProgress, DisplayedTest},
    style::{LABEL_COLUMNS, Style, StyledLine},
    waits::waits_text,
};

/// Maximum number of running tests shown.
const MAX_RUNNING_LINES: usize = 8;
/// Maximum length of the progress bar. A longer bar is not easier to read.
const BAR_COLUMNS: usize = 48;
/// Width reserved for text such as `1,234/5,678  1m 02s, about 3m 04s left`.
const ESTIMATE_COLUMNS: usize = 36;

/// Data for drawing the live view once.
pub(super) struct LiveView<'a> {
    pub(super) progress: &'a DisplayProgress,
    pub(super) slow_after: Duration,
    pub(super) size: TerminalSize,
    pub(super) now: Instant,
}

impl LiveView<'_> {
    /// Returns the lines of the view, each no wider than the terminal.
    pub(super) fn lines(&self) -> Vec<StyledLine> {
        let counts = StyledLine::with_label(Style::Plain, "").join(self.progress.counts_line());
        let mut lines = vec![self.bar_line(), counts];
        let running = self.progress.running();
        let room = MAX_RUNNING_LINES.min(self.size.rows.saturating_sub(5));
        let shown = if running.len() > room { room.saturating_sub(1) } else { running.len() };
        lines.extend(running[..shown].iter().map(|one| self.running_line(one)));
        if running.len() > shown && room > 0 {
            let more = format!("+{} more", grouped_number(running.len() - shown));
            lines.push(StyledLine::with_label(Style::Dim, "").with(Style::Dim, more));
        }
        if !self.progress.waits().is_empty() {
            let columns = self.size.columns.saturating_sub(LABEL_COLUMNS + 2);
            let text = waits_text(self.progress.waits(), columns);
            lines.push(StyledLine::with_label(Style::Dim, "").with(Style::Dim, text));
        }
        // While tests wait, a slot is empty only for a moment. Keep the view's height so that it does not
        // jump.
        if self.progress.done() + running.len() < self.progress.total() {
            let slots = self.progress.head().workers.min(room);
            lines.resize(lines.len().max(slots + 2), StyledLine::new());
        }
        lines.truncate(self.size.rows.saturating_sub(1).max(1));
        lines.into_iter().map(|line| line.cut(self.size.columns.saturating_sub(1))).collect()
    }

    pub(super) fn running_lines(&self) -> Vec<StyledLine> {
        self.progress.running().into_iter().map(|one| self.running_line(one)).collect()
    }

    fn bar_line(&self) -> StyledLine {
        let progress = self.progress;
        let mut words = format!(
            "{}/{}  {}",
            grouped_number(progress.done()),
            grouped_number(progress.total()),
            format::rough_duration(progress.elapsed(self.now))
        );
        if let Some(left) = progress.remaining(self.now) {
            words.push_str(&format!(", about {} left", format::estimated_duration(left)));
        }
        let tone = if progress.counts().failing() > 0 { Style::Failure } else { Style::Success };
        let line = StyledLine::with_label(tone, &format!("{}%", progress.percent()));
        // The estimate comes and goes. Reserve space for it, so that the bar's length stays constant.
        let taken = LABEL_COLUMNS + 1 + 2 + words.len().max(ESTIMATE_COLUMNS) + 1;
        let room = self.size.columns.saturating_sub(taken).min(BAR_COLUMNS);
        let line = if room >= 8 { line.join(bar(progress, room)).with_plain("  ") } else { line };
        line.with(Style::Bold, words)
    }

    fn running_line(&self, one: &DisplayedTest) -> StyledLine {
        let label = format!("worker {}", one.worker);
        let ran = self.now.saturating_duration_since(one.since);
        let tone = if ran >= self.slow_after { Style::Warning } else { Style::Plain };
        let line = StyledLine::with_label(Style::Dim, &label)
            .with(tone, format!("{:>9}", format::rough_duration(ran)))
            .with_plain("  ");
        let columns = self.size.columns.saturating_sub(line.columns() + 1).max(8);
        line.join(running_name(one, self.progress.suites(), columns))
    }
}

/// Returns the progress bar: failed, passed, then remaining tests.
fn bar(progress: &DisplayProgress, columns: usize) -> StyledLine {
    let total = progress.total().max(1);
    // A single failure among thousands still gets a cell; the bar is full only when all tests are done.
    let bad = (progress.counts().failing() * columns).div_ceil(total).min(columns);
    let halves = (progress.done() * columns * 2 / total).max(bad * 2);
    let good = (halves / 2).saturating_sub(bad);
    let half = if halves % 2 == 1 { "╸" } else { "" };
    let rest = columns - bad - good - halves % 2;
    StyledLine::new()
        .with(Style::Failure, "━".repeat(bad))
        .with(Style::Success, format!("{}{half}", "━".repeat(good)))
        .with(Style::Dim, "─".repeat(rest))
}

/// Returns `suite name` of a running test, cut to `columns`.
pub(super) fn running_name(one: &DisplayedTest, suites: SuiteNames, columns: usize) -> StyledLine {
    let suite = one.suite.as_deref().filter(|_| suites == SuiteNames::Shown);
    let suite = suite.map(|suite| cut_name(suite, columns / 3));
    let left =
        suite.as_ref().map_or(columns, |suite| columns.saturating_sub(super::style::text_columns(suite) + 1));
    let name = StyledLine::new().with(Style::Bold, cut_name(&one.name, left));
    match suite {
        Some(suite) => StyledLine::new().with(Style::Suite, suite).with_plain(" ").join(name),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::display::{
        DisplayedWait, RunHead, StartedTest,
        status_lines::progress_line,
        style::{ColourMode, text_columns},
    };

    fn waiting_progress(now: Instant) -> DisplayProgress {
        let head = RunHead { tests: 12, programs: 1, workers: 4, ..RunHead::default() };
        let mut progress = DisplayProgress::new(head, now);
        let name = "migrates_the_schema".to_owned();
        progress.start(&StartedTest { uid: "s::m".into(), suite: None, name, worker: 1 }, now);
        let waits = [(5, "database"), (2, "4 slots"), (1, "setup_server")];
        let wait = |(tests, thing): (usize, &str)| DisplayedWait { tests, thing: thing.to_owned() };
        progress.set_waits(waits.map(wait).into());
        progress
    }

    fn rendered(lines: &[StyledLine]) -> Vec<String> {
        let render = |line: &StyledLine| {
            let mut out = String::new();
            line.render(ColourMode::Off, &mut out);
            out.trim().to_owned()
        };
        lines.iter().map(render).collect()
    }

    #[test]
    fn live_view_shows_waits_below_the_running_tests() {
        let now = Instant::now();
        let progress = waiting_progress(now);
        let shown = |columns| {
            let size = TerminalSize { columns, rows: 24 };
            let lines = LiveView { progress: &progress, slow_after: Duration::MAX, size, now }.lines();
            let lines = rendered(&lines);
            assert!(lines.iter().all(|line| text_columns(line) < columns), "{lines:?}");
            assert_eq!(lines.len(), 6, "the height stays that of the slots: {lines:?}");
            lines[3].clone()
        };
        assert_eq!(shown(80), "5 wait for database, 2 for 4 slots, 1 for setup_server");
        assert_eq!(shown(40), "5 wait for database, +2");
    }

    #[test]
    fn progress_line_of_a_log_names_the_waits() {
        let now = Instant::now();
        let line = rendered(&[progress_line(&waiting_progress(now), None, now)]);
        let waits = "5 wait for database, 2 for 4 slots, 1 for setup_server";
        assert!(line[0].ends_with(waits), "{line:?}");
    }
}
