//! How tests and the processes that run them end.

/// The terminal result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Its framework said so.
    Passed,
    /// Its framework would not run it.
    Skipped,
    /// Its framework said so.
    Failed,
    /// Its time limit ended it.
    TimedOut,
    /// Its process died under it, or it could not be run.
    Error,
    /// The user ended it.
    Cancelled,
}

impl Outcome {
    /// Returns whether this makes the run red and counts towards the allowed failures.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut | Self::Error)
    }
}

/// Why a result is held back instead of being told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeldBy {
    /// The test failed and has retries left.
    Retry,
    /// Its process died under it; it is to be tried alone.
    LoneRun,
}

/// Why a selected test was never run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotRun {
    /// It can't be: its program is missing, can't be listed, or can't select it.
    Unrunnable,
    /// The user cancelled the run.
    Cancelled,
    /// The run stopped at its limit of failures.
    TooManyFailures,
    /// The run stopped at its limit of time.
    TimeIsUp,
    /// Its program kept dying outside any test.
    GivenUp {
        /// How many of its processes, each with one test, died so in a row.
        deaths: u32,
    },
    /// Its program kept ending well without running it, at last in a process of its own.
    NeverBegan,
    /// Its worker died under it, twice.
    WorkerDied,
    /// Workers kept dying, or none could be started.
    NoWorker,
}

/// A result that no worker tells: the finisher does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Told {
    /// It never ran.
    NotRun(NotRun),
    /// What was held back is its result, because nothing can replace it any more.
    Held(HeldBy),
}

impl Told {
    /// Returns the state that the client is told.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        match self {
            Self::NotRun(NotRun::Cancelled | NotRun::TooManyFailures | NotRun::TimeIsUp) => {
                Outcome::Cancelled
            }
            Self::NotRun(_) | Self::Held(HeldBy::LoneRun) => Outcome::Error,
            Self::Held(HeldBy::Retry) => Outcome::Failed,
        }
    }
}

/// How the process of a lease ended, as far as decisions need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeaseEnd {
    /// The framework said its own last word.
    Complete,
    /// All tests have results, but the process ended badly afterwards.
    BadExit,
    /// It died under a test, which has been reported.
    DiedInTest,
    /// It died before, between or after tests, with tests still waiting.
    DiedOutside,
    /// It could not be started.
    NotStarted,
    /// By our wish.
    Cancelled,
}
