//! One round: the client's consecutive connections and the checks afterwards.

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde_json::{Value, json};

use super::{
    client::{RspClient, RspConnection, start_params},
    guarantees::{self, ConnectionEnder},
    plan::{ConnectionEnding, PlannedConnection, RspPlan, RspStep},
};
use crate::{
    injector::{RoundProgress, RoundStage},
    planned_faults::FaultTarget,
    round::{FaultRound, is_own_panic},
    suites::{self, filter_of},
    support::{framing, process::signal_if_there},
    test_results::{PermittedLosses, check_run_files},
    traffic_record::Traffic,
};

/// Plays a round.
pub(crate) fn play(plan: &RspPlan, round: &mut FaultRound<'_>) {
    suites::prepare(round.dir, &plan.suites, &plan.settings);
    let client = RspClient::start(plan, round.dir, &round.mark);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        round.with_faults(&plan.faults, &client, |round, progress| {
            run_sessions(plan, &client, round, progress);
        });
        check_guarantees(plan, &client, round);
    }));
    round.errors = client.process.errors();
    if outcome.is_err() {
        for (number, connection) in client.connections().iter().enumerate() {
            fs::write(round.dir.join(format!("traffic-{number}.txt")), connection.record.text()).ok();
        }
        fs::write(round.dir.join("stderr.txt"), client.process.errors()).ok();
        std::panic::resume_unwind(Box::new(()));
    }
}

/// Plays the client until the server has exited.
fn run_sessions(plan: &RspPlan, client: &RspClient, round: &mut FaultRound<'_>, progress: &RoundProgress) {
    for (number, planned) in plan.connections.iter().enumerate() {
        let Some(connection) = client.connect() else { break };
        progress.reach(RoundStage::Requested);
        for step in &planned.steps {
            if take_step(plan, step, client, &connection).is_none() {
                break;
            }
        }
        if number + 1 == plan.connections.len() {
            round.measure(client.process.pid);
            progress.reach(RoundStage::Leaving);
        }
        end_connection(planned, client, &connection);
    }
    progress.reach(RoundStage::Leaving);
    assert!(client.process.wait_gone(), "processes of Heeler's own are left\n{}", client.process.errors());
}

/// Performs one step; `None` if the connection has ended.
fn take_step(plan: &RspPlan, step: &RspStep, client: &RspClient, connection: &RspConnection) -> Option<()> {
    let ask = |method: &str, params: Value| {
        let id = client.request(connection, method, params);
        connection.wait_response(id)
    };
    let name = |suite: usize| plan.suites[suite].name.as_str();
    match step {
        RspStep::Start { suite, tests } => {
            let filter = tests.as_ref().map(|tests| filter_of(tests));
            ask("server/startServerAsync", start_params(name(*suite), filter.as_deref()))?;
        }
        RspStep::StartRefused => {
            ask("server/startServerAsync", start_params(name(0), Some("test(")))?;
            ask("server/startServerAsync", start_params("no such suite", None))?;
        }
        RspStep::Stop { suite, is_forced } => {
            ask("server/stopServerAsync", json!({"id": name(*suite), "force": is_forced}))?;
        }
        RspStep::CancelJobs => {
            let jobs = ask("server/getJobs", Value::Null)?;
            for job in jobs["result"].as_array().expect("jobs are a list") {
                ask("server/cancelJob", job["handle"].clone())?;
            }
        }
        RspStep::AskJobs => {
            ask("server/getJobs", Value::Null)?;
        }
        RspStep::AskState { suite } => {
            ask("server/getServerState", json!({"id": name(*suite), "type": null}))?;
        }
        RspStep::Pause(pause) => std::thread::park_timeout(*pause),
        RspStep::AwaitEnd { suite } => await_end(name(*suite), connection)?,
    }
    Some(())
}

/// Waits until a suite has stopped, or returns at once if it was not started. `None` if the connection ends
/// first.
fn await_end(suite: &str, connection: &RspConnection) -> Option<()> {
    connection.record.wait(&format!("state 4 of {suite}"), |traffic| {
        let mut starts = BTreeSet::new();
        let mut is_running = false;
        for one in traffic {
            match one {
                Traffic::Sent(request) if request["params"]["params"]["id"] == suite => {
                    starts.insert(request["id"].as_u64());
                }
                Traffic::Received(message) if message["params"]["server"]["id"] == suite => {
                    is_running &= message["params"]["state"] != 4;
                }
                Traffic::Received(message) if starts.contains(&message["id"].as_u64()) => {
                    is_running |= message["result"]["status"]["severity"] == 0;
                }
                Traffic::Sent(_) | Traffic::Received(_) | Traffic::Closed => {}
            }
        }
        (!is_running).then_some(())
    })
}

fn end_connection(planned: &PlannedConnection, client: &RspClient, connection: &RspConnection) {
    match planned.end {
        ConnectionEnding::Disconnect => {
            connection.record.leave();
            connection.send(framing::notification("server/disconnectClient", Value::Null));
            let _closed = connection.record.wait_closed();
        }
        ConnectionEnding::HangUp => connection.hang_up(),
        ConnectionEnding::Shutdown => shut_down(client, connection.clone()),
        ConnectionEnding::Terminate => {
            signal_if_there(client.process.pid, "TERM");
        }
    }
}

/// Shuts the server down; retries on a new connection if a fault closed this one.
fn shut_down(client: &RspClient, mut connection: RspConnection) {
    loop {
        connection.record.leave();
        connection.send(framing::notification("server/shutdown", Value::Null));
        let _closed = connection.record.wait_closed();
        match client.connect() {
            Some(again) => connection = again,
            None => return,
        }
    }
}

/// Checks every guarantee; panics at the first violation.
fn check_guarantees(plan: &RspPlan, client: &RspClient, round: &FaultRound<'_>) {
    round.check_nothing_left();
    let errors = client.process.errors();
    assert!(!errors.lines().any(is_own_panic), "{errors}");
    let is_coordinator_killed = round.is_killed(FaultTarget::Coordinator);
    let code = client.process.exit_code();
    assert!(is_coordinator_killed || code == Some(0), "the exit code is {code:?}\n{errors}");
    let losses = PermittedLosses::new(round.hits());
    let is_terminated = plan.connections.last().is_some_and(|last| last.end == ConnectionEnding::Terminate);
    let (mut lost, mut runs) = (0, Vec::new());
    for connection in client.connections() {
        let traffic = connection.record.wait_closed();
        let end = match () {
            () if connection.record.is_left() => ConnectionEnder::Client,
            () if is_coordinator_killed => ConnectionEnder::Killer { is_terminated },
            () => ConnectionEnder::Server,
        };
        let checked = guarantees::check(plan, &traffic, end, &losses);
        lost += checked.lost;
        runs.extend(checked.runs);
    }
    assert!(
        losses.is_stopped || losses.may_hide_a_program() || lost <= losses.tests,
        "{lost} tests are lost, and at most {} may be",
        losses.tests
    );
    check_run_files(round.dir, &runs);
    round.check_peaks();
}
