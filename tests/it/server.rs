//! Server mode: the ways to connect, the rules of the protocol, and its errors.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    process::{Role, signal},
    server::{Server, Transport, run_id},
    uids,
    wire::{notification, request, write_body},
    world::World,
};

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"))
}

fn plain() -> Value {
    json!({"testing": {"debuggerProvider": false}})
}

#[test]
fn every_way_to_come_together_serves_the_same_run() {
    let transports = [Transport::Dial, Transport::Stdio, Transport::Listen, Transport::Pipe];
    for transport in transports {
        let world = World::with_gtest("deaths");
        let mut server = Server::start_over(transport, &world, &["deaths"]);
        server.initialize(plain());
        let run = server.run(Some(&["deaths::First.One", "deaths::Second.Two"]));
        server.finish(&run, &uids("deaths", ["First.One", "Second.Two"])).all("passed");
        if [Transport::Dial, Transport::Stdio].contains(&transport) {
            assert_eq!(server.exit(), Some(0), "{transport:?}");
        } else {
            // A listening server keeps listening.
            server.notify("exit", json!({}));
            server.wait_closed();
            signal(server.pid(), "TERM");
            server.wait_gone();
        }
    }
}

#[test]
fn initialize_says_what_the_server_can_do() {
    let world = World::with_gtest("deaths");
    let mut server = Server::start(&world, &["deaths"]);
    let result = server.initialize(plain());
    assert_eq!(result["protocolVersion"], "1.0.0");
    assert_eq!(result["serverInfo"]["name"], "heeler");
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
}

#[test]
fn initialize_is_taken_from_clients_of_every_kind() {
    for params in [
        json!({"processId": null, "clientInfo": {"name": "x"}, "capabilities": {}}),
        json!({"processId": null, "rootUri": null, "capabilities": {"textDocument": {}}, "trace": "off"}),
        json!({"capabilities": plain(), "protocolVersions": ["2.0.0", "1.0.0"]}),
    ] {
        let world = World::with_gtest("deaths");
        let mut server = Server::start(&world, &["deaths"]);
        let answer = server.ask("initialize", params);
        assert!(answer["result"]["capabilities"].is_object(), "{answer}");
        server.notify("initialized", json!({}));
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn a_client_of_another_protocol_version_is_refused() {
    let world = World::with_gtest("deaths");
    let mut server = Server::start(&world, &["deaths"]);
    let answer = server.ask("initialize", json!({"capabilities": {}, "protocolVersions": ["2.0.0"]}));
    assert!(answer["error"]["message"].as_str().unwrap().contains("2.0.0"), "{answer}");
}

#[test]
fn the_rules_of_initialize_hold() {
    let world = World::with_gtest("deaths");
    let mut server = Server::start(&world, &["deaths"]);
    let early = server.ask("testing/runTests", json!({"runId": run_id(1)}));
    assert_eq!(code(&early), -32002);
    server.initialize(plain());
    let again = server.ask("initialize", json!({"capabilities": {}}));
    assert_eq!(code(&again), -32600);
    let run = server.run(Some(&["deaths::First.One"]));
    server.finish(&run, &uids("deaths", ["First.One"])).all("passed");
}

#[test]
fn requests_behind_initialize_wait_for_it() {
    let world = World::with_gtest("deaths");
    let mut server = Server::start(&world, &["deaths"]);
    let first = server.request("initialize", json!({"processId": null, "capabilities": plain()}));
    let run = server.run(Some(&["deaths::First.One"]));
    assert!(server.answer(first)["result"].is_object());
    server.finish(&run, &uids("deaths", ["First.One"])).all("passed");
}

#[test]
fn ids_come_back_as_they_were_sent() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    server.allow_mistakes();
    for id in [json!("1"), json!(0), json!(-5), json!("a \"quoted\" ü"), json!(9_007_199_254_740_993_u64)] {
        server.send(&request(id.clone(), "no/such/method", json!({})));
        assert_eq!(code(&server.answer(id)), -32601);
    }
}

#[test]
fn wrong_requests_are_answered_with_what_is_wrong() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    server.allow_mistakes();
    assert_eq!(code(&server.ask("no/such/method", json!({}))), -32601);
    assert_eq!(code(&server.ask("testing/runTests", json!({"runId": "not a guid"}))), -32602);
    assert_eq!(code(&server.ask("testing/runTests", json!({}))), -32602);
    assert_eq!(code(&server.ask("testing/discoverTests", json!([1, 2]))), -32602);
    assert_eq!(code(&server.ask("testing/runTests", json!({"runId": run_id(7), "tests": "all"}))), -32602);
    server.notify("no/such/notification", json!({"x": 1}));
    server.notify("$/cancelRequest", json!({"id": "nobody's"}));
    let run = server.run(Some(&["deaths::First.One"]));
    server.finish(&run, &uids("deaths", ["First.One"])).all("passed");
}

#[test]
fn invalid_json_is_answered_and_the_connection_lives_on() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
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
    server.finish(&run, &uids("deaths", ["First.One"])).all("passed");
}

#[test]
fn a_frame_of_any_foreign_form_is_read() {
    let world = World::with_gtest("deaths");
    let mut server = Server::start(&world, &["deaths"]);
    let body = request(0, "initialize", json!({"capabilities": {}})).to_string();
    let frame = format!(
        "\u{feff}content-LENGTH:{}\nContent-Type: application/vscode-jsonrpc; charset=utf8\nX-Other: y\n\n{body}",
        body.len()
    );
    for byte in frame.as_bytes() {
        server.send_bytes(&[*byte]);
    }
    assert!(server.answer(0)["result"].is_object());
}

#[test]
fn a_length_that_no_memory_holds_ends_the_session_and_takes_no_memory() {
    for length in ["9223372036854775808", "99999999999999999999999999", "-1", "abc"] {
        let world = World::with_gtest("deaths");
        let mut server = Server::ready(&world, &["deaths"]);
        server.send_bytes(format!("Content-Length: {length}\r\n\r\n{{}}").as_bytes());
        server.wait_closed();
        server.wait_gone();
    }
}

#[test]
fn discovery_tells_every_test_once_and_then_that_this_was_all() {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "1500");
    let mut server = Server::ready(&world, &["big"]);
    let id = server.request("testing/discoverTests", json!({"runId": run_id(5)}));
    let answer = server.answer(id);
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
fn a_program_without_tests_is_discovered_with_an_empty_update() {
    let world = World::with_fake("lists-nothing");
    let mut server = Server::ready(&world, &["lists-nothing"]);
    let id = server.request("testing/discoverTests", json!({"runId": run_id(5)}));
    server.answer(id);
    let events = server.recorder.events();
    let updates: Vec<_> = events
        .iter()
        .filter_map(|event| event.params("testing/testUpdates/tests"))
        .map(|one| &one["changes"])
        .collect();
    assert_eq!(updates, [&json!([]), &Value::Null]);
}

#[test]
fn runs_that_are_asked_for_at_once_come_one_after_the_other() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    let runs: Vec<_> =
        (0..3).map(|_| server.run(Some(&["deaths::First.One", "deaths::First.Two"]))).collect();
    for run in &runs {
        server.finish(run, &uids("deaths", ["First.One", "First.Two"])).all("passed");
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_cancelled_run_completes_within_a_second_and_accounts_for_every_test() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let mut server = Server::ready(&world, &["meet"]);
    let names = ["N/Meet.Case/0", "N/Meet.Case/1", "N/Meet.Case/2", "N/Meet.Case/3"];
    let selected = uids("meet", names);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    meet.next().let_go();
    let guest = meet.next();
    server.wait_state("meet::N/Meet.Case/0", "passed");
    let start = std::time::Instant::now();
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let books = server.finish(&run, &selected);
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
    assert_eq!(code(&books.answer), -32800);
    assert_eq!(books.state("meet::N/Meet.Case/0"), "passed");
    assert_eq!(books.state("meet::N/Meet.Case/1"), "cancelled");
    for uid in ["meet::N/Meet.Case/2", "meet::N/Meet.Case/3"] {
        assert_eq!(books.message(uid), "not run: the run was cancelled", "{books:#?}");
    }
    guest.wait_gone();
    // The session continues.
    let run = server.run(Some(&[]));
    server.finish(&run, &[]);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_test_that_has_just_begun_is_cancelled_and_one_that_has_just_passed_stays_so() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let mut server = Server::ready(&world, &["meet"]);
    let run = server.run(Some(&["meet::N/Meet.Case/0", "meet::N/Meet.Case/1"]));
    meet.next().let_go();
    let guest = meet.next();
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let books = server.finish(&run, &uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1"]));
    assert_eq!(books.state("meet::N/Meet.Case/0"), "passed", "{books:#?}");
    assert_eq!(books.message("meet::N/Meet.Case/1"), "cancelled while it ran", "{books:#?}");
    guest.wait_gone();
}

#[test]
fn a_run_is_cancelled_by_its_id_too_as_one_editor_does() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut server = Server::ready(&world, &["meet"]);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    let guest = meet.next();
    server.notify("testing/cancelTestRun", json!({"runId": run.run_id}));
    let books = server.finish(&run, &uids("meet", ["N/Meet.Case/0"]));
    assert_eq!(code(&books.answer), -32800);
    assert_eq!(books.state("meet::N/Meet.Case/0"), "cancelled");
    guest.wait_gone();
}

#[test]
fn a_test_that_is_deaf_to_term_is_killed_after_its_grace() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    world.write("heeler.toml", "[profile.default]\ngrace-period = \"300ms\"\n");
    let mut server = Server::ready(&world, &["meet"]);
    let run = server.run(Some(&["meet::Away.Deaf"]));
    let guest = meet.next();
    server.notify("$/cancelRequest", json!({"id": run.request}));
    let books = server.finish(&run, &uids("meet", ["Away.Deaf"]));
    assert_eq!(books.state("meet::Away.Deaf"), "cancelled");
    guest.wait_gone();
}

#[test]
fn a_waiting_run_can_be_cancelled_before_it_begins() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut server = Server::ready(&world, &["meet"]);
    let first = server.run(Some(&["meet::N/Meet.Case/0"]));
    let guest = meet.next();
    let second = server.run(Some(&["meet::N/Meet.Case/1"]));
    server.notify("$/cancelRequest", json!({"id": second.request}));
    guest.let_go();
    server.finish(&first, &uids("meet", ["N/Meet.Case/0"])).all("passed");
    let books = server.finish(&second, &uids("meet", ["N/Meet.Case/1"]));
    assert_eq!(code(&books.answer), -32800);
}

#[test]
fn exit_ends_a_run_in_hand_with_its_completion() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut server = Server::ready(&world, &["meet"]);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    let guest = meet.next();
    let recorder = server.recorder.clone();
    assert_eq!(server.exit(), Some(0));
    guest.wait_gone();
    let events = recorder.events();
    let books = crate::support::books::Books::check(
        &events,
        &run,
        &uids("meet", ["N/Meet.Case/0"]),
        crate::support::books::Delivery::Once,
    );
    assert_eq!(books.state("meet::N/Meet.Case/0"), "cancelled");
}

#[test]
fn exit_as_a_request_is_answered() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    server.send(&json!({"jsonrpc": "2.0", "id": "bye", "method": "exit"}));
    assert!(server.answer("bye").get("error").is_none());
    server.wait_gone();
}

#[test]
fn an_editor_may_start_us_with_all_its_options() {
    let world = World::with_gtest("deaths");
    let own = std::process::id().to_string();
    for words in [
        vec!["--diagnostic", "--diagnostic-verbosity", "trace"],
        vec!["--exit-on-process-exit", &own, "--no-banner", "--no-ansi"],
        vec!["--settings", "x.runsettings"],
    ] {
        let mut server = Server::start_with(Transport::Dial, &world, &["deaths"], &words);
        server.initialize(plain());
        assert_eq!(server.exit(), Some(0), "{words:?}");
    }
}

#[test]
fn a_session_is_a_watchdog_and_its_workers_below_one_coordinator() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    world.write("heeler.toml", "[profile.default]\njobs = 2\n");
    let mut server = Server::ready(&world, &["meet"]);
    let run = server.run(Some(&["meet::N/Meet.Case/0", "meet::N/Meet.Case/1"]));
    let guests = [meet.next()];
    assert_eq!(server.processes(Role::Watchdog).len(), 1);
    assert!(server.processes(Role::Worker).len() <= 2);
    for guest in guests {
        guest.let_go();
    }
    meet.next().let_go();
    server.finish(&run, &uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1"])).all("passed");
    server.send(&notification("exit", json!({})));
    server.wait_gone();
    world.check_tidy();
}
