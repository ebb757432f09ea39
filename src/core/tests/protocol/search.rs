//! Every path of small systems.

use std::time::Instant;

use heeler_core::{
    ProgramId,
    batching::ProgramCosts,
    run::{ScheduledTest, SchedulingPlan},
};
use stateright::{Checker, HasDiscoveries, Model};

use crate::{
    mistakes::PlantedMistake,
    system::{ProtocolFaults, ProtocolScenario},
};

/// Tests of programs, by their numbers.
pub(crate) fn plan(programs: &[u32], slots: usize) -> SchedulingPlan {
    let planned = |program: &u32| ScheduledTest {
        program: ProgramId(*program),
        weight: None,
        is_isolated: false,
        retries: 0,
        selection_bytes: 0,
        is_unrunnable: false,
    };
    SchedulingPlan {
        programs: vec![ProgramCosts::default(); programs.iter().max().map_or(0, |most| *most as usize + 1)],
        tests: programs.iter().map(planned).collect(),
        slots,
        failure_limit: None,
        max_startup_crashes: 3,
    }
}

pub(crate) fn scenario(deaths: u8) -> ProtocolScenario {
    ProtocolScenario {
        plan: plan(&[0, 0, 1], 2),
        workers: 2,
        has_callback: true,
        faults: ProtocolFaults { deaths, failures: 0, cancels: 0 },
        watchdogs: 4,
        mistake: PlantedMistake::None,
    }
}

/// Deaths in a scenario; by `HEELER_MODEL_DEATHS` there are so many more. One more takes minutes and gigabytes.
fn deaths(usual: u8) -> u8 {
    usual + u8::try_from(wish("HEELER_MODEL_DEATHS", 0)).expect("nobody waits for so many")
}

/// Returns the number in an environment variable, if there is one.
pub(crate) fn wish(name: &str, usual: usize) -> usize {
    std::env::var(name)
        .map_or(usual, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: no number")))
}

/// Tries everything.
fn all(scenario: ProtocolScenario) {
    let begun = Instant::now();
    let checker = scenario.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "{} states ({} steps), depth {}, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed().as_secs_f64()
    );
    fail_on_discoveries(&checker);
}

/// Fails with what is not true and a way to where it is not: a shortest one, where all ways were tried.
pub(crate) fn fail_on_discoveries(checker: &impl Checker<ProtocolScenario>) {
    if let Some((name, path)) = checker.discoveries().into_iter().next() {
        let last = path.last_state().clone();
        panic!("not true: {name}\n{:#?}\n{:?}", path.into_actions(), last.client);
    }
}

#[test]
fn two_deaths_of_anything_at_any_step_lose_nothing() {
    all(scenario(deaths(2)));
}

#[test]
fn two_deaths_lose_nothing_where_all_goes_over_the_main_connection() {
    all(ProtocolScenario { has_callback: false, ..scenario(deaths(2)) });
}

#[test]
fn a_run_whose_watchdog_cannot_be_replaced_is_ended_by_its_coordinator() {
    all(ProtocolScenario { watchdogs: 1, ..scenario(deaths(1)) });
    all(ProtocolScenario { watchdogs: 1, has_callback: false, ..scenario(deaths(1)) });
}

#[test]
fn tests_in_processes_of_their_own_survive_two_deaths() {
    let mut scenario = scenario(deaths(2));
    scenario.plan = plan(&[0, 0], 2);
    scenario.plan.tests.iter_mut().for_each(|test| test.is_isolated = true);
    all(scenario);
}

#[test]
fn retries_a_cancel_and_a_death_mix_in_every_order() {
    let mut scenario = scenario(deaths(1));
    scenario.plan = plan(&[0, 1], 2);
    scenario.plan.tests.iter_mut().for_each(|test| test.retries = 1);
    scenario.faults = ProtocolFaults { failures: 1, cancels: 1, ..scenario.faults };
    all(scenario);
}
