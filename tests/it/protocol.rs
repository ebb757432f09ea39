//! What the messages of the protocol say, member by member, read off the wire.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    process::{Role, signal},
    server::{Run, Server},
    uids,
    world::World,
};

/// Starts a server for a client that reads several log messages at once.
fn batching<'w>(world: &'w World, program: &str) -> Server<'w> {
    let mut server = Server::start(world, &[program]);
    server.initialize(json!({"testing": {"debuggerProvider": false, "batchLoggingSupport": true}}));
    server
}

/// Returns the parameters of all notifications of a method so far.
fn told(server: &Server<'_>, method: &str) -> Vec<Value> {
    server.recorder.events().iter().filter_map(|event| event.params(method).cloned()).collect()
}

fn members(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Runs a test that leaves a process behind, which the log tells.
fn leak(server: &mut Server<'_>) -> Run {
    let run = server.run(Some(&["kinds::Leak.Child"]));
    assert!(server.answer(run.request).get("error").is_none());
    run
}

#[test]
fn a_log_line_of_a_test_carries_its_uid_where_the_client_reads_batches() {
    let world = World::with_gtest("kinds");
    let mut server = batching(&world, "kinds");
    let run = leak(&mut server);
    let logs = told(&server, "client/log");
    let batch = logs.iter().find(|params| params.to_string().contains("left a process behind")).unwrap();
    assert_eq!(members(batch), BTreeSet::from(["runId", "messages"]));
    assert_eq!(batch["runId"], run.run_id.as_str());
    for message in batch["messages"].as_array().unwrap() {
        assert_eq!(members(message), BTreeSet::from(["nodeUid", "level", "message"]));
        assert_eq!(
            (&message["nodeUid"], &message["level"]),
            (&json!("kinds::Leak.Child"), &json!("Warning"))
        );
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_log_line_of_a_test_names_it_in_its_text_where_the_client_reads_single_messages() {
    let world = World::with_gtest("kinds");
    let mut server = Server::ready(&world, &["kinds"]);
    leak(&mut server);
    let logs = told(&server, "client/log");
    let single = logs.iter().find(|params| params.to_string().contains("left a process behind")).unwrap();
    assert_eq!(members(single), BTreeSet::from(["level", "message"]));
    assert!(single["message"].as_str().unwrap().starts_with("kinds::Leak.Child: "), "{single}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn the_death_of_a_worker_is_logged_with_the_test_that_it_ran() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut server = batching(&world, "meet");
    let run = server.run(Some(&["meet::Away.Family"]));
    let guest = meet.next();
    signal(server.processes(Role::Worker)[0], "KILL");
    drop(guest);
    meet.next().say(b'.');
    server.answer(run.request);
    let logs = told(&server, "client/log");
    let messages = logs.iter().flat_map(|params| params["messages"].as_array().unwrap());
    let death = messages.into_iter().find(|message| message.to_string().contains("died")).unwrap();
    assert_eq!(death["nodeUid"], "meet::Away.Family");
    assert_eq!(server.exit(), Some(0));
}

/// Returns the places on the main connection of a run's completion, its telemetry and its answer.
fn places(server: &Server<'_>, run: &Run, event_name: &str) -> [usize; 3] {
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
fn telemetry_of_a_run_stands_between_its_completion_and_its_answer_and_balances() {
    let world = World::with_gtest("kinds");
    let mut server = Server::ready(&world, &["kinds"]);
    let run =
        server.run(Some(&["kinds::Math.Add", "kinds::Math.Fail", "kinds::Math.Skip", "kinds::Crash.Segv"]));
    server.answer(run.request);
    assert!(places(&server, &run, "heeler/run").is_sorted());
    let telemetry = told(&server, "telemetry/update").pop().unwrap();
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
fn telemetry_of_a_discovery_stands_between_its_completion_and_its_answer() {
    let world = World::with_gtest("kinds");
    let mut server = Server::ready(&world, &["kinds"]);
    let run_id = crate::support::server::run_id(5);
    let request = server.request("testing/discoverTests", json!({"runId": run_id}));
    server.answer(request);
    assert!(places(&server, &Run { run_id, request }, "heeler/discovery").is_sorted());
    let metrics = &told(&server, "telemetry/update")[0]["metrics"];
    assert_eq!((&metrics["programs"], &metrics["brokenPrograms"]), (&json!(1), &json!(0)));
    assert!(metrics["discovered"].as_u64().unwrap() > 3, "{metrics}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn telemetry_comes_also_when_a_run_is_cancelled() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut server = Server::ready(&world, &["meet"]);
    let run = server.run(Some(&["meet::Away.Family"]));
    let guest = meet.next();
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let books = server.finish(&run, &uids("meet", ["Away.Family"]));
    drop(guest);
    assert_eq!(books.answer["error"]["code"], -32800);
    assert!(places(&server, &run, "heeler/run").is_sorted());
    assert_eq!(told(&server, "telemetry/update")[0]["metrics"]["cancelled"], 1);
    assert_eq!(server.exit(), Some(0));
}
