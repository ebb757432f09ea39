//! The records of the history. No database access here.

use std::time::Duration;

use heeler_core::Outcome;

/// The outcomes that the history distinguishes, with their words in the file.
const STORED: [(Outcome, &str); 5] = [
    (Outcome::Passed, "passed"),
    (Outcome::Failed, "failed"),
    (Outcome::Skipped, "skipped"),
    (Outcome::Crashed, "crashed"),
    (Outcome::TimedOut, "timed-out"),
];

/// Returns the outcome as the history stores it, which distinguishes only what matters to the next run:
/// passed, failed, skipped, crashed, timed out. `None` for a test that did not run to an end of its own.
#[must_use]
pub fn stored_outcome(outcome: Outcome) -> Option<Outcome> {
    match outcome {
        Outcome::Passed | Outcome::Flaky => Some(Outcome::Passed),
        Outcome::Failed => Some(Outcome::Failed),
        Outcome::Skipped => Some(Outcome::Skipped),
        Outcome::TimedOut | Outcome::Idle => Some(Outcome::TimedOut),
        Outcome::Crashed | Outcome::ExitedEarly | Outcome::OutOfMemory | Outcome::Lost => {
            Some(Outcome::Crashed)
        }
        Outcome::Interrupted | Outcome::Cancelled | Outcome::NotRun(_) => None,
    }
}

/// Returns the word in the file; empty for an outcome that is not stored.
pub(super) fn stored_word(outcome: Outcome) -> &'static str {
    STORED.iter().find(|(stored, _)| *stored == outcome).map_or("", |(_, word)| word)
}

pub(super) fn read_word(word: &str) -> Option<Outcome> {
    STORED.iter().find(|(_, stored)| *stored == word).map(|(outcome, _)| *outcome)
}

/// The data recorded of one test of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOutcome<'a> {
    pub uid: &'a str,
    /// The suite: the first part of the uid.
    pub suite: &'a str,
    /// As [`stored_outcome`] returns it.
    pub outcome: Outcome,
    pub duration: Duration,
    /// Resource usage of its process, where the test had the process to itself.
    pub usage: Option<RecordedUsage>,
}

/// The resource usage of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedUsage {
    /// CPU time, including reaped children.
    pub cpu: Duration,
    /// Peak of its resident memory, in KiB.
    pub peak_kib: u64,
}

/// The data recorded of one program of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCost<'a> {
    /// The program's suite.
    pub suite: &'a str,
    /// The start-up time of one of its processes, before the first test.
    pub start: Duration,
    /// The highest peak of resident memory of its processes, in KiB.
    pub peak_kib: Option<u64>,
}

/// The recorded history of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestHistory {
    /// The outcome of the last run.
    pub outcome: Outcome,
    /// The last duration; `None` when no run of the test was complete.
    pub last: Option<Duration>,
    /// The decaying mean of the durations.
    pub mean: Option<Duration>,
    /// The number of runs, without skips.
    pub runs: u32,
    /// The number of failures.
    pub failures: u32,
    /// The number of crashes.
    pub crashes: u32,
}

impl TestHistory {
    /// Returns how long the test is expected to take; `None` when no run of it was complete.
    #[must_use]
    pub fn expected_duration(&self) -> Option<Duration> {
        self.mean.or(self.last)
    }
}
