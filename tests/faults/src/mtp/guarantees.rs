//! Invariants at the end of a round that hold whatever faults were injected.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{client::FaultClient, plan::MtpPlan};
use crate::{
    fault_points::PossibleLoss,
    hostile,
    injector::{InjectedFault, RoundStage},
    planned_faults::{FaultTarget, InjectedAction, PointAction},
    support::{
        checked_run::{CheckedRun, ExpectedDelivery, RequestedRun},
        handling_order,
        process::ProcessRole,
        recorder::{ClientConnection, RecordedEvent, RecordedEventKind},
    },
    system_limits::StateDisk,
};

const UPDATES: &str = "testing/testUpdates/tests";
const TERMINAL: [&str; 6] = ["passed", "skipped", "failed", "timed-out", "error", "cancelled"];

/// Effects that the injected faults may have in a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PermittedEffects {
    pub(crate) is_coordinator_killed: bool,
    pub(crate) is_watchdog_killed: bool,
    pub(crate) is_client_gone: bool,
    pub(crate) is_cancelled: bool,
    /// A system error may have lost tests or the whole request.
    pub(crate) has_lost_tests: bool,
    pub(crate) has_lost_request: bool,
    /// A process ran out of files, memory or processes.
    pub(crate) is_starved: bool,
    /// Journals may be missing.
    pub(crate) has_lost_journals: bool,
    /// A process was stopped, so timeouts may have elapsed.
    pub(crate) is_stopped: bool,
    /// A test process was stopped for good. If it was listing tests, the listing blocks until its timeout.
    is_test_stopped: bool,
    /// Number of faults that may each lose the running test.
    pub(crate) lost_tests: usize,
    /// Number of workers and watchdogs that died. Their tests are rerun unless a second process dies as well.
    pub(crate) replaced: usize,
    /// Whether results may arrive more than once.
    pub(crate) delivery: ExpectedDelivery,
    /// The client proves handling and no fault prevents this. The handling order then holds across all
    /// connections, whichever processes die.
    pub(crate) is_handling_proven: bool,
}

impl PermittedEffects {
    pub(crate) fn new(plan: &MtpPlan, injected: &[InjectedFault], is_client_gone: bool) -> Self {
        let hits: Vec<_> = injected.iter().filter(|one| one.hit.is_some()).collect();
        // A fault after the completion cannot lose anything.
        let count = |is_meant: fn(InjectedAction) -> bool| {
            let early = hits.iter().filter(|hit| hit.stage <= RoundStage::Requested);
            early.filter(|hit| is_meant(hit.fault.action.equivalent())).count()
        };
        let is_killed = |target| hits.iter().any(|hit| hit.fault.action.may_kill(target));
        let costs = |cost| {
            hits.iter().any(|hit| matches!(hit.fault.action, InjectedAction::At(point, _, PointAction::Error(_)) if point.error == Some(cost)))
        };
        let is_good = plan.client.callback.is_none() || plan.client.proves_handling();
        let is_calm = hits.iter().all(|hit| hit.fault.action == InjectedAction::Cancel);
        // Translate the faults into effects.
        Self {
            is_coordinator_killed: is_killed(FaultTarget::Coordinator),
            is_watchdog_killed: is_killed(FaultTarget::ProcessRole(ProcessRole::Watchdog)),
            is_client_gone,
            is_cancelled: count(|action| action == InjectedAction::Cancel) > 0,
            has_lost_tests: costs(PossibleLoss::Tests),
            has_lost_request: costs(PossibleLoss::Request),
            is_starved: count(|action| {
                matches!(
                    action,
                    InjectedAction::LimitFiles(..)
                        | InjectedAction::LimitMemory(..)
                        | InjectedAction::LimitProcesses(..)
                )
            }) > 0,
            has_lost_journals: costs(PossibleLoss::Journal)
                || plan.disk != StateDisk::Unlimited
                || count(|action| matches!(action, InjectedAction::LimitFiles(..))) > 0,
            is_stopped: count(|action| {
                matches!(action, InjectedAction::Stop(..) | InjectedAction::StopForGood(_))
            }) > 0,
            is_test_stopped: hits
                .iter()
                .any(|hit| hit.fault.action == InjectedAction::StopForGood(FaultTarget::Test)),
            lost_tests: count(|action| {
                let fatal = [
                    FaultTarget::Test,
                    FaultTarget::ProcessRole(ProcessRole::Guard),
                    FaultTarget::ProcessRole(ProcessRole::ForkServer),
                ];
                fatal.iter().any(|target| action.may_kill(*target))
            }),
            replaced: count(|action| {
                let replaced = [
                    FaultTarget::ProcessRole(ProcessRole::Worker),
                    FaultTarget::ProcessRole(ProcessRole::Watchdog),
                ];
                replaced.iter().any(|target| action.may_kill(*target))
            }),
            is_handling_proven: plan.client.proves_handling()
                && !(plan.client.may_use_main() && is_killed(FaultTarget::Coordinator))
                && !hits.iter().any(|hit| may_hide_handling(hit.fault.action)),
            delivery: if is_good && is_calm { ExpectedDelivery::Once } else { ExpectedDelivery::AtLeastOnce },
        }
    }
}

/// Returns whether a fault may prevent the proof of handling: the client stops reading or disconnects, or a
/// process cannot open a file descriptor for a connection.
fn may_hide_handling(action: InjectedAction) -> bool {
    matches!(
        action,
        InjectedAction::StopReadingMain(_)
            | InjectedAction::StopReadingCallbacks(_)
            | InjectedAction::Disconnect
            | InjectedAction::KillClient
            | InjectedAction::LimitFiles(..)
            | InjectedAction::LimitMemory(..)
            | InjectedAction::LimitProcesses(..)
    )
}

impl PermittedEffects {
    /// Returns whether only the dead coordinator knew this result, because the journals are lost. The README
    /// documents this limitation.
    fn is_unknown_to_the_watchdog(&self, node: &Value) -> bool {
        let is_unknown = ["not-run", "interrupted"].iter().any(|kind| node["outcome-kind"] == *kind);
        self.has_lost_journals && self.is_coordinator_killed && is_unknown
    }

    /// Returns whether a hostile test may pass because its attack ran out of memory, processes or files.
    pub(crate) fn may_foil_attack(&self, uid: &str) -> bool {
        self.is_starved && uid.starts_with(hostile::SUITE_PREFIX)
    }

    /// Returns how many times a client that proves handling may receive a result: once, whichever processes
    /// die, unless the journals are lost.
    fn repetition(&self) -> ExpectedDelivery {
        let is_unknown = self.has_lost_journals;
        if is_unknown { self.delivery } else { ExpectedDelivery::Once }
    }

    /// Returns whether faults may prevent a listing. A listing is tried twice. If its process dies both
    /// times, the program's tests are missing and a failure is reported.
    pub(crate) fn may_hide_a_program(&self) -> bool {
        self.lost_tests.saturating_add(self.replaced) >= 2
            || self.is_cancelled
            || self.has_lost_tests
            || self.has_lost_request
            || self.is_starved
            || self.is_test_stopped
    }
}

/// Checks the recorded messages of a round's runs; panics at the first violation.
pub(crate) fn check(
    plan: &MtpPlan,
    client: &FaultClient,
    (licence, injected): (&PermittedEffects, &[InjectedFault]),
) {
    let events = client.recorder.events();
    for run in client.runs() {
        check_order(&events, &run, licence);
        if licence.is_handling_proven {
            handling_order::check(&events, &run, licence.repetition());
        }
        let answers = events.iter().filter_map(RecordedEvent::message);
        let is_answered =
            answers.filter(|message| message.get("method").is_none() && message["id"] == run.request).count()
                > 0;
        if is_answered {
            let checked_run = check_record(plan, &events, &run, licence);
            check_results(plan, &checked_run.tests, licence);
            check_response(&checked_run, licence, injected);
        } else if licence.is_client_gone {
            // If the client is gone, messages that it has not read may be lost.
        } else if licence.is_coordinator_killed {
            check_orphaned(plan, &events, &run, licence);
        } else {
            panic!("the run {} is not answered, and nobody is dead", run.run_id);
        }
    }
}

fn check_record(
    plan: &MtpPlan,
    events: &[RecordedEvent],
    run: &RequestedRun,
    licence: &PermittedEffects,
) -> CheckedRun {
    let unlisted = unlisted_suites(events, run);
    assert!(
        unlisted.is_empty() || licence.may_hide_a_program(),
        "programs could not be asked for their tests: {unlisted:?}"
    );
    // A run that ends before its programs are listed has no tests.
    let has_no_run = licence.is_cancelled || licence.has_lost_request || licence.is_starved;
    let is_unbegun = has_no_run && plan.selection.is_none() && nodes(events, run).next().is_none();
    // If a program could not be listed, only its explicitly selected tests are known.
    let is_known = |uid: &String| {
        !is_unbegun
            && (plan.selection.is_some()
                || !unlisted.iter().any(|suite| uid.starts_with(&format!("{suite}::"))))
    };
    let selected: Vec<_> = plan.expected().into_iter().map(|(uid, _)| uid).filter(is_known).collect();
    if plan.client.handling.is_some() {
        CheckedRun::check_handled(events, run, &selected, licence.delivery)
    } else {
        CheckedRun::check(events, run, &selected, licence.delivery)
    }
}

/// Returns the suites whose programs were reported as not listed.
fn unlisted_suites(events: &[RecordedEvent], run: &RequestedRun) -> BTreeSet<String> {
    nodes(events, run)
        .filter(|node| node["outcome-kind"] == "not-run" && node["heeler.suite"] == node["uid"])
        .filter_map(|node| Some(node["uid"].as_str()?.to_owned()))
        .collect()
}

fn nodes<'e>(events: &'e [RecordedEvent], run: &'e RequestedRun) -> impl Iterator<Item = &'e Value> {
    let updates = events.iter().filter_map(|event| event.params(UPDATES));
    updates
        .filter(|params| params["runId"] == run.run_id.as_str())
        .filter_map(|params| params["changes"].as_array())
        .flatten()
        .map(|change| &change["node"])
}

/// Checks that the response is a result or a permitted error, such as a cancellation.
fn check_response(checked_run: &CheckedRun, licence: &PermittedEffects, injected: &[InjectedFault]) {
    let Some(error) = checked_run.response.get("error") else { return };
    let may_be_refused = licence.is_starved || licence.has_lost_request;
    if may_be_refused && error["code"] == -32603 {
        return;
    }
    assert!(licence.is_cancelled, "{error} of a run that nobody cancelled");
    assert_eq!(error["code"], -32800, "{error}; {injected:?}");
}

/// Checks a run whose coordinator died before responding. If the watchdog can reach the client, the client
/// still receives all results.
fn check_orphaned(plan: &MtpPlan, events: &[RecordedEvent], run: &RequestedRun, licence: &PermittedEffects) {
    let is_reachable = plan.client.callback.as_ref().is_some_and(|callback| callback.is_good());
    let has_begun = events.iter().any(|event| {
        let params = event.params(UPDATES).filter(|params| params["runId"] == run.run_id.as_str());
        event.on != ClientConnection::Main && params.is_some()
    });
    if is_reachable && has_begun && !licence.is_watchdog_killed && !licence.has_lost_journals {
        let checked_run = check_record(
            plan,
            events,
            run,
            &PermittedEffects { delivery: ExpectedDelivery::Orphaned, ..*licence },
        );
        check_results(plan, &checked_run.tests, &PermittedEffects { lost_tests: usize::MAX, ..*licence });
    } else {
        check_results(
            plan,
            &received_results(events, run),
            &PermittedEffects { lost_tests: usize::MAX, ..*licence },
        );
    }
}

/// Returns the received results.
pub(crate) fn received_results(events: &[RecordedEvent], run: &RequestedRun) -> BTreeMap<String, Value> {
    nodes(events, run)
        .filter(|node| TERMINAL.iter().any(|state| node["execution-state"] == *state))
        .filter(|node| node["outcome-kind"] != "program-failure" && node["uid"] != node["heeler.suite"])
        .map(|node| (node["uid"].as_str().unwrap().to_owned(), node.clone()))
        .collect()
}

/// Checks invariants that hold for every run, complete or not: no test ends in two ways, no update follows
/// the completion on its connection, and no test ends for the first time on another connection afterwards.
fn check_order(events: &[RecordedEvent], run: &RequestedRun, licence: &PermittedEffects) {
    let mut ended: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut completed: BTreeSet<ClientConnection> = BTreeSet::new();
    for event in events {
        if matches!(event.what, RecordedEventKind::Closed) {
            // If a client closes the connection instead of proving receipt, everything may be sent again on
            // another connection, followed by the completion.
            completed.remove(&event.on);
        }
        let Some(params) = event.params(UPDATES) else { continue };
        if params["runId"] != run.run_id.as_str() {
            continue;
        }
        assert!(!completed.contains(&event.on), "{params} comes behind the completion on {:?}", event.on);
        let Some(changes) = params["changes"].as_array() else {
            completed.insert(event.on);
            continue;
        };
        for node in changes.iter().map(|change| &change["node"]) {
            let is_end = TERMINAL.iter().any(|state| node["execution-state"] == *state);
            if !is_end || node["outcome-kind"] == "program-failure" {
                continue;
            }
            let uid = node["uid"].as_str().unwrap();
            let is_new = ended.insert(uid, node).is_none_or(|earlier| {
                // A result missing from all journals is sent again without its details.
                let is_bare =
                    licence.has_lost_journals && earlier["execution-state"] == node["execution-state"];
                earlier == node || is_bare || licence.is_unknown_to_the_watchdog(node)
            });
            assert!(is_new, "{uid} ended in two ways: {} and {node}", ended[uid]);
        }
    }
}

/// Checks that no test is reported better or worse than its actual result, and that faults explain every
/// affected test.
fn check_results(plan: &MtpPlan, tests: &BTreeMap<String, Value>, licence: &PermittedEffects) {
    let expected: BTreeMap<_, _> = plan.expected().into_iter().collect();
    let mut lost = Vec::new();
    for (uid, node) in tests {
        let state = node["execution-state"].as_str().unwrap();
        let expected = expected[uid];
        if state == expected {
            continue;
        }
        let is_better = state == "passed" || (state == "skipped" && node["outcome-kind"] != "not-run");
        assert!(
            !is_better || licence.may_foil_attack(uid),
            "{uid} is {expected} and is reported better: {node}"
        );
        // A command fails if it cannot fork its own child process.
        let stderr = node["standardError"].as_str().unwrap_or_default();
        if state == "failed" && plan.counts_processes() && stderr.contains("Cannot fork") {
            continue;
        }
        assert!(state != "failed", "{uid} is {expected} and is reported as failed: {node}");
        lost.push((uid, node));
    }
    // A program that was not listed hides all its tests.
    let all = if licence.may_hide_a_program() { tests.len() } else { 0 };
    let is_exempt =
        licence.is_starved || licence.is_stopped || licence.is_cancelled || licence.lost_tests == usize::MAX;
    assert!(
        is_exempt || lost.len() <= licence.lost_tests.saturating_add(all),
        "{} tests are lost, and at most {} may be: {}",
        lost.len(),
        licence.lost_tests,
        json!(lost.iter().map(|(_, node)| node).collect::<Vec<_>>())
    );
}
