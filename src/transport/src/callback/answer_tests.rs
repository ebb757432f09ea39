//! Answers on one connection and their effect on the client's other connections, and connections that the
//! client closes after a completion.

use std::path::PathBuf;

use heeler_core::client_progress::ClientAnswers;
use heeler_protocol::{
    control::{CallbackAddress, ClientId, DeliveryLimits, OsText, ProofLevel, StreamSender, WorkerId},
    mtp::{self, method},
    rpc::{self, RequestId, RpcMessage},
};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{
    CallbackBroken, CallbackConnection, SharedProgress, StreamHolders, dial,
    tests::{LIMITS, LinkTestClient, TEST_TIMEOUT, connect_with, open, update},
};

/// Longer than any test.
const ENDLESS_MS: u64 = 3_600_000;
const CLIENT: ClientId = ClientId(1);

/// A session directory and a listening client.
struct Session {
    directory: tempfile::TempDir,
    listener: TcpListener,
}

impl Session {
    async fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        Self { directory: tempfile::tempdir().unwrap(), listener }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("control")
    }

    fn progress(&self) -> SharedProgress {
        SharedProgress::of_client(&self.socket(), CLIENT)
    }

    /// Dials the client with these limits.
    async fn connect(&self, limits: DeliveryLimits) -> (CallbackConnection, LinkTestClient) {
        let address = CallbackAddress::new("127.0.0.1", self.listener.local_addr().unwrap().port(), None);
        let sender = StreamSender::Worker(WorkerId(1));
        let holders = StreamHolders { sender, client: CLIENT, sockets: vec![self.socket()] };
        let (callback, accepted) =
            tokio::join!(dial(&address, &limits, "worker 1", Some(&holders)), self.listener.accept());
        (callback.unwrap(), LinkTestClient::new(accepted.unwrap().0))
    }
}

#[tokio::test]
async fn client_that_stops_answering_costs_its_limit_once() {
    let session = Session::new().await;
    let (mut first, mut client) = session.connect(LIMITS).await;
    open(&mut first, &mut client).await;
    first.send("r", update(), 1).await.unwrap();
    assert_eq!(first.prove().await, ProofLevel::None, "the client never answers");
    // No timeout is spent on another connection of the same client.
    let patient = DeliveryLimits { answer_ms: ENDLESS_MS, first_answer_ms: ENDLESS_MS, ..LIMITS };
    let (mut second, _unanswering) = session.connect(patient).await;
    let opened = timeout(TEST_TIMEOUT, second.open_updates("r")).await.unwrap();
    assert_eq!(opened, Err(CallbackBroken::Unopened));
    // An answer on any connection counts.
    let (late, _) = client.next_barrier().await;
    client.answer(&late).await;
    first.peer.clone().wait_for(|peer| peer.answered == 2).await.unwrap();
    let (mut third, mut client) = session.connect(patient).await;
    timeout(TEST_TIMEOUT, open(&mut third, &mut client)).await.unwrap();
}

#[tokio::test]
async fn client_that_has_answered_elsewhere_has_the_whole_limit_for_each_connection() {
    let session = Session::new().await;
    // The coordinator does this when the client has answered after `initialize`.
    session.progress().note_answer();
    let limits = DeliveryLimits { answer_ms: ENDLESS_MS, first_answer_ms: 0, ..LIMITS };
    let (mut callback, mut client) = session.connect(limits).await;
    timeout(TEST_TIMEOUT, open(&mut callback, &mut client)).await.unwrap();
    let (mut unknown, _client) = Session::new().await.connect(limits).await;
    assert_eq!(unknown.open_updates("r").await, Err(CallbackBroken::Unopened));
}

/// Reads up to the next request with this method, without answering other requests.
async fn next_request_of(client: &mut LinkTestClient, wanted: &str) -> RequestId {
    loop {
        match client.next_message().await.unwrap() {
            RpcMessage::Request { id, method, .. } if method == wanted => return id,
            RpcMessage::Request { .. } | RpcMessage::Notification { .. } => {}
            RpcMessage::Response { .. } => panic!("an unexpected response"),
        }
    }
}

#[tokio::test]
async fn client_that_answers_unknown_methods_only_gets_barriers_of_one() {
    let session = Session::new().await;
    session.progress().note_unknown_method();
    let (mut callback, mut client) = session.connect(LIMITS).await;
    let answers = async {
        for _ in 0..3 {
            let id = next_request_of(&mut client, method::BARRIER).await;
            client.send(rpc::encode_result(&id, &())).await;
        }
        client
    };
    let worker = async {
        callback.send("r", update(), 1).await.unwrap();
        assert_eq!(callback.prove().await, ProofLevel::Handled);
        assert!(callback.answers_completion_barriers().await);
        callback.send_completion("r", &"/runs/1".into(), mtp::completion_frame("r")).await.unwrap();
        callback.prove_completion().await
    };
    assert_eq!(tokio::join!(answers, worker).1, ProofLevel::Handled);
    assert!(!session.progress().answers().answers_bound_methods);
}

#[tokio::test]
async fn client_that_answers_updates_in_time_gets_no_barriers_of_unknown_methods() {
    let session = Session::new().await;
    session.progress().note_unknown_method();
    let (mut callback, mut client) = session.connect(LIMITS).await;
    open(&mut callback, &mut client).await;
    assert!(session.progress().answers().answers_bound_methods);
    let id = next_request_of(&mut client, method::BARRIER).await;
    client.answer(&id).await;
    callback.send("r", update(), 1).await.unwrap();
    let (proof, ()) = tokio::join!(callback.prove(), client.answer_barriers(1));
    assert_eq!(proof, ProofLevel::Handled);
}

#[tokio::test]
async fn completion_that_the_client_has_is_never_unproven() {
    let run_dir = OsText::from("/runs/1");
    let session = Session::new().await;
    let (mut callback, mut client) = session.connect(LIMITS).await;
    open(&mut callback, &mut client).await;
    callback.send_completion("r", &run_dir, mtp::completion_frame("r")).await.unwrap();
    let leave = async {
        assert!(matches!(client.next_message().await, Some(RpcMessage::Notification { .. })));
        // The client has handled the completion and no longer needs the connection.
        drop(client);
    };
    assert_eq!(tokio::join!(callback.prove_completion(), leave).0, ProofLevel::Delivered);
}

#[tokio::test]
async fn client_that_answers_no_log_requests_is_asked_once() {
    let session = Session::new().await;
    let (mut callback, mut client) = session.connect(LIMITS).await;
    open(&mut callback, &mut client).await;
    assert!(!callback.answers_completion_barriers().await);
    next_request_of(&mut client, method::LOG).await;
    let answers: ClientAnswers = session.progress().answers();
    assert_eq!(answers.answers_log_requests, Some(false));
    let patient = DeliveryLimits { first_answer_ms: ENDLESS_MS, ..LIMITS };
    let (mut second, mut client) = session.connect(patient).await;
    open(&mut second, &mut client).await;
    let asked = timeout(TEST_TIMEOUT, second.answers_completion_barriers()).await;
    assert!(!asked.unwrap(), "it is known");
}

/// Sends a completion to a client that has never answered. Returns the connection and the client's end, whose
/// kernel has the completion.
async fn unanswered_completion() -> (CallbackConnection, TcpStream) {
    let (mut callback, client) = connect_with(None, LIMITS).await;
    callback.send_unopened();
    callback.send_completion("r", &"/runs/1".into(), mtp::completion_frame("r")).await.unwrap();
    assert_eq!(callback.prove_delivery().await, ProofLevel::Delivered);
    (callback, client)
}

#[tokio::test]
async fn client_without_answers_that_closes_with_an_unread_completion_does_not_have_it() {
    let (mut callback, client) = unanswered_completion().await;
    drop(client);
    assert_eq!(callback.prove_unanswered_end().await, ProofLevel::None);
}

#[tokio::test]
async fn client_without_answers_that_reads_to_the_end_has_the_completion() {
    let (mut callback, mut client) = unanswered_completion().await;
    let read = async move {
        client.read_to_end(&mut Vec::new()).await.unwrap();
        drop(client);
    };
    assert_eq!(tokio::join!(callback.prove_unanswered_end(), read).0, ProofLevel::Delivered);
}

#[tokio::test]
async fn client_without_answers_that_keeps_its_side_open_has_the_completion() {
    let (mut callback, _client) = unanswered_completion().await;
    assert_eq!(callback.prove_unanswered_end().await, ProofLevel::Delivered);
}
