//! The reasons for a run to end early.

use std::time::{Duration, Instant};

use heeler_report::rough_duration;

/// Why a run ended before all mutants had verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// The user or client ended the run.
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

    /// Returns the reason for a mutant without a verdict.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Cancelled => "not tested: the run was cancelled".to_owned(),
            Self::TimeLimit(limit) => {
                format!("not tested: the run ended at its time limit of {}", rough_duration(limit))
            }
        }
    }
}

/// Time limit of a command, builds included.
#[derive(Debug, Clone, Copy)]
pub struct TimeLimit {
    limit: Duration,
    began: Instant,
}

impl TimeLimit {
    /// Returns the limit of a command that began at `began`.
    pub fn new(limit: Duration, began: Instant) -> Self {
        Self { limit, began }
    }

    /// Waits until the limit is reached.
    ///
    /// Cancel safe: yes, because nothing is lost.
    pub async fn reached(self) -> Unfinished {
        tokio::time::sleep_until((self.began + self.limit).into()).await;
        Unfinished::TimeLimit(self.limit)
    }
}
