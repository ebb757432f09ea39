//! `heeler connect run`: lists the judge's cases, selects some, has the judge run them, retries failures,
//! and reports.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroU32,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_config::{Config, ResolvedSettings};
use heeler_core::{Attempt, NotRunReason, Outcome, TestId, TestResult, retry_random};
use heeler_report::{ReportRequest, RunSummary};
use heeler_run_store::{DIR_NAME, Provenance, RunTimes};
use heeler_server::{
    connect::FRAMEWORK,
    discovery::TestSelection,
    listen::SessionOptions,
    pool::WorkerStdout,
    run::{ComposedRun, ComposedRunEnd, PlanContext, PreparedRun, RunRequest, prepare_run},
    scheduler::{SchedulerHandle, SchedulerOptions, SchedulerTask},
};
use uuid::Uuid;

use super::{
    client_settings, jobs_of,
    judge::{JudgeCommand, JudgeError, JudgedCases},
    judge_command,
    list::{CaseList, list_selectable, uids_of},
    program_of,
    reproduce::Reproduction,
    round::{Round, RoundContext, RoundStop, run_judge},
    verdicts::{UnjudgedReason, attempt_of, final_result, judged_results, unjudged_results},
};
use crate::cli::{
    arguments::ConnectRunArguments,
    command_user::{CommandUser, UserEvent},
    configuration::load_config,
    display::{DisplayStream, RunDisplay},
    exit::{CliExitCode, CommandError},
    report_job::passed_outputs,
    rerun::{self, RerunPlan},
    run::{describe_empty_selection, exit_code_for},
    run_events::RunEventPrinter,
    run_output::{EndedRun, RunOutput, run_display_options, with_run_events},
    select::{RunSelection, check_filters},
    signals::SignalRequest,
    sources::NamedSources,
};

/// Directory below the run's directory for the runs of client processes. Their evidence stays there.
const PARTS_DIR: &str = "parts";
/// Directory of a run's evidence.
const EVIDENCE_DIR: &str = "evidence";
/// Time limit for all processes to end after the judge's last run.
const SCHEDULER_END_LIMIT: Duration = Duration::from_secs(10);

/// Runs the cases and reports their results.
pub(super) async fn run(arguments: &ConnectRunArguments) -> Result<CliExitCode, CommandError> {
    with_run_events(arguments.format, async |events| run_cases(arguments, events).await).await
}

async fn run_cases(
    arguments: &ConnectRunArguments,
    events: Option<&mut RunEventPrinter>,
) -> Result<CliExitCode, CommandError> {
    let config = load_config(arguments.client.general.config_file.as_deref())?;
    let mut settings =
        ResolvedSettings::resolve(&config, run_command_line(arguments)).map_err(CommandError::Profile)?;
    check_filters(&settings)?;
    let reports = std::mem::take(&mut settings.run.reports);
    let judge = judge_command(&arguments.judge)?;
    let source = program_of(&arguments.client)?;
    let rerun = RerunPlan::resolve(arguments.rerun.as_ref(), &settings)?;
    let options = run_display_options(&arguments.client.general, &settings, events.is_some());
    let display = RunDisplay::new(options, DisplayStream::StandardError.writer());
    let mut output = RunOutput::new(display, events, CommandUser::listen()?);
    output.display.show_phase("Listing", "conformance cases", Instant::now());
    let listed = list_selectable(&arguments.judge, &judge, source, &mut output.user.signals).await?;
    let Some(cases) = listed else { return Ok(CliExitCode::Aborted) };
    let tests = cases.selectable();
    let found = tests.len();
    let Some(selection) = output.select(&cases.catalogue, tests, rerun.as_ref(), &settings)? else {
        return Ok(CliExitCode::ZeroTests);
    };
    if selection.chosen.is_empty() {
        output.fail(&describe_empty_selection(found, &settings));
        return Ok(CliExitCode::ZeroTests);
    }
    let run = ConnectRun { arguments, config: &config, settings, reports, judge, cases, rerun };
    run.run(&selection, &mut output).await
}

fn run_command_line(arguments: &ConnectRunArguments) -> heeler_config::CommandLineSettings {
    let mut command_line = arguments.command_line();
    command_line.run.jobs = Some(jobs_of(&arguments.client));
    command_line.tests = heeler_config::TestLayer {
        retries: arguments.retries,
        flaky_result: arguments.flaky_result,
        ..super::case_settings(&arguments.client)
    };
    command_line
}

struct ConnectRun<'a> {
    arguments: &'a ConnectRunArguments,
    config: &'a Config,
    settings: ResolvedSettings,
    reports: Vec<ReportRequest>,
    judge: JudgeCommand,
    cases: CaseList,
    rerun: Option<RerunPlan>,
}

/// Results of all runs of the judge.
struct JudgedRun {
    /// Result of each test, in the order of the plan.
    results: Vec<TestResult>,
    stop: Option<RoundStop>,
}

impl ConnectRun<'_> {
    async fn run(
        self,
        selection: &RunSelection,
        output: &mut RunOutput<'_>,
    ) -> Result<CliExitCode, CommandError> {
        // Record the start of the run.
        let began = Instant::now();
        let start_utc = heeler_run_store::wall_clock().to_string();
        let run_id = Uuid::new_v4().to_string();
        let record = self.begin_record(&run_id, selection, output)?;
        let head = selection.run_head(&run_id, &self.settings, self.rerun.as_ref(), Vec::new());
        let outputs = passed_outputs(&self.settings);
        output.begin(&head, RunSummary::new(Some(head.tests)).with_passed_outputs(outputs));
        // Start the scheduler, and have the judge run the cases.
        let parts_dir = record.dir().join(PARTS_DIR);
        let (scheduler, scheduler_task, session) = self.start_scheduler(&parts_dir)?;
        let uids = uids_of(&self.cases.catalogue);
        let suite = self.cases.catalogue.programs()[0].source.program.suite.clone();
        let time_limit = self.settings.run.run_timeout.duration();
        let context = RoundContext {
            judge: &self.judge,
            session,
            scheduler,
            uids: &uids,
            suite: &suite,
            silence_limit: self.arguments.judge_timeout,
            deadline: time_limit.map(|limit| (began + limit).into()),
        };
        let rounds = CaseRounds::new(&record, self.reproduction(), &self.judge, &self.cases.known_failing);
        let JudgedRun { results, stop } = run_rounds(&context, &self.cases, rounds, output).await;
        drop(context);
        if matches!(stop, Some(RoundStop::Left)) {
            // The watchdog detects the exit and cleans up.
            return Ok(CliExitCode::Aborted);
        }
        // End all processes, then record the end of the run.
        scheduler_task.join(SCHEDULER_END_LIMIT).await;
        let duration = began.elapsed();
        let stopped_by = stop.as_ref().and_then(stop_reason);
        let end = ComposedRunEnd {
            results: &results,
            stopped_by,
            duration,
            is_history_kept: self.settings.run.is_history_kept,
        };
        for warning in record.end(&end) {
            output.warn(&warning);
        }
        // Write the reports and the summary.
        remove_parts(&parts_dir);
        let is_cancelled = matches!(stop, Some(RoundStop::Cancelled));
        let run = EndedRun {
            settings: &self.settings,
            reports: self.reports,
            run_id: &run_id,
            times: RunTimes { start_utc, duration },
            problems: Vec::new(),
            is_cancelled,
            commands: Vec::new(),
            is_explained: false,
        };
        let summary = output.finish(run).await?;
        let exit = summary
            .map_or(CliExitCode::Aborted, |summary| exit_code_for(&summary, &self.settings, stopped_by));
        match stop {
            Some(RoundStop::Judge(error)) => Err(CommandError::Judge(error)),
            _ => Ok(exit),
        }
    }

    /// Creates the run's directory and records the start of the run.
    fn begin_record(
        &self,
        run_id: &str,
        selection: &RunSelection,
        output: &mut RunOutput<'_>,
    ) -> Result<ComposedRun, CommandError> {
        let named = NamedSources {
            framework: Some(FRAMEWORK.to_owned()),
            program_args: self.arguments.client.command.clone(),
            ..NamedSources::default()
        };
        let provenance = rerun::provenance(&named, self.rerun.as_ref());
        let provenance = Provenance { shard: selection.shard.clone(), ..provenance };
        let catalogue = &self.cases.catalogue;
        let uids = selection.chosen.iter().map(|test| catalogue.uid(*test).to_owned()).collect();
        let selection = TestSelection { uids: Some(uids), filter: None };
        let request =
            RunRequest { run_id, selection: &selection, is_debugged: false, has_attachments_stream: false };
        let context = PlanContext { catalogue, settings: &self.settings, provenance: &provenance };
        let prepared = prepare_run(&request, &context).map_err(CommandError::RunDirectory)?;
        let PreparedRun { plan, warnings } = prepared;
        warnings.iter().for_each(|warning| output.warn(warning));
        ComposedRun::begin(plan).map_err(CommandError::Manifest)
    }

    fn reproduction(&self) -> Reproduction {
        Reproduction {
            dir: super::working_directory().to_string_lossy().into_owned(),
            judge: self.arguments.judge.judge.clone(),
            client: self.arguments.client.command.clone(),
        }
    }

    /// Starts the scheduler. Also returns the options of sessions that run cases in it.
    fn start_scheduler(
        &self,
        parts_dir: &Path,
    ) -> Result<(SchedulerHandle, SchedulerTask, SessionOptions), CommandError> {
        let mut settings = client_settings(self.config, &self.arguments.client)?;
        settings.run.reports = Vec::new();
        // Old parts are removed together with their run, so they are not removed here.
        settings.run.keep_runs = NonZeroU32::MAX;
        settings.state_dir = parts_dir.to_owned();
        let options = SchedulerOptions::new(&settings, WorkerStdout::StandardError);
        let session = SessionOptions::new(Arc::new(settings), vec![program_of(&self.arguments.client)?]);
        let (scheduler, task) = SchedulerHandle::start(options);
        Ok((scheduler, task, session))
    }
}

/// Has the judge run all cases, and runs failed cases again as often as their settings allow.
async fn run_rounds(
    context: &RoundContext<'_>,
    list: &CaseList,
    mut rounds: CaseRounds<'_>,
    output: &mut RunOutput<'_>,
) -> JudgedRun {
    while !rounds.due.is_empty() {
        let due = rounds.due.clone();
        let names: Vec<&str> = due.iter().map(|test| rounds.name(*test)).collect();
        let named =
            |known: &BTreeSet<String>| names.iter().copied().filter(|name| known.contains(*name)).collect();
        let is_all = names.len() == context.uids.len();
        let cases = JudgedCases {
            run: (!is_all).then(|| names.clone()),
            known_failing: Some(named(&list.known_failing)),
            known_flaky: named(&list.known_flaky),
        };
        let Round { answered, end } = run_judge(context, &cases, output).await;
        let ended = match end {
            Ok(report) => match judged_results(&names, answered, &report) {
                Ok(judged) => rounds.end_round(&due, judged),
                Err(error) => {
                    let error = JudgeError::Contradiction(error.to_string());
                    return rounds.stop(&due, HashMap::new(), RoundStop::Judge(error), output);
                }
            },
            Err(stop) => return rounds.stop(&due, answered, stop, output),
        };
        rounds.show(&ended, output);
        if rounds.due.is_empty() {
            break;
        }
        if let Some(stop) = wait_for_retries(rounds.delay(), context.deadline, output).await {
            let due = std::mem::take(&mut rounds.due);
            return rounds.stop(&due, HashMap::new(), stop, output);
        }
    }
    JudgedRun { results: rounds.into_results(), stop: None }
}

/// Waits before the next run of the judge; returns the reason if the judge must not run again.
async fn wait_for_retries(
    delay: Duration,
    deadline: Option<tokio::time::Instant>,
    output: &mut RunOutput<'_>,
) -> Option<RoundStop> {
    let due = tokio::time::Instant::now() + delay;
    loop {
        tokio::select! {
            event = output.user.next_event() => match event {
                UserEvent::Signal(SignalRequest::End) => return Some(RoundStop::Cancelled),
                // Nothing is running that could be paused.
                UserEvent::Signal(SignalRequest::Pause) => {}
                UserEvent::Tick => {
                    output.tick();
                    if deadline.is_some_and(|deadline| deadline <= tokio::time::Instant::now()) {
                        return Some(RoundStop::TimeLimit);
                    }
                }
            },
            () = tokio::time::sleep_until(due) => return None,
        }
    }
}

/// State of the cases between the judge's runs.
struct CaseRounds<'a> {
    record: &'a ComposedRun,
    reproduction: Reproduction,
    judge: &'a JudgeCommand,
    known_failing: &'a BTreeSet<String>,
    results: Vec<Option<TestResult>>,
    attempts: Vec<Vec<Attempt>>,
    /// Cases of the next run of the judge.
    due: Vec<TestId>,
}

impl<'a> CaseRounds<'a> {
    fn new(
        record: &'a ComposedRun,
        reproduction: Reproduction,
        judge: &'a JudgeCommand,
        known_failing: &'a BTreeSet<String>,
    ) -> Self {
        let count = record.tests().len();
        Self {
            record,
            reproduction,
            judge,
            known_failing,
            results: vec![None; count],
            attempts: vec![Vec::new(); count],
            due: (0..).map(TestId).take(count).collect(),
        }
    }

    fn name(&self, test: TestId) -> &'a str {
        &self.record.tests()[test.index()].listed.name
    }

    /// Records the results of one run of the judge; returns the tests with a final result.
    fn end_round(&mut self, due: &[TestId], judged: Vec<super::verdicts::JudgedCase>) -> Vec<TestId> {
        self.due.clear();
        let mut ended = Vec::new();
        for (test, judged) in due.iter().zip(judged) {
            let settings = &self.record.tests()[test.index()].settings;
            let attempts = &mut self.attempts[test.index()];
            let is_left = u32::try_from(attempts.len()).is_ok_and(|count| count < settings.retries.count);
            if judged.is_retryable && is_left {
                attempts.push(attempt_of(judged.result));
                self.due.push(*test);
            } else {
                let attempts = std::mem::take(attempts);
                let result = final_result(judged.result, attempts, settings.flaky_result);
                self.results[test.index()] = Some(self.with_reproduction(*test, result));
                ended.push(*test);
            }
        }
        ended
    }

    fn with_reproduction(&self, test: TestId, mut result: TestResult) -> TestResult {
        let name = self.name(test);
        self.reproduction.add_to(&mut result, name, self.judge, self.known_failing.contains(name));
        result
    }

    /// Returns the delay before the next run of the judge: the longest delay of its cases.
    fn delay(&self) -> Duration {
        let delay = |test: &TestId| {
            let retry = u32::try_from(self.attempts[test.index()].len()).unwrap_or(u32::MAX);
            let policy = self.record.tests()[test.index()].settings.retries;
            policy.delay.before(retry, retry_random(0, *test, retry))
        };
        self.due.iter().map(delay).max().unwrap_or_default()
    }

    /// Ends without further runs of the judge. The due cases get final results although they have no verdict.
    fn stop(
        mut self,
        due: &[TestId],
        answered: HashMap<String, TestResult>,
        stop: RoundStop,
        output: &mut RunOutput<'_>,
    ) -> JudgedRun {
        let names: Vec<&str> = due.iter().map(|test| self.name(*test)).collect();
        let unjudged = unjudged_results(&names, answered, &unjudged_reason(&stop));
        for (test, result) in due.iter().zip(unjudged) {
            let attempts = std::mem::take(&mut self.attempts[test.index()]);
            let last = attempts.last().filter(|_| result.outcome.lacks_result());
            let result = match last {
                Some(attempt) => TestResult::from_last_attempt(attempt, "it could not be retried"),
                None => result,
            };
            let result = TestResult { attempts, ..result };
            self.results[test.index()] = Some(self.with_reproduction(*test, result));
        }
        self.show(due, output);
        JudgedRun { results: self.into_results(), stop: Some(stop) }
    }

    fn show(&self, tests: &[TestId], output: &mut RunOutput<'_>) {
        for test in tests {
            if let Some(result) = &self.results[test.index()] {
                output.end_test(self.record.report(*test, result));
            }
        }
        output.flush_events();
    }

    fn into_results(self) -> Vec<TestResult> {
        let lost = || TestResult::new(Outcome::Lost);
        self.results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
    }
}

/// Returns the reason and outcomes of cases without a verdict.
fn unjudged_reason(stop: &RoundStop) -> UnjudgedReason {
    let not_run = |reason: NotRunReason, text: &str| UnjudgedReason {
        answered: Outcome::NotRun(reason),
        unanswered: Outcome::NotRun(reason),
        reason: format!("stopped before its verdict: {text}"),
    };
    match stop {
        RoundStop::Judge(error) => UnjudgedReason {
            answered: Outcome::Lost,
            unanswered: Outcome::Interrupted,
            reason: format!("no verdict: {}", heeler_core::error_chain(error)),
        },
        RoundStop::Cancelled | RoundStop::Left => {
            not_run(NotRunReason::Cancelled, "the user cancelled the run")
        }
        RoundStop::TimeLimit => not_run(NotRunReason::TimeLimitReached, "the run reached its time limit"),
    }
}

fn stop_reason(stop: &RoundStop) -> Option<NotRunReason> {
    match stop {
        RoundStop::Cancelled | RoundStop::Left => Some(NotRunReason::Cancelled),
        RoundStop::TimeLimit => Some(NotRunReason::TimeLimitReached),
        RoundStop::Judge(_) => None,
    }
}

/// Removes everything but the evidence; the run's own record replaces the rest. Files that can't be removed
/// are removed with the run.
fn remove_parts(parts_dir: &Path) {
    let Ok(parts) = std::fs::read_dir(parts_dir.join(DIR_NAME)) else { return };
    for part in parts.flatten() {
        let Ok(entries) = std::fs::read_dir(part.path()) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_name() != EVIDENCE_DIR) {
            let _stays = std::fs::remove_file(entry.path());
        }
        // Fails if there is evidence.
        let _stays = std::fs::remove_dir(part.path());
    }
}
