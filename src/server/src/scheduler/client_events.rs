//! Events for one client. The scheduler never waits for a client: the queue is bounded, log lines that don't
//! fit are counted and dropped, and the rest of the queue is reserved for other events.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use heeler_core::{Slots, machine_record::SlotOwner};
use heeler_protocol::{
    control::{DebuggeeCommand, FinishRequest, RunUpdates, UpdateEncoding},
    mtp::LogLevel,
};
use heeler_recovery::finish;
use tokio::sync::mpsc;

use super::{DebuggeeLease, RequestNumber};
use crate::discovery::Catalogue;
use crate::run::{RunOutcome, RunPlan, RunWait};

/// Capacity of a client's event queue.
pub(super) const QUEUE_CAPACITY: usize = 1024;
/// Part of the queue that log lines leave free. A client has at most a few dozen open requests, and each
/// causes only a handful of other events before the client has to respond.
const RESERVED_CAPACITY: usize = 512;

#[derive(Debug)]
pub enum ClientEvent {
    /// The listing is done. Some programs may have failed to list.
    Listed {
        request: RequestNumber,
        /// The catalogue, or why no program could be listed.
        catalogue: Result<Arc<Catalogue>, String>,
    },
    /// Lines for the client's log.
    Log {
        /// Run id, if the lines are about a run.
        run: Option<String>,
        lines: Vec<ClientLogLine>,
    },
    /// The run could not begin, with the reason.
    RunRefused { request: RequestNumber, plan: Box<RunPlan>, error: String },
    /// Updates of a run, for clients that receive them as events. Updates may be repeated when processes die,
    /// but each test has one result.
    Updates(RunUpdates),
    /// The last updates of a run, up to its completion. The client's session, instead of the watchdog,
    /// sends them on the main connection. `RunEnded` follows.
    FinishRun(Vec<Bytes>),
    /// The run is over, and its completion has been sent.
    RunEnded { request: RequestNumber, plan: Box<RunPlan>, outcome: Box<RunOutcome> },
    /// The tests of a run wait for other things than before: for resources, several slots, prerequisites.
    /// Replaces the earlier event. Only for clients that receive updates as events.
    Waits { request: RequestNumber, waits: Vec<RunWait> },
    /// A test waits for a debugger.
    DebuggeeWaiting(DebuggeeWaiting),
    /// A debugger has launched the test's process, so no decision is needed any more.
    DebuggeeLaunched(DebuggeeLease),
    /// The runs of this process wait for slots of the machine, or no longer wait.
    MachineWait(Option<MachineWait>),
    /// A test no longer waits for a debugger: its lease is over, or its worker died.
    DebuggeeGone(DebuggeeLease),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLogLine {
    /// The test that the line concerns.
    pub test_uid: Option<String>,
    pub level: LogLevel,
    pub message: String,
}

impl ClientLogLine {
    /// Returns a line that is not about a test.
    #[must_use]
    pub fn new(level: LogLevel, message: String) -> Self {
        Self { test_uid: None, level, message }
    }
}

/// Slots that the runs of this process wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineWait {
    /// Number of slots that the runs could use in addition.
    pub missing: Slots,
    /// Other coordinators of this user on this machine that want slots.
    pub others: Vec<SlotOwner>,
}

/// A test that waits for a debugger.
#[derive(Debug, Clone)]
pub struct DebuggeeWaiting {
    pub lease: DebuggeeLease,
    /// Id of the test's run.
    pub run_id: String,
    pub test_uid: Option<String>,
    /// Process id of the test.
    pub pid: u32,
    /// Command that a debugger can launch instead.
    pub command: Option<DebuggeeCommand>,
}

/// Sender of events to one client.
#[derive(Debug, Clone)]
pub(crate) struct ClientEvents {
    queue: mpsc::Sender<ClientEvent>,
    dropped_lines: Arc<AtomicU64>,
}

impl ClientEvents {
    pub(super) fn new(queue: mpsc::Sender<ClientEvent>) -> Self {
        Self { queue, dropped_lines: Arc::new(AtomicU64::new(0)) }
    }

    /// Logs lines about one of the client's runs, or about none.
    pub(crate) fn log(&self, run: Option<&str>, mut lines: Vec<ClientLogLine>) {
        if !self.has_room() {
            self.dropped_lines.fetch_add(lines.len() as u64, Ordering::Relaxed);
            return;
        }
        let dropped = self.dropped_lines.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let text = format!("{dropped} log messages were dropped because the client did not read them");
            lines.insert(0, ClientLogLine::new(LogLevel::Warning, text));
        }
        self.send(ClientEvent::Log { run: run.map(str::to_owned), lines });
    }

    /// Sends the end of a run that has no watchdog, in the client's encoding.
    pub(crate) fn finish_run(&self, finish: &FinishRequest) {
        let frames = finish::frames(finish);
        match finish.route.encoding {
            UpdateEncoding::TestProtocol => self.send(ClientEvent::FinishRun(frames)),
            UpdateEncoding::Typed => {
                let updates = frames.iter().filter_map(|frame| RunUpdates::read(frame).ok());
                updates.for_each(|updates| self.send(ClientEvent::Updates(updates)));
            }
        }
    }

    /// Returns whether an event that the client can do without fits into the queue.
    pub(super) fn has_room(&self) -> bool {
        self.queue.capacity() > RESERVED_CAPACITY
    }

    /// Sends an event. Nothing is sent if the client is gone.
    pub(crate) fn send(&self, event: ClientEvent) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.queue.try_send(event) {
            tracing::error!(?event, "dropping an event: the event queue of a client is full");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<ClientLogLine> {
        vec![ClientLogLine::new(LogLevel::Information, text.to_owned())]
    }

    #[test]
    fn log_lines_without_room_are_counted_and_leave_room_for_other_events() {
        let (sender, mut queue) = mpsc::channel(QUEUE_CAPACITY);
        let events = ClientEvents::new(sender);
        for _ in 0..QUEUE_CAPACITY {
            events.log(None, line("x"));
        }
        assert_eq!(queue.len(), QUEUE_CAPACITY - RESERVED_CAPACITY);
        let lease = DebuggeeLease {
            worker: heeler_protocol::control::WorkerId(1),
            lease: heeler_protocol::control::LeaseId(1),
        };
        events.send(ClientEvent::DebuggeeGone(lease));
        assert_eq!(queue.len(), QUEUE_CAPACITY - RESERVED_CAPACITY + 1);
        while queue.try_recv().is_ok() {}
        events.log(None, line("again"));
        let Ok(ClientEvent::Log { lines, .. }) = queue.try_recv() else { panic!("a log event is queued") };
        let texts: Vec<_> = lines.into_iter().map(|line| line.message).collect();
        assert_eq!(texts, ["512 log messages were dropped because the client did not read them", "again"]);
    }
}
