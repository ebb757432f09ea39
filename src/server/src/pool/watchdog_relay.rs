//! Frames that the watchdog sends to clients through the coordinator. Each client has its own task, so a slow
//! client does not delay the watchdog's messages or other clients' frames.

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

/// Time for clients to accept the last frames of a dead watchdog. Its successor sends the rest again.
const FINISH_DEADLINE: Duration = Duration::from_secs(1);
/// How long the report of a run's end is held back until the completion is written to the kernel. If the
/// client reads, this takes microseconds.
const WRITE_LIMIT: Duration = Duration::from_millis(500);
/// Capacity of a client's queue: the window of frames, plus ends of runs, which accumulate while the client
/// does not read. When the queue is full, the watchdog's messages wait for this client.
const QUEUED_ITEMS: usize = RELAY_WINDOW + 64;

/// For each unfinished run, the number of finish frames forwarded so far.
type ForwardedFrames = Arc<Mutex<BTreeMap<RunKey, u64>>>;

enum RelayItem {
    Frame(RelayedFrame),
    /// The end of a run, queued after its last frame.
    Finished(FromWatchdog),
}

/// A frame of a run's finish.
#[derive(Debug)]
struct RelayedFrame {
    /// Number of frames of the finish up to and including this one.
    position: u64,
    bytes: Bytes,
    run: Option<RunKey>,
}

/// Tasks that forward the frames of one watchdog.
pub(super) struct WatchdogRelays {
    clients: ClientSinks,
    watchdog: ControlSender,
    raw: mpsc::Sender<ControlEvent>,
    queues: HashMap<ClientId, mpsc::Sender<RelayItem>>,
    /// For each client, the run that arriving frames belong to.
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

    /// Forwards a frame. The queue usually has room, because the watchdog waits for confirmations.
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
        // The task ends early only when nothing receives the pool's events any more.
        let _closed = queue.send(RelayItem::Frame(RelayedFrame { position, bytes, run })).await;
    }

    /// Returns the event for a message; `None` if the message is handled here or must wait for its run's
    /// frames.
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

    /// Waits until everything is forwarded, up to a time limit for clients that do not read. Returns the
    /// number of forwarded finish frames of each run.
    ///
    /// Cancel safe: yes, because the tasks are aborted when they are dropped.
    pub(super) async fn finish(mut self) -> BTreeMap<RunKey, u64> {
        self.queues.clear();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(FINISH_DEADLINE, all).await.is_err() {
            tracing::debug!("dropping messages of a dead watchdog: the client does not read them");
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
        // Up to two tasks for each ended run whose frames are not written yet. The outbox bounds their
        // number.
        let mut reports = JoinSet::new();
        while let Some(item) = items.recv().await {
            match item {
                RelayItem::Frame(frame) => {
                    self.send(held.hold(frame)).await;
                    // Sending only fails if the connection to the watchdog has ended. The failure is ignored,
                    // because the watchdog notices the end by itself.
                    let _closed =
                        self.watchdog.send(&ToWatchdog::FrameForwarded { client: self.client }).await;
                }
                RelayItem::Finished(message) => {
                    // Reserve before sending the completion: nothing may be awaited between the completion
                    // and the report that it was sent.
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
            // The session detects a client that is gone.
            && sink.send(bytes).await.is_ok()
            && let Some(run) = run
        {
            self.forwarded().insert(run, position);
        }
    }

    /// Reports to the watchdog that everything sent so far is written. If this process is killed after that,
    /// the watchdog does not send it again. If the client does not read, the report is sent later.
    ///
    /// Cancel safe: yes, because each report is sent by a separate task.
    async fn report_written(&self, reports: &mut JoinSet<()>, run: &RunKey, written: RelayedPart) {
        // Without a callback port, no other process can reach the client.
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

/// Reports on drop that a run's completion was sent. Dropping the task while it waits for the write must
/// still send the report, because another watchdog would otherwise send a second completion.
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

    /// Number of runs that end while the client does not read.
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
            // One report for the results, one for the completion.
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
