//! `testing/discoverTests`: lists what is not known and tells it on the main connection.

use std::time::{Duration, Instant};

use wire::{
    mtp::{DiscoveryMetrics, change_json, completion_frame, event, telemetry_frame, updates_frame},
    rpc::{self, RequestId, RpcError, code},
};

use super::{choose::choose, params::TestsRequest};
use crate::{
    discover::{Catalogue, Listing, ProgramEntry, TestRef},
    front::engine::Engine,
};

/// So many tests go into one update.
const TESTS_PER_UPDATE: usize = 500;

/// Answers the request: updates, completion, response.
///
/// Cancel safe: no, because a part may be sent; cancel by the job's commands.
pub(in crate::front) async fn answer(engine: &mut Engine, id: &RequestId, request: &TestsRequest) {
    let begun = Instant::now();
    let listed = engine.list().await;
    let discovered = if listed.is_ok() { tell(engine, request).await } else { 0 };
    engine.send(completion_frame(&request.run_id)).await;
    let metrics = metrics(engine.catalogue(), discovered, begun.elapsed());
    engine.send(telemetry_frame(event::DISCOVERY, &metrics)).await;
    let response = match listed {
        Ok(()) => rpc::result(id, &serde_json::json!({})),
        Err(error) => rpc::error(id, &error),
    };
    engine.send(response).await;
}

/// Tells the tests that are wanted; returns how many.
async fn tell(engine: &Engine, request: &TestsRequest) -> usize {
    let wanted = wanted(engine.catalogue(), request);
    if wanted.is_empty() {
        // Some clients take the first update as the whole, and wait for ever without one.
        engine.send(updates_frame(&request.run_id, [])).await;
    }
    for chunk in wanted.chunks(TESTS_PER_UPDATE) {
        let changes: Vec<_> =
            chunk.iter().map(|place| change_json(&engine.catalogue().node(*place))).collect();
        engine.send(updates_frame(&request.run_id, changes.iter().map(Vec::as_slice))).await;
    }
    wanted.len()
}

fn metrics(catalogue: &Catalogue, discovered: usize, took: Duration) -> DiscoveryMetrics {
    let is_broken = |entry: &&ProgramEntry| matches!(entry.listing, Listing::Broken { .. });
    DiscoveryMetrics {
        discovered,
        programs: catalogue.programs().len(),
        broken_programs: catalogue.programs().iter().filter(is_broken).count(),
        duration_ms: crate::run::millis(took),
    }
}

fn wanted(catalogue: &Catalogue, request: &TestsRequest) -> Vec<TestRef> {
    choose(catalogue, request).0
}

/// The answer to a request that was cancelled.
pub(in crate::front) fn cancelled() -> RpcError {
    RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled")
}
