//! `heeler run`: discovers, selects, runs, displays and reports tests.

use std::{
    future::Future,
    io::IsTerminal as _,
    os::fd::AsFd as _,
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_protocol::mtp::{LogLevel, TestNode, key};
use uuid::Uuid;

use super::{
    arguments::RunArguments,
    display::{DisplayOptions, DisplayStream, OutputTarget, ProgramTestCount, RunDisplay, TypedLineSource},
    exit::{CliExitCode, CommandError},
    in_process_server::{InProcessServer, ServerUse},
    report_job::passed_outputs,
    rerun::{self, RerunPlan},
    run_events::RunEventPrinter,
    run_output::{EndedRun, RunOutput, run_display_options, with_run_events},
    run_view::RunView,
    select::{RunSelection, check_filters, is_unlisted_program},
    sources::{DebugData, NamedSources, check_programs_exist, find_sources},
};
use heeler_client::{ClientError, ClientOptions, TestRequest};
use heeler_config::{CaptureStrategy, FailLimit, OutputTiming, ResolvedSettings, ShuffleMode};
use heeler_report::{ReportRequest, RunSummary, RunVerdict};
use heeler_run_store::RunTimes;
use heeler_server::discovery::ProgramSource;
use heeler_server::pool::WorkerStdout;

/// A time limit that no debugging session reaches.
const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs tests and reports their results.
pub(super) async fn run(arguments: &RunArguments) -> Result<CliExitCode, CommandError> {
    with_run_events(arguments.format, async |events| run_tests(arguments, events).await).await
}

async fn run_tests(
    arguments: &RunArguments,
    events_out: Option<&mut RunEventPrinter>,
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
    let options = display_options(arguments, &settings, events_out.is_some())?;
    let mut display = RunDisplay::new(options, DisplayStream::StandardError.writer());
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
    let worker_stdout = match &events_out {
        Some(_) => WorkerStdout::StandardError,
        None => WorkerStdout::StandardOutput,
    };
    let run_id = Uuid::new_v4().to_string();
    let use_of = if arguments.is_no_run { ServerUse::List } else { ServerUse::Run { id: run_id.clone() } };
    let start =
        InProcessServer::start(Arc::clone(&settings), sources, provenance, client, worker_stdout, use_of);
    let (here, events) = start.await.map_err(CommandError::Client)?;
    let output = RunOutput::new(display, events_out, signals);
    let mut watch = RunView::new(events, output).with_debugger(arguments.debugger.clone());
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
    let Ok(Some(exit)) = exit else {
        // The user forced an immediate exit, or the session is broken: the watchdog detects the exit and
        // cleans up.
        return exit.map(|_| CliExitCode::Aborted);
    };
    here.shut_down(watch.into_events()).await.map_err(CommandError::Client)?;
    Ok(exit)
}

/// Returns how the run is displayed.
fn display_options(
    arguments: &RunArguments,
    settings: &ResolvedSettings,
    has_event_stream: bool,
) -> Result<DisplayOptions, CommandError> {
    let mut options = run_display_options(&arguments.general, settings, has_event_stream);
    if settings.run.capture == CaptureStrategy::Shown && arguments.reporting.shown.failure_output.is_none() {
        // It has been shown while the test ran.
        options.failure_output = OutputTiming::Never;
    }
    if let Some(debugger) = &arguments.debugger {
        options.slow_after = UNLIMITED;
        if let Some(name) = debugger.missing_program() {
            return Err(CommandError::NoDebugger { name: name.to_owned() });
        }
    }
    if arguments.debugger.is_none() && DisplayStream::StandardError.target() == OutputTarget::Terminal {
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

struct RunCommand<'a, 'e> {
    here: &'a InProcessServer,
    watch: &'a mut RunView<'e>,
    settings: &'a ResolvedSettings,
    is_debug: bool,
    run_id: String,
    /// With `--no-run`, the programs whose tests are listed.
    without_run: Option<Vec<ProgramTestCount>>,
    /// `--no-doc` is given.
    has_no_doctests: bool,
    rerun: Option<RerunPlan>,
    reports: Vec<ReportRequest>,
}

impl RunCommand<'_, '_> {
    /// Returns the exit code; `None` when the user forces an immediate exit.
    async fn run(&mut self) -> Result<Option<CliExitCode>, CommandError> {
        let nodes = match self.discover().await? {
            Some(Some(nodes)) => nodes,
            Some(None) => return Ok(Some(CliExitCode::Aborted)),
            None => return Ok(None),
        };
        if !nodes.is_empty() && nodes.iter().all(is_unlisted_program) {
            self.watch.output.fail("no program could be listed, so there is nothing to run");
            return Ok(Some(CliExitCode::Setup));
        }
        // They have been shown, and the run reports them once more.
        let errors = nodes.iter().filter(|node| is_unlisted_program(node));
        self.watch.output.display.skip_known_errors(errors.filter_map(|node| node.error_message.clone()));
        let found = nodes.iter().filter(|node| !is_unlisted_program(node)).count();
        let selection = self.watch.output.select(nodes, self.rerun.as_ref(), self.settings)?;
        let Some(selection) = selection else { return Ok(Some(CliExitCode::ZeroTests)) };
        if let Some(programs) = self.without_run.take() {
            return Ok(Some(self.end_without_run(programs, &selection)));
        }
        if selection.chosen.is_empty() {
            self.watch.output.fail(&describe_empty_selection(found));
            return Ok(Some(CliExitCode::ZeroTests));
        }
        let run_id = self.run_id.clone();
        let head = selection.run_head(&run_id, self.settings, self.rerun.as_ref(), self.run_notes());
        let summary = RunSummary::new(Some(head.tests)).with_passed_outputs(passed_outputs(self.settings));
        self.watch.begin(&head, summary);
        let RunSelection { chosen, shard, .. } = selection;
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
            self.watch.output.interrupt(chosen.iter().filter(|node| !is_unlisted_program(node)));
            let times = RunTimes { start_utc, duration: began.elapsed() };
            self.finish(&run_id, times, true).await?;
            return Ok(None);
        };
        if let Ok(result) = &answer {
            self.watch.output.summary.add_leaks(&result.leaks);
            self.watch.output.summary.add_shared_processes(&result.largest);
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
        self.watch.output.display.show_phase("Listing", "tests", Instant::now());
        let nodes = discover(self.here, self.watch).await?;
        Ok(nodes)
    }

    /// Ends a command with `--no-run`: reports the programs and their selected tests.
    fn end_without_run(
        &mut self,
        mut programs: Vec<ProgramTestCount>,
        selection: &RunSelection,
    ) -> CliExitCode {
        let (broken, tests): (Vec<_>, Vec<_>) =
            selection.chosen.iter().partition(|node| is_unlisted_program(node));
        for node in tests {
            let suite = node.text_member(key::SUITE).unwrap_or_default();
            if let Some(program) = programs.iter_mut().find(|program| program.suite == suite) {
                program.tests += 1;
            }
        }
        self.watch.output.display.show_listed_programs(&programs, selection.left_out, Instant::now());
        for node in &broken {
            let text = node.error_message.as_deref().unwrap_or(&node.uid);
            self.watch.output.display.log(LogLevel::Error, text);
        }
        if broken.is_empty() { CliExitCode::Success } else { CliExitCode::Setup }
    }

    async fn await_response<T>(&mut self, run_id: &str, request: impl Future<Output = T>) -> Option<T> {
        self.watch.await_response(self.here, run_id, request).await
    }

    fn run_notes(&self) -> Vec<String> {
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
        notes
    }

    async fn finish(
        &mut self,
        run_id: &str,
        seen: RunTimes,
        is_cancelled: bool,
    ) -> Result<Option<Arc<RunSummary>>, CommandError> {
        let mut problems = self.watch.take_problems();
        if self.has_no_doctests {
            problems.push("documentation tests were not run (--no-doc)".to_owned());
        }
        let (settings, reports) = (self.settings, self.reports.clone());
        let run = EndedRun { settings, reports, run_id, times: seen, problems, is_cancelled };
        self.watch.output.finish(run).await
    }
}

fn listed_program(source: &ProgramSource) -> ProgramTestCount {
    let path = source.program.path.as_path().display().to_string();
    ProgramTestCount { suite: source.program.suite.clone(), path, tests: 0 }
}

/// Discovers all tests of a session. The inner option is `None` when the user cancelled, the outer one when
/// the user forces an immediate exit.
pub(super) async fn discover(
    here: &InProcessServer,
    watch: &mut RunView<'_>,
) -> Result<Option<Option<Vec<TestNode>>>, CommandError> {
    let run_id = Uuid::new_v4().to_string();
    let request = TestRequest { run_id: run_id.clone(), ..TestRequest::default() };
    let Some(answer) = watch.await_response(here, &run_id, here.client.discover(request)).await else {
        return Ok(None);
    };
    let nodes = watch.take_discovered();
    Ok(Some(if is_cancelled(answer)? { None } else { Some(nodes) }))
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
