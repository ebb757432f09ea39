//! `testing/runTests`: the run's plan, and the frames after its completion.

use std::collections::BTreeSet;

use bytes::Bytes;
use heeler_protocol::{
    mtp::{ExecutionState, RunMetrics, TestNode, encode_change, event, telemetry_frame},
    rpc::{self, RpcError, code},
};

use super::{discover::cancelled_error, requests::RequestJob};
use crate::run::{RunOutcome, RunPlan};

/// Returns the frames that follow the completion of a run: telemetry, response.
pub(super) fn final_frames(job: &RequestJob, plan: &RunPlan, outcome: &RunOutcome) -> Vec<Bytes> {
    let metrics = crate::run::run_metrics(plan, outcome, job.begun.elapsed());
    let response = match outcome.stopped_by {
        Some(heeler_core::NotRunReason::Cancelled) => rpc::encode_error(&job.id, &cancelled_error()),
        _ => rpc::encode_result(&job.id, &outcome.result),
    };
    vec![telemetry_frame(event::RUN, &metrics), response]
}

/// Returns the final frames of a run that never began. Tests that were named still get a terminal state.
pub(super) fn refused_run_frames(
    has_attachments_stream: bool,
    job: &RequestJob,
    error: &RpcError,
) -> Vec<Bytes> {
    let run = &job.request.run_id;
    let named: BTreeSet<_> = job.request.selection.uids.iter().flatten().collect();
    let changes: Vec<_> = named.into_iter().map(|uid| encode_change(&not_run_node(uid, error))).collect();
    let duration_ms = crate::run::duration_ms(job.begun.elapsed());
    let metrics = RunMetrics { duration_ms, ..RunMetrics::default() };
    let mut frames = crate::run::end_frames(run, &changes, has_attachments_stream.then_some(&[]));
    frames.extend([telemetry_frame(event::RUN, &metrics), rpc::encode_error(&job.id, error)]);
    frames
}

fn not_run_node(uid: &str, error: &RpcError) -> TestNode {
    let state =
        if error.code == code::REQUEST_CANCELLED { ExecutionState::Cancelled } else { ExecutionState::Error };
    let mut node = TestNode::test(uid, uid, state);
    node.outcome_kind = Some("not-run".to_owned());
    node.error_message = Some(format!("not run: {}", error.message));
    node
}
