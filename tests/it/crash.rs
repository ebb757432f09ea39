//! Deaths of test processes: which test is charged, what is rerun, and how often.

use std::collections::BTreeSet;

use crate::support::{books::Books, listener::Behaviour, server::Server, uids, world::World};

const DEATHS: [&str; 7] = [
    "First.One",
    "First.Two",
    "Second.One",
    "Second.Two",
    "Third.Spoils",
    "Third.CrashesWhenSpoilt",
    "Third.Flaky",
];

const FAKE: [&str; 4] = ["Fake.One", "Fake.Two", "Fake.Three", "Fake.Four"];

/// Runs everything of a program in one slot; returns the checked record.
fn run_all(world: &World, program: &str, names: &[&str]) -> Books {
    world.write("heeler.toml", "[profile.default]\njobs = 1\nstartup-timeout = \"1s\"\n");
    let mut server = Server::with_callback(world, &[program], |_| Behaviour::Normal);
    let run = server.run(None);
    let books = server.finish(&run, &uids(program, names.iter().copied()));
    assert_eq!(server.exit(), Some(0));
    books
}

fn dying_at(place: &str) -> Books {
    let world = World::with_gtest("deaths");
    world.env("HEELER_FIXTURE_DIE_AT", place);
    run_all(&world, "deaths", &DEATHS)
}

fn charge<'a>(books: &'a Books, program: &str) -> &'a str {
    let node = books.programs.get(program).unwrap_or_else(|| panic!("{program} is not charged: {books:#?}"));
    assert_eq!(node["outcome-kind"], "program", "{node:#}");
    node["error.message"].as_str().unwrap()
}

#[test]
fn a_crash_in_the_middle_of_500_costs_one_test_and_three_processes() {
    let world = World::with_gtest("big");
    world.note_starts();
    world.env("HEELER_FIXTURE_CRASH_AT", "1137");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let names: Vec<String> = (1000..1500).map(|n| format!("N/Big.Case/{n}")).collect();
    let selected = uids("big", names.iter().map(String::as_str));
    let mut server = Server::with_callback(&world, &["big"], |_| Behaviour::Normal);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let books = server.finish(&run, &selected);
    let bad: Vec<_> = books.tests.keys().filter(|uid| books.state(uid) != "passed").collect();
    assert_eq!(bad, ["big::N/Big.Case/1137"]);
    let culprit = books.test("big::N/Big.Case/1137");
    assert_eq!(culprit["heeler.alone"], "crashes-alone", "{culprit:#}");
    assert_eq!(culprit["error.message"], "crashed with SIGABRT; crashes alone as well");
    books.no_charges();
    let starts: Vec<_> = world.starts().into_iter().map(|start| start.pid).collect();
    assert!(starts.len() <= 3, "{starts:?}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_test_that_crashes_only_after_another_is_told_as_that() {
    let books = dying_at("order");
    let uid = "deaths::Third.CrashesWhenSpoilt";
    assert_eq!(books.state(uid), "error");
    assert_eq!(books.test(uid)["heeler.alone"], "passes-alone");
    assert_eq!(
        books.message(uid),
        "crashed with SIGABRT when run after other tests; passes alone (order-dependent?)"
    );
    let others = books.tests.keys().filter(|other| *other != uid);
    assert!(others.clone().all(|other| books.state(other) == "passed"), "{books:#?}");
    books.no_charges();
}

#[test]
fn a_program_that_dies_before_its_first_test_is_given_up_and_every_test_says_why() {
    let books = dying_at("static initialisation");
    books.all("error");
    for (uid, node) in &books.tests {
        assert_eq!(node["outcome-kind"], "not-run", "{uid}");
        assert!(books.message(uid).contains("was given up"), "{node:#}");
    }
    let message = charge(&books, "deaths");
    assert!(message.contains("the process died of SIGABRT before its first test"), "{message}");
    assert!(message.contains("a constructor gives up"), "{message}");
}

#[test]
fn a_program_that_dies_in_its_environment_is_given_up_too() {
    let books = dying_at("environment set-up");
    assert!(books.tests.values().all(|node| node["outcome-kind"] == "not-run"), "{books:#?}");
    assert!(charge(&books, "deaths").contains("before its first test"));
}

#[test]
fn a_death_in_a_suites_set_up_costs_that_suite_only() {
    let books = dying_at("suite set-up");
    for name in ["First.One", "First.Two", "Third.Spoils", "Third.CrashesWhenSpoilt", "Third.Flaky"] {
        assert_eq!(books.state(&format!("deaths::{name}")), "passed", "{books:#?}");
    }
    for name in ["Second.One", "Second.Two"] {
        assert_eq!(books.state(&format!("deaths::{name}")), "error", "{books:#?}");
    }
    assert!(charge(&books, "deaths").contains("SIGABRT"));
}

#[test]
fn a_death_in_a_suites_tear_down_leaves_all_others_alone() {
    let books = dying_at("suite tear-down");
    let bad: BTreeSet<_> = books.tests.keys().filter(|uid| books.state(uid) != "passed").collect();
    // The last test of the suite cannot be distinguished from its suite's tear-down.
    assert!(bad.iter().all(|uid| uid.starts_with("deaths::First.")), "{bad:?}");
    assert!(!bad.is_empty() || !books.programs.is_empty(), "somebody is blamed: {books:#?}");
}

#[test]
fn a_death_behind_the_last_test_is_charged_to_the_program_and_to_no_test() {
    for place in ["environment tear-down", "static destruction"] {
        let books = dying_at(place);
        books.all("passed");
        assert!(
            charge(&books, "deaths").contains("the process died of SIGABRT after its last test"),
            "{books:#?}"
        );
    }
}

#[test]
fn an_exit_code_that_the_results_do_not_explain_is_charged_to_the_program() {
    let books = dying_at("exit code 7");
    books.all("passed");
    assert!(charge(&books, "deaths").contains("exit code 7"), "{books:#?}");
}

#[test]
fn a_program_that_cannot_even_be_listed_is_one_clear_error() {
    let world = World::with_gtest("deaths");
    world.env("HEELER_FIXTURE_DIE_AT", "static initialisation, always");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let mut server = Server::ready(&world, &["deaths"]);
    let run = server.run(None);
    let books = server.finish(&run, &["deaths".to_owned()]);
    assert_eq!(books.test("deaths")["outcome-kind"], "not-run");
    let message = books.message("deaths");
    assert!(message.contains("died of SIGABRT when it was asked for its tests"), "{message}");
    assert!(message.contains("a constructor gives up"), "{message}");
}

#[test]
fn a_fake_that_dies_between_tests_still_gets_every_test_run() {
    let world = World::with_fake("dies-between-tests");
    let books = run_all(&world, "dies-between-tests", &FAKE);
    books.all("passed");
    assert!(charge(&books, "dies-between-tests").contains("SIGABRT"), "{books:#?}");
}

#[test]
fn tests_that_a_program_quietly_leaves_out_are_run_again() {
    let world = World::with_fake("stops-after-two");
    world.note_starts();
    run_all(&world, "stops-after-two", &FAKE).all("passed");
    assert_eq!(world.starts().len(), 2, "{:?}", world.starts());
}

#[test]
fn a_program_that_runs_nothing_makes_no_test_passed() {
    for role in ["runs-nothing", "says-nothing"] {
        let world = World::with_fake(role);
        let books = run_all(&world, role, &FAKE);
        books.all("error");
        assert!(books.tests.values().all(|node| node["outcome-kind"] == "not-run"), "{books:#?}");
    }
}

#[test]
fn a_program_that_runs_more_than_it_was_asked_changes_no_result() {
    let world = World::with_fake("ignores-the-filter");
    let mut server = Server::ready(&world, &["ignores-the-filter"]);
    let selected = uids("ignores-the-filter", ["Fake.Two", "Fake.Three"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    server.finish(&run, &selected).all("passed");
}

#[test]
fn a_program_that_tells_everything_twice_is_believed_once() {
    let world = World::with_fake("tells-everything-twice");
    run_all(&world, "tells-everything-twice", &FAKE).all("passed");
}

#[test]
fn a_program_that_never_leaves_is_ended_and_its_results_stand() {
    let world = World::with_fake("never-leaves");
    let books = run_all(&world, "never-leaves", &FAKE);
    books.all("passed");
    assert!(charge(&books, "never-leaves").contains("did not leave"), "{books:#?}");
}

#[test]
fn a_program_that_never_begins_is_ended_and_given_up() {
    let world = World::with_fake("never-begins");
    let books = run_all(&world, "never-begins", &FAKE);
    books.all("error");
    assert!(charge(&books, "never-begins").contains("began no test within 1 s"), "{books:#?}");
}

#[test]
fn an_exit_code_after_good_results_spoils_no_result() {
    let world = World::with_fake("leaves-with-7");
    let books = run_all(&world, "leaves-with-7", &FAKE);
    books.all("passed");
    assert!(charge(&books, "leaves-with-7").contains("exit code 7"), "{books:#?}");
}

#[test]
fn a_death_is_checked_once_and_takes_nothing_from_the_users_retries() {
    let world = World::with_gtest("deaths");
    world.note_starts();
    world.env("HEELER_FIXTURE_DIE_AT", "order");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    world.write("heeler.toml", "[profile.default]\njobs = 1\nretries = 1\n");
    let mut server = Server::ready(&world, &["deaths"]);
    let run = server.run(None);
    let books = server.finish(&run, &uids("deaths", DEATHS));
    assert_eq!(books.test("deaths::Third.Flaky")["outcome-kind"], "passed-with-retries", "{books:#?}");
    let culprit = books.test("deaths::Third.CrashesWhenSpoilt");
    assert_eq!(
        (&culprit["execution-state"], &culprit["heeler.alone"]),
        (&"error".into(), &"passes-alone".into())
    );
    // The batch, its remainder, the isolated rerun, and the retry of the flaky one.
    assert_eq!(world.starts().len(), 4, "{:?}", world.starts());
}
