//! Third-party clients: scenarios in Node, on the JSON-RPC library that editors use (`tests/clients`),
//! against the real server. Each runs in a process of its own.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::world::{Ran, World, run};

/// Returns a file of the Node clients' package.
fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Returns `node` with a script of the clients' package, in a world.
fn node(world: &World, script: &str, words: &[&str]) -> Ran {
    assert!(client("node_modules").is_dir(), "the clients' library is missing; scripts/test installs it");
    let script = client(script);
    world.env("HEELER", env!("CARGO_BIN_EXE_heeler"));
    let words = [&[script.to_str().unwrap()], words].concat();
    let ran = run(world.command(Command::new("node"), &words));
    world.check_tidy();
    ran
}

/// Plays one scenario.
#[track_caller]
fn play(name: &str, world: &World) {
    world.env("HEELER_FIXTURE_MEET", world.path("meeting-point").to_str().unwrap());
    world.write("heeler.toml", "[profile.default]\njobs = 2\ngrace-period = \"200ms\"\n");
    node(world, "main.mjs", &[name]).code(0);
}

#[test]
fn discovery_tells_each_test_once_and_then_its_end() {
    play("discovery_tells_each_test_once_and_then_its_end", &World::with_gtest("deaths"));
}

#[test]
fn a_run_over_one_connection_is_told_in_order() {
    play("a_run_over_one_connection_is_told_in_order", &World::with_gtest("deaths"));
}

#[test]
fn a_run_over_callback_connections_is_told_in_order() {
    play("a_run_over_callback_connections_is_told_in_order", &World::with_gtest("deaths"));
}

#[test]
fn standard_streams_serve_the_same_run() {
    play("standard_streams_serve_the_same_run", &World::with_gtest("deaths"));
}

#[test]
fn requests_pipelined_behind_initialize_are_done() {
    play("requests_pipelined_behind_initialize_are_done", &World::with_gtest("deaths"));
}

#[test]
fn runs_that_are_asked_for_at_once_each_have_their_own_end() {
    play("runs_that_are_asked_for_at_once_each_have_their_own_end", &World::with_gtest("deaths"));
}

#[test]
fn a_crash_is_told_in_order_with_its_attachments() {
    play("a_crash_is_told_in_order_with_its_attachments", &World::with_gtest("evidence"));
}

#[test]
fn parameters_bind_strictly_by_name_on_every_connection() {
    play("parameters_bind_strictly_by_name_on_every_connection", &World::with_gtest("evidence"));
}

#[test]
fn parameters_bind_strictly_by_name_on_one_connection() {
    let world = World::with_gtest("evidence");
    symlink("/bin/true", world.path("true")).unwrap();
    play("parameters_bind_strictly_by_name_on_one_connection", &world);
}

#[test]
fn log_lines_in_batches_bind_strictly_and_name_their_test() {
    play("log_lines_in_batches_bind_strictly_and_name_their_test", &World::with_gtest("kinds"));
}

#[test]
fn a_cancellation_token_cancels_a_run() {
    play("a_cancellation_token_cancels_a_run", &World::with_gtest("meet"));
}

#[test]
fn a_cancellation_token_cancels_a_run_over_callback_connections() {
    play("a_cancellation_token_cancels_a_run_over_callback_connections", &World::with_gtest("meet"));
}

#[test]
fn a_cancellation_token_cancels_a_discovery() {
    play("a_cancellation_token_cancels_a_discovery", &World::with_fake("hangs-in-listing"));
}

#[test]
fn a_debugger_of_the_client_gets_a_test_before_its_first_instruction() {
    play("a_debugger_of_the_client_gets_a_test_before_its_first_instruction", &World::with_gtest("deaths"));
}

#[test]
fn a_debugger_that_launches_gets_each_test_in_turn() {
    play("a_debugger_that_launches_gets_each_test_in_turn", &World::with_gtest("deaths"));
}

#[test]
fn a_request_for_a_debugger_is_withdrawn_with_its_run() {
    play("a_request_for_a_debugger_is_withdrawn_with_its_run", &World::with_gtest("deaths"));
}

#[test]
fn exit_as_a_request_is_answered_and_ends_a_run_in_order() {
    play("exit_as_a_request_is_answered_and_ends_a_run_in_order", &World::with_gtest("meet"));
}

#[test]
fn a_client_that_closes_in_the_middle_takes_everything_with_it() {
    play("a_client_that_closes_in_the_middle_takes_everything_with_it", &World::with_gtest("meet"));
}

#[test]
fn wrong_requests_are_refused_with_their_codes() {
    play("wrong_requests_are_refused_with_their_codes", &World::with_gtest("deaths"));
}

/// Returns the first block of the README in this language.
fn block_of_readme(language: &str) -> String {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, rest) = readme.split_once(&format!("```{language}\n")).expect("the README has such a block");
    rest.split_once("```").expect("blocks end").0.to_owned()
}

#[test]
fn the_client_of_the_readme_works_as_it_stands_there() {
    let text = std::fs::read_to_string(client("example.mjs")).unwrap();
    assert_eq!(text, block_of_readme("js"), "README.md and tests/clients/example.mjs differ");
    let world = World::with_gtest("deaths");
    let ran = node(&world, "example.mjs", &["deaths"]).code(0);
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("passed     deaths::")).count(), 7, "{ran}");
    let ran = node(&world, "example.mjs", &["--no-such-option"]).code(1);
    ran.complains("heeler left with code");
}

#[test]
fn the_rust_client_of_the_readme_works_as_it_stands_there() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/editor.rs");
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, block_of_readme("rust"), "README.md and examples/editor.rs differ");
    let world = World::with_gtest("deaths");
    world.env("HEELER", env!("CARGO_BIN_EXE_heeler"));
    // `cargo test` builds the examples before the tests, beside the programs.
    let heeler = Path::new(env!("CARGO_BIN_EXE_heeler"));
    let example = heeler.with_file_name("examples").join("editor");
    assert!(example.exists(), "with --test alone, build it first: cargo build --example editor");
    let ran = run(world.command(Command::new(&example), &["deaths"])).code(0);
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("passed     deaths::")).count(), 7, "{ran}");
    ran.line(&["7 passed of 7"]);
    world.env("HEELER", "no/such/heeler");
    run(world.command(Command::new(&example), &["deaths"])).code(1).complains("Start");
    world.check_tidy();
}

#[test]
fn every_scenario_is_a_test_here() {
    let scenarios = std::fs::read_to_string(client("scenarios.mjs")).unwrap();
    let names = scenarios.lines().filter_map(|line| line.strip_prefix("export async function "));
    let names: Vec<_> = names.filter_map(|rest| rest.split('(').next()).collect();
    assert!(names.len() > 10, "the scenarios are found");
    for name in names {
        let call = format!("play(\"{name}\"");
        assert!(include_str!("foreign.rs").contains(&call), "{name} is played by no test");
    }
}

#[test]
fn the_lock_file_of_the_clients_names_versions_and_no_host() {
    let lock = std::fs::read_to_string(client("package-lock.json")).unwrap();
    assert!(lock.contains("\"integrity\"") && !lock.contains("\"resolved\""), "{lock}");
}
