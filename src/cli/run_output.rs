//! Output of a run, from its head to its reports: the display, the events for programs and the summary. It
//! also listens for the user's signals. Every command that runs tests uses it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_config::{ResolvedSettings, StatusLevel};
#[cfg(feature = "connect")]
use heeler_protocol::mtp::{ExecutionState, key};
use heeler_protocol::mtp::{LogLevel, NodeChange, TestNode};
#[cfg(feature = "connect")]
use heeler_report::TestReport;
use heeler_report::{ReportRequest, RunSummary};
use heeler_run_store::RunTimes;
use tokio::time::{Interval, MissedTickBehavior};

use super::{
    arguments::{GeneralArguments, RunFormat},
    display::{DisplayKind, DisplayOptions, DisplayStream, OutputTarget, RunDisplay, RunHead, SummaryExtras},
    exit::{CliExitCode, CommandError},
    report_job::{ReportJob, WrittenReports},
    rerun::RerunPlan,
    run_events::RunEventPrinter,
    run_view::display_options,
    select::{RunSelection, select},
    signals::SignalListener,
};

/// Interval between display ticks.
const TICK: Duration = Duration::from_millis(100);

/// The user's side of a run.
pub(super) struct RunOutput<'a> {
    pub(super) display: RunDisplay,
    pub(super) summary: RunSummary,
    /// Where results are printed for programs, if they are.
    pub(super) events: Option<&'a mut RunEventPrinter>,
    pub(super) signals: SignalListener,
    pub(super) ticks: Interval,
}

/// A test that is running.
#[cfg(feature = "connect")]
pub(super) struct RunningTest<'a> {
    pub(super) uid: &'a str,
    pub(super) name: &'a str,
    pub(super) suite: &'a str,
    pub(super) worker: u32,
}

/// A run that is over.
pub(super) struct EndedRun<'a> {
    pub(super) settings: &'a ResolvedSettings,
    pub(super) reports: Vec<ReportRequest>,
    pub(super) run_id: &'a str,
    /// As this process has seen them.
    pub(super) times: RunTimes,
    /// What the summary warns of.
    pub(super) problems: Vec<String>,
    pub(super) is_cancelled: bool,
}

/// Runs a command that prints its results for programs as well, if that is its format.
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

/// Returns how a run is displayed.
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
        // The lines of the event stream would be written into the live view.
        options.kind = DisplayKind::Plain;
    }
    options
}

impl<'a> RunOutput<'a> {
    pub(super) fn new(
        display: RunDisplay,
        events: Option<&'a mut RunEventPrinter>,
        signals: SignalListener,
    ) -> Self {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self { display, summary: RunSummary::new(None), events, signals, ticks }
    }

    /// Selects the tests of a run. `None` if none of the tests exists that are to be run again, which is
    /// reported.
    pub(super) fn select(
        &mut self,
        nodes: Vec<TestNode>,
        rerun: Option<&RerunPlan>,
        settings: &ResolvedSettings,
    ) -> Result<Option<RunSelection>, CommandError> {
        let nodes = match rerun {
            Some(rerun) => match rerun.select_nodes(nodes, &mut self.display) {
                Ok(nodes) => nodes,
                Err(none) => {
                    self.fail(&none);
                    return Ok(None);
                }
            },
            None => nodes,
        };
        let selection = select(nodes, settings)?;
        if let Some(warning) = selection.split_warning {
            self.warn(warning);
        }
        Ok(Some(selection))
    }

    /// Begins a run: later results are counted in this summary.
    pub(super) fn begin(&mut self, head: &RunHead, summary: RunSummary) {
        self.summary = summary;
        if let Some(events) = &mut self.events {
            events.begin(head);
        }
        self.display.begin(head, Instant::now());
    }

    /// Shows that a test runs.
    #[cfg(feature = "connect")]
    pub(super) fn start_test(&mut self, test: &RunningTest<'_>) {
        let mut node = TestNode::test(test.uid, test.name, ExecutionState::InProgress);
        node.members.insert(key::SUITE.to_owned(), test.suite.into());
        node.members.insert(key::WORKER.to_owned(), test.worker.into());
        let change = [NodeChange { parent: None, node }];
        self.count(&change);
        self.display.apply_changes(&change, Instant::now());
    }

    /// Counts changes in the summary, and prints them for programs.
    pub(super) fn count(&mut self, changes: &[NodeChange]) {
        for change in changes {
            if let Some(events) = &mut self.events {
                events.print_change(&change.node, &self.summary);
            }
            self.summary.apply(std::slice::from_ref(change));
        }
        if let Some(events) = &mut self.events {
            events.flush();
        }
    }

    /// Shows that a test has ended, and awaits its verdict.
    #[cfg(feature = "connect")]
    pub(super) fn await_verdict(&mut self, uid: &str) {
        self.display.await_verdict(uid, Instant::now());
    }

    /// Shows the result of a test.
    #[cfg(feature = "connect")]
    pub(super) fn end_test(&mut self, report: TestReport) {
        if let Some(events) = &mut self.events {
            events.print_end(&report, self.summary.is_unfinished(&report.uid));
        }
        self.display.apply_reports([report.clone()], Instant::now());
        self.summary.add_reports([report]);
    }

    /// Ends a run that the user leaves at once: tests without a result are interrupted, or never ran.
    pub(super) fn interrupt<'t>(&mut self, selected: impl IntoIterator<Item = &'t TestNode>) {
        let ended = self.summary.records().len();
        self.summary.interrupt(selected);
        if let Some(events) = &mut self.events {
            // Those that have not started are not run.
            self.summary.records()[ended..].iter().for_each(|record| events.print_end(record, true));
        }
    }

    /// Writes the reports of a run and prints its summary. `None` when the user does not wait for a report
    /// that is being written.
    ///
    /// Cancel safe: no, as [`ReportJob::finish`].
    pub(super) async fn finish(
        &mut self,
        run: EndedRun<'_>,
    ) -> Result<Option<Arc<RunSummary>>, CommandError> {
        let EndedRun { settings, reports, run_id, times, problems, is_cancelled } = run;
        let summary = Arc::new(std::mem::take(&mut self.summary));
        let job = ReportJob::new(settings, reports, run_id, Arc::clone(&summary), times);
        let duration = job.duration();
        if let Some(events) = &mut self.events {
            events.set_totals(&summary, duration);
        }
        let WrittenReports { files, failed, is_left } =
            job.finish(&mut self.display, &mut self.signals).await;
        // At the status level `all`, the slowest and largest tests are listed however small the values are.
        let slowest = (settings.run.status_level == Some(StatusLevel::All)).then_some(3);
        let extras = SummaryExtras { duration, slowest, problems, files, is_cancelled };
        // A closed pipe (`heeler run | head`) is not a failure of the tests.
        let _closed = self.display.end(&summary, &extras);
        failed.map_or(Ok((!is_left).then_some(summary)), |error| Err(CommandError::Report(error)))
    }

    pub(super) fn tick(&mut self) {
        self.display.tick(Instant::now());
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.display.log(LogLevel::Warning, text);
    }

    /// Reports an error that ends the command.
    pub(super) fn fail(&mut self, text: &str) {
        self.display.log(LogLevel::Error, text);
        if let Some(events) = &mut self.events {
            events.set_error(text);
        }
    }
}
