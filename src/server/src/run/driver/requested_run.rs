//! The run as requested by its client: plan, client, and the messages built from them.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use heeler_config::FlakyResult;
use heeler_core::{
    TestId,
    run::{BatchLease, ScheduledTest},
};
use heeler_protocol::{
    control::{
        ClientRoute, FinishRequest, LeasedTest, OsText, RunKey, TestLimits, ToWatchdog, ToWorker,
        UpdateEncoding, WorkerId, WorkerLease,
    },
    manifest::TestDescriptions,
    mtp::{ClientMembers, LogLevel},
};

use super::findings::RunFindings;
use crate::{
    pool::WorkerUser,
    run::{
        PlannedTests, RunPlan, client_log::ClientLog, fixture_variables::FixtureVariables, groups, manifest,
        plan::millis,
    },
    scheduler::ClientEvents,
};

/// Time limit for a drain or finish, on top of the client's own limits.
pub(super) const STAGE_SLACK: Duration = Duration::from_secs(15);
/// Minimum startup limit, as a multiple of the program's longest known start. Starts take longer while other
/// processes run.
const STARTUP_LIMIT_PER_START: u32 = 3;
/// Maximum number of times that a startup limit is doubled.
const MAX_STARTUP_DOUBLINGS: u32 = 10;

/// The client of a run, as seen by the driver.
pub(crate) struct DriverClient {
    pub(crate) key: RunKey,
    pub(crate) route: ClientRoute,
    pub(crate) events: ClientEvents,
    /// Members that the client added to tests and groups of the run, returned in its updates.
    pub(crate) client_members: ClientMembers,
}

pub(super) struct RequestedRun {
    plan: RunPlan,
    client: DriverClient,
    /// Passing tests are repeated until this time since boot.
    repeat_until: Option<Duration>,
    /// Whether the manifest was written to the run's directory.
    has_manifest: bool,
    fixture_variables: FixtureVariables,
}

impl RequestedRun {
    pub(super) fn new(plan: RunPlan, mut client: DriverClient) -> Self {
        let has_frames = client.route.encoding == UpdateEncoding::TestProtocol;
        client.route.has_attachments_stream = plan.has_attachments_stream && has_frames;
        let repeat_until = plan
            .stress_duration
            .map(|duration| heeler_sys::process::time_since_boot().saturating_add(duration));
        let fixture_variables = FixtureVariables::default();
        Self { plan, client, repeat_until, has_manifest: true, fixture_variables }
    }

    pub(super) fn key(&self) -> &RunKey {
        &self.client.key
    }

    pub(super) fn plan(&self) -> &RunPlan {
        &self.plan
    }

    pub(super) fn user(&self) -> WorkerUser {
        WorkerUser::Run(self.client.key.clone())
    }

    /// Returns whether the client gets its updates as Heeler's own types.
    pub(super) fn has_typed_updates(&self) -> bool {
        self.client.route.encoding == UpdateEncoding::Typed
    }

    pub(super) fn has_callback(&self) -> bool {
        self.client.route.callback.is_some()
    }

    /// Makes cancellation kill running tests without a grace period.
    pub(super) fn remove_grace(&mut self) {
        self.plan.limits.grace_ms = 0;
    }

    pub(super) fn grace_ms(&self) -> u64 {
        self.plan.limits.grace_ms
    }

    /// Adds tests to an open run. Returns their part of the model's plan, or `None` if the run accepts none
    /// of them.
    pub(super) fn append(&mut self, added: PlannedTests) -> Option<Vec<ScheduledTest>> {
        self.plan.append(added)
    }

    pub(super) fn into_plan(self) -> RunPlan {
        self.plan
    }

    pub(super) fn client_log(&self) -> ClientLog<'_> {
        ClientLog { plan: &self.plan, events: &self.client.events }
    }

    pub(super) fn log(&self, level: LogLevel, message: String) {
        self.client_log().log_line(None, level, message);
    }

    pub(super) fn log_program(&self, program: usize, message: &str) {
        let suite = &self.plan.programs[program].suite;
        self.log(LogLevel::Warning, format!("{suite}: {message}"));
    }

    pub(super) fn write_manifest(&mut self) {
        if let Err(error) = manifest::write_manifest(&self.plan) {
            self.has_manifest = false;
            let text = format!(
                "failed to write the run's manifest, so this run can't be reported or rerun later: {error}"
            );
            self.log(LogLevel::Warning, text);
        }
    }

    /// Logs which programs run in a single process because an earlier run detected a fixture conflict.
    pub(super) fn log_known_conflicts(&self) {
        for (program, listing) in self.plan.listings.iter().enumerate() {
            if listing.has_conflict {
                let message = "its tests run in one process, because a session fixture hung in a second process in an \
                               earlier run; to change this, set `max-processes` in heeler.toml (1 makes it permanent)";
                self.log_program(program, message);
            }
        }
    }

    /// Logs that a process got stuck in a session fixture that another process of the program had already set
    /// up.
    pub(super) fn log_conflict(&self, program: usize, fixture: &str, findings: &RunFindings) {
        let limit = self.startup_limit_ms(program, 0, findings) / 1000;
        let message = format!(
            "the session fixture {fixture:?} hung for {limit} s in its set-up while another process was using it, \
             probably because both need the same port, file or database. The tests continue in one process, also in \
             later runs. To avoid the wait, set `max-processes = 1`; to run tests in parallel, give each process a \
             resource of its own (a free port, tmp_path_factory)"
        );
        self.log_program(program, &message);
    }

    fn run_dir(&self) -> OsText {
        OsText::from(self.plan.run_dir.path.as_path())
    }

    pub(super) fn is_run_dir(&self, directory: &OsText) -> bool {
        *directory == self.run_dir()
    }

    /// Returns the message that announces the run to the watchdog. It must be sent before any worker receives
    /// a lease of the run: if this process is killed after a worker has sent results to the client, the
    /// watchdog must be able to complete the run.
    pub(super) fn announcement(&self) -> ToWatchdog {
        ToWatchdog::BeginRun {
            run: self.client.key.clone(),
            route: self.client.route.clone(),
            run_dir: self.run_dir(),
            has_attachments_stream: self.plan.has_attachments_stream,
            plan: (!self.has_manifest).then(|| Box::new(manifest::manifest_plan(&self.plan))),
            client_members: self.client.client_members.clone(),
        }
    }

    /// Returns the request to read a dead worker's journal.
    pub(super) fn journal_request(&self, worker: WorkerId) -> ToWatchdog {
        ToWatchdog::ReadJournal { run: self.client.key.clone(), run_dir: self.run_dir(), worker }
    }

    pub(super) fn drain_order(&self) -> ToWorker {
        ToWorker::Drain { run: self.client.key.clone() }
    }

    /// Returns a finish request that contains only the completion.
    pub(super) fn completion(&self) -> FinishRequest {
        FinishRequest {
            run: self.client.key.clone(),
            route: self.client.route.clone(),
            run_dir: self.run_dir(),
            ..FinishRequest::default()
        }
    }

    /// Returns a finish request for the described tests.
    pub(super) fn finish_of(&self, descriptions: TestDescriptions) -> FinishRequest {
        let uids = descriptions.tests.values().map(|test| &test.uid);
        let uids = uids.chain(descriptions.groups.iter().map(|group| &group.uid));
        FinishRequest {
            client_members: self.client.client_members.subset(uids.map(String::as_str)),
            descriptions,
            has_attachments_stream: self.plan.has_attachments_stream,
            ..self.completion()
        }
    }

    /// Sends the end of a run without a watchdog directly to the client.
    pub(super) fn finish_to_client(&self, finish: &FinishRequest) {
        self.client.events.finish_run(finish);
    }

    /// Returns how long a drain or finish may take while the client makes no progress.
    pub(super) fn stage_limit(&self) -> Duration {
        let limits = self.plan.delivery_limits;
        let waits = limits.connect_ms + limits.stall_ms + 8 * limits.drain_ms + 4 * limits.answer_ms;
        Duration::from_millis(waits) + STAGE_SLACK
    }

    /// Returns the startup limit of a process: the configured limit, or a multiple of the program's longest
    /// known start if that is longer. The limit doubles with each earlier startup timeout, at most
    /// [`MAX_STARTUP_DOUBLINGS`] times, since a slow start is not the test's fault.
    pub(super) fn startup_limit_ms(
        &self,
        program: usize,
        start_timeouts: u32,
        findings: &RunFindings,
    ) -> u64 {
        let observed = findings.longest_start(program);
        let known = self.plan.known_start(program).into_iter().chain(observed).max().unwrap_or_default();
        let least = millis(known.saturating_mul(STARTUP_LIMIT_PER_START));
        let limit = self.plan.limits.startup_ms.max(least);
        limit.saturating_mul(1 << start_timeouts.min(MAX_STARTUP_DOUBLINGS))
    }

    /// Builds the worker's form of a lease.
    pub(super) fn worker_lease(&mut self, lease: &BatchLease, findings: &RunFindings) -> WorkerLease {
        let program = self.plan.program_of(lease.batch.program);
        let (tests_of_lease, model_program) = (&lease.batch.tests, lease.batch.program.index());
        let (leased_program, problems) =
            self.fixture_variables.program_of(&self.plan, model_program, tests_of_lease);
        problems.into_iter().for_each(|problem| self.log(LogLevel::Warning, problem));
        // A set-up or tear-down runs once, and no debugger waits for it.
        let is_fixture = tests_of_lease.iter().any(|test| self.plan.tests[test.index()].fixture.is_some());
        // Tests go to the worker in the order of the program's listing.
        let mut tests: Vec<_> = lease
            .batch
            .tests
            .iter()
            .zip(&lease.is_failure_provisional)
            .zip(&lease.passed_iterations)
            .map(|((test, is_failure_provisional), passed_iterations)| LeasedTest {
                passed_iterations: *passed_iterations,
                is_failure_provisional: *is_failure_provisional,
                ..self.leased_test(*test, findings)
            })
            .collect();
        tests.sort_by_key(|test| self.plan.tests[test.test.0 as usize].listing_index);
        let groups = groups::subset(&self.plan, &mut tests);
        let uids = tests.iter().map(|test| &test.uid).chain(groups.iter().map(|group| &group.uid));
        WorkerLease {
            lease: lease.lease,
            client_members: self.client.client_members.subset(uids.map(String::as_str)),
            run: self.client.key.clone(),
            route: self.client.route.clone(),
            run_dir: self.run_dir(),
            program: leased_program,
            groups,
            tests: tests.into_iter().map(Arc::new).collect(),
            limits: TestLimits {
                memory_bytes: self.plan.memory_limit(&lease.batch.tests),
                startup_ms: self.startup_limit_ms(program, lease.start_timeouts, findings),
                ..self.plan.limits
            },
            slot: u32::try_from(lease.slot).unwrap_or(u32::MAX),
            unit_variables: self.plan.units[model_program].of_process(&lease.portions),
            is_whole_program: self.plan.is_whole_program(program, &lease.batch.tests),
            journal_limit_bytes: self.plan.journal_limit_bytes,
            repeat: if is_fixture { NonZeroU32::MIN } else { self.plan.repeat },
            repeat_until_ms: self.repeat_until.filter(|_| !is_fixture).map(millis),
            crash_capture: findings.crash_capture(&self.plan, &lease.batch.tests),
            is_isolated: lease.batch.is_isolated,
            is_debugged: self.plan.is_debugged && !is_fixture,
            output_display: self.plan.output_display,
            is_output_live: self.plan.is_output_live,
            has_private_tmpdir: self.plan.has_private_tmpdir,
            is_environment_shown: self.plan.is_environment_shown,
            runs_ignored: self.plan.runs_ignored,
        }
    }

    fn leased_test(&self, test: TestId, findings: &RunFindings) -> LeasedTest {
        let selected = &self.plan.tests[test.index()];
        let settings = &selected.settings;
        let held = findings.provisional(test);
        LeasedTest {
            test,
            listed: selected.listed.clone(),
            uid: selected.uid.clone(),
            group: None,
            timeout_ms: settings
                .timeout
                .duration()
                .map(millis)
                .into_iter()
                .chain(selected.listed.timeout_ms)
                .min(),
            idle_timeout_ms: settings.idle_timeout.duration().map(millis),
            slow_ms: Some(millis(settings.slow_timeout.period)).filter(|period| *period > 0),
            attempts: held.attempts,
            crashed_attempt: held.crash,
            ran_beside: held.ran_beside.into_iter().collect(),
            is_failure_provisional: false,
            is_flaky_failure: settings.flaky_result == FlakyResult::Fail,
            passed_iterations: 0,
        }
    }
}
