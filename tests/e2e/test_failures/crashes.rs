//! Deaths of test processes: which test is blamed, what is rerun, and how many times.

use crate::support::{
    callback_listener::ListenerBehaviour, checked_run::CheckedRun, server::TestServer, uids, world::TestWorld,
};

const DEATHS: [&str; 7] = [
    "First.One",
    "First.Two",
    "Second.One",
    "Second.Two",
    "Third.Spoils",
    "Third.CrashesWhenSpoilt",
    "Third.Flaky",
];

const FAKE: [&str; 4] = ["Fake.One", "Fake.Two", "Fake.Three", "Fake.Four"];

/// Runs all tests of a program in one slot; returns the checked run.
fn run_all(world: &TestWorld, program: &str, names: &[&str]) -> CheckedRun {
    world.write("heeler.toml", "[profile.default]\njobs = 1\nstartup-timeout = \"1s\"\n");
    let mut server = TestServer::with_callback(world, &[program], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids(program, names.iter().copied()));
    assert_eq!(server.exit(), Some(0));
    checked_run
}

fn dying_at(place: &str) -> CheckedRun {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_DIE_AT", place);
    // A failure at exit is attributed to a test only if the process ran no other test. Here, one process runs
    // all tests.
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    run_all(&world, "deaths", &DEATHS)
}

fn program_failure<'a>(checked_run: &'a CheckedRun, program: &str) -> &'a str {
    let node = checked_run
        .programs
        .get(program)
        .unwrap_or_else(|| panic!("{program} is not charged: {checked_run:#?}"));
    assert_eq!(node["outcome-kind"], "program-failure", "{node:#}");
    node["error.message"].as_str().unwrap()
}

#[test]
fn crash_among_500_costs_few_processes() {
    let world = TestWorld::with_gtest("big");
    world.note_starts();
    world.env("HEELER_FIXTURE_CRASH_AT", "1137");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let names: Vec<String> = (1000..1500).map(|n| format!("N/Big.Case/{n}")).collect();
    let selected = uids("big", names.iter().map(String::as_str));
    let mut server = TestServer::with_callback(&world, &["big"], |_| ListenerBehaviour::Normal);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    let bad: Vec<_> = checked_run.tests.keys().filter(|uid| checked_run.state(uid) != "passed").collect();
    assert_eq!(bad, ["big::N/Big.Case/1137"]);
    let culprit = checked_run.test("big::N/Big.Case/1137");
    assert_eq!(culprit["heeler.isolated-rerun"], "crashes", "{culprit:#}");
    assert_eq!(culprit["error.message"], "crashed with SIGABRT; also crashes in isolation");
    checked_run.assert_no_program_failures();
    let starts: Vec<_> = world.starts().into_iter().map(|start| start.pid).collect();
    // The process starts of the crash, and a few batches more where a slow start exceeds the server's batch
    // limit.
    assert!(starts.len() <= 6, "{starts:?}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn order_dependent_crash_is_reported_as_such() {
    let checked_run = dying_at("order");
    let uid = "deaths::Third.CrashesWhenSpoilt";
    assert_eq!(checked_run.state(uid), "error");
    assert_eq!(checked_run.test(uid)["heeler.isolated-rerun"], "passes");
    assert_eq!(
        checked_run.message(uid),
        "crashed with SIGABRT when run after other tests; passes in isolation (order-dependent?)"
    );
    let others = checked_run.tests.keys().filter(|other| *other != uid);
    assert!(others.clone().all(|other| checked_run.state(other) == "passed"), "{checked_run:#?}");
    checked_run.assert_no_program_failures();
}

#[test]
fn program_dying_before_first_test_is_abandoned() {
    let checked_run = dying_at("static initialisation");
    checked_run.assert_all("error");
    for (uid, node) in &checked_run.tests {
        assert_eq!(node["outcome-kind"], "not-run", "{uid}");
        assert!(checked_run.message(uid).contains("times in a row"), "{node:#}");
    }
    let message = program_failure(&checked_run, "deaths");
    assert!(message.contains("the process was killed by SIGABRT before its first test"), "{message}");
    assert!(message.contains("a constructor gives up"), "{message}");
}

#[test]
fn program_dying_in_environment_setup_is_abandoned() {
    let checked_run = dying_at("environment set-up");
    assert!(checked_run.tests.values().all(|node| node["outcome-kind"] == "not-run"), "{checked_run:#?}");
    assert!(program_failure(&checked_run, "deaths").contains("before its first test"));
}

#[test]
fn suite_setup_death_affects_only_that_suite() {
    let checked_run = dying_at("suite set-up");
    for name in ["First.One", "First.Two", "Third.Spoils", "Third.CrashesWhenSpoilt", "Third.Flaky"] {
        assert_eq!(checked_run.state(&format!("deaths::{name}")), "passed", "{checked_run:#?}");
    }
    for name in ["Second.One", "Second.Two"] {
        assert_eq!(checked_run.state(&format!("deaths::{name}")), "error", "{checked_run:#?}");
    }
    checked_run.assert_no_program_failures();
}

#[test]
fn suite_teardown_death_affects_no_other_suite() {
    let checked_run = dying_at("suite tear-down");
    checked_run.assert_all("passed");
    let message = program_failure(&checked_run, "deaths::First (tear-down)");
    assert!(message.contains("was killed by SIGABRT in the tear-down of the suite"), "{message}");
}

#[test]
fn death_after_last_test_is_program_failure() {
    for place in ["environment tear-down", "static destruction"] {
        let checked_run = dying_at(place);
        checked_run.assert_all("passed");
        assert!(
            program_failure(&checked_run, "deaths")
                .contains("the process was killed by SIGABRT after its last test"),
            "{checked_run:#?}"
        );
    }
}

#[test]
fn unexplained_exit_code_is_program_failure() {
    let checked_run = dying_at("exit code 7");
    // A slow start can leave the last test alone in its process, and then the exit code is that test's.
    let blamed = checked_run.tests.iter().filter(|(_, node)| node["execution-state"] != "passed");
    for (uid, node) in blamed {
        assert_eq!((uid.as_str(), &node["heeler.exit-code"]), ("deaths::Third.Flaky", &7.into()), "{node:#}");
    }
    assert!(program_failure(&checked_run, "deaths").contains("exited with code 7"), "{checked_run:#?}");
}

#[test]
fn program_crashing_in_listing_yields_one_error() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_DIE_AT", "static initialisation, always");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &["deaths".to_owned()]);
    assert_eq!(checked_run.test("deaths")["outcome-kind"], "not-run");
    let message = checked_run.message("deaths");
    assert!(message.contains("was killed by SIGABRT while listing its tests"), "{message}");
    assert!(message.contains("a constructor gives up"), "{message}");
    // The second attempt is traced, so it has a stack.
    assert!(message.contains("stack:\n") && message.contains("abort"), "{message}");
    for begin in ["minidump: ", "stacks of all threads: "] {
        let path = message.lines().find_map(|line| line.strip_prefix(begin)).expect(begin);
        assert!(std::fs::metadata(path).is_ok_and(|file| file.len() > 0), "{message}");
    }
}

#[test]
fn crash_in_a_listing_leaves_what_is_configured() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_DIE_AT", "static initialisation, always");
    for (settings, has_stack) in [("crash-capture = \"off\"", false), ("dumps = \"off\"", true)] {
        world.write("heeler.toml", &format!("[profile.default]\n{settings}\n"));
        let ran = world.run(&["list", "deaths"]);
        assert_ne!(ran.code, Some(0), "{ran}");
        ran.assert_stderr("was killed by SIGABRT while listing its tests");
        assert_eq!(ran.stderr.contains("stack:"), has_stack, "{ran}");
        assert!(!ran.stderr.contains("minidump"), "{ran}");
    }
}

#[test]
fn program_failing_after_its_listing_runs_and_is_in_error() {
    let world = TestWorld::with_gtest("deaths");
    world.note_starts();
    world.env("HEELER_FIXTURE_DIE_AT", "end of listing");
    world.write_program("wrapped", "#!/bin/sh\nexec ./deaths \"$@\"\n");
    for program in ["deaths", "wrapped"] {
        // For a script, the framework must be configured.
        world.write(
            "heeler.toml",
            &format!("[[suite]]\nname = \"{program}\"\nprograms = [\"{program}\"]\nframework = \"gtest\"\n"),
        );
        let mut server = TestServer::initialized(&world, &[]);
        let run = server.run(None);
        let checked_run = server.finish(&run, &uids(program, DEATHS));
        checked_run.assert_all("passed");
        let message = program_failure(&checked_run, program);
        assert!(message.contains("exited with code 1; its output:\nSUMMARY: AddressSanitizer"), "{message}");
        assert!(
            checked_run.log.iter().any(|line| line.contains("SUMMARY: AddressSanitizer")),
            "{:?}",
            checked_run.log
        );
    }
    let starts = world.read("starts");
    assert!(starts.lines().all(|start| start.contains("--gtest_")), "as no other framework: {starts}");
}

#[test]
fn program_crashing_after_its_listing_runs_and_is_in_error() {
    let checked_run = dying_at("end of listing, by a signal");
    checked_run.assert_all("passed");
    let message = program_failure(&checked_run, "deaths");
    assert!(message.contains("was killed by SIGABRT while listing its tests"), "{message}");
    assert!(message.contains("stack:\n") && message.contains("minidump: "), "{message}");
}

#[test]
fn death_between_tests_still_runs_every_test() {
    let world = TestWorld::with_fake("dies-between-tests");
    let checked_run = run_all(&world, "dies-between-tests", &FAKE);
    for name in ["One", "Two", "Three"] {
        assert_eq!(
            checked_run.state(&format!("dies-between-tests::Fake.{name}")),
            "passed",
            "{checked_run:#?}"
        );
    }
    // The last test was alone in its process, so it does not pass if the process dies.
    assert_eq!(checked_run.state("dies-between-tests::Fake.Four"), "error", "{checked_run:#?}");
    assert!(program_failure(&checked_run, "dies-between-tests").contains("SIGABRT"), "{checked_run:#?}");
}

#[test]
fn silently_skipped_tests_are_rerun() {
    let world = TestWorld::with_fake("stops-after-two");
    world.note_starts();
    run_all(&world, "stops-after-two", &FAKE).assert_all("passed");
    assert_eq!(world.starts().len(), 2, "{:?}", world.starts());
}

#[test]
fn program_running_nothing_passes_no_test() {
    for role in ["runs-nothing", "says-nothing"] {
        let world = TestWorld::with_fake(role);
        let checked_run = run_all(&world, role, &FAKE);
        checked_run.assert_all("error");
        assert!(checked_run.tests.values().all(|node| node["outcome-kind"] == "not-run"), "{checked_run:#?}");
    }
}

#[test]
fn unselected_extra_tests_change_no_result_and_are_an_error() {
    let world = TestWorld::with_fake("ignores-the-filter");
    let mut server = TestServer::initialized(&world, &["ignores-the-filter"]);
    let selected = uids("ignores-the-filter", ["Fake.Two", "Fake.Three"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    checked_run.assert_all("passed");
    let message = program_failure(&checked_run, "ignores-the-filter");
    assert!(message.contains("Fake.One ran but was not selected"), "{message}");
}

#[test]
fn program_with_abseil_flags_runs_what_is_selected() {
    let world = TestWorld::with_fake("abseil-flags");
    let mut server = TestServer::initialized(&world, &["abseil-flags"]);
    let selected = uids("abseil-flags", ["Fake.Two", "Fake.Three"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    checked_run.assert_all("passed").assert_no_program_failures();
    assert!(checked_run.test(&selected[0])["location.line-start"].is_number(), "{checked_run:#?}");
}

#[test]
fn duplicate_results_are_counted_once() {
    let world = TestWorld::with_fake("tells-everything-twice");
    run_all(&world, "tells-everything-twice", &FAKE).assert_all("passed");
}

#[test]
fn program_that_never_exits_keeps_its_results() {
    let world = TestWorld::with_fake("never-leaves");
    let checked_run = run_all(&world, "never-leaves", &FAKE);
    checked_run.assert_all("passed");
    assert!(program_failure(&checked_run, "never-leaves").contains("did not exit"), "{checked_run:#?}");
}

#[test]
fn program_that_never_begins_is_abandoned() {
    let world = TestWorld::with_fake("never-begins");
    let checked_run = run_all(&world, "never-begins", &FAKE);
    checked_run.assert_all("error");
    assert!(
        program_failure(&checked_run, "never-begins").contains("started no test within 1 s"),
        "{checked_run:#?}"
    );
}

#[test]
fn bad_exit_code_changes_no_passed_result() {
    let world = TestWorld::with_fake("leaves-with-7");
    let checked_run = run_all(&world, "leaves-with-7", &FAKE);
    checked_run.assert_all("passed");
    assert!(
        program_failure(&checked_run, "leaves-with-7").contains("exited with code 7"),
        "{checked_run:#?}"
    );
}

#[test]
fn isolated_rerun_does_not_use_up_retries() {
    let world = TestWorld::with_gtest("deaths");
    world.note_starts();
    world.env("HEELER_FIXTURE_DIE_AT", "order");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    world.write("heeler.toml", "[profile.default]\njobs = 1\nretries = 1\n");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("deaths", DEATHS));
    assert_eq!(
        checked_run.test("deaths::Third.Flaky")["outcome-kind"],
        "passed-with-retries",
        "{checked_run:#?}"
    );
    let culprit = checked_run.test("deaths::Third.CrashesWhenSpoilt");
    assert_eq!(
        (&culprit["execution-state"], &culprit["heeler.isolated-rerun"]),
        (&"error".into(), &"passes".into())
    );
    // The batch, the remaining tests, the isolated rerun, and the retry of the flaky test.
    assert_eq!(world.starts().len(), 4, "{:?}", world.starts());
}
