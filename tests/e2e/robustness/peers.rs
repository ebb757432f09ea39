//! Malicious or incorrect peers: any input gets a clear response or ends the peer's own session, uses bounded
//! memory, and does not disturb other sessions of the same server.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    framing::{self, MessageReader, notification, request},
    process::{children, peak_mib, signal, wait_until},
    server::{RequestedRun, ServerTransport, TestServer, run_id},
    uids,
    world::TestWorld,
};

/// Memory limit of the coordinator: ten times the memory that one or two sessions need in a debug build.
const MEMORY_MIB: u64 = 96;
const CASES: usize = 400;

/// A listening server with a well-behaved session that requests runs.
struct SharedServer<'w> {
    good: TestServer<'w>,
    selected: Vec<String>,
}

fn world() -> TestWorld {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    world
}

impl<'w> SharedServer<'w> {
    fn new(world: &'w TestWorld) -> Self {
        let mut good = TestServer::start_over(ServerTransport::Listen, world, &["big"]);
        good.initialize(json!({"testing": {}}));
        let names: Vec<String> = (0..CASES).map(|n| format!("N/Big.Case/{n}")).collect();
        Self { good, selected: uids("big", names.iter().map(String::as_str)) }
    }

    fn begin(&mut self) -> RequestedRun {
        self.good.run(None)
    }

    /// Waits for the well-behaved session's run, completes another run, and stops the server.
    fn finish(mut self, run: &RequestedRun) {
        self.good.finish(run, &self.selected).assert_all("passed");
        let again = self.begin();
        self.good.finish(&again, &self.selected).assert_all("passed");
        let peak = peak_mib(self.good.pid());
        assert!(peak < MEMORY_MIB, "the coordinator took {peak} MiB");
        signal(self.good.pid(), "TERM");
        self.good.wait_gone();
    }
}

struct MisbehavingSession {
    stream: TcpStream,
}

impl MisbehavingSession {
    fn silent(server: &TestServer<'_>) -> Self {
        let stream = server.connect();
        stream.set_read_timeout(Some(crate::support::recorder::DEADLINE)).unwrap();
        Self { stream }
    }

    fn initialized(server: &TestServer<'_>) -> Self {
        let mut bad = Self::silent(server);
        bad.send(&request("hello", "initialize", json!({"capabilities": {}})));
        assert!(bad.frames().next().unwrap()["result"].is_object());
        bad
    }

    fn frames(&self) -> MessageReader<TcpStream> {
        MessageReader::new(self.stream.try_clone().unwrap())
    }

    fn send(&mut self, message: &Value) {
        framing::write_message(&mut self.stream, message).unwrap();
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a message body; returns the id and error code of the only response.
    fn error_code_of(&mut self, body: &str) -> (Value, i64) {
        framing::write_body(&mut self.stream, body.as_bytes()).unwrap();
        let mut messages = self.frames();
        // For a rejected run request, the ends of its streams come before the response.
        let answer = std::iter::from_fn(|| messages.next()).find(|message| message.get("method").is_none());
        let answer = answer.expect("an answer");
        let code = answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"));
        (answer["id"].clone(), code)
    }

    /// Waits until the server has closed the connection.
    fn wait_closed(mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            // The server closed the connection before reading everything, which resets it.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
    }
}

/// Sends all messages while another thread waits for their responses and for the response to one more
/// request.
fn flood(bad: &MisbehavingSession, messages: impl Iterator<Item = Value>, answers: usize) {
    let mut frames = bad.frames();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut ids = Vec::new();
            while ids.len() < answers + 1 {
                let message = frames.next();
                let message = message.unwrap_or_else(|| panic!("hung up after {} answers", ids.len()));
                ids.extend(message.get("id").map(Value::to_string));
            }
            ids.sort_unstable();
            ids.dedup();
            ids.len()
        });
        let mut writer = std::io::BufWriter::new(&bad.stream);
        for message in messages.chain([request("last", "no/such/method", json!({}))]) {
            let body = message.to_string();
            write!(writer, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
        writer.flush().unwrap();
        assert_eq!(reader.join().unwrap(), answers + 1, "each is answered once");
    });
}

#[test]
fn discovery_flood_is_answered_without_harm() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let bad = MisbehavingSession::initialized(&shared.good);
    let run = shared.begin();
    let requests = (0..10_000).map(|n| request(n, "testing/discoverTests", json!({"runId": run_id(n)})));
    flood(&bad, requests, 10_000);
    shared.finish(&run);
}

#[test]
fn unknown_method_flood_is_refused_without_harm() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let bad = MisbehavingSession::initialized(&shared.good);
    let run = shared.begin();
    let requests = (0..20_000).map(|n| request(n, &format!("no/such/method/{n}"), json!({"n": n})));
    flood(&bad, requests, 20_000);
    shared.finish(&run);
}

#[test]
fn notification_flood_is_ignored_without_harm() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let bad = MisbehavingSession::initialized(&shared.good);
    let run = shared.begin();
    let words = (0..100_000).map(|n| match n % 3 {
        0 => notification("no/such/notification", json!({"n": n})),
        1 => notification("testing/cancelTestRun", json!({"runId": run_id(n)})),
        _ => notification("$/cancelRequest", json!({"id": n})),
    });
    flood(&bad, words, 0);
    shared.finish(&run);
}

#[test]
fn cancel_flood_ends_run_once() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let listed = shared.begin();
    shared.good.wait_response(listed.request);
    let run = shared.begin();
    // A run that is cancelled before it begins has no results, so wait for the first update.
    shared.good.recorder.wait("an update of the run", |events| {
        let mut updates = events.iter().filter_map(|event| event.params("testing/testUpdates/tests"));
        updates.any(|params| params["runId"] == run.run_id).then_some(())
    });
    let cancel = notification("$/cancelRequest", json!({"id": run.request})).to_string();
    let frame = format!("Content-Length: {}\r\n\r\n{cancel}", cancel.len());
    shared.good.send_bytes(frame.repeat(100_000).as_bytes());
    // The run may have ended before the first cancel arrived.
    shared.good.finish(&run, &shared.selected);
    let again = shared.begin();
    shared.finish(&again);
}

/// Sends requests without reading responses, until the server stops reading requests.
fn fill_unread_responses(bad: &mut MisbehavingSession) {
    let body = request(1, "no/such/method", json!({"filling": "x".repeat(200)})).to_string();
    let chunk = format!("Content-Length: {}\r\n\r\n{body}", body.len()).repeat(1000);
    // If a write blocks for this long, the server has stopped reading, because it cannot send its responses.
    bad.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let is_stopped = (0..4000).any(|_| bad.stream.write_all(chunk.as_bytes()).is_err());
    assert!(is_stopped, "a gigabyte of requests was taken from a peer that reads no answers");
}

#[test]
fn non_reading_peer_is_paused_without_harm() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let mut bad = MisbehavingSession::initialized(&shared.good);
    let run = shared.begin();
    fill_unread_responses(&mut bad);
    shared.finish(&run);
}

#[test]
fn non_reading_peer_does_not_block_server_exit() {
    let world = world();
    let shared = SharedServer::new(&world);
    let mut bad = MisbehavingSession::initialized(&shared.good);
    fill_unread_responses(&mut bad);
    signal(shared.good.pid(), "TERM");
    shared.good.wait_gone();
}

#[test]
fn non_reading_peer_may_disconnect() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let mut bad = MisbehavingSession::initialized(&shared.good);
    let run = shared.begin();
    fill_unread_responses(&mut bad);
    drop(bad);
    shared.finish(&run);
}

#[test]
fn sessions_disconnecting_mid_run_leave_no_process() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let run = shared.begin();
    shared.good.wait_response(run.request);
    let own = children(shared.good.pid());
    for _ in 0..3 {
        let mut bad = MisbehavingSession::initialized(&shared.good);
        bad.send(&request(1, "testing/runTests", json!({"runId": run_id(9)})));
        assert_eq!(bad.frames().next().unwrap()["method"], "testing/testUpdates/tests");
    }
    wait_until("their processes are gone", || children(shared.good.pid()) == own);
    shared.finish(&run);
}

#[test]
fn silent_sessions_do_not_disturb_others() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let silent: Vec<_> = (0..5).map(|_| MisbehavingSession::silent(&shared.good)).collect();
    let mut halves: Vec<_> = (0..5).map(|_| MisbehavingSession::silent(&shared.good)).collect();
    for (bad, half) in halves.iter_mut().zip([
        "C",
        "\u{feff}",
        "Content-Length: 10",
        "Content-Length: 10\r\n\r\n{",
        "X: y\r\n",
    ]) {
        bad.send_bytes(half.as_bytes());
    }
    let run = shared.begin();
    for bad in halves {
        bad.stream.shutdown(Shutdown::Write).unwrap();
        bad.wait_closed();
    }
    drop(silent);
    shared.finish(&run);
}

#[test]
fn silent_sessions_time_out() {
    let world = world();
    world.write("heeler.toml", "[profile.default]\njobs = 1\nclient-stall-timeout = \"300ms\"\n");
    let mut shared = SharedServer::new(&world);
    // More sessions than the server allows.
    let silent: Vec<_> = (0..40).map(|_| MisbehavingSession::silent(&shared.good)).collect();
    let run = shared.begin();
    for bad in silent {
        bad.wait_closed();
    }
    shared.finish(&run);
}

#[test]
fn endless_headers_close_session_without_memory_growth() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let run = shared.begin();
    for line in ["a", "X-Filling: y\r\n", "\r", "\r\n", "\u{feff}"] {
        let mut bad = MisbehavingSession::silent(&shared.good);
        // The server may close the connection before reading everything.
        let _closed = bad.stream.write_all(line.repeat(100_000).as_bytes());
        bad.wait_closed();
    }
    for length in ["18446744073709551615", "268435457", "0x10", "+5", "1, 1", "\u{0663}"] {
        let mut bad = MisbehavingSession::initialized(&shared.good);
        bad.send_bytes(format!("Content-Length: {length}\r\n\r\n{{}}").as_bytes());
        bad.wait_closed();
    }
    // A body that is announced but never sent must not use memory either.
    let mut bad = MisbehavingSession::initialized(&shared.good);
    bad.send_bytes(b"Content-Length: 268435456\r\n\r\n{");
    shared.finish(&run);
}

#[test]
fn request_ids_are_echoed_or_refused() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let run = shared.begin();
    let mut bad = MisbehavingSession::initialized(&shared.good);
    let huge = format!("\"{}\"", "i".repeat(1 << 20));
    for id in
        ["0", "-1", "1.5", "1e3", "123456789012345678901234567890", "\"\"", "\"1\"", "\"\\u0000\"", &huge]
    {
        let (echoed, code) =
            bad.error_code_of(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"no/such"}}"#));
        assert_eq!((echoed, code), (serde_json::from_str(id).unwrap(), -32601));
    }
    for id in ["{}", "[]", "true", "[1]", "{\"a\":1}"] {
        let answer = bad.error_code_of(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"no/such"}}"#));
        assert_eq!(answer, (Value::Null, -32600), "{id}");
    }
    shared.finish(&run);
}

#[test]
fn request_without_id_is_refused() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let run = shared.begin();
    let mut bad = MisbehavingSession::initialized(&shared.good);
    for method in ["initialize", "testing/discoverTests", "testing/runTests"] {
        for id in ["\"id\":null,", ""] {
            let answer =
                bad.error_code_of(&format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{{}}}}"#));
            assert_eq!(answer, (Value::Null, -32600), "{method}");
        }
    }
    shared.finish(&run);
}

#[test]
fn batches_are_each_refused_once() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let run = shared.begin();
    let mut bad = MisbehavingSession::initialized(&shared.good);
    let one = request(1, "testing/discoverTests", json!({"runId": run_id(1)})).to_string();
    for batch in ["[]".to_owned(), format!("[{one}]"), format!("[{one},{one}]"), "[1,2,3]".to_owned()] {
        framing::write_body(&mut bad.stream, batch.as_bytes()).unwrap();
        let answer = bad.frames().next().unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("batch"), "{answer}");
    }
    shared.finish(&run);
}

#[test]
fn deeply_nested_json_overflows_no_stack() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let run = shared.begin();
    let mut bad = MisbehavingSession::initialized(&shared.good);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let objects = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    for deep in [&deep, &objects] {
        let id = run_id(1);
        let unknown = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"no/such","other":{deep}}}"#);
        assert_eq!(bad.error_code_of(&unknown), (json!(1), -32601));
        let params = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"no/such","params":{deep}}}"#);
        assert_eq!(bad.error_code_of(&params), (json!(2), -32601));
        let method = "testing/discoverTests";
        let bad_params = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"{method}","params":{deep}}}"#);
        assert_eq!(bad.error_code_of(&bad_params), (json!(3), -32602));
        let node = format!(
            r#"{{"jsonrpc":"2.0","id":4,"method":"{method}","params":{{"runId":"{id}","tests":[{{"uid":"x","deep":{deep}}}]}}}}"#
        );
        assert_eq!(bad.error_code_of(&node), (json!(4), -32602));
        let error =
            format!(r#"{{"jsonrpc":"2.0","id":"unknown","error":{{"code":1,"message":"m","data":{deep}}}}}"#);
        framing::write_body(&mut bad.stream, error.as_bytes()).unwrap();
        assert_eq!(bad.error_code_of(&format!("{deep}{deep}")), (Value::Null, -32700));
    }
    assert_eq!(bad.error_code_of(&"[".repeat(1 << 20)).0, Value::Null);
    shared.finish(&run);
}

#[test]
fn malformed_messages_get_matching_error_codes() {
    let world = world();
    let mut shared = SharedServer::new(&world);
    let run = shared.begin();
    let mut bad = MisbehavingSession::initialized(&shared.good);
    let id = run_id(1);
    for (body, code) in [
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"no/such"}"#.to_owned(), -32600),
        (
            format!(r#"{{"id":1,"method":"testing/runTests","params":{{"runId":"{id}","runId":"{id}"}}}}"#),
            -32602,
        ),
        (r#"{"id":1,"method":"testing/runTests","params":null}"#.to_owned(), -32602),
        (r#"{"id":1,"method":"testing/runTests","params":{"runId":7}}"#.to_owned(), -32602),
        (r#"{"id":1,"method":7}"#.to_owned(), -32600),
        (r#"{"id":1,"method":"a"} "#.to_owned() + "x", -32700),
        ("nul".to_owned(), -32700),
        ("null".to_owned(), -32600),
        ("\u{feff}{\"id\":1}".to_owned(), -32700),
    ] {
        assert_eq!(bad.error_code_of(&body).1, code, "{body}");
    }
    for bytes in [
        &b"{\"id\":1,\"method\":\"a\xff\"}"[..],
        b"{\"id\":1,\"method\":\"a\",\"params\":\"\xc3\"}",
        b"\x00\x01\x02",
    ] {
        framing::write_body(&mut bad.stream, bytes).unwrap();
        let answer = bad.frames().next().unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{answer}");
    }
    // Unsolicited responses and lone surrogates are harmless.
    bad.send(&json!({"jsonrpc": "2.0", "id": 99, "result": {}}));
    let (id, code) = bad.error_code_of(r#"{"id":"\ud800","method":"no/such"}"#);
    assert!((id == Value::Null && [-32700, -32600].contains(&code)) || code == -32601, "{id} {code}");
    shared.finish(&run);
}
