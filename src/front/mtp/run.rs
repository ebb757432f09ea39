//! `testing/runTests`: the run's plan, the directory of its journals, and the frames after its completion.

use std::{collections::BTreeSet, num::NonZeroU32};

use bytes::Bytes;
use host::dirs::{DirError, make_by_chance, private_dir, temporary_place};
use wire::{
    mtp::{ExecutionState, LogLevel, RunMetrics, TestNode, change_json, event, telemetry_frame},
    rpc::{self, RpcError, code},
};

use super::{choose::choose, discover::cancelled, params::TestsRequest};
use crate::{
    discover::TestRef,
    front::engine::{Engine, Job},
    run::{Ingredients, Knowledge, RunOutcome, RunPlan},
    runs::{DIR_NAME, RunDir, make_run_dir, state_dir_elsewhere},
};

/// Plans the run of a request.
///
/// # Errors
/// No directory for its journals can be made.
pub(in crate::front) async fn plan(engine: &Engine, request: &TestsRequest) -> Result<RunPlan, RpcError> {
    let (selected, missing) = choose(engine.catalogue(), request);
    let run_dir = run_dir(engine, &request.run_id).await?;
    let knowledge = knowledge(engine, &selected);
    let ingredients = Ingredients {
        catalogue: engine.catalogue(),
        selected: &selected,
        missing: &missing,
        settings: engine.settings(),
        knowledge: &knowledge,
    };
    let mut plan = RunPlan::new(&request.run_id, run_dir, &ingredients);
    plan.has_attachments_stream = engine.has_attachments_stream();
    plan.log_form = engine.log_form();
    plan.provenance = engine.provenance().clone();
    plan.carry(&request.foreign);
    if engine.debuggers().are_wanted(request.is_debug) {
        if engine.debuggers().are_there() {
            plan.debug();
        } else {
            let text = "the tests run without a debugger: the client has not declared debuggerProvider";
            engine.log(LogLevel::Warning, text.to_owned()).await;
        }
    }
    Ok(plan)
}

fn knowledge(engine: &Engine, selected: &[TestRef]) -> Knowledge {
    if !engine.settings().run.is_history_kept {
        return Knowledge::default();
    }
    let catalogue = engine.catalogue();
    let uids = selected.iter().filter_map(|place| Some(catalogue.test(*place)?.uid()));
    Knowledge::read(&engine.settings().state_dir, uids).unwrap_or_else(|error| {
        tracing::warn!(error = crate::error_chain(&error), "durations of earlier runs are not used");
        Knowledge::default()
    })
}

async fn run_dir(engine: &Engine, run_id: &str) -> Result<RunDir, RpcError> {
    let keep = engine.settings().run.keep_runs;
    let wished = engine.runs_dir();
    let error = match make_run_dir(&wished, run_id, keep) {
        Ok(dir) => return Ok(dir),
        Err(error) => error,
    };
    let made = make_elsewhere(run_id, keep);
    let place = made.as_ref().map_or_else(
        |_| "no place that could be made".to_owned(),
        |dir| dir.path.parent().unwrap_or(&dir.path).display().to_string(),
    );
    let text = format!("failed to {}; this run's journals are kept in {place}", crate::error_chain(&error));
    engine.log(LogLevel::Warning, text).await;
    made.map_err(|error| {
        RpcError::new(code::INTERNAL_ERROR, format!("failed to {}", crate::error_chain(&error)))
    })
}

/// Makes the run directory in a fallback place of this user that later commands find; in a new unique
/// directory if another user has taken that place's name.
fn make_elsewhere(run_id: &str, keep: NonZeroU32) -> Result<RunDir, DirError> {
    let known = state_dir_elsewhere();
    let made = private_dir(&known).and_then(|()| make_run_dir(&known.join(DIR_NAME), run_id, keep));
    made.or_else(|_taken| {
        let new = make_by_chance(&temporary_place(), "heeler-runs")?;
        make_run_dir(&new.join(DIR_NAME), run_id, keep)
    })
}

/// Records durations and crashes for later runs. A history that can't be written does not fail the run.
pub(in crate::front) fn record(engine: &Engine, plan: &RunPlan, outcome: &RunOutcome) {
    // Durations and outcomes under a debugger do not predict the next run.
    if !engine.settings().run.is_history_kept || plan.is_debugged {
        return;
    }
    if let Err(error) = crate::run::record(&engine.settings().state_dir, plan, outcome) {
        tracing::warn!(error = crate::error_chain(&error), "durations of this run are not kept");
    }
}

/// Returns the frames that follow the completion of a run: telemetry, response.
pub(in crate::front) fn finished(job: &Job, plan: &RunPlan, outcome: &RunOutcome) -> Vec<Bytes> {
    let metrics = crate::run::metrics(plan, outcome, job.begun.elapsed());
    let response = match outcome.stopped_by {
        Some(model::NotRun::Cancelled) => rpc::error(&job.id, &cancelled()),
        _ => rpc::result(&job.id, &outcome.result),
    };
    vec![telemetry_frame(event::RUN, &metrics), response]
}

/// Returns the final frames of a run that never began. Tests that were named still get a terminal state.
pub(in crate::front) fn refused(has_attachments_stream: bool, job: &Job, error: &RpcError) -> Vec<Bytes> {
    let run = &job.request.run_id;
    let named: BTreeSet<_> = job.request.uids.iter().flatten().collect();
    let changes: Vec<_> = named.into_iter().map(|uid| change_json(&never_began(uid, error))).collect();
    let duration_ms = crate::run::millis(job.begun.elapsed());
    let metrics = RunMetrics { duration_ms, ..RunMetrics::default() };
    let mut frames = crate::run::end_frames(run, &changes, has_attachments_stream.then_some(&[]));
    frames.extend([telemetry_frame(event::RUN, &metrics), rpc::error(&job.id, error)]);
    frames
}

fn never_began(uid: &str, error: &RpcError) -> TestNode {
    let state =
        if error.code == code::REQUEST_CANCELLED { ExecutionState::Cancelled } else { ExecutionState::Error };
    let mut node = TestNode::test(uid, uid, state);
    node.outcome_kind = Some("not-run".to_owned());
    node.error_message = Some(format!("not run: {}", error.message));
    node
}
