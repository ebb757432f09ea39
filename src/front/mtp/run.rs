//! `testing/runTests`: plans the run, drives it, answers after its completion.

use std::{path::PathBuf, time::Instant};

use bytes::Bytes;
use wire::{
    mtp::{LogLevel, RunMetrics, attachments_frame, completion_frame, event, telemetry_frame},
    rpc::{self, RequestId, RpcError, code},
};

use super::{choose::choose, discover::cancelled, params::TestsRequest};
use crate::{
    discover::TestRef,
    front::engine::{Engine, make_run_dir},
    run::{RunOutcome, RunPlan},
};

/// Answers the request; the completion has gone before on whichever connection carries it.
///
/// Cancel safe: no, because the run would be left without its completion; cancel by the job's commands.
pub(in crate::front) async fn answer(engine: &mut Engine, id: &RequestId, request: &TestsRequest) {
    let begun = Instant::now();
    let (metrics, response) = match run(engine, request).await {
        Ok((plan, outcome)) => {
            (crate::run::metrics(&plan, &outcome, begun.elapsed()), finished(id, &outcome))
        }
        Err(error) => {
            let response = without_run(engine, id, request, &error).await;
            let duration_ms = crate::run::millis(begun.elapsed());
            (RunMetrics { duration_ms, ..RunMetrics::default() }, response)
        }
    };
    engine.send(telemetry_frame(event::RUN, &metrics)).await;
    engine.send(response).await;
}

async fn run(engine: &mut Engine, request: &TestsRequest) -> Result<(RunPlan, RunOutcome), RpcError> {
    engine.list().await?;
    let (selected, missing) = select(engine, request);
    let run_dir = run_dir(engine, &request.run_id).await?;
    let mut plan = engine.plan(&request.run_id, run_dir, (&selected, &missing));
    plan.has_attachments_stream = engine.has_attachments_stream();
    plan.log_form = engine.log_form();
    let outcome = engine.drive(&plan).await?;
    engine.record(&plan, &outcome);
    Ok((plan, outcome))
}

/// Even a run that never began is completed before its error is told.
async fn without_run(engine: &Engine, id: &RequestId, request: &TestsRequest, error: &RpcError) -> Bytes {
    if engine.has_attachments_stream() {
        engine.send(attachments_frame(&request.run_id, None)).await;
    }
    engine.send(completion_frame(&request.run_id)).await;
    rpc::error(id, error)
}

/// Finds the tests that were asked for; each once, however often it is named.
fn select(engine: &Engine, request: &TestsRequest) -> (Vec<TestRef>, Vec<String>) {
    let (mut selected, mut missing) = choose(engine.catalogue(), request);
    selected.sort_unstable();
    selected.dedup();
    missing.sort_unstable();
    missing.dedup();
    (selected, missing)
}

async fn run_dir(engine: &Engine, run_id: &str) -> Result<PathBuf, RpcError> {
    let wished = engine.runs_dir();
    let error = match make_run_dir(&wished, run_id) {
        Ok(dir) => return Ok(dir),
        Err(error) => error,
    };
    let elsewhere = std::env::temp_dir().join(format!("heeler-{}/runs", host::process::effective_uid()));
    let text = format!(
        "failed to {}; this run's journals are kept in {}",
        crate::error_chain(&error),
        elsewhere.display()
    );
    engine.log(LogLevel::Warning, text).await;
    let is_ours = elsewhere.parent().map_or(Ok(()), host::dirs::private_dir);
    is_ours.and_then(|()| make_run_dir(&elsewhere, run_id)).map_err(|error| {
        RpcError::new(code::INTERNAL_ERROR, format!("failed to {}", crate::error_chain(&error)))
    })
}

fn finished(id: &RequestId, outcome: &RunOutcome) -> Bytes {
    match outcome.stopped_by {
        Some(model::NotRun::Cancelled) => rpc::error(id, &cancelled()),
        _ => rpc::result(id, &outcome.result),
    }
}
