//! Checks a round's run directories after all processes have exited: they contain the true state of each run
//! and every result that the client received.

use std::{collections::BTreeMap, path::Path};

use heeler_core::Outcome;
use heeler_protocol::mtp::{TestNode, outcome_of_node};
use heeler_run_store::{self, EarlierRun, EarlierRunState, RecordedRun, RecordedRunError};
use serde_json::Value;

use super::{
    client::FaultClient,
    guarantees::{self, PermittedEffects},
    plan::{MtpPlan, PlannedTransport},
};
use crate::{
    injector::InjectedFault,
    planned_faults::{InjectedAction, PointAction},
};

/// Checks the run directories of a round; panics if they differ from the received results.
pub(crate) fn check(
    plan: &MtpPlan,
    dir: &Path,
    client: &FaultClient,
    (licence, injected): (&PermittedEffects, &[InjectedFault]),
) {
    if licence.has_lost_journals || injected.iter().any(has_lost_place) {
        return;
    }
    // Every run must be over.
    let all = heeler_run_store::list_runs(&dir.join(".heeler"));
    for run in &all {
        let is_over = matches!(run.state, EarlierRunState::Ended(_) | EarlierRunState::Interrupted { .. });
        assert!(is_over, "all processes are gone, and a run is {:?}: {:?}", run.state, run.problems);
    }
    // The files of each run must agree with the messages that the client received.
    let events = client.recorder.events();
    for asked in client.runs() {
        let seen = guarantees::received_results(&events, &asked);
        let is_it = |run: &&EarlierRun| run.head.as_ref().is_some_and(|head| head.run == asked.run_id);
        let Some(run) = all.iter().find(is_it) else {
            // A run that ends while its programs are being listed has not begun.
            let has_begun =
                |node: &Value| node["execution-state"] != "cancelled" && node["outcome-kind"] != "not-run";
            let of_it = seen.values().find(|node| has_begun(node));
            assert_eq!(of_it, None, "the run {} has a result and is not on the disk", asked.run_id);
            continue;
        };
        let is_answered = events.iter().filter_map(|event| event.message()).any(|message| {
            message.get("method").is_none()
                && message["id"] == asked.request
                && message.get("error").is_none()
        });
        let is_ended = matches!(run.state, EarlierRunState::Ended(_));
        assert!(is_ended || !is_answered, "an answered run has the state {:?}", run.state);
        match heeler_run_store::read_recorded_run(run) {
            Ok(story) => compare(plan, &story, &seen, licence),
            Err(RecordedRunError::NoManifest { .. }) => {
                assert!(seen.is_empty(), "there are results of a run without a manifest");
            }
            Err(error) => panic!("a run's files can't be read: {error}: {:?}", run.problems),
        }
    }
    // The command line receives no messages, so only the expected states are compared with its files.
    if plan.client.transport == PlannedTransport::CommandLine {
        for story in all.iter().filter_map(|run| heeler_run_store::read_recorded_run(run).ok()) {
            compare(plan, &story, &BTreeMap::new(), licence);
        }
    }
}

/// Returns whether an error may have moved the journals elsewhere or prevented the manifest.
fn has_lost_place(one: &InjectedFault) -> bool {
    let InjectedAction::At(point, _, PointAction::Error(_)) = one.fault.action else { return false };
    one.hit.is_some() && ["run.dir", "run.manifest"].contains(&point.name)
}

/// Checks that the files contain each test once, with the result that the client received.
fn compare(plan: &MtpPlan, story: &RecordedRun, seen: &BTreeMap<String, Value>, licence: &PermittedEffects) {
    assert!(story.losses.is_empty(), "lost: {:?}", story.losses);
    let stored: BTreeMap<String, Outcome> =
        story.reports().map(|report| (report.uid, report.outcome)).collect();
    for (uid, node) in seen {
        let again =
            stored.get(uid).unwrap_or_else(|| panic!("{uid} has a result, and the files have none: {node}"));
        let sent: TestNode = serde_json::from_value(node.clone()).expect("nodes are JSON");
        let sent = outcome_of_node(&sent).map(Outcome::label);
        assert_eq!(sent, Some(again.label()), "{uid} has another outcome in the files: {node}");
    }
    for (uid, expected) in plan.expected() {
        let Some(outcome) = stored.get(&uid) else {
            assert!(licence.may_hide_a_program(), "the files lack {uid}: {:?}", stored.keys());
            continue;
        };
        let is_better = matches!(outcome, Outcome::Passed | Outcome::Flaky) && expected != "passed";
        let is_better = is_better && !licence.may_foil_attack(&uid);
        assert!(!is_better, "{uid} is {expected}, and better in the files: {outcome:?}");
    }
}
