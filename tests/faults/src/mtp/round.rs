//! One round: a session with the main protocol, or a run of the command line.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use serde_json::{Value, json};

use super::{
    client::FaultClient,
    guarantees,
    plan::{MtpPlan, PlannedTransport, RunPattern, SessionEnding},
    run_files,
};
use crate::{
    injector::{InjectedFault, RoundProgress, RoundStage},
    planned_faults::{FaultTarget, InjectedAction},
    round::{FaultRound, is_own_panic},
    suites,
    support::{
        checked_run::RequestedRun,
        recorder::{ClientConnection, RecordedEvent, RecordedEventKind},
    },
    system_limits::MountedDisk,
};

/// Plays a round.
pub(crate) fn play(plan: &MtpPlan, round: &mut FaultRound<'_>) {
    suites::prepare(round.dir, &plan.suites, &plan.settings);
    let state_dir = round.dir.join(".heeler");
    let disk = MountedDisk::new(plan.disk, &state_dir);
    round.has_disk = disk.is_there();
    let words = match (&plan.selection, plan.client.transport) {
        (Some(uids), PlannedTransport::CommandLine) => selection_arguments(uids),
        _ => Vec::new(),
    };
    let client = FaultClient::start(plan, round.dir, &round.mark, &words);
    // Only a fault at a named point can end the program this early.
    let Some(client) = client else { return };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut round = MtpRound { plan, round };
        round.play_with(&client);
    }));
    round.errors = client.process.errors();
    if outcome.is_err() {
        save_record(round.dir, &client);
        std::panic::resume_unwind(Box::new(()));
    }
}

struct MtpRound<'a, 'd> {
    plan: &'a MtpPlan,
    round: &'a mut FaultRound<'d>,
}

impl MtpRound<'_, '_> {
    fn play_with(&mut self, client: &FaultClient) {
        let plan = self.plan;
        self.round.with_faults(&plan.faults, client, |round, progress| {
            MtpRound { plan, round }.run_session(client, progress);
        });
        self.check_guarantees(client);
    }

    /// Exchanges messages with the program until it exits.
    fn run_session(&mut self, client: &FaultClient, progress: &RoundProgress) {
        if self.plan.client.transport == PlannedTransport::CommandLine {
            progress.reach(RoundStage::Requested);
            wait_closed(client);
            progress.reach(RoundStage::Leaving);
        } else if self.request_runs(client, progress).is_some() {
            progress.reach(RoundStage::Responded);
            self.round.measure(client.process.pid);
            progress.reach(RoundStage::Leaving);
            match self.plan.end {
                SessionEnding::Exit => client.notify("exit", json!({})),
                SessionEnding::Disconnect => client.disconnect(),
            }
        } else {
            progress.reach(RoundStage::Leaving);
        }
        assert!(
            client.process.wait_gone(),
            "processes of Heeler's own are left\n{}",
            client.process.errors()
        );
    }

    /// Requests all runs of the round and waits for the responses; `None` if the connection ends first.
    fn request_runs(&self, client: &FaultClient, progress: &RoundProgress) -> Option<()> {
        let initialized = client.initialize(&self.plan.client);
        let answer = wait_response(client, initialized)?;
        if self.plan.kills_client() && answer["error"]["code"] == -32602 {
            // The process died before the request was read.
            return None;
        }
        assert!(answer.get("error").is_none(), "{answer}");
        if self.plan.is_discovered_first {
            let id = client
                .request("testing/discoverTests", json!({"runId": "00000000-0000-4000-8000-00000000aaaa"}));
            let answer = wait_response(client, id)?;
            let is_excused = self.plan.may_lose_a_request() && answer["error"]["code"] == -32603;
            assert!(answer.get("error").is_none() || is_excused, "{answer}");
        }
        let run = |number| client.run(number, self.plan.selection.as_deref());
        let wait = |run: &RequestedRun| wait_response(client, run.request).map(drop);
        let first = run(1);
        progress.reach(RoundStage::Requested);
        match self.plan.runs {
            RunPattern::One => wait(&first),
            RunPattern::Sequential => wait(&first).and_then(|()| wait(&run(2))),
            RunPattern::Concurrent => {
                let second = run(2);
                wait(&first).and_then(|()| wait(&second))
            }
        }
    }

    /// Checks every guarantee; panics at the first violation.
    fn check_guarantees(&mut self, client: &FaultClient) {
        self.round.check_nothing_left();
        client.read_to_the_end();
        let errors = client.process.errors();
        // A process that reaches its file limit during startup panics, because it cannot create its async
        // runtime.
        let is_too_early = errors.contains("Too many open files") && self.plan.may_lose_a_request();
        // A process that runs out of memory aborts.
        let has_little = |one: &InjectedFault| {
            matches!(one.fault.action, InjectedAction::LimitMemory(..)) && one.hit.is_some()
        };
        let is_excused = is_too_early || self.round.injected.iter().any(has_little);
        assert!(!errors.lines().any(is_own_panic) || is_excused, "{errors}");
        let code = client.process.exit_code();
        // The coordinator disconnects a client that reads nothing for `client-stall-timeout`.
        let stall = self.plan.settings.stall;
        let is_given_up = self.round.injected.iter().any(|one| {
            matches!(one.fault.action, InjectedAction::StopReadingMain(pause) if pause >= stall)
                && one.hit.is_some()
        });
        let is_gone = client.is_gone() || is_given_up;
        match self.plan.client.transport {
            _ if self.round.is_killed(FaultTarget::Coordinator) => {}
            PlannedTransport::CommandLine => self.check_report(code),
            _ if is_gone => assert!(code.is_some(), "the coordinator died of a signal"),
            // The program could not start and printed an error.
            _ if self.plan.may_lose_a_request() && matches!(code, Some(4 | 10 | 101)) => {
                assert!(errors.contains("failed to"))
            }
            _ => assert_eq!(code, Some(0), "the exit code\n{errors}"),
        }
        let licence = guarantees::PermittedEffects::new(self.plan, &self.round.injected, is_gone);
        if self.plan.client.transport != PlannedTransport::CommandLine {
            guarantees::check(self.plan, client, (&licence, &self.round.injected));
        }
        run_files::check(self.plan, self.round.dir, client, (&licence, &self.round.injected));
        self.round.check_peaks();
    }

    /// Returns whether faults may prevent the listing of a program: by two failed attempts or by a timeout.
    fn may_hide_a_program(&self) -> bool {
        let stop = InjectedAction::StopForGood(FaultTarget::Test);
        let is_stopped = self
            .round
            .injected
            .iter()
            .any(|injected| injected.fault.action == stop && injected.hit.is_some());
        is_stopped || self.round.hits().count() >= 2
    }

    /// Checks that the command line's report accounts for every test.
    fn check_report(&self, code: Option<i32>) {
        let expected = self.plan.expected();
        let is_bad = expected.iter().any(|(_, state)| !["passed", "skipped"].contains(state));
        let wanted: &[i32] = match () {
            // Nothing could be started.
            () if self.plan.may_lose_a_request() && expected.is_empty() => &[4, 8, 10],
            () if self.plan.may_lose_a_request() => &[0, 2, 4, 10],
            () if expected.is_empty() => &[8],
            // No program could be listed.
            () if self.may_hide_a_program() => &[0, 2, 4],
            () if is_bad => &[2],
            () if self.round.hits().count() > 0 => &[0, 2],
            () => &[0],
        };
        assert!(code.is_some_and(|code| wanted.contains(&code)), "left with {code:?} instead of {wanted:?}");
        if matches!(code, Some(4 | 8 | 10)) {
            return;
        }
        let report = fs::read_to_string(self.round.dir.join("report.xml")).unwrap();
        if code == Some(0) {
            assert!(!is_bad, "a run with bad tests has passed\n{report}");
        }
        let cases = report.matches("<testcase ").count();
        // A program that could not be listed is reported instead of its tests.
        let may_hide = self.may_hide_a_program() || self.plan.may_lose_a_request();
        let is_whole = cases >= expected.len() || (may_hide && code == Some(2));
        assert!(is_whole, "{cases} tests are reported of {}\n{report}", expected.len());
    }
}

/// Writes the recorded messages next to the journals.
fn save_record(dir: &Path, client: &FaultClient) {
    let events = client.recorder.wait("the record", |events| Some(events.to_vec()));
    let line = |event: &RecordedEvent| match &event.what {
        RecordedEventKind::Opened => format!("{:?}: opened\n", event.on),
        RecordedEventKind::Closed => format!("{:?}: closed\n", event.on),
        RecordedEventKind::SchemaViolation(wrong) => {
            format!("{:?}: against the schema: {wrong}\n", event.on)
        }
        RecordedEventKind::Message(message) => format!("{:?}: {message}\n", event.on),
    };
    fs::write(dir.join("traffic.txt"), events.iter().map(line).collect::<String>()).ok();
    fs::write(dir.join("wire.txt"), client.recorder.wire_log()).ok();
    fs::write(dir.join("stderr.txt"), client.process.errors()).ok();
    fs::write(dir.join("stdout.txt"), client.output()).ok();
}

/// Returns the command-line arguments that select these tests.
fn selection_arguments(uids: &[String]) -> Vec<String> {
    if uids.is_empty() {
        return vec!["-E".to_owned(), "none()".to_owned()];
    }
    uids.iter().flat_map(|uid| ["-E".to_owned(), format!("test(={uid})")]).collect()
}

/// Waits for a response; `None` if the connection ends first.
fn wait_response(client: &FaultClient, id: u64) -> Option<Value> {
    client.recorder.wait(&format!("the answer to {id}"), |events| {
        let is_answer = |message: &&Value| message.get("method").is_none() && message["id"] == id;
        let answer = events.iter().filter_map(RecordedEvent::message).find(is_answer).cloned();
        let is_closed = events.iter().any(|event| {
            event.on == ClientConnection::Main && matches!(event.what, RecordedEventKind::Closed)
        });
        answer.map(Some).or(is_closed.then_some(None))
    })
}

fn wait_closed(client: &FaultClient) {
    client.recorder.wait("the end of the output", |events| {
        events.iter().any(|event| matches!(event.what, RecordedEventKind::Closed)).then_some(())
    });
}
