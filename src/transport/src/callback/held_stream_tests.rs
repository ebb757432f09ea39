//! Streams of dead senders over real sockets, settled by the holders of their duplicates.

use bytes::Bytes;
use heeler_protocol::{
    control::{CallbackAddress, ClientId, DeliveryLimits, OsText, ProofLevel, StreamSender, WorkerId},
    mtp::{self, method},
    rpc::RpcMessage,
};
use tokio::{net::TcpListener, time::timeout};

use super::{
    CallbackConnection, HeldStreams, StreamHolder, StreamHolders, dial,
    tests::{LIMITS, LinkTestClient, TEST_TIMEOUT, open, update},
};

const SENDER: StreamSender = StreamSender::Worker(WorkerId(3));

/// Dials a client as a worker with held duplicates; the client opens the connection.
async fn connect_held() -> (CallbackConnection, LinkTestClient, HeldStreams, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = StreamHolder::Coordinator.socket_path(&directory.path().join("control"), 0);
    let held = HeldStreams::listen(&path).unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = CallbackAddress::new("localhost", port, None);
    let holders = StreamHolders { sender: SENDER, client: ClientId(1), sockets: vec![path] };
    let limits = DeliveryLimits { answer_ms: 20_000, first_answer_ms: 20_000, ..LIMITS };
    let (callback, accepted) =
        tokio::join!(dial(&address, &limits, "worker 3", Some(&holders)), listener.accept());
    let (mut callback, mut client) = (callback.unwrap(), LinkTestClient::new(accepted.unwrap().0));
    open(&mut callback, &mut client).await;
    (callback, client, held, directory)
}

/// Ends a connection's process like a kill: nothing more is written, and the socket is closed.
async fn kill_sender(mut callback: CallbackConnection) {
    callback.task.cut().await;
    callback.reader.shutdown().await;
}

fn numbered_update(number: u64) -> Bytes {
    let change = format!(r#"{{"node":{{"uid":"{number}"}}}}"#);
    mtp::updates_frame("r", [change.as_bytes()])
}

#[tokio::test]
async fn dead_senders_stream_is_completed_and_proven_by_its_holder() {
    let (mut callback, mut client, held, _directory) = connect_held().await;
    for number in 1..=5 {
        callback.set_position("r", number);
        callback.send("r", numbered_update(number), 1).await.unwrap();
    }
    callback.outbox.flush().await.unwrap();
    kill_sender(callback).await;
    let mut streams = held.take(SENDER);
    let settle = streams.pop().unwrap().settle(StreamHolder::Coordinator);
    let (settled, ()) = tokio::join!(settle, client.answer_barriers(5));
    assert_eq!(settled.proof, ProofLevel::Handled);
    assert_eq!(settled.positions, [("r".to_owned(), 5)].into());
    assert!(client.next_message().await.is_none(), "the connection ends in order");
    assert!(held.take(SENDER).is_empty());
}

#[tokio::test]
async fn frame_that_a_sender_was_killed_in_is_completed() {
    let (mut callback, mut client, held, _directory) = connect_held().await;
    let padding = "x".repeat(8 << 20);
    let change = format!(r#"{{"node":{{"uid":"{padding}"}}}}"#);
    let large = mtp::updates_frame("r", [change.as_bytes()]);
    callback.set_position("r", 1);
    // The client reads nothing, and the frame does not fit into the kernel's buffers.
    let outbox = callback.outbox.clone();
    let is_begun = async {
        while outbox.written_bytes() < 1 << 16 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        sent = callback.send("r", large, 1) => panic!("{sent:?}"),
        begun = timeout(TEST_TIMEOUT, is_begun) => begun.unwrap(),
    }
    drop(outbox);
    kill_sender(callback).await;
    let settle = held.take(SENDER).pop().unwrap().settle(StreamHolder::Watchdog);
    let (settled, ()) = tokio::join!(settle, client.answer_barriers(1));
    assert_eq!(settled.proof, ProofLevel::Handled);
    assert_eq!(settled.positions, [("r".to_owned(), 1)].into());
}

#[tokio::test]
async fn proven_stream_of_a_dead_sender_gets_no_barrier() {
    let (mut callback, mut client, held, _directory) = connect_held().await;
    callback.set_position("r", 1);
    callback.send("r", update(), 1).await.unwrap();
    let (proof, ()) = tokio::join!(callback.prove(), client.answer_barriers(1));
    assert_eq!(proof, ProofLevel::Handled);
    kill_sender(callback).await;
    let settled = held.take(SENDER).pop().unwrap().settle(StreamHolder::Coordinator).await;
    assert_eq!((settled.proof, settled.positions), (ProofLevel::Handled, [("r".to_owned(), 1)].into()));
    assert!(client.next_message().await.is_none());
}

#[tokio::test]
async fn client_that_closes_has_what_it_answered_of_a_dead_senders_stream() {
    let (mut callback, mut client, held, _directory) = connect_held().await;
    callback.set_position("r", 1);
    callback.send("r", update(), 1_000).await.unwrap();
    let (id, _) = client.next_barrier().await;
    client.answer(&id).await;
    callback.peer.clone().wait_for(|peer| peer.answered == 2).await.unwrap();
    callback.set_position("r", 2);
    callback.send("r", update(), 1).await.unwrap();
    callback.outbox.flush().await.unwrap();
    kill_sender(callback).await;
    let settle = held.take(SENDER).pop().unwrap().settle(StreamHolder::Coordinator);
    client.task.cut().await;
    drop(client);
    let settled = settle.await;
    assert_eq!((settled.proof, settled.positions), (ProofLevel::None, [("r".to_owned(), 1)].into()));
}

/// Reads up to the barrier after a completion, and answers it.
async fn answer_completion(client: &mut LinkTestClient) {
    loop {
        match client.next_message().await.unwrap() {
            RpcMessage::Request { id, method, .. } if method == method::LOG => {
                return client.answer(&id).await;
            }
            RpcMessage::Request { id, .. } => client.answer(&id).await,
            RpcMessage::Notification { .. } | RpcMessage::Response { .. } => {}
        }
    }
}

#[tokio::test]
async fn completion_that_a_dead_sender_has_written_is_settled() {
    let run_dir = OsText::from("/runs/1");
    for is_confirmed in [false, true] {
        let (mut callback, mut client, held, _directory) = connect_held().await;
        callback.set_position("r", 1);
        callback.send("r", update(), 1).await.unwrap();
        let (proof, ()) = tokio::join!(callback.prove(), client.answer_barriers(1));
        assert_eq!(proof, ProofLevel::Handled);
        callback.send_completion("r", &run_dir, mtp::completion_frame("r")).await.unwrap();
        callback.outbox.flush().await.unwrap();
        if is_confirmed {
            let (proof, ()) = tokio::join!(callback.prove_completion(), answer_completion(&mut client));
            assert_eq!(proof, ProofLevel::Handled);
        }
        kill_sender(callback).await;
        let settle = held.take(SENDER).pop().unwrap().settle(StreamHolder::Coordinator);
        let settled =
            if is_confirmed { settle.await } else { tokio::join!(settle, answer_completion(&mut client)).0 };
        assert_eq!((settled.proof, &settled.completed), (ProofLevel::Handled, &vec![run_dir.clone()]));
        assert!(client.next_message().await.is_none(), "nothing follows");
    }
}

#[tokio::test]
async fn completion_that_the_client_does_not_answer_is_not_settled() {
    let (mut callback, mut client, held, _directory) = connect_held().await;
    callback.send("r", update(), 1).await.unwrap();
    let (proof, ()) = tokio::join!(callback.prove(), client.answer_barriers(1));
    assert_eq!(proof, ProofLevel::Handled);
    callback.send_completion("r", &"/runs/1".into(), mtp::completion_frame("r")).await.unwrap();
    callback.outbox.flush().await.unwrap();
    kill_sender(callback).await;
    let settle = held.take(SENDER).pop().unwrap().settle(StreamHolder::Coordinator);
    client.task.cut().await;
    drop(client);
    let settled = settle.await;
    assert_eq!((settled.proof, settled.completed), (ProofLevel::None, Vec::new()));
}
