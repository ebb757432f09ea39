//! How one test ended, according to its process.

use std::time::Duration;

use heeler_adapters::{FrameworkResult, FrameworkVerdict};
use heeler_core::ExitReason;

#[derive(Debug, Clone)]
pub(crate) enum TestEnding {
    /// The framework reported a result.
    Verdict(FrameworkVerdict),
    /// The process ended while the test was running, or later in a way that the result does not explain.
    Died { exit_reason: ExitReason, position: DeathPosition },
    /// The test exceeded its time limit.
    TimedOut(Duration),
    /// The process exceeded this limit before the test began.
    TimedOutBefore { limit: Duration, position: DeathPosition },
    /// The tear-down after the test exceeded this limit, given as text.
    TimedOutInTearDown { limit: String, place: String },
    /// The test exceeded its idle timeout.
    Idle(Duration),
    /// The user cancelled the test.
    Cancelled,
}

/// Where the process died, relative to a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeathPosition {
    /// While the test ran.
    InTest,
    /// The framework wrote an end marker for the test, but no later output confirmed the marker.
    AfterEndMarker,
    /// Before the test, in the set-up of its suite.
    SuiteSetUp(String),
    /// In a dependency of the test, before the test itself.
    Dependency(String),
    /// After the end of a test that ran alone, so the end of the process decides.
    AfterEnd,
    /// Unknown: the test has an end marker, but the later behaviour of the process contradicts its output.
    Unproven,
}

impl TestEnding {
    pub(crate) fn is_pass(&self) -> bool {
        matches!(self, Self::Verdict(verdict) if verdict.result == FrameworkResult::Passed)
    }

    /// Returns whether the process ended before the test, in a step that the test needs.
    pub(crate) fn is_before_test(&self) -> bool {
        let (Self::Died { position, .. } | Self::TimedOutBefore { position, .. }) = self else {
            return false;
        };
        position.before_test().is_some()
    }
}

impl DeathPosition {
    /// Returns where the process ended, as a clause for messages, if that was before the test.
    pub(super) fn before_test(&self) -> Option<String> {
        match self {
            Self::SuiteSetUp(suite) => Some(format!("in the set-up of suite {suite}")),
            Self::Dependency(test) => Some(format!("in its dependency {test}")),
            Self::InTest | Self::AfterEndMarker | Self::AfterEnd | Self::Unproven => None,
        }
    }
}
