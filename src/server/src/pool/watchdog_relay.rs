//! Frames that the watchdog sends to clients through the coordinator: one task for each client, so that a
//! client that reads slowly delays neither the watchdog's messages nor the frames of another client.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use heeler_core::delivery::LastRelayedFrame;
use heeler_protocol::control::{ClientId, FromWatchdog, RELAY_WINDOW, RunKey, ToWatchdog};
use heeler_transport::control::ControlSender;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    task::JoinSet,
    time::timeout,
};

use super::{client_sinks::ClientSinks, connection::ControlEvent};

/// Time for clients to take the last frames of a watchdog that is gone. Its successor sends what was not taken.
const FINISH_DEADLINE: Duration = Duration::from_secs(1);
/// Queue of a client: the window of frames, and the beginning and end of each of its runs, which are finished one after
/// the other.
const QUEUED_ITEMS: usize = RELAY_WINDOW + 4;

/// By run, the number of frames of its finish that were forwarded; until it is finished.
type ForwardedFrames = Arc<Mutex<BTreeMap<RunKey, u64>>>;

enum RelayItem {
    /// The frames that follow are of this run.
    Begin(RunKey),
    Frame(RelayedFrame),
    /// The end of a run, which follows its last frame.
    Finished(FromWatchdog),
}

/// A frame of a finish.
#[derive(Debug)]
struct RelayedFrame {
    /// The number of frames of the finish including it.
    position: u64,
    bytes: Bytes,
}

/// The tasks that forward frames of one watchdog.
pub(super) struct WatchdogRelays {
    clients: ClientSinks,
    watchdog: ControlSender,
    raw: mpsc::Sender<ControlEvent>,
    queues: HashMap<ClientId, mpsc::Sender<RelayItem>>,
    tasks: JoinSet<()>,
    forwarded: ForwardedFrames,
}

impl WatchdogRelays {
    pub(super) fn new(
        clients: ClientSinks,
        watchdog: ControlSender,
        raw: mpsc::Sender<ControlEvent>,
    ) -> Self {
        Self {
            clients,
            watchdog,
            raw,
            queues: HashMap::new(),
            tasks: JoinSet::new(),
            forwarded: ForwardedFrames::default(),
        }
    }

    /// Forwards a frame. The watchdog waits for confirmations, so the queue always has room.
    pub(super) fn forward(&mut self, client: ClientId, position: u64, bytes: Bytes) {
        self.queue(client, RelayItem::Frame(RelayedFrame { position, bytes }));
    }

    fn queue(&mut self, client: ClientId, item: RelayItem) {
        let queue = self.queues.entry(client).or_insert_with(|| {
            let (queue, items) = mpsc::channel(QUEUED_ITEMS);
            let relay = ClientRelay {
                client,
                clients: self.clients.clone(),
                watchdog: self.watchdog.clone(),
                raw: self.raw.clone(),
                run: None,
                forwarded: Arc::clone(&self.forwarded),
            };
            self.tasks.spawn(relay.run(items));
            queue
        });
        if let Err(TrySendError::Full(_)) = queue.try_send(item) {
            tracing::error!(client = client.0, "the watchdog sent more frames than its window allows");
        }
    }

    /// Returns the event for a message, unless the frames of its run are to be forwarded before it.
    pub(super) fn on_message(&mut self, message: FromWatchdog) -> Option<ControlEvent> {
        let message = match message {
            FromWatchdog::Relaying { run } => {
                self.queue(run.client, RelayItem::Begin(run));
                return None;
            }
            FromWatchdog::Finished { run, proof, soft_errors } => {
                let client = run.client;
                let message = FromWatchdog::Finished { run, proof, soft_errors };
                let Some(queue) = self.queues.get(&client) else {
                    return Some(ControlEvent::WatchdogMessage(message));
                };
                match queue.try_send(RelayItem::Finished(message)) {
                    Ok(()) => return None,
                    Err(TrySendError::Full(item) | TrySendError::Closed(item)) => match item {
                        RelayItem::Finished(message) => message,
                        RelayItem::Begin(_) | RelayItem::Frame(_) => return None,
                    },
                }
            }
            message => message,
        };
        Some(ControlEvent::WatchdogMessage(message))
    }

    /// Waits until everything is forwarded; gives up on clients that do not read. Returns, by run, the number of frames of
    /// its finish that were forwarded.
    ///
    /// Cancel safe: yes, because the tasks are aborted when they are dropped.
    pub(super) async fn finish(mut self) -> BTreeMap<RunKey, u64> {
        self.queues.clear();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(FINISH_DEADLINE, all).await.is_err() {
            tracing::debug!("frames of a dead watchdog are not taken by their client and dropped");
            self.tasks.shutdown().await;
        }
        std::mem::take(&mut *self.forwarded.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct ClientRelay {
    client: ClientId,
    clients: ClientSinks,
    watchdog: ControlSender,
    raw: mpsc::Sender<ControlEvent>,
    /// The run of the frames that arrive.
    run: Option<RunKey>,
    forwarded: ForwardedFrames,
}

impl ClientRelay {
    async fn run(mut self, mut items: mpsc::Receiver<RelayItem>) {
        let mut held = LastRelayedFrame::default();
        while let Some(item) = items.recv().await {
            match item {
                RelayItem::Begin(run) => self.run = Some(run),
                RelayItem::Frame(frame) => {
                    self.send(held.hold(frame)).await;
                    // The watchdog notices a coordinator that is gone by itself.
                    let _closed =
                        self.watchdog.send(&ToWatchdog::FrameForwarded { client: self.client }).await;
                }
                RelayItem::Finished(message) => {
                    // Reserved before the completion is sent: no await may separate the completion from the
                    // report that it was sent.
                    let Ok(permit) = self.raw.reserve().await else { return };
                    self.send(held.release()).await;
                    self.forget_run();
                    permit.send(ControlEvent::WatchdogMessage(message));
                }
            }
        }
    }

    async fn send(&self, frame: Option<RelayedFrame>) {
        if let (Some(RelayedFrame { position, bytes }), Some(sink)) = (frame, self.clients.get(self.client))
            // The session notices a client that is gone.
            && sink.send(bytes).await.is_ok()
            && let Some(run) = &self.run
        {
            self.forwarded.lock().unwrap_or_else(PoisonError::into_inner).insert(run.clone(), position);
        }
    }

    fn forget_run(&self) {
        if let Some(run) = &self.run {
            self.forwarded.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
        }
    }
}
