//! Checks that a client handled the messages of a run in the right order, over all connections. The checks
//! apply to every client that answers a barrier only after handling everything before it, whichever of
//! Heeler's processes die.

use std::collections::BTreeMap;

use super::{
    checked_run::{ExpectedDelivery, RequestedRun},
    recorder::{RecordedEvent, tail},
};

const UPDATES: &str = "testing/testUpdates/tests";

/// Messages of a run that a client has handled.
#[derive(Debug, Default)]
struct HandledRun<'a> {
    completions: usize,
    /// Uid and state of each change handled after the completion.
    late: Vec<(&'a str, &'a str)>,
    /// The last state of each test, by uid.
    last_states: BTreeMap<&'a str, &'a str>,
    /// How often each test ended, by uid.
    ends: BTreeMap<&'a str, usize>,
}

impl<'a> HandledRun<'a> {
    fn read(events: &'a [RecordedEvent], run: &RequestedRun) -> Self {
        let mut handled = Self::default();
        let updates = events.iter().filter_map(|event| event.params(UPDATES));
        for params in updates.filter(|params| params["runId"] == run.run_id.as_str()) {
            let Some(changes) = params["changes"].as_array() else {
                handled.completions += 1;
                continue;
            };
            for node in changes.iter().map(|change| &change["node"]) {
                // Groups and programs have no terminal state.
                let is_test = node["node-type"] == "action" && node["outcome-kind"] != "program-failure";
                let (uid, state) = (node["uid"].as_str(), node["execution-state"].as_str());
                let (true, Some(uid), Some(state)) = (is_test, uid, state) else { continue };
                if handled.completions > 0 {
                    handled.late.push((uid, state));
                }
                handled.last_states.insert(uid, state);
                if !is_open(state) {
                    *handled.ends.entry(uid).or_default() += 1;
                }
            }
        }
        handled
    }
}

fn is_open(state: &str) -> bool {
    ["in-progress", "discovered"].contains(&state)
}

/// Panics if there were two completions, a change was handled after the completion, or a test was open at the
/// completion. Without a completion, tests may stay open. A test may end more than once only if `delivery`
/// allows it.
#[track_caller]
pub(crate) fn check(events: &[RecordedEvent], run: &RequestedRun, delivery: ExpectedDelivery) {
    let handled = HandledRun::read(events, run);
    let run_id = &run.run_id;
    assert!(handled.completions <= 1, "{} completions of {run_id}\n{}", handled.completions, tail(events));
    let late = &handled.late;
    assert!(
        late.is_empty(),
        "LATE: {} changes of {run_id} were handled after its completion, and {} tests had ended: {:?}…\n{}",
        late.len(),
        handled.ends.len(),
        &late[..late.len().min(5)],
        tail(events)
    );
    let repeated: Vec<_> = handled.ends.iter().filter(|(_, count)| **count > 1).collect();
    assert!(
        repeated.is_empty() || delivery != ExpectedDelivery::Once,
        "REPEATED: {} ends of {run_id} were handled again: {:?}…",
        repeated.len(),
        &repeated[..repeated.len().min(5)]
    );
    let open: Vec<_> = handled.last_states.iter().filter(|(_, state)| is_open(state)).collect();
    assert!(
        handled.completions == 0 || open.is_empty(),
        "OPEN: the last handled state of {} tests of {run_id} is not their end: {open:?}",
        open.len()
    );
}
