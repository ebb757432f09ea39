//! System failures, injected at points in Heeler: which results a run loses, and which it keeps.

use std::fs;

use super::wait_stopped_at;
use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::{CheckedRun, ExpectedDelivery},
    other_user::attacked_users,
    process::{children, signal},
    server::TestServer,
    uids,
    world::TestWorld,
};

/// Returns a world with a program of these cases and these injected faults.
fn world(script: &str, faults: &str) -> TestWorld {
    let world = TestWorld::with_gtest("faults");
    world.write("heeler.toml", "[profile.default]\njobs = 1\ndrain-timeout = \"300ms\"\nhistory = false\n");
    world.env("HEELER_FIXTURE_SCRIPT", script);
    fs::create_dir(world.path("points")).unwrap();
    world.env("HEELER_FAIL_ONCE", world.path("points").to_str().unwrap());
    world.env("HEELER_FAIL", faults);
    world
}

/// Returns the uids of the first `count` cases.
fn cases(count: usize) -> Vec<String> {
    let names: Vec<_> = (0..count).map(|number| format!("N/Fault.Case/{number}")).collect();
    uids("faults", names.iter().map(String::as_str))
}

/// Runs all cases with the injected faults, for a client with these connection behaviours.
fn run(
    world: &TestWorld,
    count: usize,
    choose: impl Fn(usize) -> ListenerBehaviour + Send + 'static,
) -> CheckedRun {
    let mut server = TestServer::with_callback(world, &["faults"], choose);
    let run = server.run(None);
    let checked_run = server.finish_as(&run, &cases(count), ExpectedDelivery::AtLeastOnce);
    assert!(checked_run.response.get("error").is_none(), "{}", checked_run.response);
    assert_eq!(server.exit(), Some(0));
    checked_run
}

fn is_logged(checked_run: &CheckedRun, text: &str) -> bool {
    checked_run.log.iter().any(|line| line.contains(text))
}

#[test]
fn unknown_fault_points_are_reported_before_run() {
    let world = world("p", "worker.everywhere:1:kill");
    let ran = world.run(&["run", "faults"]).assert_code(5);
    ran.assert_stderr(
        "failed to parse HEELER_FAIL: unknown point \"worker.everywhere\" (available: worker.join, ",
    );
}

#[test]
fn fault_variables_do_not_reach_tests() {
    let world = world("pp", "worker.journal.after:1:sleep=1");
    world.write_program("wrapped", "#!/bin/sh\nenv >> env.txt\nexec ./faults \"$@\"\n");
    world.write("heeler.toml", "[[suite]]\nname = \"w\"\nprograms = [\"wrapped\"]\nframework = \"gtest\"\n");
    world.run(&["run"]).assert_code(0).assert_stdout("2 passed");
    assert!(world.path("points/worker.journal.after").exists());
    let seen = world.read("env.txt");
    assert!(seen.contains("HEELER_FIXTURE_SCRIPT=pp") && !seen.contains("HEELER_FAIL"), "{seen}");
}

#[test]
fn full_disk_loses_journal_but_no_result() {
    let world = world("pfpspp", "worker.journal.before:1:ENOSPC");
    let checked_run = run(&world, 6, |_| ListenerBehaviour::Normal);
    assert!(is_logged(&checked_run, "failed to write to the journal"), "{:?}", checked_run.log);
    assert!(!checked_run.message("faults::N/Fault.Case/1").contains("are lost"));
}

#[test]
fn full_disk_and_broken_connection_lose_nothing() {
    let world = world("pfpspp", "worker.journal.before:1:ENOSPC");
    // The worker's connection gets no response and fails. Its results are sent again over the main
    // connection.
    let first_is_bad =
        |number| if number == 0 { ListenerBehaviour::ResetsAfter(1) } else { ListenerBehaviour::Normal };
    let checked_run = run(&world, 6, first_is_bad);
    let states: Vec<_> = cases(6).iter().map(|uid| checked_run.state(uid).to_owned()).collect();
    assert_eq!(states, ["passed", "failed", "passed", "skipped", "passed", "passed"]);
    assert!(is_logged(&checked_run, "sending its results over the main connection"), "{:?}", checked_run.log);
    assert!(!is_logged(&checked_run, "are in no journal"), "{:?}", checked_run.log);
}

#[test]
fn unjournalled_result_is_recorded_before_sending() {
    // The worker dies just after sending the first result. If the result were not in the journal, the test
    // would run again.
    let world = world("WWW", "worker.journal.before:1:ENOSPC,worker.sent:2:kill");
    world.write(
        "heeler.toml",
        "[profile.default]\njobs = 1\ndrain-timeout = \"300ms\"\nhistory = false\nisolate = true\n",
    );
    let mut server = TestServer::with_callback(&world, &["faults"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    server.finish_as(&run, &cases(3), ExpectedDelivery::AtLeastOnce).assert_all("passed");
    assert!(world.path("points/worker.sent").exists());
    let events = server.recorder.events();
    let updates = events.iter().filter_map(|event| event.params("testing/testUpdates/tests"));
    let changes = updates.filter_map(|params| params["changes"].as_array()).flatten();
    let begins = changes
        .map(|change| &change["node"])
        .filter(|node| node["uid"] == "faults::N/Fault.Case/0" && node["execution-state"] == "in-progress");
    assert!(begins.count() <= 1);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn test_that_kills_its_guard_is_reported_alone() {
    let world = world("ppPpf", "");
    let checked_run = run(&world, 5, |_| ListenerBehaviour::Normal);
    let states: Vec<_> = cases(5).iter().map(|uid| checked_run.state(uid).to_owned()).collect();
    assert_eq!(states, ["passed", "passed", "error", "passed", "failed"]);
    let message = "not completed: Heeler's guard was killed by signal 9 in each of 3 attempts";
    assert_eq!(checked_run.message(&cases(5)[2]), message);
    checked_run.assert_no_program_failures();
}

#[test]
fn program_that_kills_its_guard_before_its_tests_is_given_up() {
    let world = world("pppp", "");
    let script = "#!/bin/sh\ncase \"$1\" in --gtest_list_tests) ;; *) kill -9 $PPID; sleep 60;; esac\nexec ./faults \"$@\"\n";
    world.write_program("killer", script);
    world.write("heeler.toml", "[[suite]]\nname = \"k\"\nprograms = [\"killer\"]\nframework = \"gtest\"\n");
    let ran = world.run(&["run", "-j1"]).assert_code(2);
    ran.line_with(&["Heeler's guard was killed by signal 9 in 12 processes of the program in a row"]);
    ran.line_with(&["Summary", "4 not run"]);
}

#[test]
fn lost_guards_of_a_listing_are_replaced() {
    let world = world("pp", "guard.started:1:kill");
    run(&world, 2, |_| ListenerBehaviour::Normal).assert_all("passed").assert_no_program_failures();
    assert!(world.path("points/guard.started").exists());
    let world = TestWorld::with_gtest("faults");
    world.env("HEELER_FAIL", "guard.started:1+:kill");
    let ran = world.run(&["list", "faults"]);
    ran.assert_stderr(": Heeler's guard was killed by signal 9 in each of 3 attempts");
}

#[test]
fn transient_fork_failure_loses_nothing() {
    let world = world("pp", "pool.watchdog:1:EAGAIN");
    run(&world, 2, |_| ListenerBehaviour::Normal).assert_all("passed");
    assert!(world.path("points/pool.watchdog").exists());
}

#[test]
fn thread_limit_is_reported_before_serving() {
    // Thread limits do not apply to root.
    for user in attacked_users().into_iter().filter(|user| *user != 0) {
        let mut world = TestWorld::with_gtest("faults");
        world.change_owner(user);
        for way in ["serve --stdio faults", "--server --client-port 1 faults"] {
            let line = format!("ulimit -u 1; exec ./heeler {way} </dev/null");
            let ran = crate::support::world::run(world.shell(&line)).assert_code(4);
            let error = "start the two threads for the connection to the client: Resource temporarily";
            ran.assert_stderr(&format!("failed to serve clients: {error}"));
        }
    }
}

#[test]
fn command_without_descriptors_is_one_error() {
    let world = TestWorld::with_gtest("faults");
    let heeler = env!("CARGO_BIN_EXE_heeler");
    for limit in 4..12 {
        let line = format!("exec </dev/null; ulimit -n {limit}; exec {heeler} list faults");
        let ran = crate::support::world::run(world.shell(&line));
        assert!(ran.stderr.starts_with("error: failed to "), "with {limit} descriptors: {ran}");
        assert!(ran.stderr.contains("Too many open files"), "with {limit} descriptors: {ran}");
    }
}

#[test]
fn test_killed_during_dump_delays_nothing() {
    let world = world("papp", "guard.capture:1:stop");
    let mut server = TestServer::with_callback(&world, &["faults"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let guard = wait_stopped_at(&world, "guard.capture");
    let [test] = children(guard)[..] else { panic!("one test process: {:?}", children(guard)) };
    signal(test.as_u32(), "KILL");
    signal(guard, "CONT");
    let checked_run = server.finish_as(&run, &cases(4), ExpectedDelivery::Once);
    let states: Vec<_> = cases(4).iter().map(|uid| checked_run.state(uid).to_owned()).collect();
    assert_eq!(states, ["passed", "error", "passed", "passed"]);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn run_without_manifest_completes_after_coordinator_death() {
    let world = world("pfWWW", "run.manifest:1:ENOSPC,worker.sent:2:stop");
    let mut server = TestServer::with_callback(&world, &["faults"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    wait_stopped_at(&world, "worker.sent");
    signal(server.pid(), "KILL");
    server.wait_gone();
    let checked_run = server.finish_orphaned(&run, &cases(5));
    let is_reported = |uid: &String| checked_run.test(uid)["outcome-kind"] == "not-run";
    assert!(is_reported(&cases(5)[4]), "{:#?}", checked_run.tests);
    assert!(is_logged(&checked_run, "this run can't be reported or rerun later"), "{:?}", checked_run.log);
}
