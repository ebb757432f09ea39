//! Behaviour of existing clients that is unexpected or deviates from the specification. Each test's name says
//! what a change would break.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{
    framing::request,
    server::{RequestedRun, TestServer, run_id},
    uids,
    world::TestWorld,
};

const ONE: &str = "deaths::First.One";

fn plain() -> Value {
    json!({"testing": {"debuggerProvider": false}})
}

/// Runs one test to check that the session works.
fn check_works(server: &mut TestServer<'_>) {
    let run = server.run(Some(&[ONE]));
    server.finish(&run, &[ONE.to_owned()]).assert_all("passed");
}

/// Sends `initialize` in a frame with this header. `LENGTH` in the header is replaced by the body's length.
fn initialize_in_frame<'w>(world: &'w TestWorld, head: &str) -> TestServer<'w> {
    let mut server = TestServer::start(world, &["deaths"]);
    let body = request(0, "initialize", json!({"capabilities": {}})).to_string();
    server.send_bytes(format!("{}{body}", head.replace("LENGTH", &body.len().to_string())).as_bytes());
    server
}

#[test]
fn byte_order_mark_before_header_is_skipped() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = initialize_in_frame(&world, "\u{feff}Content-Length: LENGTH\r\n\r\n");
    assert!(server.wait_response(0)["result"].is_object());
    check_works(&mut server);
}

#[test]
fn headers_ending_in_bare_lf_are_read() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = initialize_in_frame(&world, "Content-Length: LENGTH\n\n");
    assert!(server.wait_response(0)["result"].is_object());
    check_works(&mut server);
}

#[test]
fn header_names_are_case_insensitive() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = initialize_in_frame(&world, "X-Trace: 1\r\ncontent-lengtH:LENGTH\r\nDate: now\r\n\r\n");
    assert!(server.wait_response(0)["result"].is_object());
    check_works(&mut server);
}

#[test]
fn charset_accepts_only_utf8_spellings() {
    for charset in ["utf-8", "utf8", "UTF-8", "\"utf-8\""] {
        let world = TestWorld::with_gtest("deaths");
        let head = format!(
            "Content-Length: LENGTH\r\nContent-Type: application/vscode-jsonrpc; charset={charset}\r\n\r\n"
        );
        let server = initialize_in_frame(&world, &head);
        assert!(server.wait_response(0)["result"].is_object(), "{charset}");
    }
    for charset in ["utf-16", "latin1"] {
        let world = TestWorld::with_gtest("deaths");
        let head = format!("Content-Length: LENGTH\r\nContent-Type: text/plain; charset={charset}\r\n\r\n");
        initialize_in_frame(&world, &head).wait_closed();
    }
}

#[test]
fn dash_and_colon_options_and_response_file_work() {
    let forms: [fn(&TestWorld, &str) -> Vec<String>; 4] = [
        |_, port| ["deaths", "-server", "-client-port", port].map(str::to_owned).to_vec(),
        |_, port| vec!["deaths".to_owned(), "--server:jsonrpc".to_owned(), format!("--client-port:{port}")],
        |_, port| vec![format!("-client-port={port}"), "--server=jsonrpc".to_owned(), "deaths".to_owned()],
        |world, port| {
            world.write(
                "start.rsp",
                &format!("# written by a build\n--server jsonrpc\n--client-port {port}\n"),
            );
            vec!["deaths".to_owned(), "@start.rsp".to_owned()]
        },
    ];
    for form in forms {
        let world = TestWorld::with_gtest("deaths");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let words = form(&world, &listener.local_addr().unwrap().port().to_string());
        let mut server = TestServer::start_connecting_to(&world, &words, &listener);
        server.initialize(plain());
        check_works(&mut server);
        assert_eq!(server.exit(), Some(0), "{words:?}");
    }
}

#[test]
fn localhost_client_is_connected_exactly_once() {
    let world = TestWorld::with_gtest("deaths");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let words =
        ["deaths", "--server", "--client-host", "localhost", "--client-port", &port].map(str::to_owned);
    let mut server = TestServer::start_connecting_to(&world, &words, &listener);
    server.initialize(plain());
    check_works(&mut server);
    assert_eq!(server.exit(), Some(0));
    // Several clients break if they offer no callback port and a second connection arrives. Every process
    // that could connect has exited by now.
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn request_ids_return_with_their_type() {
    for id in [json!(0), json!(1), json!(2), json!("0"), json!("c1")] {
        let world = TestWorld::with_gtest("deaths");
        let mut server = TestServer::start(&world, &["deaths"]);
        server.send(&request(id.clone(), "initialize", json!({"capabilities": {}})));
        assert!(server.wait_response(id)["result"].is_object());
    }
}

#[test]
fn cancel_distinguishes_string_and_number_ids() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    server.skip_schema_checks();
    let uid = "meet::N/Meet.Case/0";
    server.send(&request("7", "testing/runTests", json!({"runId": run_id(7), "tests": [{"uid": uid}]})));
    let connected = rendezvous.next_test();
    server.notify("$/cancelRequest", json!({"id": 7}));
    // The response to this request shows that the cancellation has been processed.
    assert_eq!(server.request_and_wait("no/such/method", json!({}))["error"]["code"], -32601);
    connected.release();
    assert!(server.wait_response("7").get("error").is_none());
    server.send(&request("8", "testing/runTests", json!({"runId": run_id(8), "tests": [{"uid": uid}]})));
    let connected = rendezvous.next_test();
    server.notify("$/cancelRequest", json!({"id": "8"}));
    assert_eq!(server.wait_response("8")["error"]["code"], -32800);
    connected.wait_gone();
}

/// Requests a run with these parameters and a run id.
fn run_with(server: &mut TestServer<'_>, number: u64, mut params: Value) -> RequestedRun {
    params["runId"] = json!(run_id(number));
    let request = server.request("testing/runTests", params);
    RequestedRun { run_id: run_id(number), request }
}

#[test]
fn run_tests_are_read_under_both_names() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let two = "deaths::First.Two";
    for (number, params, expected) in [
        (1, json!({"tests": [{"uid": ONE}]}), ONE),
        (2, json!({"testCases": [{"uid": two}]}), two),
        (3, json!({"tests": [{"uid": ONE}], "testCases": [{"uid": two}]}), ONE),
        (4, json!({"tests": null, "testCases": [{"uid": two}]}), two),
    ] {
        let run = run_with(&mut server, number, params);
        server.finish(&run, &[expected.to_owned()]).assert_all("passed");
    }
}

#[test]
fn empty_list_runs_nothing_null_runs_everything() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "3");
    let all = uids("big", ["N/Big.Case/0", "N/Big.Case/1", "N/Big.Case/2"]);
    let mut server = TestServer::initialized(&world, &["big"]);
    for (number, params, expected) in [
        (1, json!({"tests": []}), &[][..]),
        (2, json!({"testCases": []}), &[]),
        (3, json!({"tests": null}), &all),
        (4, json!({"tests": null, "testCases": null, "filter": null}), &all),
        (5, json!({}), &all),
    ] {
        let run = run_with(&mut server, number, params);
        server.finish(&run, expected).assert_all("passed");
    }
}

#[test]
fn run_request_uses_only_uid_of_nodes() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    for (number, node) in [
        json!({"uid": ONE}),
        json!({"uid": ONE, "execution-state": "canceled", "node-type": "action", "time.duration-ms": 1.5}),
        json!({"uid": ONE, "execution-state": "no-such-state", "traits": [{"k": "v"}, {"key": "k", "value": "v"}]}),
        json!({"uid": ONE, "display-name": "ü", "traits": [], "vendor.thing": {"a": [1, null]}, "location.line-start": 3}),
        json!({"uid": ONE, "display-name": null, "traits": null, "parent": null}),
    ]
    .into_iter()
    .enumerate()
    {
        let run = run_with(&mut server, number as u64 + 1, json!({"tests": [node]}));
        server.finish(&run, &[ONE.to_owned()]).assert_all("passed");
    }
}

#[test]
fn run_id_returns_in_its_guid_form() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    for run_id in ["{0B1F6F57-0D0E-4D0C-8A4B-5A1F3F4C2D11}", "0b1f6f570d0e4d0c8a4b5a1f3f4c2d12"] {
        let request = server.request("testing/runTests", json!({"runId": run_id, "tests": [{"uid": ONE}]}));
        let run = RequestedRun { run_id: run_id.to_owned(), request };
        server.finish(&run, &[ONE.to_owned()]).assert_all("passed");
    }
}

#[test]
fn completion_has_null_changes() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    check_works(&mut server);
    server.request_and_wait("testing/discoverTests", json!({"runId": run_id(99)}));
    let events = server.recorder.events();
    let updates: Vec<_> =
        events.iter().filter_map(|event| event.params("testing/testUpdates/tests")).collect();
    assert!(updates.iter().all(|params| params.as_object().unwrap().contains_key("changes")));
    assert_eq!(updates.iter().filter(|params| params["changes"].is_null()).count(), 2);
}

#[test]
fn half_closed_client_is_disconnected() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    server.run(Some(&["meet::Away.Family"]));
    let connected = rendezvous.next_test();
    // The client can still read standard output after it has closed standard input.
    server.disconnect();
    connected.wait_gone();
    server.wait_gone();
    world.check_tidy();
}
