//! Events that a session reports to the library's user, in order.

use std::{fmt, sync::Arc};

use heeler_protocol::{
    mtp::{Attachment, LogLevel, NodeChange},
    rpc::RequestId,
};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Capacity of the event channel. An event is one frame, mostly with a few dozen changes. The capacity gives
/// the reader time to draw a screen, but the server soon notices a reader that has stopped.
pub(super) const EVENT_QUEUE_CAPACITY: usize = 256;
/// Maximum size of the queued messages. A single message may be larger, because a failed test's output is
/// not limited here.
pub(super) const EVENT_QUEUE_BYTES: usize = 8 << 20;
/// Messages below this size are not counted, since the number of events bounds their total.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// Connection that an event arrived on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// The main connection to the server.
    Main,
    /// A callback connection, with its process's name from the hello, such as `worker 3` or `watchdog`.
    Callback(Arc<str>),
}

impl fmt::Display for EventSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => f.write_str("server"),
            Self::Callback(name) => f.write_str(name),
        }
    }
}

/// A message of the server or one of its processes, or a change of a connection's state.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// Tests or groups have changed.
    Changes {
        /// Id of the run.
        run_id: String,
        /// Connection that reported the changes.
        source: EventSource,
        /// Changes in the order sent; may be empty.
        changes: Vec<NodeChange>,
    },
    /// Files attached to the results.
    Attachments {
        /// Id of the run; empty if the server does not send it.
        run_id: String,
        /// Connection that reported the files.
        source: EventSource,
        /// The files.
        attachments: Vec<Attachment>,
    },
    /// End of a run's attachments.
    AttachmentsEnded {
        /// Id of the run; empty if the server does not send it.
        run_id: String,
    },
    /// End of a run's changes on all connections. Reported once per run.
    Completed {
        /// Id of the run.
        run_id: String,
    },
    /// Protocol violation: an update arrived after its run's completion.
    UpdateAfterCompletion {
        /// Id of the run.
        run_id: String,
        /// Connection that reported the update.
        source: EventSource,
        /// Update that arrived after the completion.
        late: LateUpdate,
    },
    /// A log message for people.
    Log {
        /// Id of the run, if the server sends it.
        run_id: Option<String>,
        /// Uid of the test, if the server sends it.
        node_uid: Option<String>,
        /// Severity.
        level: LogLevel,
        /// Text of the message.
        message: String,
    },
    /// The server requests a debugger for a test process that is stopped before its first instruction. The
    /// client must respond with [`super::Client::respond_to_debugger`]. Sent only to a client with
    /// [debuggers](super::ClientOptions::debuggers).
    AttachDebugger {
        /// Id of the request, for the response.
        id: RequestId,
        /// Process id of the test process.
        process_id: u32,
    },
    /// The server has withdrawn a debugger request; a response would be ignored.
    DebuggerWithdrawn {
        /// Id of the withdrawn request.
        id: RequestId,
    },
    /// Telemetry, unchanged.
    Telemetry {
        /// Parameters of the notification.
        params: Value,
    },
    /// A message that could not be parsed. It is skipped, and its content is lost.
    InvalidMessage {
        /// Connection that the message arrived on.
        source: EventSource,
        /// Description of the error.
        reason: String,
    },
    /// A connection to the callback port was rejected.
    CallbackRefused {
        /// Reason for the rejection.
        reason: String,
    },
    /// A connection ended abnormally. On the main connection, this is any end before
    /// [`super::Client::exit`].
    ConnectionLost {
        /// The lost connection.
        source: EventSource,
        /// Description of the end.
        reason: String,
    },
}

/// An update that arrived after its run's completion.
#[derive(Debug, Clone, PartialEq)]
pub enum LateUpdate {
    /// Changes of tests.
    Changes(Vec<NodeChange>),
    /// Files attached to the results.
    Attachments(Vec<Attachment>),
    /// End of the attachments.
    AttachmentsEnded,
}

/// Events of one session, from all its connections.
///
/// Read the events while requests are in progress. When the channel is full, the session stops reading its
/// connections, and responses do not arrive either. Dropping the stream discards all further events.
#[derive(Debug)]
pub struct EventStream {
    receiver: mpsc::Receiver<QueuedEvent>,
}

impl EventStream {
    pub(super) fn channel() -> (EventSender, Self) {
        let (sender, receiver) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        (EventSender { sender, room: Arc::new(Semaphore::new(EVENT_QUEUE_BYTES)) }, Self { receiver })
    }

    /// Waits for the next event; `None` after the client has been dropped and all events have been read.
    ///
    /// Cancel safe: yes, because an event is either still in the channel or returned.
    pub async fn next(&mut self) -> Option<ClientEvent> {
        self.receiver.recv().await.map(|queued| queued.event)
    }

    /// Returns the next event if one is already queued.
    pub fn try_next(&mut self) -> Option<ClientEvent> {
        self.receiver.try_recv().ok().map(|queued| queued.event)
    }
}

/// A queued event, with the space reserved for its message.
#[derive(Debug)]
struct QueuedEvent {
    event: ClientEvent,
    _room: EventRoom,
}

/// Space in the event queue for one message; released when dropped.
#[derive(Debug, Default)]
pub(super) struct EventRoom {
    _permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
pub(super) struct EventSender {
    sender: mpsc::Sender<QueuedEvent>,
    /// One permit per byte that may be queued.
    room: Arc<Semaphore>,
}

impl EventSender {
    /// Waits until the queue has space for a message of this size. Call this before parsing the message, so
    /// that parsed messages do not wait in memory.
    ///
    /// Cancel safe: yes, because nothing is queued.
    pub(super) async fn reserve_room(&self, bytes: usize) -> EventRoom {
        if bytes < UNCOUNTED_BYTES {
            return EventRoom::default();
        }
        let counted = u32::try_from(bytes.min(EVENT_QUEUE_BYTES)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        EventRoom { _permit: Arc::clone(&self.room).acquire_many_owned(counted).await.ok() }
    }

    /// Waits for a slot in the queue; `None` if the receiver was dropped.
    ///
    /// Cancel safe: yes, because the slot becomes free again.
    pub(super) async fn reserve_place(&self) -> Option<EventPlace<'_>> {
        self.sender.reserve().await.ok().map(EventPlace)
    }
}

/// A reserved slot in the event queue.
#[derive(Debug)]
pub(super) struct EventPlace<'a>(mpsc::Permit<'a, QueuedEvent>);

impl EventPlace<'_> {
    pub(super) fn send(self, event: ClientEvent, room: EventRoom) {
        self.0.send(QueuedEvent { event, _room: room });
    }
}
