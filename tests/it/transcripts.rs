//! Recorded exchanges of other servers and clients, replayed: their clients' messages against our server,
//! their servers' against our client library.

use std::{io::BufRead, path::PathBuf, time::Duration};

use heeler::client::{Client, ClientOptions, Event, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::support::{
    server::{Server, run_id},
    wire::write,
    world::World,
};

/// One message of an exchange.
struct Line {
    connection: String,
    is_of_client: bool,
    message: Value,
}

fn transcript(name: &str) -> Vec<Line> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/mtp").join(name);
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let line = |line: String| {
        let line: Value = serde_json::from_str(&line).unwrap();
        Line {
            connection: line["conn"].as_str().unwrap().to_owned(),
            is_of_client: line["dir"] == "c2s",
            message: line["msg"].clone(),
        }
    };
    file.lines().map(|text| line(text.unwrap())).collect()
}

/// Returns the members of a message that its reader depends on, without their values.
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

/// Replays the client of one connection: each request waits for its response, as in the transcript. Returns
/// the shapes of the received messages, without the log and with consecutive updates as one.
fn replay_client(name: &str, connection: &str) -> (Vec<String>, Vec<String>) {
    let lines: Vec<_> = transcript(name).into_iter().filter(|line| line.connection == connection).collect();
    let world = World::with_gtest("deaths");
    let mut server = Server::start(&world, &["deaths"]);
    if name == "errors.jsonl" {
        server.allow_mistakes();
    }
    let mut exits = false;
    for line in lines.iter().filter(|line| line.is_of_client) {
        exits |= line.message["method"] == "exit";
        server.send(&line.message);
        let is_cancelled_later = name.starts_with("cancel") && line.message["method"] == "testing/runTests";
        if let Some(id) = line.message.get("id").filter(|_| !is_cancelled_later) {
            server.answer(id.clone());
        }
    }
    if exits {
        server.wait_gone();
    }
    let told: Vec<_> =
        server.recorder.events().iter().filter_map(|event| event.message().map(shape)).collect();
    let theirs = lines.iter().filter(|line| !line.is_of_client).map(|line| shape(&line.message)).collect();
    (brief(told), brief(theirs))
}

fn brief(mut shapes: Vec<String>) -> Vec<String> {
    shapes.retain(|shape| shape != "client/log");
    shapes.dedup();
    shapes
}

#[test]
fn a_client_that_discovers_runs_and_leaves_gets_what_it_gets_elsewhere() {
    let (ours, theirs) = replay_client("discover-run.jsonl", "A");
    assert_eq!(ours, theirs);
}

#[test]
fn a_client_that_makes_mistakes_gets_the_same_codes() {
    let (ours, theirs) = replay_client("errors.jsonl", "A");
    // A bad filter is the client's error and is reported before the run begins; elsewhere it is a failure
    // inside the run.
    let theirs: Vec<_> = theirs
        .into_iter()
        .filter(|shape| !shape.ends_with("completed"))
        .map(|shape| shape.replace("error -32603 of 7", "error -32602 of 7"))
        .collect();
    assert_eq!(ours, theirs);
}

#[test]
fn a_client_that_cancels_gets_the_completion_and_then_the_code() {
    let (ours, _) = replay_client("cancel.jsonl", "A");
    let completed = ours.iter().position(|shape| shape.ends_with("completed")).unwrap();
    assert!(ours[completed + 1..].contains(&"telemetry/update".to_owned()), "{ours:?}");
    assert!(ours.last().unwrap().ends_with("of 3"), "{ours:?}");
}

#[test]
fn a_client_that_calls_two_servers_in_turn_is_served_by_either() {
    for connection in ["A", "B"] {
        let (ours, _) = replay_client("hangdump-passive-node.jsonl", connection);
        assert_eq!(ours[0], "result of 2");
    }
}

/// Replays a server: the messages that followed each message of its client follow ours, with our ids.
async fn play_server(mut stream: DuplexStream, lines: Vec<Line>) {
    let mut ids = std::collections::HashMap::new();
    for line in lines {
        if line.is_of_client {
            let heard = read(&mut stream).await;
            assert_eq!(heard["method"], line.message["method"]);
            if let Some(id) = line.message.get("id") {
                ids.insert(id.to_string(), heard["id"].clone());
            }
        } else {
            let mut message = line.message;
            if message.get("method").is_none() {
                message["id"] = ids[&message["id"].to_string()].clone();
            }
            let mut frame = Vec::new();
            write(&mut frame, &message).unwrap();
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

/// Results of our client library for a replayed server.
struct Understood {
    /// The result of each request, in order.
    answers: Vec<String>,
    events: Vec<Event>,
}

fn replay_server(name: &str, connection: &str) -> Understood {
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
        let play = play_server(far, lines);
        let ask = async {
            let (client, mut events) = Client::connect(near, options).await.unwrap();
            let mut answers = Vec::new();
            for message in &asked {
                let request = Request {
                    run_id: message["params"]["runId"].as_str().unwrap_or_default().to_owned(),
                    ..Request::default()
                };
                let is_cancelled = asked.iter().any(|one| one["method"] == "$/cancelRequest");
                match message["method"].as_str().unwrap() {
                    "testing/discoverTests" => answers.push(told(client.discover(request).await)),
                    "testing/runTests" if is_cancelled => {
                        let run_id = request.run_id.clone();
                        let run = client.run(request);
                        let cancel = async {
                            tokio::task::yield_now().await;
                            client.cancel(&run_id).await.unwrap();
                        };
                        answers.push(told(tokio::join!(run, cancel).0));
                    }
                    "testing/runTests" => answers.push(told(client.run(request).await)),
                    _ => {}
                }
            }
            let mut heard = Vec::new();
            drop(client.exit(tokio::time::Instant::now() + Duration::from_secs(10)).await);
            while let Some(event) = events.next().await {
                heard.push(event);
            }
            Understood { answers, events: heard }
        };
        tokio::join!(play, ask).1
    })
}

fn told<T: std::fmt::Debug>(answer: Result<T, heeler::client::ClientError>) -> String {
    match answer {
        Ok(_) => "done".to_owned(),
        Err(error) if error.is_cancelled() => "cancelled".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn ends(events: &[Event]) -> Vec<String> {
    let changes = events.iter().filter_map(|event| match event {
        Event::Changes { changes, .. } => Some(changes),
        _ => None,
    });
    let ended = changes.flatten().filter(|change| change.node.state.is_some_and(|state| state.is_terminal()));
    ended.map(|change| format!("{} {}", change.node.uid, change.node.state.unwrap())).collect()
}

fn check_readable(events: &[Event]) {
    let unreadable: Vec<_> =
        events.iter().filter(|event| matches!(event, Event::Unreadable { .. })).collect();
    assert!(unreadable.is_empty(), "{unreadable:?}");
}

#[test]
fn another_server_s_discovery_and_run_are_understood() {
    let Understood { answers, events } = replay_server("discover-run.jsonl", "A");
    assert_eq!(answers, ["done", "done"]);
    check_readable(&events);
    assert!(ends(&events).iter().any(|end| end == "Demo.Tests.CalcTests.Add passed"), "{:?}", ends(&events));
    let completed = events.iter().filter(|event| matches!(event, Event::Completed { .. })).count();
    let telemetry = events.iter().filter(|event| matches!(event, Event::Telemetry { .. })).count();
    let logs = events.iter().filter(|event| matches!(event, Event::Log { .. })).count();
    assert_eq!((completed, telemetry), (2, 2));
    assert!(logs >= 3);
}

#[test]
fn another_server_s_end_of_a_cancelled_run_is_understood() {
    let Understood { answers, events } = replay_server("cancel.jsonl", "A");
    assert_eq!(answers, ["cancelled"]);
    check_readable(&events);
}

#[test]
fn a_server_that_only_sends_attachments_is_understood() {
    let Understood { answers, events } = replay_server("hangdump-passive-node.jsonl", "A");
    assert!(answers.is_empty());
    check_readable(&events);
    let files: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Attachments { run_id, attachments, .. } => Some((run_id.as_str(), &attachments[0].uri)),
            _ => None,
        })
        .collect();
    assert_eq!(files.len(), 2);
    assert!(files.iter().all(|(run, uri)| run.is_empty() && uri.contains("_hang.")), "{files:?}");
}

#[test]
fn a_run_by_a_test_of_no_program_is_told_and_not_silently_all() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    let run_id = run_id(9);
    let tests = json!([{"uid": "Demo.Tests.CalcTests.Add", "display-name": "Add"}]);
    let id = server.request("testing/runTests", json!({"runId": run_id, "tests": tests}));
    assert!(server.answer(id)["result"].is_object());
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
