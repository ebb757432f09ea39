//! The run option `liveOutput`, which sends the output of running tests.

use serde_json::{Value, json};

use crate::support::{recorder::RecordedEvent, server::TestServer, uids, world::TestWorld};

const LINE: &str = "a line before the end – with ünïcode";

/// Returns the nodes that contain output of running tests, in order.
fn outputs(events: &[RecordedEvent]) -> Vec<Value> {
    let updates = events.iter().filter_map(|event| event.params("testing/testUpdates/tests"));
    let changes = updates.filter_map(|params| params["changes"].as_array()).flatten();
    let nodes = changes.map(|change| change["node"].clone());
    nodes.filter(|node| node.get("heeler.output").is_some()).collect()
}

#[test]
fn output_is_sent_while_its_test_runs() {
    for is_listening in [false, true] {
        let world = TestWorld::with_gtest("meet");
        let rendezvous = world.open_rendezvous();
        world.env("HEELER_FIXTURE_SAYS", LINE);
        let mut server = TestServer::with_optional_callback(&world, &["meet"], is_listening);
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run_with_options(901, &selected, &json!({"liveOutput": true}));
        let running = rendezvous.next_test();
        let node = server
            .recorder
            .wait("the output of the running test", |events| outputs(events).into_iter().next());
        assert_eq!(node["uid"], selected[0].as_str());
        assert_eq!(node["execution-state"], "in-progress");
        assert_eq!(node["heeler.output"], format!("{LINE}\n"));
        running.release();
        let checked_run = server.finish(&run, &selected);
        // The result has the complete output, including the part sent earlier.
        let output = checked_run.test(&selected[0])["standardOutput"].as_str().unwrap();
        assert!(output.contains(LINE), "{output}");
        assert_eq!(outputs(&server.recorder.events()).len(), 1);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn output_is_not_sent_without_request() {
    for options in [json!({"liveOutput": false}), json!({"liveOutput": null}), json!(null)] {
        let world = TestWorld::with_gtest("meet");
        let rendezvous = world.open_rendezvous();
        world.env("HEELER_FIXTURE_SAYS", LINE);
        let mut server = TestServer::initialized(&world, &["meet"]);
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run_with_options(901, &selected, &options);
        let running = rendezvous.next_test();
        server.wait_state(&selected[0], "in-progress");
        running.release();
        server.finish(&run, &selected).assert_all("passed");
        assert!(outputs(&server.recorder.events()).is_empty());
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn live_output_of_a_flood_is_bounded() {
    let world = TestWorld::with_gtest("output");
    world.env("HEELER_FIXTURE_FLOOD_MIB", "20");
    let mut server = TestServer::initialized(&world, &["output"]);
    let selected = uids("output", ["Output.Flood"]);
    let run = server.run_with_options(901, &selected, &json!({"liveOutput": true}));
    server.finish(&run, &selected).assert_all("passed");
    let sent = outputs(&server.recorder.events());
    assert!(!sent.is_empty());
    for node in &sent {
        let output = node["heeler.output"].as_str().unwrap();
        assert!(output.len() <= 8192 + 100, "{} bytes in one update", output.len());
    }
    let bytes: usize = sent.iter().map(|node| node["heeler.output"].as_str().unwrap().len()).sum();
    assert!(bytes < 10 << 20, "{bytes} bytes of 20 MiB");
    assert_eq!(server.exit(), Some(0));
}
