//! Malicious or incorrect peers: any input gets a clear response or ends its own session, takes bounded
//! memory, and does not disturb other sessions of the same server.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    process::{children, peak_mib, signal, wait_until},
    server::{Run, Server, Transport, run_id},
    uids,
    wire::{self, Frames, notification, request},
    world::World,
};

/// Memory limit: a coordinator with one or two sessions needs a tenth of it in an unoptimised build.
const MEMORY_MIB: u64 = 96;
const CASES: usize = 400;

/// A listening server with one well-behaved session that has a run to do.
struct Shared<'w> {
    good: Server<'w>,
    selected: Vec<String>,
}

fn world() -> World {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    world
}

impl<'w> Shared<'w> {
    fn new(world: &'w World) -> Self {
        let mut good = Server::start_over(Transport::Listen, world, &["big"]);
        good.initialize(json!({"testing": {}}));
        let names: Vec<String> = (0..CASES).map(|n| format!("N/Big.Case/{n}")).collect();
        Self { good, selected: uids("big", names.iter().map(String::as_str)) }
    }

    fn begin(&mut self) -> Run {
        self.good.run(None)
    }

    /// Waits for the good session's run, begins and awaits another, and ends the server.
    fn finish(mut self, run: &Run) {
        self.good.finish(run, &self.selected).all("passed");
        let again = self.begin();
        self.good.finish(&again, &self.selected).all("passed");
        let peak = peak_mib(self.good.pid());
        assert!(peak < MEMORY_MIB, "the coordinator took {peak} MiB");
        signal(self.good.pid(), "TERM");
        self.good.wait_gone();
    }
}

/// A session of a misbehaving peer.
struct Bad {
    stream: TcpStream,
}

impl Bad {
    fn silent(server: &Server<'_>) -> Self {
        let stream = server.dial();
        stream.set_read_timeout(Some(crate::support::recorder::DEADLINE)).unwrap();
        Self { stream }
    }

    fn initialized(server: &Server<'_>) -> Self {
        let mut bad = Self::silent(server);
        bad.send(&request("hello", "initialize", json!({"capabilities": {}})));
        assert!(bad.frames().next().unwrap()["result"].is_object());
        bad
    }

    fn frames(&self) -> Frames<TcpStream> {
        Frames::new(self.stream.try_clone().unwrap())
    }

    fn send(&mut self, message: &Value) {
        wire::write(&mut self.stream, message).unwrap();
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a body; returns the id and the error code of its only response.
    fn code_of(&mut self, body: &str) -> (Value, i64) {
        wire::write_body(&mut self.stream, body.as_bytes()).unwrap();
        let answer = self.frames().next().expect("an answer");
        let code = answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"));
        (answer["id"].clone(), code)
    }

    /// Waits until the server has closed the connection.
    fn wait_closed(mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            // The server closed with unread data of ours.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
    }
}

/// Sends all messages while another thread waits for their responses, and for one more request at the end.
fn flood(bad: &Bad, messages: impl Iterator<Item = Value>, answers: usize) {
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
fn a_flood_of_discoveries_is_answered_to_the_last_and_hurts_nobody_else() {
    let world = world();
    let mut shared = Shared::new(&world);
    let bad = Bad::initialized(&shared.good);
    let run = shared.begin();
    let requests = (0..10_000).map(|n| request(n, "testing/discoverTests", json!({"runId": run_id(n)})));
    flood(&bad, requests, 10_000);
    shared.finish(&run);
}

#[test]
fn a_flood_of_unknown_methods_is_refused_to_the_last_and_hurts_nobody_else() {
    let world = world();
    let mut shared = Shared::new(&world);
    let bad = Bad::initialized(&shared.good);
    let run = shared.begin();
    let requests = (0..20_000).map(|n| request(n, &format!("no/such/method/{n}"), json!({"n": n})));
    flood(&bad, requests, 20_000);
    shared.finish(&run);
}

#[test]
fn a_flood_of_cancels_and_notifications_is_swallowed_and_hurts_nobody_else() {
    let world = world();
    let mut shared = Shared::new(&world);
    let bad = Bad::initialized(&shared.good);
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
fn a_flood_of_cancels_of_one_run_ends_it_once() {
    let world = world();
    let mut shared = Shared::new(&world);
    let listed = shared.begin();
    shared.good.answer(listed.request);
    let run = shared.begin();
    let cancel = notification("$/cancelRequest", json!({"id": run.request})).to_string();
    let frame = format!("Content-Length: {}\r\n\r\n{cancel}", cancel.len());
    shared.good.send_bytes(frame.repeat(100_000).as_bytes());
    // It may have ended before the first of them.
    shared.good.finish(&run, &shared.selected);
    let again = shared.begin();
    shared.finish(&again);
}

/// Sends requests and reads no responses, until the server reads no more requests.
fn stop_by_not_reading(bad: &mut Bad) {
    let body = request(1, "no/such/method", json!({"filling": "x".repeat(200)})).to_string();
    let chunk = format!("Content-Length: {}\r\n\r\n{body}", body.len()).repeat(1000);
    // A write that blocks longer than this is not read: the server's responses cannot be sent.
    bad.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let is_stopped = (0..4000).any(|_| bad.stream.write_all(chunk.as_bytes()).is_err());
    assert!(is_stopped, "a gigabyte of requests was taken from a peer that reads no answers");
}

#[test]
fn a_peer_that_asks_and_never_reads_is_not_read_on_and_hurts_nobody_else() {
    let world = world();
    let mut shared = Shared::new(&world);
    let mut bad = Bad::initialized(&shared.good);
    let run = shared.begin();
    stop_by_not_reading(&mut bad);
    shared.finish(&run);
}

#[test]
fn a_peer_that_asks_and_never_reads_does_not_keep_the_server_from_leaving() {
    let world = world();
    let shared = Shared::new(&world);
    let mut bad = Bad::initialized(&shared.good);
    stop_by_not_reading(&mut bad);
    signal(shared.good.pid(), "TERM");
    shared.good.wait_gone();
}

#[test]
fn a_peer_that_asks_and_never_reads_may_hang_up() {
    let world = world();
    let mut shared = Shared::new(&world);
    let mut bad = Bad::initialized(&shared.good);
    let run = shared.begin();
    stop_by_not_reading(&mut bad);
    drop(bad);
    shared.finish(&run);
}

#[test]
fn sessions_that_hang_up_in_the_middle_of_a_run_leave_no_process_behind_in_a_server_that_goes_on() {
    let world = world();
    let mut shared = Shared::new(&world);
    let run = shared.begin();
    shared.good.answer(run.request);
    let own = children(shared.good.pid());
    for _ in 0..3 {
        let mut bad = Bad::initialized(&shared.good);
        bad.send(&request(1, "testing/runTests", json!({"runId": run_id(9)})));
        assert_eq!(bad.frames().next().unwrap()["method"], "testing/testUpdates/tests");
    }
    wait_until("their processes are gone", || children(shared.good.pid()) == own);
    shared.finish(&run);
}

#[test]
fn sessions_that_never_say_a_word_hurt_nobody_else() {
    let world = world();
    let mut shared = Shared::new(&world);
    let silent: Vec<_> = (0..5).map(|_| Bad::silent(&shared.good)).collect();
    let mut halves: Vec<_> = (0..5).map(|_| Bad::silent(&shared.good)).collect();
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
fn sessions_that_never_say_a_word_make_room_in_time() {
    let world = world();
    world.write("heeler.toml", "[profile.default]\njobs = 1\nstall-timeout = \"300ms\"\n");
    let mut shared = Shared::new(&world);
    // More than a server's session limit.
    let silent: Vec<_> = (0..40).map(|_| Bad::silent(&shared.good)).collect();
    let run = shared.begin();
    for bad in silent {
        bad.wait_closed();
    }
    shared.finish(&run);
}

#[test]
fn headers_without_end_close_their_session_and_take_no_memory() {
    let world = world();
    let mut shared = Shared::new(&world);
    let run = shared.begin();
    for line in ["a", "X-Filling: y\r\n", "\r", "\u{feff}"] {
        let mut bad = Bad::silent(&shared.good);
        // The server closes before it has read all of it.
        let _closed = bad.stream.write_all(line.repeat(100_000).as_bytes());
        bad.wait_closed();
    }
    for length in ["18446744073709551615", "268435457", "0x10", "+5", "1, 1", "\u{0663}"] {
        let mut bad = Bad::initialized(&shared.good);
        bad.send_bytes(format!("Content-Length: {length}\r\n\r\n{{}}").as_bytes());
        bad.wait_closed();
    }
    // A body that is announced and never sent takes no memory either.
    let mut bad = Bad::initialized(&shared.good);
    bad.send_bytes(b"Content-Length: 268435456\r\n\r\n{");
    shared.finish(&run);
}

#[test]
fn ids_of_every_type_are_echoed_or_refused() {
    let world = world();
    let mut shared = Shared::new(&world);
    let run = shared.begin();
    let mut bad = Bad::initialized(&shared.good);
    let huge = format!("\"{}\"", "i".repeat(1 << 20));
    for id in
        ["0", "-1", "1.5", "1e3", "123456789012345678901234567890", "\"\"", "\"1\"", "\"\\u0000\"", &huge]
    {
        let (echoed, code) = bad.code_of(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"no/such"}}"#));
        assert_eq!((echoed, code), (serde_json::from_str(id).unwrap(), -32601));
    }
    for id in ["{}", "[]", "true", "[1]", "{\"a\":1}"] {
        let answer = bad.code_of(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"no/such"}}"#));
        assert_eq!(answer, (Value::Null, -32600), "{id}");
    }
    shared.finish(&run);
}

#[test]
fn a_request_whose_id_is_null_or_missing_is_refused_instead_of_ignored() {
    let world = world();
    let mut shared = Shared::new(&world);
    let run = shared.begin();
    let mut bad = Bad::initialized(&shared.good);
    for method in ["initialize", "testing/discoverTests", "testing/runTests"] {
        for id in ["\"id\":null,", ""] {
            let answer =
                bad.code_of(&format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{{}}}}"#));
            assert_eq!(answer, (Value::Null, -32600), "{method}");
        }
    }
    shared.finish(&run);
}

#[test]
fn batches_are_refused_once_each() {
    let world = world();
    let mut shared = Shared::new(&world);
    let run = shared.begin();
    let mut bad = Bad::initialized(&shared.good);
    let one = request(1, "testing/discoverTests", json!({"runId": run_id(1)})).to_string();
    for batch in ["[]".to_owned(), format!("[{one}]"), format!("[{one},{one}]"), "[1,2,3]".to_owned()] {
        wire::write_body(&mut bad.stream, batch.as_bytes()).unwrap();
        let answer = bad.frames().next().unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("batch"), "{answer}");
    }
    shared.finish(&run);
}

#[test]
fn deep_json_overflows_no_stack() {
    let world = world();
    let mut shared = Shared::new(&world);
    let run = shared.begin();
    let mut bad = Bad::initialized(&shared.good);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let objects = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    for deep in [&deep, &objects] {
        let id = run_id(1);
        let unknown = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"no/such","other":{deep}}}"#);
        assert_eq!(bad.code_of(&unknown), (json!(1), -32601));
        let params = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"no/such","params":{deep}}}"#);
        assert_eq!(bad.code_of(&params), (json!(2), -32601));
        let method = "testing/discoverTests";
        let bad_params = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"{method}","params":{deep}}}"#);
        assert_eq!(bad.code_of(&bad_params), (json!(3), -32602));
        let node = format!(
            r#"{{"jsonrpc":"2.0","id":4,"method":"{method}","params":{{"runId":"{id}","tests":[{{"uid":"x","deep":{deep}}}]}}}}"#
        );
        assert_eq!(bad.code_of(&node), (json!(4), -32602));
        let error = format!(
            r#"{{"jsonrpc":"2.0","id":"stranger","error":{{"code":1,"message":"m","data":{deep}}}}}"#
        );
        wire::write_body(&mut bad.stream, error.as_bytes()).unwrap();
        assert_eq!(bad.code_of(&format!("{deep}{deep}")), (Value::Null, -32700));
    }
    assert_eq!(bad.code_of(&"[".repeat(1 << 20)).0, Value::Null);
    shared.finish(&run);
}

#[test]
fn damaged_messages_get_the_code_of_their_damage() {
    let world = world();
    let mut shared = Shared::new(&world);
    let run = shared.begin();
    let mut bad = Bad::initialized(&shared.good);
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
        assert_eq!(bad.code_of(&body).1, code, "{body}");
    }
    for bytes in [
        &b"{\"id\":1,\"method\":\"a\xff\"}"[..],
        b"{\"id\":1,\"method\":\"a\",\"params\":\"\xc3\"}",
        b"\x00\x01\x02",
    ] {
        wire::write_body(&mut bad.stream, bytes).unwrap();
        let answer = bad.frames().next().unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{answer}");
    }
    // Responses without a request, and lone surrogates, do no harm.
    bad.send(&json!({"jsonrpc": "2.0", "id": 99, "result": {}}));
    let (id, code) = bad.code_of(r#"{"id":"\ud800","method":"no/such"}"#);
    assert!((id == Value::Null && [-32700, -32600].contains(&code)) || code == -32601, "{id} {code}");
    shared.finish(&run);
}
