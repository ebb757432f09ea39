//! Planted mistakes: the search must find each of them through the rule that it breaks.

use crate::{
    rules::{
        ANSWERED, BLAMELESS, COMPLETE, EXTENDED, FINISHED, HANDLED_COMPLETE, HANDLED_COMPLETION,
        HANDLED_LAST, HANDLED_ONCE, HANDLED_ORDER, HELD, NOTHING_AFTER, ONE_RESULT, REACHED, RESPONSE,
        TORN_DOWN,
    },
    scenario::{
        ClientModel, ModelFaults, ModelScenario, PlantedMistake, QueueModel, abstract_scenario,
        callback_scenario, fixture_plan, plan, queues_scenario, units_plan,
    },
    search::search,
};

/// Searches for the rule that the mistake breaks, and prints a path to the violation.
fn find(scenario: &ModelScenario, rule: &str) -> String {
    find_one_of(scenario, &[rule])
}

/// Searches for a mistake that may break several rules.
fn find_one_of(scenario: &ModelScenario, rules: &[&str]) -> String {
    let mistake = scenario.mistake;
    let found = search(scenario).expect_err("the mistake must be found");
    println!("{mistake:?}: not true that {}, after {} steps:", found.rule, found.path.len());
    found.path.iter().for_each(|step| println!("  {step:?}"));
    assert!(
        rules.contains(&found.rule),
        "{mistake:?} is found by another rule: {}: {}",
        found.rule,
        found.what
    );
    found.what
}

fn with(mistake: PlantedMistake, deaths: u8) -> ModelScenario {
    ModelScenario { mistake, ..callback_scenario(deaths) }
}

fn abstract_with(mistake: PlantedMistake) -> ModelScenario {
    let faults = ModelFaults { deaths: 1, ..ModelFaults::default() };
    let scenario = abstract_scenario(plan(&[0, 0, 1], |_, _| {}), 2, faults);
    ModelScenario { outbox: 2, mistake, ..scenario }
}

#[test]
fn finish_on_empty_queue() {
    let what = find(&abstract_with(PlantedMistake::FinishOnEmptyQueue), FINISHED);
    assert!(what.contains("the run ends while a test is"), "{what}");
    find(&with(PlantedMistake::FinishOnEmptyQueue, 0), COMPLETE);
}

#[test]
fn results_not_sent_again() {
    let what = find(&abstract_with(PlantedMistake::NoResend), FINISHED);
    assert!(what.contains("are proven, but resent is None"), "{what}");
    find(&with(PlantedMistake::NoResend, 1), COMPLETE);
}

#[test]
fn tear_down_forgotten() {
    let faults = ModelFaults { cancels: 1, ..ModelFaults::default() };
    let scenario = abstract_scenario(fixture_plan(), 1, faults);
    let what = find(&ModelScenario { mistake: PlantedMistake::TearDownForgotten, ..scenario }, TORN_DOWN);
    assert!(what.contains("tears_down: [TestId(0)]"), "{what}");
}

#[test]
fn units_not_held() {
    let scenario = abstract_scenario(units_plan(), 2, ModelFaults::default());
    let what = find(&ModelScenario { mistake: PlantedMistake::UnitsNotHeld, ..scenario }, HELD);
    assert!(what.contains("a unit is taken twice"), "{what}");
}

#[test]
fn idle_process_forgotten() {
    let mut scenario = abstract_with(PlantedMistake::IdleProcessForgotten);
    scenario.plan.programs[0].process.takes_more_tests = true;
    let what = find(&scenario, EXTENDED);
    assert!(what.contains("waits for nothing"), "{what}");
}

#[test]
fn finish_before_drain() {
    let what = find(&abstract_with(PlantedMistake::FinishBeforeDrain), FINISHED);
    assert!(what.contains("may still send results"), "{what}");
}

#[test]
fn resend_after_completion() {
    find(&with(PlantedMistake::ResendAfterCompletion, 0), NOTHING_AFTER);
}

#[test]
fn completion_not_announced() {
    find(&with(PlantedMistake::UnannouncedCompletion, 1), NOTHING_AFTER);
}

#[test]
fn completion_by_coordinator_and_watchdog() {
    find(&with(PlantedMistake::CompletionByBoth, 1), NOTHING_AFTER);
}

#[test]
fn result_sent_before_it_is_journalled() {
    find(&with(PlantedMistake::JournalAfterSend, 1), ONE_RESULT);
}

#[test]
fn relayed_completion_not_held() {
    let scenario = with(PlantedMistake::CompletionNotHeld, 1);
    find(&ModelScenario { client: ClientModel::MainConnection, ..scenario }, NOTHING_AFTER);
}

#[test]
fn response_before_completion() {
    find(&with(PlantedMistake::ResponseWithFinish, 0), RESPONSE);
}

#[test]
fn journal_of_a_dead_worker_not_read() {
    find(&with(PlantedMistake::JournalNotRead, 1), ONE_RESULT);
}

#[test]
fn journal_of_a_dead_worker_not_requested() {
    find(&with(PlantedMistake::JournalNotRequested, 1), REACHED);
}

#[test]
fn lost_guard_taken_for_a_crash() {
    let scenario = with(PlantedMistake::GuardLossBlamed, 0);
    let faults = ModelFaults { guards: 2, ..ModelFaults::default() };
    find(&ModelScenario { faults, ..scenario }, BLAMELESS);
}

#[test]
fn released_worker_kept() {
    let what = find(&abstract_with(PlantedMistake::WorkerKept), ANSWERED);
    assert!(what.contains("is kept"), "{what}");
}

#[test]
fn watchdog_alone_synthesizes_nothing() {
    find(&with(PlantedMistake::NothingDueAlone, 1), COMPLETE);
}

/// Returns a run of one test with a client that has its own queues.
fn queues_with(mistake: PlantedMistake, workers: u32, deaths: u8, failures: u8) -> ModelScenario {
    let plan = plan(&[0], |_, test| test.retries.count = u32::from(failures));
    let faults = ModelFaults { deaths, failures, ..ModelFaults::default() };
    ModelScenario { mistake, ..queues_scenario(plan, workers, faults) }
}

#[test]
fn close_taken_for_proof() {
    find(&queues_with(PlantedMistake::CloseAsProof, 1, 0, 0), HANDLED_COMPLETE);
}

#[test]
fn read_barrier_taken_for_handled() {
    let scenario = queues_with(PlantedMistake::BarrierAnsweredWhenRead, 1, 0, 0);
    let queues = QueueModel { is_read_at_once: false, ..QueueModel::default() };
    find(&ModelScenario { queues, ..scenario }, HANDLED_COMPLETE);
}

#[test]
fn connection_that_is_opened_late_taken_for_one_without_answers() {
    // The worker of such a client does not wait for an answer at the end, so the client handles updates after
    // the completion.
    let rules = [HANDLED_COMPLETE, HANDLED_LAST];
    find_one_of(&queues_with(PlantedMistake::OpeningNotAwaited, 1, 0, 0), &rules);
}

#[test]
fn rerun_on_another_stream_not_awaited() {
    find(&queues_with(PlantedMistake::RerunNotAwaited, 2, 0, 1), HANDLED_ORDER);
}

#[test]
fn rerun_of_a_dead_workers_test_not_awaited() {
    // The dead worker's messages are handled after the result of the rerun, or after the completion.
    let rules = [HANDLED_ORDER, HANDLED_COMPLETE, HANDLED_LAST, ONE_RESULT];
    find_one_of(&queues_with(PlantedMistake::LossNotAwaited, 2, 1, 0), &rules);
}

#[test]
fn completion_before_the_last_proof() {
    let scenario = queues_with(PlantedMistake::CompletionBeforeProof, 1, 0, 0);
    let plan = plan(&[0, 0], |_, _| {});
    find(&ModelScenario { plan, ..scenario }, HANDLED_COMPLETE);
}

#[test]
fn response_before_the_proof_of_the_completion() {
    find(&queues_with(PlantedMistake::ResponseBeforeProof, 1, 0, 0), RESPONSE);
}

#[test]
fn frame_written_behind_a_cut_one() {
    // The client reads and answers nothing after a partial frame.
    find(&queues_with(PlantedMistake::WrittenBehindCut, 1, 1, 0), REACHED);
}

#[test]
fn results_of_a_dead_worker_sent_again_from_the_first() {
    find(&queues_with(PlantedMistake::ResentFromZero, 1, 1, 0), HANDLED_ONCE);
}

#[test]
fn barrier_of_the_holder_not_published() {
    find(&queues_with(PlantedMistake::BarrierNotPublished, 1, 2, 0), REACHED);
}

#[test]
fn stream_of_a_dead_watchdog_abandoned() {
    let plan = plan(&[0], |_, test| test.is_unrunnable = true);
    let scenario = queues_scenario(plan, 1, ModelFaults { deaths: 1, ..ModelFaults::default() });
    let scenario = ModelScenario { mistake: PlantedMistake::FinisherStreamAbandoned, ..scenario };
    find_one_of(&scenario, &[HANDLED_ONCE, HANDLED_LAST]);
    let queues = QueueModel { has_callback: false, ..QueueModel::default() };
    find(&ModelScenario { queues, ..scenario }, HANDLED_ONCE);
}

#[test]
fn completion_of_a_dead_watchdog_forgotten() {
    find(&queues_with(PlantedMistake::CompletionForgotten, 1, 1, 0), HANDLED_COMPLETION);
}

#[test]
fn completion_that_overtakes_relayed_results() {
    let queues = QueueModel { may_refuse: true, ..QueueModel::default() };
    let scenario = queues_with(PlantedMistake::RelayOvertaken, 1, 1, 0);
    find(&ModelScenario { queues, ..scenario }, HANDLED_COMPLETE);
}

#[test]
fn rerun_of_a_relayed_test_not_awaited() {
    let queues = QueueModel { may_refuse: true, ..QueueModel::default() };
    let scenario = queues_with(PlantedMistake::RelayNotAwaited, 2, 1, 1);
    find(&ModelScenario { queues, ..scenario }, HANDLED_ORDER);
}
