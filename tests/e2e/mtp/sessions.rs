//! Server mode: transports, protocol rules and errors.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    framing::{notification, request, write_body},
    process::{ProcessRole, signal, wait_until},
    server::{RequestedRun, ServerTransport, TestServer, run_id},
    uids,
    world::TestWorld,
};

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"))
}

fn plain() -> Value {
    json!({"testing": {"debuggerProvider": false}})
}

#[test]
fn every_transport_serves_the_same_run() {
    let transports =
        [ServerTransport::Dial, ServerTransport::Stdio, ServerTransport::Listen, ServerTransport::Pipe];
    for transport in transports {
        let world = TestWorld::with_gtest("deaths");
        let mut server = TestServer::start_over(transport, &world, &["deaths"]);
        server.initialize(plain());
        let run = server.run(Some(&["deaths::First.One", "deaths::Second.Two"]));
        server.finish(&run, &uids("deaths", ["First.One", "Second.Two"])).assert_all("passed");
        if [ServerTransport::Dial, ServerTransport::Stdio].contains(&transport) {
            assert_eq!(server.exit(), Some(0), "{transport:?}");
        } else {
            // A listening server continues to listen after `exit`.
            server.notify("exit", json!({}));
            server.wait_closed();
            signal(server.pid(), "TERM");
            server.wait_gone();
        }
    }
}

#[test]
fn initialize_returns_server_capabilities() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::start(&world, &["deaths"]);
    let result = server.initialize(plain());
    assert_eq!(result["protocolVersion"], "1.0.0");
    let product = env!("CARGO_PKG_VERSION");
    assert_eq!(
        result["serverInfo"],
        json!({"name": "heeler", "version": "1.0.0", "heeler.version": product})
    );
    assert_eq!(result["processId"], server.pid());
    let testing = &result["capabilities"]["testing"];
    for (name, value) in [
        ("supportsDiscovery", true),
        ("experimental_multiRequestSupport", true),
        ("vstestProvider", false),
        ("attachmentsSupport", true),
        ("multipleConnectionProvider", false),
    ] {
        assert_eq!(testing[name], value, "{name}: {result}");
    }
    for name in ["debug", "callbackToken", "failures"] {
        assert_eq!(testing["heeler"][name], true, "{name}: {result}");
    }
}

#[test]
fn initialize_accepts_known_client_variants() {
    for params in [
        json!({"processId": null, "clientInfo": {"name": "x"}, "capabilities": {}}),
        json!({"processId": null, "rootUri": null, "capabilities": {"textDocument": {}}, "trace": "off"}),
        json!({"capabilities": plain(), "protocolVersions": ["2.0.0", "1.0.0"]}),
    ] {
        let world = TestWorld::with_gtest("deaths");
        let mut server = TestServer::start(&world, &["deaths"]);
        let answer = server.request_and_wait("initialize", params);
        assert!(answer["result"]["capabilities"].is_object(), "{answer}");
        server.notify("initialized", json!({}));
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn other_protocol_version_is_refused() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::start(&world, &["deaths"]);
    let answer =
        server.request_and_wait("initialize", json!({"capabilities": {}, "protocolVersions": ["2.0.0"]}));
    assert!(answer["error"]["message"].as_str().unwrap().contains("2.0.0"), "{answer}");
}

#[test]
fn initialize_must_be_first_and_only_once() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::start(&world, &["deaths"]);
    let early = server.request_and_wait("testing/runTests", json!({"runId": run_id(1)}));
    assert_eq!(code(&early), -32002);
    server.initialize(plain());
    let again = server.request_and_wait("initialize", json!({"capabilities": {}}));
    assert_eq!(code(&again), -32600);
    let run = server.run(Some(&["deaths::First.One"]));
    server.finish(&run, &uids("deaths", ["First.One"])).assert_all("passed");
}

#[test]
fn requests_after_initialize_wait_for_it() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::start(&world, &["deaths"]);
    let first = server.request("initialize", json!({"processId": null, "capabilities": plain()}));
    let run = server.run(Some(&["deaths::First.One"]));
    assert!(server.wait_response(first)["result"].is_object());
    server.finish(&run, &uids("deaths", ["First.One"])).assert_all("passed");
}

#[test]
fn ids_return_unchanged() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    server.skip_schema_checks();
    for id in [json!("1"), json!(0), json!(-5), json!("a \"quoted\" ü"), json!(9_007_199_254_740_993_u64)] {
        server.send(&request(id.clone(), "no/such/method", json!({})));
        assert_eq!(code(&server.wait_response(id)), -32601);
    }
}

#[test]
fn invalid_requests_get_error_messages() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    server.skip_schema_checks();
    assert_eq!(code(&server.request_and_wait("no/such/method", json!({}))), -32601);
    assert_eq!(code(&server.request_and_wait("testing/runTests", json!({"runId": "not a guid"}))), -32602);
    assert_eq!(code(&server.request_and_wait("testing/runTests", json!({}))), -32602);
    assert_eq!(code(&server.request_and_wait("testing/discoverTests", json!([1, 2]))), -32602);
    assert_eq!(
        code(&server.request_and_wait("testing/runTests", json!({"runId": run_id(70), "tests": "all"}))),
        -32602
    );
    server.notify("no/such/notification", json!({"x": 1}));
    server.notify("$/cancelRequest", json!({"id": "nobody's"}));
    let run = server.run(Some(&["deaths::First.One"]));
    server.finish(&run, &uids("deaths", ["First.One"])).assert_all("passed");
}

/// Returns the kinds of a run's messages so far, including the response.
fn messages_of(server: &TestServer<'_>, run: &RequestedRun) -> Vec<&'static str> {
    let kind = |message: &Value| match (message["method"].as_str(), &message["params"]) {
        (None, _) if message["id"] == run.request => Some("response"),
        (Some("testing/testUpdates/attachments"), params) if params["runId"] == run.run_id => {
            Some(if params["attachments"].is_null() { "end of attachments" } else { "attachments" })
        }
        (Some("testing/testUpdates/tests"), params) if params["runId"] == run.run_id => {
            Some(if params["changes"].is_null() { "completion" } else { "updates" })
        }
        _ => None,
    };
    server.recorder.events().iter().filter_map(|event| kind(event.message()?)).collect()
}

#[test]
fn refused_request_with_readable_run_id_is_completed() {
    for has_attachments in [false, true] {
        let world = TestWorld::with_gtest("deaths");
        let mut server = TestServer::start(&world, &["deaths"]);
        server.skip_schema_checks();
        server.initialize(json!({"testing": {"attachmentsSupport": has_attachments}}));
        let mut number = 0;
        for method in ["testing/runTests", "testing/discoverTests"] {
            for member in
                [json!({"filter": "/A(&B)"}), json!({"tests": "all"}), json!({"tests": [{"uid": null}]})]
            {
                number += 1;
                let mut params = member;
                params["runId"] = json!(run_id(number));
                let request = server.request(method, params);
                assert_eq!(code(&server.wait_response(request)), -32602);
                let run = RequestedRun { run_id: run_id(number), request };
                let mut expected = vec!["completion", "response"];
                if has_attachments && method == "testing/runTests" {
                    expected.insert(0, "end of attachments");
                }
                assert_eq!(messages_of(&server, &run), expected, "{method}");
            }
        }
        let run = server.run(Some(&["deaths::First.One"]));
        server.finish(&run, &uids("deaths", ["First.One"])).assert_all("passed");
    }
}

#[test]
fn request_refused_for_its_run_id_completes_nothing() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let selected = uids("meet", ["N/Meet.Case/0"]);
    let run = server.run(Some(&[&selected[0]]));
    let connected = rendezvous.next_test();
    let second = server.request("testing/runTests", json!({"runId": run.run_id}));
    assert_eq!(code(&server.wait_response(second)), -32602);
    connected.release();
    // `finish` checks that there is one completion, after all updates.
    server.finish(&run, &selected).assert_all("passed");
    let unreadable = server.request("testing/runTests", json!({"runId": "no GUID"}));
    assert_eq!(code(&server.wait_response(unreadable)), -32602);
    let run = RequestedRun { run_id: "no GUID".to_owned(), request: unreadable };
    assert_eq!(messages_of(&server, &run), ["response"]);
}

#[test]
fn invalid_json_gets_error_and_session_continues() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    for body in [&b"{\"jsonrpc\": nonsense"[..], b"", b"\xff\xfe", b"[1,2]", b"17"] {
        let mut frame = Vec::new();
        write_body(&mut frame, body).unwrap();
        server.send_bytes(&frame);
    }
    let refused = server.recorder.wait("five refusals", |events| {
        let messages = events.iter().filter_map(|event| event.message());
        let refused: Vec<_> =
            messages.filter(|message| message["id"].is_null() && message.get("error").is_some()).collect();
        (refused.len() == 5).then(|| refused.iter().map(|message| code(message)).collect::<Vec<_>>())
    });
    assert_eq!(refused[..3], [-32700; 3]);
    let run = server.run(Some(&["deaths::First.One"]));
    server.finish(&run, &uids("deaths", ["First.One"])).assert_all("passed");
}

#[test]
fn frame_variants_are_read() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::start(&world, &["deaths"]);
    let body = request(0, "initialize", json!({"capabilities": {}})).to_string();
    let frame = format!(
        "\u{feff}content-LENGTH:{}\nContent-Type: application/vscode-jsonrpc; charset=utf8\nX-Other: y\n\n{body}",
        body.len()
    );
    for byte in frame.as_bytes() {
        server.send_bytes(&[*byte]);
    }
    assert!(server.wait_response(0)["result"].is_object());
}

#[test]
fn excessive_length_ends_session_without_allocation() {
    for length in ["9223372036854775808", "99999999999999999999999999", "-1", "abc"] {
        let world = TestWorld::with_gtest("deaths");
        let mut server = TestServer::initialized(&world, &["deaths"]);
        server.send_bytes(format!("Content-Length: {length}\r\n\r\n{{}}").as_bytes());
        server.wait_closed();
        server.wait_gone();
    }
}

#[test]
fn discovery_sends_every_test_once_then_completes() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "1500");
    let mut server = TestServer::initialized(&world, &["big"]);
    let id = server.request("testing/discoverTests", json!({"runId": run_id(5)}));
    let answer = server.wait_response(id);
    assert_eq!(answer["result"], json!({}));
    let events = server.recorder.events();
    let mut found = Vec::new();
    let mut is_complete = false;
    for params in events.iter().filter_map(|event| event.params("testing/testUpdates/tests")) {
        assert_eq!(params["runId"], run_id(5).as_str());
        assert!(!is_complete, "an update after the completion: {params}");
        let Some(changes) = params["changes"].as_array() else {
            assert!(params.get("changes").is_some_and(Value::is_null));
            is_complete = true;
            continue;
        };
        for change in changes {
            let node = &change["node"];
            if node["node-type"] == "group" {
                continue;
            }
            assert_eq!(node["execution-state"], "discovered");
            assert_eq!(node["node-type"], "action");
            assert!(node["location.file"].as_str().unwrap().ends_with("big.cc"), "{node}");
            found.push(node["uid"].as_str().unwrap().to_owned());
        }
    }
    assert!(is_complete);
    assert_eq!((found.len(), found.iter().collect::<BTreeSet<_>>().len()), (1500, 1500));
}

#[test]
fn program_without_tests_is_discovered_empty() {
    let world = TestWorld::with_fake("lists-nothing");
    let mut server = TestServer::initialized(&world, &["lists-nothing"]);
    let id = server.request("testing/discoverTests", json!({"runId": run_id(5)}));
    server.wait_response(id);
    let events = server.recorder.events();
    let updates: Vec<_> = events
        .iter()
        .filter_map(|event| event.params("testing/testUpdates/tests"))
        .map(|one| &one["changes"])
        .collect();
    assert_eq!(updates, [&json!([]), &Value::Null]);
}

#[test]
fn runs_requested_together_complete_in_turn() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let runs: Vec<_> =
        (0..3).map(|_| server.run(Some(&["deaths::First.One", "deaths::First.Two"]))).collect();
    for run in &runs {
        server.finish(run, &uids("deaths", ["First.One", "First.Two"])).assert_all("passed");
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn cancelled_run_completes_within_a_second() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let mut server = TestServer::initialized(&world, &["meet"]);
    let names = ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2", "N/Meet.Case/3"];
    let selected = uids("meet", names);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    rendezvous.next_test().release();
    let connected = rendezvous.next_test();
    server.wait_state("meet::N/Meet.Case/0", "passed");
    let start = std::time::Instant::now();
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let checked_run = server.finish(&run, &selected);
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
    assert_eq!(code(&checked_run.response), -32800);
    assert_eq!(checked_run.state("meet::N/Meet.Case/0"), "passed");
    assert_eq!(checked_run.state("meet::N/Meet.Case/1"), "cancelled");
    for uid in ["meet::N/Meet.Case/2", "meet::N/Meet.Case/3"] {
        assert_eq!(checked_run.message(uid), "not run: the run was cancelled", "{checked_run:#?}");
    }
    connected.wait_gone();
    // The session still works after the error.
    let run = server.run(Some(&[]));
    server.finish(&run, &[]);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn cancel_keeps_results_of_passed_tests() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let mut server = TestServer::initialized(&world, &["meet"]);
    let run = server.run(Some(&["meet::N/Meet.Case/0", "meet::N/Meet.Case/1"]));
    rendezvous.next_test().release();
    let connected = rendezvous.next_test();
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let checked_run = server.finish(&run, &uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1"]));
    assert_eq!(checked_run.state("meet::N/Meet.Case/0"), "passed", "{checked_run:#?}");
    assert_eq!(checked_run.message("meet::N/Meet.Case/1"), "cancelled while running", "{checked_run:#?}");
    connected.wait_gone();
}

#[test]
fn run_is_cancelled_by_run_id() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    let connected = rendezvous.next_test();
    server.notify("testing/cancelTestRun", json!({"runId": run.run_id}));
    let checked_run = server.finish(&run, &uids("meet", ["N/Meet.Case/0"]));
    assert_eq!(code(&checked_run.response), -32800);
    assert_eq!(checked_run.state("meet::N/Meet.Case/0"), "cancelled");
    connected.wait_gone();
}

#[test]
fn test_ignoring_term_is_killed_after_grace() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    world.write("heeler.toml", "[profile.default]\ngrace-period = \"300ms\"\n");
    let mut server = TestServer::initialized(&world, &["meet"]);
    let run = server.run(Some(&["meet::Away.Deaf"]));
    let connected = rendezvous.next_test();
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let checked_run = server.finish(&run, &uids("meet", ["Away.Deaf"]));
    assert_eq!(checked_run.state("meet::Away.Deaf"), "cancelled");
    connected.wait_gone();
}

#[test]
fn waiting_run_can_be_cancelled() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let first = server.run(Some(&["meet::N/Meet.Case/0"]));
    let connected = rendezvous.next_test();
    let second = server.run(Some(&["meet::N/Meet.Case/1"]));
    server.notify("$/cancelRequest", json!({"id": second.request}));
    connected.release();
    server.finish(&first, &uids("meet", ["N/Meet.Case/0"])).assert_all("passed");
    let checked_run = server.finish(&second, &uids("meet", ["N/Meet.Case/1"]));
    assert_eq!(code(&checked_run.response), -32800);
}

#[test]
fn editor_options_are_accepted() {
    let world = TestWorld::with_gtest("deaths");
    let own = std::process::id().to_string();
    for words in [
        vec!["--diagnostic", "--diagnostic-verbosity", "trace"],
        vec!["--exit-on-process-exit", &own, "--no-banner", "--no-ansi"],
        vec!["--settings", "x.runsettings"],
    ] {
        let mut server = TestServer::start_with(ServerTransport::Dial, &world, &["deaths"], &words);
        server.initialize(plain());
        assert_eq!(server.exit(), Some(0), "{words:?}");
    }
}

#[test]
fn ignored_options_are_named_on_standard_error_and_in_log() {
    let world = TestWorld::with_gtest("deaths");
    let words = ["--settings", "x.runsettings", "--crashdump", "--no-banner"];
    let mut server = TestServer::start_with(ServerTransport::Dial, &world, &["deaths"], &words);
    server.initialize(plain());
    let text = "ignoring unsupported options: --settings x.runsettings, --crashdump";
    server.recorder.wait("the log names them", |events| {
        let mut logs = events.iter().filter_map(|event| event.params("client/log"));
        logs.any(|log| log["message"] == text && log["level"] == "Warning").then_some(())
    });
    wait_until("standard error names them", || server.errors_so_far().contains(text));
    assert_eq!(server.exit(), Some(0));
}

/// Returns the id of a process that has exited and been reaped.
fn dead_process() -> u32 {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn client_process_that_is_dead_at_the_start_ends_session() {
    let world = TestWorld::with_gtest("deaths");
    let process = dead_process();
    let params = json!({"processId": process, "capabilities": {}});
    let mut server = TestServer::start(&world, &["deaths"]);
    let answer = server.request_and_wait("initialize", params.clone());
    assert_eq!(code(&answer), -32602);
    server.wait_gone();
    assert_eq!(server.exit_code(), Some(11));
    let text = format!("the client's process {process} does not exist");
    assert!(answer.to_string().contains(&text), "{answer}");
    assert!(server.errors_so_far().contains(&text), "{}", server.errors_so_far());

    let words = ["--exit-on-process-exit", &process.to_string()];
    let mut server = TestServer::start_with(ServerTransport::Dial, &world, &["deaths"], &words);
    server.wait_gone();
    assert_eq!(server.exit_code(), Some(11));

    // From inside a container, the client's process id is meaningless.
    world.write("heeler.toml", "[profile.default]\nwatch-client = false\n");
    let mut server = TestServer::start_with(ServerTransport::Dial, &world, &["deaths"], &words);
    let answer = server.request_and_wait("initialize", params);
    assert!(answer["result"].is_object(), "{answer}");
    let run = server.run(Some(&["deaths::First.One"]));
    server.finish(&run, &uids("deaths", ["First.One"])).assert_all("passed");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn broken_frame_is_named_on_standard_error_and_in_log() {
    for bytes in ["nonsense\r\n\r\n", "Content-Length: x\r\n\r\n"] {
        let world = TestWorld::with_gtest("deaths");
        let mut server = TestServer::initialized(&world, &["deaths"]);
        server.send_bytes(bytes.as_bytes());
        server.wait_gone();
        let events = server.recorder.events();
        let logs: Vec<_> = events.iter().filter_map(|event| event.params("client/log")).collect();
        assert!(logs.len() == 1 && logs[0]["level"] == "Error", "{logs:?}");
        let text = logs[0]["message"].as_str().unwrap();
        assert!(text.contains("session ended: failed to decode a message from the peer: "), "{text}");
        assert!(server.errors_so_far().contains(text), "{}", server.errors_so_far());
        assert_eq!(server.exit_code(), Some(3));
    }
}

#[test]
fn blank_lines_before_headers_are_skipped() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    for blank in ["\n", "\r\n", "\r\n\r\n"] {
        server.send_bytes(blank.as_bytes());
        let run = server.run(Some(&["deaths::First.One"]));
        server.finish(&run, &uids("deaths", ["First.One"])).assert_all("passed");
    }
    server.send_bytes(b"\r\n");
    // A blank line at the end of the input is not a broken frame.
    server.disconnect();
    server.wait_gone();
    assert_eq!(server.errors_so_far(), "");
}

#[test]
fn session_has_one_watchdog_and_its_workers() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    world.write("heeler.toml", "[profile.default]\njobs = 2\n");
    let mut server = TestServer::initialized(&world, &["meet"]);
    let run = server.run(Some(&["meet::N/Meet.Case/0", "meet::N/Meet.Case/1"]));
    let guests = [rendezvous.next_test()];
    assert_eq!(server.processes(ProcessRole::Watchdog).len(), 1);
    assert!(server.processes(ProcessRole::Worker).len() <= 2);
    for connected in guests {
        connected.release();
    }
    rendezvous.next_test().release();
    server.finish(&run, &uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1"])).assert_all("passed");
    server.send(&notification("exit", json!({})));
    server.wait_gone();
    world.check_tidy();
}
