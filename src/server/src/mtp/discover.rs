//! `testing/discoverTests`: composes the frames that report the requested tests. Pure; `requests` sends the
//! frames.

use std::time::Duration;

use bytes::Bytes;
use heeler_core::{NotRunReason, Outcome, TestResult};
use heeler_protocol::{
    control::FRAME_LIMIT_UPDATES,
    mtp::{
        DiscoveryMetrics, GroupDescription, NodeDescription, completion_frame, event, render_discovered,
        render_group, render_result, telemetry_frame, updates_frame,
    },
    rpc::{self, RpcError, code},
};

use super::{metrics::duration_ms, params::TestsRequest, requests::RequestJob};
use crate::discovery::{Catalogue, GroupLocation, ListingState, ProgramEntry, TestRef, select_tests};

pub(super) fn requested_tests(catalogue: &Catalogue, request: &TestsRequest) -> Vec<TestRef> {
    select_tests(catalogue, &request.selection).0
}

/// Returns the next update and advances `next`. Even without tests there is one update, because some clients
/// treat the first update as the whole result and would wait for it forever.
pub(super) fn next_update(
    catalogue: &Catalogue,
    request: &TestsRequest,
    wanted: &[TestRef],
    next: &mut usize,
) -> Bytes {
    let end = wanted.len().min(*next + FRAME_LIMIT_UPDATES);
    let mut changes = Vec::with_capacity(end - *next);
    for index in *next..end {
        // A program rebuilt in the meantime may have fewer tests.
        if catalogue.contains(wanted[index]) {
            let before =
                index.checked_sub(1).map(|before| wanted[before]).filter(|place| catalogue.contains(*place));
            push_group_changes(catalogue, wanted[index], before, request, &mut changes);
            changes.push(test_change(catalogue, wanted[index], request));
        }
    }
    *next = end;
    updates_frame(&request.run_id, changes.iter().map(Vec::as_slice))
}

/// Returns the final frames of a discovery: completion, telemetry, response. `discovered` is the number of
/// tests found, or the error. The discovery may have failed before there was a catalogue.
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

/// Adds the changes of a test's groups. Groups of the preceding test were added with that test, because tests
/// of a group are consecutive.
fn push_group_changes(
    catalogue: &Catalogue,
    test: TestRef,
    preceding: Option<TestRef>,
    request: &TestsRequest,
    changes: &mut Vec<Vec<u8>>,
) {
    let added = preceding.map(|preceding| catalogue.groups(preceding)).unwrap_or_default();
    let mut parent = None;
    for (uid, name) in catalogue.groups(test) {
        if !added.contains(&(uid, name)) {
            let client_members = request.client_members.get(uid);
            let mut change = Vec::new();
            let GroupLocation { file, line } = catalogue.group_location(uid).unwrap_or_default();
            let group = GroupDescription { uid, name, parent, file, line, client_members };
            render_group(&mut change, &group);
            changes.push(change);
        }
        parent = Some(uid);
    }
}

/// Returns the change for a test, or for a program whose listing failed.
fn test_change(catalogue: &Catalogue, test: TestRef, request: &TestsRequest) -> Vec<u8> {
    let mut change = Vec::new();
    catalogue.with_description(test, |description| {
        let client_members = request.client_members.get(description.uid);
        let description = NodeDescription { client_members, ..*description };
        match catalogue.listing_error(test) {
            Some(error) => {
                let outcome = Outcome::NotRun(NotRunReason::Unrunnable);
                render_result(&mut change, &description, &TestResult::with_reason(outcome, error));
            }
            None => render_discovered(&mut change, &description),
        }
    });
    change
}

fn discovery_metrics(programs: &[ProgramEntry], discovered: usize, took: Duration) -> DiscoveryMetrics {
    let is_broken = |entry: &&ProgramEntry| matches!(entry.listing, ListingState::Broken { .. });
    DiscoveryMetrics {
        discovered,
        programs: programs.len(),
        broken_programs: programs.iter().filter(is_broken).count(),
        duration_ms: duration_ms(took),
    }
}

/// Returns the error for a cancelled request.
pub(super) fn cancelled_error() -> RpcError {
    RpcError::new(code::REQUEST_CANCELLED, "the request was cancelled")
}
