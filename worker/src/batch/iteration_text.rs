//! Adds the iteration to the messages of tests that fail in it. Pure.

use heeler_core::{ExitReason, Iteration, Outcome, TestResult};

use super::test_ending::TestEnding;

/// Adds the iteration to the exit reason of a death. The exit reason's text mentions it.
pub(super) fn with_iteration_of_death(seen: TestEnding, iteration: Option<Iteration>) -> TestEnding {
    match seen {
        TestEnding::Died { exit_reason, position } => {
            TestEnding::Died { exit_reason: ExitReason { iteration, ..exit_reason }, position }
        }
        other => other,
    }
}

/// Adds the iteration to the message of a test that failed in it or reached a limit.
pub(super) fn with_iteration(mut result: TestResult, iteration: Option<Iteration>) -> TestResult {
    let Some(iteration) = iteration else { return result };
    if !matches!(result.outcome, Outcome::Failed | Outcome::TimedOut | Outcome::Idle) {
        return result;
    }
    let mut messages = result.failures.iter_mut().filter_map(|failure| failure.message.as_mut());
    match (&mut result.reason, messages.next()) {
        (Some(reason), _) => reason.push_str(&format!(" in {iteration}")),
        (None, Some(message)) => *message = format!("in {iteration}: {message}"),
        (None, None) => result.reason = Some(format!("failed in {iteration}")),
    }
    result
}
