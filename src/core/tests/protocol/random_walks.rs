//! Random paths of larger systems: three workers, six tests, four deaths, retries, a cancel.
//!
//! `HEELER_MODEL_STEPS` says how many steps to walk, `HEELER_MODEL_SEED` where to begin; the same two walk the same way.

use heeler_core::run::{CancelMode, FailureLimit, SchedulingPlan};
use stateright::{Checker, Chooser, HasDiscoveries, Model};

use crate::{
    search::{fail_on_discoveries, plan, wish},
    steps::ProtocolStep,
    system::{ProtocolFaults, ProtocolScenario, ProtocolSystem},
};

const STEPS: usize = 500_000;
/// One step in so many is a fault where there is a choice, or all faults would come at the beginning.
const FAULT_EVERY: u64 = 12;

/// Chooses by chance, faults seldom.
#[derive(Clone)]
struct RareFaultChooser;

/// Random numbers that no version of a library changes: splitmix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn choose(state: &mut u64, among: usize) -> usize {
    usize::try_from(draw(state) % among.max(1) as u64).expect("it is smaller than a usize")
}

impl Chooser<ProtocolScenario> for RareFaultChooser {
    type State = u64;

    fn new_state(&self, seed: u64) -> u64 {
        seed
    }

    fn choose_initial_state(&self, _state: &mut u64, _systems: &[ProtocolSystem]) -> usize {
        0
    }

    fn choose_action(&self, state: &mut u64, system: &ProtocolSystem, steps: &[ProtocolStep]) -> usize {
        let wants_fault = draw(state).is_multiple_of(FAULT_EVERY);
        let is_wanted = |place: &usize| steps[*place].is_fault(system) == wants_fault;
        let wanted: Vec<_> = (0..steps.len()).filter(is_wanted).collect();
        match wanted.get(choose(state, wanted.len())) {
            Some(place) => *place,
            None => choose(state, steps.len()),
        }
    }
}

fn walk(has_callback: bool, change: impl Fn(&mut SchedulingPlan)) {
    let mut plan = plan(&[0, 0, 1, 0, 1, 1], 3);
    plan.tests.iter_mut().step_by(2).for_each(|test| test.retries = 1);
    change(&mut plan);
    let scenario = ProtocolScenario {
        plan,
        workers: 3,
        has_callback,
        faults: ProtocolFaults { deaths: 4, failures: 2, cancels: 1 },
        ..crate::search::scenario(0)
    };
    let (steps, seed) = (wish("HEELER_MODEL_STEPS", STEPS), wish("HEELER_MODEL_SEED", 1));
    let checker = scenario.checker().finish_when(HasDiscoveries::AnyFailures).target_state_count(steps);
    let checker = checker.spawn_simulation(seed as u64, RareFaultChooser).join();
    println!("{} steps, the longest path {}", checker.state_count(), checker.max_depth());
    fail_on_discoveries(&checker);
}

#[test]
fn larger_runs_lose_nothing_on_random_paths() {
    walk(true, |_| {});
}

#[test]
fn larger_runs_over_the_main_connection_lose_nothing_on_random_paths() {
    walk(false, |_| {});
}

#[test]
fn larger_runs_that_stop_at_a_failure_lose_nothing_on_random_paths() {
    walk(true, |plan| {
        plan.failure_limit = Some(FailureLimit { failures: 2, cancel_mode: CancelMode::AfterRunningTests });
        plan.tests[1].is_isolated = true;
        plan.tests[3].is_unrunnable = true;
    });
}
