//! Clients that read quickly and handle messages slowly, on callback connections. By the completion, the
//! client must have *handled* every message of the run, not only read it. `heeler-faults --load` does the
//! same with larger numbers.

use std::time::{Duration, Instant};

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::{CheckedRun, ExpectedDelivery},
    handling_order,
    message_handlers::{HandlerDuration, HandlerQueues, MessageHandling, ResponseRule},
    process::{ProcessRole, signal},
    recorder::{ClientConnection, DEADLINE, RecordedEvent},
    server::{RequestedRun, TestServer},
    uids,
    world::TestWorld,
};

const UPDATES: &str = "testing/testUpdates/tests";

/// A client that handles and responds like StreamJsonRpc with its default settings.
fn as_stream_json_rpc(duration: HandlerDuration) -> MessageHandling {
    let queues = HandlerQueues::PerConnection;
    MessageHandling { queues, duration, responses: ResponseRule::UnknownAtOnce, busy_once: None }
}

/// A client that handles and responds like vscode-jsonrpc.
fn as_vscode_jsonrpc(duration: HandlerDuration) -> MessageHandling {
    let queues = HandlerQueues::InTurn;
    MessageHandling { queues, duration, responses: ResponseRule::InOrder, busy_once: None }
}

/// A client that handles and responds like lsp4j.
fn as_lsp4j(duration: HandlerDuration) -> MessageHandling {
    MessageHandling { responses: ResponseRule::UnknownInOrder, ..as_stream_json_rpc(duration) }
}

/// Returns a world with this many trivial tests, and their uids. The timeout for unanswered barriers is
/// shorter than the handlers take.
fn world(cases: usize) -> (TestWorld, Vec<String>) {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &cases.to_string());
    world.write("heeler.toml", "[profile.default]\njobs = 2\ndrain-timeout = \"200ms\"\n");
    let names: Vec<String> = (0..cases).map(|n| format!("N/Big.Case/{n}")).collect();
    let selected = uids("big", names.iter().map(String::as_str));
    (world, selected)
}

/// Ends the session, waits until the client has handled everything it read, and checks the handling order.
fn finish_handled(
    server: TestServer<'_>,
    run: &RequestedRun,
    selected: &[String],
    delivery: ExpectedDelivery,
) -> CheckedRun {
    server.wait_response(run.request);
    let recorder = server.recorder.clone();
    // Dropping the server waits for the listener's handlers.
    assert_eq!(server.exit(), Some(0));
    // The test harness prints this only if a check fails.
    println!("{}", recorder.wire_log());
    let events = recorder.events();
    handling_order::check(&events, run, delivery);
    CheckedRun::check_handled(&events, run, selected, delivery)
}

/// Runs trivial tests with a client that has this message handling.
fn check_all_is_handled(cases: usize, handling: MessageHandling) {
    let (world, selected) = world(cases);
    let mut server = TestServer::with_handlers(&world, &["big"], handling, |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    finish_handled(server, &run, &selected, ExpectedDelivery::Once).assert_all("passed");
}

#[test]
fn completion_follows_handling_of_many_tests() {
    let duration = HandlerDuration::PerChange(Duration::from_micros(300));
    check_all_is_handled(2000, as_stream_json_rpc(duration));
    check_all_is_handled(2000, as_vscode_jsonrpc(duration));
}

#[test]
fn completion_follows_handling_of_slow_changes() {
    let duration = HandlerDuration::PerChange(Duration::from_millis(2));
    check_all_is_handled(300, as_stream_json_rpc(duration));
    check_all_is_handled(300, as_vscode_jsonrpc(duration));
}

#[test]
fn one_queue_for_all_connections_handles_everything_before_completion() {
    let duration = HandlerDuration::PerNotification(Duration::from_millis(20));
    let handling = MessageHandling { queues: HandlerQueues::Shared, ..as_stream_json_rpc(duration) };
    check_all_is_handled(1000, handling);
}

#[test]
fn client_that_answers_on_other_connections_is_waited_for() {
    // One thread handles the messages of all four connections. The time between two responses on one
    // connection exceeds the timeout, but the time between two responses over all connections does not.
    let duration = HandlerDuration::PerChange(Duration::from_millis(1));
    let handling = MessageHandling { queues: HandlerQueues::Shared, ..as_stream_json_rpc(duration) };
    let (world, selected) = world(7_000);
    world.write("heeler.toml", "[profile.default]\njobs = 4\nclient-answer-timeout = \"2s\"\n");
    let mut server = TestServer::with_handlers(&world, &["big"], handling, |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let checked_run = finish_handled(server, &run, &selected, ExpectedDelivery::Once);
    checked_run.assert_all("passed");
    assert!(
        !checked_run.log.iter().any(|line| line.contains("has stopped handling")),
        "{:#?}",
        checked_run.log
    );
}

/// Runs tests with a client that reads one connection slowly. Some tests crash and are retried.
fn check_throttled(throttled: usize, handling: MessageHandling) {
    // The script is long enough for the slow connection to fall behind before a test crashes.
    let script = ["p".repeat(90), "cwfpa".to_owned(), "p".repeat(30), "kpc".to_owned()].concat().repeat(3);
    let world = TestWorld::with_gtest("faults");
    world.env("HEELER_FIXTURE_SCRIPT", &script);
    let settings = "jobs = 2\nretries = 1\ndrain-timeout = \"200ms\"\ncrash-capture = \"off\"\n";
    world.write("heeler.toml", &format!("[profile.default]\n{settings}"));
    let choose = move |number| match number {
        _ if number == throttled => ListenerBehaviour::ReadsAtRate(1 << 10, Duration::from_millis(10)),
        _ => ListenerBehaviour::Normal,
    };
    let mut server = TestServer::with_handlers(&world, &["faults"], handling, choose);
    let run = server.run(None);
    let names: Vec<String> = (0..script.len()).map(|n| format!("N/Fault.Case/{n}")).collect();
    let selected = uids("faults", names.iter().map(String::as_str));
    let checked_run = finish_handled(server, &run, &selected, ExpectedDelivery::Once);
    for (uid, letter) in selected.iter().zip(script.chars()) {
        let expected = match letter {
            'f' => "failed",
            'c' | 'a' | 'k' => "error",
            _ => "passed",
        };
        assert_eq!(checked_run.state(uid), expected, "{uid}");
    }
}

#[test]
fn no_crashed_test_ends_in_progress_when_one_stream_is_throttled() {
    for throttled in 0..3 {
        check_throttled(throttled, as_stream_json_rpc(HandlerDuration::PerChange(Duration::ZERO)));
        check_throttled(throttled, as_vscode_jsonrpc(HandlerDuration::PerChange(Duration::ZERO)));
    }
}

/// Kills a process while the client has many messages to handle.
fn check_death(role: ProcessRole, handling: MessageHandling) {
    let (world, selected) = world(600);
    let mut server = TestServer::with_handlers(&world, &["big"], handling, |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    server.recorder.wait("its first results", |events| {
        let on_callback = |event: &&RecordedEvent| event.on != ClientConnection::Main;
        events.iter().filter(on_callback).any(|event| event.params(UPDATES).is_some()).then_some(())
    });
    signal(server.processes(role)[0], "KILL");
    let checked_run = finish_handled(server, &run, &selected, ExpectedDelivery::Once);
    checked_run.assert_all("passed");
}

#[test]
fn death_of_worker_repeats_nothing_to_slow_client() {
    let duration = HandlerDuration::PerChange(Duration::from_millis(1));
    check_death(ProcessRole::Worker, as_stream_json_rpc(duration));
    check_death(ProcessRole::Worker, as_vscode_jsonrpc(duration));
}

#[test]
fn death_of_watchdog_repeats_nothing_to_slow_client() {
    let duration = HandlerDuration::PerChange(Duration::from_millis(1));
    check_death(ProcessRole::Watchdog, as_stream_json_rpc(duration));
    check_death(ProcessRole::Watchdog, as_vscode_jsonrpc(duration));
}

/// Runs trivial tests with a client whose handlers block once, at one of the first messages, for longer than
/// the timeout of the first response.
fn check_busy_once(handling: MessageHandling) {
    // The checks run in parallel because they mostly wait.
    std::thread::scope(|scope| {
        for at in [0, 2, 3, 5] {
            let busy_once = Some((at, Duration::from_secs(3)));
            scope.spawn(move || check_all_is_handled(500, MessageHandling { busy_once, ..handling }));
        }
    });
}

#[test]
fn client_that_is_busy_once_handles_everything_before_completion() {
    let duration = HandlerDuration::PerChange(Duration::from_micros(100));
    check_busy_once(as_stream_json_rpc(duration));
    check_busy_once(as_vscode_jsonrpc(duration));
    check_busy_once(as_lsp4j(duration));
}

#[test]
fn client_that_answers_unknown_methods_only_handles_everything_once() {
    let (world, selected) = world(2000);
    let handling = as_lsp4j(HandlerDuration::PerChange(Duration::from_micros(300)));
    let mut server = TestServer::with_handlers(&world, &["big"], handling, |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let checked_run = finish_handled(server, &run, &selected, ExpectedDelivery::Once);
    checked_run.assert_all("passed");
    assert!(
        checked_run.results_on.values().all(|on| *on != ClientConnection::Main),
        "the callback port is used"
    );
    assert_ne!(checked_run.completion_on, ClientConnection::Main);
}

#[test]
fn client_that_takes_log_requests_for_notifications_costs_no_long_wait() {
    let (world, selected) = world(200);
    let handling = as_vscode_jsonrpc(HandlerDuration::PerNotification(Duration::ZERO));
    let handling = MessageHandling { responses: ResponseRule::NoneForLog, ..handling };
    let mut server = TestServer::with_handlers(&world, &["big"], handling, |_| ListenerBehaviour::Normal);
    let start = Instant::now();
    let first = server.run(None);
    server.wait_response(first.request);
    let run = server.run(None);
    server.wait_response(run.request);
    let took = start.elapsed();
    assert!(took < DEADLINE / 10, "two runs took {took:?}");
    let checked_run = finish_handled(server, &run, &selected, ExpectedDelivery::Once);
    checked_run.assert_all("passed");
    assert!(
        checked_run.results_on.values().all(|on| *on != ClientConnection::Main),
        "the callback port is used"
    );
}

#[test]
fn client_without_answers_costs_no_long_wait() {
    let (world, selected) = world(200);
    // With the default timeouts, the end of each run would take long if Heeler did not learn early that the
    // client never responds.
    world.write("heeler.toml", "[profile.default]\njobs = 2\n");
    let duration = HandlerDuration::PerNotification(Duration::ZERO);
    let handling = MessageHandling { responses: ResponseRule::Never, ..as_vscode_jsonrpc(duration) };
    let mut server = TestServer::with_handlers(&world, &["big"], handling, |_| ListenerBehaviour::Normal);
    let start = Instant::now();
    for _ in 0..2 {
        let run = server.run(None);
        let response = server.wait_response(run.request);
        assert!(response.get("error").is_none(), "{response}");
    }
    let took = start.elapsed();
    assert!(took < DEADLINE / 10, "two runs took {took:?}");
    let run = server.run(None);
    finish_handled(server, &run, &selected, ExpectedDelivery::Once).assert_all("passed");
}
