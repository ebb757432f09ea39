//! Displays a run: receives events, decides what to print and when, and writes.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use heeler_protocol::mtp::LogLevel;

use super::{
    DisplayKind, DisplayOptions, ProgramTestCount, RunHead, Style, StyledLine, SummaryExtras,
    format::{self, NAME_COLUMNS, SuiteNames, grouped_number},
    github,
    listed_programs::listed_program_lines,
    live::{self, LiveView},
    progress::{DisplayProgress, StartedTest},
    same_failures::ShownFailures,
    screen::LiveScreen,
    status_lines::{head_line, phase_line, progress_line, wait_line},
    summary,
    test_line::{self, DetailLevel, ShownOutputs},
    waits::DisplayedWait,
};
use heeler_config::{OutputTiming, StatusLevel};
use heeler_core::Outcome;
use heeler_report::{ReportContent, RunSummary, TestReport, sanitise};

/// Minimum interval between redraws of the live view.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum size of lines that wait for the next redraw.
const PENDING_BYTES: usize = 256 * 1024;
/// A plain log of up to this many tests has a line per passed test. A longer log would not be read.
const MAX_TESTS_WITH_PASS_LINES: usize = 200;
/// A plain log prints its progress after this much silence, so that people and CI servers do not assume a
/// hang.
const PROGRESS_AFTER_SILENCE: Duration = Duration::from_secs(30);
/// Minimum interval of progress lines in a log without lines for passed tests. Such a log prints its
/// progress at each tenth of the tests.
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Displays one run. All calls come from one task; the display has no thread and no clock.
///
/// Writing does not fail: nothing is written after the first error, and [`RunDisplay::end`] returns that
/// error.
pub(crate) struct RunDisplay {
    options: DisplayOptions,
    out: Box<dyn Write + Send>,
    progress: Option<DisplayProgress>,
    phase: Option<(String, String)>,
    /// Text about other runs that this run waits for.
    machine_wait: Option<String>,
    screen: LiveScreen,
    /// Rendered lines with line ends, not yet written.
    pending: String,
    last_write: Option<Instant>,
    milestone: usize,
    annotations: usize,
    /// Messages of errors already shown, which are not shown again.
    known_errors: Vec<String>,
    shown_failures: ShownFailures,
    write_error: Option<io::Error>,
}

impl RunDisplay {
    /// Returns a display that has written nothing yet.
    #[must_use]
    pub(crate) fn new(options: DisplayOptions, out: Box<dyn Write + Send>) -> Self {
        Self {
            screen: LiveScreen::new(options.colour),
            options,
            out,
            progress: None,
            phase: None,
            machine_wait: None,
            pending: String::new(),
            last_write: None,
            milestone: 0,
            annotations: 0,
            known_errors: Vec::new(),
            shown_failures: ShownFailures::default(),
            write_error: None,
        }
    }

    /// Shows the current phase before the run begins: a label such as `Building` or `Listing`, and its
    /// object.
    pub(crate) fn show_phase(&mut self, label: &str, words: &str, now: Instant) {
        if self.options.is_brief {
            return;
        }
        if self.options.kind == DisplayKind::Live {
            self.phase = Some((label.to_owned(), words.to_owned()));
        } else {
            self.print_lines(&[phase_line(label, words)]);
        }
        self.flush(now);
    }

    /// Shows a build step before the run begins. The build tool may write to the terminal below the step.
    pub(crate) fn show_build_step(&mut self, label: &str, words: &str, now: Instant) {
        self.phase = None;
        self.print_lines(&[phase_line(label, words)]);
        self.flush(now);
    }

    /// Shows programs whose tests are listed but not run. `filtered`: number of their tests that are not
    /// selected.
    pub(crate) fn show_listed_programs(
        &mut self,
        programs: &[ProgramTestCount],
        filtered: usize,
        now: Instant,
    ) {
        self.phase = None;
        self.print_lines(&listed_program_lines(programs, filtered, &self.options.root));
        self.flush(now);
    }

    pub(crate) fn begin(&mut self, head: &RunHead, now: Instant) {
        let lines = head_line(head).wrapped(self.columns().saturating_sub(1));
        self.print_lines(&lines);
        self.progress = Some(DisplayProgress::new(head.clone(), now));
        self.phase = None;
        self.flush(now);
    }

    pub(crate) fn start_test(&mut self, test: &StartedTest, now: Instant) {
        if let Some(progress) = &mut self.progress {
            progress.start(test, now);
        }
        self.flush_if_due(now);
    }

    pub(crate) fn end_test(&mut self, report: &TestReport, now: Instant) {
        self.add_result(report, now);
        self.flush_if_due(now);
    }

    /// Shows that a test has ended and awaits its verdict.
    #[cfg(feature = "connect")]
    pub(crate) fn await_verdict(&mut self, uid: &str, now: Instant) {
        if let Some(progress) = &mut self.progress {
            progress.await_verdict(uid, now);
        }
    }

    /// Shows that tests wait for other runs, or no longer wait.
    pub(crate) fn show_machine_wait(&mut self, wait: Option<String>, now: Instant) {
        self.machine_wait = wait;
        self.flush_if_due(now);
    }

    /// Shows what tests wait for, instead of what they waited for before.
    pub(crate) fn show_waits(&mut self, waits: Vec<DisplayedWait>, now: Instant) {
        if let Some(progress) = &mut self.progress {
            progress.set_waits(waits);
        }
        self.flush_if_due(now);
    }

    /// Suppresses error messages with these texts from now on, since they have been shown.
    pub(crate) fn skip_known_errors(&mut self, texts: impl IntoIterator<Item = String>) {
        self.known_errors.extend(texts);
    }

    /// Shows a log message; the live view shows it with the next change or tick.
    pub(crate) fn log(&mut self, level: LogLevel, message: &str) {
        if level < self.options.log_level || self.known_errors.iter().any(|known| known == message) {
            return;
        }
        let (tone, label) = match level {
            LogLevel::Trace | LogLevel::Debug => (Style::Dim, "debug"),
            LogLevel::Information => (Style::Dim, "info"),
            LogLevel::Warning => (Style::Warning, "warning"),
            LogLevel::Error | LogLevel::Critical => (Style::Failure, "error"),
            LogLevel::None => return,
        };
        let lines =
            sanitise::sanitised_lines(message, sanitise::ColourPolicy::Dropped).into_iter().enumerate();
        let lines: Vec<StyledLine> = lines
            .map(|(place, line)| {
                StyledLine::with_label(tone, if place == 0 { label } else { "" }).with_plain(line)
            })
            .flat_map(|line| line.wrapped(self.columns().saturating_sub(1)))
            .collect();
        self.print_lines(&lines);
        if self.options.kind != DisplayKind::Live {
            self.write_pending();
        }
    }

    /// Handles a clock tick. Call this about ten times a second; the display decides whether to redraw.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.options.kind != DisplayKind::Live {
            self.answer_typed_lines(now);
            self.print_slow_tests(now);
            self.print_progress(now);
        }
        self.flush_if_due(now);
    }

    /// Stops the clock and removes the live view, because the user has suspended the process.
    pub(crate) fn pause(&mut self, now: Instant) {
        if let Some(progress) = &mut self.progress {
            progress.pause(now);
        }
        self.clear();
    }

    /// Removes the live view until the next change, because another program is about to write to the
    /// terminal.
    pub(crate) fn hide(&mut self) {
        self.clear();
    }

    /// Continues after [`RunDisplay::pause`].
    pub(crate) fn resume(&mut self, now: Instant) {
        if let Some(progress) = &mut self.progress {
            progress.resume(now);
        }
        self.flush(now);
    }

    /// Ends the run: removes the live view and prints the summary.
    ///
    /// # Errors
    /// Returns the first write error, such as a closed pipe; nothing after the error was written.
    pub(crate) fn end(&mut self, summary: &RunSummary, end: &SummaryExtras) -> io::Result<()> {
        let programs = self.progress.take().map_or(0, |progress| progress.head().programs);
        self.phase = None;
        let suites = SuiteNames::for_program_count(programs.max(summary.suite_count()));
        let level = self.options.final_status_level;
        let lines = summary::summary_lines(summary, end, level, &self.detail_level(suites));
        self.print_lines(&lines);
        self.clear();
        self.write_error.take().map_or(Ok(()), Err)
    }

    /// Returns whether a result gets a line on arrival, by its status level or because its output follows.
    fn is_shown(&self, outcome: Outcome, is_noteworthy: bool, has_output: bool) -> bool {
        let level = self.status_level();
        let is_success = matches!(outcome, Outcome::Passed | Outcome::Flaky);
        let is_output_shown = is_success && has_output && self.options.success_output.is_immediate();
        level >= result_status_level(outcome, is_noteworthy) || is_output_shown && level > StatusLevel::None
    }

    /// Shows the results of an ended run.
    pub(crate) fn show_results(&mut self, reports: impl IntoIterator<Item = TestReport>, now: Instant) {
        for report in reports {
            self.add_result(&report, now);
            if self.pending.len() > PENDING_BYTES {
                self.flush(now);
            }
        }
        self.flush(now);
    }

    fn add_result(&mut self, report: &TestReport, now: Instant) {
        if !self.progress.as_mut().is_some_and(|progress| progress.end(report, now)) {
            return;
        }
        let is_slow = report.duration.is_some_and(|took| took >= self.options.slow_after);
        if self.is_shown(report.outcome, is_slow || report.is_leaky(), report.has_output()) {
            self.print_result(report);
        }
    }

    fn print_result(&mut self, record: &TestReport) {
        let Some(progress) = &self.progress else { return };
        let total = grouped_number(progress.total());
        let place = format!("{:>width$}/{total}", grouped_number(progress.done()), width = total.len());
        let place = if record.is_group { String::new() } else { place };
        let suites = progress.suites();
        if !record.outcome.is_failure() || matches!(record.outcome, Outcome::NotRun(_)) {
            return self.print_unfailed(record, suites, &place);
        }
        let outputs = match self.options.failure_output {
            OutputTiming::Final => None,
            OutputTiming::Never => Some(ShownOutputs::Hidden),
            OutputTiming::Immediate | OutputTiming::ImmediateFinal => Some(ShownOutputs::Shown),
        };
        let earlier = outputs.and_then(|_| self.shown_failures.earlier(record));
        let manner = self.detail_level(suites);
        let line = test_line::result_line(record, &manner, &place);
        let line = manner.wrapped(test_line::folded(line, earlier.as_deref()));
        let block = outputs.filter(|_| earlier.is_none());
        let block = block.map(|outputs| test_line::failure_details(record, &manner, outputs));
        self.print_lines(&line);
        if let Some(block) = block {
            self.print_block(record, &block);
        }
        if self.options.kind == DisplayKind::GitHub && self.annotations < github::MAX_ANNOTATIONS {
            self.annotations += 1;
            self.print_workflow_command(&github::annotation(record, &self.options.root));
        }
    }

    /// Prints a result without failure details; leaked processes and output may follow.
    fn print_unfailed(&mut self, record: &TestReport, suites: SuiteNames, place: &str) {
        let manner = self.detail_level(suites);
        let line = manner.wrapped(test_line::result_line(record, &manner, place));
        let left = test_line::leaked_process_lines(record.leaked());
        let left = left.map(|line| StyledLine::with_label(Style::Warning, "left").join(line));
        let lines: Vec<_> = line.into_iter().chain(left).collect();
        let is_output_shown = record.has_passed() && self.options.success_output.is_immediate();
        let block =
            (is_output_shown && record.has_output()).then(|| test_line::output_sections(record, &manner));
        self.print_lines(&lines);
        if let Some(block) = block {
            self.print_block(record, &block);
        }
    }

    /// Prints a test's details or output, as a folded group on GitHub Actions.
    fn print_block(&mut self, record: &TestReport, block: &[StyledLine]) {
        if self.options.kind != DisplayKind::GitHub {
            return self.print_lines(block);
        }
        self.print_workflow_command(&github::group(record));
        self.print_lines(block);
        self.print_workflow_command(github::END_GROUP);
    }

    /// Returns whether outputs are printed at the end of a run. If so, [`RunDisplay::print_final_outputs`]
    /// needs the complete results.
    pub(crate) fn has_final_outputs(&self) -> bool {
        self.options.success_output.is_final() || self.options.failure_output.is_final()
    }

    /// Prints the outputs due at the end of a run: passed tests first, then failures. Call this before
    /// [`RunDisplay::end`].
    pub(crate) fn print_final_outputs(&mut self, content: &ReportContent<'_>, now: Instant) {
        let summary = content.summary;
        let programs = self.progress.as_ref().map_or(0, |progress| progress.head().programs);
        let suites = SuiteNames::for_program_count(programs.max(summary.suite_count()));
        let passed = summary.records().iter().filter(|record| record.has_passed());
        let passed = passed.filter(|_| self.options.success_output.is_final()).collect::<Vec<_>>();
        let failed = summary.failures().filter(|_| self.options.failure_output.is_final());
        let mut shown = ShownFailures::default();
        let all: Vec<&TestReport> = passed.into_iter().chain(failed).collect();
        for record in all.into_iter().filter(|record| record.detail.is_some()) {
            let whole = content.with_whole_detail(record);
            if whole.has_passed() && !whole.has_output() {
                continue;
            }
            let manner = self.detail_level(suites);
            let earlier = if whole.has_passed() { None } else { shown.earlier(&whole) };
            let line = test_line::result_line(&whole, &manner, "");
            let line = test_line::folded(line, earlier.as_deref());
            let line = manner.wrapped(line);
            let block = if earlier.is_some() {
                Vec::new()
            } else if whole.has_passed() {
                test_line::output_sections(&whole, &manner)
            } else {
                test_line::failure_details(&whole, &manner, ShownOutputs::Shown)
            };
            self.print_lines(&line);
            if !block.is_empty() {
                self.print_block(&whole, &block);
            }
            if self.pending.len() > PENDING_BYTES {
                self.flush(now);
            }
        }
    }

    fn print_slow_tests(&mut self, now: Instant) {
        if self.status_level() < StatusLevel::Slow {
            return;
        }
        let Some(progress) = &mut self.progress else { return };
        let slow = progress.newly_slow(now, self.options.slow_after);
        let suites = progress.suites();
        let lines: Vec<StyledLine> = slow
            .iter()
            .map(|one| {
                let ran = format!(">{:>8}", format::rough_duration(now.saturating_duration_since(one.since)));
                let line =
                    StyledLine::with_label(Style::Warning, "SLOW").with(Style::Warning, ran).with_plain("  ");
                let line = line.join(live::running_name(one, suites, NAME_COLUMNS));
                line.with(Style::Dim, format!("  (running in worker {})", one.worker))
            })
            .collect();
        self.print_lines(&lines);
    }

    /// Prints the progress in a log: at each tenth of the tests if passed tests have no line, and after a
    /// long silence.
    fn print_progress(&mut self, now: Instant) {
        let level = self.status_level();
        let Some(progress) = &self.progress else { return };
        if level == StatusLevel::None || self.options.is_brief || progress.done() == progress.total() {
            return;
        }
        let silence = self.last_write.map_or(Duration::MAX, |last| now.saturating_duration_since(last));
        let tenth = progress.percent() / 10;
        let is_milestone =
            level < StatusLevel::Pass && tenth > self.milestone && silence >= MIN_PROGRESS_INTERVAL;
        if !(is_milestone || silence >= PROGRESS_AFTER_SILENCE) {
            return;
        }
        self.milestone = tenth;
        let line = progress_line(progress, self.machine_wait.as_deref(), now);
        self.print_lines(&[line]);
    }

    fn status_level(&self) -> StatusLevel {
        let tests = self.progress.as_ref().map_or(0, |progress| progress.head().tests);
        self.options.status_level.unwrap_or(match self.options.kind {
            DisplayKind::Plain | DisplayKind::GitHub if tests <= MAX_TESTS_WITH_PASS_LINES => {
                StatusLevel::Pass
            }
            DisplayKind::Plain | DisplayKind::GitHub | DisplayKind::Live => StatusLevel::Slow,
        })
    }

    fn detail_level(&self, suites: SuiteNames) -> DetailLevel<'_> {
        DetailLevel {
            suites,
            colour: self.options.colour,
            root: &self.options.root,
            slow_after: self.options.slow_after,
            columns: self.columns(),
            is_brief: self.options.is_brief,
        }
    }

    /// Returns the terminal's width; unlimited for a log.
    fn columns(&self) -> usize {
        match self.options.kind {
            DisplayKind::Live => (self.options.size)().columns,
            DisplayKind::Plain | DisplayKind::GitHub => usize::MAX,
        }
    }

    fn print_lines(&mut self, lines: &[StyledLine]) {
        for line in lines {
            let mut rendered = String::new();
            line.render(self.options.colour, &mut rendered);
            if self.options.kind == DisplayKind::GitHub {
                rendered = github::escape_commands(rendered);
            }
            self.pending.push_str(rendered.trim_end_matches(' '));
            self.pending.push('\n');
        }
    }

    fn print_workflow_command(&mut self, command: &str) {
        self.pending.push_str(command);
        self.pending.push('\n');
    }

    fn flush_if_due(&mut self, now: Instant) {
        let is_due = match self.options.kind {
            DisplayKind::Plain | DisplayKind::GitHub => !self.pending.is_empty(),
            DisplayKind::Live => {
                self.last_write.is_none_or(|last| now.saturating_duration_since(last) >= REDRAW_INTERVAL)
                    || self.pending.len() > PENDING_BYTES
            }
        };
        if is_due {
            self.flush(now);
        }
    }

    fn flush(&mut self, now: Instant) {
        if self.options.kind == DisplayKind::Live {
            self.draw(now);
        } else {
            self.write_pending();
        }
        self.last_write = Some(now);
    }

    /// Reads the lines typed by the user, and prints the state of the run if there are any.
    fn answer_typed_lines(&mut self, now: Instant) {
        let typed = (self.options.typed_lines)();
        self.screen.move_down(typed);
        let Some(progress) = self.progress.as_ref().filter(|_| typed > 0) else { return };
        let view =
            LiveView { progress, slow_after: self.options.slow_after, size: (self.options.size)(), now };
        let line = progress_line(progress, self.machine_wait.as_deref(), now);
        let mut lines = line.wrapped(self.columns().saturating_sub(1));
        lines.extend(view.running_lines());
        self.print_lines(&lines);
    }

    fn draw(&mut self, now: Instant) {
        self.answer_typed_lines(now);
        let size = (self.options.size)();
        let mut view = match (&self.progress, &self.phase) {
            (Some(progress), _) => {
                LiveView { progress, slow_after: self.options.slow_after, size, now }.lines()
            }
            (None, Some((label, words))) => {
                vec![phase_line(label, words).cut(size.columns.saturating_sub(1))]
            }
            (None, None) => Vec::new(),
        };
        if let Some(wait) = self.machine_wait.as_deref().filter(|_| view.len() + 1 < size.rows) {
            view.push(wait_line(wait).cut(size.columns.saturating_sub(1)));
        }
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
        let typed = (self.options.typed_lines)();
        self.screen.move_down(typed);
        let above = std::mem::take(&mut self.pending);
        let bytes = self.screen.replace(&above, &[], (self.options.size)());
        self.write(&bytes);
    }

    fn write_pending(&mut self) {
        let text = std::mem::take(&mut self.pending);
        self.write(&text);
    }

    fn write(&mut self, text: &str) {
        if self.write_error.is_none() {
            let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
            self.write_error = written.err();
        }
    }
}

impl Drop for RunDisplay {
    /// Removes the live view even when a panic or an error ends the run early. Otherwise the next prompt
    /// would overlap the view.
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the lowest status level that prints a result. A slow or leaky pass is printed at a lower level
/// than other passes.
fn result_status_level(outcome: Outcome, is_noteworthy: bool) -> StatusLevel {
    match outcome {
        Outcome::Failed
        | Outcome::TimedOut
        | Outcome::Idle
        | Outcome::Crashed
        | Outcome::ExitedEarly
        | Outcome::OutOfMemory
        | Outcome::Lost
        | Outcome::Interrupted => StatusLevel::Fail,
        Outcome::Flaky => StatusLevel::Retry,
        Outcome::Passed if is_noteworthy => StatusLevel::Slow,
        Outcome::Passed => StatusLevel::Pass,
        // Tests that did not run are numerous and share one reason, so the summary groups them.
        Outcome::Skipped | Outcome::Cancelled | Outcome::NotRun(_) => StatusLevel::Skip,
    }
}
