//! Control messages between coordinator, watchdog, worker and guard. All are JSON in packets
//! ([`crate::packet`]); enums are tagged by their one outer key. Both ends are always the same program, so
//! there are no versions to bridge.

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

/// Client number within the coordinator, from 1; not reused after the client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientId(pub u32);

/// Identity of a run within the coordinator. Clients choose the ids of their runs, and two clients may choose
/// the same one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct RunKey {
    pub client: ClientId,
    /// Run id, as the client named it.
    pub id: String,
}

impl RunKey {
    /// Returns the key of a client's run.
    #[must_use]
    pub fn new(client: ClientId, id: impl Into<String>) -> Self {
        Self { client, id: id.into() }
    }
}

/// Route of results to a client. It belongs to the runs of that client: workers and the watchdog serve
/// several clients.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClientRoute {
    /// Callback address to report to; `None` forwards results through the coordinator.
    pub callback: Option<CallbackAddress>,
    /// Timeouts of the client's connections.
    pub limits: DeliveryLimits,
    /// Encoding of the updates; callback connections take [`UpdateEncoding::TestProtocol`] only.
    #[serde(default)]
    pub encoding: UpdateEncoding,
    /// Whether the client reads the attachments stream: the files of a result are sent with it.
    #[serde(default)]
    pub has_attachments_stream: bool,
}

/// First message on every control connection, from the process that dialled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinMessage {
    /// The coordinator's watchdog.
    Watchdog { pid: u32 },
    /// Worker that the watchdog started.
    Worker {
        /// Worker number from [`ToWatchdog::StartWorker`].
        worker: WorkerId,
        pid: u32,
    },
}

/// Port at which the client listens for callback connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackAddress {
    /// Host of the client, numeric where possible.
    pub host: String,
    pub port: u16,
    /// Token that Heeler's own listeners require as the first message.
    pub token: Option<String>,
}

impl CallbackAddress {
    /// Returns the address of a port.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16, token: Option<String>) -> Self {
        Self { host: host.into(), port, token }
    }
}

/// Timeouts of client connections, all in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeliveryLimits {
    /// Time after which a callback connection that is not established counts as refused.
    pub connect_ms: u64,
    /// Time after which a client that reads nothing, while there is something to send, counts as gone.
    pub stall_ms: u64,
    /// Time that the client's kernel may take without progress to acknowledge the last bytes, of a client
    /// that does not answer barriers.
    pub drain_ms: u64,
    /// Time after which a client that has answered before, and does not answer an open barrier, counts as
    /// gone.
    pub answer_ms: u64,
    /// Time for the first answer of a client, after which its updates go over the main connection.
    pub first_answer_ms: u64,
}

/// Proof level of delivery: how certain it is that the client has everything sent on a connection, best
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProofLevel {
    /// The client answered the barrier behind everything else: it has handled all of it.
    Handled,
    /// There is one connection, and its order is enough: everything precedes the completion.
    Ordered,
    /// The client answers no barriers, and its kernel acknowledged every byte; it is unknown whether the
    /// client has read them.
    Delivered,
    /// Nothing is proven.
    None,
}

impl ProofLevel {
    /// Returns whether nothing needs to be sent again.
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
