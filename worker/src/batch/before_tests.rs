//! A process that ends before its tests: in the set-up of their suite, or in a test that they depend on. The
//! end is the result of these tests only.

use heeler_adapters::StackPosition;
use heeler_core::ExitReason;

use super::{
    BatchTerminateReason, ProcessExitSummary, RawOutputs, RunningBatch,
    exit_reason::exit_reason_of,
    held_tests::EndedTest,
    run_evidence::sanitizer_finding,
    test_ending::{DeathPosition, TestEnding},
};
use crate::results::update_batch::UpdateBatch;

impl RunningBatch {
    /// Settles the tests before which the process died, or stood still until its limit, in what all of them
    /// need. Returns whether that is so.
    pub(super) fn settle_before_tests(
        &mut self,
        position: &DeathPosition,
        places: &[usize],
        gone: &mut ProcessExitSummary,
        updates: &mut UpdateBatch,
    ) -> bool {
        let Some(seen) = self.ending_before_tests(position, gone) else { return false };
        let stderr = self.unattributed_output.stderr_text();
        let mut evidence = gone.evidence.take();
        for place in places {
            self.begin_test(*place, RawOutputs::default(), self.now.since_boot, updates);
            let Some(mut flight) = self.running_tests.pop() else { continue };
            flight.push_stderr(stderr.as_bytes());
            let ended = EndedTest::of(&flight, self.now).with_evidence(evidence.take());
            self.settle(ended, seen.clone(), updates);
            self.on_done(*place);
        }
        true
    }

    /// Returns how the tests end before which the process has ended; `None` if it was ended for another
    /// reason, or if its end is not known.
    fn ending_before_tests(&self, position: &DeathPosition, gone: &ProcessExitSummary) -> Option<TestEnding> {
        if !self.running_tests.is_empty() {
            return None;
        }
        let position = position.clone();
        match self.terminate_reason {
            None | Some(BatchTerminateReason::MemoryLimit(_)) => {
                gone.exit.signal.or(gone.exit.code)?;
                let finding = || sanitizer_finding(&self.unattributed_output.stderr_text());
                let exit_reason = ExitReason {
                    detail: gone.detail.clone().or_else(finding),
                    cause: self.memory_cause(gone),
                    ..exit_reason_of(&gone.exit)
                };
                Some(TestEnding::Died { exit_reason, position })
            }
            // The stack shows a test body, so a dependency was running.
            Some(BatchTerminateReason::ProcessStalled)
                if matches!(position, DeathPosition::SuiteSetUp(_))
                    && matches!(
                        self.stack_position(gone),
                        StackPosition::RunningTest | StackPosition::OtherTest
                    ) =>
            {
                None
            }
            Some(BatchTerminateReason::ProcessStalled) => {
                Some(TestEnding::TimedOutBefore { limit: self.idle_process_limit(), position })
            }
            Some(
                BatchTerminateReason::TimedOut
                | BatchTerminateReason::DialogueStalled(_)
                | BatchTerminateReason::RequestUntaken
                | BatchTerminateReason::ServerEnded
                | BatchTerminateReason::Cancelled
                | BatchTerminateReason::Decided
                | BatchTerminateReason::Abandoned,
            ) => None,
        }
    }
}
