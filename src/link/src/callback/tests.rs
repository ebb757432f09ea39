//! Delivery proofs over real sockets, against well-behaved, slow and broken clients.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use wire::{
    control::{CallbackAddress, DeliveryLimits, Proof},
    frame::Frames,
    mtp::{self, HelloParams, method},
    rpc::{self, Message, RequestId, RpcError, code},
};

use super::{Broken, Callback, DialError, connection, dial};
use crate::{Inbox, LinkTask, Outbox};

/// Upper bound of every wait in these tests.
const GENEROUS: Duration = Duration::from_secs(20);
const LIMITS: DeliveryLimits = DeliveryLimits { connect_ms: 5_000, stall_ms: 300, drain_ms: 300 };

/// Client's end of a callback connection.
struct Client {
    outbox: Outbox,
    inbox: Inbox<Frames>,
    task: LinkTask,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        let (outbox, inbox, task) = crate::open(stream, Frames::default());
        Self { outbox, inbox, task }
    }

    async fn message(&mut self) -> Option<Message> {
        let body = timeout(GENEROUS, self.inbox.next()).await.unwrap().unwrap()?;
        Some(rpc::parse(&body).unwrap())
    }

    /// Reads up to the next request; returns its id and the number of notifications before it.
    async fn barrier(&mut self) -> (RequestId, usize) {
        let mut notifications = 0;
        loop {
            match self.message().await.unwrap() {
                Message::Notification { .. } => notifications += 1,
                Message::Request { id, method, .. } => {
                    assert_eq!(method, method::BARRIER);
                    return (id, notifications);
                }
                Message::Response { .. } => panic!("a response that nobody asked for"),
            }
        }
    }
}

async fn pair_with(token: Option<&str>, limits: DeliveryLimits) -> (Callback, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = CallbackAddress {
        host: "localhost".to_owned(),
        port: listener.local_addr().unwrap().port(),
        token: token.map(str::to_owned),
    };
    let (callback, accepted) = tokio::join!(dial(&address, &limits, "worker 3"), listener.accept());
    (callback.unwrap(), accepted.unwrap().0)
}

async fn pair() -> (Callback, Client) {
    let (callback, stream) = pair_with(None, LIMITS).await;
    (callback, Client::new(stream))
}

fn update() -> Bytes {
    mtp::updates_frame("r", [&b"{}"[..]])
}

fn big_frame() -> Bytes {
    wire::frame::encode(&vec![b' '; 64 << 10])
}

fn unknown() -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, "what?")
}

#[tokio::test]
async fn an_error_reply_to_the_barrier_proves_all_before_it_and_the_connection_goes_on() {
    let (mut callback, mut client) = pair().await;
    let client = async {
        for _ in 0..2 {
            let (id, before) = client.barrier().await;
            assert_eq!(before, 3);
            client.outbox.send(rpc::error(&id, &unknown())).await.unwrap();
        }
        let (id, _) = client.barrier().await;
        client.outbox.send(rpc::error(&id, &unknown())).await.unwrap();
        assert!(client.message().await.is_none(), "the connection ends in order");
    };
    let worker = async {
        for _ in 0..2 {
            for _ in 0..3 {
                callback.send(update()).await.unwrap();
            }
            assert_eq!(callback.prove().await, Proof::Answered);
        }
        assert_eq!(callback.broken(), None);
        assert_eq!(callback.finish().await, Proof::Answered);
    };
    tokio::join!(client, worker);
}

#[tokio::test]
async fn a_result_as_reply_to_the_barrier_is_as_good() {
    let (callback, mut client) = pair().await;
    let client = async {
        let (id, _) = client.barrier().await;
        client.outbox.send(rpc::result(&id, &())).await.unwrap();
        assert!(client.message().await.is_none());
    };
    let ((), proof) = tokio::join!(client, callback.finish());
    assert_eq!(proof, Proof::Answered);
}

#[tokio::test]
async fn a_stray_reply_proves_nothing() {
    let (mut callback, mut client) = pair().await;
    let client = async {
        let (id, _) = client.barrier().await;
        for stray in [RequestId::number(1), RequestId::Null, RequestId::String("1".into())] {
            assert_ne!(stray, id);
            client.outbox.send(rpc::error(&stray, &unknown())).await.unwrap();
        }
        client
    };
    let (_client, proof) = tokio::join!(client, callback.prove());
    assert_eq!(proof, Proof::Delivered);
}

#[tokio::test]
async fn a_client_that_reads_to_the_end_and_closes_has_proven_it() {
    let (mut callback, mut client) = pair().await;
    callback.send(update()).await.unwrap();
    let client = async {
        client.barrier().await;
        assert!(client.message().await.is_none());
        drop(client);
    };
    let ((), proof) = tokio::join!(client, callback.finish());
    assert_eq!(proof, Proof::Closed);
}

#[tokio::test]
async fn a_client_that_neither_answers_nor_closes_leaves_what_its_kernel_knows() {
    let (mut callback, stream) = pair_with(None, LIMITS).await;
    callback.send(update()).await.unwrap();
    assert_eq!(callback.finish().await, Proof::Delivered);
    drop(stream);
}

#[tokio::test]
async fn a_client_that_never_reads_stalls_the_sender_in_bounded_memory_and_is_cut() {
    let (mut callback, mut stream) = pair_with(None, LIMITS).await;
    let frame = big_frame();
    let sending = async {
        loop {
            assert!(callback.outbox.backlog_bytes() <= crate::QUEUE_LIMIT_BYTES as u64);
            if let Err(broken) = callback.send(frame.clone()).await {
                return broken;
            }
        }
    };
    assert_eq!(timeout(GENEROUS, sending).await.unwrap(), Broken::Stalled);
    assert_eq!(callback.broken(), Some(&Broken::Stalled));
    assert_eq!(callback.send(update()).await, Err(Broken::Stalled), "nothing more is ever sent here");
    let sent = callback.outbox.progress().written_bytes;
    assert_eq!(callback.finish().await, Proof::None);
    // Bytes that had not reached the client's kernel are discarded, so they do not arrive late.
    let mut buffer = vec![0; 64 << 10];
    let mut read = 0;
    let end = loop {
        match timeout(GENEROUS, stream.read(&mut buffer)).await.unwrap() {
            Ok(0) => panic!("the cut must not look like an orderly end"),
            Ok(count) => read += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(read < sent, "{read} of {sent}");
}

#[tokio::test]
async fn a_client_that_closes_in_the_middle_proves_nothing() {
    let (mut callback, mut stream) = pair_with(None, LIMITS).await;
    for _ in 0..8 {
        callback.send(big_frame()).await.unwrap();
    }
    // The client reads a little and closes with the rest unread.
    stream.read_exact(&mut [0; 10]).await.unwrap();
    drop(stream);
    let sending = async {
        loop {
            if let Err(broken) = callback.send(update()).await {
                return broken;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(timeout(GENEROUS, sending).await.unwrap(), Broken::Closed);
    assert_eq!(callback.prove().await, Proof::None);
    assert_eq!(callback.finish().await, Proof::None);
}

#[tokio::test]
async fn a_client_that_only_stops_to_speak_does_not_count_as_having_read_to_the_end() {
    let (mut callback, mut stream) = pair_with(None, LIMITS).await;
    stream.shutdown().await.unwrap();
    timeout(GENEROUS, connection::ended(callback.peer.clone())).await.unwrap();
    assert_eq!(callback.broken(), Some(&Broken::Closed));
    assert_eq!(callback.send(update()).await, Err(Broken::Closed));
    let proof = callback.finish().await;
    assert!(!proof.is_enough(), "{proof}");
}

#[tokio::test]
async fn a_client_that_reads_one_byte_at_a_time_still_answers() {
    let (mut callback, mut stream) = pair_with(None, LIMITS).await;
    for _ in 0..20 {
        callback.send(update()).await.unwrap();
    }
    let client = async {
        let mut text = Vec::new();
        while !text.ends_with(b"}}") || !text.windows(9).any(|part| part == b"$/drained") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            text.push(byte[0]);
            if text.ends_with(br#""params":{}}"#) {
                break;
            }
        }
        let mut frames = text.windows(14).filter(|part| part == b"Content-Length").count();
        assert_eq!(frames, 21);
        frames = text.windows(6).rposition(|part| part == br#""id":""#).unwrap() + 6;
        let id: Vec<u8> = text[frames..].iter().copied().take_while(|byte| *byte != b'"').collect();
        let id = RequestId::String(String::from_utf8(id).unwrap().into());
        stream.write_all(&rpc::error(&id, &unknown())).await.unwrap();
        stream
    };
    let (_stream, proof) = tokio::join!(client, callback.prove());
    assert_eq!(proof, Proof::Answered);
}

#[tokio::test]
async fn progress_keeps_a_slow_client_from_being_given_up() {
    let limits = DeliveryLimits { drain_ms: 400, ..LIMITS };
    let (mut callback, mut stream) = pair_with(None, limits).await;
    // More than the kernel's buffers hold, so that the client needs several limits to read it.
    let frame = big_frame();
    let mut total = 0;
    loop {
        total += frame.len();
        callback.send(frame.clone()).await.unwrap();
        if callback.outbox.backlog_bytes() > (crate::QUEUE_LIMIT_BYTES / 2) as u64 {
            break;
        }
        tokio::task::yield_now().await;
    }
    // The client needs twice the limit to reach the barrier; it reads a twentieth of the bytes at each tick.
    let client = async {
        let mut pace = tokio::time::interval(Duration::from_millis(40));
        let mut buffer = vec![0; total.div_ceil(20)];
        let mut left = total;
        while left > 0 {
            pace.tick().await;
            let part = left.min(buffer.len());
            stream.read_exact(&mut buffer[..part]).await.unwrap();
            left -= part;
        }
        let mut client = Client::new(stream);
        let (id, _) = client.barrier().await;
        client.outbox.send(rpc::error(&id, &unknown())).await.unwrap();
        client
    };
    let started = tokio::time::Instant::now();
    let (_client, proof) = tokio::join!(client, callback.prove());
    assert_eq!(proof, Proof::Answered);
    assert!(started.elapsed() > Duration::from_millis(limits.drain_ms), "the client was not slow enough");
}

#[tokio::test]
async fn a_drain_ends_after_six_limits_however_busy_the_client_seems() {
    let limits = DeliveryLimits { drain_ms: 100, ..LIMITS };
    let (mut callback, mut stream) = pair_with(None, limits).await;
    let frame = big_frame();
    while callback.outbox.try_send(frame.clone()).is_ok() || callback.outbox.progress().written_bytes == 0 {
        tokio::task::yield_now().await;
    }
    // The client reads forever, a little at a time.
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
        proof = timeout(GENEROUS, callback.prove()) => proof.unwrap(),
        () = &mut client => unreachable!("the client reads for ever"),
    };
    assert_eq!(proof, Proof::None, "it ended before the client had everything");
}

#[tokio::test]
async fn an_answer_that_comes_after_the_half_close_still_counts() {
    let (callback, mut client) = pair().await;
    let client = async {
        let (id, _) = client.barrier().await;
        assert!(client.message().await.is_none());
        client.outbox.send(rpc::error(&id, &unknown())).await.unwrap();
        client
    };
    let (_client, proof) = tokio::join!(client, callback.finish());
    assert_eq!(proof, Proof::Answered);
}

#[tokio::test]
async fn the_client_s_own_requests_are_answered() {
    let (mut callback, mut client) = pair().await;
    let requests = [("initialize", None), ("testing/runTests", Some(code::METHOD_NOT_FOUND))];
    let client = async {
        for (number, (method, expected)) in requests.into_iter().enumerate() {
            let id = RequestId::number(number as u64);
            client.outbox.send(rpc::request(&id, method, &())).await.unwrap();
            let Some(Message::Response { id: echoed, outcome }) = client.message().await else { panic!() };
            assert_eq!(echoed, id);
            match expected {
                None => assert!(outcome.unwrap().unwrap().get().contains(r#""name":"heeler""#)),
                Some(code) => assert_eq!(outcome.unwrap_err().code, code),
            }
        }
        client.outbox.send(wire::frame::encode(b"no json")).await.unwrap();
        let Some(Message::Response { outcome, .. }) = client.message().await else { panic!() };
        assert_eq!(outcome.unwrap_err().code, code::PARSE_ERROR);
        let (id, _) = client.barrier().await;
        client.outbox.send(rpc::error(&id, &unknown())).await.unwrap();
        client
    };
    let worker = async {
        // The last answer must be sent before the barrier, so that the client reads in order.
        callback.peer.clone().wait_for(|peer| peer.served == 3).await.unwrap();
        callback.prove().await
    };
    let (_client, proof) = tokio::join!(client, worker);
    assert_eq!(proof, Proof::Answered);
}

#[tokio::test]
async fn a_listener_with_a_token_hears_it_first() {
    let (_callback, stream) = pair_with(Some("secret"), LIMITS).await;
    let mut client = Client::new(stream);
    let Some(Message::Notification { method, params }) = client.message().await else { panic!() };
    assert_eq!(method, method::HELLO);
    let hello: HelloParams = serde_json::from_str(params.unwrap().get()).unwrap();
    assert_eq!((hello.token.as_str(), hello.from.as_str()), ("secret", "worker 3"));
    client.task.cut().await;
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_named() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let address = CallbackAddress { host: "127.0.0.1".to_owned(), port, token: None };
    let error = dial(&address, &LIMITS, "worker 1").await.unwrap_err();
    assert!(matches!(error, DialError::Refused { port: named, .. } if named == port), "{error}");
}
