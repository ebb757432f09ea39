//! Planted mistakes: each must be found, by the rule that it breaks.

use crate::{
    rules::{ANSWERED, COMPLETE, FINISHED, NOTHING_AFTER, ONE_RESULT, REACHED, RESPONSE},
    scenario::{
        ClientModel, ModelFaults, ModelScenario, PlantedMistake, abstract_scenario, callback_scenario, plan,
    },
    search::search,
};

/// Searches for what the mistake breaks, and prints a path that shows it.
fn find(scenario: &ModelScenario, rule: &str) -> String {
    let mistake = scenario.mistake;
    let found = search(scenario).expect_err("the mistake must be found");
    println!("{mistake:?}: not true that {}, after {} steps:", found.rule, found.path.len());
    found.path.iter().for_each(|step| println!("  {step:?}"));
    assert_eq!(found.rule, rule, "{mistake:?} is found by another rule: {}", found.what);
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
fn released_worker_kept() {
    let what = find(&abstract_with(PlantedMistake::WorkerKept), ANSWERED);
    assert!(what.contains("is kept"), "{what}");
}

#[test]
fn watchdog_alone_synthesizes_nothing() {
    find(&with(PlantedMistake::NothingDueAlone, 1), COMPLETE);
}
