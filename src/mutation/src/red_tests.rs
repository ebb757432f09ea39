//! Tests that fail without a mutant.

use std::ops::Range;

use heeler_core::{Outcome, TestResult};
use heeler_mutate::{Baseline, StepOutcome, TestIndex};

use crate::{error::MutateError, session::MutantSession};

/// Maximum number of lines shown of a failure.
const SHOWN_LINES: usize = 4;
/// Maximum number of failed tests named in an error.
const NAMED_TESTS: usize = 10;

/// Tests that fail repeatedly without a mutant.
pub(crate) struct RedTests<'a> {
    may_fail: &'a Range<usize>,
    /// Failures of tests that must pass.
    failures: Vec<String>,
    /// Tests that are left out, with their failures.
    left_out: Vec<(TestIndex, String)>,
}

/// Returns a description of a test's failure, if it failed.
pub(crate) fn failure(what: &str, result: &TestResult) -> Option<String> {
    let reason = match StepOutcome::of(result) {
        StepOutcome::Passed => return None,
        StepOutcome::Failed { test, reason } if !what.ends_with(&test) => format!("{test}: {reason}"),
        StepOutcome::Failed { reason, .. }
        | StepOutcome::Signalled { reason, .. }
        | StepOutcome::Silent { reason }
        | StepOutcome::DiedEarly { reason }
        | StepOutcome::Unknown { reason } => reason,
        StepOutcome::HitLimit { .. } | StepOutcome::StepLimit { .. } => {
            Outcome::ExitedEarly.label().to_owned()
        }
    };
    let mut lines = reason.lines().map(str::trim_end).filter(|line| !line.is_empty()).take(SHOWN_LINES);
    let first = lines.next().unwrap_or_default();
    Some(lines.fold(format!("  {what}: {first}"), |text, line| format!("{text}\n      {line}")))
}

impl<'a> RedTests<'a> {
    pub(crate) fn new(may_fail: &'a Range<usize>) -> Self {
        Self { may_fail, failures: Vec::new(), left_out: Vec::new() }
    }

    pub(crate) fn add(&mut self, test: TestIndex, failure: String) {
        if self.may_fail.contains(&test.program) {
            self.left_out.push((test, failure));
        } else {
            self.failures.push(failure);
        }
    }

    pub(crate) fn is_left_out(&self, test: TestIndex) -> bool {
        self.left_out.iter().any(|(one, _)| *one == test)
    }

    /// Leaves out failing tests that may fail, and warns about them.
    ///
    /// # Errors
    /// A test that must pass has failed.
    pub(crate) fn leave_out(
        self,
        session: &mut MutantSession<'_>,
        baseline: &mut Baseline,
    ) -> Result<(), MutateError> {
        let Self { failures: mut red, left_out, .. } = self;
        for (place, (test, failure)) in left_out.iter().enumerate() {
            // Without a duration, the test is not planned for any mutant.
            baseline.programs[test.program].durations[test.test] = None;
            baseline.flaky.remove(test);
            if place < NAMED_TESTS {
                let failure = failure.trim();
                session
                    .observer
                    .warn(&format!("skipping a documentation test that fails without a mutant: {failure}"));
            }
        }
        if left_out.len() > NAMED_TESTS {
            let more = left_out.len() - NAMED_TESTS;
            session
                .observer
                .warn(&format!("skipping {more} more documentation tests that fail without a mutant"));
        }
        if red.is_empty() {
            return Ok(());
        }
        let more = red.len().saturating_sub(NAMED_TESTS);
        red.truncate(NAMED_TESTS);
        if more > 0 {
            red.push(format!("  and {more} more"));
        }
        Err(MutateError::RedTests { tests: red })
    }
}
