//! Programs that start slowly: how many times they are started, and how their tests end.

use crate::support::{checked_run::CheckedRun, server::TestServer, world::TestWorld};

fn slow_world(start_ms: u32, test_ms: u32, settings: &str) -> TestWorld {
    let world = TestWorld::with_gtest("slow_start");
    world.note_starts();
    world.env("HEELER_FIXTURE_START_MS", &start_ms.to_string());
    world.env("HEELER_FIXTURE_TEST_MS", &test_ms.to_string());
    world.write("heeler.toml", &format!("[profile.default]\n{settings}"));
    world
}

/// Runs all tests in a new session; the next session uses its history.
fn run(world: &TestWorld) -> CheckedRun {
    let selected: Vec<_> = (0..20).map(|number| format!("slow_start::N/Slow.Case/{number}")).collect();
    let mut server = TestServer::initialized(world, &["slow_start"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &selected);
    assert_eq!(server.exit(), Some(0));
    checked_run
}

#[test]
fn each_slot_starts_an_expensive_program_once() {
    // If Heeler ignored the start time, each test of the second run would get a separate process.
    let world = slow_world(1500, 1050, "jobs = 4\n");
    let mut starts_before = 0;
    for history in ["no history", "its history"] {
        run(&world).assert_all("passed").assert_no_program_failures();
        let starts = world.starts().len() - starts_before;
        // If the machine is busy, a slot may be late and its share of the tests goes to another slot.
        assert!((4..=6).contains(&starts), "with {history}: {:?}", world.starts());
        starts_before += starts;
    }
}

#[test]
fn tests_of_which_nothing_is_known_are_spread_over_free_slots() {
    // The start is slow only in a run, so the listing does not show the start time.
    let world = slow_world(300, 100, "jobs = 2\n");
    world.env("HEELER_FIXTURE_START_IN", "environment");
    world.run(&["run", "slow_start"]).assert_code(0).assert_stdout("20 passed");
    // A small batch per slot reveals the start time. The remaining tests are then divided among the slots at
    // once.
    assert!((4..=5).contains(&world.starts().len()), "{:?}", world.starts());
}

#[test]
fn slow_start_is_no_fault_of_a_test() {
    // Heeler knows the start time from the listing, or retries with twice the timeout.
    for place in ["main", "environment"] {
        let world = slow_world(1500, 0, "jobs = 2\nstartup-timeout = \"500ms\"\n");
        world.env("HEELER_FIXTURE_START_IN", place);
        run(&world).assert_all("passed").assert_no_program_failures();
    }
}

#[test]
fn program_that_never_starts_in_time_has_failed() {
    let world = slow_world(60_000, 0, "jobs = 2\nstartup-timeout = \"100ms\"\ngrace-period = \"100ms\"\n");
    world.env("HEELER_FIXTURE_START_IN", "environment");
    let checked_run = run(&world);
    checked_run.assert_all("error");
    for (uid, node) in &checked_run.tests {
        assert_eq!(node["outcome-kind"], "not-run", "{uid}");
        assert!(checked_run.message(uid).contains("within its startup-timeout in 3 attempts"), "{node:#}");
    }
    let message = checked_run.programs["slow_start"]["error.message"].as_str().unwrap();
    assert!(message.contains("started no test within"), "{message}");
}
