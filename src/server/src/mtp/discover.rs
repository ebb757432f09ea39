//! `testing/discoverTests`: composes the frames that report the requested tests. Pure: `requests` sends them.

use std::time::Duration;

use bytes::Bytes;
use heeler_protocol::{
    mtp::{
        DiscoveryMetrics, completion_frame, encode_change_in_group, event, group_node, telemetry_frame,
        updates_frame,
    },
    rpc::{self, RpcError, code},
};

use super::{params::TestsRequest, requests::RequestJob};
use crate::discovery::{Catalogue, ListingState, ProgramEntry, TestRef, select_tests};

/// Maximum number of tests per update frame.
const TESTS_PER_UPDATE: usize = 500;

/// Returns the requested tests.
pub(super) fn requested_tests(catalogue: &Catalogue, request: &TestsRequest) -> Vec<TestRef> {
    select_tests(catalogue, &request.selection).0
}

/// Returns the next update and advances `next`. Without any test there is still one update: some clients take
/// the first update as the whole result and would wait forever without one.
pub(super) fn next_update(
    catalogue: &Catalogue,
    request: &TestsRequest,
    wanted: &[TestRef],
    next: &mut usize,
) -> Bytes {
    let end = wanted.len().min(*next + TESTS_PER_UPDATE);
    let mut changes = Vec::with_capacity(end - *next);
    for index in *next..end {
        // A program that was rebuilt in the meantime may have fewer tests.
        if catalogue.contains(wanted[index]) {
            let before =
                index.checked_sub(1).map(|before| wanted[before]).filter(|place| catalogue.contains(*place));
            push_test_change(catalogue, (wanted[index], before), request, &mut changes);
        }
    }
    *next = end;
    updates_frame(&request.run_id, changes.iter().map(Vec::as_slice))
}

/// Returns the final frames of a discovery that found this many tests, or that failed, perhaps before there was
/// a catalogue: completion, telemetry, response.
pub(super) fn final_frames(
    catalogue: Option<&Catalogue>,
    job: &RequestJob,
    discovered: Result<usize, &RpcError>,
) -> Vec<Bytes> {
    let programs = catalogue.map_or(&[][..], Catalogue::programs);
    let metrics = discovery_metrics(programs, discovered.unwrap_or(0), job.begun.elapsed());
    let response = match discovered {
        Ok(_) => rpc::encode_result(&job.id, &serde_json::json!({})),
        Err(error) => rpc::encode_error(&job.id, error),
    };
    vec![completion_frame(&job.request.run_id), telemetry_frame(event::DISCOVERY, &metrics), response]
}

/// Adds a test's change, after those of the groups above it. Tests of a group are consecutive, so the groups
/// of the preceding test have been added already.
fn push_test_change(
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
            changes.push(encode_change_in_group(parent, &group_node(uid, name), foreign));
        }
        parent = Some(uid);
    }
    let node = catalogue.node(place);
    let foreign = request.foreign.get(&node.uid).map(AsRef::as_ref);
    changes.push(encode_change_in_group(parent, &node, foreign));
}

fn discovery_metrics(programs: &[ProgramEntry], discovered: usize, took: Duration) -> DiscoveryMetrics {
    let is_broken = |entry: &&ProgramEntry| matches!(entry.listing, ListingState::Broken { .. });
    DiscoveryMetrics {
        discovered,
        programs: programs.len(),
        broken_programs: programs.iter().filter(is_broken).count(),
        duration_ms: crate::run::duration_ms(took),
    }
}

/// Returns the error for a request that was cancelled.
pub(super) fn cancelled_error() -> RpcError {
    RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled")
}
