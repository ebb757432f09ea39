//! The event stream of `--format json`: prints results to standard output as they arrive, each test once.

use std::{io::Write, time::Duration};

use heeler_core::Outcome;

use super::{
    arguments::RunFormat,
    display::RunHead,
    exit::{CliExitCode, CommandError},
};
use heeler_report::{RunEnded, RunEventLine, RunSummary, TestReport};

/// Buffered bytes that trigger a write.
const BUFFER_BYTES: usize = 64 << 10;

/// Prints the events of one run.
///
/// Writing does not fail: nothing is written after the first error, such as a closed pipe.
pub(super) struct RunEventPrinter {
    out: Box<dyn Write + Send>,
    /// Lines not yet written.
    buffer: Vec<u8>,
    is_closed: bool,
    run: Option<String>,
    totals: RunEnded<'static>,
}

impl RunEventPrinter {
    /// Returns the printer of the event stream if the format is JSON.
    pub(super) fn of(format: RunFormat) -> Option<Self> {
        (format == RunFormat::Json).then(|| Self::new(Box::new(std::io::stdout())))
    }

    fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out, buffer: Vec::new(), is_closed: false, run: None, totals: RunEnded::default() }
    }

    /// Prints the start of a run.
    pub(super) fn begin(&mut self, head: &RunHead) {
        self.run = Some(head.run.clone());
        self.totals.test_count = head.tests;
        self.totals.filtered_out = head.filtered;
        self.push(&RunEventLine::run_started(&head.run, head.tests));
        self.flush();
    }

    /// Prints the start of a test.
    pub(super) fn print_start(&mut self, uid: &str, suite: Option<&str>) {
        self.push(&RunEventLine::test_started(uid, suite));
    }

    /// Prints the end of a test, or the failure of a program outside its tests. The start of a short test
    /// may not have been reported, and is then printed first.
    pub(super) fn print_end(&mut self, report: &TestReport, is_started: bool) {
        // A group's event is a result only if the group itself failed.
        if report.is_group && !report.outcome.is_failure() {
            return;
        }
        if !is_started && !report.is_group && !matches!(report.outcome, Outcome::NotRun(_)) {
            self.print_start(&report.uid, report.suite.as_deref());
        }
        self.push(&RunEventLine::test_ended(report));
    }

    /// Sets the totals of the last line.
    pub(super) fn set_totals(&mut self, summary: &RunSummary, duration: Duration) {
        let filtered_out = self.totals.filtered_out;
        self.totals = RunEnded { filtered_out, ..RunEnded::of_summary(summary, duration) };
    }

    /// Sets the error of the last line.
    pub(super) fn set_error(&mut self, text: &str) {
        self.totals.error = Some(text.to_owned());
    }

    /// Prints the last line: the totals, and how the command ended.
    pub(super) fn end(mut self, result: &Result<CliExitCode, CommandError>) {
        let totals = std::mem::take(&mut self.totals);
        let run = self.run.take();
        let (exit_code, error) = match result {
            Ok(code) => (*code, totals.error.clone()),
            Err(error) => (error.exit_code(), Some(heeler_core::error_chain(error))),
        };
        let is_ok = totals.failed + totals.failed_programs + totals.not_run + totals.cancelled == 0;
        let ended = RunEnded { run: run.as_deref(), exit_code: exit_code as u8, error, ..totals };
        self.push(&RunEventLine::run_ended(ended, is_ok && exit_code == CliExitCode::Success));
        self.flush();
    }

    fn push(&mut self, event: &RunEventLine<'_>) {
        if self.is_closed {
            return;
        }
        serde_json::to_writer(&mut self.buffer, event).expect("the types of the events are JSON");
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Writes the complete lines.
    pub(super) fn flush(&mut self) {
        if !self.is_closed && !self.buffer.is_empty() {
            let written = self.out.write_all(&self.buffer).and_then(|()| self.out.flush());
            self.is_closed = written.is_err();
        }
        self.buffer.clear();
    }
}
