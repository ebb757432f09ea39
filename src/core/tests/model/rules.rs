//! The rules, and the checks of a run's actions against the observer's records.

use std::collections::BTreeMap;

use heeler_core::{
    LeaseId, LeaseOutcome, NotRunReason, Outcome, ProgramId, SynthesizedResult, TestId, WorkerId,
    run::{
        BatchLease, CancelMode, DueResults, Prerequisite, RunEvent, RunStage, RunState, ScheduledTest,
        SchedulingPlan,
    },
};

use crate::{
    observer::{ObservedPlace, ObservedTest, ObservedWorker, RunObserver},
    world::{SHORT, SimJournal},
};

pub(crate) const ONE_RESULT: &str = "a test has one result";
pub(crate) const COMPLETE: &str = "at the completion the client has a result of every test";
pub(crate) const NOTHING_AFTER: &str = "nothing but a completion follows a completion";
pub(crate) const RESPONSE: &str = "there is one response, after the completion, and nothing after it";
pub(crate) const STARTED: &str = "a worker is started only if a lease could be given to it";
pub(crate) const LEASED: &str = "a lease is due, well formed, within the share, and given to a free worker";
pub(crate) const HELD: &str =
    "a lease holds a slot and units of its own, as many as its program needs, until its process ends";
pub(crate) const ANSWERED: &str = "a worker that is granted, or ends a lease, is leased or released at once";
pub(crate) const RESUMED: &str = "the rest of a batch is resumed whole, until the program's batches shrink";
pub(crate) const CANCELLED: &str = "a lease is cancelled only if that changes it";
pub(crate) const TAKEN_BACK: &str =
    "tests are taken back only for an idle slot, from one process that may end between tests";
pub(crate) const EXTENDED: &str = "an idle process is given waiting tests of its program, ended, or kept for tests that may be added, at once";
pub(crate) const DELAYED: &str =
    "starts of a program are delayed only while one of its processes takes tests";
pub(crate) const DRAINED: &str = "a stream is drained once, when no test is open";
pub(crate) const FINISHED: &str = "the finish is ordered once, and names what the client may lack";
pub(crate) const TORN_DOWN: &str = "a fixture is torn down if its set-up has begun, and only then";
pub(crate) const GIVEN_UP: &str = "a test is given up for its reason only, and a program as a whole";
pub(crate) const IGNORED: &str = "stale and repeated events change nothing";
pub(crate) const HANDLED_ORDER: &str = "no update of a test is handled after its result";
pub(crate) const HANDLED_ONCE: &str = "no result is handled twice, unless the client has broken a connection";
pub(crate) const HANDLED_COMPLETE: &str = "when the completion is handled, every result is handled";
pub(crate) const HANDLED_LAST: &str = "no update is handled after the completion";
pub(crate) const BLAMELESS: &str = "a lost guard blames no test";
pub(crate) const HANDLED_COMPLETION: &str =
    "one completion is handled, unless the client has broken a connection";
pub(crate) const REACHED: &str = "a path that ends, ends with the completion";
pub(crate) const ENDS: &str = "every path ends";

/// The rules named by [`BrokenRule`].
pub(crate) const STEP_RULES: [&str; 23] = [
    ONE_RESULT,
    COMPLETE,
    NOTHING_AFTER,
    RESPONSE,
    STARTED,
    LEASED,
    RESUMED,
    CANCELLED,
    DRAINED,
    FINISHED,
    TORN_DOWN,
    GIVEN_UP,
    IGNORED,
    ANSWERED,
    HANDLED_ORDER,
    HANDLED_ONCE,
    HANDLED_COMPLETE,
    HANDLED_LAST,
    HANDLED_COMPLETION,
    BLAMELESS,
    TAKEN_BACK,
    EXTENDED,
    HELD,
];

/// A rule broken by a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BrokenRule {
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

pub(crate) type CheckResult = Result<(), BrokenRule>;

pub(crate) fn check(rule: &'static str, holds: bool, what: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(BrokenRule { rule, what: what() }) }
}

impl RunObserver {
    pub(crate) fn check_start(&self, plan: &SchedulingPlan) -> CheckResult {
        let leases = self.workers.values().filter(|worker| worker.lease.is_some()).count();
        let there = leases + self.starting;
        let is_due = |(observed, scheduled): (&ObservedTest, &ScheduledTest)| {
            observed.place == ObservedPlace::Waiting && self.has_begun_set_up(scheduled)
        };
        let is_wanted = !self.is_stopped || self.tests.iter().zip(&plan.tests).any(is_due);
        check(STARTED, is_wanted && there < self.slots.min(self.share), || format!("beside {there}"))
    }

    /// Returns whether this is a tear-down with a set-up that has begun.
    fn has_begun_set_up(&self, scheduled: &ScheduledTest) -> bool {
        scheduled.tears_down.iter().any(|set_up| self.tests[set_up.index()].has_been_leased)
    }

    /// Checks, at the end, that each tear-down ran if one of its set-ups has begun, and otherwise did not
    /// run. Its program or worker may have failed before.
    pub(crate) fn check_torn_down(&self, plan: &SchedulingPlan) -> CheckResult {
        let tests = self.tests.iter().zip(&plan.tests);
        for (observed, scheduled) in tests.filter(|(_, scheduled)| !scheduled.tears_down.is_empty()) {
            let is_stopped = |why: NotRunReason| why.is_stop();
            let is_right = match observed.place {
                ObservedPlace::Synthesized(SynthesizedResult::NotRun(why)) => {
                    !self.has_begun_set_up(scheduled) || !is_stopped(why)
                }
                _ => self.has_begun_set_up(scheduled),
            };
            let is_leased_in_vain = observed.has_been_leased && !self.has_begun_set_up(scheduled);
            check(TORN_DOWN, is_right && !is_leased_in_vain, || format!("{observed:?} of {scheduled:?}"))?;
        }
        Ok(())
    }

    pub(crate) fn check_lease(&self, plan: &SchedulingPlan, lease: &BatchLease) -> CheckResult {
        let check = |holds: bool, what: &str| check(LEASED, holds, || format!("{what}: {lease:?}"));
        let worker = self.workers.get(&lease.worker);
        check(worker.is_some_and(|worker| worker.lease.is_none()), "the worker is busy or dead")?;
        let busy = self.workers.values().filter(|worker| worker.lease.is_some()).count();
        check(busy < self.slots.min(self.share), "one more than there are slots")?;
        check(self.unanswered == Some(lease.worker), "the worker is not granted")?;
        let program = lease.batch.program;
        let is_held = self.held.contains(&program) && self.workers.values().any(|one| one.is_ready(program));
        check(!is_held, "processes of the program are delayed")?;
        check(self.has_slots_for(plan, lease), "it takes slots that are taken")?;
        self.check_holdings(plan, lease)?;
        self.check_batch(plan, lease)
    }

    /// Returns all leases, with this one.
    fn leases_with<'l>(&'l self, lease: &'l BatchLease) -> impl Iterator<Item = &'l BatchLease> {
        self.workers.values().filter_map(|worker| worker.lease.as_ref()).chain([lease])
    }

    /// Returns whether the weights of all leases with this one are within the slots.
    fn has_slots_for(&self, plan: &SchedulingPlan, lease: &BatchLease) -> bool {
        let weight = |lease: &BatchLease| plan.programs[lease.batch.program.index()].needs.weight.0;
        let weights = self.leases_with(lease).map(|lease| weight(lease).min(self.slots.min(self.share)));
        weights.sum::<usize>() <= self.slots
    }

    /// Checks the slot and the units of a new lease.
    fn check_holdings(&self, plan: &SchedulingPlan, lease: &BatchLease) -> CheckResult {
        let check = |holds: bool, what: &str| check(HELD, holds, || format!("{what}: {lease:?}"));
        check((1..=self.slots).contains(&lease.slot), "no such slot")?;
        let with_slot = self.leases_with(lease).filter(|other| other.slot == lease.slot);
        check(with_slot.count() == 1, "another lease has its slot")?;
        let mut taken: BTreeMap<_, u32> = BTreeMap::new();
        for held in self.leases_with(lease).flat_map(|lease| &lease.portions) {
            *taken.entry((held.resource, held.unit)).or_default() += held.amount;
        }
        let mut units = taken.iter().map(|((resource, unit), taken)| {
            plan.capacities[resource.index()].get(*unit as usize).is_some_and(|amount| taken <= amount)
        });
        check(units.all(|is_within| is_within), "a unit is taken twice")?;
        let needs = plan.programs[lease.batch.program.index()].needs.resources.iter();
        let needed =
            needs.flat_map(|(resource, portions)| portions.iter().map(|amount| (*resource, *amount)));
        let held = lease.portions.iter().map(|held| (held.resource, held.amount));
        check(needed.eq(held), "it lacks a unit")
    }

    /// Checks that starts are delayed only while a process takes the program's tests.
    pub(crate) fn check_delayed_starts(&self, plan: &SchedulingPlan, program: ProgramId) -> CheckResult {
        let is_ready = self.workers.values().any(|one| one.is_ready(program));
        let takes_more = plan.programs[program.index()].process.takes_more_tests;
        check(DELAYED, is_ready && takes_more && self.slots > 1, || {
            format!("{program:?}: no process takes its tests")
        })
    }

    /// Checks that a process gets further tests only after its own have ended, and never isolated ones.
    pub(crate) fn check_extension(&self, plan: &SchedulingPlan, lease: &BatchLease) -> CheckResult {
        let check = |holds: bool, what: &str| check(EXTENDED, holds, || format!("{what}: {lease:?}"));
        let worker = self.workers.get(&lease.worker).filter(|worker| worker.is_idle && !worker.is_ending);
        check(worker.is_some(), "its process is not idle")?;
        let earlier = worker.and_then(|worker| worker.lease.as_ref());
        let is_same =
            |held: &BatchLease| held.lease == lease.lease && held.batch.program == lease.batch.program;
        check(earlier.is_some_and(is_same), "it is another lease, or of another program")?;
        let keeps = |held: &BatchLease| held.slot == lease.slot && held.portions == lease.portions;
        let what = || format!("its process got others: {lease:?}");
        crate::rules::check(HELD, earlier.is_some_and(keeps), what)?;
        let is_isolated = |held: &BatchLease| held.batch.is_isolated;
        check(!is_isolated(lease) && !earlier.is_some_and(is_isolated), "it is isolated")?;
        let busy = self.workers.values().filter(|worker| worker.lease.is_some()).count();
        check(busy <= self.slots.min(self.share), "more than there are slots")?;
        self.check_batch(plan, lease)
    }

    /// Checks that an idle process is ended only if no tests are left for it, or its slot is needed.
    pub(crate) fn check_end_of_idle(&self, worker: WorkerId) -> CheckResult {
        let idle = self.workers.get(&worker).filter(|one| one.is_idle && !one.is_ending);
        check(EXTENDED, idle.is_some(), || format!("{worker:?} is not idle"))?;
        let busy = self.workers.values().filter(|worker| worker.lease.is_some()).count();
        let is_waiting = self.tests.iter().any(|test| test.place == ObservedPlace::Waiting);
        let is_kept = self.is_open && !is_waiting && busy <= self.slots.min(self.share);
        check(EXTENDED, !is_kept, || format!("{worker:?} could wait for further tests"))
    }

    /// Checks the tests of a lease.
    fn check_batch(&self, plan: &SchedulingPlan, lease: &BatchLease) -> CheckResult {
        let check = |holds: bool, what: &str| check(LEASED, holds, || format!("{what}: {lease:?}"));
        let tests = &lease.batch.tests;
        let outlives_stop = |test: &TestId| self.has_begun_set_up(&plan.tests[test.index()]);
        check(!self.is_stopped || tests.iter().all(outlives_stop), "after the run was stopped")?;
        let is_draining = self.workers.values().any(|worker| worker.is_asked_to_drain);
        check(!is_draining && !self.is_finishing, "after the drain began")?;
        check(!tests.is_empty() && tests.len() == lease.is_failure_provisional.len(), "malformed")?;
        check(!lease.batch.is_isolated || tests.len() == 1, "not isolated")?;
        for (test, is_provisional) in tests.iter().zip(&lease.is_failure_provisional) {
            let (observed, scheduled) = (self.tests[test.index()], &plan.tests[test.index()]);
            check(observed.place == ObservedPlace::Waiting, "a test does not wait")?;
            check(scheduled.program == lease.batch.program, "a test is of another program")?;
            let must_be_isolated = observed.is_rerun_due || scheduled.is_isolated;
            check(!must_be_isolated || lease.batch.is_isolated, "a test must be isolated")?;
            let may_fail_again = !observed.is_rerun_due && observed.attempts < scheduled.retries.count;
            check(*is_provisional == may_fail_again, "a failure would be provisional, or would not")?;
            let is_met = |one: &Prerequisite| {
                let outcome = self.tests[one.test.index()].place.outcome();
                outcome.is_some_and(|outcome| !(one.must_succeed && outcome.is_failure()))
            };
            check(scheduled.prerequisites.iter().all(is_met), "a prerequisite is not met")?;
        }
        let is_cut = self.cuts[lease.batch.program.index()] >= 3;
        let is_torn = |rest: &&Vec<TestId>| *rest != tests && rest.iter().any(|test| tests.contains(test));
        let torn = self.rests.iter().find(is_torn).filter(|_| !is_cut);
        crate::rules::check(RESUMED, torn.is_none(), || format!("{torn:?} is torn: {lease:?}"))
    }

    pub(crate) fn check_release(&self, worker: WorkerId) -> CheckResult {
        check(ANSWERED, self.unanswered == Some(worker), || format!("{worker:?} is not granted"))
    }

    /// Checks the observer's records after all actions of an event.
    pub(crate) fn check_answered(&self) -> CheckResult {
        check(ANSWERED, self.unanswered.is_none(), || format!("{:?} is kept", self.unanswered))?;
        let is_waiting = self.tests.iter().any(|test| test.place == ObservedPlace::Waiting);
        let is_kept = |worker: &&ObservedWorker| {
            worker.is_idle && !worker.is_ending && worker.cancel_mode.is_none() && worker.lease.is_some()
        };
        let kept = self.workers.values().find(is_kept).filter(|_| !self.is_open || is_waiting);
        check(EXTENDED, kept.is_none(), || format!("{kept:?} waits for nothing"))
    }

    pub(crate) fn check_cancel(
        &self,
        plan: &SchedulingPlan,
        stop_reason: Option<NotRunReason>,
        worker: WorkerId,
        mode: CancelMode,
    ) -> CheckResult {
        let is_changed =
            self.workers.get(&worker).is_some_and(|one| one.lease.is_some() && one.cancel_mode < Some(mode));
        check(CANCELLED, is_changed, || format!("{worker:?} has nothing to cancel"))?;
        if !self.is_stopped {
            return self.check_taken_back(plan, worker, mode);
        }
        let lease = self.workers[&worker].lease.as_ref();
        let mut cancelled = lease.iter().flat_map(|lease| &lease.batch.tests);
        let torn_down = cancelled.find(|test| !plan.tests[test.index()].tears_down.is_empty());
        check(TORN_DOWN, torn_down.is_none(), || format!("{torn_down:?} is cancelled"))?;
        let may_finish = plan.failure_limit.is_some_and(|limit| limit.cancel_mode == mode)
            && stop_reason == Some(NotRunReason::TooManyFailures);
        check(CANCELLED, mode == CancelMode::Now || may_finish, || format!("{worker:?} is not cancelled now"))
    }

    /// Checks that tests are taken back only from a process that may be ended between two tests, and only if
    /// a slot without work can run some tests that the process has not started.
    fn check_taken_back(&self, plan: &SchedulingPlan, worker: WorkerId, mode: CancelMode) -> CheckResult {
        let lease = self.workers[&worker].lease.as_ref();
        let is_allowed =
            lease.is_some_and(|lease| plan.programs[lease.batch.program.index()].process.ends_between_tests);
        let count = |is_counted: &dyn Fn(&ObservedWorker) -> bool| {
            self.workers.values().filter(|one| one.lease.is_some() && is_counted(one)).count()
        };
        let waiting = |place: ObservedPlace| self.tests.iter().filter(|test| test.place == place).count();
        let is_idle = count(&|_| true) < self.share.min(self.slots) + self.spare_slots
            && waiting(ObservedPlace::Waiting) == 0;
        let is_only = count(&|one| one.cancel_mode.is_some()) == 0;
        let is_useful = waiting(ObservedPlace::With(worker)) >= 2 && mode == CancelMode::AfterRunningTests;
        check(TAKEN_BACK, is_allowed && is_idle && is_only && is_useful, || {
            format!("{worker:?}: {is_allowed} {is_idle} {is_only} {is_useful}")
        })
    }

    pub(crate) fn check_drain(&self, worker: WorkerId) -> CheckResult {
        self.check_quiet(DRAINED)?;
        let is_due = self.workers.get(&worker).is_some_and(|one| one.has_had_lease && !one.is_asked_to_drain);
        check(DRAINED, is_due, || format!("{worker:?} has nothing to drain"))
    }

    /// Checks that nothing runs and nothing remains to be run.
    fn check_quiet(&self, rule: &'static str) -> CheckResult {
        check(rule, !self.is_open || self.is_stopped, || "the run ends while it is open".to_owned())?;
        let is_open = |place: ObservedPlace| {
            !matches!(place, ObservedPlace::Settled(_) | ObservedPlace::Synthesized(_))
        };
        let open = self.tests.iter().find(|observed| is_open(observed.place));
        check(rule, open.is_none(), || format!("the run ends while a test is {open:?}"))?;
        let busy = self.workers.iter().find(|(_, worker)| worker.lease.is_some());
        check(rule, busy.is_none(), || format!("the run ends while {busy:?} has a lease"))
    }

    pub(crate) fn check_finish(
        &self,
        journals: &BTreeMap<WorkerId, SimJournal>,
        due: &DueResults,
    ) -> CheckResult {
        check(FINISHED, !self.is_finishing, || "the run is finished twice".to_owned())?;
        self.check_quiet(FINISHED)?;
        let open = self.workers.iter().find(|(_, worker)| worker.has_had_lease && !worker.is_drained);
        check(FINISHED, open.is_none(), || format!("{open:?} may still send results"))?;
        // The client will have the proven, the resent and the synthesized results of each stream.
        let mut had = vec![0; self.tests.len()];
        for (worker, journal) in journals {
            let (proven, sent) = (self.proven.get(worker).copied().unwrap_or(0), journal.results.len());
            let from = due.resend.iter().find(|(one, _)| one == worker).map(|(_, from)| *from);
            check(FINISHED, from == (proven < sent).then_some(proven as u64), || {
                format!("{proven} of {sent} results of {worker:?} are proven, but resent is {from:?}")
            })?;
            journal.results.iter().for_each(|(test, _)| had[test.index()] += 1);
        }
        due.synthesized.iter().for_each(|(test, _)| had[test.index()] += 1);
        check(FINISHED, had.iter().all(|count| *count == 1), || format!("results of each test: {had:?}"))?;
        let is_blamed = |observed: &&ObservedTest| match observed.place {
            ObservedPlace::Settled(outcome) => outcome != Outcome::Passed,
            ObservedPlace::Synthesized(result) => {
                !matches!(result, SynthesizedResult::NotRun(NotRunReason::GuardLost { .. }))
            }
            ObservedPlace::Waiting
            | ObservedPlace::Delayed
            | ObservedPlace::With(_)
            | ObservedPlace::Running(_) => false,
        };
        let blamed = self.tests.iter().find(is_blamed).filter(|_| self.is_blameless);
        check(BLAMELESS, blamed.is_none(), || format!("{blamed:?}"))?;
        for (test, result) in &due.synthesized {
            let observed = self.tests[test.index()];
            let is_provisional = matches!(result, SynthesizedResult::Provisional(_));
            let is_right = observed.place == ObservedPlace::Synthesized(*result)
                && is_provisional == (observed.is_rerun_due || observed.attempts > 0);
            check(FINISHED, is_right, || format!("{test:?} is {observed:?}, but reported {result:?}"))?;
        }
        Ok(())
    }

    /// Checks the tests that the run gave up at the last event. `before` contains the earlier numbers of
    /// unproductive processes.
    pub(crate) fn check_given_up(&self, plan: &SchedulingPlan, before: &[u32]) -> CheckResult {
        let most = plan.max_startup_crashes.max(1);
        for (observed, scheduled) in self.tests.iter().zip(&plan.tests) {
            let program = scheduled.program.index();
            // Other workers may return some of its tests later.
            let is_given_up =
                self.unproductive[program] > before[program] && self.unproductive[program] >= most;
            check(GIVEN_UP, !is_given_up || observed.place != ObservedPlace::Waiting, || {
                format!("the program is given up, but {observed:?}")
            })?;
            let ObservedPlace::Synthesized(SynthesizedResult::NotRun(why)) = observed.place else { continue };
            let is_due = match why {
                NotRunReason::ProgramGivenUp { deaths } => deaths >= most,
                NotRunReason::StartTimedOut { attempts } => attempts >= most,
                NotRunReason::GuardLost { losses, .. } => losses >= 3 && observed.guard_losses >= losses,
                NotRunReason::PrerequisiteFailed { test } => {
                    self.tests[test.index()].place.outcome().is_some_and(Outcome::is_failure)
                }
                NotRunReason::NoWorker => !self.workers.values().any(|worker| worker.has_had_lease),
                _ => true,
            };
            check(GIVEN_UP, is_due, || format!("{observed:?} with {:?}", self.workers))?;
        }
        Ok(())
    }

    /// Checks that messages of a dead worker, and repeated ones, are ignored.
    pub(crate) fn check_stale(
        &self,
        run: &RunState,
        dead: WorkerId,
        outbox: impl IntoIterator<Item = RunEvent>,
    ) -> CheckResult {
        let again = RunEvent::WorkerLost { worker: dead, proven: 0, settled: Vec::new() };
        let mut events = vec![RunEvent::Drained { worker: dead, proven: 9 }, again];
        // The pool grants no dead worker, and the run does not know a worker that never had a lease.
        let is_known = run.ledger().streams().contains_key(&dead);
        events.extend(is_known.then_some(RunEvent::WorkerGranted(dead)));
        let (outcome, duration, position) = (Outcome::Failed, SHORT, 7);
        let tests = (0..).map(TestId).take(self.tests.len());
        let settled = |test| RunEvent::Settled { worker: dead, test, outcome, duration, position };
        events.extend(tests.map(settled).chain(outbox));
        check_ignored(run, events)
    }

    /// Checks that repeated and unprompted events are ignored.
    pub(crate) fn check_repeated(&self, run: &RunState) -> CheckResult {
        let mut events = Vec::new();
        if run.stage() != RunStage::Finishing {
            events.extend([RunEvent::Completing, RunEvent::Finished, RunEvent::FinisherLate]);
        }
        if self.starting == 0 {
            events.push(RunEvent::WorkerNotStarted);
        }
        for program in (0..).map(ProgramId).take(self.unproductive.len()) {
            if !self.held.contains(&program) {
                events.push(RunEvent::StartsDue(program));
            }
        }
        for (test, observed) in (0..).map(TestId).zip(&self.tests) {
            if observed.place != ObservedPlace::Delayed {
                events.push(RunEvent::RetryDue(test));
            }
        }
        for (id, worker) in &self.workers {
            if worker.lease.is_some() || worker.is_drained {
                events.push(RunEvent::WorkerGranted(*id));
            }
            if !worker.is_asked_to_drain || worker.is_drained {
                events.push(RunEvent::Drained { worker: *id, proven: 9 });
            }
            if worker.lease.is_none() {
                let (lease, end) = (LeaseId(u32::MAX), LeaseOutcome::Complete);
                events.push(RunEvent::LeaseEnded { worker: *id, lease, end, start: None });
                events.push(RunEvent::LeaseIdle { worker: *id, lease });
            }
        }
        check_ignored(run, events)
    }
}

fn check_ignored(before: &RunState, events: Vec<RunEvent>) -> CheckResult {
    let mut run = before.clone();
    for event in &events {
        let actions = run.handle(event.clone());
        check(IGNORED, actions.is_empty(), || format!("{event:?} causes {actions:?}"))?;
    }
    check(IGNORED, run == *before, || format!("one of {events:?} changes the run"))
}
