//! `testing/discoverTests`: what is told of the tests that are wanted. Pure: the engine sends it.

use std::time::Duration;

use bytes::Bytes;
use wire::{
    mtp::{
        DiscoveryMetrics, change_json_with, completion_frame, event, group_node, telemetry_frame,
        updates_frame,
    },
    rpc::{self, RpcError, code},
};

use super::{choose::choose, params::TestsRequest};
use crate::{
    discover::{Catalogue, Listing, ProgramEntry, TestRef},
    front::engine::Job,
};

/// So many tests go into one update.
const TESTS_PER_UPDATE: usize = 500;

/// Returns the tests that were asked for.
pub(in crate::front) fn wanted(catalogue: &Catalogue, request: &TestsRequest) -> Vec<TestRef> {
    choose(catalogue, request).0
}

/// Returns the next update, and moves on. Without any test there is one all the same: some clients take the first update
/// as the whole, and wait for ever without one.
pub(in crate::front) fn updates(
    catalogue: &Catalogue,
    request: &TestsRequest,
    wanted: &[TestRef],
    next: &mut usize,
) -> Bytes {
    let end = wanted.len().min(*next + TESTS_PER_UPDATE);
    let mut changes = Vec::with_capacity(end - *next);
    for index in *next..end {
        // A program that was built anew meanwhile may have fewer tests.
        if catalogue.has(wanted[index]) {
            let before =
                index.checked_sub(1).map(|before| wanted[before]).filter(|place| catalogue.has(*place));
            tell_one(catalogue, (wanted[index], before), request, &mut changes);
        }
    }
    *next = end;
    updates_frame(&request.run_id, changes.iter().map(Vec::as_slice))
}

/// Returns the end of a discovery of so many tests, or of one that failed: completion, telemetry, response.
pub(in crate::front) fn finished(
    catalogue: &Catalogue,
    job: &Job,
    discovered: Result<usize, &RpcError>,
) -> Vec<Bytes> {
    let metrics = metrics(catalogue, discovered.unwrap_or(0), job.begun.elapsed());
    let response = match discovered {
        Ok(_) => rpc::result(&job.id, &serde_json::json!({})),
        Err(error) => rpc::error(&job.id, error),
    };
    vec![completion_frame(&job.request.run_id), telemetry_frame(event::DISCOVERY, &metrics), response]
}

/// Tells a test, behind the groups above it. Tests of a group stand together, so that a group above the one before has
/// been told.
fn tell_one(
    catalogue: &Catalogue,
    (place, before): (TestRef, Option<TestRef>),
    request: &TestsRequest,
    changes: &mut Vec<Vec<u8>>,
) {
    let told = before.map(|before| catalogue.groups(before)).unwrap_or_default();
    let mut parent = None;
    for (uid, name) in catalogue.groups(place) {
        if !told.contains(&(uid, name)) {
            let foreign = request.foreign.get(uid).map(AsRef::as_ref);
            changes.push(change_json_with(parent, &group_node(uid, name), foreign));
        }
        parent = Some(uid);
    }
    let node = catalogue.node(place);
    let foreign = request.foreign.get(&node.uid).map(AsRef::as_ref);
    changes.push(change_json_with(parent, &node, foreign));
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

/// The answer to a request that was cancelled.
pub(in crate::front) fn cancelled() -> RpcError {
    RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled")
}
