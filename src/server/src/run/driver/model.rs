//! The model of a run and its pending actions.

use std::collections::VecDeque;

use heeler_core::{
    Slots,
    fair_share::SlotDemand,
    run::{FinisherTask, LostStream, RunAction, RunEvent, RunState, SchedulingPlan},
};
use heeler_protocol::control::WorkerId;

/// A run's state machine and its pending actions.
pub(crate) struct RunModel {
    state: RunState,
    actions: VecDeque<RunAction>,
    /// Maximum number of leases that the run may have open.
    share: Slots,
    /// Number of slots that no run can use.
    spare_slots: Slots,
    /// Number of leases granted so far.
    leases_granted: u64,
}

impl RunModel {
    /// Begins a run with a share of 0 slots.
    pub(super) fn begin(plan: SchedulingPlan) -> Self {
        let mut state = RunState::new(plan);
        let mut actions: VecDeque<_> = state.handle(RunEvent::SlotShare(Slots::NONE)).into();
        actions.extend(state.begin());
        Self { state, actions, share: Slots::NONE, spare_slots: Slots::NONE, leases_granted: 0 }
    }

    /// Returns the state machine for queries.
    pub(crate) fn state(&self) -> &RunState {
        &self.state
    }

    pub(super) fn apply(&mut self, event: RunEvent) {
        self.actions.extend(self.state.handle(event));
    }

    /// Sets the maximum number of open leases, and the number of slots that no run can use.
    pub(super) fn set_share(&mut self, slots: Slots, spare: Slots) {
        if self.share != slots {
            self.share = slots;
            self.apply(RunEvent::SlotShare(slots));
        }
        if self.spare_slots != spare {
            self.spare_slots = spare;
            self.apply(RunEvent::SpareSlots(spare));
        }
    }

    /// Returns the next action. Leases and their extensions count as granted.
    pub(super) fn next_action(&mut self) -> Option<RunAction> {
        let action = self.actions.pop_front()?;
        if let RunAction::Lease(_) | RunAction::ExtendLease(_) = action {
            self.leases_granted += 1;
        }
        Some(action)
    }

    /// Ends the run without a watchdog and drops all pending actions; see
    /// [`RunState::complete_without_finisher`].
    pub(super) fn complete_without_finisher(
        &mut self,
        stream: impl FnMut(WorkerId) -> LostStream,
    ) -> FinisherTask {
        self.actions.clear();
        self.state.complete_without_finisher(stream)
    }

    /// Returns the slots that the run could use.
    pub(crate) fn demand(&self) -> SlotDemand {
        SlotDemand { wanted: self.state.wanted_slots(), served: self.leases_granted }
    }

    /// Returns the number of leases that the run has received.
    pub(crate) fn leases_granted(&self) -> u64 {
        self.leases_granted
    }
}
