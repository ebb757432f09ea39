//! A small world around a run: workers with their processes and journals, the finisher, the client. It knows only what
//! the run was told and ordered, and what the processes did; never what the run thinks.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use crate::{
    LeaseId, NotRunReason, Outcome, ProvisionalReason, SynthesizedResult, TestId, WorkerId,
    ledger::LedgerEntry,
    run::{
        BatchLease, CancelMode, DueResults, RunAction, RunEvent, RunState, SchedulingPlan,
        state::TestLocation,
    },
};

/// An adversary may do something so often as it likes.
pub(super) const UNLIMITED: u8 = u8::MAX;

/// What an adversary may still do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct RunFaults {
    /// Deaths of tests, processes and workers, workers that do not start, processes that do not run what they should.
    pub(super) deaths: u8,
    /// Failing tests.
    pub(super) failures: u8,
    /// The user loses patience.
    pub(super) cancels: u8,
    /// Idle workers that another run takes, and changes of the run's share.
    pub(super) loans: u8,
}

/// A deliberate mistake, which the checks must find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum RunMutation {
    #[default]
    None,
    /// The run is finished as soon as nothing waits to be handed out.
    FinishOnEmptyQueue,
    /// What streams may have lost is not sent again.
    NoResend,
    /// The run is finished without waiting for the streams.
    FinishBeforeDrain,
}

/// What to try.
#[derive(Debug, Clone, Default)]
pub(super) struct RunScenario {
    pub(super) plan: SchedulingPlan,
    /// Workers that are there already.
    pub(super) workers: u32,
    pub(super) faults: RunFaults,
    pub(super) mutation: RunMutation,
    /// So many messages of a worker may be under way.
    pub(super) outbox: usize,
}

/// Where a test is, as far as the run was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ModelTestLocation {
    Waiting,
    With(WorkerId),
    Running(WorkerId),
    Settled(Outcome),
    Told(SynthesizedResult),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ModelTest {
    pub(super) place: ModelTestLocation,
    pub(super) attempts: u32,
    /// It died among others, and a lone check is due or in hand.
    pub(super) is_check_due: bool,
}

/// A living worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelWorker {
    pub(super) hand: Option<ModelProcess>,
    /// Messages under way to the run.
    pub(super) outbox: VecDeque<RunEvent>,
    /// The lease that the run knows to be here.
    pub(super) leased: Option<BatchLease>,
    pub(super) has_had_lease: bool,
    pub(super) cancel_mode: Option<CancelMode>,
    pub(super) is_asked_to_drain: bool,
    pub(super) is_drained: bool,
}

/// A process that runs a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ModelProcess {
    pub(super) lease: BatchLease,
    pub(super) next: usize,
    pub(super) in_flight: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ModelWorld {
    pub(super) run: RunState,
    pub(super) slots: usize,
    pub(super) faults: RunFaults,
    pub(super) mutation: RunMutation,
    pub(super) outbox: usize,
    pub(super) workers: BTreeMap<WorkerId, ModelWorker>,
    pub(super) last_worker: u32,
    pub(super) starting: usize,
    /// Workers that serve another run.
    pub(super) away: BTreeSet<WorkerId>,
    /// So many leases at once are allowed.
    pub(super) share: usize,
    /// Terminal results, of the living and the dead.
    pub(super) journals: BTreeMap<WorkerId, Vec<(TestId, Outcome)>>,
    /// What the client has of the streams that are closed.
    pub(super) proven: BTreeMap<WorkerId, usize>,
    pub(super) tests: Vec<ModelTest>,
    /// Rests of dead batches, each due in one lease.
    pub(super) rests: Vec<Vec<TestId>>,
    /// By program: processes with one test that brought nothing, in a row.
    pub(super) barren: Vec<u32>,
    /// By program: at three, its rests may be cut.
    pub(super) cuts: Vec<u8>,
    pub(super) is_stopped: bool,
    pub(super) is_finishing: bool,
    pub(super) is_completed: bool,
}

/// How a rule was broken.
pub(super) type CheckResult = Result<(), String>;

pub(super) const SHORT: Duration = Duration::from_millis(1);

impl ModelTestLocation {
    pub(super) fn is_with(self, worker: WorkerId) -> bool {
        self == Self::With(worker) || self == Self::Running(worker)
    }
}

impl ModelWorld {
    /// Builds a world and begins the run.
    pub(super) fn begin(scenario: &RunScenario) -> Result<Self, String> {
        let plan = &scenario.plan;
        let subject = ModelTest { place: ModelTestLocation::Waiting, attempts: 0, is_check_due: false };
        let mut world = Self {
            run: RunState::new(plan.clone()),
            slots: plan.slots,
            faults: scenario.faults,
            mutation: scenario.mutation,
            outbox: scenario.outbox,
            workers: (0..scenario.workers).map(|id| (WorkerId(id), ModelWorker::default())).collect(),
            last_worker: scenario.workers,
            starting: 0,
            away: BTreeSet::new(),
            share: plan.slots,
            journals: BTreeMap::new(),
            proven: BTreeMap::new(),
            tests: vec![subject; plan.tests.len()],
            rests: Vec::new(),
            barren: vec![0; plan.programs.len()],
            cuts: vec![0; plan.programs.len()],
            is_stopped: false,
            is_finishing: false,
            is_completed: false,
        };
        let there: Vec<_> = world.workers.keys().copied().collect();
        let actions = world.run.begin(&there);
        world.learn();
        world.obey(actions)?;
        Ok(world)
    }

    /// Tells the run an event and does what it orders.
    pub(super) fn tell(&mut self, event: RunEvent) -> CheckResult {
        let barren = self.barren.clone();
        self.note(&event);
        let actions = self.run.handle(event);
        self.learn();
        self.check_limits(&barren)?;
        self.obey(actions)
    }

    /// Takes note of what the run is told.
    fn note(&mut self, event: &RunEvent) {
        match event {
            RunEvent::WorkerReady(worker) => {
                // One that comes back is one that need not be started.
                if self.away.remove(worker) {
                    self.starting = self.starting.saturating_sub(1);
                }
                self.workers.entry(*worker).or_default();
            }
            RunEvent::WorkerReassigned(worker) => {
                self.away.insert(*worker);
            }
            RunEvent::SlotShare(share) => self.share = *share,
            RunEvent::Settled { test, outcome, .. } => self.note_settled(*test, *outcome),
            RunEvent::Provisional { test, by, .. } => {
                let subject = &mut self.tests[test.index()];
                subject.place = ModelTestLocation::Waiting;
                match by {
                    ProvisionalReason::AwaitsRetry => subject.attempts += 1,
                    ProvisionalReason::AwaitsIsolatedRun => subject.is_check_due = true,
                }
                self.barren[self.run.plan.tests[test.index()].program.index()] = 0;
            }
            RunEvent::LeaseEnded { worker, .. } => self.note_end(*worker),
            RunEvent::WorkerLost { worker, settled, proven } => {
                for (test, outcome, _) in settled {
                    if self.tests[test.index()].place.is_with(*worker) {
                        self.note_settled(*test, *outcome);
                    }
                }
                self.note_proven(*worker, *proven);
                self.note_death(*worker);
            }
            RunEvent::Drained { worker, proven } => self.note_proven(*worker, *proven),
            RunEvent::Started { test, .. } => {
                let place = &mut self.tests[test.index()].place;
                if let ModelTestLocation::With(worker) = *place {
                    *place = ModelTestLocation::Running(worker);
                }
            }
            RunEvent::Cancel | RunEvent::TimeLimitReached => self.is_stopped = true,
            RunEvent::WorkerNotStarted
            | RunEvent::Completing
            | RunEvent::Finished
            | RunEvent::FinisherLate => {}
        }
    }

    fn note_proven(&mut self, worker: WorkerId, proven: u64) {
        let known = self.proven.entry(worker).or_default();
        *known = (*known).max(usize::try_from(proven).unwrap());
    }

    fn note_death(&mut self, worker: WorkerId) {
        let has_begun = |subject: &ModelTest| subject.place == ModelTestLocation::Running(worker);
        let begun: Vec<_> = self.tests.iter().map(has_begun).collect();
        let mut rest = self.put_back(worker);
        let count = rest.len();
        rest.retain(|test| !begun[test.index()]);
        if rest.len() == count && count > 0 {
            rest.remove(0);
        }
        self.rests.extend((!rest.is_empty()).then_some(rest));
        self.workers.remove(&worker);
        self.away.remove(&worker);
    }

    fn note_settled(&mut self, test: TestId, outcome: Outcome) {
        self.tests[test.index()].place = ModelTestLocation::Settled(outcome);
        self.barren[self.run.plan.tests[test.index()].program.index()] = 0;
    }

    fn note_end(&mut self, worker: WorkerId) {
        let lease = self.workers[&worker].leased.clone().unwrap();
        let rest = self.put_back(worker);
        self.workers.get_mut(&worker).unwrap().leased = None;
        let program = lease.batch.program.index();
        let has_brought_nothing = rest.len() == lease.batch.tests.len();
        if has_brought_nothing && lease.batch.tests.len() == 1 {
            self.barren[program] += 1;
        }
        // An end without any test, or the third early one, may cut what follows.
        self.cuts[program] = self.cuts[program].saturating_add(if has_brought_nothing { 3 } else { 1 });
        if !rest.is_empty() && !has_brought_nothing {
            self.rests.push(rest);
        }
    }

    fn put_back(&mut self, worker: WorkerId) -> Vec<TestId> {
        let mut rest = Vec::new();
        let tests = self.workers[&worker].leased.iter().flat_map(|lease| &lease.batch.tests);
        for test in tests.copied().collect::<Vec<_>>() {
            if self.tests[test.index()].place.is_with(worker) {
                self.tests[test.index()].place = ModelTestLocation::Waiting;
                rest.push(test);
            }
        }
        rest
    }

    /// Takes note of what the run has given up itself.
    fn learn(&mut self) {
        for (subject, entry) in self.tests.iter_mut().zip(self.run.ledger().entries()) {
            if let (ModelTestLocation::Waiting, LedgerEntry::Synthesized(told)) = (subject.place, entry) {
                subject.place = ModelTestLocation::Told(*told);
            }
        }
        let failures = self.tests.iter().filter(|subject| match subject.place {
            ModelTestLocation::Waiting | ModelTestLocation::With(_) | ModelTestLocation::Running(_) => false,
            ModelTestLocation::Settled(outcome) => outcome.is_failure(),
            ModelTestLocation::Told(told) => told.outcome().is_failure(),
        });
        self.is_stopped |=
            self.run.plan.failure_limit.is_some_and(|limit| failures.count() >= limit.failures);
        self.is_stopped |= self.run.stop_reason() == Some(NotRunReason::NoWorker);
    }

    fn obey(&mut self, actions: Vec<RunAction>) -> CheckResult {
        let actions = self.mutate(actions);
        for action in actions {
            if self.is_completed {
                return Err(format!("{action:?} after the completion"));
            }
            match action {
                RunAction::StartWorker => {
                    self.check_start()?;
                    self.starting += 1;
                }
                RunAction::Lease(lease) => self.take_lease(*lease)?,
                RunAction::CancelLease { worker, mode } => {
                    self.check_cancel(worker, mode)?;
                    self.workers.get_mut(&worker).unwrap().cancel_mode = Some(mode);
                }
                RunAction::Drain(worker) => {
                    self.check_drain(worker)?;
                    self.workers.get_mut(&worker).unwrap().is_asked_to_drain = true;
                }
                RunAction::Finish(DueResults { resend, synthesized: told }) => {
                    self.check_finish(&resend, &told)?;
                    self.is_finishing = true;
                }
                RunAction::KillFinisher => return Err("a finisher in time is killed".into()),
                RunAction::Complete => {
                    if !self.is_finishing {
                        return Err("the run is complete before it is finished".into());
                    }
                    self.is_completed = true;
                }
            }
        }
        Ok(())
    }

    fn take_lease(&mut self, lease: BatchLease) -> CheckResult {
        self.check_lease(&lease)?;
        self.rests.retain(|rest| *rest != lease.batch.tests);
        for test in &lease.batch.tests {
            self.tests[test.index()].place = ModelTestLocation::With(lease.worker);
        }
        let worker = self.workers.get_mut(&lease.worker).unwrap();
        worker.leased = Some(lease.clone());
        worker.hand = Some(ModelProcess { lease, next: 0, in_flight: None });
        worker.has_had_lease = true;
        worker.cancel_mode = None;
        Ok(())
    }

    /// Makes the mistake.
    fn mutate(&mut self, mut actions: Vec<RunAction>) -> Vec<RunAction> {
        let finish = || {
            RunAction::Finish(DueResults {
                resend: self.run.ledger().unproven_streams(),
                synthesized: self.run.ledger().synthesized_results(),
            })
        };
        match self.mutation {
            RunMutation::None => {}
            RunMutation::FinishOnEmptyQueue => {
                if self.run.queue.is_empty() && !self.is_finishing {
                    actions.push(finish());
                }
            }
            RunMutation::NoResend => {
                for action in &mut actions {
                    if let RunAction::Finish(due) = action {
                        due.resend.clear();
                    }
                }
            }
            RunMutation::FinishBeforeDrain => {
                for action in &mut actions {
                    if let RunAction::Drain(_) = action {
                        *action = finish();
                    }
                }
            }
        }
        actions
    }

    /// Numbers the leases anew, so that worlds that differ in nothing else are equal.
    pub(super) fn renumber_leases(&mut self) {
        let old: Vec<_> = self.run.leases.values().map(|held| held.lease).collect();
        let new = |lease: &mut LeaseId| {
            let place = old.iter().position(|one| one == lease).expect("only leases in hand are spoken of");
            *lease = LeaseId(u32::try_from(place).unwrap());
        };
        self.run.next_lease = u32::try_from(old.len()).unwrap();
        self.run.leases.values_mut().for_each(|held| new(&mut held.lease));
        for test in &mut self.run.tests {
            if let TestLocation::Leased(lease) | TestLocation::InFlight(lease) = &mut test.location {
                new(lease);
            }
        }
        for worker in self.workers.values_mut() {
            worker.leased.iter_mut().for_each(|lease| new(&mut lease.lease));
            worker.hand.iter_mut().for_each(|hand| new(&mut hand.lease.lease));
            for event in &mut worker.outbox {
                if let RunEvent::Started { lease, .. }
                | RunEvent::Provisional { lease, .. }
                | RunEvent::LeaseEnded { lease, .. } = event
                {
                    new(lease);
                }
            }
        }
    }

    /// Workers that the run may not forget to drain.
    pub(super) fn undrained(&self) -> BTreeSet<WorkerId> {
        let speaks = |worker: &ModelWorker| worker.has_had_lease && !worker.is_drained;
        self.workers.iter().filter(|(_, worker)| speaks(worker)).map(|(id, _)| *id).collect()
    }
}
