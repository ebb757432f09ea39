//! Record types of the history, without database access.

use std::time::Duration;

use heeler_core::Outcome;

/// Outcomes that the history distinguishes, with their names in the file.
const STORED: [(Outcome, &str); 5] = [
    (Outcome::Passed, "passed"),
    (Outcome::Failed, "failed"),
    (Outcome::Skipped, "skipped"),
    (Outcome::Crashed, "crashed"),
    (Outcome::TimedOut, "timed-out"),
];

/// Returns the outcome as stored in the history, which distinguishes only what matters to the next run:
/// passed, failed, skipped, crashed, timed out. `None` for a test that was cut short or never ran.
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

/// Returns the outcome's name in the file; empty for an outcome that is not stored.
pub(super) fn stored_word(outcome: Outcome) -> &'static str {
    STORED.iter().find(|(stored, _)| *stored == outcome).map_or("", |(_, word)| word)
}

pub(super) fn read_word(word: &str) -> Option<Outcome> {
    STORED.iter().find(|(_, stored)| *stored == word).map(|(outcome, _)| *outcome)
}

/// Recorded data of one test of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOutcome<'a> {
    pub uid: &'a str,
    /// Suite: the first part of the uid.
    pub suite: &'a str,
    /// Outcome as returned by [`stored_outcome`].
    pub outcome: Outcome,
    pub duration: Duration,
    /// Resource usage of the test's process, if no other test ran in it.
    pub usage: Option<RecordedUsage>,
}

/// Resource usage of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedUsage {
    /// CPU time, including reaped children.
    pub cpu: Duration,
    /// Peak resident memory in KiB.
    pub peak_kib: u64,
}

/// Recorded data of one program of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCost<'a> {
    /// Suite of the program.
    pub suite: &'a str,
    /// Start-up time of a process of the program, before its first test.
    pub start: Duration,
    /// Highest peak of resident memory of the program's processes, in KiB.
    pub peak_kib: Option<u64>,
}

/// Recorded history of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestHistory {
    /// Outcome of the last run.
    pub outcome: Outcome,
    /// Last duration; `None` if no run of the test was complete.
    pub last: Option<Duration>,
    /// Decaying mean of the durations.
    pub mean: Option<Duration>,
    /// Number of runs, without skips.
    pub runs: u32,
    pub failures: u32,
    pub crashes: u32,
    /// Peak resident memory of the test's process in KiB, from the last run without other tests in it.
    pub peak_kib: Option<u64>,
}

/// Recorded history of one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramHistory {
    /// Start-up time of a process, before its first test.
    pub start: Duration,
    /// Highest peak of resident memory of its processes in the last run, in KiB.
    pub peak_kib: Option<u64>,
}

impl TestHistory {
    /// Returns the expected duration; `None` if no run of the test was complete.
    #[must_use]
    pub fn expected_duration(&self) -> Option<Duration> {
        self.mean.or(self.last)
    }
}
