//! Frames that the watchdog sends to clients through the coordinator: one task for each client, so that a
//! client that reads slowly delays neither the watchdog's messages nor the frames of another client.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use heeler_core::delivery::LastRelayedFrame;
use heeler_protocol::control::{ClientId, FromWatchdog, RELAY_WINDOW, RelayedPart, RunKey, ToWatchdog};
use heeler_transport::control::ControlSender;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::{
    client_sinks::{ClientSink, ClientSinks},
    connection::ControlEvent,
};

/// Time for clients to take the last frames of a watchdog that is gone. Its successor sends what was not
/// taken.
const FINISH_DEADLINE: Duration = Duration::from_secs(1);
/// How long the end of a run is held back until its completion is handed to the kernel. A client that has
/// room takes it in microseconds; beyond that, the client does not read.
const WRITE_LIMIT: Duration = Duration::from_millis(500);
/// Queue of a client: the window of frames, and the ends of its runs, of which many may come together while
/// the client does not read. Beyond that the watchdog's messages wait for this client.
const QUEUED_ITEMS: usize = RELAY_WINDOW + 64;

/// By run, the number of frames of its finish that were forwarded; until it is finished.
type ForwardedFrames = Arc<Mutex<BTreeMap<RunKey, u64>>>;

enum RelayItem {
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
    run: Option<RunKey>,
}

/// The tasks that forward frames of one watchdog.
pub(super) struct WatchdogRelays {
    clients: ClientSinks,
    watchdog: ControlSender,
    raw: mpsc::Sender<ControlEvent>,
    queues: HashMap<ClientId, mpsc::Sender<RelayItem>>,
    /// The run of the frames that arrive for a client.
    runs: HashMap<ClientId, RunKey>,
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
            runs: HashMap::new(),
            tasks: JoinSet::new(),
            forwarded: ForwardedFrames::default(),
        }
    }

    /// Forwards a frame. The watchdog waits for confirmations, so there is mostly room in the queue.
    ///
    /// Cancel safe: no, because the frame would be lost.
    pub(super) async fn forward(&mut self, client: ClientId, position: u64, bytes: Bytes) {
        let run = self.runs.get(&client).cloned();
        let queue = self.queues.entry(client).or_insert_with(|| {
            let (queue, items) = mpsc::channel(QUEUED_ITEMS);
            let relay = ClientRelay {
                client,
                clients: self.clients.clone(),
                watchdog: self.watchdog.clone(),
                raw: self.raw.clone(),
                forwarded: Arc::clone(&self.forwarded),
            };
            self.tasks.spawn(relay.run(items));
            queue
        });
        // Its task ends only when nobody takes events any more.
        let _closed = queue.send(RelayItem::Frame(RelayedFrame { position, bytes, run })).await;
    }

    /// Returns the event for a message, unless the frames of its run are to be forwarded before it.
    ///
    /// Cancel safe: no, because the message would be lost.
    pub(super) async fn on_message(&mut self, message: FromWatchdog) -> Option<ControlEvent> {
        let message = match message {
            FromWatchdog::Relaying { run } => {
                self.runs.insert(run.client, run);
                return None;
            }
            FromWatchdog::Finished { run, proof, soft_errors } => {
                self.runs.remove(&run.client);
                let client = run.client;
                let message = FromWatchdog::Finished { run, proof, soft_errors };
                let Some(queue) = self.queues.get(&client) else {
                    return Some(ControlEvent::WatchdogMessage(message));
                };
                let _closed = queue.send(RelayItem::Finished(message)).await;
                return None;
            }
            message => message,
        };
        Some(ControlEvent::WatchdogMessage(message))
    }

    /// Waits until everything is forwarded; gives up on clients that do not read. Returns, by run, the number
    /// of frames of its finish that were forwarded.
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
    forwarded: ForwardedFrames,
}

impl ClientRelay {
    async fn run(self, mut items: mpsc::Receiver<RelayItem>) {
        let mut held = LastRelayedFrame::default();
        // Two for each run that has ended and is not written, all of which fit into the outbox.
        let mut reports = JoinSet::new();
        while let Some(item) = items.recv().await {
            match item {
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
                    let completion = held.release();
                    let run = completion.as_ref().and_then(|frame| frame.run.clone());
                    if let Some(run) = &run {
                        let frames = self.forwarded().get(run).copied().unwrap_or(0);
                        self.report_written(&mut reports, run, RelayedPart::Frames(frames)).await;
                    }
                    self.send(completion).await;
                    heeler_sys::fail::pass("run.relayed");
                    let report = RunEndReport(Some((permit, message)));
                    if let Some(run) = &run {
                        self.forwarded().remove(run);
                        self.report_written(&mut reports, run, RelayedPart::Completion).await;
                    }
                    drop(report);
                }
            }
        }
    }

    async fn send(&self, frame: Option<RelayedFrame>) {
        if let (Some(RelayedFrame { position, bytes, run }), Some(sink)) = (frame, self.clients.get(self.client))
            // The session notices a client that is gone.
            && sink.send(bytes).await.is_ok()
            && let Some(run) = run
        {
            self.forwarded().insert(run, position);
        }
    }

    /// Reports to the watchdog that everything sent so far is written, so that it does not send it again if
    /// this process is killed. The report of a client that does not read follows when it is written.
    ///
    /// Cancel safe: yes, because each report is sent by a task of its own.
    async fn report_written(&self, reports: &mut JoinSet<()>, run: &RunKey, written: RelayedPart) {
        // A client without callback port can't be reached by anybody else.
        let Some(ClientSink::Connection(outbox, Some(_))) = self.clients.get(self.client) else { return };
        let (watchdog, run) = (self.watchdog.clone(), run.clone());
        reports.spawn(async move {
            if outbox.flush().await.is_ok()
                && watchdog.send(&ToWatchdog::RelayWritten { run, written }).await.is_ok()
            {
                let _closed = watchdog.flush().await;
            }
        });
        let all = async { while reports.join_next().await.is_some() {} };
        let _late = timeout(WRITE_LIMIT, all).await;
    }

    fn forwarded(&self) -> MutexGuard<'_, BTreeMap<RunKey, u64>> {
        self.forwarded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The report that the completion of a run is sent: it follows also if the task ends while it waits until
/// the completion is written, because another watchdog would send a second one.
struct RunEndReport<'a>(Option<(mpsc::Permit<'a, ControlEvent>, FromWatchdog)>);

impl Drop for RunEndReport<'_> {
    fn drop(&mut self) {
        if let Some((permit, message)) = self.0.take() {
            permit.send(ControlEvent::WatchdogMessage(message));
        }
    }
}

#[cfg(test)]
mod tests {
    use heeler_protocol::control::{ProofLevel, RunUpdates, TestUpdate, UpdateEncoding};

    use super::{super::client_sinks::ClientSink, *};

    /// More runs than the queue of a client had room for beside the window.
    const RUNS: u64 = 12;

    #[tokio::test]
    async fn ends_of_many_runs_follow_their_completions_when_nobody_reads_for_a_while() {
        let client = ClientId(1);
        let (session, mut updates) = mpsc::channel(1);
        let clients = ClientSinks::default();
        clients.insert(client, ClientSink::Session(session));
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (watchdog, _, _link) = heeler_transport::control::open(ours);
        let _watchdog_end = heeler_transport::control::open(theirs);
        let (raw, mut events) = mpsc::channel(1);
        let mut relays = WatchdogRelays::new(clients, watchdog, raw);
        for number in 0..RUNS {
            let run = RunKey::new(client, number.to_string());
            // Once for the results, once for the completion.
            for position in 1..=2 {
                assert!(relays.on_message(FromWatchdog::Relaying { run: run.clone() }).await.is_none());
                relays.forward(client, position, UpdateEncoding::Typed.completion(&run.id)).await;
            }
            let finished =
                FromWatchdog::Finished { run, proof: ProofLevel::Ordered, soft_errors: Vec::new() };
            assert!(relays.on_message(finished).await.is_none());
        }
        for number in 0..RUNS {
            let run = number.to_string();
            for _ in 1..=2 {
                let expected = RunUpdates { run: run.clone(), updates: vec![TestUpdate::Completed] };
                assert_eq!(updates.recv().await, Some(expected));
            }
            match events.recv().await {
                Some(ControlEvent::WatchdogMessage(FromWatchdog::Finished { run: ended, .. })) => {
                    assert_eq!(ended.id, run)
                }
                _ => panic!("the end of run {run} is expected"),
            }
        }
        assert_eq!(relays.finish().await, BTreeMap::new());
    }
}
