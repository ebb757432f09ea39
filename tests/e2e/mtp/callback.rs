//! The callback port: which processes connect to it, and clients that handle connections well or badly. In
//! all cases the run completes correctly, and the log contains the proof level.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::{CheckedRun, ExpectedDelivery},
    recorder::{ClientConnection, RecordedEvent},
    server::TestServer,
    uids,
    world::TestWorld,
};

const CASES: usize = 200;

/// Timeouts short enough for a test.
const IMPATIENT: &str = "[profile.default]\njobs = 2\nclient-stall-timeout = \"500ms\"\ndrain-timeout = \"300ms\"\nconnect-timeout = \"1s\"\n";

fn world(cases: usize) -> (TestWorld, Vec<String>) {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &cases.to_string());
    world.write("heeler.toml", IMPATIENT);
    let names: Vec<String> = (0..cases).map(|n| format!("N/Big.Case/{n}")).collect();
    let selected = uids("big", names.iter().map(String::as_str));
    (world, selected)
}

/// Returns a port that refuses connections.
fn refused_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Runs all tests for a client whose behaviour on each connection is chosen by `choose`; ends the session
/// with `exit`.
fn run(
    cases: usize,
    delivery: ExpectedDelivery,
    choose: impl Fn(usize) -> ListenerBehaviour + Send + 'static,
) -> CheckedRun {
    let (world, selected) = world(cases);
    let mut server = TestServer::with_callback(&world, &["big"], choose);
    let run = server.run(None);
    let checked_run = server.finish_as(&run, &selected, delivery);
    checked_run.assert_all("passed");
    assert!(checked_run.response.get("error").is_none(), "{}", checked_run.response);
    assert_eq!(server.exit(), Some(0));
    checked_run
}

fn proof_levels(checked_run: &CheckedRun) -> BTreeSet<&str> {
    let levels = checked_run.log.iter().filter_map(|log| log.split_once("with proof level \""));
    levels.map(|(_, level)| level.trim_end_matches('"')).collect()
}

#[test]
fn workers_and_watchdog_each_connect_once() {
    let (world, selected) = world(CASES);
    let mut server = TestServer::with_callback(&world, &["big"], |_| ListenerBehaviour::Normal);
    // Runs of the same session share the connections.
    for _ in 0..3 {
        let run = server.run(None);
        let checked_run = server.finish(&run, &selected);
        checked_run.assert_all("passed").assert_no_program_failures();
        assert!(
            checked_run.results_on.values().all(|on| *on != ClientConnection::Main),
            "{:?}",
            checked_run.results_on
        );
        let workers: BTreeSet<_> = checked_run.results_on.values().collect();
        assert!(
            !workers.contains(&checked_run.completion_on)
                && checked_run.completion_on != ClientConnection::Main
        );
        assert!(proof_levels(&checked_run).is_empty(), "{:?}", checked_run.log);
    }
    let connections = server.callback().connections();
    assert!((2..=3).contains(&connections), "{connections} connections");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn test_that_began_on_the_main_connection_runs_again_behind_a_barrier_there() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\nhistory = false\n");
    let rendezvous = world.open_rendezvous();
    // The refused port makes the worker send its updates over the main connection.
    let mut server = TestServer::start(&world, &["meet"]);
    server.initialize(json!({"testing": {"callbackProvider": {"port": refused_port()}}}));
    let selected = uids("meet", ["N/Meet.Case/0"]);
    let run = server.run(Some(&[selected[0].as_str()]));
    rendezvous.next_test().send_command(b's');
    let (barrier, is_begun) = server.recorder.wait("a barrier on the main connection", |events| {
        let is_barrier = |event: &&RecordedEvent| {
            let message = event.message().filter(|_| event.on == ClientConnection::Main);
            let text = message.and_then(|message| message["params"]["message"].as_str());
            text.is_some_and(|text| text.contains("may run again"))
        };
        let barrier = events.iter().find(is_barrier)?.message()?["id"].clone();
        let is_start = |change: &serde_json::Value| change["node"]["execution-state"] == "in-progress";
        let changes = events
            .iter()
            .filter_map(|event| event.params("testing/testUpdates/tests")?["changes"].as_array());
        Some((barrier, changes.flatten().filter(|change| is_start(change)).count()))
    });
    assert_eq!(is_begun, 1, "the second attempt has not begun");
    server.send(&json!({"jsonrpc": "2.0", "id": barrier, "result": null}));
    rendezvous.next_test().release();
    let checked_run = server.finish(&run, &selected);
    assert!(checked_run.response["error"].is_null());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn attachments_end_precedes_completion_on_its_connection() {
    let (world, selected) = world(5);
    let mut server = TestServer::with_callback(&world, &["big"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    server.finish(&run, &selected);
    let events = server.recorder.events();
    let ends: Vec<_> = events
        .iter()
        .filter_map(|event| event.params("testing/testUpdates/attachments"))
        .filter(|params| params["attachments"].is_null())
        .collect();
    assert_eq!(ends.len(), 1);
}

#[test]
fn attachments_are_sent_only_on_request() {
    let (world, selected) = world(5);
    let mut server = TestServer::initialized(&world, &["big"]);
    let run = server.run(None);
    server.finish(&run, &selected);
    let events = server.recorder.events();
    assert_eq!(events.iter().filter_map(|event| event.params("testing/testUpdates/attachments")).count(), 0);
    assert!(events.iter().all(|event| event.on == ClientConnection::Main));
}

#[test]
fn barrier_response_with_result_is_accepted() {
    let checked_run = run(CASES, ExpectedDelivery::Once, |_| ListenerBehaviour::RespondsWithResult);
    assert!(proof_levels(&checked_run).is_empty(), "{:?}", checked_run.log);
}

#[test]
fn client_that_answers_nothing_receives_everything_once_over_the_main_connection() {
    let checked_run = run(CASES, ExpectedDelivery::Once, |_| ListenerBehaviour::NeverResponds);
    assert_eq!(checked_run.completion_on, ClientConnection::Main);
    assert!(
        checked_run.results_on.values().all(|on| *on == ClientConnection::Main),
        "{:?}",
        checked_run.results_on
    );
    assert!(
        proof_levels(&checked_run).is_empty(),
        "the order of one connection is proof: {:?}",
        checked_run.log
    );
    let said = checked_run.log.iter().filter(|log| log.contains("did not answer a request there")).count();
    assert!((1..=2).contains(&said), "once for each worker that has waited: {:?}", checked_run.log);
}

/// A TCP server that echoes the bytes it receives.
struct EchoService {
    port: u16,
}

impl EchoService {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let (mut from, mut to) = (&stream, &stream);
                    // The peer may reset the connection.
                    std::io::copy(&mut from, &mut to).ok();
                });
            }
        });
        Self { port }
    }
}

#[test]
fn own_requests_that_come_back_are_no_answers_of_a_client() {
    let (world, selected) = world(CASES);
    let echo = EchoService::start();
    for token in [None, Some("s3cret")] {
        let mut server = TestServer::start(&world, &["big"]);
        let provider = json!({"port": echo.port, "token": token});
        server.initialize(json!({"testing": {"attachmentsSupport": true, "callbackProvider": provider}}));
        for _ in 0..2 {
            let run = server.run(None);
            let checked_run = server.finish(&run, &selected);
            checked_run.assert_all("passed");
            assert_eq!(checked_run.completion_on, ClientConnection::Main);
            let is_said = |log: &String| log.contains("the listener is not a test client, because it sends");
            assert!(checked_run.log.iter().any(is_said), "{:?}", checked_run.log);
        }
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn unread_callback_falls_back_to_main_connection() {
    let checked_run = run(20_000, ExpectedDelivery::AtLeastOnce, |_| ListenerBehaviour::NeverReads);
    assert_eq!(checked_run.completion_on, ClientConnection::Main);
    assert!(
        checked_run.log.iter().any(|log| log.contains("did not answer a request there")),
        "{:?}",
        checked_run.log
    );
}

#[test]
fn slow_callback_falls_back_to_main_connection() {
    let checked_run = run(20_000, ExpectedDelivery::AtLeastOnce, |_| ListenerBehaviour::OneByteASecond);
    assert_eq!(checked_run.completion_on, ClientConnection::Main);
}

#[test]
fn connection_closed_midway_moves_rest_elsewhere() {
    // A worker opens the first connection.
    let checked_run = run(2000, ExpectedDelivery::AtLeastOnce, |number| match number {
        0 => ListenerBehaviour::ClosesAfter(2),
        _ => ListenerBehaviour::Normal,
    });
    assert_ne!(checked_run.completion_on, ClientConnection::Callback(0));
}

#[test]
fn closed_callbacks_fall_back_to_main_connection() {
    let checked_run = run(CASES, ExpectedDelivery::AtLeastOnce, |_| ListenerBehaviour::ClosesAfter(1));
    assert_eq!(checked_run.completion_on, ClientConnection::Main);
}

#[test]
fn close_instead_of_barrier_response_loses_nothing() {
    run(CASES, ExpectedDelivery::AtLeastOnce, |_| ListenerBehaviour::ClosesAtTheBarrier);
}

#[test]
fn half_closed_callback_loses_nothing() {
    run(CASES, ExpectedDelivery::AtLeastOnce, |_| ListenerBehaviour::HalfClosesAfter(1));
}

#[test]
fn unread_connection_moves_rest_elsewhere() {
    run(2000, ExpectedDelivery::AtLeastOnce, |number| match number {
        0 => ListenerBehaviour::ResetsAfter(2),
        _ => ListenerBehaviour::Normal,
    });
}

#[test]
fn slow_client_gets_everything_once() {
    let world_is_patient = "[profile.default]\njobs = 2\n";
    for behaviour in [
        ListenerBehaviour::PausesAfter(1, Duration::from_millis(300)),
        ListenerBehaviour::RespondsAfter(Duration::from_millis(300)),
    ] {
        let (world, selected) = world(CASES);
        world.write("heeler.toml", world_is_patient);
        let mut server = TestServer::with_callback(&world, &["big"], move |_| behaviour);
        let run = server.run(None);
        let checked_run = server.finish(&run, &selected);
        assert!(proof_levels(checked_run.assert_all("passed")).is_empty(), "{:?}", checked_run.log);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn refused_callback_port_loses_no_result() {
    let (world, selected) = world(CASES);
    let port = refused_port();
    let mut server = TestServer::start(&world, &["big"]);
    server.initialize(serde_json::json!({"testing": {"callbackProvider": {"port": port}}}));
    let run = server.run(None);
    let checked_run = server.finish_as(&run, &selected, ExpectedDelivery::AtLeastOnce);
    checked_run.assert_all("passed");
    assert_eq!(checked_run.completion_on, ClientConnection::Main);
    assert!(checked_run.log.iter().any(|log| log.contains(&port.to_string())), "{:?}", checked_run.log);
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn bad_connection_does_not_affect_next_run() {
    let (world, selected) = world(CASES);
    let mut server = TestServer::with_callback(&world, &["big"], |number| match number {
        0 => ListenerBehaviour::ClosesAfter(1),
        _ => ListenerBehaviour::Normal,
    });
    for _ in 0..2 {
        let run = server.run(None);
        server.finish_as(&run, &selected, ExpectedDelivery::AtLeastOnce).assert_all("passed");
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn client_token_is_first_on_each_connection() {
    let (world, selected) = world(CASES);
    let mut server = TestServer::start(&world, &["big"]);
    let listener = crate::support::callback_listener::RecordingListener::new(server.recorder.clone(), |_| {
        ListenerBehaviour::Normal
    });
    let provider = serde_json::json!({"port": listener.port, "token": "s3cret"});
    server.listener = Some(listener);
    server.initialize(serde_json::json!({"testing": {"callbackProvider": provider}}));
    let run = server.run(None);
    server.finish(&run, &selected).assert_all("passed");
    let events = server.recorder.events();
    for number in 0..server.callback().connections() {
        let first = events
            .iter()
            .filter(|event| event.on == ClientConnection::Callback(number))
            .find_map(|event| event.message());
        let first = first.unwrap();
        assert_eq!(first["method"], "$/heeler/hello", "{first}");
        assert_eq!(first["params"]["token"], "s3cret");
        assert_ne!(first["params"]["from"], Value::Null);
    }
    assert_eq!(server.exit(), Some(0));
}
