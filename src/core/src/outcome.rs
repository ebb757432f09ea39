//! Results of tests, and exits of the processes that run them.

/// The terminal result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Reported as passed by its framework.
    Passed,
    /// Skipped by its framework.
    Skipped,
    /// Reported as failed by its framework.
    Failed,
    /// Its time limit expired.
    TimedOut,
    /// Its process died during the test, or the test could not be run.
    Error,
    /// Cancelled by the user.
    Cancelled,
}

impl Outcome {
    /// Returns whether this fails the run and counts towards the allowed failures.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut | Self::Error)
    }
}

/// The reason why a result is provisional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProvisionalReason {
    /// The test failed and has retries left.
    AwaitsRetry,
    /// Its process died during the test, which is to be rerun in isolation.
    AwaitsIsolatedRun,
}

/// The reason why a selected test was never run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotRunReason {
    /// It cannot be run: its program is missing, cannot be listed, or cannot select it.
    Unrunnable,
    /// The user cancelled the run.
    Cancelled,
    /// The run reached its limit of failures.
    TooManyFailures,
    /// The run reached its time limit.
    TimeLimitReached,
    /// Its program kept dying outside any test.
    ProgramGivenUp {
        /// Number of consecutive processes of it, each with one test, that died so.
        deaths: u32,
    },
    /// Its program kept exiting successfully without running it, the last time in a process of its own.
    NeverStarted,
    /// Its worker died during it, twice.
    WorkerDied,
    /// Workers kept dying, or none could be started.
    NoWorker,
}

/// A synthesized result: no worker sends it, the finisher does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SynthesizedResult {
    /// It never ran.
    NotRun(NotRunReason),
    /// Its provisional result is final, because nothing can replace it any more.
    Provisional(ProvisionalReason),
}

impl SynthesizedResult {
    /// Returns the state that is reported to the client.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        match self {
            Self::NotRun(
                NotRunReason::Cancelled | NotRunReason::TooManyFailures | NotRunReason::TimeLimitReached,
            ) => Outcome::Cancelled,
            Self::NotRun(_) | Self::Provisional(ProvisionalReason::AwaitsIsolatedRun) => Outcome::Error,
            Self::Provisional(ProvisionalReason::AwaitsRetry) => Outcome::Failed,
        }
    }
}

/// How the process of a lease ended, as far as decisions depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeaseOutcome {
    /// The framework reported the end of its run.
    Complete,
    /// All tests have results, but the process exited with an error afterwards.
    BadExit,
    /// It died during a test, which has been reported.
    DiedInTest,
    /// It died before, between or after tests, with tests still waiting.
    DiedOutside,
    /// It could not be started.
    NotStarted,
    /// We cancelled it.
    Cancelled,
}
