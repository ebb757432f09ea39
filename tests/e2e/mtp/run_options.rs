//! Options for a single run, in its request: `heeler.options`.

use serde_json::json;

use crate::support::{
    process::ProcessRole,
    server::{TestServer, run_id},
    uids,
    world::TestWorld,
};

const FLAKY: &str = "deaths::Third.Flaky";

#[test]
fn run_options_hold_for_their_run_only() {
    let world = TestWorld::with_gtest("deaths");
    world.note_starts();
    world.write("heeler.toml", "[profile.default]\nretries = 0\n");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let selected = uids("deaths", ["First.One", "First.Two", "Third.Flaky"]);
    let variables = json!({"HEELER_FIXTURE_FLAKY": world.path("flaky"), "HOME": false, "PATH": null});
    let options = json!({"retries": 1, "isolate": true, "env": variables, "args": ["--from-the-client"]});
    let run = server.run_with_options(901, &selected, &options);
    let checked_run = server.finish(&run, &selected);
    assert_eq!(checked_run.test(FLAKY)["outcome-kind"], "passed-with-retries");
    let starts = world.starts();
    assert_eq!(starts.len(), 4, "one for each test, and the retry: {starts:?}");
    assert!(starts.iter().all(|start| start.line.contains(" --from-the-client ")), "{starts:?}");

    // Without the options, the variable's file does not matter, and all tests share a process.
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    server.finish(&run, &selected).assert_all("passed");
    let starts = world.starts();
    assert_eq!(starts.len(), 5, "{starts:?}");
    assert!(!starts[4].line.contains("--from-the-client"), "{starts:?}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn time_limit_of_request_replaces_the_configured_one() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    world.write("heeler.toml", "[profile.default]\ntimeout = \"1h\"\ngrace-period = \"100ms\"\n");
    let mut server = TestServer::initialized(&world, &["meet"]);
    let selected = uids("meet", ["N/Meet.Case/0"]);
    let run = server.run_with_options(901, &selected, &json!({"timeout": "200ms"}));
    let waiting = rendezvous.next_test();
    server.finish(&run, &selected).assert_all("timed-out");
    waiting.wait_gone();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn jobs_of_request_are_limited_by_the_slots_of_the_server() {
    let selected = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2", "N/Meet.Case/3"]);
    for (slots, jobs, workers) in [(3, 1, 1), (2, 9, 2)] {
        let world = TestWorld::with_gtest("meet");
        let rendezvous = world.open_rendezvous();
        world.write("heeler.toml", &format!("[profile.default]\njobs = {slots}\nisolate = true\n"));
        let mut server = TestServer::initialized(&world, &["meet"]);
        let run = server.run_with_options(901, &selected, &json!({"jobs": jobs}));
        let running: Vec<_> = (0..workers).map(|_| rendezvous.next_test()).collect();
        running.into_iter().for_each(|test| test.release());
        server.release_tests_until_done(&rendezvous, &[&run]);
        server.finish(&run, &selected).assert_all("passed");
        assert_eq!(server.processes(ProcessRole::Worker).len(), workers, "{jobs} jobs, {slots} slots");
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn wrong_run_option_is_refused_by_name() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    server.skip_schema_checks();
    let prefix = "invalid heeler.options: ";
    let refused = "heeler.options is only valid in testing/runTests";
    for (method, options, message) in [
        (
            "testing/runTests",
            json!({"jobs": "all"}),
            format!("{prefix}expected a positive integer for \"jobs\""),
        ),
        (
            "testing/runTests",
            json!({"repeat": 0}),
            format!("{prefix}expected a positive integer for \"repeat\""),
        ),
        (
            "testing/runTests",
            json!({"job": 2}),
            format!("{prefix}unknown member \"job\"; did you mean \"jobs\"?"),
        ),
        ("testing/discoverTests", json!({"jobs": 2}), refused.to_owned()),
    ] {
        let params = json!({"runId": run_id(901), "heeler.options": options});
        let answer = server.request_and_wait(method, params);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["message"], message, "{answer}");
    }
    // Null means absent, for `heeler.options` itself and for its members.
    let selected = uids("deaths", ["First.One"]);
    for (number, options) in [(902, json!(null)), (903, json!({"jobs": null, "env": null, "timeout": null}))]
    {
        let run = server.run_with_options(number, &selected, &options);
        server.finish(&run, &selected).assert_all("passed");
    }
    assert_eq!(server.exit(), Some(0));
}
