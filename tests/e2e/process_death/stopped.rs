//! Heeler's processes can be stopped, for example by a test that signals its ancestors. Heeler continues or
//! replaces them, and every test gets its result.

use heeler_sys::process::Pid;

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::ExpectedDelivery,
    process::{ProcessRole, signal},
    server::TestServer,
    world::TestWorld,
};

/// Returns a world with a program that has one test case per letter of the script.
fn world(script: &str) -> TestWorld {
    let world = TestWorld::with_gtest("faults");
    world.env("HEELER_FIXTURE_SCRIPT", script);
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    world
}

fn selected(count: usize) -> Vec<String> {
    (0..count).map(|case| format!("faults::N/Fault.Case/{case}")).collect()
}

#[test]
fn test_that_stops_its_guard_passes() {
    check_run("pSp");
}

#[test]
fn test_that_stops_all_its_ancestors_passes() {
    // The test stops its guard, the fork server, the worker and the watchdog.
    check_run("pZp");
}

#[test]
fn test_that_stops_its_guard_again_and_again_blames_no_other() {
    let world = world("pSSSp");
    let mut server = TestServer::with_callback(&world, &["faults"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let checked_run = server.finish_as(&run, &selected(5), ExpectedDelivery::AtLeastOnce);
    for case in [0, 4] {
        assert_eq!(checked_run.state(&format!("faults::N/Fault.Case/{case}")), "passed", "{checked_run:#?}");
    }
    assert_eq!(server.exit(), Some(0));
}

fn check_run(script: &str) {
    let world = world(script);
    let mut server = TestServer::with_callback(&world, &["faults"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let checked_run = server.finish_as(&run, &selected(script.len()), ExpectedDelivery::AtLeastOnce);
    checked_run.assert_all("passed").assert_no_program_failures();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn stopped_coordinator_is_continued() {
    stop_one(None);
}

#[test]
fn watchdog_that_is_stopped_before_it_joins_is_continued() {
    let world = world("pp");
    std::fs::create_dir(world.path("points")).unwrap();
    world.env("HEELER_FAIL_ONCE", world.path("points").to_str().unwrap());
    world.env("HEELER_FAIL", "watchdog.join:1:stop");
    let ran = world.run(&["run", "faults"]).assert_code(0);
    ran.line_with(&["Summary", "2 passed"]);
    assert!(world.path("points/watchdog.join").exists(), "it was stopped");
}

#[test]
fn stopped_worker_is_continued() {
    stop_one(Some(ProcessRole::Worker));
}

#[test]
fn stopped_watchdog_is_continued() {
    stop_one(Some(ProcessRole::Watchdog));
}

#[test]
fn stopped_fork_server_holds_no_run_up() {
    stop_one(Some(ProcessRole::ForkServer));
}

/// Stops the process of a role (`None`: the coordinator) while a test runs.
fn stop_one(role: Option<ProcessRole>) {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::with_callback(&world, &["meet"], |_| ListenerBehaviour::Normal);
    let selected = [0, 1].map(|case| format!("meet::N/Meet.Case/{case}"));
    let run = server.run(Some(&[&selected[0], &selected[1]]));
    let connected = rendezvous.next_test();
    let victim = match role {
        Some(role) => server.processes(role)[0],
        None => server.pid(),
    };
    let stat = heeler_sys::process::stat(Pid(victim.cast_signed()));
    if role.is_none() && stat.is_some_and(|stat| stat.has_terminal) {
        // A coordinator on a terminal may have been stopped by its user, so it stays stopped. It is therefore
        // not tested here.
        connected.release();
    } else {
        signal(victim, "STOP");
        connected.release();
    }
    server.release_tests_until_done(&rendezvous, &[&run]);
    let checked_run = server.finish_as(&run, &selected, ExpectedDelivery::AtLeastOnce);
    checked_run.assert_all("passed").assert_no_program_failures();
    assert_eq!(server.exit(), Some(0), "{role:?}");
}
