//! Contents of the protocol's messages, member by member, as sent.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::ExpectedDelivery,
    process::{ProcessRole, signal, wait_until},
    rendezvous::TestRendezvous,
    server::{RequestedRun, TestServer, run_id},
    uids,
    world::TestWorld,
};

/// Starts a server with a client that accepts batched log messages.
fn batching<'w>(world: &'w TestWorld, program: &str) -> TestServer<'w> {
    let mut server = TestServer::start(world, &[program]);
    server.initialize(json!({"testing": {"debuggerProvider": false, "batchLoggingSupport": true}}));
    server
}

/// Returns the parameters of all notifications of this method so far.
fn received_notifications(server: &TestServer<'_>, method: &str) -> Vec<Value> {
    server.recorder.events().iter().filter_map(|event| event.params(method).cloned()).collect()
}

fn members(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Runs a test and kills its worker, which produces log messages.
fn lose_a_worker(rendezvous: &TestRendezvous, server: &mut TestServer<'_>) -> RequestedRun {
    let run = server.run(Some(&["meet::Away.Family"]));
    let connected = rendezvous.next_test();
    signal(server.processes(ProcessRole::Worker)[0], "KILL");
    drop(connected);
    rendezvous.next_test().send_command(b'.');
    server.wait_response(run.request);
    run
}

#[test]
fn batched_log_message_has_test_uid() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = batching(&world, "meet");
    let run = lose_a_worker(&rendezvous, &mut server);
    let logs = received_notifications(&server, "client/log");
    let batch = logs.iter().find(|params| params.to_string().contains("died")).unwrap();
    assert_eq!(members(batch), BTreeSet::from(["runId", "messages"]));
    assert_eq!(batch["runId"], run.run_id.as_str());
    for message in batch["messages"].as_array().unwrap() {
        assert_eq!(members(message), BTreeSet::from(["nodeUid", "level", "message"]));
        assert_eq!((&message["nodeUid"], &message["level"]), (&json!("meet::Away.Family"), &json!(3)));
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn single_log_message_names_test_in_text() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    lose_a_worker(&rendezvous, &mut server);
    let logs = received_notifications(&server, "client/log");
    let single = logs.iter().find(|params| params.to_string().contains("died")).unwrap();
    assert_eq!(members(single), BTreeSet::from(["level", "message"]));
    assert_eq!(single["level"], "Warning");
    assert!(single["message"].as_str().unwrap().starts_with("meet::Away.Family: "), "{single}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn shown_output_does_not_enter_the_stream() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\nno-capture = true\n");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let selected = uids("kinds", ["Noise.NoNewline", "Noise.Errors", "Math.Add"]);
    for _ in 0..2 {
        let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
        // A single byte of output between two messages would break the session.
        server.finish(&run, &selected).assert_all("passed");
    }
    wait_until("both outputs are on standard error", || {
        let errors = server.errors_so_far();
        errors.contains("partial line without newline") && errors.contains("written to standard error")
    });
    assert_eq!(server.exit(), Some(0));
}

/// Returns the positions of a run's completion, telemetry event and response on the main connection.
fn places(server: &TestServer<'_>, run: &RequestedRun, event_name: &str) -> [usize; 3] {
    let events = server.recorder.events();
    let place = |is: &dyn Fn(&Value) -> bool| {
        let found: Vec<_> = (0..events.len()).filter(|at| events[*at].message().is_some_and(is)).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0]
    };
    let is_completion = |message: &Value| {
        message["method"] == "testing/testUpdates/tests"
            && message["params"]["runId"] == run.run_id.as_str()
            && message["params"]["changes"].is_null()
    };
    let is_telemetry = |message: &Value| {
        message["method"] == "telemetry/update" && message["params"]["eventName"] == event_name
    };
    let is_answer = |message: &Value| message.get("method").is_none() && message["id"] == run.request;
    [place(&is_completion), place(&is_telemetry), place(&is_answer)]
}

#[test]
fn run_telemetry_precedes_response_and_balances() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let run =
        server.run(Some(&["kinds::Math.Add", "kinds::Math.Fail", "kinds::Math.Skip", "kinds::Crash.Segv"]));
    server.wait_response(run.request);
    assert!(places(&server, &run, "heeler/run").is_sorted());
    let telemetry = received_notifications(&server, "telemetry/update").pop().unwrap();
    assert_eq!(members(&telemetry), BTreeSet::from(["eventName", "metrics"]));
    let metrics = &telemetry["metrics"];
    let count = |name: &str| metrics[name].as_u64().unwrap_or_else(|| panic!("no {name} in {metrics}"));
    let ended = ["passed", "skipped", "failed", "timedOut", "error", "cancelled"].map(count);
    assert_eq!(ended.iter().sum::<u64>(), count("selected"), "{metrics}");
    assert_eq!(ended, [1, 1, 1, 0, 1, 0], "{metrics}");
    assert_eq!(["selected", "crashed", "programs", "workerDeaths"].map(count), [4, 1, 1, 0], "{metrics}");
    assert!(count("workers") > 0, "{metrics}");
    assert!(metrics["durationMs"].as_f64().unwrap() > 0.0);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn discovery_telemetry_precedes_response() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let run_id = run_id(5);
    let request = server.request("testing/discoverTests", json!({"runId": run_id}));
    server.wait_response(request);
    assert!(places(&server, &RequestedRun { run_id, request }, "heeler/discovery").is_sorted());
    let metrics = &received_notifications(&server, "telemetry/update")[0]["metrics"];
    assert_eq!((&metrics["programs"], &metrics["brokenPrograms"]), (&json!(1), &json!(0)));
    assert!(metrics["discovered"].as_u64().unwrap() > 3, "{metrics}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn cancelled_run_sends_telemetry() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let run = server.run(Some(&["meet::Away.Family"]));
    let connected = rendezvous.next_test();
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let checked_run = server.finish(&run, &uids("meet", ["Away.Family"]));
    drop(connected);
    assert_eq!(checked_run.response["error"]["code"], -32800);
    assert!(places(&server, &run, "heeler/run").is_sorted());
    assert_eq!(received_notifications(&server, "telemetry/update")[0]["metrics"]["cancelled"], 1);
    assert_eq!(server.exit(), Some(0));
}

/// Discovers tests; returns the parent and node of each change.
fn discover(server: &mut TestServer<'_>, number: u64, tests: Value) -> Vec<(Option<String>, Value)> {
    let run_id = run_id(number);
    let answer = server.request_and_wait("testing/discoverTests", json!({"runId": run_id, "tests": tests}));
    assert_eq!(answer["result"], json!({}), "{answer}");
    changes(server, &run_id)
}

fn changes(server: &TestServer<'_>, run_id: &str) -> Vec<(Option<String>, Value)> {
    let updates = received_notifications(server, "testing/testUpdates/tests");
    let updates = updates.iter().filter(|params| params["runId"] == run_id);
    let changes = updates.filter_map(|params| params["changes"].as_array()).flatten();
    changes.map(|change| (change["parent"].as_str().map(str::to_owned), change["node"].clone())).collect()
}

/// Returns `uid < parent` for each change.
fn places_of(changes: &[(Option<String>, Value)]) -> Vec<String> {
    let place = |(parent, node): &(Option<String>, Value)| {
        format!("{} < {}", node["uid"].as_str().unwrap(), parent.as_deref().unwrap_or("-"))
    };
    changes.iter().map(place).collect()
}

#[test]
fn discovery_sends_groups_once_before_members() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let described =
        discover(&mut server, 5, json!([{"uid": "deaths::Second.Two"}, {"uid": "deaths::First."}]));
    let places = places_of(&described);
    assert_eq!(
        places[..3],
        ["deaths:: < -", "deaths::First. < deaths::", "deaths::First.One < deaths::First."]
    );
    assert_eq!(
        places[places.len() - 2..],
        ["deaths::Second. < deaths::", "deaths::Second.Two < deaths::Second."]
    );
    let groups: Vec<_> = described.iter().filter(|(_, node)| node["node-type"] == "group").collect();
    assert_eq!(groups.len(), 3, "{places:?}");
    let test = &described[2].1;
    let group = json!({"uid": "deaths::First.", "display-name": "First", "node-type": "group",
        "location.file": test["location.file"], "location.line-start": test["location.line-start"],
        "location.line-end": test["location.line-end"]});
    assert_eq!(groups[1].1, group);
    assert_eq!((&test["location.type"], &test["location.method"]), (&json!("First"), &json!("One")));
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn group_has_the_place_of_all_its_tests_whichever_are_selected() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let listed = discover(&mut server, 5, Value::Null);
    let group = |described: &[(Option<String>, Value)], uid: &str| {
        described.iter().find(|(_, node)| node["uid"] == uid).map(|(_, node)| node.clone()).unwrap()
    };
    let first_line = |group_uid: &str| {
        let tests = listed.iter().filter(|(_, node)| node["node-type"] == "action");
        let tests = tests.filter(|(_, node)| node["uid"].as_str().unwrap().starts_with(group_uid));
        tests.map(|(_, node)| node["location.line-start"].as_u64().unwrap()).min().unwrap()
    };
    for uid in ["deaths::", "deaths::Second."] {
        assert_eq!(group(&listed, uid)["location.line-start"], first_line(uid), "{uid}");
    }
    assert!(first_line("deaths::") < first_line("deaths::Second."));
    // A run of the last test has the same group nodes.
    let run = server.run(Some(&["deaths::Second.Two"]));
    server.finish(&run, &uids("deaths", ["Second.Two"])).assert_all("passed");
    let run = changes(&server, &run.run_id);
    for uid in ["deaths::", "deaths::Second."] {
        assert_eq!(group(&run, uid), group(&listed, uid));
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn selected_group_runs_all_its_tests() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let listed = discover(&mut server, 5, json!([{"uid": "deaths::First."}]));
    let below: Vec<String> = listed
        .iter()
        .filter(|(_, node)| node["node-type"] == "action")
        .map(|(_, node)| node["uid"].as_str().unwrap().to_owned())
        .collect();
    assert!(below.len() > 1, "{below:?}");
    let run = server.run(Some(&["deaths::First.", "deaths::First.One"]));
    server.finish(&run, &below).assert_all("passed");
    let places = places_of(&changes(&server, &run.run_id));
    assert_eq!(places[..2], ["deaths:: < -", "deaths::First. < deaths::"], "{places:?}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn rust_modules_are_nested_groups() {
    let world = TestWorld::with_libtest();
    let mut server = TestServer::initialized(&world, &["libtest"]);
    let described = discover(&mut server, 5, Value::Null);
    let mut known = BTreeSet::new();
    for (parent, node) in &described {
        let uid = node["uid"].as_str().unwrap();
        if let Some(parent) = parent {
            assert!(known.contains(parent), "{uid} came before {parent}");
            assert!(uid.starts_with(parent.as_str()), "{uid} is not in {parent}");
        }
        if node["node-type"] == "group" {
            assert!(known.insert(uid.to_owned()), "{uid} came twice");
        }
    }
    assert!(known.iter().any(|uid| uid.matches("::").count() == 3), "{known:?}");
}

/// Unknown members, such as a framework may add. Heeler must return them unchanged.
const KEPT: &str = r#""x.id":12345678901234567890123,"x.raw":{ "a" : [1.0, "]}"] },"vendor \"q\"":null"#;

/// Requests a run of nodes with unknown members, and with Heeler's own members that a client sends back.
fn run_with_members(server: &mut TestServer<'_>, uids: &[&str]) -> RequestedRun {
    let nodes: Vec<_> = uids
        .iter()
        .map(|uid| {
            let uid = json!(uid);
            format!(r#"{{"uid":{uid},"display-name":"mine","execution-state":"passed","heeler.worker":77,{KEPT}}}"#)
        })
        .collect();
    let run_id = run_id(40);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":40,"method":"testing/runTests","params":{{"runId":"{run_id}","tests":[{}]}}}}"#,
        nodes.join(",")
    );
    let mut frame = Vec::new();
    crate::support::framing::write_body(&mut frame, body.as_bytes()).unwrap();
    server.send_bytes(&frame);
    RequestedRun { run_id, request: 40 }
}

#[track_caller]
fn check_kept(node: &Value) {
    let kept: Value = serde_json::from_str(&format!("{{{KEPT}}}")).unwrap();
    for (name, value) in kept.as_object().unwrap() {
        assert_eq!(node.get(name), Some(value), "{name} of {node}");
    }
    assert_ne!(node["display-name"], "mine");
    assert_ne!(node["heeler.worker"], 77);
}

#[test]
fn unknown_test_members_return_on_every_node() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let asked =
        ["kinds::Math.Add", "kinds::Math.Fail", "kinds::Math.Skip", "kinds::Crash.Segv", "kinds::No.Such"];
    let run = run_with_members(&mut server, &asked);
    server.finish(&run, &asked.map(str::to_owned));
    let mut seen = BTreeSet::new();
    for (_, node) in changes(&server, &run.run_id) {
        if node["node-type"] == "action" {
            check_kept(&node);
            seen.insert(node["execution-state"].as_str().unwrap().to_owned());
        }
    }
    // If a test starts and ends within one notification, `in-progress` is not sent.
    seen.remove("in-progress");
    let expected = ["error", "failed", "passed", "skipped"];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn unknown_group_members_return_on_every_node() {
    let world = TestWorld::with_gtest("kinds");
    world.write(
        "heeler.toml",
        "[profile.default]\ndrain-timeout = \"300ms\"\nclient-stall-timeout = \"1s\"\n",
    );
    for behaviour in [ListenerBehaviour::Normal, ListenerBehaviour::NeverReads] {
        let mut server = TestServer::with_callback(&world, &["kinds"], move |_| behaviour);
        // The group contains a single test.
        let run = run_with_members(&mut server, &["kinds::Slow."]);
        server.wait_response(run.request);
        let updates = changes(&server, &run.run_id);
        let (mine, others): (Vec<_>, Vec<_>) =
            updates.iter().map(|(_, node)| node).partition(|node| node["uid"] == "kinds::Slow.");
        assert!(!mine.is_empty(), "{updates:?}");
        mine.into_iter().for_each(check_kept);
        others.into_iter().for_each(|node| assert!(node.get("x.id").is_none(), "{node}"));
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn resent_results_keep_members_and_groups() {
    let world = TestWorld::with_gtest("kinds");
    world.write(
        "heeler.toml",
        "[profile.default]\ndrain-timeout = \"300ms\"\nclient-stall-timeout = \"1s\"\n",
    );
    // Nothing is proven delivered to a client that never reads, so everything is sent again.
    let mut server = TestServer::with_callback(&world, &["kinds"], |_| ListenerBehaviour::NeverReads);
    let asked = ["kinds::Math.Add", "kinds::Math.Fail"];
    let run = run_with_members(&mut server, &asked);
    let checked_run = server.finish_as(&run, &asked.map(str::to_owned), ExpectedDelivery::AtLeastOnce);
    asked.iter().for_each(|uid| check_kept(checked_run.test(uid)));
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn test_with_oversized_members_is_refused_by_name() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let node = json!({"uid": "deaths::First.One", "x": "y".repeat(9000)});
    let answer = server.request_and_wait("testing/runTests", json!({"runId": run_id(30), "tests": [node]}));
    assert_eq!(answer["error"]["code"], -32602);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("deaths::First.One") && message.contains("8192"), "{message}");
    let run = server.run(Some(&["deaths::First.One"]));
    server.finish(&run, &uids("deaths", ["First.One"])).assert_all("passed");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn slow_test_is_logged_while_running() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\nslow-timeout = \"50ms\"\n");
    let rendezvous = world.open_rendezvous();
    let mut server = batching(&world, "meet");
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    let connected = rendezvous.next_test();
    server.recorder.wait("two words that the test is slow", |events| {
        let logs = events.iter().filter_map(|event| event.params("client/log")?["messages"].as_array());
        let is_slow = |message: &&Value| {
            message["nodeUid"] == "meet::N/Meet.Case/0"
                && message["message"].as_str().unwrap().starts_with("slow: ")
        };
        (logs.flatten().filter(is_slow).count() >= 2).then_some(())
    });
    connected.release();
    assert!(server.wait_response(run.request).get("error").is_none());
    assert_eq!(server.exit(), Some(0));
}
