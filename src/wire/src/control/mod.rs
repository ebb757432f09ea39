//! What coordinator, watchdog, worker and guard say to each other. All are JSON in packets ([`crate::packet`]);
//! enums are tagged by their one outer key. Both ends are always the same program, so there are no versions to bridge.

mod guard;
mod watchdog;
mod worker;

pub use guard::*;
pub use watchdog::*;
pub use worker::*;

use serde::{Deserialize, Serialize};

/// The number of a worker within its session, from 1; never used again after its death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub u32);

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The number of a test within its run: its place in the list of selected tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TestIndex(pub u32);

/// The number of a lease within its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub u32);

/// The first message on every control connection, from the process that dialled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Join {
    /// The session's watchdog.
    Watchdog {
        /// Its process.
        pid: u32,
    },
    /// A worker that the watchdog started.
    Worker {
        /// As the watchdog was told.
        worker: WorkerId,
        /// Its process.
        pid: u32,
    },
}

/// Where the client listens for callback connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackAddress {
    /// Host of the client, numeric where possible.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What a listener of ours wants to hear first.
    pub token: Option<String>,
}

/// How a client connection is treated. All in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryLimits {
    /// A callback connection that is not up by then counts as refused.
    pub connect_ms: u64,
    /// A client that reads nothing for so long while we have something to send counts as gone.
    pub stall_ms: u64,
    /// How long each step of a drain may go on without progress: the barrier's answer, then the peer's close.
    pub drain_ms: u64,
}

/// How sure we are that the client has all that was sent on a connection, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// It answered the barrier, which stood behind everything.
    Answered,
    /// We half-closed, it read to the end and closed.
    Closed,
    /// There is one connection, and order on it is enough: everything stands before the completion.
    Ordered,
    /// Its kernel acknowledged every byte; whether it read them is not known.
    Delivered,
    /// Nothing is known.
    None,
}

impl Proof {
    /// Returns whether nothing needs to be sent again.
    #[must_use]
    pub fn is_enough(self) -> bool {
        self <= Self::Ordered
    }
}

impl std::fmt::Display for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Answered => "answered",
            Self::Closed => "closed",
            Self::Ordered => "ordered",
            Self::Delivered => "delivered",
            Self::None => "none",
        })
    }
}
