//! The model of a run and its pending actions.

use std::{collections::VecDeque, time::Duration};

use heeler_core::{
    Slots,
    fair_share::SlotDemand,
    run::{FinisherTask, LostStream, RunAction, RunEvent, RunState, SchedulingPlan},
};
use heeler_protocol::control::WorkerId;

/// Slots of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotGrant {
    /// Slots that the run's leases may occupy.
    pub(crate) share: Slots,
    /// Slots that no run can use.
    pub(crate) spare: Slots,
    /// Slots that the leases may occupy at this moment, because other processes have the rest; `None` if they
    /// have none.
    pub(crate) available: Option<Slots>,
    /// Duration beyond which a batch gets no more tests.
    pub(crate) batch_limit: Option<Duration>,
}

/// A run's state machine and its pending actions.
pub(crate) struct RunModel {
    state: RunState,
    actions: VecDeque<RunAction>,
    /// Slots of the run, as the state machine knows them.
    slots: SlotGrant,
    /// Number of leases granted so far.
    leases_granted: u64,
    /// Number of events handled so far.
    events: u64,
}

impl RunModel {
    /// Begins a run with a share of 0 slots.
    pub(super) fn begin(plan: SchedulingPlan) -> Self {
        let batch_limit = plan.batch_limit;
        let mut state = RunState::new(plan);
        let mut actions: VecDeque<_> = state.handle(RunEvent::SlotShare(Slots::NONE)).into();
        actions.extend(state.begin());
        let slots = SlotGrant { share: Slots::NONE, spare: Slots::NONE, available: None, batch_limit };
        Self { state, actions, slots, leases_granted: 0, events: 1 }
    }

    /// Returns the state machine for queries.
    pub(crate) fn state(&self) -> &RunState {
        &self.state
    }

    pub(super) fn apply(&mut self, event: RunEvent) {
        self.events += 1;
        self.actions.extend(self.state.handle(event));
    }

    /// Returns the number of events handled so far.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Passes changes of the slots to the state machine.
    pub(super) fn set_slots(&mut self, slots: SlotGrant) {
        let old = std::mem::replace(&mut self.slots, slots);
        if old.batch_limit != slots.batch_limit {
            self.apply(RunEvent::BatchLimit(slots.batch_limit));
        }
        if old.available != slots.available {
            self.apply(RunEvent::AvailableSlots(slots.available.unwrap_or(Slots(usize::MAX))));
        }
        if old.share != slots.share {
            self.apply(RunEvent::SlotShare(slots.share));
        }
        if old.spare != slots.spare {
            self.apply(RunEvent::SpareSlots(slots.spare));
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
