//! The leases that workers hold: batches for free workers and waiting processes, tests taken back for idle
//! slots, delayed starts, and blocked set-ups.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    BatchLease, CancelMode, RunAction, active_lease::ActiveLease, failure_policy::FailurePolicy,
    lease_holdings::LeaseHoldings, run_slots::RunSlots, run_tests::RunTests,
};
use crate::{LeaseId, ProgramId, SetUpProgress, Slots, WorkerId, batching::SlotLoads};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ActiveLeases {
    leases: BTreeMap<WorkerId, ActiveLease>,
    next: u32,
    /// Programs whose further processes are delayed, because a running process will probably run their tests.
    delayed_starts: BTreeSet<ProgramId>,
}

impl ActiveLeases {
    pub(super) fn count(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn slots_taken(&self) -> Slots {
        self.leases.values().map(ActiveLease::weight).sum()
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.leases.keys().copied()
    }

    pub(super) fn cancelled_workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.leases.iter().filter(|(_, held)| held.is_cancelled()).map(|(worker, _)| *worker)
    }

    pub(super) fn get(&self, worker: WorkerId) -> Option<&ActiveLease> {
        self.leases.get(&worker)
    }

    pub(super) fn find(&self, lease: LeaseId) -> Option<&ActiveLease> {
        self.leases.values().find(|held| held.id() == lease)
    }

    /// Leases the next batch to a worker. A process of `waiting_program` may already be waiting there.
    pub(super) fn create(
        &mut self,
        worker: WorkerId,
        waiting_program: Option<ProgramId>,
        tests: &mut RunTests,
        slots: &RunSlots,
        failures: &FailurePolicy,
    ) -> Option<BatchLease> {
        if slots.free(self.slots_taken()) == Slots::NONE {
            return None;
        }
        let loads = self.loads(tests, slots);
        let first = waiting_program
            .and_then(|program| tests.next_batch(|queue| queue.next_first_batch(program, &loads)));
        let has_waited = first.is_some();
        let batch = match first {
            Some(batch) => batch,
            None => tests.next_batch(|queue| queue.next_batch(&loads))?,
        };
        let id = LeaseId(self.next);
        self.next += 1;
        let start_timeouts = failures.start_timeouts(batch.program);
        let (weight, portions) = tests.queue().needs_of_lease(batch.program, &loads);
        let holdings = LeaseHoldings { weight, slot: self.free_slot(), portions };
        let assigned = tests.assign(worker, id, batch.clone(), &holdings, start_timeouts);
        let lease = ActiveLease::new(id, batch, holdings, start_timeouts, has_waited);
        self.leases.insert(worker, lease);
        Some(assigned)
    }

    /// Returns the lowest number, from 1, that no lease has.
    fn free_slot(&self) -> usize {
        let taken: BTreeSet<usize> = self.leases.values().map(|held| held.holdings().slot).collect();
        (1..).find(|slot| !taken.contains(slot)).expect("a run has fewer than 2^64 leases")
    }

    /// Removes and returns a worker's lease if it has this id.
    pub(super) fn end(&mut self, worker: WorkerId, lease: LeaseId) -> Option<ActiveLease> {
        self.leases.get(&worker).filter(|held| held.id() == lease)?;
        self.leases.remove(&worker)
    }

    /// Removes and returns the lease of a worker that has died.
    pub(super) fn lose(&mut self, worker: WorkerId) -> Option<ActiveLease> {
        self.leases.remove(&worker)
    }

    /// Records that a worker dies because the watchdog has died.
    pub(super) fn on_watchdog_died(&mut self, worker: WorkerId) {
        if let Some(held) = self.leases.get_mut(&worker) {
            held.on_watchdog_died();
        }
    }

    /// Records that all tests of a lease have ended, if its process can be given more.
    pub(super) fn on_idle(&mut self, worker: WorkerId, lease: LeaseId, tests: &RunTests) {
        let held = self.leases.get_mut(&worker).filter(|held| held.id() == lease);
        if let Some(held) = held
            && tests.queue().process_traits(held.program()).takes_more_tests
        {
            held.on_idle();
        }
    }

    /// Gives waiting processes more tests of their programs, or ends them. If no test waits but more may be
    /// added, the processes keep waiting.
    pub(super) fn serve_idle(
        &mut self,
        tests: &mut RunTests,
        slots: &RunSlots,
        actions: &mut Vec<RunAction>,
    ) {
        let idle = self.leases.iter().filter(|(_, held)| held.is_idle()).map(|(worker, _)| *worker);
        for worker in idle.collect::<Vec<_>>() {
            let is_within_share = self.slots_taken() <= slots.available();
            if is_within_share && let Some(extended) = self.extend(worker, tests, slots) {
                actions.push(RunAction::ExtendLease(Box::new(extended)));
                actions.extend(self.delay_starts(worker, tests, slots));
            } else if !(tests.is_open() && is_within_share && tests.queue().is_empty())
                && let Some(held) = self.leases.get_mut(&worker)
            {
                held.end_process();
                actions.push(RunAction::EndLease { worker, lease: held.id() });
            }
        }
    }

    fn extend(&mut self, worker: WorkerId, tests: &mut RunTests, slots: &RunSlots) -> Option<BatchLease> {
        let held = self.leases.get(&worker).filter(|held| held.is_extendable(tests))?;
        let program = held.program();
        let loads = self.loads(tests, slots);
        let batch = tests.next_batch(|queue| queue.next_extension(program, &loads))?;
        let held = self.leases.get_mut(&worker)?;
        held.extend(batch.clone());
        Some(tests.assign(worker, held.id(), batch, held.holdings(), held.start_timeouts()))
    }

    /// Cancels all leases that are not yet cancelled in this mode. Leases of tear-downs continue.
    pub(super) fn cancel(&mut self, mode: CancelMode, tests: &RunTests, actions: &mut Vec<RunAction>) {
        let is_cancellable =
            |held: &ActiveLease| !held.batch().tests.iter().any(|test| tests.is_tear_down(*test));
        let cancelled = self
            .leases
            .iter_mut()
            .filter_map(|(worker, held)| (is_cancellable(held) && held.cancel(mode)).then_some(*worker));
        actions.extend(cancelled.map(|worker| RunAction::CancelLease { worker, mode }));
    }

    /// Takes back the waiting tests of the lease that saves the most time; its running tests finish first.
    /// Only one lease at a time: its tests are distributed before the next lease is considered.
    pub(super) fn take_back(&mut self, tests: &RunTests, slots: &RunSlots) -> Option<RunAction> {
        // Waiting processes count as busy: they will get tests soon, so taking tests back would only end
        // another process.
        let idle = slots.idle(self.slots_taken()).0;
        let queue = tests.queue();
        let is_ended = |held: &ActiveLease| queue.process_traits(held.program()).ends_between_tests;
        let is_taking = || self.leases.values().any(ActiveLease::is_cancelled);
        if idle == 0 || !self.leases.values().any(is_ended) || is_taking() {
            return None;
        }
        let loads = self.occupied(slots);
        if queue.wanted_slots(&loads) > Slots::NONE {
            return None;
        }
        let saved = |(worker, held): (&WorkerId, &ActiveLease)| {
            Some((held.time_saved(tests, &loads, idle)?, *worker))
        };
        let (_, worker) = self.leases.iter().filter_map(saved).max_by_key(|(saved, _)| *saved)?;
        let mode = CancelMode::AfterRunningTests;
        self.leases.get_mut(&worker)?.cancel(mode);
        Some(RunAction::CancelLease { worker, mode })
    }

    /// Records the actual and the expected duration of a test in a worker's lease.
    pub(super) fn record_pace(&mut self, worker: WorkerId, taken: Duration, expected: Duration) {
        if let Some(held) = self.leases.get_mut(&worker) {
            held.record_pace(taken, expected);
        }
    }

    /// Returns the slots and the programs that occupy them, without the remaining times.
    pub(super) fn occupied(&self, slots: &RunSlots) -> SlotLoads {
        self.slot_loads(slots, |_| Duration::ZERO)
    }

    /// Returns the slots, the programs that occupy them, and the expected remaining time of each lease.
    fn loads(&self, tests: &RunTests, slots: &RunSlots) -> SlotLoads {
        self.slot_loads(slots, |held| held.remaining_time(tests))
    }

    fn slot_loads(&self, slots: &RunSlots, remaining: impl Fn(&ActiveLease) -> Duration) -> SlotLoads {
        let busy = self.leases.values().map(|held| held.busy_slot(remaining(held))).collect();
        let (share, available) = (Some(slots.usable()), Some(slots.available()));
        let delayed_starts = self.delayed_starts.clone();
        SlotLoads { slots: slots.limit(), share, available, busy, delayed_starts }
    }

    /// Delays further processes of a program if this worker's process will probably finish the program's
    /// tests before another process is ready.
    pub(super) fn delay_starts(
        &mut self,
        worker: WorkerId,
        tests: &RunTests,
        slots: &RunSlots,
    ) -> Option<RunAction> {
        let held = self.leases.get(&worker).filter(|held| held.is_ready() && slots.limit() > Slots::ONE)?;
        let program = held.program();
        let Some(delay) = tests.queue().start_delay(program) else {
            self.allow_starts(program);
            return None;
        };
        self.delayed_starts.insert(program);
        Some(RunAction::DelayStarts { program, delay })
    }

    pub(super) fn allow_starts(&mut self, program: ProgramId) {
        self.delayed_starts.remove(&program);
    }

    /// Lets a program start processes again once none of its running processes can run further batches.
    pub(super) fn release_starts(&mut self) {
        let leases = &self.leases;
        self.delayed_starts
            .retain(|program| leases.values().any(|held| held.program() == *program && held.takes_tests()));
    }

    /// Records the progress of a set-up. Starts a time limit for each running set-up of a fixture that
    /// another process of the program already has set up, because that process may block it.
    pub(super) fn on_set_up(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        fixture: String,
        progress: SetUpProgress,
    ) -> Vec<RunAction> {
        let Some(held) = self.leases.get_mut(&worker).filter(|held| held.id() == lease) else {
            return Vec::new();
        };
        held.on_set_up(fixture, progress);
        let program = held.program();
        let own = || self.leases.iter().filter(move |(_, held)| held.program() == program);
        let is_blocked = |(worker, held): &(&WorkerId, &ActiveLease)| {
            held.unlimited_set_up().is_some_and(|fixture| {
                own().any(|(other, held)| other != *worker && held.has_set_up(fixture))
            })
        };
        let blocked: Vec<_> = own().filter(is_blocked).map(|(worker, _)| *worker).collect();
        let mut actions = Vec::with_capacity(blocked.len());
        for worker in blocked {
            if let Some(held) = self.leases.get_mut(&worker) {
                held.limit_set_up();
                actions.push(RunAction::LimitSetUp { lease: held.id(), program });
            }
        }
        actions
    }

    /// Ends a process whose set-up has reached its time limit, even if the other process has ended in the
    /// meantime: waiting longer would not help.
    pub(super) fn on_set_up_due(&mut self, lease: LeaseId, tests: &mut RunTests) -> Option<RunAction> {
        let (&worker, held) = self.leases.iter_mut().find(|(_, held)| held.id() == lease)?;
        let fixture = held.cancel_set_up()?;
        let program = held.program();
        tests.limit_to_one_process(program);
        Some(RunAction::ReturnTests { worker, program, fixture })
    }
}
