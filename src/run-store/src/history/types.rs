//! The records of the history. No database access here.

use std::time::Duration;

/// How a test ended, in the categories that matter to the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LastOutcome {
    Passed,
    /// Failed, as reported by the test framework.
    Failed,
    /// Not run by the test framework's own decision.
    Skipped,
    /// The test's process died.
    Crashed,
    /// Terminated at the time limit.
    TimedOut,
}

impl LastOutcome {
    const ALL: [Self; 5] = [Self::Passed, Self::Failed, Self::Skipped, Self::Crashed, Self::TimedOut];

    /// Returns the word stored in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Crashed => "crashed",
            Self::TimedOut => "timed-out",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }

    /// Returns whether the duration is that of the whole test: with the other outcomes it was cut short.
    pub(super) fn has_full_duration(self) -> bool {
        matches!(self, Self::Passed | Self::Failed)
    }
}

/// The data recorded of one test of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOutcome<'a> {
    pub uid: &'a str,
    /// The suite: the first part of the uid.
    pub suite: &'a str,
    pub outcome: LastOutcome,
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
    pub outcome: LastOutcome,
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
