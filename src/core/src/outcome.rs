//! Outcomes of tests, and exits of the processes that run them.

use serde::{Deserialize, Serialize};

use crate::TestId;

/// How a test ended. All processes of Heeler share this type; protocols and reports convert it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The framework reported a pass at the first attempt.
    Passed,
    /// The test passed after at least one unsuccessful attempt.
    Flaky,
    /// The framework skipped the test.
    Skipped,
    /// The framework reported a failure.
    Failed,
    /// The time limit expired.
    TimedOut,
    /// The idle timeout expired: the test used no CPU time and wrote no output.
    Idle,
    /// A signal, or the language's runtime, ended the test's process.
    Crashed,
    /// The process exited by itself before the test ended.
    ExitedEarly,
    /// The process was killed because of its memory use.
    OutOfMemory,
    /// The test may have a result, but the result is unknown.
    Lost,
    /// The test was running when the run was interrupted.
    Interrupted,
    /// The user cancelled the test while it ran.
    Cancelled,
    /// The test was selected but never ran.
    NotRun(NotRunReason),
}

impl Outcome {
    /// Returns whether this outcome fails the run and counts towards the failure limit.
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

    /// Returns whether the test did not run to its end, for reasons outside the test. Such an outcome is not
    /// a result of the test.
    #[must_use]
    pub fn lacks_result(self) -> bool {
        matches!(self, Self::Lost | Self::Interrupted | Self::Cancelled | Self::NotRun(_))
    }

    /// Returns the outcome as text that may follow a number: `3 timed out`.
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
    /// The process died during the test, and the test will be rerun in isolation.
    AwaitsIsolatedRun,
}

/// The reason why a selected test was never run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotRunReason {
    /// The test cannot be run: its program is missing, cannot be listed, or cannot select the test.
    Unrunnable,
    /// The user cancelled the run.
    Cancelled,
    /// The run reached its failure limit.
    TooManyFailures,
    /// The run reached its time limit.
    TimeLimitReached,
    /// The program kept dying outside any test.
    ProgramGivenUp {
        /// Consecutive processes, each with one test, that died this way.
        deaths: u32,
    },
    /// The program started no test within its startup limit, which was raised for each attempt.
    StartTimedOut { attempts: u32 },
    /// The program kept exiting successfully without running the test, even when started for this test alone.
    NeverStarted,
    /// The worker died twice during the test.
    WorkerDied,
    /// The guard of the test's process was lost every time.
    GuardLost {
        /// Number of processes lost this way.
        losses: u32,
        loss: GuardLoss,
        /// Whether the test had started in any of these processes. If so, it may have a result.
        has_begun: bool,
    },
    /// The guards of the program's processes were lost before any of its tests had started.
    ProgramGuardsLost {
        /// Number of consecutive processes lost this way.
        losses: u32,
        loss: GuardLoss,
    },
    /// A required prerequisite failed, such as the set-up of a fixture.
    PrerequisiteFailed {
        /// The failed prerequisite.
        test: TestId,
    },
    /// Workers kept dying, or no worker could be started.
    NoWorker,
    /// The run was interrupted before the test could start.
    RunInterrupted,
}

impl NotRunReason {
    /// Returns whether the user stopped the run, or the run reached a limit that the user set.
    #[must_use]
    pub fn is_stop(self) -> bool {
        matches!(self, Self::Cancelled | Self::TooManyFailures | Self::TimeLimitReached)
    }
}

/// A result that no worker reports. The finisher sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SynthesizedResult {
    /// The test never ran.
    NotRun(NotRunReason),
    /// The provisional result becomes final, because no later attempt will replace it.
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

/// How a guard was lost. A lost guard ended before it reported the end of its test process, and that process
/// ended with it. The tests of the process are not blamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuardLoss {
    /// A signal killed the guard.
    Killed { signal: i32 },
    /// The guard exited by itself.
    Exited { code: i32 },
    /// A signal killed the fork server, and the guard with it.
    ForkServerKilled { signal: i32 },
    /// The fork server exited by itself, and the guard was killed with it.
    ForkServerExited { code: i32 },
    /// The cause is unknown, or differs between several losses.
    Unknown,
}

impl GuardLoss {
    /// Combines this loss with another; `Unknown` if they differ.
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

/// How the process of a lease ended. Distinguishes only what decisions depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeaseOutcome {
    /// The framework reported the end of its run.
    Complete,
    /// All tests have results, but the process exited with an error afterwards.
    BadExit,
    /// The process died during a test, which has been reported.
    DiedInTest,
    /// The process died before, between or after tests, with tests still waiting.
    DiedOutside,
    /// The process started no test within its startup limit, and was ended.
    StartTimedOut,
    /// The process could not be started.
    NotStarted,
    /// The process ended with its guard, which is not evidence against its tests or its program.
    GuardLost(GuardLoss),
    /// Heeler cancelled the process.
    Cancelled,
}
