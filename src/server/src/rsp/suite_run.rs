//! The notifications of one run of a suite. Pure: events in, notifications out.
//!
//! ```text
//! starting (1) ──the first test begins or ends, or the run ends──► started (2) ──► stopped (4)
//!     └──cancelled──► started (2) ──► stopping (3) ──► stopped (4)
//! ```
//!
//! A client may wait for any state, so only stopping (3) is ever skipped. Nothing is sent about a run after
//! state 4.

use std::{collections::HashSet, time::Duration};

use heeler_core::{NotRunReason, Outcome, OutcomeCounts};
use heeler_protocol::{
    control::TestUpdate,
    rsp::{
        JobEnd, JobHandle, JobProgress, ProcessOutput, PublishState, RunState, ServerHandle,
        ServerNotification, ServerProcess, ServerState, Severity, Status, StreamType,
    },
};
use tokio::time::Instant;

use super::{
    output::{self, OutputText},
    progress::JobProgressRate,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SuiteRunEnd {
    /// The run ended by itself, or was cancelled while tests ran.
    Ended {
        stopped_by: Option<NotRunReason>,
        /// Number of programs that failed outside their tests.
        failed_programs: usize,
    },
    /// The run was cancelled before its tests started.
    CancelledBefore,
    /// The run could not begin or continue. The reason is one sentence.
    Failed(String),
}

/// A run of a suite, as seen by its client.
#[derive(Debug)]
pub(super) struct SuiteRun {
    server: ServerHandle,
    job: JobHandle,
    state: RunState,
    publish_state: PublishState,
    /// Number of tests in the run, once they are selected.
    selected: usize,
    /// Uids of tests that have ended. Results may be repeated when processes die.
    ended: HashSet<Box<str>>,
    counts: OutcomeCounts,
    progress: JobProgressRate,
}

impl SuiteRun {
    pub(super) fn begin(
        server: ServerHandle,
        run_id: String,
        begun: Instant,
    ) -> (Self, Vec<ServerNotification>) {
        let job = JobHandle { name: format!("Tests of {}", server.id), id: run_id };
        let run = Self {
            server,
            job,
            state: RunState::Starting,
            publish_state: PublishState::Unknown,
            selected: 0,
            ended: HashSet::new(),
            counts: OutcomeCounts::default(),
            progress: JobProgressRate::new(begun),
        };
        let notifications = vec![
            run.state_notification(),
            ServerNotification::ProcessCreated(run.process()),
            ServerNotification::JobAdded(run.job.clone()),
        ];
        (run, notifications)
    }

    pub(super) fn run_id(&self) -> &str {
        &self.job.id
    }

    pub(super) fn state(&self) -> RunState {
        self.state
    }

    pub(super) fn job_progress(&self) -> JobProgress {
        JobProgress { percent: self.progress.percent(), handle: self.job.clone() }
    }

    pub(super) fn set_selected(&mut self, selected: usize) {
        self.selected = selected;
    }

    pub(super) fn on_updates(&mut self, updates: &[TestUpdate], now: Instant) -> Vec<ServerNotification> {
        let mut out = Vec::new();
        for update in updates {
            match update {
                TestUpdate::Started { .. } => self.make_started(&mut out),
                TestUpdate::Finished { uid, result } => {
                    self.make_started(&mut out);
                    if self.ended.insert(uid.as_str().into()) {
                        self.counts.add(result.outcome, None);
                        let texts = output::test_texts(uid, result);
                        out.extend(texts.into_iter().map(|text| self.output(text)));
                    }
                }
                TestUpdate::ProgramFailed(failure) => {
                    out.push(self.output(output::program_failure_text(failure)));
                }
                // The end of the run follows.
                TestUpdate::Completed => {}
            }
        }
        let percent = self.progress.update(self.ended.len(), self.selected, now);
        out.extend(percent.map(|_| self.progress_notification()));
        out
    }

    /// Returns the notifications for a cancellation; none if the run is already being cancelled.
    pub(super) fn on_cancel(&mut self) -> Vec<ServerNotification> {
        let mut out = Vec::new();
        if self.state != RunState::Stopping {
            self.make_started(&mut out);
            self.state = RunState::Stopping;
            out.push(self.state_notification());
        }
        out
    }

    /// Returns when delayed progress is due.
    pub(super) fn next_progress(&self) -> Option<Instant> {
        self.progress.next_report()
    }

    /// Returns delayed progress, if it is due.
    pub(super) fn on_progress_due(&mut self, now: Instant) -> Option<ServerNotification> {
        self.progress.report_due(now).map(|_| self.progress_notification())
    }

    /// Returns a log line about the run, as process output.
    pub(super) fn log(&self, message: &str) -> ServerNotification {
        self.output(OutputText::new(StreamType::Other, format!("{message}\n")))
    }

    /// Ends the run. Returns its last notifications.
    pub(super) fn end(mut self, end: &SuiteRunEnd, took: Duration) -> Vec<ServerNotification> {
        let mut out = Vec::new();
        self.make_started(&mut out);
        let status = self.final_status(end);
        self.publish_state = match status.severity {
            Severity::Ok => PublishState::Synchronized,
            Severity::Cancel => PublishState::Unknown,
            Severity::Info | Severity::Warning | Severity::Error => PublishState::Required,
        };
        let summary = match end {
            SuiteRunEnd::Ended { .. } => format!("{} ({:.3} s)", status.message, took.as_secs_f64()),
            SuiteRunEnd::CancelledBefore | SuiteRunEnd::Failed(_) => status.message.clone(),
        };
        out.push(self.log(&summary));
        // Clients show this message alone, possibly while other suites run.
        let status = Status::new(status.severity, format!("{}: {}", self.server.id, status.message));
        out.push(ServerNotification::JobRemoved(JobEnd { status, handle: self.job.clone() }));
        out.push(ServerNotification::ProcessTerminated(self.process()));
        self.state = RunState::Stopped;
        out.push(self.state_notification());
        out
    }

    fn final_status(&self, end: &SuiteRunEnd) -> Status {
        let (stopped_by, failed_programs) = match end {
            SuiteRunEnd::Failed(reason) => return Status::refusal(reason),
            SuiteRunEnd::CancelledBefore => return Status::new(Severity::Cancel, "cancelled"),
            SuiteRunEnd::Ended { stopped_by, failed_programs } => (*stopped_by, *failed_programs),
        };
        let mut text = output::counts_line(&self.counts, self.selected);
        if failed_programs > 0 {
            text += "; the program failed outside any test";
        }
        let not_run = Outcome::NotRun(NotRunReason::Unrunnable);
        let unfinished = [Outcome::Cancelled, not_run].map(|outcome| self.counts.with_outcome(outcome));
        let is_cancelled = stopped_by == Some(NotRunReason::Cancelled);
        // Journals read after the stop may still complete the results of a stopped run.
        let is_cut_short = is_cancelled || unfinished != [0, 0];
        if let Some(reason) = output::stop_text(stopped_by).filter(|_| is_cut_short) {
            text += &format!("; {reason}");
        }
        let has_all = self.counts.total() == self.selected && self.selected > 0 && !is_cut_short;
        let severity = match () {
            () if is_cancelled => Severity::Cancel,
            () if has_all && self.counts.failing() == 0 && failed_programs == 0 => Severity::Ok,
            () => Severity::Error,
        };
        Status::new(severity, text)
    }

    /// Reports the started state. Clients may wait for it, even if the run is very short.
    fn make_started(&mut self, out: &mut Vec<ServerNotification>) {
        if self.state == RunState::Starting {
            self.state = RunState::Started;
            out.push(self.state_notification());
        }
    }

    fn state_notification(&self) -> ServerNotification {
        ServerNotification::StateChanged(ServerState::new(
            self.server.clone(),
            self.state,
            self.publish_state,
        ))
    }

    fn progress_notification(&self) -> ServerNotification {
        ServerNotification::JobChanged(self.job_progress())
    }

    fn process(&self) -> ServerProcess {
        ServerProcess { server: self.server.clone(), process_id: self.job.id.clone() }
    }

    fn output(&self, OutputText { stream, text }: OutputText) -> ServerNotification {
        ServerNotification::OutputAppended(ProcessOutput {
            server: self.server.clone(),
            process_id: self.job.id.clone(),
            stream_type: stream,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use heeler_core::ProgramFailure;
    use heeler_core::{TestResult, WorkerId};

    use super::*;
    use crate::rsp::suites::server_type;

    fn begin() -> (SuiteRun, Vec<ServerNotification>) {
        let server = ServerHandle { id: "unit".into(), server_type: server_type() };
        SuiteRun::begin(server, "run-1".to_owned(), Instant::now())
    }

    fn started(uid: &str) -> TestUpdate {
        TestUpdate::Started { uid: uid.into(), started_ms: 1, worker: WorkerId(1) }
    }

    fn finished(uid: &str, outcome: Outcome) -> TestUpdate {
        TestUpdate::Finished { uid: uid.into(), result: Box::new(TestResult::new(outcome)) }
    }

    fn ended(stopped_by: Option<NotRunReason>) -> SuiteRunEnd {
        SuiteRunEnd::Ended { stopped_by, failed_programs: 0 }
    }

    /// Returns a short summary of each notification.
    fn words(notifications: &[ServerNotification]) -> Vec<String> {
        let word = |one: &ServerNotification| match one {
            ServerNotification::StateChanged(state) => format!("state {}", u8::from(state.state)),
            ServerNotification::ProcessCreated(_) => "created".to_owned(),
            ServerNotification::ProcessTerminated(_) => "terminated".to_owned(),
            ServerNotification::OutputAppended(output) => {
                format!("{} {}", u8::from(output.stream_type), output.text.split_whitespace().next().unwrap())
            }
            ServerNotification::JobAdded(_) => "added".to_owned(),
            ServerNotification::JobChanged(progress) => format!("{} %", progress.percent),
            ServerNotification::JobRemoved(end) => format!("removed {}", u8::from(end.status.severity)),
        };
        notifications.iter().map(word).collect()
    }

    fn status(notifications: &[ServerNotification]) -> &Status {
        let removed = notifications.iter().find_map(|one| match one {
            ServerNotification::JobRemoved(end) => Some(&end.status),
            _ => None,
        });
        removed.expect("each run ends")
    }

    #[test]
    fn notifications_of_a_run_have_one_order() {
        let (mut run, begun) = begin();
        assert_eq!(words(&begun), ["state 1", "created", "added"]);
        run.set_selected(2);
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(words(&run.on_updates(&[started("unit::a")], now)), ["state 2"]);
        let updates = [finished("unit::a", Outcome::Passed), started("unit::b")];
        assert_eq!(words(&run.on_updates(&updates, now)), ["2 passed", "50 %"]);
        let updates = [finished("unit::b", Outcome::Failed), TestUpdate::Completed];
        assert_eq!(words(&run.on_updates(&updates, now)), ["2 failed"], "progress is held back");
        assert_eq!(run.job_progress().percent, 100);
        let end = run.end(&ended(None), Duration::from_millis(1234));
        assert_eq!(words(&end), ["3 2", "removed 4", "terminated", "state 4"]);
        assert_eq!(status(&end).message, "unit: 2 tests: 1 passed, 1 failed");
    }

    #[test]
    fn run_without_any_update_is_started_before_it_is_stopped() {
        for (end, severity) in [
            (SuiteRunEnd::Failed("no".into()), "removed 4"),
            (SuiteRunEnd::CancelledBefore, "removed 8"),
            (ended(None), "removed 4"),
        ] {
            let (run, _) = begin();
            let sent = words(&run.end(&end, Duration::ZERO));
            assert_eq!(sent.first().map(String::as_str), Some("state 2"), "{end:?}");
            assert_eq!(sent[2..], [severity, "terminated", "state 4"], "{end:?}");
        }
    }

    #[test]
    fn cancelled_run_is_stopping_once() {
        let (mut run, _) = begin();
        run.set_selected(1);
        assert_eq!(words(&run.on_cancel()), ["state 2", "state 3"]);
        assert_eq!(words(&run.on_cancel()), [""; 0]);
        let cancelled = NotRunReason::Cancelled;
        let now = Instant::now();
        let sent = run.on_updates(&[finished("unit::a", Outcome::NotRun(cancelled))], now);
        assert_eq!(words(&sent)[0], "2 not");
        let end = run.end(&ended(Some(cancelled)), Duration::ZERO);
        assert_eq!(words(&end), ["3 1", "removed 8", "terminated", "state 4"]);
        assert_eq!(status(&end).message, "unit: 1 test: 1 not run; cancelled");
    }

    #[test]
    fn repeated_result_is_shown_and_counted_once() {
        let (mut run, _) = begin();
        run.set_selected(1);
        let update = finished("unit::a", Outcome::Passed);
        let sent = run.on_updates(&[update.clone(), update.clone()], Instant::now());
        assert_eq!(words(&sent).iter().filter(|word| *word == "2 passed").count(), 1);
        assert_eq!(words(&run.on_updates(&[update], Instant::now())), [""; 0]);
        let end = run.end(&ended(None), Duration::ZERO);
        assert_eq!((status(&end).severity, status(&end).ok), (Severity::Ok, true));
    }

    #[test]
    fn run_passes_only_if_each_test_has_a_result_and_no_program_failed() {
        let severity = |selected: usize, end: &SuiteRunEnd| {
            let (mut run, _) = begin();
            run.set_selected(selected);
            let _sent = run.on_updates(&[finished("unit::a", Outcome::Passed)], Instant::now());
            status(&run.end(end, Duration::ZERO)).clone()
        };
        assert_eq!(severity(1, &ended(None)).severity, Severity::Ok);
        assert_eq!(severity(2, &ended(None)).severity, Severity::Error, "a result is missing");
        let no_worker = severity(1, &ended(Some(NotRunReason::NoWorker)));
        assert_eq!(
            (no_worker.severity, no_worker.message.as_str()),
            (Severity::Ok, "unit: 1 test: 1 passed")
        );
        let end = SuiteRunEnd::Ended { stopped_by: None, failed_programs: 1 };
        let status = severity(1, &end);
        assert_eq!(status.severity, Severity::Error);
        assert!(status.message.ends_with("the program failed outside any test"), "{status:?}");
    }

    #[test]
    fn run_with_tests_that_a_limit_kept_from_running_has_not_passed() {
        let (mut run, _) = begin();
        run.set_selected(1);
        let limit = NotRunReason::TimeLimitReached;
        let _sent = run.on_updates(&[finished("unit::a", Outcome::NotRun(limit))], Instant::now());
        let end = run.end(&ended(Some(limit)), Duration::ZERO);
        assert_eq!(status(&end).severity, Severity::Error);
        assert_eq!(status(&end).message, "unit: 1 test: 1 not run; stopped at the time limit (run-timeout)");
    }

    #[test]
    fn failure_of_a_program_is_shown_as_error_output() {
        let (mut run, _) = begin();
        let failure = ProgramFailure {
            suite: "unit".into(),
            program: "/bin/unit".into(),
            fixture: None,
            message: "SIGSEGV".into(),
        };
        let sent = run.on_updates(&[TestUpdate::ProgramFailed(failure)], Instant::now());
        let [ServerNotification::OutputAppended(output), ..] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(output.stream_type, StreamType::Error);
        assert_eq!(output.text, "unit failed outside any test:\nSIGSEGV\n");
    }
}
