//! Decides how a lease ends, once all tests are decided.

use heeler_protocol::control::LeaseEnd;

use super::{
    super::{
        end_texts::{append_evidence, contradicting_exit_text, suspects_text, unselected_text},
        terminate_reason::BatchTerminateReason,
        test_order::TestOrder,
        unattributed_output::{ExitPosition, UnattributedOutput},
    },
    BatchProcessEnd,
};

/// Message about a process whose output became unreadable after all of its tests were decided.
const BROKEN_OUTPUT: &str = "the process was terminated because its output could no longer be read";

impl BatchProcessEnd {
    /// Returns how the lease ended, once all tests are decided. `suspects`: names of the tests that the
    /// process may have died in.
    pub(in super::super) fn lease_end(
        self,
        suspects: &[String],
        order: &TestOrder,
        unattributed: &UnattributedOutput,
    ) -> LeaseEnd {
        let is_unclear = self.is_unclear();
        match self.cause.reason {
            Some(BatchTerminateReason::Cancelled | BatchTerminateReason::Abandoned) => LeaseEnd::Cancelled,
            _ if suspects.len() > 1 && !is_unclear => {
                let message = suspects_text(suspects, &self.gone.exit_reason());
                LeaseEnd::DiedOutsideTest { end: self.gone.exit, message }
            }
            _ if self.is_contradicted => {
                let message = contradicting_exit_text(&self.gone.exit_reason(), self.unproven);
                LeaseEnd::DiedOutsideTest { end: self.gone.exit, message }
            }
            // The test begins again in another process, and the tests of this process have not failed.
            Some(BatchTerminateReason::RequestUntaken) if order.last_ended().is_some() => LeaseEnd::Complete,
            Some(BatchTerminateReason::Decided) if self.gone.outside_failure.is_none() => LeaseEnd::Complete,
            _ if (self.is_in_test || self.is_charged) && self.gone.unselected_test.is_some() => {
                let how = self.exit_text();
                let unselected = self.gone.unselected_test.as_deref().map(unselected_text);
                let message = format!("{}\n{how}", unselected.unwrap_or_default());
                LeaseEnd::DiedOutsideTest { end: self.gone.exit, message }
            }
            _ if self.is_in_test || self.is_charged || is_unclear => {
                LeaseEnd::DiedInTest { end: self.gone.exit }
            }
            Some(
                BatchTerminateReason::TimedOut
                | BatchTerminateReason::ProcessStalled
                | BatchTerminateReason::DialogueStalled(_)
                | BatchTerminateReason::RequestUntaken
                | BatchTerminateReason::MemoryLimit(_)
                | BatchTerminateReason::ServerEnded
                | BatchTerminateReason::Decided,
            )
            | None => self.end_outside_tests(order, unattributed),
        }
    }

    fn end_outside_tests(self, order: &TestOrder, unattributed: &UnattributedOutput) -> LeaseEnd {
        let is_untaken = self.cause.reason == Some(BatchTerminateReason::RequestUntaken);
        let is_idle = is_untaken || self.cause.is_stalled();
        let is_explained = self.gone.is_explained || self.cause.is_launched;
        if self.gone.is_complete && is_explained && !is_idle {
            return LeaseEnd::Complete;
        }
        let is_waiting = order.has_waiting();
        if self.cause.is_launched && order.last_ended().is_none() && !is_waiting {
            return LeaseEnd::Complete;
        }
        let message = self.message_outside_tests(is_idle, order, unattributed);
        let end = self.gone.exit;
        if is_untaken || is_idle && order.first_begun().is_none() {
            LeaseEnd::StartTimedOut { end, message }
        } else if is_waiting {
            LeaseEnd::DiedOutsideTest { end, message }
        } else {
            LeaseEnd::BadExit { end, message }
        }
    }

    /// Describes the end of a process outside its tests.
    fn message_outside_tests(
        &self,
        is_idle: bool,
        order: &TestOrder,
        unattributed: &UnattributedOutput,
    ) -> String {
        let gone = &self.gone;
        let limit = is_idle.then_some(self.cause.idle_limit);
        let has_failed_outside = gone.outside_failure.is_some() && gone.exit.code != Some(0);
        let place = match order.last_ended() {
            None => ExitPosition::BeforeFirst,
            Some(last) if order.has_waiting() => ExitPosition::AfterTest(&order.listed(last).name),
            Some(_) if has_failed_outside => ExitPosition::AfterFailureOutside,
            Some(_) => ExitPosition::AfterLast,
        };
        let mut message = match self.cause.reason {
            Some(BatchTerminateReason::Decided) => unattributed.with_output(BROKEN_OUTPUT.to_owned()),
            _ => unattributed.exit_message(place, &gone.exit, limit),
        };
        if let Some(evidence) = &gone.evidence {
            append_evidence(&mut message, evidence, gone.detail.as_deref());
        }
        if let Some(cause) = self.cause.memory_text(&self.gone) {
            message = format!("{cause}\n{message}");
        }
        if let (Some(BatchTerminateReason::DialogueStalled(_)), Some(stall)) =
            (self.cause.reason, self.stall_text())
        {
            message = format!("{stall}\n{message}");
        }
        if let Some(failure) = &gone.outside_failure {
            message.push_str("\n--- failed outside tests ---\n");
            message.push_str(failure.trim_end());
        }
        message
    }
}
