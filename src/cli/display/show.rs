//! The display itself: receives events, decides what is printed and when, and writes.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use wire::mtp::{Change, LogLevel, TestNode, key};

use super::{
    End, Kind, Line, Options, RunHead, Tone, closing,
    format::{self, NAME_COLUMNS, Suites, count_of, grouped},
    github,
    live::{self, View},
    progress::{Heard, Progress},
    result::{self, Manner},
    screen::Screen,
};
use crate::config::StatusLevel;
use crate::report::{Outcome, Record, Summary, text};

/// Minimum interval between redraws of the live view.
const REDRAW: Duration = Duration::from_millis(100);
/// Maximum size of the lines that wait for the next redraw.
const PENDING_BYTES: usize = 256 * 1024;
/// Up to this many tests, a plain log has a line for each passed test; a longer log would not be read.
const PASSES_TOLD: usize = 200;
/// A plain log prints its progress after this much silence, so that people and CI servers do not assume a
/// hang.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// A log without lines for passed tests prints its progress at each tenth of the tests, but at most once in
/// this interval.
const MILESTONE: Duration = Duration::from_secs(2);

/// Displays one run. All calls come from one task; the display has no thread and no clock.
///
/// Writing does not fail: after the first error nothing more is written, and [`Display::end`] returns the
/// error.
pub struct Display {
    options: Options,
    out: Box<dyn Write + Send>,
    progress: Option<Progress>,
    phase: Option<(String, String)>,
    screen: Screen,
    /// Rendered lines with their line ends, not yet written.
    pending: String,
    last_write: Option<Instant>,
    milestone: usize,
    annotations: usize,
    broken: Option<io::Error>,
}

impl Display {
    /// Returns a display that has written nothing yet.
    #[must_use]
    pub fn new(options: Options, out: Box<dyn Write + Send>) -> Self {
        Self {
            screen: Screen::new(options.colour),
            options,
            out,
            progress: None,
            phase: None,
            pending: String::new(),
            last_write: None,
            milestone: 0,
            annotations: 0,
            broken: None,
        }
    }

    /// Shows the current phase before the run begins: a label such as `Building` or `Listing`, and its
    /// object.
    pub fn phase(&mut self, label: &str, words: &str, now: Instant) {
        if self.options.kind == Kind::Live {
            self.phase = Some((label.to_owned(), words.to_owned()));
        } else {
            self.tell(&[phase_line(label, words)]);
        }
        self.flush(now);
    }

    /// Shows the beginning of a run.
    pub fn begin(&mut self, head: &RunHead, now: Instant) {
        self.tell(&[head_line(head)]);
        self.progress = Some(Progress::new(head.clone(), now));
        self.phase = None;
        self.flush(now);
    }

    /// Processes changes of tests.
    pub fn changes(&mut self, changes: &[Change], now: Instant) {
        for change in changes {
            self.change(&change.node, now);
        }
        self.flush_if_due(now);
    }

    /// Shows a log message. The live view shows it with the next changes or tick.
    pub fn log(&mut self, level: LogLevel, message: &str) {
        if level < self.options.log_level {
            return;
        }
        let (tone, label) = match level {
            LogLevel::Trace | LogLevel::Debug => (Tone::Dim, "debug"),
            LogLevel::Information => (Tone::Dim, "info"),
            LogLevel::Warning => (Tone::Warn, "warning"),
            LogLevel::Error | LogLevel::Critical => (Tone::Bad, "error"),
            LogLevel::None => return,
        };
        let lines = text::lines(message, text::Colours::Dropped).into_iter().enumerate();
        let lines: Vec<Line> = lines
            .map(|(place, line)| Line::labelled(tone, if place == 0 { label } else { "" }).and(line))
            .collect();
        self.tell(&lines);
        if self.options.kind != Kind::Live {
            self.write_pending();
        }
    }

    /// Advances the time. Call about ten times a second; the display decides whether to redraw.
    pub fn tick(&mut self, now: Instant) {
        if self.options.kind != Kind::Live {
            self.tell_slow(now);
            self.tell_standing(now);
        }
        self.flush_if_due(now);
    }

    /// Stops the clocks and removes the live view: the user has suspended the process.
    pub fn pause(&mut self, now: Instant) {
        if let Some(progress) = &mut self.progress {
            progress.pause(now);
        }
        self.clear();
    }

    /// Removes the live view until there is something to show: another program is about to write to the
    /// terminal.
    pub fn hide(&mut self) {
        self.clear();
    }

    /// Continues after [`Display::pause`].
    pub fn resume(&mut self, now: Instant) {
        if let Some(progress) = &mut self.progress {
            progress.resume(now);
        }
        self.flush(now);
    }

    /// Ends the run: removes the live view and prints the summary.
    ///
    /// # Errors
    /// The first write error, such as a closed pipe; everything after it was not written.
    pub fn end(&mut self, summary: &Summary, end: &End) -> io::Result<()> {
        let programs = self.progress.take().map_or(0, |progress| progress.head().programs);
        self.phase = None;
        let suites = Suites::of(programs.max(summary.suite_count()));
        let lines = closing::lines(summary, end, &self.manner(suites));
        self.tell(&lines);
        self.clear();
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Returns whether writing has failed, which means that the output has no reader any more.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    fn change(&mut self, node: &TestNode, now: Instant) {
        let Some(progress) = &mut self.progress else { return };
        match progress.apply(node, now) {
            Heard::Nothing | Heard::Began => {}
            Heard::Ended(outcome) => {
                let took = Duration::try_from_secs_f64(node.duration_ms.unwrap_or(0.0) / 1000.0);
                let is_slow = took.is_ok_and(|took| took >= self.options.slow_after);
                let is_noteworthy = is_slow || node.other.contains_key(key::LEAKED);
                if self.level() >= level_of(outcome, is_noteworthy)
                    && let Some(record) = Record::new(node)
                {
                    self.tell_result(&record);
                }
            }
        }
    }

    fn tell_result(&mut self, record: &Record) {
        let Some(progress) = &self.progress else { return };
        let total = grouped(progress.total());
        let place = format!("{:>width$}/{total}", grouped(progress.done()), width = total.len());
        let place = if record.is_group { String::new() } else { place };
        let manner = self.manner(progress.suites());
        let line = result::line(record, &manner, &place);
        if !record.outcome.is_bad() || record.outcome == Outcome::NotRun {
            let left = result::left_behind(record.leaked());
            let left = left.map(|line| Line::labelled(Tone::Warn, "left").join(line));
            self.tell(&std::iter::once(line).chain(left).collect::<Vec<_>>());
            return;
        }
        let block = result::block(record, &manner);
        self.tell(&[line]);
        if self.options.kind != Kind::GitHub {
            self.tell(&block);
            return;
        }
        self.command(&github::group(record));
        self.tell(&block);
        self.command(github::END_GROUP);
        if self.annotations < github::ANNOTATIONS {
            self.annotations += 1;
            self.command(&github::annotation(record, &self.options.root));
        }
    }

    fn tell_slow(&mut self, now: Instant) {
        if self.level() < StatusLevel::Slow {
            return;
        }
        let Some(progress) = &mut self.progress else { return };
        let slow = progress.newly_slow(now, self.options.slow_after);
        let suites = progress.suites();
        let lines: Vec<Line> = slow
            .iter()
            .map(|one| {
                let ran = format!(">{:>8}", format::rough(now.saturating_duration_since(one.since)));
                let line = Line::labelled(Tone::Warn, "SLOW").with(Tone::Warn, ran).and("  ");
                let line = line.join(live::running_name(one, suites, NAME_COLUMNS));
                match one.worker {
                    Some(worker) => line.with(Tone::Dim, format!("  (runs in worker {worker})")),
                    None => line,
                }
            })
            .collect();
        self.tell(&lines);
    }

    /// Prints the progress in a log: at each tenth of the tests where passed tests have no line, and always
    /// after a long silence.
    fn tell_standing(&mut self, now: Instant) {
        let level = self.level();
        let Some(progress) = &self.progress else { return };
        if level == StatusLevel::None || progress.done() == progress.total() {
            return;
        }
        let silence = self.last_write.map_or(Duration::MAX, |last| now.saturating_duration_since(last));
        let tenth = progress.percent() / 10;
        let is_milestone = level < StatusLevel::Pass && tenth > self.milestone && silence >= MILESTONE;
        if !(is_milestone || silence >= HEARTBEAT) {
            return;
        }
        self.milestone = tenth;
        let line = standing(progress, now);
        self.tell(&[line]);
    }

    fn level(&self) -> StatusLevel {
        let tests = self.progress.as_ref().map_or(0, |progress| progress.head().tests);
        self.options.status_level.unwrap_or(match self.options.kind {
            Kind::Plain | Kind::GitHub if tests <= PASSES_TOLD => StatusLevel::Pass,
            Kind::Plain | Kind::GitHub | Kind::Live => StatusLevel::Slow,
        })
    }

    fn manner(&self, suites: Suites) -> Manner<'_> {
        Manner {
            suites,
            colour: self.options.colour,
            root: &self.options.root,
            slow_after: self.options.slow_after,
            columns: match self.options.kind {
                Kind::Live => (self.options.size)().columns,
                Kind::Plain | Kind::GitHub => usize::MAX,
            },
        }
    }

    fn tell(&mut self, lines: &[Line]) {
        for line in lines {
            let mut rendered = String::new();
            line.render(self.options.colour, &mut rendered);
            if self.options.kind == Kind::GitHub {
                rendered = github::defuse(rendered);
            }
            self.pending.push_str(rendered.trim_end_matches(' '));
            self.pending.push('\n');
        }
    }

    fn command(&mut self, command: &str) {
        self.pending.push_str(command);
        self.pending.push('\n');
    }

    fn flush_if_due(&mut self, now: Instant) {
        let is_due = match self.options.kind {
            Kind::Plain | Kind::GitHub => !self.pending.is_empty(),
            Kind::Live => {
                self.last_write.is_none_or(|last| now.saturating_duration_since(last) >= REDRAW)
                    || self.pending.len() > PENDING_BYTES
            }
        };
        if is_due {
            self.flush(now);
        }
    }

    fn flush(&mut self, now: Instant) {
        if self.options.kind == Kind::Live {
            self.draw(now);
        } else {
            self.write_pending();
        }
        self.last_write = Some(now);
    }

    fn draw(&mut self, now: Instant) {
        let size = (self.options.size)();
        let view = match (&self.progress, &self.phase) {
            (Some(progress), _) => View { progress, slow_after: self.options.slow_after, size, now }.lines(),
            (None, Some((label, words))) => {
                vec![phase_line(label, words).cut(size.columns.saturating_sub(1))]
            }
            (None, None) => Vec::new(),
        };
        let above = std::mem::take(&mut self.pending);
        let bytes = self.screen.replace(&above, &view, size);
        self.write(&bytes);
    }

    /// Removes the live view and writes the pending lines.
    fn clear(&mut self) {
        if self.screen.is_empty() {
            self.write_pending();
            return;
        }
        let above = std::mem::take(&mut self.pending);
        let bytes = self.screen.replace(&above, &[], (self.options.size)());
        self.write(&bytes);
    }

    fn write_pending(&mut self) {
        let text = std::mem::take(&mut self.pending);
        self.write(&text);
    }

    fn write(&mut self, text: &str) {
        if self.broken.is_none() {
            let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
            self.broken = written.err();
        }
    }
}

impl Drop for Display {
    /// Removes the live view, also when a panic or an error ends the run early, so that the next prompt
    /// appears below all printed lines.
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the lowest status level at which a result has a line; a slow or leaky pass has one at a lower
/// level.
fn level_of(outcome: Outcome, is_noteworthy: bool) -> StatusLevel {
    match outcome {
        Outcome::Failed | Outcome::Crashed | Outcome::TimedOut | Outcome::Error => StatusLevel::Fail,
        Outcome::Flaky => StatusLevel::Retry,
        Outcome::Passed if is_noteworthy => StatusLevel::Slow,
        Outcome::Passed => StatusLevel::Pass,
        // Tests that did not run are numerous and share one reason; the summary groups them.
        Outcome::Skipped | Outcome::Cancelled | Outcome::NotRun => StatusLevel::Skip,
    }
}

fn phase_line(label: &str, words: &str) -> Line {
    Line::labelled(Tone::Good, label).and(text::one_line(words))
}

fn head_line(head: &RunHead) -> Line {
    let mut words =
        format!(" of {} on {}", count_of(head.programs, "program"), count_of(head.workers, "worker"));
    if head.filtered > 0 {
        words.push_str(&format!(", {} filtered out", grouped(head.filtered)));
    }
    for note in &head.notes {
        words.push_str(&format!(", {}", text::one_line(note)));
    }
    let run: String = head.run.chars().take(8).collect();
    Line::labelled(Tone::Good, "Running")
        .with(Tone::Bold, count_of(head.tests, "test"))
        .and(words)
        .with(Tone::Dim, format!(" (run {})", text::one_line(&run)))
}

/// Returns a line such as `Running 4,000/20,000 (20%) in 12s, about 48s left: 3,998 passed, 2 failed;
/// longest: suite name (9.2s)`.
fn standing(progress: &Progress, now: Instant) -> Line {
    let mut words = format!(
        "{}/{} ({}%) in {}",
        grouped(progress.done()),
        grouped(progress.total()),
        progress.percent(),
        format::rough(progress.elapsed(now)),
    );
    if let Some(left) = progress.remaining(now) {
        words.push_str(&format!(", about {} left", format::estimate(left)));
    }
    let line =
        Line::labelled(Tone::Good, "Running").and(words).and(": ").join(format::counts(progress.counts()));
    let Some(longest) = progress.running().into_iter().next() else { return line };
    let ran = now.saturating_duration_since(longest.since);
    if ran < MILESTONE {
        return line;
    }
    let name = live::running_name(longest, progress.suites(), NAME_COLUMNS);
    line.and("; longest: ").join(name).and(format!(" ({})", format::rough(ran)))
}
