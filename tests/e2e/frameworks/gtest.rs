//! GoogleTest programs over the protocol: every way a test can end, selections, and many tests.

use serde_json::{Value, json};

use crate::{
    expected::{ExpectedResult, GTEST},
    support::{
        callback_listener::ListenerBehaviour, checked_run::CheckedRun, recorder::ClientConnection,
        server::TestServer, uids, world::TestWorld,
    },
};

const SHORT: &str = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n";

/// Checks all results against the expected ones.
#[track_caller]
pub(crate) fn check_expected(checked_run: &CheckedRun, suite: &str, expected: &[ExpectedResult]) {
    for one in expected {
        let uid = format!("{suite}::{}", one.name);
        let node = checked_run.test(&uid);
        assert_eq!(checked_run.state(&uid), one.state, "{node:#}");
        // A leaked process can be attributed to its test only if that test was alone in its batch.
        let kind = node["outcome-kind"].as_str().unwrap_or_default();
        assert!(kind == one.kind || (kind == "leaky" && one.name == "Leak.Child"), "{node:#}");
        assert!(checked_run.message(&uid).contains(one.message), "{node:#}");
        assert!(node["standardOutput"].as_str().unwrap_or_default().contains(one.stdout), "{node:#}");
        if one.kind == "crashed" {
            assert_eq!(node["heeler.signal"], one.label, "{node:#}");
        }
        if one.kind == "exited-early" {
            assert_eq!(node["heeler.exit-code"], 0, "{node:#}");
        }
        if one.state == "passed" {
            assert!(node["time.duration-ms"].is_number(), "{node:#}");
        }
    }
}

#[test]
fn every_outcome_reaches_listening_client() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let selected = uids("kinds", GTEST.iter().map(|one| one.name));
    let mut server = TestServer::with_callback(&world, &["kinds"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let checked_run = server.finish(&run, &selected);
    check_expected(&checked_run, "kinds", GTEST);
    checked_run.assert_no_program_failures();
    let attached: Vec<_> = checked_run.response["result"]["attachments"].as_array().unwrap().iter().collect();
    for ending in ["kinds.Crash.Segv.dmp", "kinds.Crash.Segv.stacks.txt", "kinds.Crash.Abort.dmp"] {
        let found = attached.iter().find(|one| one["display-name"] == *ending);
        let path = found.and_then(|one| one["uri"].as_str()?.strip_prefix("file://")).expect(ending);
        assert!(std::fs::metadata(path).unwrap().len() > 100, "{path}");
    }
    assert!(
        checked_run.results_on.values().all(|on| *on != ClientConnection::Main),
        "{:?}",
        checked_run.results_on
    );
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn every_outcome_reaches_client_with_one_connection() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let selected = uids("kinds", GTEST.iter().map(|one| one.name));
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &selected);
    check_expected(&checked_run, "kinds", GTEST);
    checked_run.assert_no_program_failures();
    let slow = &checked_run.test("kinds::Slow.Sleeps300Milliseconds")["time.duration-ms"];
    assert!(slow.as_f64().unwrap() >= 300.0, "{slow}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn result_has_location_and_rerun_command() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let run = server.run(Some(&["kinds::Math.Fail"]));
    let checked_run = server.finish(&run, &uids("kinds", ["Math.Fail"]));
    let node = checked_run.test("kinds::Math.Fail");
    assert!(node["location.file"].as_str().unwrap().ends_with("kinds.cc"), "{node:#}");
    let source = include_str!("../../fixtures/gtest/kinds.cc");
    let line = source.lines().position(|line| line.starts_with("TEST(Math, Fail)")).unwrap() + 1;
    assert_eq!(node["location.line-start"], line, "{node:#}");
    let command = node["heeler.reproduce"].as_str().unwrap();
    let again = crate::support::world::run(world.shell(command)).assert_code(1);
    again.assert_stdout("msg <with> \"quotes\" & ü").assert_stdout("[  FAILED  ] 1 test");
}

#[test]
fn test_has_only_its_own_output() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let selected = uids("kinds", ["Noise.NoNewline", "Noise.FakeMarker", "Noise.Errors", "Math.Add"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    checked_run.assert_all("passed");
    let output = |name: &str| checked_run.test(&format!("kinds::{name}"))["standardOutput"].clone();
    assert_eq!(output("Math.Add"), Value::Null);
    assert_eq!(output("Noise.NoNewline"), "partial line without newline");
    let fake = output("Noise.FakeMarker");
    assert_eq!(
        fake,
        "[       OK ] Math.Fail (0 ms)\n[ RUN      ] Ghost.Test\n[  FAILED  ] Ghost.Test (0 ms)\n"
    );
}

#[test]
fn only_selected_tests_run() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let all = uids("kinds", ["Named/P.Works/y", "Math.Add"]);
    // A test that is selected twice runs once.
    let run = server.run(Some(&["kinds::Named/P.Works/y", "kinds::Math.Add", "kinds::Math.Add"]));
    server.finish(&run, &all).assert_all("passed");
    let run = server.run(Some(&[]));
    assert!(server.finish(&run, &[]).tests.is_empty());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn older_member_name_for_tests_is_accepted() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let run_id = crate::support::server::run_id(99);
    let node =
        json!({"uid": "kinds::Math.Add", "display-name": "x", "traits": [{"a": "b"}], "own.member": [1]});
    let request = server.request("testing/runTests", json!({"runId": run_id, "testCases": [node]}));
    let run = crate::support::server::RequestedRun { run_id, request };
    server.finish(&run, &uids("kinds", ["Math.Add"])).assert_all("passed");
}

#[test]
fn unlisted_test_is_reported_as_not_run() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let selected = uids("kinds", ["Math.Add", "Math.Gone"]);
    let run = server.run(Some(&["kinds::Math.Gone", "kinds::Math.Add"]));
    let checked_run = server.finish(&run, &selected);
    assert_eq!(checked_run.state("kinds::Math.Add"), "passed");
    assert_eq!(checked_run.test("kinds::Math.Gone")["outcome-kind"], "not-run");
    assert_eq!(checked_run.state("kinds::Math.Gone"), "error");
}

#[test]
fn twenty_thousand_tests_cost_few_processes() {
    let world = TestWorld::with_gtest("big");
    world.note_starts();
    let selected = uids(
        "big",
        (0..20_000).map(|n| format!("N/Big.Case/{n}")).collect::<Vec<_>>().iter().map(String::as_str),
    );
    let mut server = TestServer::with_callback(&world, &["big"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    server.finish(&run, &selected).assert_all("passed").assert_no_program_failures();
    let starts = world.starts().len();
    assert!(starts <= 40, "{starts} processes");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn programs_of_different_frameworks_run_together() {
    let world = TestWorld::with_libtest();
    world.gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths", "libtest"]);
    let selected = ["deaths::First.One", "libtest::a_adds", "deaths::Third.Flaky", "libtest::z_is_last"];
    let run = server.run(Some(&selected));
    let checked_run = server.finish(&run, &selected.map(str::to_owned));
    checked_run.assert_all("passed").assert_no_program_failures();
}
