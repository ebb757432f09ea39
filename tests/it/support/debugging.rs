//! A client with debuggers: its requests, and the requests that it gets.

use serde_json::{Value, json};

use super::{
    books::{Books, Delivery},
    listener::{Behaviour, Listener},
    server::{Run, Server, run_id},
    world::World,
};

pub(crate) const ATTACH: &str = "client/attachDebugger";
pub(crate) const CANCEL: &str = "$/cancelRequest";

/// Returns a world whose program notes its starts.
pub(crate) fn world() -> World {
    let world = World::with_gtest("kinds");
    world.note_starts();
    world
}

/// Starts a server for a client with debuggers.
pub(crate) fn ready<'w>(world: &'w World, is_listening: bool) -> Server<'w> {
    let mut server = Server::start(world, &["kinds"]);
    let mut testing = json!({"debuggerProvider": true});
    if is_listening {
        let listener = Listener::new(server.recorder.clone(), |_| Behaviour::Normal);
        testing["callbackProvider"] = json!({"port": listener.port});
        server.listener = Some(listener);
    }
    server.initialize(json!({"testing": testing}));
    server
}

/// Begins a run under debuggers.
pub(crate) fn debug(server: &mut Server<'_>, number: u64, tests: &[&str]) -> Run {
    let run_id = run_id(number);
    let nodes: Vec<_> = tests.iter().map(|uid| json!({"uid": uid})).collect();
    let params = json!({"runId": run_id, "tests": nodes, "heeler.debug": true});
    let request = server.request("testing/runTests", params);
    Run { run_id, request }
}

/// A received request to attach a debugger.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) id: Value,
    pub(crate) pid: u32,
}

/// Waits for the n-th request to attach, from 0.
pub(crate) fn asked(server: &Server<'_>, number: usize) -> Asked {
    let message = requested(server, ATTACH, number);
    assert_eq!(message["params"].as_object().unwrap().len(), 1, "{message}");
    let pid = message["params"]["processId"].as_u64().unwrap();
    Asked { id: message["id"].clone(), pid: u32::try_from(pid).unwrap() }
}

/// Waits for the n-th request of this method, from 0.
pub(crate) fn requested(server: &Server<'_>, method: &str, number: usize) -> Value {
    server.recorder.wait(&format!("{method} number {number}"), |events| {
        let mut requests =
            events.iter().filter_map(|event| event.message()).filter(|message| message["method"] == method);
        requests.nth(number).cloned()
    })
}

/// Responds whether there is a debugger.
pub(crate) fn answer(server: &mut Server<'_>, asked: &Asked, result: Value) {
    server.send(&json!({"jsonrpc": "2.0", "id": asked.id, "result": result}));
}

/// Waits for the end of a run whose results come once.
pub(crate) fn finish(server: &Server<'_>, run: &Run, tests: &[&str]) -> Books {
    let selected: Vec<_> = tests.iter().map(|uid| (*uid).to_owned()).collect();
    server.finish_as(run, &selected, Delivery::Once)
}

/// Returns the log messages about a test.
pub(crate) fn log_of(server: &Server<'_>, uid: &str) -> Vec<String> {
    let events = server.recorder.events();
    let lines = events.iter().filter_map(|event| event.params("client/log"));
    let lines = lines.filter_map(|line| line["message"].as_str());
    lines.filter(|line| line.contains(uid)).map(str::to_owned).collect()
}

/// Returns the ids of the server's requests that it has cancelled.
pub(crate) fn withdrawn(server: &Server<'_>) -> Vec<Value> {
    let events = server.recorder.events();
    events.iter().filter_map(|event| event.params(CANCEL)).map(|params| params["id"].clone()).collect()
}
