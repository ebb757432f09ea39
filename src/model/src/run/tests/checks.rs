//! The rules that every order of a run must keep, whatever happened before.

use super::world::{Verdict, Whereabouts, World};
use crate::{
    HeldBy, LeaseEnd, LeaseId, NotRun, Outcome, TestId, Told, WorkerId,
    run::{Event, Lease, Stage},
};

fn rule(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

impl World {
    pub(super) fn check_start(&self) -> Verdict {
        let there = self.workers.len() - self.away.len() + self.starting;
        rule(!self.is_stopped && there < self.slots.min(self.share), || {
            format!("a worker is started beside {there}")
        })
    }

    pub(super) fn check_lease(&self, lease: &Lease) -> Verdict {
        let tests = &lease.batch.tests;
        let Some(worker) = self.workers.get(&lease.worker) else {
            return Err(format!("{lease:?} goes to a dead worker"));
        };
        rule(worker.leased.is_none(), || format!("{lease:?} goes to a busy worker"))?;
        let busy = self.workers.values().filter(|worker| worker.leased.is_some()).count();
        rule(busy < self.slots.min(self.share), || format!("{lease:?} is one more than there are slots"))?;
        rule(!self.away.contains(&lease.worker), || format!("{lease:?} goes to another run's worker"))?;
        rule(!self.is_stopped, || format!("{lease:?} after the run was stopped"))?;
        let is_draining = self.workers.values().any(|worker| worker.is_asked_to_drain);
        rule(!is_draining && !self.is_finishing, || format!("{lease:?} after the drain began"))?;
        rule(!tests.is_empty() && tests.len() == lease.is_failure_held.len(), || {
            format!("{lease:?} is malformed")
        })?;
        rule(!lease.batch.is_alone || tests.len() == 1, || format!("{lease:?} is not alone"))?;
        for (test, is_held) in tests.iter().zip(&lease.is_failure_held) {
            self.check_leased_test(lease, *test, *is_held)?;
        }
        for rest in &self.rests {
            let is_touched = rest.iter().any(|test| tests.contains(test));
            let is_cut = self.cuts[lease.batch.program.index()] >= 3;
            rule(!is_touched || is_cut || rest == tests, || {
                format!("the rest {rest:?} is not resumed whole: {lease:?}")
            })?;
        }
        Ok(())
    }

    fn check_leased_test(&self, lease: &Lease, test: TestId, is_held: bool) -> Verdict {
        let subject = self.tests[test.index()];
        let planned = &self.run.plan.tests[test.index()];
        rule(subject.place == Whereabouts::Waiting, || {
            format!("{test:?} is leased while it is {:?}", subject.place)
        })?;
        rule(planned.program == lease.batch.program, || {
            format!("{test:?} is of another program: {lease:?}")
        })?;
        let must_be_alone = subject.is_check_due || planned.is_alone;
        rule(!must_be_alone || lease.batch.is_alone, || format!("{test:?} must go alone: {lease:?}"))?;
        let may_fail_again = !subject.is_check_due && subject.attempts < planned.retries;
        rule(is_held == may_fail_again, || format!("{test:?} has {subject:?}, but is held: {is_held}"))
    }

    pub(super) fn check_cancel(&self, worker: WorkerId) -> Verdict {
        let is_due = self.workers.get(&worker).is_some_and(|one| one.leased.is_some() && !one.is_cancelled);
        rule(is_due && self.is_stopped, || format!("{worker:?} has nothing to cancel"))
    }

    pub(super) fn check_drain(&self, worker: WorkerId) -> Verdict {
        self.check_quiet()?;
        let is_due = self.workers.get(&worker).is_some_and(|one| one.has_had_lease && !one.is_asked_to_drain);
        rule(is_due, || format!("{worker:?} has nothing to drain"))
    }

    /// Nothing runs, and nothing is to be run.
    fn check_quiet(&self) -> Verdict {
        for (test, subject) in self.tests.iter().enumerate() {
            let is_settled = matches!(subject.place, Whereabouts::Settled(_) | Whereabouts::Told(_));
            rule(is_settled, || format!("the run ends while test {test} is {subject:?}"))?;
        }
        let busy = self.workers.iter().find(|(_, worker)| worker.leased.is_some());
        rule(busy.is_none(), || format!("the run ends while {busy:?} has a lease"))
    }

    pub(super) fn check_finish(&self, resend: &[(WorkerId, u64)], told: &[(TestId, Told)]) -> Verdict {
        rule(!self.is_finishing, || "the run is finished twice".into())?;
        self.check_quiet()?;
        rule(self.undrained().is_empty(), || {
            format!("{:?} may still speak after the end", self.undrained())
        })?;
        // What the client will have: of each stream what is proven, what is sent again, what is told.
        let mut had = vec![0; self.tests.len()];
        for (worker, journal) in &self.journals {
            let proven = self.proven[worker];
            let from = resend.iter().find(|(one, _)| one == worker).map(|(_, from)| *from);
            let is_lost = proven < journal.len();
            rule(from == is_lost.then_some(proven as u64), || {
                format!(
                    "{proven} of {} results of {worker:?} are proven, but resent is {from:?}",
                    journal.len()
                )
            })?;
            journal.iter().for_each(|(test, _)| had[test.index()] += 1);
        }
        told.iter().for_each(|(test, _)| had[test.index()] += 1);
        rule(had.iter().all(|count| *count == 1), || format!("results of each test: {had:?}"))?;
        for (test, told) in told {
            let subject = self.tests[test.index()];
            rule(subject.place == Whereabouts::Told(*told), || {
                format!("{test:?} is told {told:?}, but {subject:?}")
            })?;
            let is_held = subject.is_check_due || subject.attempts > 0;
            rule(is_held == matches!(told, Told::Held(HeldBy::LoneRun | HeldBy::Retry)), || {
                format!("{test:?} is told {told:?}, but {subject:?}")
            })?;
        }
        Ok(())
    }

    /// What is given up is given up for its reason, and then as a whole.
    pub(super) fn check_limits(&self, barren_before: &[u32]) -> Verdict {
        let most = self.run.plan.give_up_after.max(1);
        for (subject, planned) in self.tests.iter().zip(&self.run.plan.tests) {
            let program = planned.program.index();
            // Later, other workers may bring some of its tests back.
            let is_given_up = self.barren[program] > barren_before[program] && self.barren[program] >= most;
            rule(!is_given_up || subject.place != Whereabouts::Waiting, || {
                format!("given up, but {subject:?}")
            })?;
            if let Whereabouts::Told(Told::NotRun(NotRun::GivenUp { deaths })) = subject.place {
                rule(deaths >= most, || format!("given up after {deaths}"))?;
            }
            let is_hopeless = subject.place == Whereabouts::Told(Told::NotRun(NotRun::NoWorker));
            rule(!is_hopeless || self.workers.is_empty(), || format!("no worker, but {:?}", self.workers))?;
        }
        Ok(())
    }

    /// What a dead worker said, or may say twice, changes nothing.
    pub(super) fn check_stale(&self, dead: WorkerId, outbox: impl IntoIterator<Item = Event>) -> Verdict {
        let again = Event::WorkerLost { worker: dead, proven: 0, settled: Vec::new() };
        let mut stale = vec![Event::WorkerReady(dead), Event::Drained { worker: dead, proven: 9 }, again];
        stale.extend((0..).map(TestId).take(self.tests.len()).map(|test| Event::Settled {
            worker: dead,
            test,
            outcome: Outcome::Failed,
            duration: super::world::SHORT,
            position: 7,
        }));
        stale.extend(outbox);
        self.check_ignored(stale)
    }

    /// What is said twice, or without having been asked for, changes nothing.
    pub(super) fn check_repeated(&self) -> Verdict {
        let mut events = Vec::new();
        if self.run.stage() != Stage::Finishing {
            events.extend([Event::Completing, Event::Finished, Event::FinisherLate]);
        }
        if self.starting == 0 {
            events.push(Event::WorkerNotStarted);
        }
        for (id, worker) in &self.workers {
            if !self.away.contains(id) {
                events.push(Event::WorkerReady(*id));
            }
            if self.away.contains(id) || !self.run.idle_workers().contains(id) {
                events.push(Event::WorkerTaken(*id));
            }
            if !worker.is_asked_to_drain || worker.is_drained {
                events.push(Event::Drained { worker: *id, proven: 9 });
            }
            if worker.leased.is_none() {
                let (lease, end) = (LeaseId(u32::MAX), LeaseEnd::Complete);
                events.push(Event::LeaseEnded { worker: *id, lease, end, start: None });
            }
        }
        self.check_ignored(events)
    }

    fn check_ignored(&self, events: Vec<Event>) -> Verdict {
        let mut run = self.run.clone();
        for event in &events {
            let actions = run.handle(event.clone());
            rule(actions.is_empty(), || format!("{event:?} is not ignored: {actions:?}"))?;
        }
        rule(run == self.run, || format!("one of {events:?} is not ignored"))
    }
}
