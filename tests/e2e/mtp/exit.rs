//! `exit` and signals: Heeler completes or cancels running work and does not wait for anything else.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::support::{
    checked_run::{CheckedRun, ExpectedDelivery},
    framing::{self, MessageReader, notification, request},
    process::signal,
    rendezvous::{ConnectedTest, TestRendezvous},
    server::{RequestedRun, ServerTransport, TestServer, run_id},
    uids,
    world::TestWorld,
};

const CASES: [&str; 2] = ["N/Meet.Case/0", "N/Meet.Case/1"];

/// A server whose client has sent `exit` while the first of two tests runs.
struct DrainingServer<'w> {
    server: TestServer<'w>,
    run: RequestedRun,
    connected: Option<ConnectedTest>,
}

fn world() -> (TestWorld, TestRendezvous) {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let rendezvous = world.open_rendezvous();
    (world, rendezvous)
}

impl<'w> DrainingServer<'w> {
    fn new(world: &'w TestWorld, rendezvous: &TestRendezvous, exit: &Value) -> Self {
        let mut server = TestServer::initialized(world, &["meet"]);
        let selected = selected();
        let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
        let connected = rendezvous.next_test();
        server.send(exit);
        // The response to this request shows that the server has processed `exit`.
        server.send(&request("late", "testing/discoverTests", json!({"runId": run_id(99)})));
        assert_eq!(server.wait_response("late")["error"]["code"], -32600, "it came after exit");
        Self { server, run, connected: Some(connected) }
    }

    fn release_first(&mut self) {
        self.connected.take().expect("it runs").release();
    }

    fn wait_first_gone(&self) {
        self.connected.as_ref().expect("it runs").wait_gone();
    }

    fn checked_run(&self) -> CheckedRun {
        CheckedRun::check(&self.server.recorder.events(), &self.run, &selected(), ExpectedDelivery::Once)
    }
}

fn selected() -> Vec<String> {
    uids("meet", CASES)
}

fn exit_notification() -> Value {
    notification("exit", json!({}))
}

fn exit_request() -> Value {
    request("bye", "exit", json!({}))
}

#[test]
fn exit_drains_running_run() {
    for (exit, last) in [(exit_notification(), None), (exit_request(), Some(json!("bye")))] {
        let (world, rendezvous) = world();
        let mut draining = DrainingServer::new(&world, &rendezvous, &exit);
        draining.release_first();
        // The second test started after `exit`.
        rendezvous.next_test().release();
        draining.server.wait_gone();
        let checked_run = draining.checked_run();
        checked_run.assert_all("passed");
        assert!(checked_run.response.get("error").is_none(), "{}", checked_run.response);
        let events = draining.server.recorder.events();
        let responses: Vec<_> =
            events.iter().filter_map(|event| event.message()?.get("id").cloned()).collect();
        let expected = [json!(1), json!("late"), json!(draining.run.request)].into_iter().chain(last);
        assert_eq!(responses, expected.collect::<Vec<_>>(), "exit is answered last");
        assert_eq!(draining.server.exit_code(), Some(0));
        world.check_tidy();
    }
}

#[test]
fn drained_run_keeps_its_time_limits() {
    let (world, rendezvous) = world();
    world
        .write("heeler.toml", "[profile.default]\njobs = 1\ntimeout = \"300ms\"\ngrace-period = \"100ms\"\n");
    let mut draining = DrainingServer::new(&world, &rendezvous, &exit_notification());
    draining.wait_first_gone();
    rendezvous.next_test().release();
    draining.server.wait_gone();
    let checked_run = draining.checked_run();
    let [first, second] = selected().try_into().unwrap();
    assert_eq!((checked_run.state(&first), checked_run.state(&second)), ("timed-out", "passed"));
    assert_eq!(draining.server.exit_code(), Some(0));
}

#[test]
fn second_exit_or_signal_in_drain_cancels_run() {
    for second in ["exit", "TERM"] {
        let (world, rendezvous) = world();
        let mut draining = DrainingServer::new(&world, &rendezvous, &exit_notification());
        match second {
            "exit" => draining.server.send(&exit_notification()),
            name => signal(draining.server.pid(), name),
        }
        draining.wait_first_gone();
        draining.server.wait_gone();
        let checked_run = draining.checked_run();
        checked_run.assert_all("cancelled");
        assert_eq!(checked_run.response["error"]["code"], -32800);
        assert_eq!(draining.server.exit_code(), Some(0), "{second}");
        world.check_tidy();
    }
}

#[test]
fn disconnect_in_drain_ends_run() {
    let (world, rendezvous) = world();
    let mut draining = DrainingServer::new(&world, &rendezvous, &exit_notification());
    draining.server.disconnect();
    draining.wait_first_gone();
    draining.server.wait_gone();
    assert_eq!(draining.server.exit_code(), Some(0));
    world.check_tidy();
}

#[test]
fn cancel_in_drain_is_obeyed() {
    let (world, rendezvous) = world();
    let mut draining = DrainingServer::new(&world, &rendezvous, &exit_notification());
    draining.server.notify("$/cancelRequest", json!({"id": draining.run.request}));
    draining.wait_first_gone();
    draining.server.wait_gone();
    draining.checked_run().assert_all("cancelled");
    assert_eq!(draining.server.exit_code(), Some(0));
}

#[test]
fn exit_drains_discovery() {
    let world = TestWorld::with_gtest("big");
    let mut server = TestServer::initialized(&world, &["big"]);
    let discovery = server.request("testing/discoverTests", json!({"runId": run_id(1)}));
    server.send(&exit_notification());
    assert!(server.wait_response(discovery).get("error").is_none());
    server.wait_gone();
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn signal_completes_run_before_exit() {
    for name in ["TERM", "INT"] {
        let (world, rendezvous) = world();
        let mut server = TestServer::initialized(&world, &["meet"]);
        let selected = selected();
        let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
        let connected = rendezvous.next_test();
        signal(server.pid(), name);
        connected.wait_gone();
        server.wait_gone();
        let events = server.recorder.events();
        let checked_run = CheckedRun::check(&events, &run, &selected, ExpectedDelivery::Once);
        checked_run.assert_all("cancelled");
        assert_eq!(checked_run.response["error"]["code"], -32800);
        world.check_tidy();
    }
}

#[test]
fn exit_with_absent_or_null_params_ends_session() {
    for exit in [
        json!({"jsonrpc": "2.0", "method": "exit"}),
        json!({"jsonrpc": "2.0", "method": "exit", "params": null}),
        json!({"jsonrpc": "2.0", "method": "exit", "params": []}),
        json!({"jsonrpc": "2.0", "method": "exit", "id": null}),
        json!({"jsonrpc": "2.0", "method": "exit", "id": 0}),
    ] {
        let world = TestWorld::with_gtest("deaths");
        let mut server = TestServer::initialized(&world, &["deaths"]);
        server.skip_schema_checks();
        server.send(&exit);
        server.wait_gone();
        world.check_tidy();
    }
}

/// How a session that was not initialized ends.
#[derive(Debug, Clone, Copy)]
enum EarlyEnd {
    Exit,
    ExitAfterRefusal,
    Disconnect,
    Signal,
}

/// At the end of a session, Heeler waits only for processes that exist. Every expired wait is logged, so the
/// log must stay empty.
#[test]
fn end_before_initialize_waits_for_nothing() {
    for end in [EarlyEnd::Exit, EarlyEnd::ExitAfterRefusal, EarlyEnd::Disconnect, EarlyEnd::Signal] {
        let world = TestWorld::with_gtest("deaths");
        world.env("HEELER_LOG", "warn");
        let mut server = TestServer::start(&world, &["deaths"]);
        server.skip_schema_checks();
        match end {
            EarlyEnd::Exit => server.send(&exit_request()),
            EarlyEnd::ExitAfterRefusal => {
                let refused = json!({"capabilities": {}, "protocolVersions": ["7.0.0"]});
                assert_eq!(server.request_and_wait("initialize", refused)["error"]["code"], -31699);
                server.send(&exit_request());
            }
            EarlyEnd::Disconnect => server.disconnect(),
            EarlyEnd::Signal => {
                // The response to this request shows that the signal handlers are installed.
                assert_eq!(server.request_and_wait("no/such/method", json!({}))["error"]["code"], -32002);
                signal(server.pid(), "TERM");
            }
        }
        server.wait_gone();
        assert_eq!(server.errors_so_far(), "", "{end:?}");
        let code = if matches!(end, EarlyEnd::Disconnect) { 3 } else { 0 };
        assert_eq!(server.exit_code(), Some(code), "{end:?}");
    }
}

#[test]
fn silent_client_does_not_delay_end_of_listening_server() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_LOG", "warn");
    let mut server = TestServer::start_over(ServerTransport::Listen, &world, &["deaths"]);
    // The response to this request shows that the second session has begun.
    let mut second = server.connect();
    framing::write_message(&mut second, &request(1, "no/such/method", json!({}))).unwrap();
    second.flush().unwrap();
    assert_eq!(MessageReader::new(second.try_clone().unwrap()).next().unwrap()["id"], 1);
    signal(server.pid(), "TERM");
    server.wait_gone();
    let errors = server.errors_so_far();
    assert!(errors.lines().all(|line| line.contains("listening on")), "{errors}");
    assert_eq!(server.exit_code(), Some(0));
}
