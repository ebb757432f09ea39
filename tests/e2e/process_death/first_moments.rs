//! The coordinator is killed while a run begins, alone or together with the watchdog. Either the watchdog
//! completes the run, or the client's connections close. If the watchdog is alive, results are always
//! followed by a completion. A completion always follows all results.

use std::fs;

use serde_json::json;

use super::wait_stopped_at;
use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::{CheckedRun, ExpectedDelivery, RequestedRun},
    process::{ProcessRole, processes_of_role, signal, signal_if_there, wait_until},
    recorder::{RecordedEvent, RecordedEventKind},
    server::{TestServer, run_id},
    uids,
    world::TestWorld,
};

const CASES: usize = 40;

/// Returns a world with these injected faults, and the uids of its program's tests.
pub(super) fn world(faults: &str) -> (TestWorld, Vec<String>) {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world.write("heeler.toml", "[profile.default]\njobs = 2\nhistory = false\n");
    fs::create_dir(world.path("points")).unwrap();
    world.env("HEELER_FAIL_ONCE", world.path("points").to_str().unwrap());
    world.env("HEELER_FAIL", faults);
    let names: Vec<String> = (0..CASES).map(|n| format!("N/Big.Case/{n}")).collect();
    (world, uids("big", names.iter().map(String::as_str)))
}

fn start(world: &TestWorld) -> TestServer<'_> {
    TestServer::with_callback(world, &["big"], |_| ListenerBehaviour::Normal)
}

/// How a run ended after its coordinator was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrphanedEnd {
    /// The client received every result and the completion.
    Completed,
    /// The client received some messages, but no completion.
    Incomplete,
    /// The client received no message of the run.
    Silent,
}

/// Waits until all processes are gone and all connections are closed; checks what the client received.
#[track_caller]
fn orphaned_end(server: &TestServer<'_>, run: &RequestedRun, selected: &[String]) -> OrphanedEnd {
    server.wait_gone();
    let events = server.recorder.wait("the end of all connections", |events| {
        let is_opened = |event: &&RecordedEvent| matches!(event.what, RecordedEventKind::Opened);
        let is_closed = |event: &&RecordedEvent| matches!(event.what, RecordedEventKind::Closed);
        let (opened, closed) =
            (events.iter().filter(is_opened).count(), events.iter().filter(is_closed).count());
        // The main connection is counted, too, in addition to the connections that the listener accepted.
        (opened == closed && opened > server.callback().connections()).then(|| events.to_vec())
    });
    let is_of_run = |params: &serde_json::Value| params["runId"] == run.run_id.as_str();
    let is_any = |event: &RecordedEvent| event.message().is_some_and(|message| is_of_run(&message["params"]));
    if events.iter().any(|event| event.is_completion_of(&run.run_id)) {
        CheckedRun::check(&events, run, selected, ExpectedDelivery::Orphaned);
        OrphanedEnd::Completed
    } else if events.iter().any(is_any) {
        OrphanedEnd::Incomplete
    } else {
        OrphanedEnd::Silent
    }
}

#[test]
fn run_is_completed_from_its_announcement_on() {
    for (point, expected) in [
        ("pool.watchdog", OrphanedEnd::Silent),
        ("run.dir", OrphanedEnd::Silent),
        ("run.manifest", OrphanedEnd::Silent),
        ("run.begun", OrphanedEnd::Completed),
        ("run.drain", OrphanedEnd::Completed),
        ("run.finish", OrphanedEnd::Completed),
        ("run.completed", OrphanedEnd::Completed),
    ] {
        let (world, selected) = world(&format!("{point}:1:kill"));
        let mut server = start(&world);
        let run = server.run(None);
        assert_eq!(orphaned_end(&server, &run, &selected), expected, "{point}");
    }
}

/// The end of a run is sent over the main connection if the client does not respond on others. It must not be
/// lost in the queue of a killed coordinator.
#[test]
fn run_of_a_silent_client_is_completed_if_the_coordinator_dies_before_it_has_written_the_completion() {
    let (world, selected) = world("run.relayed:1:kill");
    let mut server = TestServer::with_callback(&world, &["big"], |_| ListenerBehaviour::NeverResponds);
    let run = server.run(None);
    assert_eq!(orphaned_end(&server, &run, &selected), OrphanedEnd::Completed);
}

#[test]
fn coordinator_killed_while_another_process_stands_still() {
    for (point, expected) in [
        ("watchdog.join:1", OrphanedEnd::Silent),
        ("watchdog.joined:1", OrphanedEnd::Silent),
        ("worker.join:1", OrphanedEnd::Silent),
        ("worker.lease:1", OrphanedEnd::Completed),
        ("worker.sent:1", OrphanedEnd::Completed),
        ("worker.drain:1", OrphanedEnd::Completed),
        ("watchdog.finish:1", OrphanedEnd::Completed),
        ("watchdog.announced:1", OrphanedEnd::Completed),
    ] {
        let (world, selected) = world(&format!("{point}:stop"));
        let mut server = start(&world);
        let run = server.run(None);
        let name = point.split(':').next().unwrap();
        let stopped = wait_stopped_at(&world, name);
        signal(server.pid(), "KILL");
        // The worker may have been killed before.
        signal_if_there(stopped, "CONT");
        assert_eq!(orphaned_end(&server, &run, &selected), expected, "{point}");
    }
}

/// A sign of a run's progress, at which processes are killed.
type ProgressSign = fn(&TestServer<'_>, &TestWorld) -> bool;

fn has_run_file(world: &TestWorld, name: &str) -> bool {
    let runs = fs::read_dir(world.path(".heeler/runs")).into_iter().flatten().flatten();
    runs.map(|run| run.path().join(name)).any(|file| file.exists())
}

fn has_role(server: &TestServer<'_>, role: ProcessRole) -> bool {
    !processes_of_role(server.pid(), role).is_empty()
}

/// Signs of progress, roughly in order.
const SIGNS: [(&str, ProgressSign); 9] = [
    ("the request is sent", |_, _| true),
    ("a watchdog", |server, _| has_role(server, ProcessRole::Watchdog)),
    ("a worker", |server, _| has_role(server, ProcessRole::Worker)),
    ("a fork server", |server, _| has_role(server, ProcessRole::ForkServer)),
    ("a run directory", |_, world| has_run_file(world, "coordinator.lock")),
    ("a manifest", |_, world| has_run_file(world, "manifest.jsonl")),
    ("a journal", |_, world| has_run_file(world, "worker-1.journal")),
    ("a callback connection", |server, _| server.callback().connections() > 0),
    ("a second callback connection", |server, _| server.callback().connections() > 1),
];

/// Starts a run and kills processes at the sign. If `is_warm`, the tests were listed before.
fn kill_at(sign: ProgressSign, is_warm: bool, kill: impl FnOnce(&TestServer<'_>)) -> OrphanedEnd {
    let (world, selected) = world("");
    let mut server = start(&world);
    if is_warm {
        let id = server.request("testing/discoverTests", json!({"runId": run_id(77)}));
        server.wait_response(id);
    }
    let run = server.run(None);
    wait_until("the run gets so far", || sign(&server, &world));
    kill(&server);
    orphaned_end(&server, &run, &selected)
}

#[test]
fn coordinator_killed_at_any_sign_of_a_beginning_run() {
    for (name, sign) in SIGNS {
        for is_warm in [false, true] {
            let end = kill_at(sign, is_warm, |server| signal(server.pid(), "KILL"));
            assert_ne!(end, OrphanedEnd::Incomplete, "killed at {name}, listed before: {is_warm}");
        }
    }
}

#[test]
fn watchdog_and_then_coordinator_killed_at_any_sign_of_a_beginning_run() {
    for (_, sign) in SIGNS {
        for waits_for_replacement in [false, true] {
            // With both processes dead, the client may have received part of the run. Each case checks that a
            // completion follows all results and that no process is left.
            kill_at(sign, true, |server| {
                let watchdog = server.processes(ProcessRole::Watchdog)[0];
                signal_if_there(watchdog, "KILL");
                if waits_for_replacement {
                    wait_until("the watchdog is replaced", || {
                        processes_of_role(server.pid(), ProcessRole::Watchdog)
                            .iter()
                            .any(|one| *one != watchdog)
                    });
                }
                signal(server.pid(), "KILL");
            });
        }
    }
}
