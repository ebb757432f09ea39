//! Replays recorded exchanges between other clients and servers: the clients' messages to our server, and the
//! servers' messages to our client library.

use std::{io::BufRead, path::PathBuf, time::Duration};

use heeler_client::{Client, ClientEvent, ClientOptions, TestRequest};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::support::{
    framing::write_message,
    server::{TestServer, run_id},
    world::TestWorld,
};

struct TranscriptMessage {
    connection: String,
    is_of_client: bool,
    message: Value,
}

fn transcript(name: &str) -> Vec<TranscriptMessage> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/mtp").join(name);
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let line = |line: String| {
        let line: Value = serde_json::from_str(&line).unwrap();
        TranscriptMessage {
            connection: line["conn"].as_str().unwrap().to_owned(),
            is_of_client: line["dir"] == "c2s",
            message: line["msg"].clone(),
        }
    };
    file.lines().map(|text| line(text.unwrap())).collect()
}

/// Returns the parts of a message that its receiver depends on, without values.
fn shape(message: &Value) -> String {
    let is = |name: &str| message.get(name).is_some();
    match (message["method"].as_str(), &message["params"]) {
        (Some(method), params) if params["changes"].is_null() && method.ends_with("/tests") => {
            format!("{method} completed")
        }
        (Some(method), _) => method.to_owned(),
        (None, _) if is("error") => format!("error {} of {}", message["error"]["code"], message["id"]),
        (None, _) => format!("result of {}", message["id"]),
    }
}

/// Replays the client of one connection, waiting for the response to each request. Returns the shapes of our
/// messages and of the recorded ones, without log messages and with consecutive updates merged.
fn replay_client(name: &str, connection: &str) -> (Vec<String>, Vec<String>) {
    let lines: Vec<_> = transcript(name).into_iter().filter(|line| line.connection == connection).collect();
    let world = TestWorld::with_gtest("deaths");
    // The processes of the recorded clients no longer exist.
    world.write("heeler.toml", "[profile.default]\nwatch-client = false\n");
    let mut server = TestServer::start(&world, &["deaths"]);
    if name == "errors.jsonl" {
        server.skip_schema_checks();
    }
    let mut exits = false;
    for line in lines.iter().filter(|line| line.is_of_client) {
        exits |= line.message["method"] == "exit";
        server.send(&line.message);
        let is_cancelled_later = name.starts_with("cancel") && line.message["method"] == "testing/runTests";
        if let Some(id) = line.message.get("id").filter(|_| !is_cancelled_later) {
            server.wait_response(id.clone());
        }
    }
    if exits {
        server.wait_gone();
    }
    let ours: Vec<_> =
        server.recorder.events().iter().filter_map(|event| event.message().map(shape)).collect();
    let theirs = lines.iter().filter(|line| !line.is_of_client).map(|line| shape(&line.message)).collect();
    (brief(ours), brief(theirs))
}

fn brief(mut shapes: Vec<String>) -> Vec<String> {
    shapes.retain(|shape| shape != "client/log");
    shapes.dedup();
    shapes
}

#[test]
fn recorded_discovery_and_run_get_same_messages() {
    let (ours, theirs) = replay_client("discover-run.jsonl", "A");
    assert_eq!(ours, theirs);
}

#[test]
fn recorded_mistakes_get_same_error_codes() {
    let (ours, theirs) = replay_client("errors.jsonl", "A");
    // We reject a bad filter as the client's error; the recorded server fails the run.
    let theirs: Vec<_> =
        theirs.into_iter().map(|shape| shape.replace("error -32603 of 7", "error -32602 of 7")).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn recorded_cancel_gets_completion_then_error_code() {
    let (ours, _) = replay_client("cancel.jsonl", "A");
    let completed = ours.iter().position(|shape| shape.ends_with("completed")).unwrap();
    assert!(ours[completed + 1..].contains(&"telemetry/update".to_owned()), "{ours:?}");
    assert!(ours.last().unwrap().ends_with("of 3"), "{ours:?}");
}

#[test]
fn recorded_client_of_two_servers_is_served() {
    for connection in ["A", "B"] {
        let (ours, _) = replay_client("hangdump-passive-node.jsonl", connection);
        assert_eq!(ours[0], "result of 2");
    }
}

/// Replays a server: after each message of our client, sends the messages that followed in the transcript,
/// with our ids.
async fn replay_server_side(mut stream: DuplexStream, lines: Vec<TranscriptMessage>) {
    let mut ids = std::collections::HashMap::new();
    for line in lines {
        if line.is_of_client {
            let received = read(&mut stream).await;
            assert_eq!(received["method"], line.message["method"]);
            if let Some(id) = line.message.get("id") {
                ids.insert(id.to_string(), received["id"].clone());
            }
        } else {
            let mut message = line.message;
            if message.get("method").is_none() {
                message["id"] = ids[&message["id"].to_string()].clone();
            }
            let mut frame = Vec::new();
            write_message(&mut frame, &message).unwrap();
            stream.write_all(&frame).await.unwrap();
        }
    }
}

async fn read(stream: &mut DuplexStream) -> Value {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// Messages that our client library received from a replayed server.
struct ReplayedSession {
    /// Result of each request, in order.
    request_results: Vec<String>,
    events: Vec<ClientEvent>,
}

fn replay_server(name: &str, connection: &str) -> ReplayedSession {
    let lines: Vec<_> = transcript(name).into_iter().filter(|line| line.connection == connection).collect();
    let asked: Vec<_> =
        lines.iter().filter(|line| line.is_of_client).map(|line| line.message.clone()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (near, far) = tokio::io::duplex(1 << 20);
        let options = ClientOptions {
            callback: false,
            completion_limit: Duration::from_millis(300),
            ..ClientOptions::default()
        };
        // The server is replayed at one end of a pipe.
        let play = replay_server_side(far, lines);
        // Our library sends the recorded client's requests at the other end.
        let ask = async {
            let (client, mut events) = Client::connect(near, options).await.unwrap();
            let mut answers = Vec::new();
            for message in &asked {
                let request = TestRequest {
                    run_id: message["params"]["runId"].as_str().unwrap_or_default().to_owned(),
                    ..TestRequest::default()
                };
                let is_cancelled = asked.iter().any(|one| one["method"] == "$/cancelRequest");
                match message["method"].as_str().unwrap() {
                    "testing/discoverTests" => {
                        answers.push(describe_response(client.discover(request).await))
                    }
                    "testing/runTests" if is_cancelled => {
                        let run_id = request.run_id.clone();
                        let run = client.run(request);
                        let cancel = async {
                            tokio::task::yield_now().await;
                            client.cancel(&run_id).await.unwrap();
                        };
                        answers.push(describe_response(tokio::join!(run, cancel).0));
                    }
                    "testing/runTests" => answers.push(describe_response(client.run(request).await)),
                    _ => {}
                }
            }
            let mut received = Vec::new();
            drop(client.exit(tokio::time::Instant::now() + Duration::from_secs(10)).await);
            while let Some(event) = events.next().await {
                received.push(event);
            }
            ReplayedSession { request_results: answers, events: received }
        };
        tokio::join!(play, ask).1
    })
}

fn describe_response<T: std::fmt::Debug>(answer: Result<T, heeler_client::ClientError>) -> String {
    match answer {
        Ok(_) => "done".to_owned(),
        Err(error) if error.is_cancelled() => "cancelled".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn final_states(events: &[ClientEvent]) -> Vec<String> {
    let changes = events.iter().filter_map(|event| match event {
        ClientEvent::Changes { changes, .. } => Some(changes),
        _ => None,
    });
    let ended = changes.flatten().filter(|change| change.node.state.is_some_and(|state| state.is_terminal()));
    ended.map(|change| format!("{} {}", change.node.uid, change.node.state.unwrap())).collect()
}

fn check_readable(events: &[ClientEvent]) {
    let unreadable: Vec<_> =
        events.iter().filter(|event| matches!(event, ClientEvent::InvalidMessage { .. })).collect();
    assert!(unreadable.is_empty(), "{unreadable:?}");
}

#[test]
fn recorded_servers_discovery_and_run_are_parsed() {
    let ReplayedSession { request_results: answers, events } = replay_server("discover-run.jsonl", "A");
    assert_eq!(answers, ["done", "done"]);
    check_readable(&events);
    assert!(
        final_states(&events).iter().any(|end| end == "Demo.Tests.CalcTests.Add passed"),
        "{:?}",
        final_states(&events)
    );
    let completed = events.iter().filter(|event| matches!(event, ClientEvent::Completed { .. })).count();
    let telemetry = events.iter().filter(|event| matches!(event, ClientEvent::Telemetry { .. })).count();
    let logs = events.iter().filter(|event| matches!(event, ClientEvent::Log { .. })).count();
    assert_eq!((completed, telemetry), (2, 2));
    assert!(logs >= 3);
}

#[test]
fn recorded_servers_cancelled_run_is_parsed() {
    let ReplayedSession { request_results: answers, events } = replay_server("cancel.jsonl", "A");
    assert_eq!(answers, ["cancelled"]);
    check_readable(&events);
}

#[test]
fn attachments_only_server_is_parsed() {
    let ReplayedSession { request_results: answers, events } =
        replay_server("hangdump-passive-node.jsonl", "A");
    assert!(answers.is_empty());
    check_readable(&events);
    let files: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            ClientEvent::Attachments { run_id, attachments, .. } => {
                Some((run_id.as_str(), &attachments[0].uri))
            }
            _ => None,
        })
        .collect();
    assert_eq!(files.len(), 2);
    assert!(files.iter().all(|(run, uri)| run.is_empty() && uri.contains("_hang.")), "{files:?}");
}

#[test]
fn run_of_unknown_test_does_not_run_all() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let run_id = run_id(9);
    let tests = json!([{"uid": "Demo.Tests.CalcTests.Add", "display-name": "Add"}]);
    let id = server.request("testing/runTests", json!({"runId": run_id, "tests": tests}));
    assert!(server.wait_response(id)["result"].is_object());
    let events = server.recorder.events();
    let updates = events.iter().filter_map(|event| event.params("testing/testUpdates/tests"));
    let nodes: Vec<_> =
        updates.filter_map(|params| params["changes"].as_array()).flatten().map(|one| &one["node"]).collect();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert_eq!(
        (&nodes[0]["execution-state"], &nodes[0]["outcome-kind"]),
        (&json!("error"), &json!("not-run"))
    );
}
