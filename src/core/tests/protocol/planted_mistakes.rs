//! Mistakes on purpose: each must be found, and is shown by a shortest path.

use stateright::{Checker, HasDiscoveries, Model};

use crate::{
    mistakes::PlantedMistake,
    search::scenario,
    steps::{COMPLETE, NOTHING_AFTER, ONE_RESULT, ProtocolStep, REACHED, RESPONSE},
    system::ProtocolScenario,
};

/// Looks for what the mistake breaks, prints a shortest way there and returns it.
fn find(scenario: ProtocolScenario, property: &str) -> Vec<ProtocolStep> {
    let mistake = scenario.mistake;
    let checker = scenario.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries().into_iter().next();
    let (name, path) = found.unwrap_or_else(|| panic!("{mistake:?} is not found"));
    let steps = path.into_actions();
    println!("{mistake:?}: not true that {name}, after {} steps:", steps.len());
    steps.iter().for_each(|step| println!("  {step:?}"));
    assert_eq!(name, property, "{mistake:?} is found by another property");
    steps
}

fn with(mistake: PlantedMistake, deaths: u8) -> ProtocolScenario {
    ProtocolScenario { mistake, ..scenario(deaths) }
}

#[test]
fn a_completion_on_an_empty_queue_is_found() {
    find(with(PlantedMistake::FinishOnEmptyQueue, 0), COMPLETE);
}

#[test]
fn a_run_that_sends_nothing_again_is_found() {
    find(with(PlantedMistake::NoResend, 1), COMPLETE);
}

#[test]
fn a_resend_behind_the_completion_is_found() {
    find(with(PlantedMistake::ResendAfterCompletion, 0), NOTHING_AFTER);
}

#[test]
fn a_watchdog_that_is_followed_by_one_that_does_not_know_of_its_completion_is_found() {
    find(with(PlantedMistake::UnannouncedCompletion, 1), NOTHING_AFTER);
}

#[test]
fn a_completion_by_coordinator_and_watchdog_is_found() {
    find(with(PlantedMistake::CompletionByBoth, 1), NOTHING_AFTER);
}

#[test]
fn a_result_that_is_sent_before_it_is_journalled_is_found() {
    find(with(PlantedMistake::JournalAfterSend, 1), ONE_RESULT);
}

#[test]
fn a_relayed_completion_that_is_not_held_is_found() {
    let scenario = with(PlantedMistake::CompletionNotHeld, 1);
    find(ProtocolScenario { has_callback: false, ..scenario }, NOTHING_AFTER);
}

#[test]
fn a_response_that_does_not_wait_for_the_completion_is_found() {
    find(with(PlantedMistake::ResponseWithFinish, 0), RESPONSE);
}

#[test]
fn a_dead_worker_whose_journal_is_not_read_is_found() {
    find(with(PlantedMistake::JournalNotRead, 1), ONE_RESULT);
}

#[test]
fn a_run_that_waits_for_a_dead_worker_is_found() {
    find(with(PlantedMistake::JournalNotAsked, 1), REACHED);
}

#[test]
fn a_watchdog_that_takes_its_dead_coordinator_at_its_word_is_found() {
    find(with(PlantedMistake::NothingDueAlone, 1), COMPLETE);
}
