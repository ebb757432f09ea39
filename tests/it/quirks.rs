//! Behaviour of existing clients that differs from the specification or is unexpected. Each test is named
//! after what would break.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{
    books::{Books, Delivery},
    process::signal,
    server::{Run, Server, run_id},
    uids,
    wire::request,
    world::World,
};

const ONE: &str = "deaths::First.One";

fn plain() -> Value {
    json!({"testing": {"debuggerProvider": false}})
}

/// Runs one test to prove that a session works.
fn check_works(server: &mut Server<'_>) {
    let run = server.run(Some(&[ONE]));
    server.finish(&run, &[ONE.to_owned()]).all("passed");
}

/// Sends `initialize` in a frame of this form; `LENGTH` stands for the length.
fn initialize_in_frame<'w>(world: &'w World, head: &str) -> Server<'w> {
    let mut server = Server::start(world, &["deaths"]);
    let body = request(0, "initialize", json!({"capabilities": {}})).to_string();
    server.send_bytes(format!("{}{body}", head.replace("LENGTH", &body.len().to_string())).as_bytes());
    server
}

#[test]
fn a_byte_order_mark_before_the_first_header_is_no_header() {
    let world = World::with_gtest("deaths");
    let mut server = initialize_in_frame(&world, "\u{feff}Content-Length: LENGTH\r\n\r\n");
    assert!(server.answer(0)["result"].is_object());
    check_works(&mut server);
}

#[test]
fn headers_that_end_in_line_feeds_alone_are_read() {
    let world = World::with_gtest("deaths");
    let mut server = initialize_in_frame(&world, "Content-Length: LENGTH\n\n");
    assert!(server.answer(0)["result"].is_object());
    check_works(&mut server);
}

#[test]
fn header_names_in_other_letters_and_other_headers_are_read() {
    let world = World::with_gtest("deaths");
    let mut server = initialize_in_frame(&world, "X-Trace: 1\r\ncontent-lengtH:LENGTH\r\nDate: now\r\n\r\n");
    assert!(server.answer(0)["result"].is_object());
    check_works(&mut server);
}

#[test]
fn the_charset_is_read_as_utf8_with_and_without_hyphen_and_nothing_else_is_guessed() {
    for charset in ["utf-8", "utf8", "UTF-8", "\"utf-8\""] {
        let world = World::with_gtest("deaths");
        let head = format!(
            "Content-Length: LENGTH\r\nContent-Type: application/vscode-jsonrpc; charset={charset}\r\n\r\n"
        );
        let server = initialize_in_frame(&world, &head);
        assert!(server.answer(0)["result"].is_object(), "{charset}");
    }
    for charset in ["utf-16", "latin1"] {
        let world = World::with_gtest("deaths");
        let head = format!("Content-Length: LENGTH\r\nContent-Type: text/plain; charset={charset}\r\n\r\n");
        initialize_in_frame(&world, &head).wait_closed();
    }
}

#[test]
fn options_with_one_dash_and_with_colons_and_a_response_file_start_a_server() {
    let forms: [fn(&World, &str) -> Vec<String>; 4] = [
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
        let world = World::with_gtest("deaths");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let words = form(&world, &listener.local_addr().unwrap().port().to_string());
        let mut server = Server::start_dialling(&world, &words, &listener);
        server.initialize(plain());
        check_works(&mut server);
        assert_eq!(server.exit(), Some(0), "{words:?}");
    }
}

#[test]
fn a_client_that_says_localhost_and_listens_on_127_0_0_1_is_reached_once_and_never_again() {
    let world = World::with_gtest("deaths");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let words =
        ["deaths", "--server", "--client-host", "localhost", "--client-port", &port].map(str::to_owned);
    let mut server = Server::start_dialling(&world, &words, &listener);
    server.initialize(plain());
    check_works(&mut server);
    assert_eq!(server.exit(), Some(0));
    // A second connection to a client that offers no callback port breaks several clients; every process that
    // could connect has exited by now.
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn ids_that_count_from_zero_one_or_two_or_are_strings_come_back_with_their_type() {
    for id in [json!(0), json!(1), json!(2), json!("0"), json!("c1")] {
        let world = World::with_gtest("deaths");
        let mut server = Server::start(&world, &["deaths"]);
        server.send(&request(id.clone(), "initialize", json!({"capabilities": {}})));
        assert!(server.answer(id)["result"].is_object());
    }
}

#[test]
fn a_cancel_of_the_string_1_is_no_cancel_of_the_number_1() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut server = Server::ready(&world, &["meet"]);
    server.allow_mistakes();
    let uid = "meet::N/Meet.Case/0";
    server.send(&request("7", "testing/runTests", json!({"runId": run_id(7), "tests": [{"uid": uid}]})));
    let guest = meet.next();
    server.notify("$/cancelRequest", json!({"id": 7}));
    // Processed after the cancellation.
    assert_eq!(server.ask("no/such/method", json!({}))["error"]["code"], -32601);
    guest.let_go();
    assert!(server.answer("7").get("error").is_none());
    server.send(&request("8", "testing/runTests", json!({"runId": run_id(8), "tests": [{"uid": uid}]})));
    let guest = meet.next();
    server.notify("$/cancelRequest", json!({"id": "8"}));
    assert_eq!(server.answer("8")["error"]["code"], -32800);
    guest.wait_gone();
}

/// Requests a run with these parameters in addition to the run's id.
fn run_with(server: &mut Server<'_>, number: u64, mut params: Value) -> Run {
    params["runId"] = json!(run_id(number));
    let request = server.request("testing/runTests", params);
    Run { run_id: run_id(number), request }
}

#[test]
fn the_tests_of_a_run_are_read_under_both_names() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    let two = "deaths::First.Two";
    for (number, params, expected) in [
        (1, json!({"tests": [{"uid": ONE}]}), ONE),
        (2, json!({"testCases": [{"uid": two}]}), two),
        (3, json!({"tests": [{"uid": ONE}], "testCases": [{"uid": two}]}), ONE),
        (4, json!({"tests": null, "testCases": [{"uid": two}]}), two),
    ] {
        let run = run_with(&mut server, number, params);
        server.finish(&run, &[expected.to_owned()]).all("passed");
    }
}

#[test]
fn an_empty_list_runs_nothing_and_null_runs_everything() {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "3");
    let all = uids("big", ["N/Big.Case/0", "N/Big.Case/1", "N/Big.Case/2"]);
    let mut server = Server::ready(&world, &["big"]);
    for (number, params, expected) in [
        (1, json!({"tests": []}), &[][..]),
        (2, json!({"testCases": []}), &[]),
        (3, json!({"tests": null}), &all),
        (4, json!({"tests": null, "testCases": null, "filter": null}), &all),
        (5, json!({}), &all),
    ] {
        let run = run_with(&mut server, number, params);
        server.finish(&run, expected).all("passed");
    }
}

#[test]
fn nodes_come_back_with_members_and_states_of_all_kinds_and_only_their_uid_counts() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
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
        server.finish(&run, &[ONE.to_owned()]).all("passed");
    }
}

#[test]
fn a_run_id_of_any_guid_form_comes_back_as_it_was_written() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    for run_id in ["{0B1F6F57-0D0E-4D0C-8A4B-5A1F3F4C2D11}", "0b1f6f570d0e4d0c8a4b5a1f3f4c2d12"] {
        let request = server.request("testing/runTests", json!({"runId": run_id, "tests": [{"uid": ONE}]}));
        let run = Run { run_id: run_id.to_owned(), request };
        server.finish(&run, &[ONE.to_owned()]).all("passed");
    }
}

#[test]
fn the_completion_has_its_member_changes_and_it_is_null() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    check_works(&mut server);
    server.ask("testing/discoverTests", json!({"runId": run_id(99)}));
    let events = server.recorder.events();
    let updates: Vec<_> =
        events.iter().filter_map(|event| event.params("testing/testUpdates/tests")).collect();
    assert!(updates.iter().all(|params| params.as_object().unwrap().contains_key("changes")));
    assert_eq!(updates.iter().filter(|params| params["changes"].is_null()).count(), 2);
}

#[test]
fn exit_without_params_and_with_null_ends_the_session() {
    for exit in [
        json!({"jsonrpc": "2.0", "method": "exit"}),
        json!({"jsonrpc": "2.0", "method": "exit", "params": null}),
        json!({"jsonrpc": "2.0", "method": "exit", "params": []}),
        json!({"jsonrpc": "2.0", "method": "exit", "id": null}),
        json!({"jsonrpc": "2.0", "method": "exit", "id": 0}),
    ] {
        let world = World::with_gtest("deaths");
        let mut server = Server::ready(&world, &["deaths"]);
        server.allow_mistakes();
        server.send(&exit);
        server.wait_gone();
        world.check_tidy();
    }
}

#[test]
fn a_client_that_exits_before_it_initializes_is_let_go() {
    let world = World::with_gtest("deaths");
    let mut server = Server::start(&world, &["deaths"]);
    server.notify("exit", json!({}));
    server.wait_gone();
}

#[test]
fn a_session_that_is_ended_by_a_signal_completes_its_run_first() {
    for name in ["TERM", "INT"] {
        let world = World::with_gtest("meet");
        let meet = world.meet();
        let mut server = Server::ready(&world, &["meet"]);
        let selected = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1"]);
        let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
        let guest = meet.next();
        signal(server.pid(), name);
        guest.wait_gone();
        server.wait_gone();
        let events = server.recorder.events();
        let books = Books::check(&events, &run, &selected, Delivery::Once);
        books.all("cancelled");
        assert_eq!(books.answer["error"]["code"], -32800);
        world.check_tidy();
    }
}

#[test]
fn a_client_that_closes_its_writing_half_only_has_hung_up() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut server = Server::ready(&world, &["meet"]);
    server.run(Some(&["meet::Away.Family"]));
    let guest = meet.next();
    // Standard input ends; standard output is still read.
    server.hang_up();
    guest.wait_gone();
    server.wait_gone();
    world.check_tidy();
}
