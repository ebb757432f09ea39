//! Processes that exit in the set-up or tear-down of a suite: the exit is attributed to that suite and not to
//! a test.

use crate::support::{checked_run::CheckedRun, server::TestServer, uids, world::TestWorld};

const OTHERS: [&str; 4] = ["Before.One", "Before.Two", "Zafter.One", "Zafter.Two"];

fn ending(how: &str, settings: &str) -> CheckedRun {
    ending_with(how, &format!("timeout = \"1s\"\n{settings}"))
}

fn ending_with(how: &str, settings: &str) -> CheckedRun {
    let world = TestWorld::with_gtest("suites");
    world.env("HEELER_FIXTURE_END", how);
    let text = format!("[profile.default]\njobs = 1\ngrace-period = \"200ms\"\n{settings}");
    world.write("heeler.toml", &text);
    let mut selected = uids("suites", OTHERS);
    selected.extend((0..20).map(|number| format!("suites::N/Fixture.Case/{number}")));
    let mut server = TestServer::initialized(&world, &["suites"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &selected);
    assert_eq!(server.exit(), Some(0));
    checked_run
}

#[test]
fn death_in_set_up_is_the_result_of_the_suites_tests() {
    for (how, message) in [
        ("set-up, crash", "crashed with SIGABRT in the set-up of suite N/Fixture"),
        ("set-up, exit", "the process exited with code 3 in the set-up of suite N/Fixture"),
    ] {
        for settings in ["", "isolate = true\n"] {
            let checked_run = ending(how, settings);
            for uid in checked_run.tests.keys() {
                if uid.contains("Fixture") {
                    assert_eq!(
                        (checked_run.state(uid), checked_run.message(uid)),
                        ("error", message),
                        "{settings}"
                    );
                } else {
                    assert_eq!(checked_run.state(uid), "passed", "{settings}");
                }
            }
            checked_run.assert_no_program_failures();
        }
    }
}

#[test]
fn hang_in_set_up_is_the_result_of_the_suites_tests() {
    let checked_run = ending("set-up, hang", "startup-timeout = \"700ms\"\n");
    for uid in checked_run.tests.keys() {
        if uid.contains("Fixture") {
            assert_eq!(checked_run.state(uid), "timed-out");
            assert!(
                checked_run.message(uid).ends_with("in the set-up of suite N/Fixture"),
                "{:#}",
                checked_run.test(uid)
            );
        } else {
            assert_eq!(checked_run.state(uid), "passed");
        }
    }
    checked_run.assert_no_program_failures();
}

#[test]
fn death_in_tear_down_is_its_own_node() {
    for (how, message, settings) in [
        ("tear-down, crash", "was killed by SIGABRT", ""),
        ("tear-down, crash", "was killed by SIGABRT", "isolate = true\n"),
        ("tear-down, exit", "exited with code 3", ""),
        ("tear-down, exit", "exited with code 3", "isolate = true\n"),
        ("tear-down, leave", "exited with code 0", ""),
        ("tear-down, leave", "exited with code 0", "isolate = true\n"),
        ("tear-down, hang", "exceeded the time limit", ""),
    ] {
        let checked_run = ending(how, settings);
        checked_run.assert_all("passed");
        assert_eq!(checked_run.programs.len(), 1, "{how}: {:#?}", checked_run.programs);
        let node = &checked_run.programs["suites::N/Fixture (tear-down)"];
        assert_eq!(
            (&node["outcome-kind"], &node["execution-state"]),
            (&"program-failure".into(), &"error".into())
        );
        assert_eq!(node["display-name"], "N/Fixture (tear-down)");
        let text = node["error.message"].as_str().unwrap();
        assert!(text.contains(message) && text.contains("in the tear-down of the suite"), "{how}: {text}");
    }
}

#[test]
fn hang_in_tear_down_has_a_limit_without_a_time_limit() {
    let checked_run = ending_with("tear-down, hang", "startup-timeout = \"500ms\"\n");
    checked_run.assert_all("passed");
    let names: Vec<_> = checked_run.programs.keys().collect();
    assert_eq!(names, ["suites::N/Fixture (tear-down)"], "{:#?}", checked_run.programs);
    let text = checked_run.programs["suites::N/Fixture (tear-down)"]["error.message"].as_str().unwrap();
    // Heeler extends the limit on a slow machine, so the exact time is not checked.
    let limit = "(four times startup-timeout) in the tear-down of the suite";
    assert!(text.starts_with("the process exceeded ") && text.contains(limit), "{text}");
}

#[test]
fn failed_assertion_outside_tests_is_its_suites_own_node() {
    for (how, phase) in [("set-up, fail", "set-up"), ("tear-down, fail", "tear-down")] {
        for settings in ["", "isolate = true\n"] {
            let checked_run = ending(how, settings);
            let suites: Vec<_> = checked_run.programs.keys().collect();
            assert_eq!(suites, [&format!("suites::N/Fixture ({phase})")], "{settings}: {checked_run:#?}");
            let message = checked_run.programs.values().next().unwrap()["error.message"].as_str().unwrap();
            assert!(message.contains("suites.cc") && message.contains("the fixture gives up"), "{message}");
            for uid in checked_run.tests.keys() {
                let is_skipped = how.starts_with("set-up") && uid.contains("Fixture");
                // Newer versions of GoogleTest skip a suite's tests if its set-up fails.
                let is_expected =
                    checked_run.state(uid) == "passed" || is_skipped && checked_run.state(uid) == "skipped";
                assert!(is_expected, "{how}: {:#}", checked_run.test(uid));
            }
        }
    }
}

#[test]
fn summary_and_reports_name_the_tear_down() {
    let world = TestWorld::with_gtest("suites");
    world.env("HEELER_FIXTURE_END", "tear-down, exit");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let ran = world.run(&["run", "suites", "--report", "junit=junit.xml"]).assert_code(2);
    ran.assert_stdout("N/Fixture (tear-down)").assert_stdout("24 passed");
    let junit = world.read("junit.xml");
    assert!(junit.contains("N/Fixture (tear-down)"), "{junit}");
    let listed = world.run(&["report"]).assert_code(0);
    listed.assert_stdout("N/Fixture (tear-down)");
    // The next run must not blame a test for the failure in the tear-down.
    world.run(&["run", "suites", "--rerun", "failed"]);
}
