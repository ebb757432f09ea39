//! Links over real sockets: partial frames, cut frames, peers that do not read.

use std::time::Duration;

use bytes::Bytes;
use heeler_protocol::{
    control::ClientId,
    frame::{FrameDecoder, FrameError},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::{Instant, timeout},
};

use crate::{LinkError, TrySendError, control, local, outbox::QUEUE_LIMIT_BYTES};

/// Upper bound of every wait in these tests.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn frame(bytes: usize) -> Bytes {
    heeler_protocol::frame::encode(&vec![b'x'; bytes])
}

#[tokio::test]
async fn cancelled_reads_of_bytewise_frame_lose_nothing() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (_outbox, mut inbox, _task) = crate::open(near, FrameDecoder::default());
    for byte in &frame(300)[..] {
        // No item is ready, so each of these reads is cancelled midway.
        assert!(timeout(Duration::ZERO, inbox.next()).await.is_err());
        far.write_all(&[*byte]).await.unwrap();
    }
    let body = timeout(TEST_TIMEOUT, inbox.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(body.len(), 300);
    drop(far);
    assert!(inbox.next().await.unwrap().is_none());
    assert!(inbox.next().await.unwrap().is_none(), "the end stays the end");
}

#[tokio::test]
async fn large_frame_passes_between_small_frames() {
    let (near, far) = UnixStream::pair().unwrap();
    let (outbox, _near_inbox, mut near_task) = crate::open(near, FrameDecoder::default());
    let (_far_outbox, mut inbox, _far_task) = crate::open(far, FrameDecoder::default());
    let sizes = [10, 5 << 20, 20, 64 << 10, 65_000, 0, 3];
    let send = async {
        for size in sizes {
            outbox.send(frame(size)).await.unwrap();
        }
        outbox.flush().await.unwrap();
        outbox.close();
        near_task.join().await.unwrap();
    };
    let receive = async {
        for size in sizes {
            let body = timeout(TEST_TIMEOUT, inbox.next()).await.unwrap().unwrap().unwrap();
            assert_eq!(body.len(), size);
        }
        assert!(inbox.next().await.unwrap().is_none(), "closing half-closes the stream");
    };
    tokio::join!(send, receive);
}

#[tokio::test]
async fn stream_end_inside_frame_is_cut_off_error() {
    let whole = frame(5);
    for cut in 1..whole.len() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (_outbox, mut inbox, _task) = crate::open(near, FrameDecoder::default());
        far.write_all(&whole).await.unwrap();
        far.write_all(&whole[..cut]).await.unwrap();
        drop(far);
        assert!(inbox.next().await.unwrap().is_some());
        let error = inbox.next().await.unwrap_err();
        assert!(matches!(error, LinkError::CutOff { .. }), "cut at {cut}: {error}");
        assert!(error.to_string().contains("in the middle"), "{error}");
        assert!(inbox.next().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn damaged_header_ends_stream_with_decode_error() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (_outbox, mut inbox, _task) = crate::open(near, FrameDecoder::default());
    far.write_all(b"Content-Length: 9223372036854775808\r\n\r\n").await.unwrap();
    let error = inbox.next().await.unwrap_err();
    assert!(matches!(error, LinkError::Decode(FrameError::TooLarge { .. })), "{error}");
    assert!(inbox.next().await.unwrap().is_none());
}

#[tokio::test]
async fn slow_head_times_out_and_silence_does_not() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (_outbox, mut inbox, _task) = crate::open(near, FrameDecoder::default());
    // With a timeout of zero, every limited read fails immediately.
    inbox.limit_heads(Duration::ZERO);
    for _ in 0..2 {
        assert!(timeout(Duration::ZERO, inbox.next()).await.is_err(), "between items there is no limit");
        far.write_all(b"Content-Length: 2\r\n\r\nx").await.unwrap();
        assert!(timeout(Duration::from_millis(1), inbox.next()).await.is_err(), "nor in a body");
        far.write_all(b"y").await.unwrap();
        let body = timeout(TEST_TIMEOUT, inbox.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(&body[..], b"xy");
    }
    far.write_all(b"Content-Len").await.unwrap();
    let error = timeout(TEST_TIMEOUT, inbox.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, LinkError::SlowHead { limit: Duration::ZERO }), "{error}");
    assert!(inbox.next().await.unwrap().is_none(), "the stream is over");
}

#[tokio::test]
async fn peer_that_never_reads_blocks_bounded_sender() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (outbox, _inbox, _task) = crate::open(near, FrameDecoder::default());
    let mut sent = 0;
    // The queue is full when neither it nor the kernel accepts more.
    while timeout(Duration::from_millis(200), outbox.send(frame(1000))).await.is_ok() {
        sent += 1;
        assert!(outbox.backlog_bytes() <= QUEUE_LIMIT_BYTES as u64);
    }
    assert!(matches!(outbox.try_send(frame(1000)), Err(TrySendError::Full(back)) if back == frame(1000)));
    // When the peer reads, every frame arrives except the cancelled one.
    let drain = async {
        let mut left = sent * frame(1000).len();
        let mut buffer = vec![0; 64 << 10];
        while left > 0 {
            left -= far.read(&mut buffer).await.unwrap();
        }
        assert_eq!(outbox.backlog_bytes(), 0);
    };
    timeout(TEST_TIMEOUT, drain).await.unwrap();
    outbox.flush().await.unwrap();
}

#[tokio::test]
async fn tiny_frames_are_bounded_by_frame_cost() {
    let (near, _far) = UnixStream::pair().unwrap();
    let (outbox, _inbox, _task) = crate::open(near, FrameDecoder::default());
    let mut count = 0;
    while outbox.try_send(Bytes::from_static(b"x")).is_ok() {
        count += 1;
    }
    assert!(count <= QUEUE_LIMIT_BYTES / 64, "{count}");
}

#[tokio::test]
async fn failed_write_wakes_all_waiters() {
    let (near, far) = UnixStream::pair().unwrap();
    let (outbox, _inbox, mut task) = crate::open(near, FrameDecoder::default());
    while timeout(Duration::from_millis(100), outbox.send(frame(60_000))).await.is_ok() {}
    let waiting = async { tokio::join!(outbox.send(frame(60_000)), outbox.flush(), task.join()) };
    let death = async { drop(far) };
    let ((sent, flushed, joined), ()) =
        timeout(TEST_TIMEOUT, async { tokio::join!(waiting, death) }).await.unwrap();
    for result in [sent, flushed, joined] {
        let closed = result.unwrap_err();
        assert!(closed.cause.is_some(), "{closed:?}");
    }
    assert!(outbox.is_closed());
}

#[tokio::test]
async fn sends_fail_after_task_is_cut() {
    let (near, _far) = UnixStream::pair().unwrap();
    let (outbox, _inbox, mut task) = crate::open(near, FrameDecoder::default());
    outbox.send(frame(1)).await.unwrap();
    task.cut().await;
    assert!(outbox.send(frame(1)).await.is_err());
}

#[tokio::test]
async fn last_outbox_drop_flushes_and_half_closes() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (outbox, _inbox, mut task) = crate::open(near, FrameDecoder::default());
    let clone = outbox.clone();
    drop(outbox);
    clone.send(frame(100_000)).await.unwrap();
    drop(clone);
    let mut all = Vec::new();
    let (read, joined) = tokio::join!(far.read_to_end(&mut all), task.join());
    read.unwrap();
    joined.unwrap();
    assert_eq!(all, frame(100_000));
}

#[tokio::test]
async fn control_messages_and_forwarded_frames_keep_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control");
    let dial = local::connect(&path, Instant::now() + TEST_TIMEOUT);
    // The dialler starts first, and waits for the listener.
    let listen = async {
        let mut listener = local::LocalListener::bind(&path).unwrap();
        let stream = listener.accept().await.unwrap();
        (listener, stream)
    };
    let (dialled, (listener, accepted)) = tokio::join!(dial, listen);
    let (sender, _, mut task) = control::open(dialled.unwrap());
    let (_, mut receiver, _receiver_task) = control::open(accepted);
    sender.send(&heeler_protocol::control::JoinMessage::Watchdog { pid: 7 }).await.unwrap();
    sender.forward(ClientId(2), 3, b"frame").await.unwrap();
    sender.close();
    task.join().await.unwrap();
    let first = receiver.next::<heeler_protocol::control::JoinMessage>().await.unwrap().unwrap();
    assert_eq!(
        first,
        control::ReceivedPacket::Message(heeler_protocol::control::JoinMessage::Watchdog { pid: 7 })
    );
    let second = receiver.next::<heeler_protocol::control::JoinMessage>().await.unwrap().unwrap();
    assert_eq!(
        second,
        control::ReceivedPacket::Forward {
            client: ClientId(2),
            position: 3,
            frame: Bytes::from_static(b"frame")
        }
    );
    assert!(receiver.next::<heeler_protocol::control::JoinMessage>().await.unwrap().is_none());
    drop(listener);
    assert!(!path.exists(), "the socket's file goes with its listener");
}

#[tokio::test]
async fn unknown_control_message_error_shows_message() {
    let (near, far) = UnixStream::pair().unwrap();
    let (sender, _, _task) = control::open(near);
    let (_, mut receiver, _receiver_task) = control::open(far);
    sender.send(&"hello").await.unwrap();
    let error = receiver.next::<heeler_protocol::control::JoinMessage>().await.unwrap_err();
    assert!(error.to_string().contains("hello"), "{error}");
}

#[tokio::test]
async fn local_socket_has_owner_only_mode() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control");
    let _listener = local::LocalListener::bind(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn missing_socket_is_named_at_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nobody");
    let error = local::connect(&path, Instant::now() + Duration::from_millis(30)).await.unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
}
