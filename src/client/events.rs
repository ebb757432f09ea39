//! What the user of the library sees of a session, in order.

use std::{fmt, sync::Arc};

use serde_json::Value;
use tokio::sync::mpsc;
use wire::{
    mtp::{Attachment, Change, LogLevel},
    rpc::RequestId,
};

/// So many events wait for the reader at the most. An event is one frame, mostly of a few dozen changes: enough for
/// the reader to be drawing a screen meanwhile, little enough that a reader that stops is felt by the server.
pub(super) const EVENTS_AT_MOST: usize = 256;

/// The connection that something came on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// The one to the server.
    Main,
    /// A callback connection, with the name that its process gave: `worker 3`, `watchdog`.
    Callback(Arc<str>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => f.write_str("server"),
            Self::Callback(name) => f.write_str(name),
        }
    }
}

/// Something that the server or one of its processes told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Tests or groups have changed.
    Changes {
        /// Which run.
        run_id: String,
        /// Who told.
        source: Source,
        /// In their order; may be empty.
        changes: Vec<Change>,
    },
    /// Files beside the results.
    Attachments {
        /// Which run; empty where the server does not say.
        run_id: String,
        /// Who told.
        source: Source,
        /// The files.
        attachments: Vec<Attachment>,
    },
    /// No more attachments come.
    AttachmentsEnded {
        /// Which run; empty where the server does not say.
        run_id: String,
    },
    /// No more changes come, on any connection. Told once for each run.
    Completed {
        /// Which run.
        run_id: String,
    },
    /// The server broke its promise: something of a run came after its completion.
    UpdateAfterCompletion {
        /// Which run.
        run_id: String,
        /// Who told.
        source: Source,
        /// What came.
        late: Late,
    },
    /// For people.
    Log {
        /// Which run it is about, where the server says.
        run_id: Option<String>,
        /// Which test it is about, where the server says.
        node_uid: Option<String>,
        /// How loud.
        level: LogLevel,
        /// The text.
        message: String,
    },
    /// The server asks for a debugger for a test process, which stands before its first instruction; to be answered by
    /// [`super::Client::answer_debugger`]. Only for a client that has [debuggers](super::ClientOptions::debuggers).
    AttachDebugger {
        /// Names the request in its answer.
        id: RequestId,
        /// The process.
        process_id: u32,
    },
    /// A request for a debugger has been withdrawn; its answer would be ignored.
    DebuggerWithdrawn {
        /// Which.
        id: RequestId,
    },
    /// Measurements, as they came.
    Telemetry {
        /// The notification's parameters.
        params: Value,
    },
    /// A message that could not be read; it is skipped, and what it told is lost.
    Unreadable {
        /// Who sent it.
        source: Source,
        /// What is wrong with it.
        reason: String,
    },
    /// Someone dialled the callback port and was turned away.
    CallbackRefused {
        /// What was wrong.
        reason: String,
    },
    /// A connection ended otherwise than in order. On the main one, that is any end before [`super::Client::exit`].
    ConnectionLost {
        /// Which.
        source: Source,
        /// How it ended.
        reason: String,
    },
}

/// What came after the completion of its run.
#[derive(Debug, Clone, PartialEq)]
pub enum Late {
    /// Changes of tests.
    Changes(Vec<Change>),
    /// Attachments.
    Attachments(Vec<Attachment>),
    /// The end of the attachments.
    AttachmentsEnded,
}

/// The events of one session, from all its connections.
///
/// They must be read while requests are under way: a session whose events nobody takes stops reading its connections,
/// and then the answers don't come either. Dropping the whole stream says that nobody wants them.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Event>,
}

impl Events {
    pub(super) fn channel() -> (mpsc::Sender<Event>, Self) {
        let (sender, receiver) = mpsc::channel(EVENTS_AT_MOST);
        (sender, Self { receiver })
    }

    /// Waits for the next event; `None` after the client is gone and all is read.
    ///
    /// Cancel safe: yes, because an event is either still in the channel or returned.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }
}
