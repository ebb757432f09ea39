//! Output of a run, from its first line to its reports: display, event stream and summary. Also receives the
//! user's signals. Every command that runs tests uses it.

use std::{
    io::{self, Write as _},
    sync::Arc,
    time::Instant,
};

use heeler_config::{ResolvedSettings, StatusLevel};
use heeler_protocol::mtp::LogLevel;
use heeler_report::{ReportRequest, RunSummary, TestReport};
use heeler_run_store::RunTimes;
use heeler_server::{
    discovery::{Catalogue, TestRef},
    scheduler::MachineWait,
};

use super::{
    arguments::{GeneralArguments, RunFormat},
    command_user::{CommandUser, stop_process},
    display::{
        DisplayKind, DisplayOptions, DisplayStream, DisplayedWait, OutputTarget, RunDisplay, RunHead,
        StartedTest, SummaryExtras, machine_wait_text, step_summary,
    },
    exit::{CliExitCode, CommandError},
    report_job::{ReportJob, WrittenReports},
    rerun::RerunPlan,
    run_events::RunEventPrinter,
    run_view::display_options,
    select::{RunSelection, select},
};

/// Output of a run for the user: display, summary and event stream.
pub(super) struct RunOutput<'a> {
    pub(super) display: RunDisplay,
    pub(super) summary: RunSummary,
    /// Printer of the event stream, if requested.
    pub(super) events: Option<&'a mut RunEventPrinter>,
    pub(super) user: CommandUser,
    /// Output held back while another program has the terminal.
    held: Option<Vec<HeldOutput>>,
}

enum HeldOutput {
    Started(StartedTest),
    Ended(Box<TestReport>),
    Log(LogLevel, String),
}

pub(super) struct EndedRun<'a> {
    pub(super) settings: &'a ResolvedSettings,
    pub(super) reports: Vec<ReportRequest>,
    pub(super) run_id: &'a str,
    /// Start and duration, as seen by this process.
    pub(super) times: RunTimes,
    /// Problems that the summary warns about.
    pub(super) problems: Vec<String>,
    pub(super) is_cancelled: bool,
    /// Commands that show or run what a brief display omits.
    pub(super) commands: Vec<String>,
    /// Whether to explain the duration of the run.
    pub(super) is_explained: bool,
}

/// Runs a command, with an event stream if its format requests one.
pub(super) async fn with_run_events(
    format: RunFormat,
    command: impl AsyncFnOnce(Option<&mut RunEventPrinter>) -> Result<CliExitCode, CommandError>,
) -> Result<CliExitCode, CommandError> {
    let mut events = RunEventPrinter::of(format);
    let result = command(events.as_mut()).await;
    if let Some(events) = events {
        events.end(&result);
    }
    result
}

pub(super) fn run_display_options(
    general: &GeneralArguments,
    settings: &ResolvedSettings,
    has_events: bool,
) -> DisplayOptions {
    let mut options = display_options(general, settings, DisplayStream::StandardError);
    if has_events
        && options.kind == DisplayKind::Live
        && DisplayStream::StandardOutput.target() == OutputTarget::Terminal
    {
        // Both outputs would mix on the terminal, so do without the live view.
        options.kind = DisplayKind::Plain;
    }
    options
}

/// Appends the summary of a run to the page of the job on GitHub Actions, if this process runs there.
fn append_step_summary(
    summary: &RunSummary,
    extras: &SummaryExtras,
    settings: &ResolvedSettings,
) -> io::Result<()> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_github = variable("GITHUB_ACTIONS").as_deref() == Some("true");
    let Some(path) = variable("GITHUB_STEP_SUMMARY").filter(|_| is_github) else { return Ok(()) };
    let root = std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default();
    let page = step_summary(summary, extras, settings.slow_after(), &root);
    std::fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(page.as_bytes())
}

impl<'a> RunOutput<'a> {
    pub(super) fn new(
        display: RunDisplay,
        events: Option<&'a mut RunEventPrinter>,
        user: CommandUser,
    ) -> Self {
        Self { display, summary: RunSummary::new(None), events, user, held: None }
    }

    /// Selects the tests of a run. `None` if none of the tests to rerun exists, which is reported.
    pub(super) fn select(
        &mut self,
        catalogue: &Catalogue,
        tests: Vec<TestRef>,
        rerun: Option<&RerunPlan>,
        settings: &ResolvedSettings,
    ) -> Result<Option<RunSelection>, CommandError> {
        let tests = match rerun {
            Some(rerun) => match rerun.select_tests(catalogue, tests, &mut self.display) {
                Ok(tests) => tests,
                Err(none) => {
                    self.fail(&none);
                    return Ok(None);
                }
            },
            None => tests,
        };
        let selection = select(catalogue, tests, settings)?;
        if let Some(warning) = selection.split_warning {
            self.warn(warning);
        }
        Ok(Some(selection))
    }

    /// Begins a run; later results are counted in this summary.
    pub(super) fn begin(&mut self, head: &RunHead, summary: RunSummary) {
        self.summary = summary;
        if let Some(events) = &mut self.events {
            events.begin(head);
        }
        self.display.begin(head, Instant::now());
    }

    /// Shows that a test has started, unless the test has ended.
    pub(super) fn start_test(&mut self, test: StartedTest) {
        if self.summary.start(&test.uid)
            && let Some(events) = &mut self.events
        {
            events.print_start(&test.uid, test.suite.as_deref());
        }
        self.show(HeldOutput::Started(test));
    }

    /// Shows a test's result.
    pub(super) fn end_test(&mut self, report: TestReport) {
        if let Some(events) = self.events.as_mut().filter(|_| !self.summary.has_ended(&report.uid)) {
            events.print_end(&report, self.summary.is_unfinished(&report.uid));
        }
        match &mut self.held {
            Some(held) => held.push(HeldOutput::Ended(Box::new(report.clone()))),
            None => self.display.end_test(&report, Instant::now()),
        }
        self.summary.add_reports([report]);
    }

    /// Writes the events waiting in the event stream.
    pub(super) fn flush_events(&mut self) {
        if let Some(events) = &mut self.events {
            events.flush();
        }
    }

    /// Hides the live view and holds output back until [`RunOutput::take_terminal_back`], because another
    /// program has the terminal.
    pub(super) fn lend_terminal(&mut self) {
        if self.held.is_none() {
            self.display.hide();
            self.held = Some(Vec::new());
        }
    }

    /// Shows the output held back.
    pub(super) fn take_terminal_back(&mut self) {
        for held in self.held.take().unwrap_or_default() {
            self.show(held);
        }
    }

    /// Shows what tests wait for.
    pub(super) fn show_waits(&mut self, waits: Vec<DisplayedWait>) {
        // The next change replaces what another program's screen would hide now.
        if self.held.is_none() {
            self.display.show_waits(waits, Instant::now());
        }
    }

    pub(super) fn log(&mut self, level: LogLevel, text: String) {
        self.show(HeldOutput::Log(level, text));
    }

    fn show(&mut self, output: HeldOutput) {
        if let Some(held) = &mut self.held {
            return held.push(output);
        }
        match output {
            HeldOutput::Started(test) => self.display.start_test(&test, Instant::now()),
            HeldOutput::Ended(report) => self.display.end_test(&report, Instant::now()),
            HeldOutput::Log(level, text) => self.display.log(level, &text),
        }
    }

    /// Shows that a test has ended and awaits its verdict.
    #[cfg(feature = "connect")]
    pub(super) fn await_verdict(&mut self, uid: &str) {
        self.display.await_verdict(uid, Instant::now());
    }

    /// Ends a run that the user aborts immediately: tests without a result are recorded as interrupted or not
    /// run.
    pub(super) fn interrupt(&mut self, catalogue: &Catalogue, selected: &[TestRef]) {
        let ended = self.summary.records().len();
        for test in selected {
            catalogue.with_description(*test, |test| self.summary.interrupt(test));
        }
        if let Some(events) = &mut self.events {
            // Tests that have not started are reported as not run.
            self.summary.records()[ended..].iter().for_each(|record| events.print_end(record, true));
        }
    }

    /// Writes the run's reports and prints its summary. `None` when the user does not wait for the reports.
    ///
    /// Cancel safe: no, because [`ReportJob::finish`] is not.
    pub(super) async fn finish(
        &mut self,
        run: EndedRun<'_>,
    ) -> Result<Option<Arc<RunSummary>>, CommandError> {
        let EndedRun { settings, reports, run_id, times, mut problems, is_cancelled, commands, is_explained } =
            run;
        let summary = Arc::new(std::mem::take(&mut self.summary));
        let job = ReportJob::new(settings, reports, run_id, Arc::clone(&summary), times);
        let duration = job.duration();
        if let Some(events) = &mut self.events {
            events.set_totals(&summary, duration);
        }
        let explanation = is_explained.then(|| job.explain()).transpose();
        let explanation = explanation.unwrap_or_else(|reason| {
            problems.push(format!("the duration can't be explained: {reason}"));
            None
        });
        let WrittenReports { files, failed, is_left } =
            job.finish(&mut self.display, &mut self.user.signals).await;
        // At the status level `all`, list the slowest and largest tests even if their values are small.
        let slowest = (settings.run.status_level == Some(StatusLevel::All)).then_some(3);
        let extras =
            SummaryExtras { duration, slowest, problems, files, commands, explanation, is_cancelled };
        if let Err(error) = append_step_summary(&summary, &extras, settings) {
            self.warn(&format!("failed to write the job summary ($GITHUB_STEP_SUMMARY): {error}"));
        }
        // A closed pipe (`heeler run | head`) is not a failure of the tests.
        let _closed = self.display.end(&summary, &extras);
        failed.map_or(Ok((!is_left).then_some(summary)), |error| Err(CommandError::Report(error)))
    }

    /// Shows that tests wait for slots of the machine, or no longer wait.
    pub(super) fn show_machine_wait(&mut self, wait: Option<&MachineWait>) {
        let home = std::env::var("HOME").ok();
        let text = wait.map(|wait| machine_wait_text(wait.missing, &wait.others, home.as_deref()));
        if self.held.is_none() {
            self.display.show_machine_wait(text, Instant::now());
        }
    }

    pub(super) fn tick(&mut self) {
        if self.held.is_none() {
            self.display.tick(Instant::now());
        }
    }

    /// Stops this process until the user continues it. The caller has stopped the test processes.
    pub(super) fn pause(&mut self) {
        self.display.pause(Instant::now());
        stop_process();
        self.display.resume(Instant::now());
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.log(LogLevel::Warning, text.to_owned());
    }

    /// Shows an error that ends the command.
    pub(super) fn fail(&mut self, text: &str) {
        self.log(LogLevel::Error, text.to_owned());
        if let Some(events) = &mut self.events {
            events.set_error(text);
        }
    }
}
