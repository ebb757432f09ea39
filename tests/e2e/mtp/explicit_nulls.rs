//! Explicit nulls: .NET serializers write `null` for unset members. An optional member that is null counts as
//! absent.

use serde_json::{Value, json};

use crate::support::{
    framing::request,
    rendezvous::TestRendezvous,
    server::{RequestedRun, TestServer, run_id},
    uids,
    world::TestWorld,
};

const ONE: &str = "deaths::First.One";

/// Returns the JSON pointers of all members below a value.
fn member_pointers(value: &Value) -> Vec<String> {
    let Some(members) = value.as_object() else { return Vec::new() };
    let below = |(name, value): (&String, &Value)| {
        let inner = member_pointers(value).into_iter().map(move |pointer| format!("/{name}{pointer}"));
        [format!("/{name}")].into_iter().chain(inner).collect::<Vec<_>>()
    };
    members.iter().flat_map(below).collect()
}

fn with_null(value: &Value, pointer: &str) -> Value {
    let mut value = value.clone();
    *value.pointer_mut(pointer).expect("the member exists") = Value::Null;
    value
}

#[test]
fn null_members_of_initialize_are_absent() {
    let full = json!({
        "processId": std::process::id(),
        "clientInfo": {"name": "it", "version": "1"},
        "capabilities": {"testing": {
            "debuggerProvider": false,
            "batchLoggingSupport": false,
            "attachmentsSupport": true,
            // A null port means that there is no callback provider.
            "callbackProvider": {"port": null, "token": null},
        }},
        "protocolVersions": ["1.0.0"],
    });
    let pointers = member_pointers(&full);
    assert_eq!(pointers.len(), 13, "every member that initialize has: {pointers:?}");
    for pointer in &pointers {
        let world = TestWorld::with_gtest("deaths");
        let mut server = TestServer::start(&world, &["deaths"]);
        let answer = server.request_and_wait("initialize", with_null(&full, pointer));
        assert!(answer["result"]["capabilities"].is_object(), "{pointer}: {answer}");
        let run = server.run(Some(&[ONE]));
        server.finish(&run, &[ONE.to_owned()]).assert_all("passed");
        assert_eq!(server.exit(), Some(0), "{pointer}");
    }
}

#[test]
fn null_params_of_initialize_are_absent() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::start(&world, &["deaths"]);
    server.skip_schema_checks();
    let answer = server.request_and_wait("initialize", Value::Null);
    assert!(answer["result"]["capabilities"].is_object(), "{answer}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn null_members_of_requests_are_absent() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let node = json!({
        "uid": ONE,
        "display-name": null,
        "node-type": null,
        "execution-state": null,
        "traits": null,
        "location.file": null,
        "location.line-start": null,
        "time.duration-ms": null,
        "error.message": null,
        "parent": null,
    });
    let mut number = 0;
    for method in ["testing/runTests", "testing/discoverTests"] {
        for (tests, cases) in [("tests", "testCases"), ("testCases", "tests")] {
            number += 1;
            let mut params =
                json!({"runId": run_id(number), "filter": null, "heeler.debug": null, "priority": null});
            params[tests] = json!([node]);
            params[cases] = Value::Null;
            let request = server.request(method, params);
            let answer = server.wait_response(request);
            assert!(answer.get("error").is_none(), "{method} {tests}: {answer}");
            if method == "testing/runTests" {
                let run = RequestedRun { run_id: run_id(number), request };
                server.finish(&run, &[ONE.to_owned()]).assert_all("passed");
            }
        }
    }
    assert_eq!(server.exit(), Some(0));
}

/// A cancel without an id does nothing, and a later cancel still works.
#[test]
fn null_members_of_cancels_name_nothing() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous: TestRendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    server.skip_schema_checks();
    let selected = uids("meet", ["N/Meet.Case/0"]);
    let run = server.run(Some(&[&selected[0]]));
    let connected = rendezvous.next_test();
    for (method, params) in [
        ("$/cancelRequest", json!({"id": null})),
        ("$/cancelRequest", Value::Null),
        ("testing/cancelTestRun", json!({"runId": null})),
        ("testing/cancelTestRun", Value::Null),
    ] {
        server.notify(method, params);
    }
    // The response to this request shows that the cancels have been processed.
    server.send(&request("behind", "no/such/method", Value::Null));
    assert_eq!(server.wait_response("behind")["error"]["code"], -32601);
    connected.release();
    server.finish(&run, &selected).assert_all("passed");
    assert_eq!(server.exit(), Some(0));
}
