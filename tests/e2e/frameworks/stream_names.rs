//! Tests that open standard streams by name, and tests that fork correctly. Heeler's redirection breaks
//! neither, and the forking tests do not need an additional process.

use std::{
    collections::BTreeMap,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::support::{
    fixtures::{self, built, succeed},
    world::TestWorld,
};

const KINDS: [&[&str]; 4] = [
    &["-j1", "--no-history"],
    &["--isolate", "--no-history"],
    &["-j1", "--no-history", "--retries", "1"],
    &["-j1", "--no-history", "--repeat", "2"],
];

fn gtest() -> PathBuf {
    let source = fixtures::fixtures().join("forks/streams.cc");
    built("streams-gtest", &[&source], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).arg(&source);
        compiler.args(["-lgtest_main", "-lgtest", "-lpthread"]);
        succeed(&mut compiler, "is g++ there, with libgtest-dev?");
    })
}

fn libtest() -> PathBuf {
    let source = fixtures::fixtures().join("forks/streams.rs");
    built("streams-libtest", &[&source], |target| {
        let mut rustc = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
        rustc.args(["--test", "--edition", "2024", "-o"]).arg(target).arg(&source);
        succeed(&mut rustc, "the libtest fixture must compile");
    })
}

/// Runs the tests whose names contain `word`; returns each test's state and message, by name.
fn run(
    world: &TestWorld,
    program: &Path,
    word: &str,
    options: &[&str],
) -> BTreeMap<String, (String, String)> {
    if !world.path("program").exists() {
        symlink(program, world.path("program")).unwrap();
        world.write("heeler.toml", "[profile.default]\n");
        world.env("HEELER_FIXTURE_STARTED", world.path("started").to_str().unwrap());
    }
    let ran = world.run(&[&["run", "program", "-E", word, "--report", "ctrf=report.json"], options].concat());
    let report: Value = serde_json::from_str(&world.read("report.json")).unwrap_or_else(|_| panic!("{ran}"));
    let text = |test: &Value, key: &str| test[key].as_str().unwrap_or_default().to_owned();
    let tests = report["results"]["tests"].as_array().unwrap().iter();
    tests.map(|test| (text(test, "name"), (text(test, "rawStatus"), text(test, "message")))).collect()
}

fn check_streams(program: &Path, word: &str) {
    for options in KINDS {
        let world = TestWorld::new();
        let results = run(&world, program, word, options);
        assert!(results.len() > 5, "{results:?}");
        for (name, (state, message)) in &results {
            let is_failing = name.ends_with("fails");
            assert_eq!(state, if is_failing { "failed" } else { "passed" }, "{name}: {message}, {options:?}");
            assert_eq!(message.contains("own word"), is_failing, "{name}: {message}, {options:?}");
            assert!(!message.contains("No such device"), "{name}: {message}, {options:?}");
        }
    }
}

#[test]
fn streams_can_be_opened_by_name_in_gtest() {
    check_streams(&gtest(), "Streams.");
}

#[test]
fn streams_can_be_opened_by_name_in_libtest() {
    check_streams(&libtest(), "streams_");
}

#[test]
fn names_of_streams_help_no_copy_to_decide() {
    for options in KINDS {
        let results = run(&TestWorld::new(), &gtest(), "Copy.", options);
        let states: Vec<_> = results.values().map(|(state, _)| state.as_str()).collect();
        assert_eq!(states, ["passed", "failed"], "{results:?}, {options:?}");
    }
}

#[test]
fn proper_forks_cost_no_process() {
    let world = TestWorld::new();
    let results = run(&world, &gtest(), "Forks", KINDS[0]);
    assert!(results.len() == 6 && results.values().all(|(state, _)| state == "passed"), "{results:?}");
    assert_eq!(world.read("started"), "x");
    let results = run(&TestWorld::new(), &libtest(), "forks_", KINDS[0]);
    assert!(results.len() == 2 && results.values().all(|(state, _)| state == "passed"), "{results:?}");
}
