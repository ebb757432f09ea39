//! Output that imitates GoogleTest's, written by a test, by its forked copy or by another thread. Heeler
//! reports only results that the process and the framework's own report prove.

use std::collections::BTreeMap;

use crate::support::{checked_run::CheckedRun, server::TestServer, uids, world::TestWorld};

const FORGING: [&str; 13] = [
    "First.Passes",
    "Fork.ChildReturnsParentCrashes",
    "Fork.ChildReturnsParentExits",
    "Fork.ChildReturnsParentFails",
    "Fork.ChildIsGoneWhenParentCrashes",
    "Fork.ChildRunsOnWhileParentCrashes",
    "Again.StartsProgramAndCrashes",
    "Print.NextMarkersAndFails",
    "Print.EverythingAndExits",
    "Print.HandlerExits",
    "Print.ClosesOutput",
    "Print.TearsMarkers",
    "Last.Passes",
];

fn attacked_with(attack: &str, settings: &str) -> CheckedRun {
    let world = TestWorld::with_gtest("forging");
    world.env("HEELER_FIXTURE_ATTACK", attack);
    world.write("heeler.toml", &format!("[profile.default]\njobs = 1\n{settings}"));
    let mut server = TestServer::initialized(&world, &["forging"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("forging", FORGING));
    assert_eq!(server.exit(), Some(0));
    checked_run
}

/// Returns the tests that did not pass, with their states.
fn bad(checked_run: &CheckedRun) -> BTreeMap<&str, &str> {
    let tests = checked_run.tests.keys().map(|uid| (uid.split_once("::").unwrap().1, checked_run.state(uid)));
    tests.filter(|(_, state)| *state != "passed").collect()
}

/// Each attack, with the test that must be blamed and its state.
const CHARGED: [(&str, &str, &str); 12] = [
    ("fork, crash", "Fork.ChildReturnsParentCrashes", "error"),
    ("fork, fail", "Fork.ChildReturnsParentFails", "failed"),
    ("fork, exit 0", "Fork.ChildReturnsParentExits", "error"),
    ("fork, exit 1", "Fork.ChildReturnsParentExits", "error"),
    ("fork, kill", "Fork.ChildReturnsParentExits", "error"),
    ("fork, crash late", "Fork.ChildIsGoneWhenParentCrashes", "error"),
    ("fork, crash early", "Fork.ChildRunsOnWhileParentCrashes", "error"),
    ("again, crash", "Again.StartsProgramAndCrashes", "error"),
    ("next, exit", "Print.NextMarkersAndFails", "error"),
    ("next, fail", "Print.NextMarkersAndFails", "failed"),
    ("everything, exit 0", "Print.EverythingAndExits", "error"),
    ("handler, exit 0", "Print.HandlerExits", "error"),
];

#[test]
fn attacking_test_is_charged_and_no_other() {
    for (attack, name, state) in CHARGED {
        let checked_run = attacked_with(attack, "");
        assert_eq!(bad(&checked_run), BTreeMap::from([(name, state)]), "{attack}: {checked_run:#?}");
    }
}

#[test]
fn attacking_test_is_charged_in_a_process_of_its_own() {
    for (attack, name, state) in CHARGED {
        let checked_run = attacked_with(attack, "isolate = true\n");
        assert_eq!(bad(&checked_run), BTreeMap::from([(name, state)]), "{attack}: {checked_run:#?}");
        checked_run.assert_no_program_failures();
    }
}

#[test]
fn test_that_hangs_while_its_copy_goes_on_is_charged() {
    // The forked copy finishes the other tests, or hangs in the next one. In GoogleTest's report, the first
    // test never ends.
    for attack in ["fork, hang", "fork, hang both"] {
        for isolation in ["", "isolate = true\n"] {
            let limits = format!("timeout = \"3s\"\nstartup-timeout = \"3s\"\n{isolation}");
            let checked_run = attacked_with(attack, &limits);
            let expected = BTreeMap::from([("Fork.ChildRunsOnWhileParentCrashes", "timed-out")]);
            assert_eq!(bad(&checked_run), expected, "{attack}: {isolation}: {checked_run:#?}");
        }
    }
}

#[test]
fn forking_test_is_charged_without_tracing() {
    // The child has written GoogleTest's report, and without tracing there is no stack trace of the exit.
    for attack in ["fork, exit 0", "fork, exit 1"] {
        for isolation in ["", "isolate = true\n"] {
            let checked_run = attacked_with(attack, &format!("crash-capture = \"off\"\n{isolation}"));
            let expected = BTreeMap::from([("Fork.ChildReturnsParentExits", "error")]);
            assert_eq!(bad(&checked_run), expected, "{attack}: {isolation}: {checked_run:#?}");
            checked_run.assert_no_program_failures();
        }
    }
}

#[test]
fn failure_after_a_fork_stands_when_a_later_test_crashes() {
    let checked_run = attacked_with("fork, fail, crash later", "");
    let expected = [("Fork.ChildReturnsParentFails", "failed"), ("Print.NextMarkersAndFails", "error")];
    assert_eq!(bad(&checked_run), BTreeMap::from(expected), "{checked_run:#?}");
}

#[test]
fn tests_without_readable_markers_have_the_results_of_the_report() {
    for attack in ["close", "tear", "own printer", "brief"] {
        let checked_run = attacked_with(attack, "");
        checked_run.assert_all("passed").assert_no_program_failures();
    }
}
