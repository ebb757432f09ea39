//! A small world around a run: workers with their processes and journals, the finisher, the client. It knows only what
//! the run was told and ordered, and what the processes did; never what the run thinks.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use crate::{
    HeldBy, LeaseId, NotRun, Outcome, TestId, Told, WorkerId,
    ledger::Entry,
    run::{Action, Due, Event, Lease, Plan, Run, machine::Place},
};

/// An adversary may do something so often as it likes.
pub(super) const UNLIMITED: u8 = u8::MAX;

/// What an adversary may still do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
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
pub(super) enum Mutation {
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
pub(super) struct Scenario {
    pub(super) plan: Plan,
    /// Workers that are there already.
    pub(super) workers: u32,
    pub(super) faults: Faults,
    pub(super) mutation: Mutation,
    /// So many messages of a worker may be under way.
    pub(super) outbox: usize,
}

/// Where a test is, as far as the run was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Whereabouts {
    Waiting,
    With(WorkerId),
    Running(WorkerId),
    Settled(Outcome),
    Told(Told),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    pub(super) place: Whereabouts,
    pub(super) attempts: u32,
    /// It died among others, and a lone check is due or in hand.
    pub(super) is_check_due: bool,
}

/// A living worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) hand: Option<Hand>,
    /// Messages under way to the run.
    pub(super) outbox: VecDeque<Event>,
    /// The lease that the run knows to be here.
    pub(super) leased: Option<Lease>,
    pub(super) has_had_lease: bool,
    pub(super) is_cancelled: bool,
    pub(super) is_asked_to_drain: bool,
    pub(super) is_drained: bool,
}

/// A process that runs a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Hand {
    pub(super) lease: Lease,
    pub(super) next: usize,
    pub(super) in_flight: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) run: Run,
    pub(super) slots: usize,
    pub(super) faults: Faults,
    pub(super) mutation: Mutation,
    pub(super) outbox: usize,
    pub(super) workers: BTreeMap<WorkerId, Worker>,
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
    pub(super) tests: Vec<Subject>,
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
pub(super) type Verdict = Result<(), String>;

pub(super) const SHORT: Duration = Duration::from_millis(1);

impl Whereabouts {
    pub(super) fn is_with(self, worker: WorkerId) -> bool {
        self == Self::With(worker) || self == Self::Running(worker)
    }
}

impl World {
    /// Builds a world and begins the run.
    pub(super) fn begin(scenario: &Scenario) -> Result<Self, String> {
        let plan = &scenario.plan;
        let subject = Subject { place: Whereabouts::Waiting, attempts: 0, is_check_due: false };
        let mut world = Self {
            run: Run::new(plan.clone()),
            slots: plan.slots,
            faults: scenario.faults,
            mutation: scenario.mutation,
            outbox: scenario.outbox,
            workers: (0..scenario.workers).map(|id| (WorkerId(id), Worker::default())).collect(),
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
    pub(super) fn tell(&mut self, event: Event) -> Verdict {
        let barren = self.barren.clone();
        self.note(&event);
        let actions = self.run.handle(event);
        self.learn();
        self.check_limits(&barren)?;
        self.obey(actions)
    }

    /// Takes note of what the run is told.
    fn note(&mut self, event: &Event) {
        match event {
            Event::WorkerReady(worker) => {
                // One that comes back is one that need not be started.
                if self.away.remove(worker) {
                    self.starting = self.starting.saturating_sub(1);
                }
                self.workers.entry(*worker).or_default();
            }
            Event::WorkerTaken(worker) => {
                self.away.insert(*worker);
            }
            Event::Share(share) => self.share = *share,
            Event::Settled { test, outcome, .. } => self.note_settled(*test, *outcome),
            Event::Held { test, by, .. } => {
                let subject = &mut self.tests[test.index()];
                subject.place = Whereabouts::Waiting;
                match by {
                    HeldBy::Retry => subject.attempts += 1,
                    HeldBy::LoneRun => subject.is_check_due = true,
                }
                self.barren[self.run.plan.tests[test.index()].program.index()] = 0;
            }
            Event::LeaseEnded { worker, .. } => self.note_end(*worker),
            Event::WorkerLost { worker, settled, proven } => {
                for (test, outcome, _) in settled {
                    if self.tests[test.index()].place.is_with(*worker) {
                        self.note_settled(*test, *outcome);
                    }
                }
                self.note_proven(*worker, *proven);
                self.note_death(*worker);
            }
            Event::Drained { worker, proven } => self.note_proven(*worker, *proven),
            Event::Started { test, .. } => {
                let place = &mut self.tests[test.index()].place;
                if let Whereabouts::With(worker) = *place {
                    *place = Whereabouts::Running(worker);
                }
            }
            Event::Cancel | Event::TimeIsUp => self.is_stopped = true,
            Event::WorkerNotStarted | Event::Completing | Event::Finished | Event::FinisherLate => {}
        }
    }

    fn note_proven(&mut self, worker: WorkerId, proven: u64) {
        let known = self.proven.entry(worker).or_default();
        *known = (*known).max(usize::try_from(proven).unwrap());
    }

    fn note_death(&mut self, worker: WorkerId) {
        let has_begun = |subject: &Subject| subject.place == Whereabouts::Running(worker);
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
        self.tests[test.index()].place = Whereabouts::Settled(outcome);
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
                self.tests[test.index()].place = Whereabouts::Waiting;
                rest.push(test);
            }
        }
        rest
    }

    /// Takes note of what the run has given up itself.
    fn learn(&mut self) {
        for (subject, entry) in self.tests.iter_mut().zip(self.run.ledger().entries()) {
            if let (Whereabouts::Waiting, Entry::Told(told)) = (subject.place, entry) {
                subject.place = Whereabouts::Told(*told);
            }
        }
        let failures = self.tests.iter().filter(|subject| match subject.place {
            Whereabouts::Waiting | Whereabouts::With(_) | Whereabouts::Running(_) => false,
            Whereabouts::Settled(outcome) => outcome.is_failure(),
            Whereabouts::Told(told) => told.outcome().is_failure(),
        });
        self.is_stopped |= self.run.plan.max_failures.is_some_and(|most| failures.count() >= most);
        self.is_stopped |= self.run.stopped_by() == Some(NotRun::NoWorker);
    }

    fn obey(&mut self, actions: Vec<Action>) -> Verdict {
        let actions = self.mutate(actions);
        for action in actions {
            if self.is_completed {
                return Err(format!("{action:?} after the completion"));
            }
            match action {
                Action::StartWorker => {
                    self.check_start()?;
                    self.starting += 1;
                }
                Action::Lease(lease) => self.take_lease(*lease)?,
                Action::CancelLease(worker) => {
                    self.check_cancel(worker)?;
                    self.workers.get_mut(&worker).unwrap().is_cancelled = true;
                }
                Action::Drain(worker) => {
                    self.check_drain(worker)?;
                    self.workers.get_mut(&worker).unwrap().is_asked_to_drain = true;
                }
                Action::Finish(Due { resend, told }) => {
                    self.check_finish(&resend, &told)?;
                    self.is_finishing = true;
                }
                Action::KillFinisher => return Err("a finisher in time is killed".into()),
                Action::Complete => {
                    if !self.is_finishing {
                        return Err("the run is complete before it is finished".into());
                    }
                    self.is_completed = true;
                }
            }
        }
        Ok(())
    }

    fn take_lease(&mut self, lease: Lease) -> Verdict {
        self.check_lease(&lease)?;
        self.rests.retain(|rest| *rest != lease.batch.tests);
        for test in &lease.batch.tests {
            self.tests[test.index()].place = Whereabouts::With(lease.worker);
        }
        let worker = self.workers.get_mut(&lease.worker).unwrap();
        worker.leased = Some(lease.clone());
        worker.hand = Some(Hand { lease, next: 0, in_flight: None });
        worker.has_had_lease = true;
        worker.is_cancelled = false;
        Ok(())
    }

    /// Makes the mistake.
    fn mutate(&mut self, mut actions: Vec<Action>) -> Vec<Action> {
        let finish =
            || Action::Finish(Due { resend: self.run.ledger().unproven(), told: self.run.ledger().told() });
        match self.mutation {
            Mutation::None => {}
            Mutation::FinishOnEmptyQueue => {
                if self.run.queue.is_empty() && !self.is_finishing {
                    actions.push(finish());
                }
            }
            Mutation::NoResend => {
                for action in &mut actions {
                    if let Action::Finish(due) = action {
                        due.resend.clear();
                    }
                }
            }
            Mutation::FinishBeforeDrain => {
                for action in &mut actions {
                    if let Action::Drain(_) = action {
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
            if let Place::Leased(lease) | Place::InFlight(lease) = &mut test.place {
                new(lease);
            }
        }
        for worker in self.workers.values_mut() {
            worker.leased.iter_mut().for_each(|lease| new(&mut lease.lease));
            worker.hand.iter_mut().for_each(|hand| new(&mut hand.lease.lease));
            for event in &mut worker.outbox {
                if let Event::Started { lease, .. }
                | Event::Held { lease, .. }
                | Event::LeaseEnded { lease, .. } = event
                {
                    new(lease);
                }
            }
        }
    }

    /// Workers that the run may not forget to drain.
    pub(super) fn undrained(&self) -> BTreeSet<WorkerId> {
        let speaks = |worker: &Worker| worker.has_had_lease && !worker.is_drained;
        self.workers.iter().filter(|(_, worker)| speaks(worker)).map(|(id, _)| *id).collect()
    }
}
