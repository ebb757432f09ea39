//! Delivery proofs over real sockets, with well-behaved, slow and broken clients.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use heeler_protocol::{
    control::{CallbackAddress, DeliveryLimits, ProofLevel},
    frame::FrameDecoder,
    mtp::{self, HelloParams, method},
    rpc::{self, RequestId, RpcError, RpcMessage, code},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{CallbackBroken, CallbackConnection, CallbackDialError, dial};
use crate::tcp::DialError;
use crate::{Inbox, LinkTask, Outbox};

/// Upper bound of every wait in these tests.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(20);
pub(super) const LIMITS: DeliveryLimits =
    DeliveryLimits { connect_ms: 5_000, stall_ms: 300, drain_ms: 300, answer_ms: 300, first_answer_ms: 300 };

/// Client's end of a callback connection.
pub(super) struct LinkTestClient {
    outbox: Outbox,
    inbox: Inbox<FrameDecoder>,
    pub(super) task: LinkTask,
}

impl LinkTestClient {
    pub(super) fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (outbox, inbox, task) = crate::open(stream, FrameDecoder::default());
        Self { outbox, inbox, task }
    }

    pub(super) async fn next_message(&mut self) -> Option<RpcMessage> {
        let body = timeout(TEST_TIMEOUT, self.inbox.next()).await.unwrap().unwrap()?;
        Some(rpc::parse(&body).unwrap())
    }

    /// Reads and answers barriers until this many notifications have arrived and the barrier after them is
    /// answered.
    pub(super) async fn answer_barriers(&mut self, mut notifications: usize) {
        loop {
            let (id, before) = self.next_barrier().await;
            notifications -= before;
            self.answer(&id).await;
            if notifications == 0 && before > 0 {
                return;
            }
        }
    }

    pub(super) async fn send(&self, frame: Bytes) {
        self.outbox.send(frame).await.unwrap();
    }

    pub(super) async fn answer(&self, id: &RequestId) {
        self.outbox.send(rpc::encode_error(id, &unknown_method_error())).await.unwrap();
    }

    /// Reads up to the next request; returns its id and the number of notifications before it.
    pub(super) async fn next_barrier(&mut self) -> (RequestId, usize) {
        let mut notifications = 0;
        loop {
            match self.next_message().await.unwrap() {
                RpcMessage::Notification { .. } => notifications += 1,
                RpcMessage::Request { id, method, params } => {
                    assert!(matches!(id, RequestId::Number(_)), "{id:?}");
                    assert_eq!(method, method::UPDATES);
                    assert_eq!(params.unwrap().get(), r#"{"runId":"r","changes":[]}"#);
                    return (id, notifications);
                }
                RpcMessage::Response { .. } => panic!("an unexpected response"),
            }
        }
    }
}

pub(super) async fn connect_with(
    token: Option<&str>,
    limits: DeliveryLimits,
) -> (CallbackConnection, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = CallbackAddress::new("localhost", port, token.map(str::to_owned));
    let (callback, accepted) = tokio::join!(dial(&address, &limits, "worker 3", None), listener.accept());
    (callback.unwrap(), accepted.unwrap().0)
}

async fn connect_pair() -> (CallbackConnection, LinkTestClient) {
    let (callback, stream) = connect_with(None, LIMITS).await;
    (callback, LinkTestClient::new(stream))
}

/// Lets the client answer the opening barrier.
pub(super) async fn open(callback: &mut CallbackConnection, client: &mut LinkTestClient) {
    let answer = async {
        let (opening, before) = client.next_barrier().await;
        assert_eq!(before, 0, "nothing precedes the opening barrier");
        client.answer(&opening).await;
    };
    let (opened, ()) = tokio::join!(callback.open_updates("r"), answer);
    opened.unwrap();
}

/// Returns a connection opened by the client.
async fn open_pair() -> (CallbackConnection, LinkTestClient) {
    let (mut callback, mut client) = connect_pair().await;
    open(&mut callback, &mut client).await;
    (callback, client)
}

pub(super) fn update() -> Bytes {
    mtp::updates_frame("r", [&b"{}"[..]])
}

fn big_frame() -> Bytes {
    heeler_protocol::frame::encode(&vec![b' '; 64 << 10])
}

fn unknown_method_error() -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, "what?")
}

#[tokio::test]
async fn barrier_error_reply_proves_handling_and_keeps_connection() {
    let (mut callback, mut client) = connect_pair().await;
    let client = async {
        for _ in 0..2 {
            client.answer_barriers(3).await;
        }
        assert!(client.next_message().await.is_none(), "the connection ends in order");
    };
    let worker = async {
        assert_eq!(callback.prove().await, ProofLevel::Handled, "nothing was sent");
        for _ in 0..2 {
            for _ in 0..3 {
                callback.send("r", update(), 1).await.unwrap();
            }
            assert_eq!(callback.prove().await, ProofLevel::Handled);
        }
        assert_eq!(callback.handled_frames(), 6);
        assert_eq!(callback.break_reason(), None);
        assert_eq!(callback.finish().await, ProofLevel::Handled);
    };
    tokio::join!(client, worker);
}

#[tokio::test]
async fn barrier_result_reply_proves_handling() {
    let (mut callback, mut client) = connect_pair().await;
    let client = async {
        for expected in [0, 1] {
            let (id, before) = client.next_barrier().await;
            assert_eq!(before, expected);
            client.outbox.send(rpc::encode_result(&id, &())).await.unwrap();
        }
        assert!(client.next_message().await.is_none());
    };
    let worker = async {
        callback.send("r", update(), 1).await.unwrap();
        callback.finish().await
    };
    let ((), proof) = tokio::join!(client, worker);
    assert_eq!(proof, ProofLevel::Handled);
}

#[tokio::test]
async fn stray_reply_opens_nothing() {
    let (mut callback, mut client) = connect_pair().await;
    let client = async {
        client.next_barrier().await;
        for stray in [RequestId::number(77), RequestId::Null, RequestId::String("1".into())] {
            client.outbox.send(rpc::encode_error(&stray, &unknown_method_error())).await.unwrap();
        }
        client
    };
    let (_client, sent) = tokio::join!(client, callback.send("r", update(), 1));
    assert_eq!(sent, Err(CallbackBroken::Unopened));
}

#[tokio::test]
async fn client_that_does_not_answer_receives_no_update() {
    let (mut callback, mut client) = connect_pair().await;
    assert_eq!(callback.send("r", update(), 1).await, Err(CallbackBroken::Unopened));
    let (_, before) = client.next_barrier().await;
    assert_eq!(before, 0);
    callback.give_up().await;
    assert!(client.inbox.next().await.is_err(), "the connection is reset");
}

#[tokio::test]
async fn service_that_echoes_is_no_client() {
    let (mut callback, mut stream) = connect_with(None, LIMITS).await;
    let echo = async move {
        let mut buffer = vec![0; 1 << 10];
        while let Ok(count) = stream.read(&mut buffer).await
            && count > 0
        {
            stream.write_all(&buffer[..count]).await.unwrap();
        }
    };
    let worker = async {
        let sent = callback.send("r", update(), 1).await;
        drop(callback);
        sent
    };
    assert_eq!(tokio::join!(echo, worker).1, Err(CallbackBroken::NoClient));
}

#[tokio::test]
async fn updates_wait_until_the_client_has_handled_earlier_ones() {
    let (mut callback, mut client) = open_pair().await;
    callback.send("r", update(), 1).await.unwrap();
    // Each frame fills a window, and two windows may be open.
    for _ in 0..2 {
        timeout(TEST_TIMEOUT, callback.send("r", update(), 1_000)).await.unwrap().unwrap();
    }
    {
        let mut third = pin!(callback.send("r", update(), 1_000));
        let (first_window, before) = client.next_barrier().await;
        assert_eq!(before, 2);
        assert!(futures_poll(&mut third).await.is_none(), "two barriers are open");
        client.answer(&first_window).await;
        timeout(TEST_TIMEOUT, third).await.unwrap().unwrap();
    }
    assert_eq!(callback.handled_frames(), 2);
}

/// Polls a future once.
async fn futures_poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn client_that_stops_answering_is_given_up() {
    let (mut callback, _client) = open_pair().await;
    let broken = loop {
        if let Err(broken) = timeout(TEST_TIMEOUT, callback.send("r", update(), 1_000)).await.unwrap() {
            break broken;
        }
    };
    assert_eq!(broken, CallbackBroken::Unanswered);
    assert_eq!(callback.prove().await, ProofLevel::None);
}

#[tokio::test]
async fn close_of_a_client_that_has_not_answered_proves_nothing() {
    let (mut callback, mut client) = open_pair().await;
    callback.send("r", update(), 1).await.unwrap();
    let client = async {
        client.next_barrier().await;
        // The client has read everything, and closes with the updates in its own queue.
        drop(client);
    };
    let ((), proof) = tokio::join!(client, callback.prove());
    assert_eq!(proof, ProofLevel::None);
}

#[tokio::test]
async fn silent_client_leaves_kernel_proof_where_there_is_no_other_route() {
    let (mut callback, stream) = connect_with(None, LIMITS).await;
    callback.send_unopened();
    callback.send("r", update(), 1).await.unwrap();
    assert_eq!(callback.finish().await, ProofLevel::Delivered);
    drop(stream);
}

#[tokio::test]
async fn client_that_never_reads_is_cut_as_stalled() {
    let (mut callback, mut stream) = connect_with(None, LIMITS).await;
    callback.send_unopened();
    let frame = big_frame();
    let sending = async {
        loop {
            assert!(callback.outbox.backlog_bytes() <= crate::outbox::QUEUE_LIMIT_BYTES as u64);
            if let Err(broken) = callback.send("r", frame.clone(), 1).await {
                return broken;
            }
        }
    };
    assert_eq!(timeout(TEST_TIMEOUT, sending).await.unwrap(), CallbackBroken::Stalled);
    assert_eq!(callback.break_reason(), Some(CallbackBroken::Stalled));
    let again = callback.send("r", update(), 1).await;
    assert_eq!(again, Err(CallbackBroken::Stalled), "nothing more is ever sent here");
    let sent = callback.outbox.written_bytes();
    assert_eq!(callback.finish().await, ProofLevel::None);
    // Bytes that had not reached the client's kernel are discarded, so they do not arrive late.
    let mut buffer = vec![0; 64 << 10];
    let mut read = 0;
    let end = loop {
        match timeout(TEST_TIMEOUT, stream.read(&mut buffer)).await.unwrap() {
            Ok(0) => panic!("the cut must not look like an orderly end"),
            Ok(count) => read += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(read < sent, "{read} of {sent}");
}

#[tokio::test]
async fn client_close_with_unread_bytes_proves_nothing() {
    let (mut callback, mut stream) = connect_with(None, LIMITS).await;
    callback.send_unopened();
    for _ in 0..8 {
        callback.send("r", big_frame(), 1).await.unwrap();
    }
    // The client reads a little, and closes with the rest unread.
    stream.read_exact(&mut [0; 10]).await.unwrap();
    drop(stream);
    let sending = async {
        loop {
            if let Err(broken) = callback.send("r", update(), 1).await {
                return broken;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(timeout(TEST_TIMEOUT, sending).await.unwrap(), CallbackBroken::Closed);
    assert_eq!(callback.prove().await, ProofLevel::None);
    assert_eq!(callback.finish().await, ProofLevel::None);
}

#[tokio::test]
async fn client_half_close_proves_nothing() {
    let (mut callback, mut stream) = connect_with(None, LIMITS).await;
    callback.send_unopened();
    callback.send("r", update(), 1).await.unwrap();
    stream.shutdown().await.unwrap();
    callback.peer.clone().wait_for(|peer| peer.ended.is_some()).await.unwrap();
    assert_eq!(callback.break_reason(), Some(CallbackBroken::Closed));
    assert_eq!(callback.send("r", update(), 1).await, Err(CallbackBroken::Closed));
    assert_eq!(callback.finish().await, ProofLevel::None);
}

#[tokio::test]
async fn client_reading_bytewise_still_answers() {
    let (mut callback, mut stream) = connect_with(None, LIMITS).await;
    let client = async {
        let mut text = Vec::new();
        let barrier = br#""params":{"runId":"r","changes":[]}}"#;
        for id in [1, 2] {
            loop {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                text.push(byte[0]);
                if text.ends_with(barrier) {
                    break;
                }
            }
            stream
                .write_all(&rpc::encode_error(&RequestId::number(id), &unknown_method_error()))
                .await
                .unwrap();
        }
        let frames = text.windows(14).filter(|part| part == b"Content-Length").count();
        assert_eq!(frames, 22);
        stream
    };
    let worker = async {
        for _ in 0..20 {
            callback.send("r", update(), 1).await.unwrap();
        }
        callback.prove().await
    };
    let (_stream, proof) = tokio::join!(client, worker);
    assert_eq!(proof, ProofLevel::Handled);
}

#[tokio::test]
async fn slow_client_is_waited_for_as_long_as_it_answers() {
    let limits = DeliveryLimits { answer_ms: 1_000, first_answer_ms: 10_000, ..LIMITS };
    let (mut callback, stream) = connect_with(None, limits).await;
    let mut client = LinkTestClient::new(stream);
    open(&mut callback, &mut client).await;
    // The client handles each window within a third of the timeout, and all of them within twice the timeout.
    let client = async {
        let mut pace = tokio::time::interval(Duration::from_millis(limits.answer_ms / 3));
        for _ in 0..6 {
            let (id, _) = client.next_barrier().await;
            pace.tick().await;
            client.answer(&id).await;
        }
        client
    };
    let worker = async {
        for _ in 0..6 {
            callback.send("r", update(), 1_000).await.unwrap();
        }
        callback.prove().await
    };
    let (_client, proof) = tokio::join!(client, worker);
    assert_eq!(proof, ProofLevel::Handled);
}

#[tokio::test]
async fn drain_of_a_silent_client_ends_after_six_limits_despite_progress() {
    let limits = DeliveryLimits { drain_ms: 100, ..LIMITS };
    let (mut callback, mut stream) = connect_with(None, limits).await;
    callback.send_unopened();
    callback.send("r", update(), 1).await.unwrap();
    let frame = big_frame();
    while callback.outbox.try_send(frame.clone()).is_ok() || callback.outbox.written_bytes() == 0 {
        tokio::task::yield_now().await;
    }
    // The client keeps reading, a little at a time.
    let client = async {
        let mut pace = tokio::time::interval(Duration::from_millis(10));
        let mut buffer = vec![0; 32 << 10];
        loop {
            pace.tick().await;
            stream.read_exact(&mut buffer).await.unwrap();
        }
    };
    let mut client = pin!(client);
    let proof = tokio::select! {
        proof = timeout(TEST_TIMEOUT, callback.prove()) => proof.unwrap(),
        () = &mut client => unreachable!("the client reads for ever"),
    };
    assert_eq!(proof, ProofLevel::None, "it ended before the client had everything");
}

#[tokio::test]
async fn client_requests_are_answered() {
    let (mut callback, mut client) = connect_pair().await;
    let requests = [("initialize", None), ("testing/runTests", Some(code::METHOD_NOT_FOUND))];
    let client = async {
        for (number, (method, expected)) in requests.into_iter().enumerate() {
            let id = RequestId::number(number as u64);
            client.outbox.send(rpc::encode_request(&id, method, &())).await.unwrap();
            let Some(RpcMessage::Response { id: echoed, outcome }) = client.next_message().await else {
                panic!()
            };
            assert_eq!(echoed, id);
            match expected {
                None => assert!(outcome.unwrap().unwrap().get().contains(r#""name":"heeler""#)),
                Some(code) => assert_eq!(outcome.unwrap_err().code, code),
            }
        }
        client.outbox.send(heeler_protocol::frame::encode(b"no json")).await.unwrap();
        let Some(RpcMessage::Response { outcome, .. }) = client.next_message().await else { panic!() };
        assert_eq!(outcome.unwrap_err().code, code::PARSE_ERROR);
        client.answer_barriers(1).await;
        client
    };
    let worker = async {
        // The last answer must be sent before the barrier, so that the client reads them in order.
        callback.peer.clone().wait_for(|peer| peer.served == 3).await.unwrap();
        callback.send("r", update(), 1).await.unwrap();
        callback.prove().await
    };
    let (_client, proof) = tokio::join!(client, worker);
    assert_eq!(proof, ProofLevel::Handled);
}

#[tokio::test]
async fn listener_with_token_receives_it_first() {
    let (_callback, stream) = connect_with(Some("secret"), LIMITS).await;
    let mut client = LinkTestClient::new(stream);
    let Some(RpcMessage::Notification { method, params }) = client.next_message().await else { panic!() };
    assert_eq!(method, method::HELLO);
    let hello: HelloParams = serde_json::from_str(params.unwrap().get()).unwrap();
    assert_eq!((hello.token.as_str(), hello.from.as_str()), ("secret", "worker 3"));
    client.task.cut().await;
}

#[tokio::test]
async fn refused_dial_names_port() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let address = CallbackAddress::new("127.0.0.1", port, None);
    let error = dial(&address, &LIMITS, "worker 1", None).await.unwrap_err();
    let is_refused = matches!(
        error,
        CallbackDialError::TcpPort(DialError::Refused { port: named, .. }) if named == port
    );
    assert!(is_refused, "{error}");
}
