//! Why a run ended before all mutants had verdicts.

use std::time::{Duration, Instant};

use heeler_report::rough_duration;

/// Why a run ended before all mutants had verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// The user or client has ended it.
    Cancelled,
    /// The user's time limit was reached.
    TimeLimit(Duration),
}

impl Unfinished {
    /// Returns the beginning of a summary.
    pub fn summary(self) -> String {
        match self {
            Self::Cancelled => "cancelled".to_owned(),
            Self::TimeLimit(limit) => format!("time limit of {} reached", rough_duration(limit)),
        }
    }

    /// Returns why a mutant has no verdict.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Cancelled => "not tested: the run was cancelled".to_owned(),
            Self::TimeLimit(limit) => {
                format!("not tested: the run ended at its time limit of {}", rough_duration(limit))
            }
        }
    }
}

/// How long a command may take, builds included.
#[derive(Debug, Clone, Copy)]
pub struct TimeLimit {
    limit: Duration,
    began: Instant,
}

impl TimeLimit {
    /// Returns the limit of a command that began then.
    pub fn new(limit: Duration, began: Instant) -> Self {
        Self { limit, began }
    }

    /// Waits until it is reached.
    ///
    /// Cancel safe: yes, because nothing is lost.
    pub async fn reached(self) -> Unfinished {
        tokio::time::sleep_until((self.began + self.limit).into()).await;
        Unfinished::TimeLimit(self.limit)
    }
}
