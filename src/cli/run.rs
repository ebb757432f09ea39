//! `heeler run`: discovers, selects, runs, displays and reports tests.

use std::{
    borrow::Cow,
    io::IsTerminal as _,
    os::fd::AsFd as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_protocol::mtp::LogLevel;
use uuid::Uuid;

use super::{
    arguments::{GeneralArguments, RunArguments, ShownResultArguments},
    command_user::CommandUser,
    display::{
        DisplayOptions, DisplayStream, OutputTarget, ProgramTestCount, RunDisplay, TypedLineSource, count_of,
        is_read_by_agent,
    },
    exit::{CliExitCode, CommandError},
    filter_tip::meant_expression,
    local_client::{LocalClient, LocalRun, SchedulerUse},
    report_job::passed_outputs,
    rerun::{self, RerunPlan},
    run_events::RunEventPrinter,
    run_output::{EndedRun, RunOutput, run_display_options, with_run_events},
    run_view::{Answer, RunView},
    select::{RunSelection, check_filters, is_unlisted_program},
    sources::{DebugData, NamedSources, find_sources},
    suites::with_chosen_suites,
};
use heeler_config::{
    CaptureStrategy, FailLimit, OutputTiming, ResolvedSettings, RunIgnored, ShuffleMode, filter::Filter,
};
use heeler_core::NotRunReason;
use heeler_report::{ReportRequest, RunSummary, RunVerdict};
use heeler_run_store::RunTimes;
use heeler_server::discovery::{Catalogue, ProgramEntry};
use heeler_server::pool::WorkerStdout;

/// A time limit longer than any debugging session.
const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs tests and reports their results.
pub(super) async fn run(arguments: &RunArguments) -> Result<CliExitCode, CommandError> {
    with_run_events(arguments.format, async |events| run_tests(arguments, events).await).await
}

async fn run_tests(
    arguments: &RunArguments,
    events_out: Option<&mut RunEventPrinter>,
) -> Result<CliExitCode, CommandError> {
    // Load the settings.
    let began = Instant::now();
    let config = super::configuration::load_config(arguments.general.config_file.as_deref())?;
    let mut settings =
        ResolvedSettings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?;
    let config = config.with_state_dir(&settings.state_dir);
    let rerun = RerunPlan::resolve(arguments.rerun.as_ref(), &settings)?;
    let programs = match &rerun {
        Some(rerun) => rerun.program_arguments(&arguments.programs),
        None => arguments.programs.clone(),
    };
    let config = with_chosen_suites(config, &programs, &settings).map_err(CommandError::Suites)?;
    if settings.run.shuffle == ShuffleMode::Random {
        settings.run.shuffle = ShuffleMode::Seed(random_seed());
    }
    if arguments.debugger.is_some() {
        // The user's time in a debugger is not limited.
        settings.run.debugger_timeout = UNLIMITED;
    }
    // This process writes the reports itself, so the scheduler must not write any.
    let reports = std::mem::take(&mut settings.run.reports);
    let settings = Arc::new(settings);
    check_filters(&settings)?;
    let options = display_options(arguments, &settings, events_out.is_some())?;
    let mut display = RunDisplay::new(options, DisplayStream::StandardError.writer());
    let mut say = |label: &str, words: &str| display.show_build_step(label, words, Instant::now());
    // Find and build the test programs.
    let named = NamedSources::of_existing(&programs).map_err(CommandError::Sources)?;
    let named = match &rerun {
        Some(rerun) => {
            rerun.check_programs()?;
            // The programs of the earlier run would replace the suites.
            if arguments.programs.suites.names.is_empty() { rerun.sources(named) } else { named }
        }
        None => named,
    };
    named.check_framework().map_err(CommandError::Sources)?;
    let provenance = rerun::provenance(&named, rerun.as_ref());
    let debug_data = if arguments.debugger.is_some() { DebugData::Kept } else { DebugData::Omitted };
    let sources = find_sources(&config, &named, debug_data, &mut say).map_err(CommandError::Sources)?;
    if sources.is_empty() {
        return Err(rerun.as_ref().map_or(CommandError::NothingToRun, RerunPlan::nothing_to_run));
    }
    // Start the scheduler, and run the tests.
    let user = CommandUser::listen()?;
    // Standard output is reserved for the event stream.
    let worker_stdout = match &events_out {
        Some(_) => WorkerStdout::StandardError,
        None => WorkerStdout::StandardOutput,
    };
    let run_id = Uuid::new_v4().to_string();
    let use_of = match arguments.is_no_run {
        true => SchedulerUse::List,
        false => SchedulerUse::Run { id: run_id.clone() },
    };
    let client = LocalClient::start(Arc::clone(&settings), sources, provenance, worker_stdout, use_of);
    let client = client.await.map_err(CommandError::Scheduler)?;
    let output = RunOutput::new(display, events_out, user);
    let mut view = RunView::new(client, output).with_debugger(arguments.debugger.clone());
    let exit = RunCommand {
        view: &mut view,
        settings: &settings,
        is_debugged: arguments.debugger.is_some(),
        run_id,
        is_no_run: arguments.is_no_run,
        is_explained: arguments.is_explained,
        began,
        has_no_doctests: arguments.programs.cargo_targets.has_no_doctests,
        rerun,
        reports,
        place_options: place_options(&arguments.general),
    }
    .run()
    .await;
    let Ok(Some(exit)) = exit else {
        // The user forced an immediate exit, or the scheduler has failed. The watchdog detects the exit and
        // cleans up.
        return exit.map(|_| CliExitCode::Aborted);
    };
    view.shut_down().await;
    Ok(exit)
}

fn display_options(
    arguments: &RunArguments,
    settings: &ResolvedSettings,
    has_event_stream: bool,
) -> Result<DisplayOptions, CommandError> {
    let mut options = run_display_options(&arguments.general, settings, has_event_stream);
    if settings.run.capture == CaptureStrategy::Shown && arguments.reporting.shown.failure_output.is_none() {
        // The output was already shown while the test ran.
        options.failure_output = OutputTiming::Never;
    }
    if is_display_brief(arguments, settings) {
        options = options.brief();
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

/// Returns whether the display may be brief: a coding agent reads it, and neither the command line nor the
/// configuration says what to display.
fn is_display_brief(arguments: &RunArguments, settings: &ResolvedSettings) -> bool {
    let shown = &arguments.reporting.shown;
    let is_chosen = *shown != ShownResultArguments::default()
        || arguments.reporting.is_output_shown
        || arguments.general.verbose > 0
        || arguments.debugger.is_some();
    let run = &settings.run;
    !is_chosen
        && run.status_level.is_none()
        && run.final_status_level.is_none()
        && run.success_output == OutputTiming::Never
        && run.failure_output == OutputTiming::Immediate
        && is_read_by_agent(|name| std::env::var(name).ok())
}

/// Returns the given options that set where runs are recorded, each after a blank.
fn place_options(general: &GeneralArguments) -> String {
    let options = [("--config-file", &general.config_file), ("--state-dir", &general.state_dir)];
    let given = options.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?)));
    let quoted = |(option, path): (&str, &PathBuf)| {
        let path = path.to_string_lossy();
        format!(" {option} {}", shlex::try_quote(&path).unwrap_or(Cow::Borrowed(&path)))
    };
    given.map(quoted).collect()
}

/// Returns the source of lines typed into the terminal on standard input; without a terminal, it returns
/// none.
fn typed_line_source() -> TypedLineSource {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Box::new(|| 0);
    }
    Box::new(move || heeler_sys::terminal::take_typed_lines(stdin.as_fd()).unwrap_or(0))
}

struct RunCommand<'a, 'e> {
    view: &'a mut RunView<'e>,
    settings: &'a ResolvedSettings,
    is_debugged: bool,
    run_id: String,
    /// `--no-run`: count the selected tests instead of running them.
    is_no_run: bool,
    /// `--explain`: explain the duration of the run.
    is_explained: bool,
    /// When the command began.
    began: Instant,
    /// Whether `--no-doc` is given.
    has_no_doctests: bool,
    rerun: Option<RerunPlan>,
    reports: Vec<ReportRequest>,
    /// Options of the command line that set where runs are recorded, for further commands.
    place_options: String,
}

impl RunCommand<'_, '_> {
    /// Returns the exit code; `None` when the user forces an immediate exit.
    async fn run(&mut self) -> Result<Option<CliExitCode>, CommandError> {
        self.view.output.display.show_phase("Listing", "tests", Instant::now());
        let catalogue = match self.view.discover().await? {
            Answer::Ended(catalogue) => catalogue,
            Answer::Cancelled => return Ok(Some(CliExitCode::Aborted)),
            Answer::Left => return Ok(None),
        };
        let tests: Vec<_> = catalogue.all().collect();
        let found = tests.iter().filter(|test| !is_unlisted_program(test)).count();
        if !tests.is_empty() && found == 0 {
            self.view.output.fail("could not list the tests of any program");
            return Ok(Some(CliExitCode::Setup));
        }
        // The listing has shown these errors; the run would report them again.
        let errors = tests.iter().filter_map(|test| catalogue.listing_error(*test));
        self.view.output.display.skip_known_errors(errors.map(str::to_owned));
        let selection = self.view.output.select(&catalogue, tests, self.rerun.as_ref(), self.settings)?;
        let Some(selection) = selection else { return Ok(Some(CliExitCode::ZeroTests)) };
        if self.is_no_run {
            return Ok(Some(self.end_without_run(&catalogue, &selection)));
        }
        if selection.chosen.is_empty() {
            self.view.output.fail(&describe_empty_selection(found, self.settings));
            return Ok(Some(CliExitCode::ZeroTests));
        }
        self.run_selected(&catalogue, selection).await
    }

    async fn run_selected(
        &mut self,
        catalogue: &Catalogue,
        selection: RunSelection,
    ) -> Result<Option<CliExitCode>, CommandError> {
        let run_id = self.run_id.clone();
        let head = selection.run_head(&run_id, self.settings, self.rerun.as_ref(), self.run_notes());
        let summary = RunSummary::new(Some(head.tests)).with_passed_outputs(passed_outputs(self.settings));
        self.view.output.begin(&head, summary);
        let RunSelection { chosen, shard, .. } = selection;
        let start_utc = heeler_run_store::wall_clock().to_string();
        let began = Instant::now();
        let is_debugged = self.is_debugged;
        let preparation = self.began.elapsed();
        let run = LocalRun { run_id: &run_id, catalogue, tests: &chosen, is_debugged, shard, preparation };
        let Answer::Ended(outcome) = self.view.run(run).await? else {
            let tests: Vec<_> = chosen.into_iter().filter(|test| !is_unlisted_program(test)).collect();
            self.view.output.interrupt(catalogue, &tests);
            self.finish(&run_id, RunTimes { start_utc, duration: began.elapsed() }, true).await?;
            return Ok(None);
        };
        self.view.output.summary.add_leaks(&outcome.result.leaks);
        self.view.output.summary.add_shared_processes(&outcome.result.largest);
        let stopped_by = outcome.stopped_by;
        let is_cancelled = stopped_by == Some(NotRunReason::Cancelled);
        let times = RunTimes { start_utc, duration: began.elapsed() };
        let summary = self.finish(&run_id, times, is_cancelled).await?;
        // A test that ran without its debugger is not a success.
        let has_debugger_failed = self.view.has_debugger_failed;
        Ok(summary.map(|summary| match exit_code_for(&summary, self.settings, stopped_by) {
            CliExitCode::Success if has_debugger_failed => CliExitCode::Setup,
            code => code,
        }))
    }

    /// Ends a command with `--no-run`: shows the programs and the number of selected tests of each.
    fn end_without_run(&mut self, catalogue: &Catalogue, selection: &RunSelection) -> CliExitCode {
        let without_tests = |entry: &ProgramEntry| ProgramTestCount {
            suite: entry.source.program.suite.clone(),
            path: entry.source.program.path.as_path().display().to_string(),
            tests: 0,
        };
        let mut programs: Vec<_> = catalogue.programs().iter().map(without_tests).collect();
        for test in selection.chosen.iter().filter(|test| !is_unlisted_program(test)) {
            programs[test.program].tests += 1;
        }
        let output = &mut self.view.output;
        output.display.show_listed_programs(&programs, selection.left_out, Instant::now());
        let errors = selection.chosen.iter().filter_map(|test| catalogue.listing_error(*test));
        let mut exit = CliExitCode::Success;
        for error in errors {
            output.display.log(LogLevel::Error, error);
            exit = CliExitCode::Setup;
        }
        exit
    }

    fn run_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let ShuffleMode::Seed(seed) = self.settings.run.shuffle {
            notes.push(format!("shuffled with seed {seed}"));
        }
        if let Some(times) = self.settings.program.repeat.filter(|times| times.get() > 1) {
            notes.push(format!("each test {times} times"));
        }
        match self.settings.program.stress_duration {
            Some(time) if time >= UNLIMITED => notes.push("repeated until the run is cancelled".to_owned()),
            Some(time) => notes.push(format!("repeated for {time:?}")),
            None => {}
        }
        notes
    }

    /// Returns the commands that show or run more, for the reader of a brief display.
    fn further_commands(&self) -> Vec<String> {
        let run: String = self.run_id.chars().take(8).collect();
        let mut commands = vec![format!("heeler report {run}{} --status-level all", self.place_options)];
        let summary = &self.view.output.summary;
        let rest = match (summary.counts().failing(), summary.not_run_count()) {
            (0, 0) => None,
            (0, _) => Some("not-run"),
            (_, _) => Some("failed"),
        };
        commands.extend(rest.map(|rest| format!("heeler run --rerun {rest}{}", self.place_options)));
        commands
    }

    async fn finish(
        &mut self,
        run_id: &str,
        seen: RunTimes,
        is_cancelled: bool,
    ) -> Result<Option<Arc<RunSummary>>, CommandError> {
        let mut problems = self.view.take_problems();
        if self.has_no_doctests {
            problems.push("documentation tests were not run (--no-doc)".to_owned());
        }
        let (settings, reports) = (self.settings, self.reports.clone());
        let commands = self.further_commands();
        let run = EndedRun {
            settings,
            reports,
            run_id,
            times: seen,
            problems,
            is_cancelled,
            commands,
            is_explained: self.is_explained,
        };
        self.view.output.finish(run).await
    }
}

/// Returns why none of `found` tests is selected, with the options that select tests.
pub(super) fn describe_empty_selection(found: usize, settings: &ResolvedSettings) -> String {
    if found == 0 {
        return "the programs have no tests".to_owned();
    }
    let filter = |filter: &Filter| {
        let text = filter.to_string();
        format!("-E {}", shlex::try_quote(&text).unwrap_or(Cow::Borrowed(&text)))
    };
    let mut options: Vec<String> = settings.filters.iter().map(filter).collect();
    options.extend(settings.partition.as_ref().map(|partition| format!("--partition {partition}")));
    if settings.program.run_ignored == RunIgnored::Only {
        options.push("--run-ignored only".to_owned());
    }
    let found = count_of(found, "test");
    if options.is_empty() {
        return format!("no test is selected ({found} found)");
    }
    let meant = settings.filters.iter().find_map(|filter| meant_expression(&filter.to_string()));
    let tip = meant.map_or_else(String::new, |meant| {
        format!(
            "; the filter was matched as part of a name; to use it as an expression: -E '{}'",
            meant.replace('\'', "'\\''")
        )
    });
    format!("no test matches {} ({found} found){tip}", options.join(" "))
}

pub(super) fn exit_code_for(
    summary: &RunSummary,
    settings: &ResolvedSettings,
    stopped_by: Option<NotRunReason>,
) -> CliExitCode {
    let is_at_limit = match settings.run.fail_limit() {
        FailLimit::Never => false,
        FailLimit::After { failures, .. } => summary.counts().failing() >= failures.get() as usize,
    };
    match summary.verdict() {
        _ if stopped_by == Some(NotRunReason::Cancelled) => CliExitCode::Aborted,
        RunVerdict::Failed | RunVerdict::Cancelled | RunVerdict::CountMismatch
            if stopped_by == Some(NotRunReason::TimeLimitReached) =>
        {
            CliExitCode::TimeLimit
        }
        RunVerdict::Failed | RunVerdict::Cancelled | RunVerdict::CountMismatch if is_at_limit => {
            CliExitCode::MaxFailures
        }
        RunVerdict::Passed => CliExitCode::Success,
        RunVerdict::NothingRan => CliExitCode::ZeroTests,
        RunVerdict::Cancelled => CliExitCode::Aborted,
        RunVerdict::Failed | RunVerdict::CountMismatch => CliExitCode::TestsFailed,
    }
}

/// Returns a random seed that people can type. Six digits suffice to distinguish orders.
fn random_seed() -> u64 {
    Uuid::new_v4().as_u64_pair().0 % 1_000_000
}
