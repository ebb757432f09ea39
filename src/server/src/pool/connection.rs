//! One task per control connection: it accepts the process that joins, then passes its messages to the pool in
//! order. Frames for clients are forwarded to the sink of the run's client; while a client is slow,
//! only the workers of its own runs wait.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use heeler_protocol::control::{ClientId, FromWatchdog, FromWorker, JoinMessage, RunKey, ToWorker, WorkerId};
use heeler_sys::process::Pid;
use heeler_transport::{
    control::{self, ControlReceiver, ControlSender, ReceivedPacket},
    local,
};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::{
    client_sinks::{ClientSink, ClientSinkError, ClientSinks},
    watchdog_relay::WatchdogRelays,
};

/// Time limit for the join message. Processes of ours send it at once; a slower peer is not one of ours.
const JOIN_DEADLINE: Duration = Duration::from_secs(10);
/// Time after which a worker whose client takes no frame counts as blocked: its slot is free for others.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// Events on control connections.
pub(super) enum ControlEvent {
    WorkerJoined {
        worker: WorkerId,
        pid: Pid,
        sender: ControlSender,
        forwarded: Arc<AtomicU64>,
    },
    WorkerMessage(WorkerId, FromWorker),
    WorkerDisconnected(WorkerId),
    WatchdogJoined {
        pid: u32,
        sender: ControlSender,
    },
    WatchdogMessage(FromWatchdog),
    WatchdogDisconnected {
        pid: u32,
        /// By run, the number of frames of its finish that were forwarded for it.
        relayed: BTreeMap<RunKey, u64>,
    },
}

/// Accepts connections until the pool is dropped.
///
/// Cancel safe: yes, because a connection belongs to its own task as soon as it is accepted.
pub(super) async fn accept(
    mut listener: local::LocalListener,
    clients: ClientSinks,
    raw: mpsc::Sender<ControlEvent>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    connections.spawn(serve_connection(stream, clients.clone(), raw.clone()));
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

async fn serve_connection(stream: local::LocalStream, clients: ClientSinks, raw: mpsc::Sender<ControlEvent>) {
    let (sender, mut receiver, _task) = control::open(stream);
    let join = match timeout(JOIN_DEADLINE, receiver.next::<JoinMessage>()).await {
        Ok(Ok(Some(ReceivedPacket::Message(join)))) => join,
        other => {
            tracing::warn!(?other, "a control connection did not identify itself");
            return;
        }
    };
    match join {
        JoinMessage::Worker { worker, pid } => {
            // The reader notices a peer that is gone again.
            let _closed = sender.send(&ToWorker::Accepted).await;
            let forwarder = FrameForwarder { worker, clients, raw, forwarded: Arc::new(AtomicU64::new(0)) };
            serve_worker(Pid(pid.cast_signed()), sender, receiver, forwarder).await;
        }
        JoinMessage::Watchdog { pid } => serve_watchdog(pid, sender, receiver, clients, raw).await,
    }
}

async fn serve_worker(
    pid: Pid,
    sender: ControlSender,
    mut receiver: ControlReceiver,
    forwarder: FrameForwarder,
) {
    let worker = forwarder.worker;
    let forwarded = Arc::clone(&forwarder.forwarded);
    let mut event = Some(ControlEvent::WorkerJoined { worker, pid, sender, forwarded });
    loop {
        if let Some(event) = event.take()
            && forwarder.raw.send(event).await.is_err()
        {
            return;
        }
        match receiver.next::<FromWorker>().await {
            Ok(Some(ReceivedPacket::Message(message))) => {
                event = Some(ControlEvent::WorkerMessage(worker, message))
            }
            Ok(Some(ReceivedPacket::Forward { client, position, frame })) => {
                forwarder.forward(client, position, frame).await
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%worker, %error, "a worker's control connection broke");
                break;
            }
        }
    }
    // The pool may be gone already.
    let _closed = forwarder.raw.send(ControlEvent::WorkerDisconnected(worker)).await;
}

/// Forwards the frames of one worker to the clients of its runs.
struct FrameForwarder {
    worker: WorkerId,
    clients: ClientSinks,
    raw: mpsc::Sender<ControlEvent>,
    /// The position of the last forwarded frame of the run that the worker serves.
    forwarded: Arc<AtomicU64>,
}

impl FrameForwarder {
    async fn forward(&self, client: ClientId, position: u64, frame: Bytes) {
        let Some(sink) = self.clients.get(client) else { return };
        let is_sent = match sink.try_send(frame) {
            Ok(()) => true,
            Err(ClientSinkError::Closed) => false,
            Err(ClientSinkError::Full(frame)) => self.forward_slowly(&sink, frame).await,
        };
        if is_sent {
            self.forwarded.store(position, Ordering::Release);
        }
    }

    async fn forward_slowly(&self, sink: &ClientSink, frame: Bytes) -> bool {
        let sending = sink.send(frame);
        tokio::pin!(sending);
        if let Ok(sent) = timeout(BLOCKED_AFTER, &mut sending).await {
            return sent.is_ok();
        }
        let worker = self.worker;
        // The pool may be gone already.
        let blocked = |is_blocked| ControlEvent::WorkerMessage(worker, FromWorker::Blocked { is_blocked });
        let _closed = self.raw.send(blocked(true)).await;
        let is_sent = sending.await.is_ok();
        let _closed = self.raw.send(blocked(false)).await;
        is_sent
    }
}

async fn serve_watchdog(
    pid: u32,
    sender: ControlSender,
    mut receiver: ControlReceiver,
    clients: ClientSinks,
    raw: mpsc::Sender<ControlEvent>,
) {
    let mut relays = WatchdogRelays::new(clients, sender.clone(), raw.clone());
    let mut event = Some(ControlEvent::WatchdogJoined { pid, sender });
    loop {
        if let Some(event) = event.take()
            && raw.send(event).await.is_err()
        {
            return;
        }
        match receiver.next::<FromWatchdog>().await {
            Ok(Some(ReceivedPacket::Message(message))) => event = relays.on_message(message),
            Ok(Some(ReceivedPacket::Forward { client, position, frame })) => {
                relays.forward(client, position, frame)
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "the watchdog's control connection broke");
                break;
            }
        }
    }
    let relayed = relays.finish().await;
    let _closed = raw.send(ControlEvent::WatchdogDisconnected { pid, relayed }).await;
}
