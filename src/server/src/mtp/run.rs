//! `testing/runTests`: the frames sent after a run's completion, or for a run that never began.

use std::collections::BTreeSet;

use bytes::Bytes;
use heeler_core::{NotRunReason, Outcome, TestResult};
use heeler_protocol::{
    control::UpdateEncoding,
    mtp::{
        NodeDescription, RunMetrics, attachments_frame, completion_frame, event, render_result,
        telemetry_frame,
    },
    rpc::{self, RpcError, code},
};
use heeler_recovery::finish;

use super::{
    discover::cancelled_error,
    metrics::{duration_ms, run_metrics},
    requests::RequestJob,
};
use crate::run::{RunOutcome, RunPlan};

/// Returns the frames after a run's completion: telemetry, response.
pub(super) fn final_frames(job: &RequestJob, plan: &RunPlan, outcome: &RunOutcome) -> Vec<Bytes> {
    let metrics = run_metrics(plan, outcome, job.begun.elapsed());
    let response = match outcome.stopped_by {
        Some(NotRunReason::Cancelled) => rpc::encode_error(&job.id, &cancelled_error()),
        _ => rpc::encode_result(&job.id, &outcome.result),
    };
    vec![telemetry_frame(event::RUN, &metrics), response]
}

/// Returns the final frames of a run that never began. Tests requested by uid still get a terminal state.
pub(super) fn refused_run_frames(
    has_attachments_stream: bool,
    job: &RequestJob,
    error: &RpcError,
) -> Vec<Bytes> {
    let run = &job.request.run_id;
    let named: BTreeSet<_> = job.request.selection.uids.iter().flatten().collect();
    let change = |uid: &String| {
        let client_members = job.request.client_members.get(uid);
        let description =
            NodeDescription { uid, display_name: uid, client_members, ..NodeDescription::default() };
        let mut change = Vec::new();
        render_result(&mut change, &description, &not_run_result(error));
        change
    };
    let changes: Vec<_> = named.into_iter().map(change).collect();
    let duration_ms = duration_ms(job.begun.elapsed());
    let metrics = RunMetrics { duration_ms, ..RunMetrics::default() };
    let updates = finish::update_frames(UpdateEncoding::TestProtocol, run, &changes);
    let mut frames: Vec<_> = updates.into_iter().map(|frame| frame.bytes).collect();
    frames.extend(end_frames(has_attachments_stream, run));
    frames.extend([telemetry_frame(event::RUN, &metrics), rpc::encode_error(&job.id, error)]);
    frames
}

/// Returns the frames that end a run's streams: end of the attachments, completion.
pub(super) fn end_frames(has_attachments_stream: bool, run_id: &str) -> impl Iterator<Item = Bytes> {
    let attachments_end = has_attachments_stream.then(|| attachments_frame(run_id, None));
    attachments_end.into_iter().chain([completion_frame(run_id)])
}

fn not_run_result(error: &RpcError) -> TestResult {
    let reason = match error.code {
        code::REQUEST_CANCELLED => NotRunReason::Cancelled,
        _ => NotRunReason::Unrunnable,
    };
    TestResult::with_reason(Outcome::NotRun(reason), format!("not run: {}", error.message))
}
