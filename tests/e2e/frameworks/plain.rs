//! Compares the plain runner, a build without default features, with the full program: every sample suite has
//! the same results in both. Skipped if `.ci/run` has not built the plain runner (`HEELER_PLAIN`).

use std::{collections::BTreeMap, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::Value;

use super::{command, go, json_lines_examples::example, mcp, pytest};
use crate::support::{
    fixtures::{self, Catch2Version},
    requirement,
    world::{FinishedCommand, TestWorld, run_with_separate_outputs},
};

/// Most suites have a test that hangs. The timeout is long because a busy machine may take seconds to start a
/// process.
const SETTINGS: &str = "[profile.default]\ntimeout = \"4s\"\ngrace-period = \"200ms\"\n";

/// Members of a test's last event that must agree in both programs.
const MEMBERS: [&str; 3] = ["outcome", "signal", "exit_code"];

/// Returns the run's exit code and the end of each test, by uid.
fn ends(ran: &FinishedCommand) -> (Option<i32>, BTreeMap<String, [Value; MEMBERS.len()]>) {
    let events = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ends = events.filter(|event| event["type"] == "test" && event["outcome"].is_string());
    let end = |event: Value| (event["uid"].to_string(), MEMBERS.map(|member| event[member].clone()));
    (ran.code, ends.map(end).collect())
}

/// Runs a suite with both programs and compares the ends; returns the plain runner's output.
fn compare(world: &TestWorld, words: &[&str]) -> Option<FinishedCommand> {
    let program = requirement::directory_of("HEELER_PLAIN", "the plain runner")?.join("heeler");
    let words = [&["run", "--format", "json", "--no-history", "-j2"], words].concat();
    let whole = ends(&world.run_with_separate_outputs(&words));
    let ran = run_with_separate_outputs(world.command(Command::new(program), &words));
    assert!(whole.1.len() > 2, "{whole:?}");
    assert_eq!(ends(&ran), whole, "{ran}");
    Some(ran)
}

/// Compares the results of both programs for one test program.
fn compare_program(program: &Path) -> Option<FinishedCommand> {
    let world = TestWorld::new();
    symlink(program, world.path("kinds")).unwrap();
    world.write("heeler.toml", SETTINGS);
    compare(&world, &["kinds"])
}

#[test]
fn gtest_crash_has_signal_and_stack_and_says_why_there_is_no_dump() {
    let Some(ran) = compare_program(&fixtures::gtest("kinds")) else { return };
    let is_end = |line: &&str| line.contains("\"kinds::Crash.Segv\"") && line.contains("\"outcome\"");
    let end: Value = serde_json::from_str(ran.stdout.lines().find(is_end).unwrap()).unwrap();
    assert_eq!(end["signal"], "SIGSEGV", "{end:#}");
    assert!(end["stacktrace"].as_str().unwrap().contains("Crash_Segv_Test::TestBody"), "{end:#}");
    assert!(!ran.stdout.contains(".dmp"), "{ran}");
    let reason = "only stacks: Heeler was built without the feature \"minidump\"";
    assert!(ran.stderr.contains(reason), "{ran}");
}

#[test]
fn other_programs_end_the_same() {
    compare_program(&fixtures::libtest());
    compare_program(&fixtures::doctest("kinds"));
    compare_program(&fixtures::boost("kinds"));
}

#[test]
fn catch2_programs_end_the_same() {
    for version in [Catch2Version::Two, Catch2Version::Three] {
        fixtures::catch2("kinds", version).and_then(|program| compare_program(&program));
    }
}

#[test]
fn ctest_project_ends_the_same() {
    compare(&TestWorld::new(), &["--ctest", fixtures::ctest_project().to_str().unwrap()]);
}

#[test]
fn go_package_ends_the_same() {
    let Some(toolchain) = go::Toolchain::current() else { return };
    compare(&toolchain.world(), &["--go", "./kinds"]);
}

#[test]
fn pytest_suite_ends_the_same() {
    let Some(python) = pytest::python() else { return };
    let world = pytest::world(&["pytest.ini", "conftest.py", "test_deaths.py", "test_ends.py"]);
    compare(&world, &["--pytest", ".", "--python", python.to_str().unwrap()]);
}

#[test]
fn commands_and_their_reports_end_the_same() {
    compare(&command::world_of(&command::COMMANDS, "pattern = [\"t/*.sh\"]\n"), &[]);
    compare(&command::world_of(&command::REPORTS, "pattern = [\"t/*.t\"]\nframework = \"tap\"\n"), &[]);
}

#[test]
fn json_lines_adapter_ends_the_same() {
    let tests = example("python_tests.py");
    compare(&TestWorld::new(), &[&example("adapter.py"), "--framework", "json-lines", "--", &tests]);
}

#[test]
fn servers_and_applications_end_the_same() {
    compare(&mcp::world(), &["--mcp", &mcp::server("hostile")]);
    let application = format!("python3 {} plain", fixtures::fixtures().join("mtp/application.py").display());
    compare(&mcp::world(), &["--mtp", &application]);
}

#[test]
fn command_that_is_left_out_names_its_feature() {
    let Some(directory) = requirement::directory_of("HEELER_PLAIN", "the plain runner") else { return };
    let world = TestWorld::new();
    for (name, feature) in [("connect", "connect"), ("dump", "minidump"), ("mutate", "mutation")] {
        let plain = Command::new(directory.join("heeler"));
        let ran = run_with_separate_outputs(world.command(plain, &[name])).assert_code(5);
        ran.assert_stderr(&format!("Heeler was built without the feature \"{feature}\""));
    }
}
