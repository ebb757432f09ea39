//! How one test ended, as its process shows it.

use std::time::Duration;

use heeler_adapters::{FrameworkResult, FrameworkVerdict};
use heeler_core::ExitReason;

/// How a test ended.
#[derive(Debug, Clone)]
pub(crate) enum TestEnding {
    /// Its framework reported a result.
    Verdict(FrameworkVerdict),
    /// Its process ended while it was running, or after that in a way that its result does not explain.
    Died { exit_reason: ExitReason, position: DeathPosition },
    /// It exceeded its time limit.
    TimedOut(Duration),
    /// Its process exceeded this limit before it.
    TimedOutBefore { limit: Duration, position: DeathPosition },
    /// It exceeded its idle timeout.
    Idle(Duration),
    /// The user cancelled it.
    Cancelled,
}

/// Where in a test its process died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeathPosition {
    /// While it ran.
    InTest,
    /// Its framework wrote an end marker for it, but no later output confirmed that.
    AfterEndMarker,
    /// Before it, in the set-up of its suite.
    SuiteSetUp(String),
    /// Before it, in a test on which it depends.
    Dependency(String),
    /// After its end, alone in its process: how the process ends decides.
    AfterEnd,
    /// Somewhere: it has an end marker, but what the process did then contradicts its output.
    Unproven,
}

impl TestEnding {
    /// Returns whether the test passed.
    pub(crate) fn is_pass(&self) -> bool {
        matches!(self, Self::Verdict(verdict) if verdict.result == FrameworkResult::Passed)
    }

    /// Returns whether the process ended before the test, in what the test needs.
    pub(crate) fn is_before_test(&self) -> bool {
        let (Self::Died { position, .. } | Self::TimedOutBefore { position, .. }) = self else {
            return false;
        };
        position.before_test().is_some()
    }
}

impl DeathPosition {
    /// Returns where the process ended, as it follows after what happened, if that was before the test.
    pub(super) fn before_test(&self) -> Option<String> {
        match self {
            Self::SuiteSetUp(suite) => Some(format!("in the set-up of suite {suite}")),
            Self::Dependency(test) => Some(format!("in {test}, on which it depends")),
            Self::InTest | Self::AfterEndMarker | Self::AfterEnd | Self::Unproven => None,
        }
    }
}
