//! `testing/discoverTests`: composes the frames that report the requested tests. Pure: the engine sends them.

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

/// Maximum number of tests per update frame.
const TESTS_PER_UPDATE: usize = 500;

/// Returns the requested tests.
pub(in crate::front) fn wanted(catalogue: &Catalogue, request: &TestsRequest) -> Vec<TestRef> {
    choose(catalogue, request).0
}

/// Returns the next update and advances `next`. Without any test there is still one update: some clients take
/// the first update as the whole result and would wait forever without one.
pub(in crate::front) fn updates(
    catalogue: &Catalogue,
    request: &TestsRequest,
    wanted: &[TestRef],
    next: &mut usize,
) -> Bytes {
    let end = wanted.len().min(*next + TESTS_PER_UPDATE);
    let mut changes = Vec::with_capacity(end - *next);
    for index in *next..end {
        // A program that was rebuilt in the meantime may have fewer tests.
        if catalogue.has(wanted[index]) {
            let before =
                index.checked_sub(1).map(|before| wanted[before]).filter(|place| catalogue.has(*place));
            tell_one(catalogue, (wanted[index], before), request, &mut changes);
        }
    }
    *next = end;
    updates_frame(&request.run_id, changes.iter().map(Vec::as_slice))
}

/// Returns the final frames of a discovery that found this many tests, or that failed: completion, telemetry,
/// response.
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

/// Adds a test's change, after those of the groups above it. Tests of a group are consecutive, so the groups
/// of the preceding test have been added already.
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

/// Returns the error for a request that was cancelled.
pub(in crate::front) fn cancelled() -> RpcError {
    RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled")
}
