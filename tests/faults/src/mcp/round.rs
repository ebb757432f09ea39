//! One round: the client's calls and the checks afterwards.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde_json::{Value, json};

use super::{
    client::{McpClient, open_runs},
    guarantees::{self, SessionEnd, answer_of},
    plan::{McpEnding, McpPlan, McpStep, PlannedRun, ProtocolEra},
};
use crate::{
    injector::{RoundProgress, RoundStage},
    planned_faults::{FaultTarget, InjectedAction},
    round::{FaultRound, is_own_panic},
    suites::{self, filter_of},
    support::process::signal_if_there,
    test_results::{PermittedLosses, check_run_files},
};

/// Plays a round.
pub(crate) fn play(plan: &McpPlan, round: &mut FaultRound<'_>) {
    suites::prepare(round.dir, &plan.suites, &plan.settings);
    let client = McpClient::start(plan, round.dir, &round.mark);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        round.with_faults(&plan.faults, &client, |round, progress| {
            run_session(plan, &client, round, progress);
        });
        check_guarantees(plan, &client, round);
    }));
    round.errors = client.process.errors();
    if outcome.is_err() {
        fs::write(round.dir.join("traffic.txt"), client.record.text()).ok();
        fs::write(round.dir.join("stderr.txt"), client.process.errors()).ok();
        std::panic::resume_unwind(Box::new(()));
    }
}

/// Plays the client until the server has exited.
fn run_session(plan: &McpPlan, client: &McpClient, round: &mut FaultRound<'_>, progress: &RoundProgress) {
    progress.reach(RoundStage::Requested);
    let _closed = open_session(plan, client).and_then(|()| {
        plan.steps.iter().try_for_each(|step| take_step(step, client))?;
        round.measure(client.process.pid);
        Some(())
    });
    if plan.end == McpEnding::CloseInput {
        await_answers(client);
    } else if plan.end == McpEnding::Terminate {
        // The response to this request proves that all earlier input was read.
        let id = client.request("tools/list", json!({}));
        let _closed = client.wait_response(&id);
        signal_if_there(client.process.pid, "TERM");
        let _all = client.record.wait_closed();
    }
    progress.reach(RoundStage::Leaving);
    client.close_input();
    assert!(client.process.wait_gone(), "processes of Heeler's own are left\n{}", client.process.errors());
}

/// Opens the session in each planned era; `None` if the output ends.
fn open_session(plan: &McpPlan, client: &McpClient) -> Option<()> {
    if plan.eras.contains(&ProtocolEra::Modern) {
        client.wait_response(&client.request("server/discover", json!({})))?;
    }
    if plan.eras.contains(&ProtocolEra::Legacy) {
        let info = json!({"name": "faults", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        client.wait_response(&client.request("initialize", params))?;
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }
    Some(())
}

/// Performs one step; `None` if the output has ended.
fn take_step(step: &McpStep, client: &McpClient) -> Option<()> {
    match step {
        McpStep::Run(run) => call_run(run, client),
        McpStep::ListTests => {
            read_pages(client, "list_tests", &json!({}))?;
        }
        McpStep::ListTools => {
            client.wait_response(&client.request("tools/list", json!({})))?;
        }
        McpStep::CancelCall => {
            if let Some(call) = client.open_run() {
                client.cancel(&call);
            }
        }
        McpStep::CancelRun => {
            if let Some(run) = client.reported_run() {
                client.wait_response(&client.call("cancel_run", json!({"run": run})))?;
            }
        }
        McpStep::ReadFailures => {
            let answer = client.record.last_received(|message| answer_of(message)["counts"].is_object());
            if let Some(answer) = answer.map(|answer| answer_of(&answer)) {
                read_pages(client, "get_failures", &json!({"run": answer["run"]}))?;
                if let Some(failure) = answer["failures"].get(0) {
                    let output = json!({"run": answer["run"], "test": failure["test"]});
                    client.wait_response(&client.call("get_output", output))?;
                }
            }
        }
        McpStep::Garbage => client.send(json!("this is no message")),
        McpStep::UnknownTool => {
            client.wait_response(&client.call("no_such_tool", json!({})))?;
        }
        McpStep::SelfTest => {
            client.wait_response(&client.call("mcp.test.protocol", json!({})))?;
        }
        McpStep::Pause(pause) => std::thread::park_timeout(*pause),
        McpStep::AwaitAnswers => await_answers(client),
    }
    Some(())
}

fn call_run(run: &PlannedRun, client: &McpClient) {
    let mut arguments = json!({});
    if let Some(tests) = &run.tests {
        arguments["filter"] = json!(filter_of(tests));
    }
    if let Some(repeat) = run.repeat {
        arguments["repeat"] = json!(repeat);
    }
    if run.reruns_failed {
        arguments["rerun"] = json!("failed");
    }
    let mut params = json!({"name": "run_tests", "arguments": arguments});
    if run.has_progress {
        params["_meta"] = json!({"progressToken": format!("token {}", client.record.sent())});
    }
    client.request("tools/call", params);
}

/// Calls a tool once per page, up to the last page; `None` if the output ends first.
fn read_pages(client: &McpClient, tool: &str, arguments: &Value) -> Option<()> {
    let mut arguments = arguments.clone();
    loop {
        let answer = client.wait_response(&client.call(tool, arguments.clone()))?;
        let cursor = answer_of(&answer)["nextCursor"].clone();
        if cursor.is_null() {
            return Some(());
        }
        arguments["cursor"] = cursor;
    }
}

/// Waits until all runs are answered or cancelled, or the output ends.
fn await_answers(client: &McpClient) {
    client.record.wait("the answers to all calls", |traffic| open_runs(traffic).is_empty().then_some(()));
}

/// Checks every guarantee; panics at the first violation.
fn check_guarantees(plan: &McpPlan, client: &McpClient, round: &FaultRound<'_>) {
    round.check_nothing_left();
    let errors = client.process.errors();
    assert!(!errors.lines().any(is_own_panic), "{errors}");
    let is_coordinator_killed = round.is_killed(FaultTarget::Coordinator);
    let code = client.process.exit_code();
    assert!(is_coordinator_killed || code == Some(0), "the exit code is {code:?}\n{errors}");
    let is_left_early = plan.end == McpEnding::LeaveCalls
        || round.hits().any(|hit| hit.fault.action == InjectedAction::Disconnect);
    let end = match () {
        () if is_coordinator_killed || is_left_early => SessionEnd::Early,
        () if plan.end == McpEnding::Terminate => SessionEnd::Terminated,
        () => SessionEnd::Answered,
    };
    let losses = PermittedLosses::new(round.hits());
    let checked = guarantees::check(plan, &client.record.wait_closed(), end, &losses);
    assert!(
        losses.is_stopped || losses.may_hide_a_program() || checked.lost <= losses.tests,
        "{} tests are lost, and at most {} may be",
        checked.lost,
        losses.tests
    );
    check_run_files(round.dir, &checked.runs);
    round.check_peaks();
}
