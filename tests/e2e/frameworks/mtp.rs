//! Applications of Microsoft Testing Platform: a fake server with a switch for each quirk of real servers,
//! and Heeler itself as the application.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;

use crate::support::{
    fixtures::fixtures,
    world::{FinishedCommand, TestWorld},
};

/// A finished run: the last event of each test, by its name without the suite.
pub(super) struct ApplicationRun {
    pub(super) command: FinishedCommand,
    pub(super) ends: BTreeMap<String, Value>,
}

impl ApplicationRun {
    fn read(command: FinishedCommand) -> Self {
        let mut ends = BTreeMap::new();
        for line in command.stdout.lines().filter(|line| line.starts_with('{')) {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if event["type"] == "test" && event["outcome"].is_string() {
                let name = event["uid"].as_str().unwrap().split_once("::").unwrap().1.to_owned();
                assert!(ends.insert(name, event).is_none(), "two ends: {line}");
            }
        }
        Self { command, ends }
    }

    #[track_caller]
    pub(super) fn outcome(&self, name: &str) -> &str {
        let end = self.ends.get(name).unwrap_or_else(|| panic!("no end of {name}\n{}", self.command));
        end["outcome"].as_str().unwrap()
    }

    pub(super) fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for end in self.ends.values() {
            *counts.entry(end["outcome"].as_str().unwrap()).or_default() += 1;
        }
        counts
    }
}

pub(super) fn run_in(world: &TestWorld, command: &str, more: &[&str]) -> ApplicationRun {
    let words = [&["run", "--format", "json", "--mtp", command], more].concat();
    ApplicationRun::read(world.run(&words))
}

/// A server quirk, and the results that differ because of it.
struct Quirk {
    name: &'static str,
    differences: &'static [(&'static str, &'static str)],
}

const fn quirk(name: &'static str, differences: &'static [(&'static str, &'static str)]) -> Quirk {
    Quirk { name, differences }
}

/// Runs a server with each quirk. By default, five of its six tests pass and the last one fails.
fn check(quirks: &[Quirk]) {
    for Quirk { name, differences } in quirks {
        let world = TestWorld::new();
        let program = fixtures().join("mtp/application.py");
        let command = format!("python3 {} {name}", program.display());
        world.write("heeler.toml", "[profile.default]\ngrace-period = \"400ms\"\ndumps = \"off\"\n");
        let run = run_in(&world, &command, &["--timeout", "3s"]);
        for number in 0..6 {
            let test = format!("t{number}");
            let plain = if number == 5 { "failed" } else { "passed" };
            let expected =
                differences.iter().find(|(of, _)| *of == test).map_or(plain, |(_, outcome)| outcome);
            let full = if *name == "no-location" { test.clone() } else { format!("Space.Class.{test}") };
            assert_eq!(run.outcome(&full), expected, "{test} of {name}\n{}", run.command);
        }
        assert_eq!(run.ends.len(), 6, "{name}\n{}", run.command);
        world.check_tidy();
    }
}

#[test]
fn versions_of_the_platform_are_driven_alike() {
    check(&[
        quirk("plain", &[]),
        quirk("no-versions", &[]),
        quirk("both-states", &[]),
        quirk("states-apart", &[]),
        quirk("telemetry-last", &[]),
        quirk("controller", &[]),
        quirk("uid-of-path", &[]),
        quirk("no-location", &[]),
        quirk("file-is-no-path", &[]),
        quirk("window", &[]),
        quirk("empty-list-is-all", &[]),
        quirk("filter-ignored", &[]),
        quirk("member-kills", &[]),
        quirk("missing-member-kills", &[]),
        quirk("counts-characters", &[]),
        quirk("string-id-kills", &[]),
        quirk("option-kills", &[]),
        quirk("connects-twice", &[]),
    ]);
}

#[test]
fn several_ends_of_a_test_are_one_result() {
    check(&[
        quirk("second-end", &[("t1", "failed")]),
        quirk("rows-of-one-uid", &[("t1", "failed")]),
        quirk("superseded", &[]),
        quirk("uid-twice", &[]),
        quirk("runs-unasked", &[]),
        quirk("failed-for-timed-out", &[("t2", "failed")]),
        quirk("large-node", &[]),
        quirk("log-repeats-output", &[]),
        quirk("unread-output-blocks", &[]),
        quirk("grandchild", &[]),
    ]);
}

const NONE_RUN: &[(&str, &str)] = &[
    ("t0", "not-run"),
    ("t1", "not-run"),
    ("t2", "not-run"),
    ("t3", "not-run"),
    ("t4", "not-run"),
    ("t5", "not-run"),
];

#[test]
fn test_that_the_framework_leaves_out_is_named() {
    check(&[
        quirk("never-run", &[("t1", "not-run")]),
        quirk("explicit", &[("t1", "not-run")]),
        // The ids are random in each process, so only the process that listed the tests can run them.
        quirk("random-uid", &[]),
        quirk("refuses-one-name", &[("t2", "not-run")]),
        quirk("error-code-zero", NONE_RUN),
        quirk("no-completion-before-error", NONE_RUN),
    ]);
}

#[test]
fn death_costs_only_the_test_that_causes_it() {
    check(&[
        quirk("dies-in-window", &[("t3", "crashed")]),
        quirk("dies-and-names", &[("t3", "crashed")]),
        quirk("stale-in-progress", &[("t3", "crashed")]),
        quirk("journal", &[("t3", "exited-early")]),
        quirk("exits-before-response", &[("t3", "exited-early")]),
        quirk("dies-in-frame", &[("t3", "crashed")]),
    ]);
}

#[test]
fn hang_costs_only_the_test_that_causes_it() {
    check(&[
        quirk("hangs", &[("t3", "timed-out")]),
        quirk("survives-abort", &[("t3", "timed-out")]),
        quirk("cancel-exits", &[("t3", "timed-out")]),
        quirk("end-of-stream-ignored", &[("t3", "timed-out")]),
    ]);
}

#[test]
fn attachment_is_kept_before_its_framework_removes_it() {
    let world = TestWorld::new();
    let program = fixtures().join("mtp/application.py");
    let run = run_in(&world, &format!("python3 {} attachment-gone", program.display()), &[]);
    assert_eq!(run.outcome("Space.Class.t1"), "passed", "{}", run.command);
    let mut found = Command::new("find");
    found.arg(world.dir()).args(["-name", "*a_file.txt"]);
    let found = String::from_utf8(found.output().unwrap().stdout).unwrap();
    let path = found.lines().next().unwrap_or_else(|| panic!("it is gone\n{}", run.command));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "attached");
}

#[test]
fn application_that_dies_before_it_connects_is_an_error() {
    let world = TestWorld::new();
    let program = fixtures().join("mtp/application.py");
    let command = format!("python3 {} dies-before-it-connects", program.display());
    let ran = world.run(&["run", "--mtp", &command]);
    ran.assert_stdout("cannot start");
    ran.assert_code(4);
}

/// Runs a server that reports its tests one by one, with these variables set. Every test must end.
fn run_with_kill(variables: &[(&str, &str)]) -> ApplicationRun {
    let world = TestWorld::new();
    for (name, value) in variables {
        world.env(name, value);
    }
    world.env("HEELER_FAIL_ONCE", world.path("points").to_str().unwrap());
    world.env("APPLICATION_HAS_DIED", world.path("has-died").to_str().unwrap());
    std::fs::create_dir(world.path("points")).unwrap();
    let program = fixtures().join("mtp/application.py");
    let run = run_in(&world, &format!("python3 {} states-apart", program.display()), &["-j1"]);
    assert_eq!(run.ends.len(), 6, "{variables:?}\n{}", run.command);
    let has_died = world.path("has-died").exists()
        || std::fs::read_dir(world.path("points")).is_ok_and(|mut points| points.next().is_some());
    assert!(has_died, "{variables:?}: nothing was killed\n{}", run.command);
    world.check_tidy();
    run
}

#[test]
fn application_that_is_killed_at_any_message_costs_one_test_at_most() {
    // Nine messages: six tests, the telemetry, the completion and the response.
    for message in 0..9 {
        let number = message.to_string();
        let mut variables = vec![("APPLICATION_DIES_AFTER", number.as_str())];
        if message % 2 == 1 {
            variables.push(("APPLICATION_DIES_IN_MESSAGE", "1"));
        }
        let run = run_with_kill(&variables);
        let mut lost = Vec::new();
        for number in 0..6 {
            let name = format!("Space.Class.t{number}");
            let plain = if number == 5 { "failed" } else { "passed" };
            if run.outcome(&name) != plain {
                lost.push((name, run.outcome(&format!("Space.Class.t{number}"))));
            }
        }
        assert!(lost.len() <= 1, "before message {message}: {lost:?}\n{}", run.command);
        assert!(lost.iter().all(|(_, outcome)| *outcome == "crashed"), "{lost:?}\n{}", run.command);
    }
}

#[test]
fn worker_that_is_killed_under_an_application_loses_no_test() {
    for fault in [
        "worker.lease:1:kill",
        "worker.journal.before:1:kill",
        "worker.journal.after:1:kill",
        "worker.sent:1:kill",
        "worker.reported:1:kill",
        "worker.drain:1:kill",
    ] {
        let run = run_with_kill(&[("HEELER_FAIL", fault)]);
        for number in 0..6 {
            let expected = if number == 5 { "failed" } else { "passed" };
            let outcome = run.outcome(&format!("Space.Class.t{number}"));
            assert_eq!(outcome, expected, "t{number}, {fault}\n{}", run.command);
        }
    }
}

/// Returns whether each test succeeded. A display name may end with the parameter: `Named/P.FailsForX/x [x
/// ("x")]`, `Typed/0.Default (int)`.
fn successes(run: &ApplicationRun) -> BTreeMap<String, bool> {
    let of = run.ends.iter().map(|(name, end)| {
        let name = name.split([' ', '[']).next().unwrap();
        (name.to_owned(), matches!(end["outcome"].as_str(), Some("passed" | "skipped")))
    });
    of.collect()
}

// Excludes the hanging test, because the inner Heeler does not set a timeout.
const ENDING: [&str; 2] = ["-E", "not test(Hang)"];

#[test]
fn heeler_below_heeler_gives_the_same_results() {
    let world = TestWorld::with_gtest("kinds");
    let direct = ApplicationRun::read(world.run(&["run", "--format", "json", "-E", ENDING[1], "./kinds"]));
    let command = format!("{} ./kinds", crate::support::heeler().display());
    let below = run_in(&world, &command, &ENDING);
    assert_eq!(below.ends.len(), direct.ends.len(), "{}\n{}", below.command, direct.command);
    assert_eq!(successes(&below), successes(&direct), "{}\n{}", below.command, direct.command);
    world.check_tidy();
}

#[test]
fn heeler_below_heeler_gives_the_same_results_whatever_is_killed_in_it() {
    let world = TestWorld::with_gtest("kinds");
    let direct = ApplicationRun::read(world.run(&["run", "--format", "json", "-E", ENDING[1], "./kinds"]));
    for fault in
        ["worker.journal.after:1", "guard.started:1", "run.begun:1", "run.finish:1", "watchdog.finish:1"]
    {
        let points = world.path(&format!("points-{}", fault.replace([':', '.'], "-")));
        std::fs::create_dir(&points).unwrap();
        // Test processes do not inherit the outer Heeler's fault variables, so the command sets them for the
        // inner one.
        let heeler = crate::support::heeler();
        let variables = format!("HEELER_FAIL={fault}:kill HEELER_FAIL_ONCE={}", points.display());
        let below = run_in(&world, &format!("env {variables} {} ./kinds", heeler.display()), &ENDING);
        assert!(std::fs::read_dir(&points).unwrap().next().is_some(), "{fault} was not reached");
        let (found, expected) = (successes(&below), successes(&direct));
        assert_eq!(found.len(), expected.len(), "{fault}\n{}", below.command);
        // The inner Heeler may report a test as lost if its guard dies. A failed test must never pass.
        let differ: Vec<_> = expected.iter().filter(|(name, is_good)| found[*name] != **is_good).collect();
        assert!(differ.iter().all(|(_, is_good)| **is_good), "{fault}: {differ:?}\n{}", below.command);
        assert!(differ.len() <= 1, "{fault}: {differ:?}\n{}", below.command);
    }
}
