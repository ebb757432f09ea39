//! A client that can attach debuggers: the requests that it sends and receives.

use serde_json::{Value, json};

use super::{
    callback_listener::{ListenerBehaviour, RecordingListener},
    checked_run::{CheckedRun, ExpectedDelivery},
    server::{RequestedRun, TestServer, run_id},
    world::TestWorld,
};

pub(crate) const ATTACH: &str = "client/attachDebugger";
pub(crate) const CANCEL: &str = "$/cancelRequest";

/// Returns a world whose program records its starts.
pub(crate) fn world() -> TestWorld {
    let world = TestWorld::with_gtest("kinds");
    world.note_starts();
    world
}

/// Starts a server for a client with debuggers.
pub(crate) fn debug_server<'w>(world: &'w TestWorld, is_listening: bool) -> TestServer<'w> {
    let mut server = TestServer::start(world, &["kinds"]);
    let mut testing = json!({"debuggerProvider": true});
    if is_listening {
        let listener = RecordingListener::new(server.recorder.clone(), |_| ListenerBehaviour::Normal);
        testing["callbackProvider"] = json!({"port": listener.port});
        server.listener = Some(listener);
    }
    server.initialize(json!({"testing": testing}));
    server
}

/// Starts a debug run.
pub(crate) fn begin_debug_run(server: &mut TestServer<'_>, number: u64, tests: &[&str]) -> RequestedRun {
    let run_id = run_id(number);
    let nodes: Vec<_> = tests.iter().map(|uid| json!({"uid": uid})).collect();
    let params = json!({"runId": run_id, "tests": nodes, "heeler.debug": true});
    let request = server.request("testing/runTests", params);
    RequestedRun { run_id, request }
}

/// An attach request, as the client received it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReceivedAttachRequest {
    pub(crate) id: Value,
    pub(crate) pid: u32,
}

/// Waits for the n-th attach request, counted from 0.
pub(crate) fn wait_attach_request(server: &TestServer<'_>, number: usize) -> ReceivedAttachRequest {
    let message = wait_request(server, ATTACH, number);
    assert_eq!(message["params"].as_object().unwrap().len(), 1, "{message}");
    let pid = message["params"]["processId"].as_u64().unwrap();
    ReceivedAttachRequest { id: message["id"].clone(), pid: u32::try_from(pid).unwrap() }
}

/// Waits for the n-th request of this method, counted from 0.
pub(crate) fn wait_request(server: &TestServer<'_>, method: &str, number: usize) -> Value {
    server.recorder.wait(&format!("{method} number {number}"), |events| {
        let mut requests =
            events.iter().filter_map(|event| event.message()).filter(|message| message["method"] == method);
        requests.nth(number).cloned()
    })
}

/// Responds to an attach request. `result` says whether a debugger has attached.
pub(crate) fn respond(server: &mut TestServer<'_>, asked: &ReceivedAttachRequest, result: Value) {
    server.send(&json!({"jsonrpc": "2.0", "id": asked.id, "result": result}));
}

/// Waits for the end of a run; checks that each result arrived once.
pub(crate) fn finish(server: &TestServer<'_>, run: &RequestedRun, tests: &[&str]) -> CheckedRun {
    let selected: Vec<_> = tests.iter().map(|uid| (*uid).to_owned()).collect();
    server.finish_as(run, &selected, ExpectedDelivery::Once)
}

/// Returns the log messages about a test.
pub(crate) fn log_of(server: &TestServer<'_>, uid: &str) -> Vec<String> {
    let events = server.recorder.events();
    let lines = events.iter().filter_map(|event| event.params("client/log"));
    let lines = lines.filter_map(|line| line["message"].as_str());
    lines.filter(|line| line.contains(uid)).map(str::to_owned).collect()
}

/// Returns the ids of the requests that the server has cancelled.
pub(crate) fn cancelled_requests(server: &TestServer<'_>) -> Vec<Value> {
    let events = server.recorder.events();
    events.iter().filter_map(|event| event.params(CANCEL)).map(|params| params["id"].clone()).collect()
}
