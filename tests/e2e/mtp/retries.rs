//! Delayed retries, and flaky tests that count as failures.

use serde_json::json;

use crate::support::{server::TestServer, uids, world::TestWorld};

const CASES: [&str; 2] = ["N/Meet.Case/0", "N/Meet.Case/1"];

#[test]
fn delayed_retry_holds_no_slot_and_ends_at_once_when_the_run_is_cancelled() {
    let world = TestWorld::with_gtest("meet");
    world.note_starts();
    let rendezvous = world.open_rendezvous();
    // The delay of an hour never elapses: the run is cancelled and ends within its usual deadlines.
    let retries = "retries = { count = 3, backoff = \"exponential\", delay = \"1h\", jitter = true }";
    world.write("heeler.toml", &format!("[profile.default]\njobs = 1\nisolate = true\n{retries}\n"));
    let mut server = TestServer::initialized(&world, &["meet"]);
    let selected = uids("meet", CASES);
    let run = server.run_with_options(901, &selected, &json!({}));
    let first = rendezvous.next_test();
    let failed = format!("meet::{}", first.test_name);
    first.send_command(b'f');
    // While the retry is delayed, the other test uses the only slot.
    let second = rendezvous.next_test();
    let other = format!("meet::{}", second.test_name);
    assert_ne!(other, failed);
    second.release();
    server.wait_state(&other, "passed");
    server.notify("testing/cancelTestRun", json!({"runId": run.run_id}));
    let checked_run = server.finish(&run, &selected);
    assert_eq!((checked_run.state(&failed), checked_run.state(&other)), ("failed", "passed"));
    let message = checked_run.message(&failed);
    assert!(message.contains("as requested") && message.contains("could not be retried"), "{message}");
    let duration = checked_run.test(&failed)["time.duration-ms"].as_f64().unwrap();
    assert!(duration < 3_600_000.0, "the delay is part of no duration: {duration}");
    assert_eq!(world.starts().len(), 2, "no retry has begun");
    assert_eq!(server.exit(), Some(0));
}

/// Returns a world with a test that fails once.
fn world_with_flaky_test() -> TestWorld {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    world
}

#[test]
fn delayed_retry_runs_when_its_delay_is_over() {
    let world = world_with_flaky_test();
    let retries = "count=2,backoff=exponential,delay=1ms,max-delay=10ms,jitter";
    let ran = world.run(&["run", "deaths", "-E", "Third.Flaky", "--retries", retries]).assert_code(0);
    ran.line_with(&["FLAKY", "Third.Flaky"]);
    let ran = world.run(&["run", "deaths", "--retries", "count=2,delay=soon"]).assert_code(5);
    ran.assert_stderr("unknown or invalid part \"delay=soon\"");
}

#[test]
fn flaky_test_fails_on_request() {
    let words = ["run", "deaths", "-E", "Third.Flaky", "--retries", "1"];
    let world = world_with_flaky_test();
    let ran =
        world.run(&[&words[..], &["--flaky-result", "fail", "--junit", "j.xml"]].concat()).assert_code(2);
    ran.line_with(&["FAIL", "Third.Flaky"]);
    ran.assert_stdout("flaky, failed by flaky-result: passed on attempt 2");
    ran.assert_stdout("the first time it fails");
    assert!(world.read("j.xml").contains("failures=\"1\""), "{}", world.read("j.xml"));
    // A test is not flaky if it fails on every attempt or passes on the first.
    let world = world_with_flaky_test();
    world.write("heeler.toml", "[profile.default]\nflaky-result = \"fail\"\nretries = 1\n");
    world.run(&["run", "deaths", "-E", "Third.Flaky"]).assert_code(2).assert_stdout("1 failed");
    world.run(&["run", "deaths", "-E", "Third.Flaky"]).assert_code(0).assert_stdout("1 passed");
    world.gtest("kinds");
    let ran = world.run(&["run", "kinds", "-E", "test(=Math.Fail)", "--flaky-result", "pass"]);
    assert!(!ran.stdout.contains("flaky"), "{ran}");
}
