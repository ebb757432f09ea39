//! The Model Context Protocol over HTTP: `heeler serve mcp --port` and `heeler run --mcp http://…`, with
//! peers that break the rules.

use std::{io::Write as _, net::TcpStream};

use serde_json::{Value, json};

use crate::support::{
    http_peer::{HttpServer, Response, read_until, recording_server},
    process::wait_until,
    world::TestWorld,
};

pub(super) fn served(world: &TestWorld, program: &str) -> HttpServer {
    HttpServer::start(world.heeler(&["serve", "mcp", "--port", "0", program]))
}

fn initialize() -> Value {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

/// Makes the handshake; returns the session id.
pub(super) fn handshake(server: &HttpServer) -> String {
    let opened = server.post(&[], &initialize());
    assert_eq!(opened.answer()["result"]["protocolVersion"], "2025-11-25", "{opened:?}");
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let accepted = server.post(&[("Mcp-Session-Id", &session)], &initialized);
    assert_eq!((accepted.status, accepted.body.as_str()), (202, ""));
    session
}

#[test]
fn both_eras_are_served() {
    let world = TestWorld::with_fake("json-lines");
    let server = served(&world, "json-lines");
    assert!(server.url.starts_with("http://127.0.0.1:") && server.url.ends_with("/mcp"), "{}", server.url);
    let session = handshake(&server);
    let of_session = [("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-11-25")];
    let call = |id: Value, method: &str, params: Value| {
        server.post(&of_session, &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    };
    let listed = call(json!("l"), "tools/list", json!({})).answer();
    assert_eq!((&listed["id"], listed["result"]["tools"].as_array().unwrap().len()), (&json!("l"), 7));
    // The response to a call is an event stream whose last event is the result.
    let called =
        call(json!(7), "tools/call", json!({ "name": "list_tests", "_meta": { "progressToken": "t" } }));
    assert_eq!(called.header("content-type"), Some("text/event-stream"));
    let messages = called.messages();
    assert_eq!(messages[0]["params"]["progressToken"], "t", "{called:?}");
    // A slow listing sends more progress notifications.
    let (answer, progress) = messages.split_last().unwrap();
    assert_eq!(answer["id"], 7, "{called:?}");
    assert!(progress.iter().all(|one| one["method"] == "notifications/progress"), "{called:?}");
    // A session can be deleted only once.
    assert_eq!(server.send("DELETE /mcp", &of_session, "").status, 200);
    assert_eq!(server.send("DELETE /mcp", &of_session, "").status, 404);
    assert_eq!(call(json!(8), "ping", json!({})).status, 404);

    let discovered = server.request(1, "server/discover", json!({}));
    assert_eq!(discovered.answer()["result"]["supportedVersions"], json!(["2026-07-28"]));
    let tested = server.request(2, "tools/call", json!({ "name": "mcp.test.protocol" })).answer();
    assert_eq!(tested["result"]["structuredContent"]["success"], true, "{tested}");
    let unknown = server.request(3, "ping", json!({}));
    assert_eq!((unknown.status, &unknown.answer()["error"]["code"]), (404, &json!(-32601)));
    assert_eq!(server.end("TERM").code(), Some(0));
    world.check_tidy();
}

#[test]
fn requests_that_break_the_rules_are_refused() {
    let world = TestWorld::with_fake("json-lines");
    let server = served(&world, "json-lines");
    let session = handshake(&server);
    let own = ("Mcp-Session-Id", session.as_str());
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    let of_other_era = [own, ("MCP-Protocol-Version", "2026-07-28")];
    for (response, status, code) in [
        (server.post(&[("Origin", "https://example.com"), own], &list), 403, -32600),
        (server.post(&[("Host", "example.com"), own], &list), 403, -32600),
        (server.send("POST /other", &[], "{}"), 404, -32600),
        // `/mcp` is the only endpoint.
        (server.send("POST /", &[own], list.to_string()), 404, -32600),
        (server.send("POST /mcp", &[own], list.to_string().replace("\"id\":1", "\"id\":null")), 400, -32600),
        (server.send("GET /mcp", &[("Accept", "text/event-stream")], ""), 405, -32600),
        (server.send("PUT /mcp", &[], "{}"), 405, -32600),
        (server.send("POST /mcp", &[("Content-Type", "text/plain")], "{}"), 415, -32600),
        (server.send("POST /mcp", &[("Accept", "text/html")], "{}"), 406, -32600),
        (server.send("POST /mcp", &[own], "{"), 400, -32700),
        (server.send("POST /mcp", &[own], "[]"), 400, -32600),
        (server.send("POST /mcp", &[own], "x".repeat((1 << 20) + 1)), 413, -32600),
        (server.post(&[], &list), 400, -32600),
        (server.post(&[("Mcp-Session-Id", "unknown")], &list), 404, -32600),
        (server.post(&of_other_era, &list), 400, -32020),
    ] {
        assert_eq!(
            (response.status, &response.answer()["error"]["code"]),
            (status, &json!(code)),
            "{response:?}"
        );
    }
    let long = "x".repeat(40_000);
    assert_eq!(server.post(&[own, ("X-Long", &long)], &list).status, 431);
    let unknown = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "cursor": "x" } });
    assert_eq!(server.post(&[own], &unknown).answer()["error"]["code"], -32602);
    // A page served from this machine may send requests, and the session still works.
    assert_eq!(server.post(&[("Origin", "http://localhost:6274"), own], &list).status, 200);
}

#[test]
fn headers_of_a_modern_request_equal_its_body() {
    let world = TestWorld::with_fake("json-lines");
    let server = served(&world, "json-lines");
    let meta = |version: &str| json!({ "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {} });
    let call = |version: &str| {
        let params = json!({ "name": "list_tests", "_meta": meta(version) });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
    };
    let [version, method, name] =
        [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "list_tests")];
    for headers in [
        vec![],
        vec![method, name],
        vec![version, name],
        vec![version, method],
        vec![("MCP-Protocol-Version", "2025-11-25"), method, name],
        vec![version, ("Mcp-Method", "tools/list"), name],
        vec![version, method, ("Mcp-Name", "run_tests")],
        vec![version, method, name, ("Mcp-Name", "list_tests")],
    ] {
        let response = server.post(&headers, &call("2026-07-28"));
        assert_eq!(
            (response.status, &response.answer()["error"]["code"]),
            (400, &json!(-32020)),
            "{headers:?}"
        );
    }
    let encoded = ("Mcp-Name", "=?base64?bGlzdF90ZXN0cw==?=");
    assert_eq!(server.post(&[version, method, encoded], &call("2026-07-28")).status, 200);
    let other = server.post(&[("MCP-Protocol-Version", "2099-01-01"), method, name], &call("2099-01-01"));
    assert_eq!((other.status, &other.answer()["error"]["code"]), (400, &json!(-32022)), "{other:?}");
}

/// Starts a run that never ends; returns its unfinished response and the run's id.
pub(super) fn begin_endless_run(server: &HttpServer, headers: &[(&str, &str)]) -> (TcpStream, String) {
    let arguments = json!({ "filter": "test(Hang.Forever)" });
    let params = json!({ "name": "run_tests", "arguments": arguments, "_meta": { "progressToken": 1 } });
    let call = json!({ "jsonrpc": "2.0", "id": "run", "method": "tools/call", "params": params });
    let accept = [("Accept", "application/json, text/event-stream")];
    let mut stream = server.open("POST /mcp", &[accept.as_slice(), headers].concat(), call.to_string());
    let received = read_until(&mut stream, "failed\"");
    let run = received.split("run ").nth(1).unwrap().split(':').next().unwrap().to_owned();
    (stream, run)
}

pub(super) fn state_of(server: &HttpServer, run: &str) -> Value {
    let called =
        server.request(9, "tools/call", json!({ "name": "get_failures", "arguments": { "run": run } }));
    let answer = called.answer();
    let text =
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    serde_json::from_str::<Value>(&text).unwrap_or_else(|_| panic!("{text}"))["state"].clone()
}

#[test]
fn run_is_cancelled_when_its_client_closes_cancels_or_ends_the_session() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\ngrace-period = \"200ms\"\n");
    world.note_starts();
    let server = served(&world, "kinds");
    let session = handshake(&server);
    let own = ("Mcp-Session-Id", session.as_str());
    let ends_cancelled = |run: &str| {
        wait_until("the run is cancelled", || state_of(&server, run) == "cancelled");
    };
    let (stream, run) = begin_endless_run(&server, &[own]);
    drop(stream);
    ends_cancelled(&run);

    let (stream, run) = begin_endless_run(&server, &[own]);
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "run" } });
    assert_eq!(server.post(&[own], &cancel).status, 202);
    ends_cancelled(&run);
    drop(stream);

    // Closing the connection cancels the call even before the server has sent any part of the response.
    let starts = world.starts().len();
    let params = json!({ "name": "run_tests", "arguments": { "filter": "test(Hang.Forever)" } });
    let call = json!({ "jsonrpc": "2.0", "id": "run", "method": "tools/call", "params": params });
    let stream = server.open("POST /mcp", &[own, ("Accept", "application/json")], call.to_string());
    wait_until("the test has started", || world.starts().len() > starts);
    drop(stream);
    wait_until("the test is gone", || {
        world.starts().iter().all(|start| crate::support::process::state(start.pid).is_none())
    });

    // If another client cancels the run by its id, the call still gets a response.
    let (mut stream, run) = begin_endless_run(&server, &[own]);
    server.request(3, "tools/call", json!({ "name": "cancel_run", "arguments": { "run": run } }));
    read_until(&mut stream, "\\\"state\\\":\\\"cancelled\\\"");
    // Deleting the session cancels its runs.
    let (_stream, run) = begin_endless_run(&server, &[own]);
    assert_eq!(server.send("DELETE /mcp", &[own], "").status, 200);
    ends_cancelled(&run);

    // When the server is terminated, the call still gets a response.
    let session = handshake(&server);
    let (mut stream, _) = begin_endless_run(&server, &[("Mcp-Session-Id", &session)]);
    let ended = std::thread::spawn(move || server.end("TERM"));
    read_until(&mut stream, "\\\"state\\\":\\\"cancelled\\\"");
    assert_eq!(ended.join().unwrap().code(), Some(0));
    assert!(world.starts().iter().all(|start| crate::support::process::state(start.pid).is_none()));
    world.check_tidy();
}

#[test]
fn slow_and_hostile_clients_cost_themselves_alone() {
    let world = TestWorld::with_fake("json-lines");
    let server = served(&world, "json-lines");
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(server.authority()).unwrap()).collect();
    let mut slow = TcpStream::connect(server.authority()).unwrap();
    let head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    slow.write_all(head.as_bytes()).unwrap();
    for garbage in [b"\0\0\0\0\r\n\r\n".as_slice(), b"{\"id\":1,\"method\":\"ping\"}\n\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.authority()).unwrap();
        stream.write_all(garbage).unwrap();
        assert_eq!(Response::read(stream).status, 400);
    }
    assert_eq!(server.request(1, "server/discover", json!({})).status, 200);
    // The server times out if a request's body does not arrive.
    read_until(&mut slow, "408");
    drop(silent);
}

#[test]
fn only_loopback_addresses_are_served() {
    let world = TestWorld::with_fake("json-lines");
    let refused = world.run(&["serve", "mcp", "--listen", "0.0.0.0:0", "json-lines"]);
    refused.assert_code(4).assert_stderr("not a loopback address");
}

pub(super) fn json_response(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn what_goes_wrong_on_the_way_is_an_error_of_the_tool() {
    let world = TestWorld::new();
    world.write("heeler.toml", "[profile.default]\ndumps = \"off\"\n");
    // Every tool except the last gets a response that breaks the protocol.
    let (url, requests) = recording_server(|request| {
        let id = if request.contains("\"id\":") {
            request.split("\"id\":").nth(1).unwrap().split([',', '}']).next().unwrap().to_owned()
        } else {
            "0".to_owned()
        };
        let answer = |result: &str| {
            json_response("200 OK", &format!("{{\"jsonrpc\":\"2.0\",\n\"id\":{id},\"result\":{result}}}"))
        };
        let tool =
            |name: &str| format!("{{\"name\":\"mcp.test.{name}\",\"inputSchema\":{{\"type\":\"object\"}}}}");
        let events =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: hello\n\n";
        if request.contains("server/discover") {
            return answer("{\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{}}");
        }
        if request.contains("tools/list") {
            let tools = ["a.status", "b.broken", "c.html", "d.refused", "e.passes"].map(tool);
            return answer(&format!("{{\"tools\":[{}]}}", tools.join(",")));
        }
        match request {
            request if request.contains("a.status") => {
                json_response("500 Internal Server Error", "out of order")
            }
            request if request.contains("b.broken") => events.to_owned(),
            request if request.contains("c.html") => {
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<p>".to_owned()
            }
            request if request.contains("d.refused") => json_response(
                "400 Bad Request",
                "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32020,\"message\":\"no\"}}",
            ),
            _ => format!(
                "{events}data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\ndata: \"result\":{{\"content\":[],\"structuredContent\":{{\"success\":true}}}}}}\n\n"
            ),
        }
    });
    let run = world.run(&["run", "--mcp", &url]);
    // Every failure is reported with its cause. The last test passes.
    for text in [
        "expected status 200 OK, got 500 Internal Server Error: out of order",
        "the event stream ended before the answer",
        "expected application/json or text/event-stream, got \"text/html\"",
        "error -32020: no",
        "Summary 1 passed, 4 failed",
    ] {
        assert!(run.stdout.contains(text), "{text}\n{run}");
    }
    assert!(run.stdout.contains(&format!("heeler run --mcp {url} -E")), "{run}");
    // The call repeats its version, method and name in headers.
    let requests: Vec<_> = requests.try_iter().collect();
    let call = requests.iter().find(|request| request.contains("e.passes\"")).unwrap().to_lowercase();
    for header in
        ["mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name: mcp.test.e.passes"]
    {
        assert!(call.contains(header), "{call}");
    }
}

#[test]
fn server_that_is_not_there_or_elsewhere_is_one_error() {
    let world = TestWorld::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let run = world.run(&["run", "--mcp", &url]);
    assert!(run.code != Some(0) && format!("{run}").contains("Connection refused"), "{run}");
    for (url, text) in [
        ("https://127.0.0.1/mcp", "TLS is not supported"),
        ("http://example.com/mcp", "expected a server on this machine"),
    ] {
        let run = world.run(&["run", "--mcp", url]);
        assert!(run.code == Some(4) && format!("{run}").contains(text), "{run}");
    }
}
