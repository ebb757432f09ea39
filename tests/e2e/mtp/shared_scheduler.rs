//! Several clients of one listening server at the same time: they share a watchdog, workers and slots, and
//! each client receives only its own results.

use serde_json::json;

use crate::support::{
    callback_listener::{ListenerBehaviour, RecordingListener},
    checked_run::RequestedRun,
    process::{ProcessRole, processes_of_role, signal, wait_until},
    rendezvous::TestRendezvous,
    second_client::SecondClient,
    server::{ServerTransport, TestServer},
    uids,
    world::TestWorld,
};

const CASES: [&str; 4] = ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2", "N/Meet.Case/3"];

fn world(jobs: usize) -> TestWorld {
    let world = TestWorld::with_gtest("meet");
    let limits = "client-stall-timeout = \"5s\"\ndrain-timeout = \"500ms\"\nstartup-timeout = \"5s\"\nisolate = true\n";
    world.write("heeler.toml", &format!("[profile.default]\njobs = {jobs}\n{limits}"));
    world
}

/// Starts a listening server and its first client, with or without a callback port.
fn start<'w>(world: &'w TestWorld, program: &str, is_listening: bool) -> TestServer<'w> {
    let mut server = TestServer::start_over(ServerTransport::Listen, world, &[program]);
    let mut testing = json!({"debuggerProvider": false, "attachmentsSupport": is_listening});
    if is_listening {
        let listener = RecordingListener::new(server.recorder.clone(), |_| ListenerBehaviour::Normal);
        testing["callbackProvider"] = json!({"port": listener.port});
        server.listener = Some(listener);
    }
    server.initialize(json!({"testing": testing}));
    server
}

fn cases(cases: &[&'static str]) -> Vec<String> {
    uids("meet", cases.iter().copied())
}

fn run(server: &mut TestServer<'_>, cases: &[String]) -> RequestedRun {
    server.run(Some(&cases.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Releases the tests of two clients until the first client's run is answered.
fn release_both(server: &TestServer<'_>, run: &RequestedRun, rendezvous: &TestRendezvous) {
    server.release_tests_until_done(rendezvous, &[run]);
}

fn end(server: &TestServer<'_>) {
    signal(server.pid(), "TERM");
    server.wait_gone();
}

#[test]
fn clients_share_processes_and_get_only_their_own_results() {
    for is_listening in [true, false] {
        let world = world(2);
        let rendezvous = world.open_rendezvous();
        let (own, other) = (cases(&CASES[..2]), cases(&CASES[2..]));
        let mut server = start(&world, "meet", is_listening);
        let mut second = SecondClient::connect(&server, !is_listening);
        let first_run = run(&mut server, &own);
        let guests = [rendezvous.next_test(), rendezvous.next_test()];
        let second_run = second.run(&other);
        second.wait_begun(901);
        assert_eq!(first_run.run_id, second_run.run_id, "ids of two clients may be equal");
        assert_eq!(server.processes(ProcessRole::Watchdog).len(), 1);
        assert_eq!(server.processes(ProcessRole::Worker).len(), 2);
        guests.into_iter().for_each(|connected| connected.release());
        // The second client gets both slots once the first has no waiting tests.
        let guests = [rendezvous.next_test(), rendezvous.next_test()];
        guests.into_iter().for_each(|connected| connected.release());
        server.finish(&first_run, &own).assert_all("passed");
        second.finish(&second_run, &other).assert_all("passed");
        end(&server);
    }
}

#[test]
fn later_client_gets_next_free_slot() {
    let world = world(2);
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, "meet", false);
    let mut second = SecondClient::connect(&server, true);
    let (own, other) = (cases(&CASES), cases(&CASES[3..]));
    let first_run = run(&mut server, &own);
    let [one, another] = [rendezvous.next_test(), rendezvous.next_test()];
    let second_run = second.run(&other);
    second.wait_begun(901);
    one.release();
    // The second client gets this slot, although Case/2 of the first was requested earlier.
    let next = rendezvous.next_test();
    assert_eq!(next.test_name, CASES[3]);
    assert!(server.processes(ProcessRole::Guard).len() <= 2);
    next.release();
    another.release();
    release_both(&server, &first_run, &rendezvous);
    server.finish(&first_run, &own).assert_all("passed");
    second.finish(&second_run, &other).assert_all("passed");
    end(&server);
}

#[test]
fn dead_client_ends_only_its_own_run() {
    for is_listening in [true, false] {
        let world = world(2);
        let rendezvous = world.open_rendezvous();
        let mut server = start(&world, "meet", true);
        let mut second = SecondClient::connect(&server, is_listening);
        let (own, other) = (cases(&CASES[..1]), cases(&CASES[1..]));
        let first_run = run(&mut server, &own);
        let kept = rendezvous.next_test();
        second.run(&other);
        let lost = rendezvous.next_test();
        assert_eq!(lost.test_name, CASES[1]);
        second.disconnect();
        lost.wait_gone();
        kept.release();
        server.finish(&first_run, &own).assert_all("passed");
        // The slots are free, because the dead client's tests were ended.
        let again = run(&mut server, &own);
        let next = rendezvous.next_test();
        assert_eq!(next.test_name, CASES[0]);
        next.release();
        server.finish(&again, &own).assert_all("passed");
        end(&server);
    }
}

#[test]
fn client_that_does_not_read_keeps_no_slot() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "4000");
    world.env("HEELER_FIXTURE_PRINTS", "4096");
    world.write("heeler.toml", "[profile.default]\njobs = 1\nclient-stall-timeout = \"10m\"\n");
    let mut server = start(&world, "big", false);
    let mut second = SecondClient::connect(&server, true);
    server.recorder.stop_main();
    server.run(None);
    wait_until("the first client's run has begun", || {
        !processes_of_role(server.pid(), ProcessRole::Guard).is_empty()
    });
    let selected = uids("big", ["N/Big.Case/0", "N/Big.Case/1"]);
    let second_run = second.run(&selected);
    second.finish(&second_run, &selected).assert_all("passed");
    end(&server);
}

#[test]
fn last_client_leaves_no_process_behind() {
    let world = world(2);
    let mut server = start(&world, "meet", false);
    let selected = cases(&CASES);
    let first_run = run(&mut server, &selected);
    server.finish(&first_run, &selected).assert_all("passed");
    assert_eq!(processes_of_role(server.pid(), ProcessRole::Watchdog).len(), 1);
    server.notify("exit", json!({}));
    server.wait_closed();
    wait_until("the server has no process", || {
        [ProcessRole::Watchdog, ProcessRole::Worker, ProcessRole::Guard]
            .into_iter()
            .all(|role| processes_of_role(server.pid(), role).is_empty())
    });
    end(&server);
}
