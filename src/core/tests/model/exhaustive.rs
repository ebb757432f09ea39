//! Every path of small scenarios: the run alone with arbitrary processes, and all processes with a client.

use heeler_core::{
    ResourceId, RetryDelay, RetryPolicy, Slots, TestId,
    batching::LeaseNeeds,
    run::{CancelMode, FailureLimit, Prerequisite, SchedulingPlan},
};

use crate::{
    scenario::{
        ClientModel, ModelFaults, ModelScenario, UNLIMITED, abstract_scenario, callback_scenario,
        fixture_plan, plan, units_plan,
    },
    search::{number_from_env, search},
    world::{EXPENSIVE, SHORT},
};

pub(crate) fn search_all(scenario: ModelScenario) {
    if let Err(found) = search(&scenario) {
        found.path.iter().for_each(|step| println!("  {step:?}"));
        panic!("not true: {}: {}", found.rule, found.what);
    }
}

/// Returns whether to search the largest scenarios too (`HEELER_LONG_FORMS`), which takes minutes.
pub(crate) fn has_long_form() -> bool {
    std::env::var_os("HEELER_LONG_FORMS").is_some()
}

pub(crate) fn faults(deaths: u8, failures: u8, cancels: u8) -> ModelFaults {
    ModelFaults { deaths, failures, cancels, ..ModelFaults::default() }
}

/// Returns the deaths of a scenario plus `HEELER_MODEL_DEATHS`. One more death takes minutes and gigabytes.
pub(crate) fn deaths(usual: u8) -> u8 {
    usual + u8::try_from(number_from_env("HEELER_MODEL_DEATHS", 0)).expect("a small number")
}

#[test]
fn batch_of_three_survives_two_deaths() {
    let scenario = abstract_scenario(plan(&[0, 0, 0], |_, _| {}), 1, faults(2, 0, 0));
    search_all(ModelScenario { outbox: 4, ..scenario });
}

#[test]
fn two_workers_with_two_programs_survive_two_deaths() {
    let scenario = abstract_scenario(plan(&[0, 0, 1], |_, _| {}), 2, faults(2, 0, 0));
    search_all(ModelScenario { outbox: 2, ..scenario });
}

#[test]
fn two_workers_with_isolated_tests_survive_two_deaths() {
    let plan = plan(&[0, 0, 0], |_, test| test.is_isolated = true);
    search_all(abstract_scenario(plan, 2, faults(2, 0, 0)));
}

#[test]
fn lost_guards_blame_no_test() {
    let lost = |guards| ModelFaults { guards, ..ModelFaults::default() };
    search_all(abstract_scenario(plan(&[0, 0, 1], |_, _| {}), 2, lost(3)));
    let retried = plan(&[0, 0], |place, test| test.retries.count = u32::from(place == 0));
    let guards = if has_long_form() { 2 } else { 1 };
    search_all(abstract_scenario(retried, 1, ModelFaults { failures: 1, deaths: 1, ..lost(guards) }));
    search_all(ModelScenario { faults: lost(2), ..callback_scenario(0) });
}

#[test]
fn retries_and_a_death_in_every_order() {
    let scenario = abstract_scenario(plan(&[0, 0], |_, test| test.retries.count = 1), 2, faults(1, 2, 0));
    search_all(ModelScenario { outbox: 3, ..scenario });
}

#[test]
fn batch_with_retries_survives_a_death_and_two_failures() {
    let plan = plan(&[0, 0, 0], |place, test| test.retries.count = u32::from(place < 2));
    search_all(ModelScenario { outbox: 4, ..abstract_scenario(plan, 1, faults(1, 2, 0)) });
}

#[test]
fn cancellation_at_any_step_accounts_for_every_test() {
    let plan = plan(&[0, 0, 1], |place, test| test.retries.count = u32::from(place == 0));
    search_all(abstract_scenario(plan, 2, faults(1, 1, 1)));
}

#[test]
fn failure_limit_stops_the_run_at_any_step() {
    for cancel_mode in [CancelMode::AfterRunningTests, CancelMode::Now] {
        let failure_limit = Some(FailureLimit { failures: 1, cancel_mode });
        let plan = SchedulingPlan { failure_limit, ..plan(&[0, 0, 1, 1], |_, _| {}) };
        search_all(abstract_scenario(plan, 2, faults(1, 2, 0)));
    }
}

#[test]
fn run_that_lets_its_tests_finish_can_be_cancelled_at_any_step() {
    let failure_limit = Some(FailureLimit { failures: 1, cancel_mode: CancelMode::AfterRunningTests });
    let plan = SchedulingPlan { failure_limit, ..plan(&[0, 0, 1], |_, _| {}) };
    search_all(abstract_scenario(plan, 2, faults(0, 1, 1)));
}

#[test]
fn test_begins_after_its_prerequisites_in_every_order() {
    let after = |test, must_succeed| Prerequisite { test: TestId(test), must_succeed };
    // A set-up, a test that uses it, a clean-up, and an unrelated test.
    let plan = plan(&[0, 1, 0, 1], |place, test| match place {
        1 => test.prerequisites = vec![after(0, true)],
        2 => test.prerequisites = vec![after(0, false), after(1, false)],
        _ => {}
    });
    search_all(abstract_scenario(plan.clone(), 2, faults(1, 1, 0)));
    search_all(abstract_scenario(plan, 1, faults(0, 1, 1)));
}

#[test]
fn fixture_that_was_set_up_is_torn_down_in_every_order() {
    search_all(abstract_scenario(fixture_plan(), 2, faults(1, 1, 0)));
    search_all(abstract_scenario(fixture_plan(), 2, faults(1, 0, 1)));
    search_all(abstract_scenario(fixture_plan(), 1, faults(0, 1, 1)));
    let failure_limit = Some(FailureLimit { failures: 1, cancel_mode: CancelMode::Now });
    let limited = SchedulingPlan { failure_limit, ..fixture_plan() };
    search_all(abstract_scenario(limited, 2, faults(1, 2, 0)));
}

#[test]
fn tests_with_a_lock_and_a_heavy_test_never_overlap() {
    let mut plan = plan(&[0, 0, 1, 2], |_, _| {});
    plan.capacities = vec![vec![1]];
    for locked in &mut plan.programs[..2] {
        locked.needs.resources.insert(ResourceId(0), vec![1]);
    }
    plan.programs[2].needs = LeaseNeeds { weight: Slots(9), ..LeaseNeeds::default() };
    search_all(abstract_scenario(plan.clone(), 2, faults(1, 1, 0)));
    search_all(abstract_scenario(plan, 2, faults(0, 0, 1)));
}

#[test]
fn processes_hold_units_of_their_own_until_they_end() {
    search_all(abstract_scenario(units_plan(), 2, faults(1, 1, 0)));
    search_all(abstract_scenario(units_plan(), 2, faults(0, 0, 1)));
    let mut extensible = SchedulingPlan { batch_limit: Some(SHORT), ..units_plan() };
    extensible.programs[0].process.takes_more_tests = true;
    search_all(abstract_scenario(extensible, 2, faults(1, 0, 0)));
}

#[test]
fn workers_that_do_not_start_or_keep_dying_are_given_up() {
    let plan = plan(&[0, 1], |_, test| test.is_isolated = true);
    search_all(abstract_scenario(plan, 0, faults(2, 0, 0)));
}

#[test]
fn run_of_one_test_ends_with_any_number_of_deaths() {
    let plan = plan(&[0], |_, test| test.retries.count = 1);
    search_all(abstract_scenario(plan, 1, faults(UNLIMITED, UNLIMITED, 0)));
}

#[test]
fn run_of_two_tests_ends_with_any_number_of_deaths() {
    let plan = SchedulingPlan { max_startup_crashes: 2, slots: 1, ..plan(&[0, 0], |_, _| {}) };
    search_all(abstract_scenario(plan, 1, faults(UNLIMITED, 0, 0)));
}

#[test]
fn run_that_shares_its_workers_survives_a_death() {
    let plan = plan(&[0, 0, 1], |_, _| {});
    search_all(abstract_scenario(plan, 2, ModelFaults { loans: 1, ..faults(1, 0, 0) }));
}

#[test]
fn lent_workers_that_die_and_come_back_do_not_stop_the_run() {
    let plan = plan(&[0, 0], |_, test| test.is_isolated = true);
    let loans = if has_long_form() { 3 } else { 2 };
    search_all(abstract_scenario(plan, 1, ModelFaults { loans, ..faults(2, 0, 0) }));
}

/// Returns a scenario of one program whose tests take much longer than expected. Tests that one process has
/// not started are taken back for the other slot.
fn slow_scenario(client: ModelScenario, tests: usize) -> ModelScenario {
    let mut plan = plan(&vec![0; tests], |_, _| {});
    plan.programs[0].process.ends_between_tests = true;
    ModelScenario { plan, test_duration: 1000 * SHORT, ..client }
}

#[test]
fn tests_taken_back_run_once_whatever_dies() {
    search_all(slow_scenario(abstract_scenario(plan(&[], |_, _| {}), 2, faults(1, 0, 0)), 5));
    search_all(slow_scenario(abstract_scenario(plan(&[], |_, _| {}), 2, faults(0, 1, 1)), 5));
    search_all(slow_scenario(callback_scenario(0), 5));
    let loans = ModelFaults { loans: 2, ..faults(0, 0, 0) };
    search_all(slow_scenario(abstract_scenario(plan(&[], |_, _| {}), 2, loans), 5));
}

/// Returns a scenario of two programs; the processes of one program accept further tests.
fn extensible_scenario(client: ModelScenario) -> ModelScenario {
    let mut plan = SchedulingPlan { batch_limit: Some(SHORT), ..plan(&[0, 0, 0, 1], |_, _| {}) };
    plan.programs[0].process.takes_more_tests = true;
    ModelScenario { plan, ..client }
}

#[test]
fn extended_leases_survive_deaths_failures_and_cancellation() {
    let extensible =
        |workers, faults| extensible_scenario(abstract_scenario(plan(&[], |_, _| {}), workers, faults));
    search_all(extensible(1, faults(2, 0, 0)));
    search_all(extensible(2, faults(1, 0, 0)));
    search_all(extensible(2, faults(0, 1, 1)));
    search_all(extensible(2, ModelFaults { guards: 1, loans: 1, ..faults(0, 0, 0) }));
    search_all(extensible_scenario(callback_scenario(1)));
}

#[test]
fn processes_that_wait_are_used_and_further_ones_start_in_time() {
    let waiting = |workers, faults| {
        let scenario = extensible_scenario(abstract_scenario(plan(&[], |_, _| {}), workers, faults));
        let mut plan = scenario.plan;
        plan.programs[0].start = Some(EXPENSIVE);
        ModelScenario { plan, has_waiting_processes: true, ..scenario }
    };
    search_all(waiting(1, faults(1, 0, 0)));
    search_all(waiting(2, faults(1, 0, 0)));
    search_all(waiting(2, faults(0, 1, 1)));
    search_all(waiting(2, ModelFaults { guards: 1, loans: 1, ..faults(0, 0, 0) }));
    let retried = |scenario: ModelScenario| {
        let mut plan = scenario.plan;
        plan.tests[1].retries.count = 1;
        ModelScenario { plan, ..scenario }
    };
    search_all(retried(waiting(2, faults(u8::from(has_long_form()), 1, 0))));
}

/// Returns a scenario that adds tests to a run in progress.
fn open_scenario(workers: u32, faults: ModelFaults) -> ModelScenario {
    let mut plan = plan(&[0, 0, 0], |_, _| {});
    plan.is_open = true;
    plan.programs[0].process.takes_more_tests = true;
    ModelScenario { added: 2, ..abstract_scenario(plan, workers, faults) }
}

#[test]
fn tests_added_to_an_open_run_have_one_result_each() {
    search_all(open_scenario(1, faults(1, 0, 0)));
    search_all(open_scenario(2, ModelFaults { guards: 1, ..faults(0, 0, 0) }));
    if !has_long_form() {
        return;
    }
    search_all(open_scenario(1, faults(2, 0, 0)));
    search_all(open_scenario(2, faults(1, 0, 1)));
    search_all(open_scenario(2, ModelFaults { guards: 1, loans: 1, ..faults(0, 0, 0) }));
    search_all(ModelScenario { added: 3, ..open_scenario(1, faults(1, 0, 0)) });
}

#[test]
fn run_without_tests_completes() {
    search_all(abstract_scenario(plan(&[], |_, _| {}), 1, faults(0, 0, 0)));
}

#[test]
fn unrunnable_tests_are_reported_and_the_others_run() {
    let plan = plan(&[0, 0, 1], |place, test| {
        test.is_unrunnable = place != 1;
        test.retries.count = 1;
    });
    search_all(ModelScenario { outbox: 4, ..abstract_scenario(plan, 1, faults(2, 1, 1)) });
}

#[test]
fn two_deaths_of_any_process_lose_nothing() {
    let programs: &[u32] = if has_long_form() { &[0, 0, 1] } else { &[0, 0] };
    search_all(ModelScenario { plan: plan(programs, |_, _| {}), ..callback_scenario(deaths(2)) });
}

#[test]
fn deaths_lose_nothing_on_the_main_connection() {
    let usual = if has_long_form() { 2 } else { 1 };
    search_all(ModelScenario { client: ClientModel::MainConnection, ..callback_scenario(deaths(usual)) });
}

#[test]
fn coordinator_ends_a_run_whose_watchdog_cannot_be_replaced() {
    for client in [ClientModel::Callback, ClientModel::MainConnection] {
        search_all(ModelScenario { watchdogs: 1, client, ..callback_scenario(deaths(1)) });
    }
}

#[test]
fn run_without_a_share_survives_the_loss_of_its_watchdog() {
    let plan = SchedulingPlan { slots: 1, ..plan(&[0, 0], |_, test| test.is_isolated = true) };
    let faults = ModelFaults { loans: 1, ..faults(1, 0, 0) };
    search_all(ModelScenario { plan, workers: 1, watchdogs: 1, faults, ..callback_scenario(0) });
}

#[test]
fn isolated_tests_survive_two_deaths_of_any_process() {
    let plan = plan(&[0, 0], |_, test| test.is_isolated = true);
    search_all(ModelScenario { plan, ..callback_scenario(deaths(2)) });
}

#[test]
fn retries_a_cancellation_and_a_death_in_every_order() {
    let plan = plan(&[0, 1], |_, test| test.retries.count = 1);
    search_all(ModelScenario { plan, faults: faults(deaths(1), 1, 1), ..callback_scenario(0) });
}

/// Returns a plan whose tests are retried after a delay.
fn delayed_plan(programs: &[u32]) -> SchedulingPlan {
    let delay = RetryDelay { first: SHORT, ..RetryDelay::NONE };
    plan(programs, |_, test| test.retries = RetryPolicy { count: 1, delay })
}

#[test]
fn delayed_retries_a_cancellation_and_a_death_in_every_order() {
    let (plan, faults) = match has_long_form() {
        true => (delayed_plan(&[0, 0]), ModelFaults { loans: 1, ..faults(1, 2, 1) }),
        false => (delayed_plan(&[0, 0]), faults(1, 1, 1)),
    };
    search_all(abstract_scenario(plan, 2, faults));
}
