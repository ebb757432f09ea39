//! Processes that die at any moment: every test has exactly one result, and the client receives the end of
//! the run.

use std::{
    sync::mpsc::{RecvTimeoutError, sync_channel},
    time::Duration,
};

use serde_json::json;

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::{CheckedRun, ExpectedDelivery},
    process::{ProcessRole, processes_of_role, signal, signal_if_there, state, wait_until},
    recorder::RecordedEvent,
    server::{RequestedRun, TestServer},
    uids,
    world::TestWorld,
};

const CASES: usize = 300;
/// Number of messages that the client gets before a process is killed.
const MOMENTS: [usize; 6] = [0, 1, 2, 3, 5, 8];

fn world() -> (TestWorld, Vec<String>) {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world.write(
        "heeler.toml",
        "[profile.default]\njobs = 2\nclient-stall-timeout = \"1s\"\ndrain-timeout = \"500ms\"\n",
    );
    let names: Vec<String> = (0..CASES).map(|n| format!("N/Big.Case/{n}")).collect();
    (world, uids("big", names.iter().map(String::as_str)))
}

/// Waits until this many updates of the run have arrived, or the run has been answered.
fn wait_updates(server: &TestServer<'_>, run: &RequestedRun, count: usize) {
    let is_update = |event: &&RecordedEvent| {
        event.params("testing/testUpdates/tests").is_some_and(|params| params["runId"] == run.run_id.as_str())
    };
    let is_over = |event: &RecordedEvent| event.message().is_some_and(|message| message["id"] == run.request);
    server.recorder.wait(&format!("{count} updates"), |events| {
        let is_enough = events.iter().filter(is_update).count() >= count;
        (is_enough || events.iter().any(is_over)).then_some(())
    });
}

/// Runs all tests once per moment and kills a process of this role at that moment; returns the checked runs.
fn run_with_deaths(role: ProcessRole, is_listening: bool) -> Vec<CheckedRun> {
    let injure = |moment: &usize| {
        let (world, selected) = world();
        let mut server = TestServer::with_optional_callback(&world, &["big"], is_listening);
        // A discovery starts Heeler's processes before the run.
        let id =
            server.request("testing/discoverTests", json!({"runId": crate::support::server::run_id(77)}));
        server.wait_response(id);
        let run = server.run(None);
        wait_updates(&server, &run, *moment);
        // The run may have ended by now. A guard exits together with its test process.
        if let Some(victim) = processes_of_role(server.pid(), role).first() {
            signal_if_there(*victim, "KILL");
        }
        let checked_run = server.finish_as(&run, &selected, ExpectedDelivery::AtLeastOnce);
        assert_eq!(server.exit(), Some(0), "{role:?} after {moment}");
        checked_run
    };
    MOMENTS.iter().map(injure).collect()
}

#[test]
fn worker_death_at_any_moment_loses_nothing() {
    for is_listening in [true, false] {
        for checked_run in run_with_deaths(ProcessRole::Worker, is_listening) {
            checked_run.assert_all("passed").assert_no_program_failures();
        }
    }
}

#[test]
fn watchdog_death_at_any_moment_loses_nothing() {
    for is_listening in [true, false] {
        for checked_run in run_with_deaths(ProcessRole::Watchdog, is_listening) {
            checked_run.assert_all("passed").assert_no_program_failures();
        }
    }
}

#[test]
fn guard_death_at_any_moment_blames_no_test() {
    for checked_run in run_with_deaths(ProcessRole::Guard, true) {
        checked_run.assert_all("passed").assert_no_program_failures();
    }
}

#[test]
fn fork_server_death_at_any_moment_blames_no_test() {
    for checked_run in run_with_deaths(ProcessRole::ForkServer, true) {
        checked_run.assert_all("passed").assert_no_program_failures();
    }
}

#[test]
fn watchdog_completes_run_after_coordinator_death() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::with_callback(&world, &["meet"], |_| ListenerBehaviour::Normal);
    let selected = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    rendezvous.next_test().release();
    let connected = rendezvous.next_test();
    server.wait_state("meet::N/Meet.Case/0", "passed");
    server.wait_state("meet::N/Meet.Case/1", "in-progress");
    signal(server.pid(), "KILL");
    connected.wait_gone();
    server.wait_gone();
    let checked_run = server.finish_orphaned(&run, &selected);
    assert_eq!(checked_run.state("meet::N/Meet.Case/0"), "passed");
    assert_eq!(checked_run.test("meet::N/Meet.Case/1")["outcome-kind"], "interrupted", "{checked_run:#?}");
    assert_eq!(checked_run.test("meet::N/Meet.Case/2")["outcome-kind"], "not-run", "{checked_run:#?}");
}

#[test]
fn process_dying_at_start_is_replaced() {
    for role in [ProcessRole::Watchdog, ProcessRole::Worker] {
        let (world, selected) = world();
        let mut server = TestServer::initialized(&world, &["big"]);
        let run = server.run(None);
        for _ in 0..2 {
            signal_if_there(server.processes(role)[0], "KILL");
        }
        let checked_run = server.finish_as(&run, &selected, ExpectedDelivery::AtLeastOnce);
        checked_run.assert_all("passed").assert_no_program_failures();
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn listing_with_dying_workers_ends_with_error() {
    let (world, selected) = world();
    let mut server = TestServer::initialized(&world, &["big"]);
    let run = server.run(Some(&[selected[0].as_str()]));
    let is_answer =
        |message: &serde_json::Value| message["id"] == run.request && message.get("method").is_none();
    wait_until("the run is answered", || {
        for worker in processes_of_role(server.pid(), ProcessRole::Worker) {
            signal_if_there(worker, "KILL");
        }
        server.recorder.events().iter().filter_map(RecordedEvent::message).any(is_answer)
    });
    let checked_run = server.finish(&run, &selected[..1]);
    assert_eq!(checked_run.test(&selected[0])["outcome-kind"], "not-run");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn surviving_worker_is_killed_before_its_results() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::with_callback(&world, &["meet"], |_| ListenerBehaviour::Normal);
    let selected = uids("meet", ["N/Meet.Case/0"]);
    let run = server.run(Some(&[&selected[0]]));
    let connected = rendezvous.next_test();
    let (worker, watchdog) =
        (server.processes(ProcessRole::Worker)[0], server.processes(ProcessRole::Watchdog)[0]);
    signal(worker, "STOP");
    signal(watchdog, "STOP");
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let checked_run = std::thread::scope(|scope| {
        let (over, is_over) = sync_channel::<()>(1);
        // If another process continues the stopped processes, stop them again at once.
        scope.spawn(move || {
            while is_over.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
                signal_if_there(worker, "STOP");
                signal_if_there(watchdog, "STOP");
            }
        });
        let checked_run = server.finish_as(&run, &selected, ExpectedDelivery::AtLeastOnce);
        drop(over);
        checked_run
    });
    assert_eq!(checked_run.state("meet::N/Meet.Case/0"), "cancelled");
    assert!(matches!(state(worker), None | Some('Z')));
    // Detecting the dead watchdog only at the finish would be too late, because the worker might have
    // continued earlier.
    assert!(
        !checked_run.log.iter().any(|line| line.contains("did not finish the run")),
        "{:#?}",
        checked_run.log
    );
    connected.wait_gone();
}

#[test]
fn coordinator_death_at_any_moment_completes_run() {
    for moment in MOMENTS {
        let (world, selected) = world();
        let mut server = TestServer::with_callback(&world, &["big"], |_| ListenerBehaviour::Normal);
        let run = server.run(None);
        wait_updates(&server, &run, moment.max(1));
        signal(server.pid(), "KILL");
        server.wait_gone();
        server.finish_orphaned(&run, &selected);
    }
}

#[test]
fn barrierless_client_gets_completion_after_coordinator_death() {
    let (world, selected) = world();
    let mut server = TestServer::with_callback(&world, &["big"], |_| ListenerBehaviour::NeverResponds);
    let run = server.run(None);
    wait_updates(&server, &run, 1);
    signal(server.pid(), "KILL");
    server.wait_gone();
    server.finish_orphaned(&run, &selected);
}

#[test]
fn journals_remain_after_run() {
    let (world, selected) = world();
    let mut server = TestServer::initialized(&world, &["big"]);
    let run = server.run(None);
    server.finish(&run, &selected);
    assert_eq!(server.exit(), Some(0));
    wait_until("a journal is there", || {
        let runs = std::fs::read_dir(world.path(".heeler/runs")).unwrap();
        runs.map(|entry| entry.unwrap().path()).any(|run| run.join("worker-1.journal").exists())
    });
}
