//! Third-party clients: Node scenarios (`tests/clients`) that use the editors' JSON-RPC library against the
//! real server. Each scenario runs in a separate process.

use std::{os::unix::fs::symlink, path::Path, process::Command};

use crate::support::{
    fixtures::fixtures,
    node::{client, node, scenarios},
    world::{TestWorld, run},
};

/// Runs one scenario.
#[track_caller]
fn run_scenario(name: &str, world: &TestWorld) {
    run_scenario_with(name, world, "");
}

/// Runs one scenario with additional settings.
#[track_caller]
fn run_scenario_with(name: &str, world: &TestWorld, settings: &str) {
    world.env("HEELER_FIXTURE_MEET", world.path("meeting-point").to_str().unwrap());
    let common = "[profile.default]\njobs = 2\ngrace-period = \"200ms\"\n";
    world.write("heeler.toml", &format!("{common}{settings}"));
    node(world, "main.mjs", &[name]).assert_code(0);
}

#[test]
fn discovery_sends_each_test_once_then_completion() {
    run_scenario("discovery_sends_each_test_once_then_completion", &TestWorld::with_gtest("deaths"));
}

#[test]
fn run_on_one_connection_is_in_order() {
    run_scenario("run_on_one_connection_is_in_order", &TestWorld::with_gtest("deaths"));
}

#[test]
fn run_on_callback_connections_is_in_order() {
    run_scenario("run_on_callback_connections_is_in_order", &TestWorld::with_gtest("deaths"));
}

#[test]
fn slow_handler_has_handled_everything_before_completion() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "2000");
    // This timeout is shorter than the handlers take. Data that waits in the client's kernel or library does
    // not count as progress.
    run_scenario_with(
        "slow_handler_has_handled_everything_before_completion",
        &world,
        "drain-timeout = \"200ms\"\n",
    );
}

/// Runs a scenario with 2,000 tests and a client that blocks once.
#[track_caller]
fn run_busy_scenario(name: &str) {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "2000");
    run_scenario(name, &world);
}

#[test]
fn client_that_is_busy_at_its_first_update_has_handled_everything_before_completion() {
    run_busy_scenario("client_that_is_busy_at_its_first_update_has_handled_everything_before_completion");
}

#[test]
fn client_that_is_busy_behind_its_request_has_the_whole_limit_for_answers() {
    run_busy_scenario("client_that_is_busy_behind_its_request_has_the_whole_limit_for_answers");
}

#[test]
fn client_that_is_busy_from_the_beginning_has_handled_everything_before_completion() {
    run_busy_scenario("client_that_is_busy_from_the_beginning_has_handled_everything_before_completion");
}

#[test]
fn connections_closed_behind_the_completion_bring_no_second_one() {
    let world = TestWorld::with_gtest("deaths");
    run_scenario("connections_closed_behind_the_completion_bring_no_second_one", &world);
}

#[test]
fn standard_streams_serve_the_same_run() {
    run_scenario("standard_streams_serve_the_same_run", &TestWorld::with_gtest("deaths"));
}

#[test]
fn requests_pipelined_after_initialize_are_processed() {
    run_scenario("requests_pipelined_after_initialize_are_processed", &TestWorld::with_gtest("deaths"));
}

#[test]
fn concurrent_runs_have_own_completions() {
    run_scenario("concurrent_runs_have_own_completions", &TestWorld::with_gtest("deaths"));
}

#[test]
fn crash_is_sent_in_order_with_attachments() {
    run_scenario("crash_is_sent_in_order_with_attachments", &TestWorld::with_gtest("evidence"));
}

#[test]
fn parameters_bind_strictly_by_name_on_every_connection() {
    run_scenario("parameters_bind_strictly_by_name_on_every_connection", &TestWorld::with_gtest("evidence"));
}

#[test]
fn parameters_bind_strictly_by_name_on_one_connection() {
    let world = TestWorld::with_gtest("evidence");
    symlink("/bin/true", world.path("true")).unwrap();
    run_scenario("parameters_bind_strictly_by_name_on_one_connection", &world);
}

#[test]
fn batched_log_binds_strictly_and_names_test() {
    run_scenario("batched_log_binds_strictly_and_names_test", &TestWorld::with_gtest("kinds"));
}

#[test]
fn cancellation_token_cancels_run() {
    run_scenario("cancellation_token_cancels_run", &TestWorld::with_gtest("meet"));
}

#[test]
fn cancellation_token_cancels_run_on_callback_connections() {
    run_scenario("cancellation_token_cancels_run_on_callback_connections", &TestWorld::with_gtest("meet"));
}

#[test]
fn cancellation_token_cancels_discovery() {
    run_scenario("cancellation_token_cancels_discovery", &TestWorld::with_fake("hangs-in-listing"));
}

#[test]
fn client_debugger_attaches_before_first_instruction() {
    run_scenario("client_debugger_attaches_before_first_instruction", &TestWorld::with_gtest("deaths"));
}

#[test]
fn launching_debugger_gets_each_test_in_turn() {
    run_scenario("launching_debugger_gets_each_test_in_turn", &TestWorld::with_gtest("deaths"));
}

#[test]
fn debugger_request_is_cancelled_with_its_run() {
    run_scenario("debugger_request_is_cancelled_with_its_run", &TestWorld::with_gtest("deaths"));
}

#[test]
fn exit_request_completes_run_and_gets_response() {
    run_scenario("exit_request_completes_run_and_gets_response", &TestWorld::with_gtest("meet"));
}

#[test]
fn client_close_midway_leaves_nothing_behind() {
    run_scenario("client_close_midway_leaves_nothing_behind", &TestWorld::with_gtest("meet"));
}

#[test]
fn invalid_requests_get_error_codes() {
    run_scenario("invalid_requests_get_error_codes", &TestWorld::with_gtest("deaths"));
}

/// Returns the first code block in this language from the page about clients.
fn block_of_page(language: &str) -> String {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/editors/clients.md"))
        .unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("the page has such a block");
    rest.split_once("```").expect("blocks end").0.to_owned()
}

#[test]
fn documented_client_works() {
    let text = std::fs::read_to_string(client("example.mjs")).unwrap();
    assert_eq!(text, block_of_page("js"), "docs/editors/clients.md and tests/clients/example.mjs differ");
    let world = TestWorld::with_gtest("deaths");
    let ran = node(&world, "example.mjs", &["deaths"]).assert_code(0);
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("passed     deaths::")).count(), 7, "{ran}");
    let ran = node(&world, "example.mjs", &["--no-such-option"]).assert_code(1);
    ran.assert_stderr("heeler left with code");
}

/// Keeps the example short: readers of the page must see at a glance what a client with callback connections
/// does.
const CALLBACK_CLIENT_LINES: usize = 40;

#[test]
fn documented_callback_clients_work() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/clients/callback_client.py");
    for (path, language) in [(client("callback_example.mjs"), "mjs"), (python, "python")] {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.display();
        assert_eq!(text, block_of_page(language), "docs/editors/clients.md and {name} differ");
        assert!(text.lines().count() <= CALLBACK_CLIENT_LINES, "{name} is no longer a short example");
        let world = TestWorld::new();
        world.env("HEELER", env!("CARGO_BIN_EXE_heeler"));
        world.env("ATTACHING_DIRECTORY", world.dir().to_str().unwrap());
        world.write(
            "heeler.toml",
            "[[suite]]\nname = \"adapter\"\nprograms = [\"adapter.py\"]\nframework = \"json-lines\"\n",
        );
        symlink(fixtures().join("json-lines/attaching.py"), world.path("adapter.py")).unwrap();
        let program = if language == "mjs" { "node" } else { "python3" };
        let ran = run(world.command(Command::new(program), &[path.to_str().unwrap()])).assert_code(0);
        for line in ["passed     adapter::passes", "skipped    adapter::skips", "error      adapter::dies"] {
            ran.line_with(&[line]);
        }
        let files = ran.stdout.lines().find_map(|line| line.strip_suffix(" files")).expect("it counts files");
        assert!(files.trim().parse::<u32>().unwrap() >= 11, "{ran}");
        world.check_tidy();
    }
}

#[test]
fn documented_rust_client_works() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/editor.rs");
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, block_of_page("rust"), "docs/editors/clients.md and examples/editor.rs differ");
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER", env!("CARGO_BIN_EXE_heeler"));
    // `cargo test` builds the examples before the tests, into the same target directory.
    let heeler = Path::new(env!("CARGO_BIN_EXE_heeler"));
    let example = heeler.with_file_name("examples").join("editor");
    assert!(example.exists(), "with --test alone, build it first: cargo build --example editor");
    let ran = run(world.command(Command::new(&example), &["deaths"])).assert_code(0);
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("passed     deaths::")).count(), 7, "{ran}");
    ran.line_with(&["7 passed of 7"]);
    world.env("HEELER", "no/such/heeler");
    run(world.command(Command::new(&example), &["deaths"])).assert_code(1).assert_stderr("Start");
    world.check_tidy();
}

#[test]
fn every_scenario_has_a_test() {
    let names = scenarios("scenarios.mjs");
    assert!(names.len() > 10, "the scenarios are found");
    for name in names {
        let call = format!("\"{name}\"");
        assert!(include_str!("node_clients.rs").contains(&call), "{name} is played by no test");
    }
}

#[test]
fn client_lock_file_names_versions_without_host() {
    let lock = std::fs::read_to_string(client("package-lock.json")).unwrap();
    assert!(lock.contains("\"integrity\"") && !lock.contains("\"resolved\""), "{lock}");
}
