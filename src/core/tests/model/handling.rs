//! Handling by the client: every path of small scenarios with a client that has its own queues and handles
//! one message of any connection at any time.

use crate::{
    exhaustive::{deaths, faults, has_long_form, search_all},
    scenario::{ModelFaults, ModelScenario, QueueModel, plan, queues_scenario},
};

fn with_queues(queues: QueueModel, scenario: ModelScenario) -> ModelScenario {
    ModelScenario { queues, ..scenario }
}

#[test]
fn completion_is_handled_last_whatever_is_handled_late() {
    search_all(queues_scenario(plan(&[0, 0, 1], |_, _| {}), 2, ModelFaults::default()));
}

#[test]
fn connections_are_read_at_different_speeds() {
    let queues = QueueModel { is_read_at_once: false, ..QueueModel::default() };
    search_all(with_queues(queues, queues_scenario(plan(&[0, 1], |_, _| {}), 2, ModelFaults::default())));
    search_all(with_queues(queues, queues_scenario(plan(&[0], |_, _| {}), 1, faults(deaths(1), 0, 0))));
}

#[test]
fn full_windows_delay_updates_and_lose_none() {
    let queues = QueueModel { window: 1, ..QueueModel::default() };
    let plan = |tests: &[u32]| plan(tests, |_, _| {});
    if !has_long_form() {
        search_all(with_queues(queues, queues_scenario(plan(&[0, 0, 0]), 1, ModelFaults::default())));
        search_all(with_queues(queues, queues_scenario(plan(&[0]), 1, faults(deaths(1), 0, 0))));
        return;
    }
    search_all(with_queues(queues, queues_scenario(plan(&[0, 0, 0, 0]), 1, ModelFaults::default())));
    search_all(with_queues(queues, queues_scenario(plan(&[0, 0]), 1, faults(deaths(1), 0, 0))));
}

#[test]
fn rerun_on_another_connection_never_crosses_the_first_attempt() {
    let retried = |tests: &[u32], retries| plan(tests, |_, test| test.retries.count = retries);
    search_all(queues_scenario(retried(&[0, 0, 1], 1), 2, faults(0, 1, 0)));
    search_all(queues_scenario(retried(&[0, 1], 2), 2, faults(0, 2, 0)));
}

#[test]
fn death_of_any_process_repeats_nothing_and_delays_nothing() {
    search_all(queues_scenario(plan(&[0, 1], |_, _| {}), 2, faults(deaths(1), 0, 0)));
}

#[test]
fn two_deaths_of_any_process_repeat_nothing() {
    search_all(queues_scenario(plan(&[0], |_, _| {}), 1, faults(deaths(2), 0, 0)));
}

#[test]
fn retry_a_cancellation_and_a_death_repeat_nothing() {
    let plan = plan(&[0], |_, test| test.retries.count = 1);
    search_all(queues_scenario(plan, 2, faults(deaths(1), 1, 1)));
}

#[test]
fn results_of_a_finish_are_handled_once_whichever_watchdogs_die() {
    let plan = plan(&[0, 1, 2], |place, test| test.is_unrunnable = place != 1);
    search_all(queues_scenario(plan, 1, faults(deaths(2), 0, 0)));
}

#[test]
fn coordinator_that_finishes_the_run_itself_repeats_nothing() {
    let scenario = queues_scenario(plan(&[0, 1], |_, _| {}), 2, faults(deaths(1), 0, 0));
    search_all(ModelScenario { watchdogs: 1, ..scenario });
}

#[test]
fn main_connection_alone_repeats_nothing_when_a_process_dies() {
    let queues = QueueModel { has_callback: false, ..QueueModel::default() };
    let plan = plan(&[0, 1], |place, test| test.is_unrunnable = place == 0);
    search_all(with_queues(queues, queues_scenario(plan, 1, faults(deaths(2), 0, 0))));
}

#[test]
fn connections_that_the_client_breaks_cost_no_result() {
    let queues = QueueModel { may_break: true, ..QueueModel::default() };
    search_all(with_queues(queues, queues_scenario(plan(&[0, 1], |_, _| {}), 2, faults(deaths(1), 0, 0))));
    search_all(with_queues(queues, queues_scenario(plan(&[0], |_, _| {}), 1, faults(deaths(2), 0, 0))));
}

#[test]
fn client_without_answers_handles_everything_once_before_the_completion() {
    let queues = QueueModel { has_answers: false, ..QueueModel::default() };
    let retried = plan(&[0, 1], |place, test| test.retries.count = u32::from(place == 0));
    search_all(with_queues(queues, queues_scenario(retried, 2, faults(0, 1, 0))));
    search_all(with_queues(queues, queues_scenario(plan(&[0], |_, _| {}), 1, faults(deaths(1), 0, 0))));
}

#[test]
fn results_on_the_main_connection_and_on_others_do_not_overtake_each_other() {
    let queues = QueueModel { may_refuse: true, ..QueueModel::default() };
    // One fault at most: once the coordinator is dead, no process can ask on the main connection.
    let retried = plan(&[0], |_, test| test.retries.count = 1);
    search_all(with_queues(queues, queues_scenario(retried, 2, faults(1, 1, 0))));
    search_all(with_queues(queues, queues_scenario(plan(&[0, 1], |_, _| {}), 2, faults(1, 0, 0))));
}
