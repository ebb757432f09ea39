//! The rules that every order of a run must keep, whatever happened before.

use super::world::{CheckResult, ModelTestLocation, ModelWorld};
use crate::{
    LeaseId, LeaseOutcome, NotRunReason, Outcome, ProvisionalReason, SynthesizedResult, TestId, WorkerId,
    run::{BatchLease, CancelMode, RunEvent, RunStage},
};

fn rule(holds: bool, what: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(what()) }
}

impl ModelWorld {
    pub(super) fn check_start(&self) -> CheckResult {
        let there = self.workers.len() - self.away.len() + self.starting;
        rule(!self.is_stopped && there < self.slots.min(self.share), || {
            format!("a worker is started beside {there}")
        })
    }

    pub(super) fn check_lease(&self, lease: &BatchLease) -> CheckResult {
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
        rule(!tests.is_empty() && tests.len() == lease.is_failure_provisional.len(), || {
            format!("{lease:?} is malformed")
        })?;
        rule(!lease.batch.is_isolated || tests.len() == 1, || format!("{lease:?} is not alone"))?;
        for (test, is_held) in tests.iter().zip(&lease.is_failure_provisional) {
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

    fn check_leased_test(&self, lease: &BatchLease, test: TestId, is_held: bool) -> CheckResult {
        let subject = self.tests[test.index()];
        let planned = &self.run.plan.tests[test.index()];
        rule(subject.place == ModelTestLocation::Waiting, || {
            format!("{test:?} is leased while it is {:?}", subject.place)
        })?;
        rule(planned.program == lease.batch.program, || {
            format!("{test:?} is of another program: {lease:?}")
        })?;
        let must_be_alone = subject.is_check_due || planned.is_isolated;
        rule(!must_be_alone || lease.batch.is_isolated, || format!("{test:?} must go alone: {lease:?}"))?;
        let may_fail_again = !subject.is_check_due && subject.attempts < planned.retries;
        rule(is_held == may_fail_again, || format!("{test:?} has {subject:?}, but is held: {is_held}"))
    }

    pub(super) fn check_cancel(&self, worker: WorkerId, mode: CancelMode) -> CheckResult {
        let is_due =
            self.workers.get(&worker).is_some_and(|one| one.leased.is_some() && one.cancel_mode < Some(mode));
        rule(is_due && self.is_stopped, || format!("{worker:?} has nothing to cancel"))?;
        let is_gentle = self.run.plan.failure_limit.is_some_and(|limit| limit.cancel_mode == mode)
            && self.run.stop_reason() == Some(NotRunReason::TooManyFailures);
        rule(mode == CancelMode::Now || is_gentle, || format!("{worker:?} is not cancelled at once"))
    }

    pub(super) fn check_drain(&self, worker: WorkerId) -> CheckResult {
        self.check_quiet()?;
        let is_due = self.workers.get(&worker).is_some_and(|one| one.has_had_lease && !one.is_asked_to_drain);
        rule(is_due, || format!("{worker:?} has nothing to drain"))
    }

    /// Nothing runs, and nothing is to be run.
    fn check_quiet(&self) -> CheckResult {
        for (test, subject) in self.tests.iter().enumerate() {
            let is_settled =
                matches!(subject.place, ModelTestLocation::Settled(_) | ModelTestLocation::Told(_));
            rule(is_settled, || format!("the run ends while test {test} is {subject:?}"))?;
        }
        let busy = self.workers.iter().find(|(_, worker)| worker.leased.is_some());
        rule(busy.is_none(), || format!("the run ends while {busy:?} has a lease"))
    }

    pub(super) fn check_finish(
        &self,
        resend: &[(WorkerId, u64)],
        told: &[(TestId, SynthesizedResult)],
    ) -> CheckResult {
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
            rule(subject.place == ModelTestLocation::Told(*told), || {
                format!("{test:?} is told {told:?}, but {subject:?}")
            })?;
            let is_held = subject.is_check_due || subject.attempts > 0;
            rule(
                is_held
                    == matches!(
                        told,
                        SynthesizedResult::Provisional(
                            ProvisionalReason::AwaitsIsolatedRun | ProvisionalReason::AwaitsRetry
                        )
                    ),
                || format!("{test:?} is told {told:?}, but {subject:?}"),
            )?;
        }
        Ok(())
    }

    /// What is given up is given up for its reason, and then as a whole.
    pub(super) fn check_limits(&self, barren_before: &[u32]) -> CheckResult {
        let most = self.run.plan.max_startup_crashes.max(1);
        for (subject, planned) in self.tests.iter().zip(&self.run.plan.tests) {
            let program = planned.program.index();
            // Later, other workers may bring some of its tests back.
            let is_given_up = self.barren[program] > barren_before[program] && self.barren[program] >= most;
            rule(!is_given_up || subject.place != ModelTestLocation::Waiting, || {
                format!("given up, but {subject:?}")
            })?;
            if let ModelTestLocation::Told(SynthesizedResult::NotRun(NotRunReason::ProgramGivenUp {
                deaths,
            })) = subject.place
            {
                rule(deaths >= most, || format!("given up after {deaths}"))?;
            }
            let is_hopeless =
                subject.place == ModelTestLocation::Told(SynthesizedResult::NotRun(NotRunReason::NoWorker));
            rule(!is_hopeless || self.workers.is_empty(), || format!("no worker, but {:?}", self.workers))?;
        }
        Ok(())
    }

    /// What a dead worker said, or may say twice, changes nothing.
    pub(super) fn check_stale(
        &self,
        dead: WorkerId,
        outbox: impl IntoIterator<Item = RunEvent>,
    ) -> CheckResult {
        let again = RunEvent::WorkerLost { worker: dead, proven: 0, settled: Vec::new() };
        let mut stale =
            vec![RunEvent::WorkerReady(dead), RunEvent::Drained { worker: dead, proven: 9 }, again];
        stale.extend((0..).map(TestId).take(self.tests.len()).map(|test| RunEvent::Settled {
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
    pub(super) fn check_repeated(&self) -> CheckResult {
        let mut events = Vec::new();
        if self.run.stage() != RunStage::Finishing {
            events.extend([RunEvent::Completing, RunEvent::Finished, RunEvent::FinisherLate]);
        }
        if self.starting == 0 {
            events.push(RunEvent::WorkerNotStarted);
        }
        for (id, worker) in &self.workers {
            if !self.away.contains(id) {
                events.push(RunEvent::WorkerReady(*id));
            }
            if self.away.contains(id) || !self.run.idle_workers().contains(id) {
                events.push(RunEvent::WorkerReassigned(*id));
            }
            if !worker.is_asked_to_drain || worker.is_drained {
                events.push(RunEvent::Drained { worker: *id, proven: 9 });
            }
            if worker.leased.is_none() {
                let (lease, end) = (LeaseId(u32::MAX), LeaseOutcome::Complete);
                events.push(RunEvent::LeaseEnded { worker: *id, lease, end, start: None });
            }
        }
        self.check_ignored(events)
    }

    fn check_ignored(&self, events: Vec<RunEvent>) -> CheckResult {
        let mut run = self.run.clone();
        for event in &events {
            let actions = run.handle(event.clone());
            rule(actions.is_empty(), || format!("{event:?} is not ignored: {actions:?}"))?;
        }
        rule(run == self.run, || format!("one of {events:?} is not ignored"))
    }
}
