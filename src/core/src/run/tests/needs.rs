//! Runs whose tests take slots and resources.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{
    ResourceId,
    batching::{HeldPortion, LeaseNeeds},
};

fn needs(weight: usize, resources: &[(u32, u32)], priority: i32) -> LeaseNeeds {
    let resources = resources.iter().map(|(resource, amount)| (ResourceId(*resource), vec![*amount]));
    let resources = resources.collect();
    LeaseNeeds { weight: Slots(weight), resources, priority }
}

fn program(needs: LeaseNeeds) -> ProgramCosts {
    ProgramCosts { needs, ..ProgramCosts::default() }
}

/// Returns a plan with a program for each pair of needs and number of tests.
fn plan(slots: usize, capacities: &[u32], programs: Vec<(LeaseNeeds, usize)>) -> SchedulingPlan {
    let test = |program: usize| ScheduledTest {
        program: ProgramId(u32::try_from(program).unwrap()),
        is_isolated: true,
        ..plain_test()
    };
    let tests = programs.iter().enumerate().flat_map(|(id, (_, count))| vec![test(id); *count]).collect();
    let programs = programs.into_iter().map(|(needs, _)| program(needs)).collect();
    let capacities = capacities.iter().map(|capacity| vec![*capacity]).collect();
    SchedulingPlan { programs, capacities, slots, ..plan_of(tests) }
}

/// How a lease ends early.
#[derive(Debug, Clone, Copy)]
enum Death {
    BeforeTests,
    AfterTests,
    OfWorker,
}

/// A run whose workers finish their leases in a given order, with checks of what runs at the same time.
struct Simulation {
    plan: SchedulingPlan,
    run: RunState,
    next_worker: u32,
    requested: usize,
    /// The lease of each busy worker.
    busy: BTreeMap<WorkerId, BatchLease>,
    /// Number of results on each worker's stream.
    positions: BTreeMap<WorkerId, u64>,
    /// Programs in the order of their leases.
    started: Vec<ProgramId>,
}

impl Simulation {
    fn new(plan: SchedulingPlan) -> Self {
        let run = RunState::new(plan.clone());
        let mut new = Self {
            plan,
            run,
            next_worker: 0,
            requested: 0,
            busy: BTreeMap::new(),
            positions: BTreeMap::new(),
            started: Vec::new(),
        };
        let actions = new.run.begin();
        new.execute(actions);
        new
    }

    fn execute(&mut self, actions: Vec<RunAction>) {
        for action in actions {
            match action {
                RunAction::StartWorker => self.requested += 1,
                RunAction::Lease(lease) => {
                    self.started.push(lease.batch.program);
                    self.busy.insert(lease.worker, *lease);
                    self.check();
                }
                _ => {}
            }
        }
    }

    /// Checks that no slot and no unit is taken twice, and that each lease has the portions that it needs.
    fn check(&self) {
        let mut taken: BTreeMap<(ResourceId, u32), u32> = BTreeMap::new();
        let (mut weights, mut slots) = (0, BTreeSet::new());
        for lease in self.busy.values() {
            let needs = &self.plan.programs[lease.batch.program.index()].needs;
            weights += needs.weight.0.min(self.plan.slots);
            assert!(
                (1..=self.plan.slots).contains(&lease.slot) && slots.insert(lease.slot),
                "{:?}",
                self.busy
            );
            for HeldPortion { resource, unit, amount } in &lease.portions {
                *taken.entry((*resource, *unit)).or_default() += amount;
            }
            for (resource, portions) in &needs.resources {
                let held = lease.portions.iter().filter(|held| held.resource == *resource);
                let held: Vec<u32> = held.map(|held| held.amount).collect();
                let units = &self.plan.capacities[resource.index()];
                assert!(held == *portions || held == *units, "{portions:?} of {units:?}: {lease:?}");
            }
        }
        assert!(weights <= self.plan.slots, "{weights} slots: {:?}", self.busy);
        for ((resource, unit), amount) in taken {
            let most = self.plan.capacities[resource.index()][unit as usize];
            assert!(amount <= most, "{resource}: {:?}", self.busy);
        }
    }

    /// Checks that each waiting test has a reason if a slot is idle.
    fn check_waits(&self) {
        let leased: usize = self.busy.values().map(|lease| lease.batch.tests.len()).sum();
        let waits = self.run.waits();
        let explained: usize = waits.iter().map(|wait| wait.tests).sum();
        let waiting = self.run.ledger().open_count() - leased;
        if self.run.slots_taken() < Slots(self.plan.slots) {
            assert_eq!(explained, waiting, "{waits:?} of {:?}", self.run);
        } else {
            assert!(explained <= waiting, "{waits:?} of {:?}", self.run);
        }
    }

    /// Grants all requested workers. A worker may have come in vain, because the batches before it changed
    /// what may start, but no worker is requested again and again.
    fn grant(&mut self) {
        let mut in_vain = 0;
        while self.requested > 0 {
            self.requested -= 1;
            let worker = WorkerId(self.next_worker);
            self.next_worker += 1;
            let (before, can_use_worker) = (self.busy.len(), self.run.can_use_worker());
            let actions = self.run.handle(RunEvent::WorkerGranted(worker));
            self.execute(actions);
            let is_used = self.busy.len() > before;
            // Without needs, the demand alone decides about grants.
            let has_needs = self.plan.programs.iter().any(|one| one.needs != LeaseNeeds::default());
            if has_needs || is_used {
                assert_eq!(is_used, can_use_worker, "a worker is granted if it has work: {:?}", self.run);
            }
            in_vain = if is_used { 0 } else { in_vain + 1 };
            assert!(in_vain <= self.plan.slots, "{:?}", self.run);
        }
    }

    /// Limits the slots that leases may occupy from now on.
    fn make_available(&mut self, slots: usize) {
        let actions = self.run.handle(RunEvent::AvailableSlots(Slots(slots)));
        self.execute(actions);
    }

    /// Ends the lease of the busy worker at this index.
    fn finish(&mut self, index: usize) {
        let worker = *self.busy.keys().nth(index % self.busy.len()).unwrap();
        let lease = self.busy.remove(&worker).unwrap();
        self.pass(worker, &lease);
        self.end_lease(worker, &lease, LeaseOutcome::Complete);
    }

    /// Kills the process or the worker of the busy worker at this index, before or after its tests.
    fn kill(&mut self, index: usize, death: Death) {
        let worker = *self.busy.keys().nth(index % self.busy.len()).unwrap();
        let lease = self.busy.remove(&worker).unwrap();
        match death {
            Death::AfterTests => {
                self.pass(worker, &lease);
                self.end_lease(worker, &lease, LeaseOutcome::BadExit);
            }
            Death::BeforeTests => self.end_lease(worker, &lease, LeaseOutcome::DiedOutside),
            Death::OfWorker => {
                let lost = RunEvent::WorkerLost { worker, proven: 0, settled: Vec::new() };
                let actions = self.run.handle(lost);
                self.execute(actions);
            }
        }
    }

    /// Passes all tests of a lease.
    fn pass(&mut self, worker: WorkerId, lease: &BatchLease) {
        for test in &lease.batch.tests {
            let position = self.positions.entry(worker).or_default();
            *position += 1;
            let (outcome, duration, position) = (Outcome::Passed, Duration::from_millis(1), *position);
            let settled = RunEvent::Settled { worker, test: *test, outcome, duration, position };
            let actions = self.run.handle(settled);
            self.execute(actions);
        }
    }

    fn end_lease(&mut self, worker: WorkerId, lease: &BatchLease, end: LeaseOutcome) {
        let lease = lease.lease;
        let actions = self.run.handle(RunEvent::LeaseEnded { worker, lease, end, start: None });
        self.execute(actions);
    }

    fn finish_all(&mut self, order: &[usize]) {
        let mut order = order.iter().copied().cycle();
        self.grant();
        self.check_waits();
        while !self.busy.is_empty() {
            self.finish(order.next().unwrap());
            self.grant();
            self.check_waits();
        }
        assert_eq!(self.run.ledger().open_count(), 0, "every test has a result: {:?}", self.run);
    }
}

fn started(plan: SchedulingPlan) -> Vec<u32> {
    let mut simulation = Simulation::new(plan);
    simulation.finish_all(&[0]);
    simulation.started.into_iter().map(|program| program.0).collect()
}

#[test]
fn tests_with_one_lock_run_one_after_the_other() {
    let lock = needs(1, &[(0, 1)], 0);
    let mut simulation = Simulation::new(plan(4, &[1], vec![(lock, 5), (LeaseNeeds::default(), 3)]));
    simulation.grant();
    let programs: Vec<_> = simulation.busy.values().map(|lease| lease.batch.program.0).collect();
    assert_eq!(programs.iter().filter(|program| **program == 0).count(), 1, "{programs:?}");
    assert_eq!(programs.len(), 4, "the other slots run tests without the lock");
    simulation.finish_all(&[0]);
}

#[test]
fn heavy_tests_start_first_and_urgent_tests_before_them() {
    let light = LeaseNeeds::default();
    let started = started(plan(4, &[], vec![(light, 3), (needs(3, &[], 0), 1), (needs(1, &[], 5), 1)]));
    assert_eq!(started, [2, 1, 0, 0, 0]);
}

#[test]
fn needs_beyond_the_capacity_take_everything() {
    let serial = needs(usize::MAX, &[(0, 9)], 0);
    let mut simulation = Simulation::new(plan(2, &[2], vec![(serial, 2), (LeaseNeeds::default(), 4)]));
    simulation.grant();
    assert_eq!(simulation.busy.len(), 1, "it runs alone");
    simulation.finish_all(&[0]);
}

#[test]
fn heavy_test_behind_many_light_ones_gets_the_ticket() {
    // The heavy test is added while light tests with the same priority keep all slots busy.
    let light = plan(4, &[], vec![(LeaseNeeds::default(), 200), (needs(4, &[], 0), 0)]);
    let heavy = ScheduledTest { program: ProgramId(1), is_isolated: true, ..plain_test() };
    let mut simulation = Simulation::new(SchedulingPlan { is_open: true, ..light });
    simulation.grant();
    let actions = simulation.run.handle(RunEvent::TestsAdded(vec![heavy]));
    simulation.execute(actions);
    let actions = simulation.run.handle(RunEvent::NoMoreTests);
    simulation.execute(actions);
    simulation.finish_all(&[0]);
    let place = simulation.started.iter().position(|program| program.0 == 1).unwrap();
    assert!(place <= 10, "started after {place} of 200");
}

#[test]
fn tests_that_need_nothing_scarce_pass_the_holder_of_the_ticket() {
    // All tests of one program hold the lock; the other program has nothing to do with it.
    let (lock, both) = (needs(1, &[(0, 1)], 0), needs(2, &[(0, 2)], 0));
    let programs = vec![(lock, 20), (both, 1), (LeaseNeeds::default(), 20)];
    let mut simulation = Simulation::new(plan(4, &[2], programs));
    simulation.finish_all(&[1, 0]);
}

#[test]
fn heavy_test_waits_for_its_whole_weight_on_the_machine() {
    let mut simulation =
        Simulation::new(plan(4, &[], vec![(needs(3, &[], 0), 1), (LeaseNeeds::default(), 1)]));
    simulation.make_available(2);
    assert_eq!(simulation.run.least_slots(), Slots::ONE, "the light test can start");
    simulation.grant();
    assert_eq!(simulation.started, [ProgramId(1)], "the heavy test does not run with fewer slots");
    simulation.finish(0);
    assert_eq!(simulation.run.least_slots(), Slots(3));
    assert!(!simulation.run.can_use_worker());
    simulation.make_available(3);
    simulation.grant();
    assert_eq!(simulation.run.slots_taken(), Slots(3));
    simulation.finish_all(&[0]);
}

#[test]
fn tests_of_a_critical_resource_start_before_longer_ones() {
    let lock = needs(1, &[(0, 1)], 0);
    let mut critical = plan(2, &[1], vec![(LeaseNeeds::default(), 4), (lock, 4)]);
    for (place, test) in critical.tests.iter_mut().enumerate() {
        test.weight = Some(Duration::from_secs(if place < 4 { 5 } else { 2 }));
    }
    let mut simulation = Simulation::new(critical.clone());
    simulation.grant();
    let started: Vec<_> = simulation.started.iter().map(|program| program.0).collect();
    assert_eq!(started, [1, 0], "8 of 14 s need the lock");
    // A quarter of the time is not critical: the longest tests go first.
    critical.tests[4..].iter_mut().for_each(|test| test.weight = Some(Duration::from_millis(600)));
    let mut simulation = Simulation::new(critical);
    simulation.grant();
    assert_eq!(simulation.started, [ProgramId(0), ProgramId(0)]);
}

fn wait(cause: WaitCause, tests: usize) -> WaitingTests {
    WaitingTests { cause, tests }
}

#[test]
fn waits_name_the_resource_or_the_slots_that_tests_lack() {
    let (lock, wide) = (needs(1, &[(1, 1)], 0), needs(3, &[], 0));
    let mut simulation = Simulation::new(plan(4, &[9, 1], vec![(lock, 5), (wide, 2)]));
    simulation.grant();
    let lack_both = [wait(WaitCause::Resource(ResourceId(1)), 4), wait(WaitCause::Slots(Slots(3)), 1)];
    assert_eq!(simulation.run.waits(), lack_both);
    simulation.finish(0);
    simulation.grant();
    assert_eq!(simulation.run.waits()[0].cause, WaitCause::Resource(ResourceId(1)));
}

#[test]
fn tests_that_only_wait_for_a_free_slot_have_no_reason() {
    let mut simulation = Simulation::new(plan(2, &[1], vec![(LeaseNeeds::default(), 9)]));
    assert!(simulation.run.waits().is_empty(), "workers are on their way");
    simulation.grant();
    assert!(simulation.run.waits().is_empty());
}

#[test]
fn waits_name_the_limit_of_processes_and_the_turn_of_others() {
    let limited = plan(3, &[], vec![(LeaseNeeds::default(), 4)]);
    let programs = vec![ProgramCosts { max_processes: NonZeroU32::new(1), ..ProgramCosts::default() }];
    let mut simulation = Simulation::new(SchedulingPlan { programs, ..limited });
    simulation.grant();
    assert_eq!(simulation.run.waits(), [wait(WaitCause::Process(ProgramId(0)), 3)]);
    // Two slots run tests without an end, until the test that takes both gets the ticket.
    let programs = vec![(LeaseNeeds::default(), 20), (needs(2, &[], 0), 0)];
    let mut simulation = Simulation::new(SchedulingPlan { is_open: true, ..plan(2, &[], programs) });
    simulation.grant();
    let heavy = ScheduledTest { program: ProgramId(1), is_isolated: true, ..plain_test() };
    let actions = simulation.run.handle(RunEvent::TestsAdded(vec![heavy]));
    simulation.execute(actions);
    assert_eq!(simulation.run.waits(), [wait(WaitCause::Slots(Slots(2)), 1)]);
    while simulation.busy.len() == 2 {
        simulation.finish(0);
        simulation.grant();
    }
    let left = 20 - simulation.started.len();
    assert!(left > 10, "the ticket comes soon: {:?}", simulation.started);
    let waits = [wait(WaitCause::Turn, left), wait(WaitCause::Slots(Slots(2)), 1)];
    assert_eq!(simulation.run.waits(), waits);
}

#[test]
fn waits_for_prerequisites_name_the_test_at_the_beginning_of_the_chain() {
    let after = |test: u32| Prerequisite { test: TestId(test), must_succeed: false };
    let lock = needs(1, &[(0, 1)], 0);
    let mut chain = plan(4, &[1], vec![(LeaseNeeds::default(), 5), (lock, 0)]);
    for (test, first) in [(1, 0), (2, 1), (3, 2)] {
        chain.tests[test].prerequisites = vec![after(first)];
    }
    let mut simulation = Simulation::new(chain);
    simulation.grant();
    let expected = [wait(WaitCause::Prerequisite(TestId(0)), 3)];
    assert_eq!(simulation.run.waits(), expected);
    // A run gets no share that it can't use. The rest is idle only if no other run uses it.
    let _actions = simulation.run.handle(RunEvent::SlotShare(Slots(2)));
    assert!(simulation.run.waits().is_empty());
    let _actions = simulation.run.handle(RunEvent::SpareSlots(Slots(2)));
    assert_eq!(simulation.run.waits(), expected);
    simulation.finish_all(&[0]);
    assert!(simulation.run.waits().is_empty());
}

/// Returns the units that a lease holds, of any resource.
fn units_of(lease: &BatchLease) -> Vec<u32> {
    lease.portions.iter().map(|held| held.unit).collect()
}

#[test]
fn leases_hold_the_first_free_units() {
    let mut one = needs(1, &[], 0);
    one.resources.insert(ResourceId(0), vec![1]);
    let mut two = needs(1, &[], -1);
    two.resources.insert(ResourceId(0), vec![1, 1]);
    let mut plan = plan(4, &[], vec![(one, 4), (two, 1)]);
    plan.capacities = vec![vec![1; 3]];
    let mut simulation = Simulation::new(plan);
    simulation.grant();
    let held: Vec<_> = simulation.busy.values().map(|lease| (units_of(lease), lease.slot)).collect();
    assert_eq!(held, [(vec![0], 1), (vec![1], 2), (vec![2], 3)]);
    simulation.finish(1);
    let held: BTreeSet<_> = simulation.busy.values().map(units_of).collect();
    assert_eq!(held, BTreeSet::from([vec![0], vec![1], vec![2]]), "the next test gets the free unit");
    simulation.finish(1);
    simulation.finish(0);
    simulation.grant();
    let last = simulation.busy.values().find(|lease| lease.batch.program.0 == 1).unwrap();
    assert_eq!(units_of(last).len(), 2);
    simulation.finish_all(&[0]);
}

#[test]
fn extended_lease_keeps_its_slot_and_units() {
    let mut needs = LeaseNeeds::default();
    needs.resources.insert(ResourceId(0), vec![1]);
    let process = ProcessTraits { takes_more_tests: true, ..ProcessTraits::default() };
    let test = ScheduledTest { weight: Some(Duration::from_millis(10)), ..plain_test() };
    let plan = SchedulingPlan {
        programs: vec![ProgramCosts { process, needs, ..ProgramCosts::default() }],
        capacities: vec![vec![1; 2]],
        batch_limit: Some(Duration::from_millis(20)),
        slots: 2,
        ..plan_of(vec![test; 20])
    };
    let mut simulation = Simulation::new(plan);
    simulation.grant();
    let [first, second] = simulation.busy.values().cloned().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((units_of(&first), first.slot, units_of(&second), second.slot), (vec![0], 1, vec![1], 2));
    // Another process takes the first unit in the meantime.
    simulation.pass(second.worker, &second);
    simulation.finish(0);
    let idle = RunEvent::LeaseIdle { worker: second.worker, lease: second.lease };
    let actions = simulation.run.handle(idle);
    let extended = actions.iter().find_map(|action| match action {
        RunAction::ExtendLease(lease) => Some(lease),
        _ => None,
    });
    let extended = extended.unwrap_or_else(|| panic!("{actions:?}"));
    assert_eq!((extended.lease, extended.slot, units_of(extended)), (second.lease, 2, vec![1]));
    assert_ne!(extended.batch.tests, second.batch.tests);
}

fn any_needs(resources: u32) -> impl Strategy<Value = LeaseNeeds> {
    let portions = proptest::collection::vec(1_u32..4, 1..3);
    let resources = proptest::collection::btree_map(0..resources, portions, 0..3);
    (1_usize..6, resources, -1_i32..2).prop_map(|(weight, resources, priority)| {
        let resources =
            resources.into_iter().map(|(resource, portions)| (ResourceId(resource), portions)).collect();
        LeaseNeeds { weight: Slots(weight), resources, priority }
    })
}

fn any_death() -> impl Strategy<Value = Option<Death>> {
    let deaths = [Some(Death::BeforeTests), Some(Death::AfterTests), Some(Death::OfWorker), None, None];
    proptest::sample::select(deaths.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// In any world, every test gets its result, nothing is taken twice, everything comes back however a
    /// lease ends, and workers are not requested for ever.
    #[test]
    fn random_worlds_end_within_their_capacities(
        slots in 1_usize..6,
        capacities in proptest::collection::vec(proptest::collection::vec(1_u32..4, 1..4), 3),
        programs in proptest::collection::vec((any_needs(3), 1_usize..8), 1..8),
        order in proptest::collection::vec(0_usize..8, 1..20),
        deaths in proptest::collection::vec((0_usize..8, any_death()), 0..12),
        is_isolated in any::<bool>(),
        edges in proptest::collection::vec((0_usize..40, 0_usize..40), 0..20),
    ) {
        let mut plan = plan(slots, &[], programs);
        plan.capacities = capacities;
        plan.tests.iter_mut().for_each(|test| test.is_isolated = is_isolated);
        let count = plan.tests.len();
        for (one, other) in edges.into_iter().map(|(one, other)| (one % count, other % count)) {
            // Each edge leads to an earlier test, so there is no circle.
            let prerequisite = Prerequisite { test: TestId(one.min(other).try_into().unwrap()), must_succeed: true };
            if one != other {
                plan.tests[one.max(other)].prerequisites.push(prerequisite);
            }
        }
        let mut simulation = Simulation::new(plan);
        for (place, death) in deaths {
            simulation.grant();
            match death {
                _ if simulation.busy.is_empty() => break,
                Some(death) => simulation.kill(place, death),
                None => simulation.finish(place),
            }
        }
        simulation.finish_all(&order);
    }

    /// Leases stay within the slots that the machine has at the moment, and need no more than they say.
    #[test]
    fn random_worlds_end_within_the_available_slots(
        slots in 1_usize..6,
        programs in proptest::collection::vec((any_needs(1), 1_usize..5), 1..6),
        available in proptest::collection::vec(0_usize..6, 1..40),
    ) {
        let mut simulation = Simulation::new(plan(slots, &[2], programs));
        for (step, available) in available.into_iter().enumerate() {
            let taken = simulation.run.slots_taken();
            simulation.make_available(available);
            simulation.grant();
            let (now, least) = (simulation.run.slots_taken(), simulation.run.least_slots());
            prop_assert!(now <= taken.max(Slots(available)), "{now:?} of {available}");
            prop_assert!(least > now && least <= Slots(slots).max(now.saturating_add(Slots::ONE)), "{least:?}");
            if simulation.busy.is_empty() && simulation.run.ledger().open_count() > 0 {
                // The least number of slots is enough to start a lease.
                simulation.make_available(least.0);
                simulation.grant();
                prop_assert!(simulation.run.slots_taken() > Slots::NONE, "{least:?} {:?}", simulation.run);
            }
            if !simulation.busy.is_empty() {
                simulation.finish(step);
            }
        }
        simulation.make_available(slots);
        simulation.finish_all(&[0]);
    }
}
