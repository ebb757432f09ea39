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
use host::process::Pid;
use link::{
    control::{self, ControlReceiver, ControlSender, Received},
    local,
};
use model::finish::HeldFrame;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};
use wire::control::{
    CallbackAddress, DeliveryLimits, FromWatchdog, FromWorker, Join, ToWatchdog, ToWorker, WorkerId,
};

/// Time limit for the join message. Processes of ours send it at once; a slower peer is not one of ours.
const JOIN_DEADLINE: Duration = Duration::from_secs(10);

/// Parameters that every connection needs.
#[derive(Clone)]
pub(super) struct Greeting {
    pub(super) callback: Option<CallbackAddress>,
    pub(super) limits: DeliveryLimits,
    pub(super) client: link::Outbox,
}

/// Events on control connections.
pub(super) enum Raw {
    WorkerJoined { worker: WorkerId, pid: Pid, sender: ControlSender, relayed: Arc<AtomicU64> },
    Worker(WorkerId, FromWorker),
    WorkerLeft(WorkerId),
    WatchdogJoined { pid: u32, sender: ControlSender },
    Watchdog(FromWatchdog),
    WatchdogLeft { pid: u32 },
}

/// Accepts connections until the pool is dropped.
///
/// Cancel safe: yes, because a connection belongs to its own task as soon as it is accepted.
pub(super) async fn accept(mut listener: local::Listener, greeting: Greeting, raw: mpsc::Sender<Raw>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    connections.spawn(serve(stream, greeting.clone(), raw.clone()));
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

async fn serve(stream: local::Stream, greeting: Greeting, raw: mpsc::Sender<Raw>) {
    let (sender, mut receiver, _task) = control::open(stream);
    let join = match timeout(JOIN_DEADLINE, receiver.next::<Join>()).await {
        Ok(Ok(Some(Received::Message(join)))) => join,
        other => {
            tracing::warn!(?other, "a control connection did not say who it is");
            return;
        }
    };
    let callback = greeting.callback.clone();
    let limits = greeting.limits;
    // The reader notices a peer that is gone again.
    match join {
        Join::Worker { worker, pid } => {
            let _closed = sender.send(&ToWorker::Welcome { callback, limits }).await;
            worker_loop((worker, Pid(pid.cast_signed())), (sender, receiver), &greeting, raw).await;
        }
        Join::Watchdog { pid } => {
            let _closed = sender.send(&ToWatchdog::Welcome { callback, limits }).await;
            watchdog_loop(pid, (sender, receiver), &greeting, raw).await;
        }
    }
}

async fn worker_loop(
    (worker, pid): (WorkerId, Pid),
    (sender, mut receiver): (ControlSender, ControlReceiver),
    greeting: &Greeting,
    raw: mpsc::Sender<Raw>,
) {
    let relayed = Arc::new(AtomicU64::new(0));
    let mut event = Some(Raw::WorkerJoined { worker, pid, sender, relayed: Arc::clone(&relayed) });
    loop {
        if let Some(event) = event.take()
            && raw.send(event).await.is_err()
        {
            return;
        }
        match receiver.next::<FromWorker>().await {
            Ok(Some(Received::Message(message))) => event = Some(Raw::Worker(worker, message)),
            Ok(Some(Received::Relay { position, frame })) => {
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
    let _closed = raw.send(Raw::WorkerLeft(worker)).await;
}

async fn watchdog_loop(
    pid: u32,
    (sender, mut receiver): (ControlSender, ControlReceiver),
    greeting: &Greeting,
    raw: mpsc::Sender<Raw>,
) {
    let mut event = Some(Raw::WatchdogJoined { pid, sender });
    let mut held = HeldFrame::default();
    loop {
        if let Some(event) = event.take()
            && raw.send(event).await.is_err()
        {
            return;
        }
        match receiver.next::<FromWatchdog>().await {
            Ok(Some(Received::Message(message))) => {
                if matches!(message, FromWatchdog::Finished { .. }) {
                    forward(greeting, held.finished()).await;
                }
                event = Some(Raw::Watchdog(message));
            }
            Ok(Some(Received::Relay { frame, .. })) => forward(greeting, held.relayed(frame)).await,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "the watchdog's control connection broke");
                break;
            }
        }
    }
    let _closed = raw.send(Raw::WatchdogLeft { pid }).await;
}

async fn forward(greeting: &Greeting, frame: Option<Bytes>) {
    if let Some(frame) = frame {
        // The session notices a client that is gone.
        let _closed = greeting.client.send(frame).await;
    }
}
