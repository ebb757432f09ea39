//! Tests that run several times: the run option `repeat`, and `heeler run --repeat`.

use std::collections::HashMap;

use serde_json::json;

use crate::support::{
    process::{self, ProcessRole},
    recorder::RecordedEvent,
    rendezvous::TestRendezvous,
    server::TestServer,
    uids,
    world::TestWorld,
};

const CASES: [&str; 2] = ["N/Meet.Case/0", "N/Meet.Case/1"];
const FIRST: &str = "meet::N/Meet.Case/0";
const SECOND: &str = "meet::N/Meet.Case/1";

/// Lets tests pass for this number of executions, but sends `command` to one execution of the named test.
fn pass_except(rendezvous: &TestRendezvous, executions: usize, (name, time): (&str, usize), command: u8) {
    let mut times = HashMap::<String, usize>::new();
    for _ in 0..executions {
        let test = rendezvous.next_test();
        let seen = times.entry(test.test_name.clone()).or_default();
        *seen += 1;
        if test.test_name.ends_with(name) && *seen == time {
            test.send_command(command);
        } else {
            test.release();
        }
    }
}

/// Returns how many times the client was notified that a test started.
fn starts_of(events: &[RecordedEvent], uid: &str) -> usize {
    let updates = events.iter().filter_map(|event| event.params("testing/testUpdates/tests"));
    let changes = updates.filter_map(|params| params["changes"].as_array()).flatten();
    let is_start = |change: &&serde_json::Value| {
        change["node"]["uid"] == uid && change["node"]["execution-state"] == "in-progress"
    };
    changes.filter(is_start).count()
}

#[test]
fn test_ends_at_its_first_iteration_that_fails() {
    let world = TestWorld::with_gtest("meet");
    world.note_starts();
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let selected = uids("meet", CASES);
    let run = server.run_with_options(901, &selected, &json!({"repeat": 5, "jobs": 1}));
    pass_except(&rendezvous, 8, ("Case/0", 3), b'f');
    let checked_run = server.finish(&run, &selected);
    assert_eq!((checked_run.state(FIRST), checked_run.state(SECOND)), ("failed", "passed"));
    assert!(
        checked_run.message(FIRST).starts_with("in iteration 3 of 5: "),
        "{}",
        checked_run.message(FIRST)
    );
    assert_eq!(checked_run.test(FIRST)["heeler.iterations"], 3);
    assert_eq!(checked_run.test(SECOND)["heeler.iterations"], 5);
    checked_run.assert_no_program_failures();
    assert_eq!(world.starts().len(), 5, "one process for each iteration");
    let events = server.recorder.events();
    assert_eq!([FIRST, SECOND].map(|uid| starts_of(&events, uid)), [1, 1]);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn crash_in_an_iteration_is_that_of_the_test() {
    for is_isolated in [true, false] {
        let world = TestWorld::with_gtest("meet");
        let rendezvous = world.open_rendezvous();
        let mut server = TestServer::initialized(&world, &["meet"]);
        let selected = uids("meet", CASES);
        let options = json!({"repeat": 3, "jobs": 1, "isolate": is_isolated});
        let run = server.run_with_options(901, &selected, &options);
        // A crash in a process that ran other tests is confirmed in isolation, which adds an execution.
        let before = if is_isolated { 5 } else { 3 };
        let name = if is_isolated { "Case/0" } else { "Case/1" };
        if is_isolated {
            pass_except(&rendezvous, before, (name, 2), b's');
        } else {
            pass_except(&rendezvous, 4, (name, 2), b's');
            server.release_tests_until_done(&rendezvous, &[&run]);
        }
        let checked_run = server.finish(&run, &selected);
        let (crashed, other) = if is_isolated { (FIRST, SECOND) } else { (SECOND, FIRST) };
        assert_eq!(
            (checked_run.state(crashed), checked_run.state(other)),
            ("error", "passed"),
            "{:#}",
            checked_run.test(crashed)
        );
        let message = checked_run.message(crashed);
        assert!(message.contains("SIGSEGV") && message.contains("in iteration 2 of 3"), "{message}");
        assert_eq!(message.contains("passes in isolation"), !is_isolated, "{message}");
        assert_eq!(checked_run.test(other)["heeler.iterations"], 3);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn retry_passes_all_iterations_again() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let selected = uids("meet", [CASES[0]]);
    let run = server.run_with_options(901, &selected, &json!({"repeat": 3, "retries": 1}));
    pass_except(&rendezvous, 5, ("Case/0", 2), b'f');
    let checked_run = server.finish(&run, &selected);
    let node = checked_run.test(FIRST);
    assert_eq!(
        (&node["outcome-kind"], &node["heeler.iterations"]),
        (&json!("passed-with-retries"), &json!(3))
    );
    let first = node["heeler.attempts"][0]["message"].as_str().unwrap();
    assert!(first.starts_with("in iteration 2 of 3: "), "{first}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn cancelled_test_with_iterations_left_does_not_pass() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let selected = uids("meet", CASES);
    let run = server.run_with_options(901, &selected, &json!({"repeat": 3, "jobs": 1}));
    for _ in 0..2 {
        rendezvous.next_test().release();
    }
    // The second iteration has begun.
    let running = rendezvous.next_test();
    server.notify("testing/cancelTestRun", json!({"runId": run.run_id}));
    let checked_run = server.finish(&run, &selected);
    assert_eq!(checked_run.state(FIRST), "cancelled");
    assert_eq!(checked_run.test(FIRST)["heeler.iterations"], 1);
    assert!(!["passed", "in-progress"].contains(&checked_run.state(SECOND)), "{}", checked_run.state(SECOND));
    running.wait_gone();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn failure_limit_ends_the_iterations_of_running_tests() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    world.write("heeler.toml", "[profile.default]\njobs = 2\nisolate = true\nfail-fast = true\n");
    let mut server = TestServer::initialized(&world, &["meet"]);
    let selected = uids("meet", CASES);
    let run = server.run_with_options(901, &selected, &json!({"repeat": 1_000_000}));
    let (one, other) = (rendezvous.next_test(), rendezvous.next_test());
    let (first, second) = if one.test_name.ends_with("Case/0") { (one, other) } else { (other, one) };
    first.send_command(b'f');
    server.wait_state(FIRST, "failed");
    second.release();
    server.release_tests_until_done(&rendezvous, &[&run]);
    let checked_run = server.finish(&run, &selected);
    assert_eq!(checked_run.state(FIRST), "failed");
    assert!(!["passed", "in-progress"].contains(&checked_run.state(SECOND)), "{}", checked_run.state(SECOND));
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn iterations_that_a_dead_worker_ran_do_not_count() {
    let world = TestWorld::with_gtest("meet");
    world.note_starts();
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let selected = uids("meet", [CASES[0]]);
    let run = server.run_with_options(901, &selected, &json!({"repeat": 3, "jobs": 1}));
    rendezvous.next_test().release();
    let running = rendezvous.next_test();
    for worker in server.processes(ProcessRole::Worker) {
        process::signal(worker, "KILL");
    }
    running.wait_gone();
    server.release_tests_until_done(&rendezvous, &[&run]);
    let checked_run = server.finish(&run, &selected);
    assert_eq!(
        (checked_run.state(FIRST), &checked_run.test(FIRST)["heeler.iterations"]),
        ("passed", &json!(3))
    );
    assert_eq!(world.starts().len(), 5);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn bad_exits_of_all_iterations_are_one_failure_of_the_program() {
    let world = TestWorld::with_gtest("deaths");
    world.note_starts();
    world.env("HEELER_FIXTURE_DIE_AT", "exit code 7");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let ran = world.run(&["run", "deaths", "-E", "First.One", "-E", "First.Two", "--repeat", "3"]);
    assert_eq!(world.starts().len(), 3, "{ran}");
    assert!(ran.code != Some(0), "{ran}");
}

#[test]
fn command_line_repeats_tests_of_both_frameworks() {
    let world = TestWorld::with_libtest();
    world.gtest("kinds");
    world.note_starts();
    let ran = world.run(&["run", "libtest", "-E", "a_adds", "--stress-count", "3"]).assert_code(0);
    ran.assert_stdout("1 test");
    assert_eq!(world.starts().len(), 3, "{ran}");
    let ran = world.run(&["run", "libtest", "-E", "c_fails", "--repeat", "2"]).assert_code(2);
    ran.assert_stdout("in iteration 1 of 2");
    let ran = world.run(&["run", "kinds", "-E", "Math.*", "--repeat", "0"]);
    ran.assert_stderr("invalid value '0' for '--repeat <N>'");
}
