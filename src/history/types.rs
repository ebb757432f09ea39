//! What goes into the history and what comes out of it. No database lives here.

use std::time::Duration;

/// How a test ended, as far as the next run cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LastOutcome {
    /// Well.
    Passed,
    /// Badly, by its framework's word.
    Failed,
    /// Not run, by its framework's own decision.
    Skipped,
    /// With its process.
    Crashed,
    /// By its time limit.
    TimedOut,
}

impl LastOutcome {
    const ALL: [Self; 5] = [Self::Passed, Self::Failed, Self::Skipped, Self::Crashed, Self::TimedOut];

    /// Returns the word in the file.
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

    pub(super) fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }

    /// Whether the duration says how long the test takes: the others were cut short.
    pub(super) fn is_own_end(self) -> bool {
        matches!(self, Self::Passed | Self::Failed)
    }
}

/// What is recorded of one test of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The test.
    pub uid: &'a str,
    /// The suite: the first part of the uid.
    pub suite: &'a str,
    /// How it ended.
    pub outcome: LastOutcome,
    /// How long it ran.
    pub duration: Duration,
    /// What its process took, where it had that to itself.
    pub usage: Option<Usage>,
}

/// What a process took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, its reaped children's included.
    pub cpu: Duration,
    /// Peak of its resident memory, KiB.
    pub peak_kib: u64,
}

/// What is recorded of one program of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCost<'a> {
    /// The suite that the program is.
    pub suite: &'a str,
    /// What a process of it cost before its first test.
    pub start: Duration,
    /// The largest peak of resident memory of its processes, KiB.
    pub peak_kib: Option<u64>,
}

/// What is known of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestHistory {
    /// How it ended last.
    pub outcome: LastOutcome,
    /// Its last duration; `None` when it never ran to an end of its own.
    pub last: Option<Duration>,
    /// The decaying mean of its durations.
    pub mean: Option<Duration>,
    /// How often it ended, skips left out.
    pub runs: u32,
    /// How often it failed.
    pub failures: u32,
    /// How often it crashed.
    pub crashes: u32,
}
