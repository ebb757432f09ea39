//! Runs split over several machines: each test is in exactly one partition, even if the machines' histories
//! differ.

use std::collections::BTreeSet;

use crate::support::world::{FinishedCommand, TestWorld, run};

const CASES: usize = 50;

fn world() -> TestWorld {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world
}

/// Runs a partition on a machine. Each machine has its own state directory.
fn run_on(world: &TestWorld, machine: &str, words: &[&str]) -> FinishedCommand {
    let ran = world.run(&[&["run", "big", "--state-dir", machine], words].concat());
    assert!([Some(0), Some(8)].contains(&ran.code), "{ran}");
    ran
}

fn passed(ran: &FinishedCommand) -> impl Iterator<Item = String> {
    let lines = ran.stdout.lines().filter(|line| line.trim_start().starts_with("PASS "));
    lines.map(|line| line.split_whitespace().last().unwrap().to_owned())
}

/// Asserts that together these runs executed each test once.
#[track_caller]
fn assert_complete(runs: &[FinishedCommand]) {
    let all: Vec<_> = runs.iter().flat_map(passed).collect();
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!((all.len(), distinct.len()), (CASES, CASES));
}

/// Returns the digest on the first line of a run.
fn digest(ran: &FinishedCommand) -> String {
    let (_, rest) = ran.stdout.split_once("/2 of ").unwrap_or_else(|| panic!("no digest: {ran}"));
    rest.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// Returns the directory of a machine's only run.
fn run_dir(world: &TestWorld, machine: &str) -> String {
    let mut dirs = std::fs::read_dir(world.path(machine).join("runs")).unwrap();
    let name = dirs.next().unwrap().unwrap().file_name();
    assert!(dirs.next().is_none());
    format!("{machine}/runs/{}", name.to_str().unwrap())
}

#[test]
fn partitions_by_time_lose_no_test_where_histories_differ() {
    let world = world();
    let share = |number: usize| format!("time:{number}/2");
    // Each machine knows only the durations of its own tests.
    for round in 0..3 {
        let runs = [1, 2].map(|number| {
            let machine = format!("machine-{number}");
            let ran = run_on(&world, &machine, &["--partition", &share(number), "--status-level", "pass"]);
            let warning = "the tests are split by a hash of their names, not by time: time:k/n needs --partition-history";
            assert!(ran.stdout.contains(warning) || ran.stderr.contains(warning), "{round}: {ran}");
            ran
        });
        assert_complete(&runs);
    }
}

#[test]
fn partitions_by_a_given_history_are_equal_on_all_machines() {
    let world = world();
    run_on(&world, "before", &[]);
    let history = "before/history.sqlite";
    let with = |machine: &str, share: &str, words: &[&str]| {
        let selection = ["--partition", share, "--partition-history", history, "--status-level", "pass"];
        run_on(&world, machine, &[&selection[..], words].concat())
    };
    let first = with("one", "time:1/2", &[]);
    let digest = digest(&first);
    assert_eq!(digest.len(), 16, "{first}");
    let second = with("two", "time:2/2", &["--partition-digest", &digest]);
    assert!(!second.stdout.contains("split by a hash"), "{second}");
    assert_complete(&[first, second]);
    // A digest that does not match the durations or the tests is rejected before anything runs.
    let elsewhere =
        ["run", "big", "--partition", "time:2/2", "--state-dir", "three", "--partition-digest", &digest];
    let refused = world.run(&elsewhere).assert_code(4);
    refused.assert_stderr(&format!("--partition-digest is {digest}"));
    assert!(passed(&refused).next().is_none(), "{refused}");
    world
        .run(&["run", "big", "--partition", "time:1/2", "--partition-history", "none/history.sqlite"])
        .assert_code(4)
        .assert_stderr("failed to open none/history.sqlite (--partition-history)");
    assert!(!world.path("none").exists());
}

#[test]
fn report_over_partitions_checks_that_they_are_disjoint_and_complete() {
    let world = world();
    for number in 1..=3 {
        run_on(&world, &format!("m{number}"), &["--partition", &format!("slice:{number}/3")]);
    }
    let dirs = ["m1", "m2", "m3"].map(|machine| run_dir(&world, machine));
    let report = |dirs: &[&str]| {
        let words: Vec<_> = dirs.iter().flat_map(|dir| ["--shard", dir]).collect();
        world.run(&[&["report"], words.as_slice()].concat())
    };
    let [one, two, three] = dirs.each_ref().map(String::as_str);
    report(&[two, one, three]).assert_code(0).assert_stdout(&CASES.to_string());
    let incomplete = report(&[one, two]).assert_code(4);
    incomplete.assert_stderr("error: missing partitions: 3 (of 3)");
    incomplete.assert_stderr("of 50 tests are not in any partition");
    let twice = report(&[one, two, two, three]).assert_code(4);
    twice
        .assert_stderr("are both partition slice:2/3")
        .assert_stderr("error: tests in more than one partition: big::");
    // This partition was computed from a different set of tests.
    run_on(&world, "m4", &["--partition", "slice:3/3", "-E", "not test(=N/Big.Case/7)"]);
    let other = run_dir(&world, "m4");
    let differs = report(&[one, two, &other]).assert_code(4);
    differs.assert_stderr("they were split from different tests or durations");
    let junit = ["report", "--shard", one, "--shard", two, "--shard", three, "--junit", "all.xml"];
    world.run(&junit).assert_code(0);
    assert_eq!(world.read("all.xml").matches("<testcase ").count(), CASES);
    // A run of the whole selection is not a partition.
    run_on(&world, "m5", &[]);
    report(&[&run_dir(&world, "m5")]).assert_code(4).assert_stderr("is not a run with --partition");
    let moved = run(world.shell(&format!("mv {one} elsewhere")));
    assert_eq!(moved.code, Some(0), "{moved}");
    report(&["elsewhere", two, three]).assert_code(0);
}
