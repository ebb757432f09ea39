//! Deaths of Heeler's own processes: whichever process dies, every test gets one result. When the client is
//! gone, all of Heeler's processes exit.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::ExpectedDelivery,
    process::{ProcessRole, signal, signal_if_there},
    recorder::ClientConnection,
    server::{ServerTransport, TestServer},
    uids,
    world::TestWorld,
};

const CASES: [&str; 4] = ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2", "N/Meet.Case/3"];

/// Two slots, and timeouts short enough for a test.
const TWO: &str = "[profile.default]\njobs = 2\nclient-stall-timeout = \"1s\"\ndrain-timeout = \"500ms\"\nstartup-timeout = \"5s\"\n";

fn world() -> TestWorld {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", TWO);
    world
}

fn start<'w>(world: &'w TestWorld, is_listening: bool) -> TestServer<'w> {
    TestServer::with_optional_callback(world, &["meet"], is_listening)
}

fn run_cases(server: &mut TestServer<'_>) -> crate::support::server::RequestedRun {
    let selected = uids("meet", CASES);
    server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Heeler guarantees one second. The tests allow two more on a busy machine.
const GONE: Duration = Duration::from_secs(3);

#[test]
fn client_disconnect_leaves_nothing_behind() {
    for transport in [ServerTransport::Stdio, ServerTransport::Dial] {
        let world = world();
        let rendezvous = world.open_rendezvous();
        let mut server = TestServer::start_over(transport, &world, &["meet"]);
        server.initialize(json!({"testing": {}}));
        server.run(Some(&["meet::Away.Family"]));
        let connected = rendezvous.next_test();
        server.disconnect();
        // The test's process tree has seven processes in separate sessions. Each holds the connection open.
        assert!(connected.wait_gone() < GONE, "{transport:?}");
        assert!(server.wait_gone() < GONE, "{transport:?}");
        world.check_tidy();
    }
}

#[test]
fn killed_coordinator_leaves_nothing_behind() {
    let world = world();
    world.write("heeler.toml", &format!("{TWO}isolate = true\n"));
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, false);
    server.run(Some(&["meet::Away.Family", "meet::Away.Deaf"]));
    let guests = [rendezvous.next_test(), rendezvous.next_test()];
    signal(server.pid(), "KILL");
    for connected in guests {
        assert!(connected.wait_gone() < GONE);
    }
    assert!(server.wait_gone() < GONE);
}

#[test]
fn guard_cleans_up_when_all_ancestors_die() {
    let world = world();
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, false);
    server.run(Some(&["meet::Away.Family"]));
    let connected = rendezvous.next_test();
    let mut above = [ProcessRole::Watchdog, ProcessRole::Worker, ProcessRole::ForkServer]
        .map(|role| server.processes(role))
        .concat();
    // Kill the coordinator last. The kernel continues stopped processes of an orphaned process group, so the
    // coordinator's death would continue the stopped watchdog.
    above.push(server.pid());
    let [guard] = server.processes(ProcessRole::Guard)[..] else { panic!("one guard") };
    // Stopped processes cannot react to the deaths of the others. The guard is notified of them while
    // it is stopped.
    for pid in above.iter().chain([&guard]) {
        signal(*pid, "STOP");
    }
    for pid in above {
        signal_if_there(pid, "KILL");
    }
    assert!(connected.wait_gone() < GONE);
    assert!(server.wait_gone() < GONE);
}

#[test]
fn death_of_watched_process_leaves_nothing_behind() {
    let world = world();
    let rendezvous = world.open_rendezvous();
    let mut parent = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let pid = parent.id().to_string();
    let mut server =
        TestServer::start_with(ServerTransport::Dial, &world, &["meet"], &["--exit-on-process-exit", &pid]);
    server.initialize(json!({"testing": {}}));
    server.run(Some(&["meet::Away.Family"]));
    let connected = rendezvous.next_test();
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(connected.wait_gone() < GONE);
    assert!(server.wait_gone() < GONE);
    world.check_tidy();
}

#[test]
fn death_of_self_named_client_leaves_nothing_behind() {
    let world = world();
    let rendezvous = world.open_rendezvous();
    let mut client = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut server = TestServer::start(&world, &["meet"]);
    server.request_and_wait("initialize", json!({"processId": client.id(), "capabilities": {"testing": {}}}));
    server.run(Some(&["meet::Away.Family"]));
    let connected = rendezvous.next_test();
    client.kill().unwrap();
    client.wait().unwrap();
    // The connection is still open.
    assert!(connected.wait_gone() < GONE);
    assert!(server.wait_gone() < GONE);
    world.check_tidy();
}

#[test]
fn killed_worker_loses_no_result() {
    for is_listening in [true, false] {
        let world = world();
        let rendezvous = world.open_rendezvous();
        let mut server = start(&world, is_listening);
        let run = run_cases(&mut server);
        let connected = rendezvous.next_test();
        let worker = server.processes(ProcessRole::Worker)[0];
        signal(worker, "KILL");
        drop(connected);
        // Later tests are released at once, so every rerun passes.
        let delivery = ExpectedDelivery::AtLeastOnce;
        let (server, checked_run) = finish_releasing_tests(server, &run, &rendezvous, delivery);
        checked_run.assert_all("passed");
        assert!(checked_run.log.iter().any(|log| log.contains("died")), "{:?}", checked_run.log);
        assert_eq!(server.exit(), Some(0));
    }
}

/// Releases every test that connects until the run is answered; returns the checked run.
fn finish_releasing_tests<'w>(
    server: TestServer<'w>,
    run: &crate::support::server::RequestedRun,
    rendezvous: &crate::support::rendezvous::TestRendezvous,
    delivery: ExpectedDelivery,
) -> (TestServer<'w>, crate::support::checked_run::CheckedRun) {
    server.release_tests_until_done(rendezvous, &[run]);
    let checked_run = server.finish_as(run, &uids("meet", CASES), delivery);
    (server, checked_run)
}

#[test]
fn killed_guard_or_fork_server_blames_no_test() {
    for (role, name) in [(ProcessRole::Guard, "guard"), (ProcessRole::ForkServer, "fork server")] {
        killed_in_a_test(role, &format!("Heeler's {name} was killed by signal 9"));
    }
}

fn killed_in_a_test(role: ProcessRole, reason: &str) {
    let world = world();
    world.write("heeler.toml", &TWO.replace("jobs = 2", "jobs = 1"));
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, true);
    let run = run_cases(&mut server);
    let connected = rendezvous.next_test();
    let [victim] = server.processes(role)[..] else { panic!("one {role:?}") };
    signal(victim, "KILL");
    connected.wait_gone();
    let (server, checked_run) = finish_releasing_tests(server, &run, &rendezvous, ExpectedDelivery::Once);
    checked_run.assert_all("passed").assert_no_program_failures();
    assert!(checked_run.tests.values().all(|node| node["error.message"].is_null()), "{checked_run:#?}");
    assert!(checked_run.log.iter().any(|line| line.contains(reason)), "{:?}", checked_run.log);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn guard_killed_in_every_attempt_of_a_test_ends_it_with_that_reason() {
    let world = world();
    world.write("heeler.toml", &format!("{}retries = 1\n", TWO.replace("jobs = 2", "jobs = 1")));
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, true);
    let run = run_cases(&mut server);
    let mut kills = 0;
    while kills < 3 {
        let connected = rendezvous.next_test();
        if connected.test_name.ends_with("Meet.Case/0") {
            signal(server.processes(ProcessRole::Guard)[0], "KILL");
            connected.wait_gone();
            kills += 1;
        } else {
            connected.release();
        }
    }
    let (server, checked_run) = finish_releasing_tests(server, &run, &rendezvous, ExpectedDelivery::Once);
    let first = checked_run.test("meet::N/Meet.Case/0");
    assert_eq!(first["execution-state"], "error", "{first:#}");
    let message = "not completed: Heeler's guard was killed by signal 9 in each of 3 attempts";
    assert_eq!(checked_run.message("meet::N/Meet.Case/0"), message);
    checked_run.assert_no_program_failures();
    assert!(
        CASES[1..].iter().all(|case| checked_run.state(&format!("meet::{case}")) == "passed"),
        "{checked_run:#?}"
    );
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn killed_watchdog_is_replaced_without_loss() {
    for is_listening in [true, false] {
        let world = world();
        let rendezvous = world.open_rendezvous();
        let mut server = start(&world, is_listening);
        let run = run_cases(&mut server);
        let connected = rendezvous.next_test();
        let watchdog = server.processes(ProcessRole::Watchdog)[0];
        signal(watchdog, "KILL");
        // Workers and their tests exit with the watchdog.
        connected.wait_gone();
        let (server, checked_run) =
            finish_releasing_tests(server, &run, &rendezvous, ExpectedDelivery::AtLeastOnce);
        checked_run.assert_all("passed");
        assert!(checked_run.log.iter().any(|log| log.contains("the watchdog died")), "{:?}", checked_run.log);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn two_deaths_of_the_watchdog_blame_no_test() {
    let world = world();
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, true);
    let run = run_cases(&mut server);
    for _ in 0..2 {
        let connected = rendezvous.next_test();
        signal(server.processes(ProcessRole::Watchdog)[0], "KILL");
        connected.wait_gone();
    }
    let (server, checked_run) =
        finish_releasing_tests(server, &run, &rendezvous, ExpectedDelivery::AtLeastOnce);
    checked_run.assert_all("passed").assert_no_program_failures();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn killed_test_process_fails_its_test() {
    let world = world();
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, true);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    let connected = rendezvous.next_test();
    signal(connected.pid, "KILL");
    let again = rendezvous.next_test_until(std::time::Instant::now() + Duration::from_secs(1));
    if let Some(again) = again {
        again.release();
    }
    let checked_run = server.finish(&run, &uids("meet", ["N/Meet.Case/0"]));
    let node = checked_run.test("meet::N/Meet.Case/0");
    assert_eq!(
        (&node["execution-state"], &node["heeler.signal"]),
        (&json!("error"), &json!("SIGKILL")),
        "{node:#}"
    );
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn repeated_worker_deaths_end_run_with_results() {
    let world = world();
    world.write("heeler.toml", &TWO.replace("jobs = 2", "jobs = 1"));
    let rendezvous = world.open_rendezvous();
    let mut server = start(&world, true);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    for _ in 0..2 {
        let connected = rendezvous.next_test();
        for worker in server.processes(ProcessRole::Worker) {
            signal(worker, "KILL");
        }
        connected.wait_gone();
    }
    let checked_run = server.finish_as(&run, &uids("meet", ["N/Meet.Case/0"]), ExpectedDelivery::AtLeastOnce);
    assert_eq!(
        checked_run.message("meet::N/Meet.Case/0"),
        "not completed: the worker died each time this test ran"
    );
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn watchdog_resends_results_of_dead_worker() {
    let world = world();
    world.write("heeler.toml", &TWO.replace("jobs = 2", "jobs = 1"));
    let rendezvous = world.open_rendezvous();
    // The first worker connection accepts data but never acknowledges updates.
    let mut server = TestServer::with_callback(&world, &["meet"], |number| match number {
        0 => ListenerBehaviour::NeverReads,
        _ => ListenerBehaviour::Normal,
    });
    let run = run_cases(&mut server);
    rendezvous.next_test().release();
    let connected = rendezvous.next_test();
    let worker = server.processes(ProcessRole::Worker)[0];
    signal(worker, "KILL");
    connected.wait_gone();
    let (server, checked_run) =
        finish_releasing_tests(server, &run, &rendezvous, ExpectedDelivery::AtLeastOnce);
    checked_run.assert_all("passed");
    // The first result was sent again elsewhere, because that connection is not read.
    assert_ne!(checked_run.results_on["meet::N/Meet.Case/0"], ClientConnection::Callback(0));
    assert_eq!(server.exit(), Some(0));
}
