//! Results of tests, and exits of the processes that run them.

use serde::{Deserialize, Serialize};

use crate::TestId;

/// How a test ended. Every process of Heeler uses this type; protocols and reports render it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Reported as passed by its framework, at the first attempt.
    Passed,
    /// Passed after an attempt that did not.
    Flaky,
    /// Skipped by its framework.
    Skipped,
    /// Reported as failed by its framework.
    Failed,
    /// Its time limit expired.
    TimedOut,
    /// Its idle timeout expired: it used no processor and wrote nothing.
    Idle,
    /// A signal killed its process.
    Crashed,
    /// Its process exited by itself before the test had ended.
    ExitedEarly,
    /// Its process was killed because of its memory use.
    OutOfMemory,
    /// It may have a result, but that is unknown.
    Lost,
    /// It was running when its run was interrupted.
    Interrupted,
    /// Cancelled by the user while it ran.
    Cancelled,
    /// Selected, but never run.
    NotRun(NotRunReason),
}

impl Outcome {
    /// Returns whether this fails the run and counts towards the allowed failures.
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::Failed
            | Self::TimedOut
            | Self::Idle
            | Self::Crashed
            | Self::ExitedEarly
            | Self::OutOfMemory
            | Self::Lost
            | Self::Interrupted => true,
            Self::NotRun(reason) => !reason.is_stop(),
            Self::Passed | Self::Flaky | Self::Skipped | Self::Cancelled => false,
        }
    }

    /// Returns whether the test has no result of its own: it did not run, or not to its end, for reasons
    /// outside of it.
    #[must_use]
    pub fn lacks_result(self) -> bool {
        matches!(self, Self::Lost | Self::Interrupted | Self::Cancelled | Self::NotRun(_))
    }

    /// Returns the words of the outcome, which may follow a number: `3 timed out`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Flaky => "flaky",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Idle => "idle",
            Self::Crashed => "crashed",
            Self::ExitedEarly => "exited early",
            Self::OutOfMemory => "out of memory",
            Self::Lost => "lost",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::NotRun(_) => "not run",
        }
    }
}

/// The reason why a result is provisional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProvisionalReason {
    /// The test failed and has retries left.
    AwaitsRetry,
    /// Its process died during the test, which is to be rerun in isolation.
    AwaitsIsolatedRun,
}

/// The reason why a selected test was never run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Its program began no test within its startup limit, which was longer each time.
    StartTimedOut {
        /// Number of attempts.
        attempts: u32,
    },
    /// Its program kept exiting successfully without running it, the last time in a process of its own.
    NeverStarted,
    /// Its worker died during it, twice.
    WorkerDied,
    /// The guard of its process was lost, every time.
    GuardLost {
        /// Number of processes of it that ended so.
        losses: u32,
        loss: GuardLoss,
        /// Whether it had begun in any of them: then it may have a result.
        has_begun: bool,
    },
    /// The guards of its program's processes were lost before any test of the program had begun.
    ProgramGuardsLost {
        /// Number of consecutive processes that ended so.
        losses: u32,
        loss: GuardLoss,
    },
    /// A test failed that must succeed before it, such as the set-up of a fixture.
    PrerequisiteFailed {
        /// The test that failed.
        test: TestId,
    },
    /// Workers kept dying, or none could be started.
    NoWorker,
    /// Its run was interrupted before it could begin.
    RunInterrupted,
}

impl NotRunReason {
    /// Returns whether the user stopped the run, or a limit that the user set.
    #[must_use]
    pub fn is_stop(self) -> bool {
        matches!(self, Self::Cancelled | Self::TooManyFailures | Self::TimeLimitReached)
    }
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
    /// Returns the outcome of the result.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        match self {
            Self::NotRun(NotRunReason::GuardLost { has_begun: true, .. }) => Outcome::Lost,
            Self::NotRun(reason) => Outcome::NotRun(reason),
            Self::Provisional(ProvisionalReason::AwaitsIsolatedRun) => Outcome::Crashed,
            Self::Provisional(ProvisionalReason::AwaitsRetry) => Outcome::Failed,
        }
    }
}

/// How a guard was lost: it ended before it had reported the end of its test process, which ended with it.
/// That says nothing about the tests of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuardLoss {
    /// A signal killed the guard.
    Killed { signal: i32 },
    /// The guard exited by itself.
    Exited { code: i32 },
    /// A signal killed the fork server, and with it the guard.
    ForkServerKilled { signal: i32 },
    /// The fork server exited by itself, and the guard was killed with it.
    ForkServerExited { code: i32 },
    /// How it ended is unknown, or differs between several losses.
    Unknown,
}

impl GuardLoss {
    /// Returns the description of this loss and another one together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }
}

/// Progress of a fixture that lives as long as its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SetUpProgress {
    Begun,
    Done,
    Failed,
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
    /// It began no test within its startup limit, and was ended.
    StartTimedOut,
    /// It could not be started.
    NotStarted,
    /// It ended with its guard, which says nothing about its tests or its program.
    GuardLost(GuardLoss),
    /// We cancelled it.
    Cancelled,
}
