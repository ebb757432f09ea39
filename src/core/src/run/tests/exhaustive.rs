//! Every order of events of small worlds, each looked at once.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
};

use super::{
    steps::WorldStep,
    world::{ModelWorld, RunFaults, RunMutation, RunScenario, UNLIMITED},
};
use crate::{
    ProgramId,
    batching::ProgramCosts,
    run::{CancelMode, FailureLimit, ScheduledTest, SchedulingPlan},
};

/// No path of a small world is longer.
const LONGEST_PATH: usize = 200;

/// A broken rule, and the way there.
#[derive(Debug)]
pub(super) struct FoundViolation {
    what: String,
    path: Vec<WorldStep>,
}

/// A hasher that is quick without optimisation, where most of the time would go into hashing.
#[derive(Default)]
struct FoldingHasher(u64);

impl FoldingHasher {
    fn fold(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for FoldingHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.fold(u64::from(*byte)));
    }

    fn write_u32(&mut self, value: u32) {
        self.fold(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.fold(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.fold(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.fold(value as u64);
    }
}

#[derive(Default)]
struct PathSearch {
    /// Worlds seen, and whether their end is still being looked for.
    seen: HashMap<u64, bool>,
    path: Vec<WorldStep>,
}

impl PathSearch {
    fn visit(&mut self, mut world: ModelWorld) -> Result<(), String> {
        world.renumber_leases();
        let mut hasher = FoldingHasher::default();
        world.hash(&mut hasher);
        let name = hasher.finish();
        match self.seen.get(&name) {
            Some(true) => return Err("the run goes round in circles".into()),
            Some(false) => return Ok(()),
            None => {}
        }
        self.seen.insert(name, true);
        world.check_repeated()?;
        let steps = world.steps();
        if steps.is_empty() && !world.is_completed {
            return Err("nothing can happen any more, and the run is not complete".into());
        }
        if self.path.len() > LONGEST_PATH {
            return Err("the run does not end".into());
        }
        for step in steps {
            self.path.push(step.clone());
            let mut next = world.clone();
            next.take(&step)?;
            self.visit(next)?;
            self.path.pop();
        }
        self.seen.insert(name, false);
        Ok(())
    }
}

/// Tries everything; returns how many worlds there are.
pub(super) fn explore(scenario: &RunScenario) -> Result<usize, FoundViolation> {
    let mut search = PathSearch::default();
    let verdict = ModelWorld::begin(scenario).and_then(|world| search.visit(world));
    match verdict {
        Ok(()) => Ok(search.seen.len()),
        Err(what) => Err(FoundViolation { what, path: search.path }),
    }
}

/// Tests of programs, by their numbers.
pub(super) fn plan(programs: &[u32], change: impl Fn(usize, &mut ScheduledTest)) -> SchedulingPlan {
    let planned = |(place, program): (usize, &u32)| {
        let mut test = ScheduledTest {
            program: ProgramId(*program),
            weight: None,
            is_isolated: false,
            retries: 0,
            selection_bytes: 0,
            is_unrunnable: false,
        };
        change(place, &mut test);
        test
    };
    SchedulingPlan {
        programs: vec![ProgramCosts::default(); programs.iter().max().map_or(0, |most| *most as usize + 1)],
        tests: programs.iter().enumerate().map(planned).collect(),
        slots: 2,
        failure_limit: None,
        max_startup_crashes: 3,
    }
}

fn all(scenario: &RunScenario) -> usize {
    let count = explore(scenario).unwrap_or_else(|found| panic!("{}\n{:?}", found.what, found.path));
    println!("{count} worlds");
    count
}

fn faults(deaths: u8, failures: u8, cancels: u8) -> RunFaults {
    RunFaults { deaths, failures, cancels, loans: 0 }
}

#[test]
fn a_batch_of_three_survives_any_two_deaths() {
    let plan = plan(&[0, 0, 0], |_, _| {});
    all(&RunScenario { plan, workers: 1, faults: faults(2, 0, 0), outbox: 4, ..RunScenario::default() });
}

#[test]
fn two_workers_and_three_tests_of_two_programs_survive_any_two_deaths() {
    let plan = plan(&[0, 0, 1], |_, _| {});
    all(&RunScenario { plan, workers: 2, faults: faults(2, 0, 0), outbox: 2, ..RunScenario::default() });
}

#[test]
fn two_workers_and_three_tests_alone_survive_any_two_deaths() {
    let plan = plan(&[0, 0, 0], |_, test| test.is_isolated = true);
    all(&RunScenario { plan, workers: 2, faults: faults(2, 0, 0), outbox: 1, ..RunScenario::default() });
}

#[test]
fn retries_and_deaths_mix_in_every_order() {
    let plan = plan(&[0, 0], |_, test| test.retries = 1);
    all(&RunScenario { plan, workers: 2, faults: faults(1, 2, 0), outbox: 3, ..RunScenario::default() });
}

#[test]
fn a_batch_with_retries_survives_a_death_and_two_failures() {
    let plan = plan(&[0, 0, 0], |place, test| test.retries = u32::from(place < 2));
    all(&RunScenario { plan, workers: 1, faults: faults(1, 2, 0), outbox: 4, ..RunScenario::default() });
}

#[test]
fn a_cancel_at_any_moment_accounts_for_every_test() {
    let plan = plan(&[0, 0, 1], |place, test| test.retries = u32::from(place == 0));
    all(&RunScenario { plan, workers: 2, faults: faults(1, 1, 1), outbox: 1, ..RunScenario::default() });
}

#[test]
fn the_allowed_failures_stop_the_run_at_any_moment() {
    for cancel_mode in [CancelMode::AfterRunningTests, CancelMode::Now] {
        let failure_limit = Some(FailureLimit { failures: 1, cancel_mode });
        let plan = SchedulingPlan { failure_limit, ..plan(&[0, 0, 1, 1], |_, _| {}) };
        all(&RunScenario { plan, workers: 2, faults: faults(1, 2, 0), outbox: 1, ..RunScenario::default() });
    }
}

#[test]
fn a_run_that_lets_its_tests_finish_can_be_cancelled_at_any_moment() {
    let failure_limit = Some(FailureLimit { failures: 1, cancel_mode: CancelMode::AfterRunningTests });
    let plan = SchedulingPlan { failure_limit, ..plan(&[0, 0, 1], |_, _| {}) };
    all(&RunScenario { plan, workers: 2, faults: faults(0, 1, 1), outbox: 1, ..RunScenario::default() });
}

#[test]
fn workers_that_do_not_start_or_keep_dying_are_given_up() {
    let plan = plan(&[0, 1], |_, test| test.is_isolated = true);
    all(&RunScenario { plan, workers: 0, faults: faults(2, 0, 0), outbox: 1, ..RunScenario::default() });
}

#[test]
fn a_run_of_one_test_ends_however_often_everything_dies() {
    let plan = plan(&[0], |_, test| test.retries = 1);
    all(&RunScenario {
        plan,
        workers: 1,
        faults: faults(UNLIMITED, UNLIMITED, 0),
        outbox: 1,
        ..RunScenario::default()
    });
}

#[test]
fn a_run_of_two_tests_ends_however_often_everything_dies() {
    let plan = SchedulingPlan { max_startup_crashes: 2, slots: 1, ..plan(&[0, 0], |_, _| {}) };
    all(&RunScenario {
        plan,
        workers: 1,
        faults: faults(UNLIMITED, 0, 0),
        outbox: 1,
        ..RunScenario::default()
    });
}

#[test]
fn a_run_that_shares_its_workers_with_others_survives_a_death() {
    let plan = plan(&[0, 0, 1], |_, _| {});
    let faults = RunFaults { deaths: 1, failures: 0, cancels: 0, loans: 1 };
    all(&RunScenario { plan, workers: 2, faults, outbox: 1, ..RunScenario::default() });
}

#[test]
fn lent_workers_that_die_and_come_back_do_not_stop_a_run() {
    let plan = plan(&[0, 0], |_, test| test.is_isolated = true);
    let faults = RunFaults { deaths: 2, failures: 0, cancels: 0, loans: 3 };
    all(&RunScenario { plan, workers: 1, faults, outbox: 1, ..RunScenario::default() });
}

#[test]
fn a_run_without_tests_completes() {
    all(&RunScenario { plan: plan(&[], |_, _| {}), workers: 1, ..RunScenario::default() });
}

#[test]
fn tests_that_cannot_be_run_are_told_and_the_others_are_run() {
    let plan = plan(&[0, 0, 1], |place, test| {
        test.is_unrunnable = place != 1;
        test.retries = 1;
    });
    all(&RunScenario { plan, workers: 1, faults: faults(2, 1, 1), outbox: 4, ..RunScenario::default() });
}

fn with_mistake(mutation: RunMutation) -> String {
    let plan = plan(&[0, 0, 1], |_, _| {});
    let scenario = RunScenario { plan, workers: 2, faults: faults(1, 0, 0), outbox: 2, mutation };
    explore(&scenario).expect_err("the mistake must be found").what
}

#[test]
fn a_run_that_ends_when_its_queue_is_empty_is_found() {
    let what = with_mistake(RunMutation::FinishOnEmptyQueue);
    assert!(what.contains("the run ends while test"), "{what}");
}

#[test]
fn a_run_that_sends_nothing_again_is_found() {
    let what = with_mistake(RunMutation::NoResend);
    assert!(what.contains("are proven, but resent is None"), "{what}");
}

#[test]
fn a_run_that_does_not_wait_for_its_streams_is_found() {
    let what = with_mistake(RunMutation::FinishBeforeDrain);
    assert!(what.contains("may still speak after the end"), "{what}");
}
