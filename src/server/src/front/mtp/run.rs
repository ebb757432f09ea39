//! `testing/runTests`: the run's plan, the directory of its journals, and the frames after its completion.

use std::{collections::BTreeSet, num::NonZeroU32};

use bytes::Bytes;
use heeler_core::{NotRunReason, Outcome, TestResult};
use heeler_protocol::{
    mtp::{LogLevel, NodeDescription, RunMetrics, event, render_result, telemetry_frame},
    rpc::{self, RpcError, code},
};
use heeler_sys::dirs::{DirError, private_dir, temporary_dir, unique_dir};

use super::{discover::cancelled_error, params::TestsRequest, selection::select_tests};
use crate::discovery::TestRef;
use crate::front::scheduler::{RequestJob, Scheduler};
use crate::run::{HistorySnapshot, RunOutcome, RunPlan, RunPlanInputs};
use heeler_run_store::{DIR_NAME, RunDir, fallback_state_dir, make_run_dir};

/// Plans the run of a request.
///
/// # Errors
/// No directory for its journals can be made.
pub(in crate::front) async fn plan_run(
    engine: &Scheduler,
    request: &TestsRequest,
) -> Result<RunPlan, RpcError> {
    let (selected, missing) = select_tests(engine.catalogue(), request);
    let run_dir = prepare_run_dir(engine, &request.run_id).await?;
    let knowledge = read_history(engine, &selected);
    let ingredients = RunPlanInputs {
        catalogue: engine.catalogue(),
        selected: &selected,
        missing: &missing,
        settings: engine.settings(),
        history: &knowledge,
    };
    let mut plan = RunPlan::new(&request.run_id, run_dir, &ingredients);
    plan.has_attachments_stream = engine.has_attachments_stream();
    plan.log_form = engine.log_form();
    plan.provenance = engine.provenance().clone();
    plan.attach_foreign_members(&request.foreign);
    if engine.debuggers().is_debug_run(request.is_debug) {
        if engine.debuggers().is_available() {
            plan.make_debug_run();
        } else {
            let text = "the tests run without a debugger: the client has not declared debuggerProvider";
            engine.log(LogLevel::Warning, text.to_owned()).await;
        }
    }
    Ok(plan)
}

fn read_history(engine: &Scheduler, selected: &[TestRef]) -> HistorySnapshot {
    if !engine.settings().run.is_history_kept {
        return HistorySnapshot::default();
    }
    let catalogue = engine.catalogue();
    let uids = selected.iter().filter_map(|place| Some(catalogue.test(*place)?.uid()));
    HistorySnapshot::read(&engine.settings().state_dir, uids).unwrap_or_else(|error| {
        tracing::warn!(error = heeler_core::error_chain(&error), "durations of earlier runs are not used");
        HistorySnapshot::default()
    })
}

async fn prepare_run_dir(engine: &Scheduler, run_id: &str) -> Result<RunDir, RpcError> {
    let keep = engine.settings().run.keep_runs;
    let wished = engine.runs_dir();
    let error = match make_run_dir(&wished, run_id, keep) {
        Ok(dir) => return Ok(dir),
        Err(error) => error,
    };
    let made = make_fallback_run_dir(run_id, keep);
    let place = made.as_ref().map_or_else(
        |_| "no place that could be made".to_owned(),
        |dir| dir.path.parent().unwrap_or(&dir.path).display().to_string(),
    );
    let text =
        format!("failed to {}; this run's journals are kept in {place}", heeler_core::error_chain(&error));
    engine.log(LogLevel::Warning, text).await;
    made.map_err(|error| {
        RpcError::new(code::INTERNAL_ERROR, format!("failed to {}", heeler_core::error_chain(&error)))
    })
}

/// Makes the run directory in a fallback place of this user that later commands find; in a new unique
/// directory if another user has taken that place's name.
fn make_fallback_run_dir(run_id: &str, keep: NonZeroU32) -> Result<RunDir, DirError> {
    let known = fallback_state_dir();
    let made = private_dir(&known).and_then(|()| make_run_dir(&known.join(DIR_NAME), run_id, keep));
    made.or_else(|_taken| {
        let new = unique_dir(&temporary_dir(), "heeler-runs")?;
        make_run_dir(&new.join(DIR_NAME), run_id, keep)
    })
}

/// Records durations and crashes for later runs. A history that can't be written does not fail the run.
pub(in crate::front) fn record_history(engine: &Scheduler, plan: &RunPlan, outcome: &RunOutcome) {
    // Durations and outcomes under a debugger do not predict the next run.
    if !engine.settings().run.is_history_kept || plan.is_debugged {
        return;
    }
    if let Err(error) = crate::run::record_history(&engine.settings().state_dir, plan, outcome) {
        tracing::warn!(error = heeler_core::error_chain(&error), "durations of this run are not kept");
    }
}

/// Returns the frames that follow the completion of a run: telemetry, response.
pub(in crate::front) fn final_frames(job: &RequestJob, plan: &RunPlan, outcome: &RunOutcome) -> Vec<Bytes> {
    let metrics = crate::run::run_metrics(plan, outcome, job.begun.elapsed());
    let response = match outcome.stopped_by {
        Some(NotRunReason::Cancelled) => rpc::encode_error(&job.id, &cancelled_error()),
        _ => rpc::encode_result(&job.id, &outcome.result),
    };
    vec![telemetry_frame(event::RUN, &metrics), response]
}

/// Returns the final frames of a run that never began. Tests that were named still get a terminal state.
pub(in crate::front) fn refused_run_frames(
    has_attachments_stream: bool,
    job: &RequestJob,
    error: &RpcError,
) -> Vec<Bytes> {
    let run = &job.request.run_id;
    let named: BTreeSet<_> = job.request.uids.iter().flatten().collect();
    let change = |uid: &String| {
        let description = NodeDescription { uid, display_name: uid, ..NodeDescription::default() };
        let mut change = Vec::new();
        render_result(&mut change, &description, &not_run_result(error));
        change
    };
    let changes: Vec<_> = named.into_iter().map(change).collect();
    let duration_ms = crate::run::duration_ms(job.begun.elapsed());
    let metrics = RunMetrics { duration_ms, ..RunMetrics::default() };
    let mut frames = crate::run::end_frames(run, &changes, has_attachments_stream);
    frames.extend([telemetry_frame(event::RUN, &metrics), rpc::encode_error(&job.id, error)]);
    frames
}

fn not_run_result(error: &RpcError) -> TestResult {
    let reason = match error.code {
        code::REQUEST_CANCELLED => NotRunReason::Cancelled,
        _ => NotRunReason::Unrunnable,
    };
    TestResult::with_reason(Outcome::NotRun(reason), format!("not run: {}", error.message))
}
