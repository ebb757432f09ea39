//! Plain HTTP: one session for all clients, progress as events, and refused requests.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    client::{check_schema, initialize_params},
    service::{DEADLINE, MUTANTS, TestServer},
};

/// Sends an HTTP request whose connection closes afterwards.
async fn begin(port: u16, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let length = body.len();
    let host = if head.contains("\r\nHost:") { "" } else { "Host: localhost\r\n" };
    let request = format!("{head}\r\n{host}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer))
        .await
        .expect("the server closes the connection")
        .unwrap();
    String::from_utf8(answer).unwrap()
}

/// Reads until the text has arrived; returns everything read.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = String::new();
    let mut buffer = [0; 4096];
    while !read.contains(text) {
        let count = timeout(DEADLINE, stream.read(&mut buffer)).await.expect(text).unwrap();
        assert_ne!(count, 0, "{read}");
        read.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    read
}

const POST: &str = "POST / HTTP/1.1\r\nContent-Type: application/json";
const POST_FOR_EVENTS: &str =
    "POST / HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream";

/// Posts a message; returns the status and the body.
async fn post(port: u16, message: &Value) -> (u16, String) {
    let answer = rest(&mut begin(port, POST, &message.to_string()).await).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn request(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

async fn initialize(port: u16) {
    let (status, body) = post(port, &request(0, "initialize", initialize_params())).await;
    assert_eq!(status, 200, "{body}");
    check_schema(&serde_json::from_str(&body).unwrap());
}

/// Returns the data of a response's events; their chunks are joined.
fn events(answer: &str) -> Vec<Value> {
    let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    let messages: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    messages.iter().for_each(check_schema);
    messages
}

#[tokio::test]
async fn message_is_answered_with_json_and_a_notification_with_nothing() {
    let server = TestServer::start().await;
    let (status, body) = post(server.port, &request(1, "mutate", json!({}))).await;
    assert_eq!((status, body.contains("-32001")), (200, true), "{body}");
    initialize(server.port).await;
    server.service.steps.add_permits(2 * MUTANTS);
    // Without events the token has no effect.
    for params in [json!({}), json!({"partialResultToken": "t"})] {
        let (status, body) = post(server.port, &request(1, "mutate", params)).await;
        let response: Value = serde_json::from_str(&body).unwrap();
        check_schema(&response);
        assert_eq!((status, response["result"].as_array().unwrap().len()), (200, MUTANTS));
    }
    let cancel = json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}});
    assert_eq!(post(server.port, &cancel).await, (204, String::new()));
    assert_eq!(post(server.port, &json!([cancel])).await.0, 204);
    let batch = json!([request(1, "instrument", json!({})), request(2, "none", json!({}))]);
    let (_, body) = post(server.port, &batch).await;
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap().as_array().unwrap().len(), 2);
    let (status, body) = post(server.port, &json!(7)).await;
    assert_eq!((status, body.contains("-32600")), (200, true));
}

#[tokio::test]
async fn progress_arrives_as_events_and_the_response_last() {
    let server = TestServer::start().await;
    initialize(server.port).await;
    let mut watcher = begin(server.port, "GET / HTTP/1.1\r\nAccept: text/event-stream", "").await;
    read_until(&mut watcher, "text/event-stream").await;
    let mutate = request(1, "mutate", json!({"partialResultToken": 5})).to_string();
    let mut client = begin(server.port, POST_FOR_EVENTS, &mutate).await;
    // The response begins before there is a result.
    let mut answer = read_until(&mut client, "\r\n\r\n").await;
    assert!(answer.contains("text/event-stream"), "{answer}");
    server.service.steps.add_permits(1);
    answer.push_str(&read_until(&mut client, "0000000000000001").await);
    server.service.steps.add_permits(MUTANTS);
    answer.push_str(&rest(&mut client).await);
    let events = events(&answer);
    let (last, progress) = events.split_last().unwrap();
    assert_eq!((&last["id"], &last["result"]), (&json!(1), &json!([])));
    let count: usize = progress.iter().map(|one| one["params"]["value"].as_array().unwrap().len()).sum();
    assert_eq!(count, MUTANTS);
    // The watcher receives all notifications, but no result.
    let watched = read_until(&mut watcher, "0000000000000004").await;
    assert!(watched.contains("\"method\":\"progress\"") && !watched.contains("\"result\""), "{watched}");
    // A request without partial results is answered with JSON.
    let instrument = request(2, "instrument", json!({})).to_string();
    let answer = rest(&mut begin(server.port, POST_FOR_EVENTS, &instrument).await).await;
    assert!(answer.contains("content-type: application/json"), "{answer}");
    drop(watcher);
    server.stop().await;
}

#[tokio::test]
async fn closed_request_is_cancelled() {
    let server = TestServer::start().await;
    initialize(server.port).await;
    for (round, head) in [(1, POST), (2, POST_FOR_EVENTS)] {
        let mutate = request(1, "mutate", json!({"partialResultToken": 5})).to_string();
        let client = begin(server.port, head, &mutate).await;
        server.service.wait_for(|counts| counts.started == round).await;
        drop(client);
        server.service.wait_for(|counts| counts.cancelled == round).await;
    }
    let mutate = request(1, "mutate", json!({})).to_string();
    let mut client = begin(server.port, POST, &mutate).await;
    server.service.wait_for(|counts| counts.started == 3).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}});
    assert_eq!(post(server.port, &cancel).await.0, 204);
    assert!(rest(&mut client).await.contains("-32000"));
}

#[tokio::test]
async fn foreign_and_malformed_requests_are_refused() {
    let server = TestServer::start().await;
    let json = "Content-Type: application/json";
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13";
    for (head, status) in [
        (format!("POST / HTTP/1.1\r\n{json}\r\nOrigin: https://example.com"), 403),
        (format!("POST / HTTP/1.1\r\n{json}\r\nOrigin: null"), 403),
        (format!("POST / HTTP/1.1\r\n{json}\r\nHost: example.com"), 403),
        (format!("GET / HTTP/1.1\r\nHost: example.com:1\r\n{upgrade}\r\n{key}"), 403),
        (format!("GET / HTTP/1.1\r\nOrigin: https://example.com\r\n{upgrade}\r\n{key}"), 403),
        (
            "GET / HTTP/1.1\r\nAccept: text/event-stream\r\nOrigin: http://localhost.example.com".to_owned(),
            403,
        ),
        (format!("GET / HTTP/1.1\r\n{upgrade}"), 400),
        (format!("GET / HTTP/1.1\r\n{upgrade}\r\n{}", key.replace("13", "8")), 400),
        ("GET / HTTP/1.1".to_owned(), 405),
        ("OPTIONS / HTTP/1.1".to_owned(), 405),
        ("DELETE / HTTP/1.1".to_owned(), 405),
        ("POST / HTTP/1.1\r\nContent-Type: text/plain".to_owned(), 415),
        ("POST / HTTP/1.1".to_owned(), 415),
        (format!("POST / HTTP/1.1\r\n{json}\r\nOrigin: http://localhost:3000"), 200),
        (format!("POST / HTTP/1.1\r\n{json}\r\nX: {}", "x".repeat(64 << 10)), 431),
    ] {
        let answer = rest(&mut begin(server.port, &head, "{}").await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head}\n{answer}");
    }
    let mut long = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    let head = format!("{POST}\r\nHost: [::1]:{}\r\nContent-Length: 99999999999\r\n\r\n", server.port);
    long.write_all(head.as_bytes()).await.unwrap();
    assert!(read_until(&mut long, "\r\n\r\n").await.starts_with("HTTP/1.1 413 "));
}
