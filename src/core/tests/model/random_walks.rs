//! Random paths of larger scenarios, with arbitrary processes: plans of a fixed size, and random ones.
//!
//! `HEELER_MODEL_STEPS` is the number of steps. The same `HEELER_MODEL_SEED` produces the same walk.

use std::time::Duration;

use heeler_core::run::{CancelMode, FailureLimit, SchedulingPlan};

use crate::{
    exhaustive::has_long_form,
    scenario::{
        ClientModel, ModelFaults, ModelScenario, ProcessModel, QueueModel, abstract_scenario,
        callback_scenario, plan,
    },
    search::{draw_below, number_from_env, walk},
    world::{EXPENSIVE, SHORT},
};

const RANDOM_SCENARIOS: u64 = 400;

fn walk_all(scenario: &ModelScenario, steps: usize, seed: u64) {
    let walked = walk(scenario, steps, seed);
    let walked = walked
        .unwrap_or_else(|found| panic!("not true: {} (seed {seed})\n{:#?}\n{scenario:?}", found.rule, found));
    println!("{walked} steps");
}

fn walk_large(client: ClientModel, change: impl Fn(&mut SchedulingPlan)) {
    let mut plan = plan(&[0, 0, 1, 0, 1, 1], |place, test| test.retries.count = u32::from(place % 2 == 0));
    plan.slots = 3;
    change(&mut plan);
    let faults = ModelFaults { deaths: 4, failures: 2, cancels: 1, loans: 2, guards: 1 };
    let processes = ProcessModel::Arbitrary;
    let scenario = ModelScenario { plan, workers: 3, client, processes, faults, ..callback_scenario(0) };
    let seed = number_from_env("HEELER_MODEL_SEED", 1) as u64;
    let steps = if has_long_form() { 2_000_000 } else { 200_000 };
    walk_all(&scenario, number_from_env("HEELER_MODEL_STEPS", steps), seed);
}

#[test]
fn walks_with_callback_connections() {
    walk_large(ClientModel::Callback, |_| {});
}

#[test]
fn walks_with_a_client_that_handles_late() {
    walk_large(ClientModel::Queues, |_| {});
}

#[test]
fn walks_on_the_main_connection() {
    walk_large(ClientModel::MainConnection, |_| {});
}

#[test]
fn walks_of_runs_that_stop_at_a_failure() {
    walk_large(ClientModel::Callback, |plan| {
        plan.failure_limit = Some(FailureLimit { failures: 2, cancel_mode: CancelMode::AfterRunningTests });
        plan.tests[1].is_isolated = true;
        plan.tests[3].is_unrunnable = true;
    });
}

/// Returns a scenario of up to 39 tests in three programs.
fn random_scenario(random: &mut u64) -> ModelScenario {
    let mut below = |bound: usize| draw_below(random, bound);
    // Tests and programs.
    let count = below(40);
    let programs: Vec<_> = (0..count).map(|_| below(3) as u32).collect();
    let mut plan = plan(&programs, |_, _| {});
    for test in &mut plan.tests {
        test.is_isolated = below(5) == 0;
        test.is_unrunnable = below(20) == 0;
        test.retries.count = below(3) as u32;
        test.weight = (below(2) == 0).then(|| Duration::from_millis(below(1500) as u64));
    }
    // Limits of the run.
    let cancel_mode = if below(2) == 0 { CancelMode::Now } else { CancelMode::AfterRunningTests };
    plan.failure_limit = (below(5) == 0).then(|| FailureLimit { failures: 1 + below(5), cancel_mode });
    plan.max_startup_crashes = below(5) as u32;
    plan.slots = 1 + below(5);
    let faults = ModelFaults {
        deaths: below(60) as u8,
        failures: below(20) as u8,
        cancels: u8::from(below(4) == 0),
        loans: [0, 0, 5, 30][below(4)],
        guards: [0, 0, 1, 4][below(4)],
    };
    // The client.
    let clients =
        [ClientModel::Abstract, ClientModel::MainConnection, ClientModel::Callback, ClientModel::Queues];
    let client = clients[below(4)];
    let queues = QueueModel {
        has_callback: below(4) > 0,
        has_answers: below(4) > 0,
        is_read_at_once: below(2) == 0,
        may_break: below(2) == 0,
        may_refuse: false,
        window: 1 + below(4),
    };
    // Processes and their costs.
    for costs in &mut plan.programs {
        costs.process.ends_between_tests = below(2) == 0;
        costs.process.takes_more_tests = below(2) == 0;
        costs.start = (below(2) == 0).then_some(EXPENSIVE);
    }
    let has_waiting_processes = below(2) == 0;
    let test_duration = [SHORT, SHORT, 200 * SHORT][below(3)];
    ModelScenario {
        client,
        queues,
        has_waiting_processes,
        test_duration,
        outbox: 4,
        watchdogs: 4,
        ..abstract_scenario(plan, below(6) as u32, faults)
    }
}

#[test]
fn walks_of_random_scenarios() {
    let first = number_from_env("HEELER_MODEL_SEED", 1) as u64;
    for mut seed in first..first + RANDOM_SCENARIOS {
        let scenario = random_scenario(&mut seed);
        walk_all(&scenario, 1, seed);
    }
}
