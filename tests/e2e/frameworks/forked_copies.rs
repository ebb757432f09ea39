//! Forked copies of test processes that return from a test, run the remaining tests and print the framework's
//! markers. In every framework and every kind of run, only the original process decides results.

use std::{collections::BTreeMap, os::unix::fs::symlink};

use serde_json::Value;

use crate::support::{fixtures, has_long_forms, world::TestWorld};

/// Ways to end the second test, each with the state in reports.
const ENDS: [(&str, &str); 8] = [
    ("pass", "passed"),
    ("fail", "failed"),
    ("segv", "crashed"),
    ("kill", "crashed"),
    ("exit-0", "exited-early"),
    ("leave-0", "exited-early"),
    ("exit-1", "exited-early"),
    ("hang", "timed-out"),
];

/// One process for all tests, and one process per test.
const PROCESSES: [&[&str]; 2] = [&["-j1", "--no-history"], &["--isolate", "--no-history"]];

/// Other run options. The second run with a history is planned from that history.
const RUNS: [&[&str]; 5] =
    [&["-j2", "--no-history"], &["-j1"], &["-j1"], &["-j1", "--retries", "1"], &["-j2", "--shuffle=7"]];

/// The timeout is long because a busy machine may take seconds to start a process.
const SETTINGS: &str = "[profile.default]\ntimeout = \"4s\"\ngrace-period = \"200ms\"\n";

fn world_of(name: &str) -> TestWorld {
    let world = TestWorld::new();
    if name.starts_with("json-lines") {
        symlink(fixtures::fixtures().join("forks/adapter.py"), world.path(name)).unwrap();
        let suite =
            format!("[[suite]]\nname = \"{name}\"\nprograms = [\"{name}\"]\nframework = \"{name}\"\n");
        world.write("heeler.toml", &format!("{SETTINGS}{suite}"));
    } else {
        let programs = fixtures::forking_programs();
        let (_, program) = programs.iter().find(|(one, _)| *one == name).unwrap();
        symlink(program, world.path(name)).unwrap();
        world.write("heeler.toml", SETTINGS);
        world.env("HEELER_FIXTURE_SELF", program.to_str().unwrap());
    }
    world.env("HEELER_FIXTURE_STARTED", world.path("started").to_str().unwrap());
    world
}

/// Runs all tests of a program; returns the state of each, by the last part of its name.
fn states(world: &TestWorld, name: &str, options: &[&str]) -> BTreeMap<String, String> {
    let program: &[&str] =
        if name.starts_with("json-lines") || name == "script" { &["run"] } else { &["run", name] };
    let ran = world.run(&[program, &["--report", "ctrf=report.json"], options].concat());
    let report: Value = serde_json::from_str(&world.read("report.json")).unwrap_or_else(|_| panic!("{ran}"));
    let tests = report["results"]["tests"].as_array().unwrap().iter();
    let last = |name: &str| name.rsplit(['.', '_']).next().unwrap().to_owned();
    let states: BTreeMap<_, _> = tests
        .map(|test| (last(test["name"].as_str().unwrap()), test["rawStatus"].as_str().unwrap().to_owned()))
        .collect();
    let is_green = states.values().all(|state| state == "passed");
    assert_eq!(ran.code, Some(if is_green { 0 } else { 2 }), "{ran}");
    states
}

/// Checks that the second test has this state and all others passed.
#[track_caller]
fn check(world: &TestWorld, name: &str, options: &[&str], state: &str, what: &str) {
    let passed = |name: &str| (name.to_owned(), "passed".to_owned());
    let mut expected: BTreeMap<_, _> = ["first", "third", "fourth"].map(passed).into();
    expected.insert("second".to_owned(), state.to_owned());
    assert_eq!(states(world, name, options), expected, "{name}, {what}, {options:?}");
}

/// Checks every end. Processes and runs are handled by the worker, independently of the framework. The gate
/// therefore checks all of their variants with one framework per reporting mechanism only.
fn check_ends(name: &str) {
    let has_all_runs = has_long_forms() || ["gtest", "json-lines"].contains(&name);
    let processes = if has_all_runs { &PROCESSES[..] } else { &PROCESSES[..1] };
    let runs = if has_all_runs { &RUNS[..] } else { &[] };
    let world = world_of(name);
    world.env("HEELER_FIXTURE_CHILD", "returns");
    for (end, state) in ENDS {
        // In Catch2 2, a destructor crashes at `exit`.
        if end == "exit-0" && name == "catch2-v2" {
            continue;
        }
        world.env("HEELER_FIXTURE_END", end);
        processes.iter().for_each(|options| check(&world, name, options, state, end));
    }
    for end in ["fail", "leave-0"] {
        world.env("HEELER_FIXTURE_END", end);
        runs.iter().for_each(|options| check(&world, name, options, state_of(end), end));
    }
}

fn state_of(end: &str) -> &'static str {
    ENDS.iter().find(|(one, _)| *one == end).unwrap().1
}

#[test]
fn copy_decides_nothing_in_gtest() {
    check_ends("gtest");
}

#[test]
fn copy_decides_nothing_in_doctest() {
    check_ends("doctest");
}

#[test]
fn copy_decides_nothing_in_boost() {
    check_ends("boost");
}

#[test]
fn copy_decides_nothing_in_catch2_v2() {
    check_ends("catch2-v2");
}

#[test]
fn copy_decides_nothing_in_catch2_v3() {
    if fixtures::catch2_version_3().is_some() {
        check_ends("catch2-v3");
    }
}

#[test]
fn copy_decides_nothing_in_libtest() {
    check_ends("libtest");
}

#[test]
fn copy_decides_nothing_in_json_lines() {
    check_ends("json-lines");
}

#[test]
fn copy_decides_nothing_in_json_lines_stdio() {
    check_ends("json-lines-stdio");
}

/// Kinds of forked or executed children.
const CHILDREN: [&str; 8] =
    ["double", "detached", "concurrent", "crashes", "leaves", "static", "exec", "silent"];

#[test]
fn every_kind_of_child_decides_nothing() {
    // One process for all tests finds most defects. One process per test is checked only in the long form,
    // with one framework.
    let long: &[_] = if has_long_forms() { &[("doctest", &PROCESSES[..])] } else { &[] };
    for (name, runs) in [("gtest", &PROCESSES[..1])].iter().chain(long) {
        let world = world_of(name);
        for child in CHILDREN {
            world.env("HEELER_FIXTURE_CHILD", child);
            for end in ["pass", "fail", "leave-0"] {
                world.env("HEELER_FIXTURE_END", end);
                let what = format!("{child}, {end}");
                runs.iter().for_each(|options| check(&world, name, options, state_of(end), &what));
            }
        }
    }
}

#[test]
fn forks_of_tests_that_pass_cost_no_second_process() {
    for name in ["gtest", "doctest"] {
        let world = world_of(name);
        for child in ["none", "silent", "returns", "double", "leaves"] {
            world.env("HEELER_FIXTURE_CHILD", child);
            world.write("started", "");
            check(&world, name, PROCESSES[0], "passed", child);
            assert_eq!(world.read("started"), "x", "{name}: {child}");
        }
    }
}

#[test]
fn copies_are_recognized_in_processes_that_are_not_traced() {
    for name in ["gtest", "doctest"] {
        let world = world_of(name);
        world.write("heeler.toml", &format!("{SETTINGS}crash-capture = \"off\"\n"));
        world.env("HEELER_FIXTURE_CHILD", "returns");
        for end in ["fail", "leave-0", "kill"] {
            world.env("HEELER_FIXTURE_END", end);
            PROCESSES.iter().for_each(|options| check(&world, name, options, state_of(end), end));
        }
    }
}

#[test]
fn program_behind_a_script_is_judged_the_same() {
    let world = world_of("doctest");
    world.write_program("script", "#!/bin/sh\necho starts\n\"$HEELER_FIXTURE_SELF\" \"$@\"\n");
    world.write(
        "heeler.toml",
        &format!("{SETTINGS}[[suite]]\nname = \"s\"\nprograms = [\"script\"]\nframework = \"doctest\"\n"),
    );
    for child in ["returns", "static"] {
        world.env("HEELER_FIXTURE_CHILD", child);
        for end in ["pass", "fail", "exit-1"] {
            world.env("HEELER_FIXTURE_END", end);
            check(&world, "script", PROCESSES[0], state_of(end), &format!("{child}, {end}"));
        }
    }
}

#[test]
fn program_behind_a_wrapper_is_judged_the_same() {
    for name in ["gtest", "doctest"] {
        let world = world_of(name);
        symlink("/usr/bin/timeout", world.path("script")).unwrap();
        let suite = format!(
            "[[suite]]\nname = \"s\"\nprograms = [\"script\"]\nframework = \"{name}\"\nargs = [\"600\", \"./{name}\"]\n"
        );
        world.write("heeler.toml", &format!("{SETTINGS}{suite}"));
        for child in ["returns", "static"] {
            world.env("HEELER_FIXTURE_CHILD", child);
            for end in ["pass", "fail", "exit-1", "leave-0"] {
                world.env("HEELER_FIXTURE_END", end);
                let what = format!("{child}, {end}");
                PROCESSES.iter().for_each(|options| check(&world, "script", options, state_of(end), &what));
            }
        }
    }
}

#[test]
fn children_report_for_their_parent_in_json_lines() {
    let world = world_of("json-lines");
    world.env("HEELER_FIXTURE_CHILD", "each");
    check(&world, "json-lines", PROCESSES[0], "passed", "each");
    world.env("HEELER_FIXTURE_CHILD", "concurrent");
    for end in ["pass", "fail", "leave-0"] {
        world.env("HEELER_FIXTURE_END", end);
        check(&world, "json-lines", PROCESSES[0], state_of(end), end);
    }
}
