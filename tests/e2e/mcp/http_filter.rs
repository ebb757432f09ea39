//! `heeler mcp filter --port`: clients can't call tests, whatever they send and however the server responds.

use std::process::Command;

use serde_json::json;

use super::{
    http::{begin_endless_run, handshake, json_response, served, state_of},
    official_clients::fixture,
};
use crate::support::{
    http_peer::{HttpServer, recording_server},
    process::wait_until,
    world::{TestWorld, run},
};

fn filter_of(world: &TestWorld, url: &str) -> HttpServer {
    HttpServer::start(world.heeler(&["mcp", "filter", "--port", "0", url]))
}

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mcp.test.a","arguments":{}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// Starts a server with one page of tools, sent as JSON or as events.
fn page_server() -> (String, std::sync::mpsc::Receiver<String>) {
    recording_server(|request| {
        let tools = r#"{"jsonrpc":"2.0", "id":5,"result":{"tools":[ {"name":"mcp.test.a"},{"name":"b\u00e9"} ],"x":1.50}}"#;
        let called = r#"{"jsonrpc":"2.0", "id":5,"result":{"tools":[{"name":"mcp.test.a"}]}}"#;
        let message = if request.contains("tools/call") { called } else { tools };
        if request.starts_with("GET") || request.contains("\"events\"") {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Own: 1\r\nConnection: close\r\n\r\n";
            return format!("{head}: c\n\nid: 1\ndata: {message}\n\n");
        }
        json_response("200 OK", message)
    })
}

#[test]
fn filter_hides_the_tests_and_keeps_all_other_bytes() {
    let world = TestWorld::new();
    let (url, requests) = page_server();
    let filter = HttpServer::start(world.heeler(&["mcp", "filter", "--port", "0", &url]));
    let without = r#"{"jsonrpc":"2.0", "id":5,"result":{"tools":[ {"name":"b\u00e9"} ],"x":1.50}}"#;
    let list = "{ \"jsonrpc\":\"2.0\",\n \"id\":5, \"method\":\"tools/list\", \"params\":{\"as\":\"json\"} }";
    let listed = filter.send("POST /mcp?x=1", &[("X-Own", "a"), ("Accept-Encoding", "gzip")], list);
    assert_eq!((listed.status, listed.body.as_str()), (200, without));
    let request = requests.recv().unwrap();
    assert!(request.starts_with("POST /mcp?x=1 HTTP/1.1\r\n") && request.ends_with(list), "{request}");
    let server = url["http://".len()..].split('/').next().unwrap();
    let head = request.to_lowercase();
    assert!(head.contains(&format!("host: {server}\r\n")) && head.contains("x-own: a"), "{head}");
    assert!(head.contains("accept-encoding: identity\r\n"), "only plain bytes can be filtered: {head}");

    let listed = filter.send("POST /mcp", &[], list.replace("json\"}", "events\"}"));
    assert_eq!(listed.body, format!(": c\n\nid: 1\ndata: {without}\n\n"));
    assert_eq!(listed.header("x-own"), Some("1"));
    // A separate event stream may carry the response to any request.
    assert_eq!(filter.send("GET /mcp", &[], "").body, format!(": c\n\nid: 1\ndata: {without}\n\n"));
    // A server may put the response to one request into the stream of another request with the same id.
    let call = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"b"}}"#;
    assert!(!filter.send("POST /mcp", &[], call).body.contains("mcp.test.a"));
    assert_eq!(requests.try_iter().count(), 3);

    let hidden = r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"mcp.test.a"}}"#;
    let refused = filter.send("POST /mcp", &[], hidden).answer();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("x"), &json!(-32602)));
    assert_eq!(refused["error"]["message"], "Unknown tool: mcp.test.a");
    for (headers, body) in
        [([("Mcp-Name", "=?base64?bWNwLnRlc3QuYQ==?=")], call), ([("X", "")], "{\"method\":\"tools/call\",")]
    {
        assert!(filter.send("POST /mcp", &headers, body).answer()["error"]["code"].is_number());
    }
    assert_eq!(filter.send("POST /mcp", &[("Origin", "https://example.com")], list).status, 403);
    assert_eq!(requests.try_iter().count(), 0, "nothing of that has reached the server");
    assert_eq!(filter.end("TERM").code(), Some(0));
}

#[test]
fn filter_passes_events_as_they_come_and_a_close_to_the_server() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\ngrace-period = \"200ms\"\n");
    let server = served(&world, "kinds");
    let filter = HttpServer::start(world.heeler(&["mcp", "filter", "--port", "0", &server.url]));
    let session = handshake(&filter);
    let (stream, run) = begin_endless_run(&filter, &[("Mcp-Session-Id", &session)]);
    drop(stream);
    wait_until("the run is cancelled", || state_of(&server, &run) == "cancelled");
    let tools = filter.request(1, "tools/list", json!({})).answer();
    let names: Vec<_> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["list_tests", "run_tests", "get_failures", "get_output", "cancel_run"]);
    drop(server);
    let gone = filter.request(2, "tools/list", json!({}));
    assert_eq!((gone.status, &gone.answer()["id"]), (502, &json!(2)), "{gone:?}");
    assert!(filter.port().parse::<u16>().is_ok());
}

/// Returns a text in UTF-16 code units, each encoded by `unit`.
fn encoded(text: &str, unit: impl Fn(u16) -> Vec<u8>) -> Vec<u8> {
    text.encode_utf16().flat_map(unit).collect()
}

#[test]
fn filter_refuses_bodies_that_the_server_could_read_differently() {
    let world = TestWorld::new();
    let (url, requests) = page_server();
    let filter = filter_of(&world, &url);
    // Encodings of a call that a server might decode.
    let utf16le = encoded(CALL, |unit| unit.to_le_bytes().to_vec());
    let utf16be = encoded(CALL, |unit| unit.to_be_bytes().to_vec());
    let utf32 = encoded(CALL, |unit| u32::from(unit).to_le_bytes().to_vec());
    let marked = [b"\xff\xfe".as_slice(), &utf16le].concat();
    let utf7 = CALL.replace("mcp", "+AG0-cp").into_bytes();
    let list = LIST.as_bytes();
    let json = ("Content-Type", "application/json");
    let with_charset = |value: &'static str| vec![("Content-Type", value)];
    // Compressed bodies and other charsets are rejected.
    for (headers, body) in [
        (vec![("Content-Encoding", "gzip")], list),
        (vec![("Content-Encoding", "deflate")], list),
        (vec![("content-encoding", "BR")], list),
        (vec![("Content-Encoding", "identity, zstd")], list),
        (vec![("Content-Encoding", "identity"), ("Content-Encoding", "gzip")], list),
        (vec![("Content_Encoding", "gzip")], list),
        (with_charset("application/json; charset=utf-16le"), &utf16le),
        (with_charset("application/json; CHARSET=\"UTF-16\""), &marked),
        (with_charset("application/json;charset=utf-32"), &utf32),
        (with_charset("application/json; charset=utf-7"), &utf7),
        (with_charset("application/json; charset=iso-8859-1"), list),
        (with_charset("application/json; charset=utf-8; charset=utf-7"), &utf7),
        (with_charset("text/plain; charset=utf-7"), &utf7),
        (vec![json, ("Content-Type", "application/json; charset=utf-7")], &utf7),
        (vec![json, json], list),
        // JSON parsers detect UTF-16 and UTF-32 without a charset.
        (vec![json], &utf16le),
        (vec![json], &utf16be),
        (vec![json], &utf32),
        (vec![json], &marked),
        (with_charset("application/octet-stream"), &utf16le),
        (vec![json], b"{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"mcp\xc0\xaetest.a\"}}"),
    ] {
        let refused = filter.send("POST /mcp", &headers, body);
        assert_eq!(
            (refused.status, &refused.answer()["id"]),
            (415, &json!(null)),
            "{headers:?}: {refused:?}"
        );
    }
    // Other methods with a body, and calls that only a lenient parser accepts.
    let comment = CALL.replace("\"id\"", "/**/\"id\"");
    let named = [("Mcp-Name", "a"), ("Mcp-Name", "mcp.test.a")];
    for (line, headers, body) in [
        ("GET /mcp", &[][..], CALL),
        ("PUT /mcp", &[], CALL),
        ("DELETE /mcp", &[("X-HTTP-Method-Override", "POST")], CALL),
        ("POST /mcp", &[], &comment),
        ("POST /mcp", &[], "{id:1,method:'tools/call',params:{name:'mcp.test.a'}}"),
        ("POST /mcp", &[], &CALL.replace("\"mcp.test.a\"", "[[\"mcp.test.a\"]]")),
        ("POST /mcp", &[], &CALL.replace("tools/call", "tools\\u002fcall")),
        ("POST /mcp", &[], &format!("\u{feff}{CALL}")),
        ("POST /mcp", &[], &format!("[{LIST},{CALL}]")),
        ("POST /mcp", &named, LIST),
        ("POST /mcp", &[("mcp_name", "mcp.test.a")], LIST),
        ("POST /mcp", &[("Transfer-Encoding", "gzip, chunked")], "0\r\n\r\n"),
        ("CONNECT 127.0.0.1:1", &[], ""),
    ] {
        let refused = filter.send(line, headers, body);
        let is_refused = refused.status >= 400 || refused.answer()["error"]["code"].is_number();
        assert!(is_refused, "{line} {headers:?} {body}: {refused:?}");
    }
    assert_eq!(requests.try_iter().count(), 0, "nothing of that has reached the server");
    // Uncompressed UTF-8 is allowed.
    let allowed = with_charset("Application/JSON; charset=\"UTF-8\"");
    assert_eq!(filter.send("POST /mcp", &[allowed[0], ("Content-Encoding", "identity")], LIST).status, 200);
    let request = requests.recv().unwrap();
    assert!(!request.to_lowercase().contains("content-encoding"), "{request}");
}

#[test]
fn filter_hides_the_tests_in_every_form_of_a_response() {
    let world = TestWorld::new();
    let list = r#"{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"mcp.test.a"},{"name":"b"}]}}"#;
    let (url, _requests) = recording_server(move |request| {
        let path = request.split(' ').nth(1).unwrap();
        let id = if path == "/text-id" { "\"1\"" } else { "1" };
        let list = list.replace("ID", id);
        let typed = |head: &str| {
            format!(
                "HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\nConnection: close\r\n\r\n{list}",
                list.len()
            )
        };
        match path {
            "/untyped" => typed(""),
            "/html" => typed("Content-Type: text/html; charset=utf-8\r\n"),
            "/compressed" => typed("Content-Type: application/json\r\nContent-Encoding: gzip\r\n"),
            "/charset" => typed("Content-Type: application/json; charset=utf-16\r\n"),
            "/events-charset" => typed("Content-Type: text/event-stream; charset=utf-7\r\n"),
            "/page" => "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<p>mcp.test.a".to_owned(),
            _ => json_response("200 OK", &list),
        }
    });
    let filter = filter_of(&world, &url);
    let without = list.replace("{\"name\":\"mcp.test.a\"},", "");
    for path in ["/text-id", "/untyped", "/html", "/json"] {
        let listed = filter.send(&format!("POST {path}"), &[("Accept-Encoding", "gzip")], LIST);
        let id = if path == "/text-id" { "\"1\"" } else { "1" };
        assert_eq!((listed.status, listed.body), (200, without.replace("ID", id)), "{path}");
    }
    for path in ["/compressed", "/charset", "/events-charset"] {
        let listed = filter.send(&format!("POST {path}"), &[], LIST);
        assert_eq!((listed.status, &listed.answer()["id"]), (502, &json!(1)), "{path}: {listed:?}");
    }
    assert_eq!(filter.send("GET /page", &[], "").body, "<p>mcp.test.a");
}

#[test]
fn filter_keeps_a_client_that_is_redirected() {
    let world = TestWorld::new();
    let (url, _requests) = recording_server(|request| {
        let host =
            request.to_lowercase().split("host: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
        if request.starts_with("GET /sse") {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
            return format!("{head}event: endpoint\ndata: http://{host}/messages?s=1\n\n");
        }
        let place = if request.starts_with("GET /away") {
            "https://example.com/mcp/".to_owned()
        } else {
            format!("http://{host}/mcp/?x=1")
        };
        format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {place}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
    });
    let filter = filter_of(&world, &url);
    assert_eq!(filter.send("POST /mcp", &[], LIST).header("location"), Some("/mcp/?x=1"));
    assert_eq!(filter.send("GET /away", &[], "").header("location"), Some("https://example.com/mcp/"));
    assert_eq!(filter.send("GET /sse", &[], "").body, "event: endpoint\ndata: /messages?s=1\n\n");
}

/// Returns a text compressed with `gzip`.
fn gzipped(world: &TestWorld, text: &str) -> Vec<u8> {
    world.write("plain", text);
    run(world.shell("gzip -c plain >packed")).assert_code(0);
    std::fs::read(world.path("packed")).unwrap()
}

#[test]
fn filter_protects_a_real_server_that_decodes_bodies() {
    let world = TestWorld::new();
    let server = |answers: &str| {
        let script = fixture("express.mjs");
        HttpServer::start(world.command(Command::new("node"), &[script.to_str().unwrap(), answers]))
    };
    for answers in ["json", "events"] {
        let server = server(answers);
        let filter = filter_of(&world, &server.url);
        let accept = ("Accept", "application/json, text/event-stream");
        for (message, hidden) in [(CALL, "a test was called"), (LIST, "mcp.test.a")] {
            let bodies = [
                (vec![accept, ("Content-Encoding", "gzip")], gzipped(&world, message)),
                (
                    vec![accept, ("Content-Type", "application/json; charset=utf-16le")],
                    encoded(message, |unit| unit.to_le_bytes().to_vec()),
                ),
                (
                    vec![accept, ("Content-Type", "application/json; charset=utf-7")],
                    message.replace("mcp", "+AG0-cp").into(),
                ),
                (vec![accept, ("Content-Type", "application/json; charset=utf-8")], message.into()),
                (vec![accept], [b"\xef\xbb\xbf".as_slice(), message.as_bytes()].concat()),
            ];
            for (headers, body) in bodies {
                let direct = server.send("POST /mcp", &headers, &body);
                let filtered = filter.send("POST /mcp", &headers, &body);
                assert!(direct.body.contains(hidden), "the server takes {headers:?}: {direct:?}");
                assert!(!filtered.body.contains("\"mcp.test.a\""), "{headers:?}: {filtered:?}");
                assert!(!filtered.body.contains("a test was called"), "{headers:?}: {filtered:?}");
            }
        }
        let listed = filter.send("POST /mcp", &[accept], LIST).answer();
        let tools = listed["result"]["tools"].as_array().unwrap().iter();
        assert_eq!(tools.map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>(), ["add"], "{listed}");
    }
}
