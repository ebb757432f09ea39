//! Clients built on third-party libraries: `rsp-client`, as editors use it, and `vscode-jsonrpc`.

use std::os::unix::fs::symlink;

use crate::support::{
    fixtures,
    node::{client, node, scenarios},
    world::TestWorld,
};

/// Runs one scenario.
#[track_caller]
fn run_scenario(name: &str, programs: &[&str]) {
    let world = TestWorld::new();
    programs.iter().for_each(|program| world.gtest(program));
    run_scenario_in(name, &world);
}

#[track_caller]
fn run_scenario_in(name: &str, world: &TestWorld) {
    world.env("HEELER_FIXTURE_MEET", world.path("meeting-point").to_str().unwrap());
    world.write("heeler.toml", "[profile.default]\njobs = 2\ngrace-period = \"200ms\"\n");
    node(world, "rsp_main.mjs", &[name]).assert_code(0);
}

#[test]
fn editor_starts_stops_and_reconnects() {
    run_scenario("editor_starts_stops_and_reconnects", &["deaths", "meet"]);
}

#[test]
fn failures_are_shown_and_counted() {
    run_scenario("failures_are_shown_and_counted", &["kinds"]);
}

#[test]
fn refused_starts_say_why_and_send_a_state() {
    run_scenario("refused_starts_say_why_and_send_a_state", &["meet"]);
}

#[test]
fn every_request_of_the_editor_is_answered_without_error() {
    run_scenario("every_request_of_the_editor_is_answered_without_error", &["deaths"]);
}

#[test]
fn extension_of_the_servers_view_starts_suites() {
    run_scenario("extension_of_the_servers_view_starts_suites", &["kinds"]);
}

/// The second scenario starts the first scenario as its client and kills it.
#[test]
fn client_killed_in_mid_run_leaves_nothing() {
    assert!(scenarios("rsp_scenarios.mjs").iter().any(|name| name == "client_that_is_killed"));
    run_scenario("client_killed_in_mid_run_leaves_nothing", &["meet"]);
}

#[test]
fn requests_and_notifications_of_the_base_protocol() {
    run_scenario("requests_and_notifications_of_the_base_protocol", &["deaths"]);
}

#[test]
fn headers_are_read_in_every_valid_form() {
    run_scenario("headers_are_read_in_every_valid_form", &["deaths"]);
}

#[test]
fn damaged_stream_is_closed_and_the_next_client_served() {
    run_scenario("damaged_stream_is_closed_and_the_next_client_served", &["deaths"]);
}

#[test]
fn invalid_bodies_are_answered_and_the_connection_kept() {
    run_scenario("invalid_bodies_are_answered_and_the_connection_kept", &["deaths"]);
}

#[test]
fn lengths_count_bytes_and_not_characters() {
    let world = TestWorld::new();
    symlink(fixtures::gtest("deaths"), world.path("ünïx")).unwrap();
    run_scenario_in("lengths_count_bytes_and_not_characters", &world);
}

#[test]
fn second_client_is_closed_while_one_is_served() {
    run_scenario("second_client_is_closed_while_one_is_served", &["deaths"]);
}

/// Returns the first code block in this language from the protocol's documentation page.
fn block_of_page(language: &str) -> String {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/editors/rsp.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("the page has such a block");
    rest.split_once("```").expect("blocks end").0.to_owned()
}

#[test]
fn documented_client_works() {
    let text = std::fs::read_to_string(client("rsp_example.mjs")).unwrap();
    assert_eq!(text, block_of_page("js"), "docs/editors/rsp.md and tests/clients/rsp_example.mjs differ");
    let world = TestWorld::with_gtest("deaths");
    let ran = node(&world, "rsp_example.mjs", &["deaths"]).assert_code(0);
    ran.assert_stderr("7 tests: 7 passed");
}

#[test]
fn every_scenario_has_a_test() {
    let names = scenarios("rsp_scenarios.mjs");
    assert!(names.len() > 10, "the scenarios are found");
    for name in names {
        let call = format!("\"{name}\"");
        assert!(include_str!("node_clients.rs").contains(&call), "{name} is played by no test");
    }
}
