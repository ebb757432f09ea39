//! Control messages between coordinator, watchdog, worker and guard. All are JSON in packets
//! ([`crate::packet`]), and enums are tagged by their single outer key. Both ends are always the same
//! program, so messages have no version.

mod command_test;
mod guard;
mod listed_test;
mod streams;
mod test_traits;
mod unfinished_tests;
mod updates;
mod watchdog;
mod worker;

pub use command_test::*;
pub use guard::*;
pub use heeler_core::{
    Attempt, DiagnosticsFile, ExitReason, LeakedProcess, LeaseId, LogLine, NameNesting, OsText, Outcome,
    ProcessUsage, TestDiagnostics, TestId, WorkerId,
};
pub use listed_test::*;
pub use streams::*;
pub use test_traits::*;
pub use unfinished_tests::UnfinishedTests;
pub use updates::*;
pub use watchdog::*;
pub use worker::*;

use serde::{Deserialize, Serialize};

/// Client number within the coordinator, from 1; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientId(pub u32);

/// Identity of a run within the coordinator. Clients choose their run ids, so two clients may choose the same
/// id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct RunKey {
    pub client: ClientId,
    /// Run id chosen by the client.
    pub id: String,
}

impl RunKey {
    /// Returns the key of a client's run.
    #[must_use]
    pub fn new(client: ClientId, id: impl Into<String>) -> Self {
        Self { client, id: id.into() }
    }
}

/// Route of results to a client. Each run has its own route, because workers and the watchdog serve several
/// clients.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClientRoute {
    /// Callback address for reports; `None` forwards results through the coordinator.
    pub callback: Option<CallbackAddress>,
    /// Timeouts of the client's connections.
    pub limits: DeliveryLimits,
    /// Encoding of the updates. Callback connections support only [`UpdateEncoding::TestProtocol`].
    #[serde(default)]
    pub encoding: UpdateEncoding,
    /// Whether the client reads the attachments stream, which carries the files of results.
    #[serde(default)]
    pub has_attachments_stream: bool,
}

/// First message on every control connection, sent by the process that dialled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinMessage {
    /// The coordinator's watchdog.
    Watchdog { pid: u32 },
    /// A worker started by the watchdog.
    Worker {
        /// Worker number from [`ToWatchdog::StartWorker`].
        worker: WorkerId,
        pid: u32,
    },
}

/// Address where the client listens for callback connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackAddress {
    /// Client's host, numeric if possible.
    pub host: String,
    pub port: u16,
    /// Token that Heeler's own listeners require in the first message.
    pub token: Option<String>,
}

impl CallbackAddress {
    /// Returns the address of a host's port.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16, token: Option<String>) -> Self {
        Self { host: host.into(), port, token }
    }
}

/// Timeouts of client connections, all in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeliveryLimits {
    /// A callback connection that is not established within this time counts as refused.
    pub connect_ms: u64,
    /// A client that reads nothing for this long, while there is something to send, counts as gone.
    pub stall_ms: u64,
    /// If the client does not answer barriers: how long its kernel may take without progress to acknowledge
    /// the last bytes.
    pub drain_ms: u64,
    /// A client that has answered before, and leaves an open barrier unanswered for this long, counts as
    /// gone.
    pub answer_ms: u64,
    /// How long a client may take to give its first answer. If it takes longer, its updates use the main
    /// connection.
    pub first_answer_ms: u64,
}

/// How certain it is that the client has everything sent on a connection, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProofLevel {
    /// The client answered the final barrier, so it has handled everything.
    Handled,
    /// The client has only one connection, so everything arrives before the completion.
    Ordered,
    /// The client answers no barriers, but its kernel acknowledged every byte. The client may not have read
    /// them.
    Delivered,
    /// Nothing proves that the client has received anything.
    None,
}

impl ProofLevel {
    /// Returns whether the proof suffices, so that no update needs to be sent again.
    #[must_use]
    pub fn is_enough(self) -> bool {
        self <= Self::Ordered
    }
}

impl std::fmt::Display for ProofLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Handled => "handled",
            Self::Ordered => "ordered",
            Self::Delivered => "delivered",
            Self::None => "none",
        })
    }
}
