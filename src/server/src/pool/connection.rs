//! One task per control connection: it sends the welcome message to the process that joins, then passes its
//! messages to the pool in order. Frames for the client are forwarded unread to the client's outbox; while
//! the client is slow, only this worker waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use heeler_core::delivery::LastRelayedFrame;
use heeler_protocol::control::{
    CallbackAddress, DeliveryLimits, FromWatchdog, FromWorker, JoinMessage, ToWatchdog, ToWorker, WorkerId,
};
use heeler_sys::process::Pid;
use heeler_transport::{
    control::{self, ControlReceiver, ControlSender, ReceivedPacket},
    local,
};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

/// Time limit for the join message. Processes of ours send it at once; a slower peer is not one of ours.
const JOIN_DEADLINE: Duration = Duration::from_secs(10);

/// Parameters that every connection needs.
#[derive(Clone)]
pub(super) struct ConnectionContext {
    pub(super) callback: Option<CallbackAddress>,
    pub(super) limits: DeliveryLimits,
    pub(super) client: heeler_transport::Outbox,
}

/// Events on control connections.
pub(super) enum ControlEvent {
    WorkerJoined { worker: WorkerId, pid: Pid, sender: ControlSender, forwarded: Arc<AtomicU64> },
    WorkerMessage(WorkerId, FromWorker),
    WorkerDisconnected(WorkerId),
    WatchdogJoined { pid: u32, sender: ControlSender },
    WatchdogMessage(FromWatchdog),
    WatchdogDisconnected { pid: u32 },
}

/// Accepts connections until the pool is dropped.
///
/// Cancel safe: yes, because a connection belongs to its own task as soon as it is accepted.
pub(super) async fn accept(
    mut listener: local::LocalListener,
    greeting: ConnectionContext,
    raw: mpsc::Sender<ControlEvent>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    connections.spawn(serve_connection(stream, greeting.clone(), raw.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a control connection was refused");
                    // An error that recurs at once (no file descriptors left) must not spin.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
            Some(ended) = connections.join_next() => if let Err(error) = ended {
                tracing::error!(%error, "a control connection's task panicked");
            },
            () = raw.closed() => return,
        }
    }
}

async fn serve_connection(
    stream: local::LocalStream,
    greeting: ConnectionContext,
    raw: mpsc::Sender<ControlEvent>,
) {
    let (sender, mut receiver, _task) = control::open(stream);
    let join = match timeout(JOIN_DEADLINE, receiver.next::<JoinMessage>()).await {
        Ok(Ok(Some(ReceivedPacket::Message(join)))) => join,
        other => {
            tracing::warn!(?other, "a control connection did not say who it is");
            return;
        }
    };
    let callback = greeting.callback.clone();
    let limits = greeting.limits;
    // The reader notices a peer that is gone again.
    match join {
        JoinMessage::Worker { worker, pid } => {
            let _closed = sender.send(&ToWorker::Configure { callback, limits }).await;
            worker_loop((worker, Pid(pid.cast_signed())), (sender, receiver), &greeting, raw).await;
        }
        JoinMessage::Watchdog { pid } => {
            let _closed = sender.send(&ToWatchdog::Configure { callback, limits }).await;
            watchdog_loop(pid, (sender, receiver), &greeting, raw).await;
        }
    }
}

async fn worker_loop(
    (worker, pid): (WorkerId, Pid),
    (sender, mut receiver): (ControlSender, ControlReceiver),
    greeting: &ConnectionContext,
    raw: mpsc::Sender<ControlEvent>,
) {
    let relayed = Arc::new(AtomicU64::new(0));
    let mut event = Some(ControlEvent::WorkerJoined { worker, pid, sender, forwarded: Arc::clone(&relayed) });
    loop {
        if let Some(event) = event.take()
            && raw.send(event).await.is_err()
        {
            return;
        }
        match receiver.next::<FromWorker>().await {
            Ok(Some(ReceivedPacket::Message(message))) => {
                event = Some(ControlEvent::WorkerMessage(worker, message))
            }
            Ok(Some(ReceivedPacket::Forward { position, frame })) => {
                if greeting.client.send(frame).await.is_ok() {
                    relayed.store(position, Ordering::Release);
                }
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%worker, %error, "a worker's control connection broke");
                break;
            }
        }
    }
    // The pool may be gone already.
    let _closed = raw.send(ControlEvent::WorkerDisconnected(worker)).await;
}

async fn watchdog_loop(
    pid: u32,
    (sender, mut receiver): (ControlSender, ControlReceiver),
    greeting: &ConnectionContext,
    raw: mpsc::Sender<ControlEvent>,
) {
    let mut event = Some(ControlEvent::WatchdogJoined { pid, sender });
    let mut held = LastRelayedFrame::default();
    loop {
        if let Some(event) = event.take()
            && raw.send(event).await.is_err()
        {
            return;
        }
        match receiver.next::<FromWatchdog>().await {
            Ok(Some(ReceivedPacket::Message(message))) => {
                if matches!(message, FromWatchdog::Finished { .. }) {
                    forward_to_client(greeting, held.release()).await;
                }
                event = Some(ControlEvent::WatchdogMessage(message));
            }
            Ok(Some(ReceivedPacket::Forward { frame, .. })) => {
                forward_to_client(greeting, held.hold(frame)).await
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "the watchdog's control connection broke");
                break;
            }
        }
    }
    let _closed = raw.send(ControlEvent::WatchdogDisconnected { pid }).await;
}

async fn forward_to_client(greeting: &ConnectionContext, frame: Option<Bytes>) {
    if let Some(frame) = frame {
        // The session notices a client that is gone.
        let _closed = greeting.client.send(frame).await;
    }
}
