//! One task per control connection. The task accepts the joining process, then passes the process's messages
//! to the pool in order. Frames for clients go to the sink of the run's client; a slow client delays only the
//! workers of its own runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use heeler_core::silence::SilenceStep;
use heeler_protocol::control::{
    ClientId, FromWatchdog, FromWorker, JoinMessage, RunKey, ToWorker, UnfinishedTests, WorkerId,
};
use heeler_sys::process::Pid;
use heeler_transport::{
    control::{self, ControlReceiver, ControlSender, ReceivedPacket, WatchedPacket},
    local,
};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::{
    client_sinks::{ClientSink, ClientSinkError, ClientSinks},
    silence::is_stopped,
    watchdog_relay::WatchdogRelays,
};

/// Time limit for the join message. Our processes send it at once, so a slower peer is not one of ours.
const JOIN_DEADLINE: Duration = Duration::from_secs(10);
/// A worker counts as blocked after waiting this long for its client. Other runs may then use its slot.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

pub(super) enum ControlEvent {
    WorkerJoined {
        worker: WorkerId,
        pid: Pid,
        sender: ControlSender,
        forwarded: Arc<ForwardedUpdates>,
    },
    WorkerMessage(WorkerId, FromWorker),
    WorkerSilent(WorkerId, SilenceStep),
    WorkerDisconnected(WorkerId),
    WatchdogJoined {
        pid: u32,
        sender: ControlSender,
    },
    WatchdogMessage(FromWatchdog),
    WatchdogSilent {
        pid: u32,
        step: SilenceStep,
    },
    WatchdogDisconnected {
        pid: u32,
        /// For each run, the number of frames of its finish that were forwarded for the watchdog.
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
                    tracing::warn!(%error, "failed to accept a control connection");
                    // An error that recurs at once (no file descriptors left) must not cause a busy loop.
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
            // If the peer has left again, the reader detects that.
            let _closed = sender.send(&ToWorker::Accepted).await;
            let forwarder = FrameForwarder {
                worker,
                clients,
                raw,
                forwarded: Arc::default(),
                unfinished: UnfinishedTests::default(),
            };
            serve_worker(Pid(pid.cast_signed()), sender, receiver, forwarder).await;
        }
        JoinMessage::Watchdog { pid } => serve_watchdog(pid, sender, receiver, clients, raw).await,
    }
}

async fn serve_worker(
    pid: Pid,
    sender: ControlSender,
    mut receiver: ControlReceiver,
    mut forwarder: FrameForwarder,
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
        match receiver.next_or_silence::<FromWorker>(|| is_stopped(pid)).await {
            Ok(Some(WatchedPacket::Silence(step))) => event = Some(ControlEvent::WorkerSilent(worker, step)),
            Ok(Some(WatchedPacket::Packet(ReceivedPacket::Message(message)))) => {
                // Otherwise the test's next run on another connection could overtake these updates.
                if forwarder.lets_tests_run_again(&message) {
                    forwarder.wait_until_handled().await;
                }
                event = Some(ControlEvent::WorkerMessage(worker, message))
            }
            Ok(Some(WatchedPacket::Packet(ReceivedPacket::Forward { client, position, frame }))) => {
                forwarder.forward(client, position, frame).await
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%worker, %error, "lost the control connection to a worker");
                break;
            }
        }
    }
    // The pool may already be gone.
    let _closed = forwarder.raw.send(ControlEvent::WorkerDisconnected(worker)).await;
}

/// Forwards the frames of one worker to the clients of its runs.
struct FrameForwarder {
    worker: WorkerId,
    clients: ClientSinks,
    raw: mpsc::Sender<ControlEvent>,
    forwarded: Arc<ForwardedUpdates>,
    /// Tests of the current lease that have started but not ended.
    unfinished: UnfinishedTests,
}

/// Progress of forwarding one worker's updates.
#[derive(Debug, Default)]
pub(super) struct ForwardedUpdates {
    /// Position of the last forwarded frame in the worker's current run.
    pub(super) position: AtomicU64,
    /// Clients that may not have handled the updates on their main connections yet.
    unhandled: Mutex<BTreeSet<ClientId>>,
}

impl ForwardedUpdates {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<ClientId>> {
        self.unhandled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all clients have handled the updates forwarded to their main connections.
    ///
    /// Cancel safe: yes, as [`ClientSink::wait_until_handled`].
    pub(super) async fn wait_until_handled(&self, clients: &ClientSinks) {
        let unhandled = self.lock().clone();
        for client in unhandled {
            if let Some(sink) = clients.get(client) {
                sink.wait_until_handled().await;
            }
            self.lock().remove(&client);
        }
    }

    /// Returns whether a client may not have handled some updates.
    pub(super) fn is_unhandled(&self) -> bool {
        !self.lock().is_empty()
    }
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
            self.forwarded.position.store(position, Ordering::Release);
            self.forwarded.lock().insert(client);
        }
    }

    /// Returns whether, after this message, a test that has started for the client may run again on another
    /// worker's connection.
    fn lets_tests_run_again(&mut self, message: &FromWorker) -> bool {
        match message {
            FromWorker::LeaseEvents { events, .. } => self.unfinished.record(events),
            FromWorker::LeaseEnded { .. } => !std::mem::take(&mut self.unfinished).is_empty(),
            FromWorker::Drained { .. }
            | FromWorker::LeaseIdle { .. }
            | FromWorker::Log { .. }
            | FromWorker::Paused
            | FromWorker::Blocked { .. }
            | FromWorker::Discovered { .. }
            | FromWorker::NotDiscovered { .. } => false,
        }
    }

    async fn wait_until_handled(&self) {
        if self.forwarded.is_unhandled() {
            self.report_blocking(self.forwarded.wait_until_handled(&self.clients)).await;
        }
    }

    async fn forward_slowly(&self, sink: &ClientSink, frame: Bytes) -> bool {
        self.report_blocking(sink.send(frame)).await.is_ok()
    }

    /// Waits for a client. After a while, the worker counts as blocked.
    async fn report_blocking<T>(&self, waiting: impl Future<Output = T>) -> T {
        tokio::pin!(waiting);
        if let Ok(output) = timeout(BLOCKED_AFTER, &mut waiting).await {
            return output;
        }
        let worker = self.worker;
        // The pool may already be gone.
        let blocked = |is_blocked| ControlEvent::WorkerMessage(worker, FromWorker::Blocked { is_blocked });
        let _closed = self.raw.send(blocked(true)).await;
        let output = waiting.await;
        let _closed = self.raw.send(blocked(false)).await;
        output
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
        match receiver.next_or_silence::<FromWatchdog>(|| is_stopped(Pid(pid.cast_signed()))).await {
            Ok(Some(WatchedPacket::Silence(step))) => {
                event = Some(ControlEvent::WatchdogSilent { pid, step })
            }
            Ok(Some(WatchedPacket::Packet(ReceivedPacket::Message(message)))) => {
                event = relays.on_message(message).await
            }
            Ok(Some(WatchedPacket::Packet(ReceivedPacket::Forward { client, position, frame }))) => {
                relays.forward(client, position, frame).await
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "lost the control connection to the watchdog");
                break;
            }
        }
    }
    let relayed = relays.finish().await;
    let _closed = raw.send(ControlEvent::WatchdogDisconnected { pid, relayed }).await;
}
