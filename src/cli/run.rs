//! `heeler run`: discovers, selects, runs, displays and reports tests.

use std::{
    collections::BTreeSet,
    future::Future,
    io::IsTerminal as _,
    os::fd::AsFd as _,
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_protocol::mtp::{ExecutionState, LogLevel, TestNode, key};
use uuid::Uuid;

use super::{
    arguments::RunArguments,
    display::{
        DisplayKind, DisplayOptions, ListedProgram, OutputStream, OutputTarget, RunDisplay, RunHead,
        SummaryExtras, TypedLineSource,
    },
    exit::{CliExitCode, CommandError},
    in_process_server::{InProcessServer, ServerUse},
    report_job::{ReportJob, WrittenReports, passed_outputs},
    rerun::{self, RerunPlan},
    run_events::RunEventPrinter,
    run_view::{RunView, display_options},
    select::{TestSelection, check_filters, select},
    sources::{DebugData, NamedSources, check_programs_exist, find_sources},
};
use heeler_client::{ClientError, ClientOptions, TestRequest};
use heeler_config::{CaptureStrategy, FailLimit, OutputTiming, ResolvedSettings, ShuffleMode, StatusLevel};
use heeler_report::{ReportRequest, RunSummary, RunVerdict};
use heeler_run_store::RunTimes;
use heeler_server::discovery::ProgramSource;
use heeler_server::pool::WorkerStdout;

/// A time limit that no debugging session reaches.
const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs tests and reports their results.
pub(super) async fn run(arguments: &RunArguments) -> Result<CliExitCode, CommandError> {
    let mut events = RunEventPrinter::of(arguments.format);
    let result = run_tests(arguments, &mut events).await;
    if let Some(events) = events {
        events.end(&result);
    }
    result
}

async fn run_tests(
    arguments: &RunArguments,
    events_out: &mut Option<RunEventPrinter>,
) -> Result<CliExitCode, CommandError> {
    let config = super::configuration::load_config(arguments.general.config_file.as_deref())?;
    let mut settings =
        ResolvedSettings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?;
    let config = config.with_state_dir(&settings.state_dir);
    if settings.run.shuffle == ShuffleMode::Random {
        settings.run.shuffle = ShuffleMode::Seed(random_seed());
    }
    if arguments.debugger.is_some() {
        // The user's time in a debugger is not limited.
        settings.run.debugger_timeout = UNLIMITED;
    }
    // This process reports the run itself, with what it has displayed; the server writes none.
    let reports = std::mem::take(&mut settings.run.reports);
    let settings = Arc::new(settings);
    check_filters(&settings)?;
    let options = run_display_options(arguments, &settings, events_out.is_some())?;
    let mut display = RunDisplay::new(options, OutputStream::StandardError.writer());
    let mut say = |label: &str, words: &str| display.show_build_step(label, words, Instant::now());
    let rerun = RerunPlan::resolve(arguments.rerun.as_ref(), &settings)?;
    check_programs_exist(&arguments.programs).map_err(CommandError::Sources)?;
    let named = NamedSources::from_arguments(&arguments.programs);
    let named = match &rerun {
        Some(rerun) => {
            rerun.check_programs()?;
            rerun.sources(named)
        }
        None => named,
    };
    let provenance = rerun::provenance(&named, rerun.as_ref());
    let debug_data = if arguments.debugger.is_some() { DebugData::Kept } else { DebugData::Omitted };
    let sources = find_sources(&config, &named, debug_data, &mut say).map_err(CommandError::Sources)?;
    if sources.is_empty() {
        return Err(rerun.as_ref().map_or(CommandError::NothingToRun, RerunPlan::nothing_to_run));
    }
    let without_run = arguments.is_no_run.then(|| sources.iter().map(listed_program).collect());
    let signals = super::signals::SignalListener::listen().map_err(CommandError::Signals)?;
    let client = ClientOptions { debuggers: arguments.debugger.is_some(), ..ClientOptions::default() };
    // Standard output belongs to the event stream.
    let worker_stdout = match events_out {
        Some(_) => WorkerStdout::StandardError,
        None => WorkerStdout::StandardOutput,
    };
    let run_id = Uuid::new_v4().to_string();
    let use_of = if arguments.is_no_run { ServerUse::List } else { ServerUse::Run { id: run_id.clone() } };
    let start =
        InProcessServer::start(Arc::clone(&settings), sources, provenance, client, worker_stdout, use_of);
    let (here, events) = start.await.map_err(CommandError::Client)?;
    let mut watch = RunView::new(events, display, signals).with_debugger(arguments.debugger.clone());
    watch.run_events = events_out.take();
    let exit = RunCommand {
        here: &here,
        watch: &mut watch,
        settings: &settings,
        is_debug: arguments.debugger.is_some(),
        run_id,
        without_run,
        has_no_doctests: arguments.programs.cargo_targets.has_no_doctests,
        rerun,
        reports,
    }
    .run()
    .await;
    *events_out = watch.run_events.take();
    let Ok(Some(exit)) = exit else {
        // The user forced an immediate exit, or the session is broken: the watchdog detects the exit and
        // cleans up.
        return exit.map(|_| CliExitCode::Aborted);
    };
    here.shut_down(watch.into_events()).await.map_err(CommandError::Client)?;
    Ok(exit)
}

/// Returns how the run is displayed.
fn run_display_options(
    arguments: &RunArguments,
    settings: &ResolvedSettings,
    has_event_stream: bool,
) -> Result<DisplayOptions, CommandError> {
    let mut options = display_options(&arguments.general, settings, OutputStream::StandardError);
    if settings.run.capture == CaptureStrategy::Shown && arguments.reporting.shown.failure_output.is_none() {
        // It has been shown while the test ran.
        options.failure_output = OutputTiming::Never;
    }
    if has_event_stream
        && options.kind == DisplayKind::Live
        && OutputStream::StandardOutput.target() == OutputTarget::Terminal
    {
        // The lines of the event stream would be written into the live view.
        options.kind = DisplayKind::Plain;
    }
    if let Some(debugger) = &arguments.debugger {
        options.slow_after = UNLIMITED;
        if let Some(name) = debugger.missing_program() {
            return Err(CommandError::NoDebugger { name: name.to_owned() });
        }
    }
    if arguments.debugger.is_none() && OutputStream::StandardError.target() == OutputTarget::Terminal {
        options.typed_lines = typed_line_source();
    }
    Ok(options)
}

/// Returns the lines that are typed into the terminal on standard input; none if it is no terminal.
fn typed_line_source() -> TypedLineSource {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Box::new(|| 0);
    }
    Box::new(move || heeler_sys::terminal::take_typed_lines(stdin.as_fd()).unwrap_or(0))
}

struct RunCommand<'a> {
    here: &'a InProcessServer,
    watch: &'a mut RunView,
    settings: &'a ResolvedSettings,
    is_debug: bool,
    run_id: String,
    /// With `--no-run`, the programs whose tests are listed.
    without_run: Option<Vec<ListedProgram>>,
    /// `--no-doc` is given.
    has_no_doctests: bool,
    rerun: Option<RerunPlan>,
    reports: Vec<ReportRequest>,
}

impl RunCommand<'_> {
    /// Returns the exit code; `None` when the user forces an immediate exit.
    async fn run(&mut self) -> Result<Option<CliExitCode>, CommandError> {
        let nodes = match self.discover().await? {
            Some(Some(nodes)) => nodes,
            Some(None) => return Ok(Some(CliExitCode::Aborted)),
            None => return Ok(None),
        };
        if !nodes.is_empty() && nodes.iter().all(is_unlisted_program) {
            self.watch.fail("no program could be listed, so there is nothing to run");
            return Ok(Some(CliExitCode::Setup));
        }
        // They have been shown, and the run reports them once more.
        let errors = nodes.iter().filter(|node| is_unlisted_program(node));
        self.watch.display.skip_known_errors(errors.filter_map(|node| node.error_message.clone()));
        let found = nodes.iter().filter(|node| !is_unlisted_program(node)).count();
        let nodes = match &self.rerun {
            Some(rerun) => match rerun.select_nodes(nodes, &mut self.watch.display) {
                Ok(nodes) => nodes,
                Err(none) => {
                    self.watch.fail(&none);
                    return Ok(Some(CliExitCode::ZeroTests));
                }
            },
            None => nodes,
        };
        let selection = select(nodes, self.settings)?;
        if let Some(warning) = selection.split_warning {
            self.watch.display.log(LogLevel::Warning, warning);
        }
        if let Some(programs) = self.without_run.take() {
            return Ok(Some(self.end_without_run(programs, &selection)));
        }
        if selection.chosen.is_empty() {
            self.watch.fail(&describe_empty_selection(found));
            return Ok(Some(CliExitCode::ZeroTests));
        }
        let run_id = self.run_id.clone();
        // Programs that can't be listed are reported beside the tests and not counted as tests.
        let head = self.run_head(&run_id, &selection);
        let summary = RunSummary::new(Some(head.tests)).with_passed_outputs(passed_outputs(self.settings));
        self.watch.begin(&head, summary);
        let TestSelection { chosen, shard, .. } = selection;
        let only_uid = |uid| TestNode { uid, ..TestNode::default() };
        let tests = chosen.iter().map(|node| only_uid(node.uid.clone())).collect();
        let request = TestRequest {
            run_id: run_id.clone(),
            tests: Some(tests),
            is_debug: self.is_debug,
            shard,
            ..TestRequest::default()
        };
        let start_utc = heeler_run_store::wall_clock().to_string();
        let began = Instant::now();
        let Some(answer) = self.await_response(&run_id, self.here.client.run(request)).await else {
            self.watch.interrupt(chosen.iter().filter(|node| !is_unlisted_program(node)));
            let times = RunTimes { start_utc, duration: began.elapsed() };
            self.finish(&run_id, times, true).await?;
            return Ok(None);
        };
        if let Ok(result) = &answer {
            self.watch.summary.add_leaks(&result.leaks);
            self.watch.summary.add_shared_processes(&result.largest);
        }
        let is_cancelled = is_cancelled(answer)?;
        let times = RunTimes { start_utc, duration: began.elapsed() };
        let summary = self.finish(&run_id, times, is_cancelled).await?;
        // A test that ran without its debugger is not what was asked for.
        let has_debugger_failed = self.watch.has_debugger_failed;
        Ok(summary.map(|summary| match exit_code_for(&summary, self.settings, is_cancelled) {
            CliExitCode::Success if has_debugger_failed => CliExitCode::Setup,
            code => code,
        }))
    }

    /// Returns the discovered nodes. The inner option is `None` when the user cancelled, the outer one when
    /// the user forces an immediate exit.
    async fn discover(&mut self) -> Result<Option<Option<Vec<TestNode>>>, CommandError> {
        self.watch.display.show_phase("Listing", "tests", Instant::now());
        let nodes = discover(self.here, self.watch).await?;
        Ok(nodes)
    }

    /// Ends a command with `--no-run`: reports the programs and their selected tests.
    fn end_without_run(
        &mut self,
        mut programs: Vec<ListedProgram>,
        selection: &TestSelection,
    ) -> CliExitCode {
        let (broken, tests): (Vec<_>, Vec<_>) =
            selection.chosen.iter().partition(|node| is_unlisted_program(node));
        for node in tests {
            let suite = node.text_member(key::SUITE).unwrap_or_default();
            if let Some(program) = programs.iter_mut().find(|program| program.suite == suite) {
                program.tests += 1;
            }
        }
        self.watch.display.show_listed_programs(&programs, selection.left_out, Instant::now());
        for node in &broken {
            let text = node.error_message.as_deref().unwrap_or(&node.uid);
            self.watch.display.log(LogLevel::Error, text);
        }
        if broken.is_empty() { CliExitCode::Success } else { CliExitCode::Setup }
    }

    async fn await_response<T>(&mut self, run_id: &str, request: impl Future<Output = T>) -> Option<T> {
        self.watch.await_response(self.here, run_id, request).await
    }

    fn run_head(&self, run_id: &str, selection: &TestSelection) -> RunHead {
        let suite = |node: &TestNode| node.text_member(key::SUITE).map(ToOwned::to_owned);
        let programs: BTreeSet<_> = selection.chosen.iter().filter_map(suite).collect();
        let mut notes = Vec::new();
        if let ShuffleMode::Seed(seed) = self.settings.run.shuffle {
            notes.push(format!("shuffled with seed {seed}"));
        }
        if let Some(times) = self.settings.program.repeat.filter(|times| times.get() > 1) {
            notes.push(format!("each {times} times"));
        }
        match self.settings.program.stress_duration {
            Some(time) if time >= UNLIMITED => notes.push("repeated until the run is cancelled".to_owned()),
            Some(time) => notes.push(format!("repeated for {time:?}")),
            None => {}
        }
        if let Some(shard) = &selection.shard {
            notes.push(format!("partition {} of {}", shard.partition, shard.digest));
        }
        notes.extend(self.rerun.as_ref().map(RerunPlan::describe));
        let tests = selection.chosen.iter().filter(|node| !is_unlisted_program(node)).count();
        RunHead {
            run: run_id.to_owned(),
            tests,
            filtered: selection.left_out,
            programs: programs.len(),
            workers: self.settings.run.jobs.slots().get().min(tests),
            expected: selection.expected.clone(),
            notes,
        }
    }

    /// Writes the reports and prints the summary. The inner option is `None` when the user does not wait for
    /// a report that is being written.
    async fn finish(
        &mut self,
        run_id: &str,
        seen: RunTimes,
        is_cancelled: bool,
    ) -> Result<Option<Arc<RunSummary>>, CommandError> {
        let summary = Arc::new(std::mem::take(&mut self.watch.summary));
        let job = ReportJob::new(self.settings, self.reports.clone(), run_id, Arc::clone(&summary), seen);
        let duration = job.duration();
        if let Some(events) = &mut self.watch.run_events {
            events.set_totals(&summary, duration);
        }
        let WrittenReports { files, failed, is_left } = self.watch.finish_reports(job).await;
        // At the status level `all`, the slowest and largest tests are listed however small the values are.
        let slowest = (self.settings.run.status_level == Some(StatusLevel::All)).then_some(3);
        let mut problems = self.watch.take_problems();
        if self.has_no_doctests {
            problems.push("documentation tests were not run (--no-doc)".to_owned());
        }
        let end = SummaryExtras { duration, slowest, problems, files, is_cancelled };
        // A closed pipe (`heeler run | head`) is not a failure of the tests.
        let _closed = self.watch.display.end(&summary, &end);
        failed.map_or(Ok((!is_left).then_some(summary)), |error| Err(CommandError::Report(error)))
    }
}

fn listed_program(source: &ProgramSource) -> ListedProgram {
    let path = source.program.path.as_path().display().to_string();
    ListedProgram { suite: source.program.suite.clone(), path, tests: 0 }
}

/// Discovers all tests of a session. The inner option is `None` when the user cancelled, the outer one when
/// the user forces an immediate exit.
pub(super) async fn discover(
    here: &InProcessServer,
    watch: &mut RunView,
) -> Result<Option<Option<Vec<TestNode>>>, CommandError> {
    let run_id = Uuid::new_v4().to_string();
    let request = TestRequest { run_id: run_id.clone(), ..TestRequest::default() };
    let Some(answer) = watch.await_response(here, &run_id, here.client.discover(request)).await else {
        return Ok(None);
    };
    let nodes = watch.take_discovered();
    Ok(Some(if is_cancelled(answer)? { None } else { Some(nodes) }))
}

/// Returns whether a discovered node represents a program that could not be listed.
pub(super) fn is_unlisted_program(node: &TestNode) -> bool {
    node.state == Some(ExecutionState::Error)
}

fn is_cancelled<T>(answer: Result<T, ClientError>) -> Result<bool, CommandError> {
    match answer {
        Ok(_answer) => Ok(false),
        Err(error) if error.is_cancelled() => Ok(true),
        Err(error) => Err(CommandError::Client(error)),
    }
}

pub(super) fn describe_empty_selection(found: usize) -> String {
    match found {
        0 => "the programs have no tests".to_owned(),
        _ => {
            format!("none of the {found} tests is selected by the filters and the partition")
        }
    }
}

pub(super) fn exit_code_for(
    summary: &RunSummary,
    settings: &ResolvedSettings,
    is_cancelled: bool,
) -> CliExitCode {
    let is_at_limit = match settings.run.fail_limit() {
        FailLimit::Never => false,
        FailLimit::After { failures, .. } => summary.counts().failing() >= failures.get() as usize,
    };
    match summary.verdict() {
        _ if is_cancelled => CliExitCode::Aborted,
        RunVerdict::Failed | RunVerdict::Cancelled | RunVerdict::CountMismatch if is_at_limit => {
            CliExitCode::MaxFailures
        }
        RunVerdict::Passed => CliExitCode::Success,
        RunVerdict::NothingRan => CliExitCode::ZeroTests,
        RunVerdict::Cancelled => CliExitCode::Aborted,
        RunVerdict::Failed | RunVerdict::CountMismatch => CliExitCode::TestsFailed,
    }
}

/// Returns a random seed that people can type: six digits suffice to distinguish orders.
fn random_seed() -> u64 {
    Uuid::new_v4().as_u64_pair().0 % 1_000_000
}
