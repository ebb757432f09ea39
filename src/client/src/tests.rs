//! Sessions with a scripted server, and with real callback connections like a worker's.

use std::{cell::Cell, time::Duration};

use bytes::Bytes;
use heeler_protocol::{
    control::{CallbackAddress, DeliveryLimits, ProofLevel},
    frame::FrameDecoder,
    mtp::{
        self, Attachment, CancelParams, ExecutionState, InitializeParams, LogLevel, TestNode, TestsParams,
        method,
    },
    rpc::{self, RequestId, RpcError, RpcMessage, code},
};
use heeler_transport::{Inbox, LinkTask, Outbox, callback::CallbackConnection};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{
    Client, ClientError, ClientEvent, ClientOptions, EventSource, EventStream, LateUpdate, TestRequest,
    events::{EVENT_QUEUE_BYTES, EVENT_QUEUE_CAPACITY},
};

/// Timeout of every wait in these tests.
const WAIT_LIMIT: Duration = Duration::from_secs(20);
const LIMITS: DeliveryLimits = DeliveryLimits {
    connect_ms: 5_000,
    stall_ms: 5_000,
    drain_ms: 5_000,
    answer_ms: 20_000,
    first_answer_ms: 20_000,
};
const RUN: &str = "5e6cd8f8-63a9-4f0a-9d0c-6a2a4c4d6e01";

/// The server's end of a session.
struct ScriptedServer {
    outbox: Outbox,
    inbox: Inbox<FrameDecoder>,
    task: LinkTask,
    callback: Option<CallbackAddress>,
}

impl ScriptedServer {
    async fn accept(stream: DuplexStream) -> Self {
        let (outbox, inbox, task) = heeler_transport::open(stream, FrameDecoder::default());
        let mut server = Self { outbox, inbox, task, callback: None };
        let (id, params) = server.expect_request(method::INITIALIZE).await;
        let params: InitializeParams = serde_json::from_str(&params).unwrap();
        assert_eq!(params.process_id, Some(std::process::id()));
        let testing = params.capabilities.testing;
        assert!(testing.attachments_support && !testing.debugger_provider && testing.batch_logging_support);
        server.callback = testing
            .callback_provider
            .map(|provider| CallbackAddress::new("127.0.0.1", provider.port, provider.token));
        let result = mtp::InitializeResult { process_id: 7, ..mtp::InitializeResult::default() };
        server.send(rpc::encode_result(&id, &result)).await;
        server
    }

    async fn send(&self, frame: Bytes) {
        timeout(WAIT_LIMIT, self.outbox.send(frame)).await.unwrap().unwrap();
    }

    async fn receive_message(&mut self) -> RpcMessage {
        rpc::parse(&timeout(WAIT_LIMIT, self.inbox.next()).await.unwrap().unwrap().unwrap()).unwrap()
    }

    async fn expect_request(&mut self, expected: &str) -> (RequestId, String) {
        let RpcMessage::Request { id, method, params } = self.receive_message().await else { panic!() };
        assert_eq!(method, expected);
        (id, params.unwrap().get().to_owned())
    }

    async fn dial(&self, from: &str, limits: DeliveryLimits) -> CallbackConnection {
        heeler_transport::callback::dial(self.callback.as_ref().unwrap(), &limits, from, None).await.unwrap()
    }
}

async fn session_with(options: ClientOptions) -> (Client, EventStream, ScriptedServer) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (connected, server) = tokio::join!(Client::connect(near, options), ScriptedServer::accept(far));
    let (client, events) = connected.unwrap();
    (client, events, server)
}

async fn session() -> (Client, EventStream, ScriptedServer) {
    session_with(ClientOptions::default()).await
}

async fn event(events: &mut EventStream) -> ClientEvent {
    timeout(WAIT_LIMIT, events.next()).await.unwrap().unwrap()
}

fn request() -> TestRequest {
    TestRequest { run_id: RUN.to_owned(), ..TestRequest::default() }
}

fn update(uid: &str, state: ExecutionState) -> Bytes {
    let change = mtp::encode_change(&TestNode::test(uid, uid, state));
    mtp::updates_frame(RUN, [change.as_slice()])
}

fn worker(name: &str) -> EventSource {
    EventSource::Callback(name.into())
}

#[tokio::test]
async fn run_ends_after_response_and_completion() {
    let (client, mut events, mut server) = session().await;
    assert_eq!(client.server_info().process_id, 7);
    let has_ended = Cell::new(false);
    let run = async {
        let result = client.run(request()).await.unwrap();
        has_ended.set(true);
        result
    };
    let script = async {
        let (id, params) = server.expect_request(method::RUN).await;
        let params: TestsParams = serde_json::from_str(&params).unwrap();
        assert_eq!((params.run_id.as_str(), params.tests), (RUN, None));
        let attachments = vec![Attachment { uri: "/a".to_owned(), ..Attachment::default() }];
        server
            .send(rpc::encode_result(&id, &mtp::RunResult { attachments, ..mtp::RunResult::default() }))
            .await;
        // The log message follows the response, so receiving it proves that the response has arrived.
        server.send(mtp::log_frame(LogLevel::Warning, "answered")).await;
        let log = ClientEvent::Log {
            run_id: None,
            node_uid: None,
            level: LogLevel::Warning,
            message: "answered".to_owned(),
        };
        assert_eq!(event(&mut events).await, log);
        assert!(!has_ended.get(), "the completion has not come yet");
        let mut watchdog = server.dial("watchdog", LIMITS).await;
        watchdog.send_completion(RUN, &RUN.into(), mtp::completion_frame(RUN)).await.unwrap();
        assert_eq!(watchdog.finish().await, ProofLevel::Handled);
        assert_eq!(event(&mut events).await, ClientEvent::Completed { run_id: RUN.to_owned() });
    };
    let (result, ()) = timeout(WAIT_LIMIT, async { tokio::join!(run, script) }).await.unwrap();
    assert_eq!(result.attachments[0].uri, "/a");
}

#[tokio::test]
async fn answered_barrier_proves_earlier_events_are_queued() {
    let (_client, mut events, server) = session().await;
    let mut callback = server.dial("worker 3", LIMITS).await;
    let uids: Vec<_> = (0..100).map(|number| format!("t{number}")).collect();
    for uid in &uids {
        callback.send(RUN, update(uid, ExecutionState::Passed), 1).await.unwrap();
    }
    assert_eq!(callback.prove().await, ProofLevel::Handled);
    for uid in &uids {
        let Some(ClientEvent::Changes { run_id, source, changes }) = events.try_next() else {
            panic!("{uid}")
        };
        assert_eq!((run_id.as_str(), source), (RUN, worker("worker 3")));
        assert_eq!(&changes[0].node.uid, uid);
    }
    assert_eq!(events.try_next(), None);
}

#[tokio::test]
async fn barrier_waits_until_earlier_events_are_read() {
    let (_client, mut events, server) = session().await;
    let limits = DeliveryLimits { answer_ms: 100, ..LIMITS };
    let mut callback = server.dial("worker 1", limits).await;
    for _ in 0..=EVENT_QUEUE_CAPACITY {
        callback.send(RUN, update("t", ExecutionState::InProgress), 1).await.unwrap();
    }
    assert_eq!(callback.prove().await, ProofLevel::None, "the last update has no room");
    event(&mut events).await;
    event(&mut events).await;
    assert_eq!(callback.prove().await, ProofLevel::Handled);
}

#[tokio::test]
async fn large_messages_wait_although_few_events_are_queued() {
    let (_client, mut events, server) = session().await;
    let limits = DeliveryLimits { answer_ms: 100, ..LIMITS };
    let mut callback = server.dial("worker 1", limits).await;
    let output = || {
        let mut node = TestNode::test("t", "t", ExecutionState::InProgress);
        node.standard_output = Some("x".repeat(EVENT_QUEUE_BYTES / 2));
        mtp::updates_frame(RUN, [mtp::encode_change(&node).as_slice()])
    };
    for _ in 0..2 {
        callback.send(RUN, output(), 1).await.unwrap();
    }
    assert_eq!(callback.prove().await, ProofLevel::None, "the second message has no room");
    event(&mut events).await;
    assert_eq!(callback.prove().await, ProofLevel::Handled);
}

#[tokio::test]
async fn update_after_completion_is_reported() {
    let (_client, mut events, server) = session().await;
    let mut callback = server.dial("worker 1", LIMITS).await;
    server.send(mtp::completion_frame(RUN)).await;
    assert_eq!(event(&mut events).await, ClientEvent::Completed { run_id: RUN.to_owned() });
    callback.send_completion(RUN, &RUN.into(), mtp::completion_frame(RUN)).await.unwrap();
    callback.send(RUN, update("t", ExecutionState::Passed), 1).await.unwrap();
    callback.send(RUN, mtp::attachments_frame(RUN, Some(Vec::new())), 0).await.unwrap();
    callback.send(RUN, mtp::attachments_frame(RUN, None), 0).await.unwrap();
    callback.send(RUN, mtp::attachments_frame("another", None), 0).await.unwrap();
    let mut late_ones = Vec::new();
    for _ in 0..3 {
        let ClientEvent::UpdateAfterCompletion { run_id, source, late } = event(&mut events).await else {
            panic!()
        };
        assert_eq!((run_id.as_str(), source), (RUN, worker("worker 1")));
        late_ones.push(late);
    }
    assert!(matches!(&late_ones[0], LateUpdate::Changes(changes) if changes[0].node.uid == "t"));
    assert_eq!(late_ones[1..], [LateUpdate::Attachments(Vec::new()), LateUpdate::AttachmentsEnded]);
    assert_eq!(event(&mut events).await, ClientEvent::AttachmentsEnded { run_id: "another".to_owned() });
}

#[tokio::test]
async fn connection_without_token_is_refused() {
    let options = ClientOptions { hello_limit: Duration::from_millis(200), ..ClientOptions::default() };
    let (_client, mut events, server) = session_with(options).await;
    let address = server.callback.clone().unwrap();
    let untrusted_peers = [
        (update("forged", ExecutionState::Passed), "is not $/heeler/hello"),
        (
            rpc::encode_notification(
                method::HELLO,
                &mtp::HelloParams { token: "guess".to_owned(), from: "worker 1".to_owned() },
            ),
            "wrong token",
        ),
        (heeler_protocol::frame::encode(&[b' '; 5000]), "exceeds the limit"),
        (Bytes::from_static(b"Content-Le"), "no hello within"),
    ];
    for (words, expected) in untrusted_peers {
        let mut stream = TcpStream::connect((address.host.as_str(), address.port)).await.unwrap();
        stream.write_all(&words).await.unwrap();
        let ClientEvent::CallbackRefused { reason } = event(&mut events).await else { panic!() };
        assert!(reason.contains(expected), "{reason}");
        // A rejected peer receives no data, and its connection ends.
        let mut received = Vec::new();
        let end = timeout(WAIT_LIMIT, stream.read_to_end(&mut received)).await.unwrap();
        assert!(end.is_err() || received.is_empty());
    }
}

#[tokio::test]
async fn cancelled_run_ends_with_the_servers_error() {
    let (client, mut events, mut server) = session().await;
    client.cancel(RUN).await.unwrap();
    let run = client.run(request());
    let script = async {
        let (id, _) = server.expect_request(method::RUN).await;
        client.cancel("another run").await.unwrap();
        client.cancel(RUN).await.unwrap();
        let RpcMessage::Notification { method, params } = server.receive_message().await else { panic!() };
        assert_eq!(method, method::CANCEL);
        let params: CancelParams = serde_json::from_str(params.unwrap().get()).unwrap();
        assert_eq!(params.id, id);
        server.send(mtp::completion_frame(RUN)).await;
        server.send(rpc::encode_error(&id, &RpcError::new(code::REQUEST_CANCELLED, "cancelled"))).await;
    };
    let (ran, ()) = tokio::join!(run, script);
    assert!(ran.unwrap_err().is_cancelled());
    assert_eq!(event(&mut events).await, ClientEvent::Completed { run_id: RUN.to_owned() });
}

#[tokio::test]
async fn callback_results_arrive_after_server_death() {
    let (client, mut events, mut server) = session().await;
    let run = client.run(request());
    let script = async {
        server.expect_request(method::RUN).await;
        let mut watchdog = server.dial("watchdog", LIMITS).await;
        // Proves that the client has accepted this connection before the other one breaks.
        assert_eq!(watchdog.prove().await, ProofLevel::Handled);
        server.task.cut().await;
        drop(server);
        let ClientEvent::ConnectionLost { source: EventSource::Main, .. } = event(&mut events).await else {
            panic!()
        };
        watchdog.send(RUN, update("t", ExecutionState::Passed), 1).await.unwrap();
        watchdog.send_completion(RUN, &RUN.into(), mtp::completion_frame(RUN)).await.unwrap();
        assert_eq!(watchdog.finish().await, ProofLevel::Handled);
    };
    let (ran, ()) = timeout(WAIT_LIMIT, async { tokio::join!(run, script) }).await.unwrap();
    assert!(matches!(ran.unwrap_err(), ClientError::ConnectionLost { is_complete: true, .. }));
    assert!(matches!(event(&mut events).await, ClientEvent::Changes { .. }));
    assert!(matches!(event(&mut events).await, ClientEvent::Completed { .. }));
    let error = client.run(request()).await.unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
}

#[tokio::test]
async fn run_without_connections_ends_at_once() {
    let (client, mut events, mut server) = session().await;
    let script = async {
        server.expect_request(method::RUN).await;
        server.send(Bytes::from_static(b"Content-Length: 5\r\n\r\n{")).await;
        server.outbox.flush().await.unwrap();
        drop(server);
    };
    let (ran, ()) = timeout(WAIT_LIMIT, async { tokio::join!(client.run(request()), script) }).await.unwrap();
    let error = ran.unwrap_err();
    assert!(matches!(error, ClientError::ConnectionLost { is_complete: false, .. }), "{error}");
    let ClientEvent::ConnectionLost { source: EventSource::Main, reason } = event(&mut events).await else {
        panic!()
    };
    assert!(reason.contains("in the middle"), "{reason}");
}

#[tokio::test]
async fn response_without_completion_is_an_error() {
    let options = ClientOptions { completion_limit: Duration::from_millis(50), ..ClientOptions::default() };
    let (client, _events, mut server) = session_with(options).await;
    let script = async {
        let (id, _) = server.expect_request(method::DISCOVER).await;
        server.send(rpc::encode_result(&id, &())).await;
    };
    let (ran, ()) = tokio::join!(client.discover(request()), script);
    let error = ran.unwrap_err();
    assert!(
        matches!(error, ClientError::CompletionTimedOut { .. }) && error.to_string().contains(RUN),
        "{error}"
    );
}

#[tokio::test]
async fn exit_waits_for_the_server_until_its_deadline() {
    let (client, mut events, mut server) = session().await;
    let script = async {
        let RpcMessage::Notification { method, .. } = server.receive_message().await else { panic!() };
        assert_eq!(method, method::EXIT);
        drop(server);
    };
    let (left, ()) = tokio::join!(client.exit(Instant::now() + WAIT_LIMIT), script);
    left.unwrap();
    assert_eq!(
        timeout(WAIT_LIMIT, events.next()).await.unwrap(),
        None,
        "the end is in order and the last word"
    );

    let (client, _events, _server) = session().await;
    let left = client.exit(Instant::now() + Duration::from_millis(50)).await;
    assert!(matches!(left, Err(ClientError::ServerStillRunning)));
}

#[tokio::test]
async fn initialize_without_response_times_out() {
    let (near, _far) = tokio::io::duplex(64 << 10);
    let options = ClientOptions { initialize_limit: Duration::from_millis(50), ..ClientOptions::default() };
    let error = Client::connect(near, options).await.unwrap_err();
    assert!(matches!(error, ClientError::InitializeTimedOut { .. }), "{error}");
}

#[tokio::test]
async fn server_requests_get_responses_and_invalid_messages_events() {
    let options = ClientOptions { callback: false, ..ClientOptions::default() };
    let (_client, mut events, mut server) = session_with(options).await;
    assert_eq!(server.callback, None);
    let (telemetry, unknown) = (RequestId::String("a".into()), RequestId::number(0));
    server.send(rpc::encode_request(&telemetry, method::TELEMETRY, &[("eventName", 1)])).await;
    server.send(rpc::encode_request(&unknown, "client/attachDebugger", &())).await;
    server.send(rpc::encode_notification(method::UPDATES, &"no update")).await;
    server.send(heeler_protocol::frame::encode(b"{")).await;
    let RpcMessage::Response { id, outcome } = server.receive_message().await else { panic!() };
    assert_eq!(id, telemetry);
    outcome.unwrap();
    let RpcMessage::Response { id, outcome } = server.receive_message().await else { panic!() };
    assert_eq!((id, outcome.unwrap_err().code), (unknown, code::METHOD_NOT_FOUND));
    assert!(matches!(event(&mut events).await, ClientEvent::Telemetry { .. }));
    for _ in 0..2 {
        assert!(matches!(
            event(&mut events).await,
            ClientEvent::InvalidMessage { source: EventSource::Main, .. }
        ));
    }
    let RpcMessage::Response { id, outcome } = server.receive_message().await else { panic!() };
    assert_eq!((id, outcome.unwrap_err().code), (RequestId::Null, code::PARSE_ERROR));
}
