//! Applications of Microsoft Testing Platform: the process that lists the tests waits and then runs its first
//! lease.

use super::mtp::{ApplicationRun, run_in};
use crate::support::{fixtures::fixtures, world::TestWorld};

/// Environment of a started application process: `HEELER_RUN_ID` and `TEST_TMPDIR`.
#[derive(Debug)]
struct ApplicationStart {
    run: String,
    directory: String,
}

/// Writes a script that records each start and runs an application with this quirk; returns the command.
fn noted_application(world: &TestWorld, quirk: &str) -> String {
    let text = format!(
        "#!/bin/sh\necho \"$HEELER_RUN_ID $TEST_TMPDIR\" >> {}\nexec python3 {} {quirk} \"$@\"\n",
        world.path("starts").display(),
        fixtures().join("mtp/application.py").display()
    );
    world.write("start.sh", &text);
    format!("sh {}", world.path("start.sh").display())
}

fn starts(world: &TestWorld) -> Vec<ApplicationStart> {
    let read = |line: &str| {
        let (run, directory) = line.split_once(' ').unwrap();
        ApplicationStart { run: run.to_owned(), directory: directory.to_owned() }
    };
    world.read("starts").lines().map(read).collect()
}

/// Runs an application with this quirk; checks the results of all six tests; returns the starts.
fn run_noted(quirk: &str, configuration: &str, more: &[&str]) -> (Vec<ApplicationStart>, ApplicationRun) {
    let world = TestWorld::new();
    world.write("heeler.toml", configuration);
    let run = run_in(&world, &noted_application(&world, quirk), more);
    for number in 0..6 {
        let expected = if number == 5 { "failed" } else { "passed" };
        assert_eq!(run.outcome(&format!("Space.Class.t{number}")), expected, "{quirk}\n{}", run.command);
    }
    world.check_tidy();
    (starts(&world), run)
}

#[test]
fn process_that_has_listed_the_tests_runs_them() {
    let (starts, run) = run_noted("plain", "", &["-j1"]);
    let [only] = starts.as_slice() else { panic!("{starts:?}\n{}", run.command) };
    let head = run.command.stdout.lines().find(|line| line.contains("\"started\"")).unwrap();
    assert!(head.contains(&only.run) && !only.run.is_empty(), "{only:?}\n{head}");
    assert!(!only.directory.is_empty(), "{only:?}");
}

#[test]
fn process_that_ends_while_it_waits_is_replaced() {
    let (starts, run) = run_noted("exits-after-listing", "", &["-j1"]);
    // If Heeler notices the exit only after requesting tests, some of these may have been running. It reruns
    // those separately from the others.
    assert!((2..=3).contains(&starts.len()), "{}", run.command);
    assert_eq!(starts[0].run, starts[1].run, "both know the run");
}

#[test]
fn process_without_the_limits_of_the_run_is_not_used() {
    let (starts, run) = run_noted("plain", "[profile.default]\nmax-memory = \"1GiB\"\n", &["-j1"]);
    assert_eq!(starts.len(), 2, "{}", run.command);
}

#[test]
fn process_that_is_not_used_is_ended() {
    let world = TestWorld::new();
    let command = noted_application(&world, "plain");
    world.run(&["list", "--mtp", &command]).assert_code(0);
    world.check_tidy();
    let listed = starts(&world);
    assert_eq!((listed.len(), listed[0].run.as_str()), (1, ""), "a listing belongs to no run");
    let ran = world.run(&["run", "--mtp", &command, "-E", "test(none)"]);
    ran.assert_stdout("(6 tests found)");
    world.check_tidy();
    assert_eq!(starts(&world).len(), 2);
}

#[test]
fn worker_that_is_killed_with_a_process_that_waits_loses_no_test() {
    let world = TestWorld::new();
    world.env("HEELER_FAIL", "worker.lease:1:kill");
    world.env("HEELER_FAIL_ONCE", world.path("points").to_str().unwrap());
    std::fs::create_dir(world.path("points")).unwrap();
    let run = run_in(&world, &noted_application(&world, "plain"), &["-j1"]);
    assert_eq!(run.counts().get("passed"), Some(&5), "{}", run.command);
    assert!(starts(&world).len() >= 2, "{}", run.command);
    world.check_tidy();
}

#[test]
fn each_of_several_applications_is_started_once() {
    let world = TestWorld::new();
    let command = noted_application(&world, "plain");
    let suite = |name: &str| format!("[[suite]]\nname = {name:?}\nmtp = {command:?}\n");
    world.write("heeler.toml", &["a", "b", "c"].map(suite).concat());
    let ran = world.run(&["run", "-j3"]);
    ran.assert_stderr("15 passed, 3 failed");
    assert_eq!(starts(&world).len(), 3, "{ran}");
    world.check_tidy();
}
