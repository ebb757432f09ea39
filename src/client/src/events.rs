//! The events that a session reports to the user of the library, in order.

use std::{fmt, sync::Arc};

use heeler_protocol::{
    mtp::{Attachment, LogLevel, NodeChange},
    rpc::RequestId,
};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Capacity of the event channel. An event is one frame, mostly of a few dozen changes: enough that the
/// reader can draw a screen meanwhile, few enough that the server notices a reader that has stopped.
pub(super) const EVENT_QUEUE_CAPACITY: usize = 256;
/// Maximum size of the queued messages. A single one may be larger: a failed test's output has no limit here.
pub(super) const EVENT_QUEUE_BYTES: usize = 8 << 20;
/// Size below which a message is not counted: the number of events bounds those.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// The connection on which an event arrived.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// The main connection, to the server.
    Main,
    /// A callback connection, with the name that its process sent in the hello: `worker 3`, `watchdog`.
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

/// A message of the server or of one of its processes, or a change in the state of a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// Tests or groups have changed.
    Changes {
        /// Id of the run.
        run_id: String,
        /// The connection that reported it.
        source: EventSource,
        /// The changes in the order in which they were sent; may be empty.
        changes: Vec<NodeChange>,
    },
    /// Files beside the results.
    Attachments {
        /// Id of the run; empty where the server does not send it.
        run_id: String,
        /// The connection that reported it.
        source: EventSource,
        /// The files.
        attachments: Vec<Attachment>,
    },
    /// The end of the attachments of a run.
    AttachmentsEnded {
        /// Id of the run; empty where the server does not send it.
        run_id: String,
    },
    /// The end of the changes of a run on all connections. Reported once per run.
    Completed {
        /// Id of the run.
        run_id: String,
    },
    /// The server violated the protocol: an update of a run arrived after the run's completion.
    UpdateAfterCompletion {
        /// Id of the run.
        run_id: String,
        /// The connection that reported it.
        source: EventSource,
        /// The update.
        late: LateUpdate,
    },
    /// A log message, meant for people.
    Log {
        /// Id of the run that the message concerns, where the server sends it.
        run_id: Option<String>,
        /// Uid of the test that the message concerns, where the server sends it.
        node_uid: Option<String>,
        /// Severity.
        level: LogLevel,
        /// The message.
        message: String,
    },
    /// The server requests a debugger for a test process that is stopped before its first instruction; the
    /// client must respond with [`super::Client::respond_to_debugger`]. Sent only to a client with
    /// [debuggers](super::ClientOptions::debuggers).
    AttachDebugger {
        /// Id of the request, to be passed with the response.
        id: RequestId,
        /// Process id of the test process.
        process_id: u32,
    },
    /// The server has withdrawn a request for a debugger; a response would be ignored.
    DebuggerWithdrawn {
        /// Id of the withdrawn request.
        id: RequestId,
    },
    /// Telemetry, unchanged.
    Telemetry {
        /// Parameters of the notification.
        params: Value,
    },
    /// A message that could not be parsed; it is skipped and its content is lost.
    InvalidMessage {
        /// The connection that the message arrived on.
        source: EventSource,
        /// Description of the error.
        reason: String,
    },
    /// A connection to the callback port was refused.
    CallbackRefused {
        /// The reason for the refusal.
        reason: String,
    },
    /// A connection ended abnormally. On the main connection, that is any end before [`super::Client::exit`].
    ConnectionLost {
        /// The connection that was lost.
        source: EventSource,
        /// Description of the end.
        reason: String,
    },
}

/// An update that arrived after the completion of its run.
#[derive(Debug, Clone, PartialEq)]
pub enum LateUpdate {
    /// Changes of tests.
    Changes(Vec<NodeChange>),
    /// Files beside the results.
    Attachments(Vec<Attachment>),
    /// The end of the attachments.
    AttachmentsEnded,
}

/// The events of one session, from all its connections.
///
/// They must be read while requests are in progress: when the channel is full, the session stops reading its
/// connections, and then responses do not arrive either. Dropping the stream discards all further events.
#[derive(Debug)]
pub struct EventStream {
    receiver: mpsc::Receiver<QueuedEvent>,
}

impl EventStream {
    pub(super) fn channel() -> (EventSender, Self) {
        let (sender, receiver) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        (EventSender { sender, room: Arc::new(Semaphore::new(EVENT_QUEUE_BYTES)) }, Self { receiver })
    }

    /// Waits for the next event; returns `None` after the client has been dropped and all events have been
    /// read.
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

/// An event in the queue, with the room that its message takes there.
#[derive(Debug)]
struct QueuedEvent {
    event: ClientEvent,
    _room: EventRoom,
}

/// Room in the event queue for one message; given back when it is dropped.
#[derive(Debug, Default)]
pub(super) struct EventRoom {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The sending end of the event queue.
#[derive(Debug)]
pub(super) struct EventSender {
    sender: mpsc::Sender<QueuedEvent>,
    /// One permit for each byte that may be queued.
    room: Arc<Semaphore>,
}

impl EventSender {
    /// Waits until there is room for the events of a message of this size. To be called before the message is
    /// parsed, so that parsed messages do not wait in memory.
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

    /// Waits for a place in the queue; `None` if the receiver has been dropped.
    ///
    /// Cancel safe: yes, because the place is free again.
    pub(super) async fn reserve_place(&self) -> Option<EventPlace<'_>> {
        self.sender.reserve().await.ok().map(EventPlace)
    }
}

/// A place in the event queue.
#[derive(Debug)]
pub(super) struct EventPlace<'a>(mpsc::Permit<'a, QueuedEvent>);

impl EventPlace<'_> {
    /// Queues an event.
    pub(super) fn send(self, event: ClientEvent, room: EventRoom) {
        self.0.send(QueuedEvent { event, _room: room });
    }
}
