//! Programs with their own `main` that sets the order, selects tests or changes the exit code. Results still
//! belong to the right tests, and running an unselected test is an error.

use std::{collections::BTreeMap, os::unix::fs::symlink, path::Path};

use crate::support::{
    checked_run::CheckedRun,
    fixtures::{self, Catch2Version},
    server::TestServer,
    uids,
    world::TestWorld,
};

const CATCH2: [(&str, &str); 6] = [
    ("first", "passed"),
    ("fails", "failed"),
    ("hidden", "skipped"),
    ("tagged", "passed"),
    ("a name that is so long that the listing for people wraps it, well-behaved as it is", "passed"),
    ("last", "passed"),
];

const DOCTEST: [(&str, &str); 5] =
    [("first", "passed"), ("fails", "failed"), ("off", "skipped"), ("list", "passed"), ("last", "passed")];

/// Two processes have different random orders. Several attempts are needed because an order may be sorted by
/// chance.
const ATTEMPTS: usize = 3;

fn world_of(program: &Path) -> TestWorld {
    let world = TestWorld::new();
    symlink(program, world.path("program")).unwrap();
    world
}

fn check_all(world: &TestWorld, expected: &[(&str, &str)]) {
    for settings in ["", "isolate = true\n"] {
        world.write("heeler.toml", &format!("[profile.default]\n{settings}"));
        for _ in 0..ATTEMPTS {
            let mut server = TestServer::initialized(world, &["program"]);
            let run = server.run(None);
            let checked_run = server.finish(&run, &uids("program", expected.iter().map(|(name, _)| *name)));
            let seen: BTreeMap<_, _> = expected
                .iter()
                .map(|(name, _)| (*name, checked_run.state(&format!("program::{name}"))))
                .collect();
            assert_eq!(seen, expected.iter().copied().collect(), "{settings}");
            checked_run.assert_no_program_failures();
            assert_eq!(server.exit(), Some(0));
        }
    }
}

fn check_selected(world: &TestWorld, names: &[&str], state: &str) -> CheckedRun {
    let mut server = TestServer::initialized(world, &["program"]);
    let selected = uids("program", names.iter().copied());
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    selected.iter().for_each(|uid| assert_eq!(checked_run.state(uid), state, "{:#}", checked_run.test(uid)));
    assert_eq!(server.exit(), Some(0));
    checked_run
}

fn catch2_programs() -> impl Iterator<Item = (Catch2Version, TestWorld)> {
    [Catch2Version::Two, Catch2Version::Three].into_iter().filter_map(|version| {
        fixtures::catch2_with_own_main(version).map(|program| (version, world_of(&program)))
    })
}

#[test]
fn random_order_of_catch2_changes_no_result() {
    for (version, world) in catch2_programs() {
        for order in ["before", "after"] {
            eprintln!("{version:?} {order}");
            world.env("ORDER", order);
            check_all(&world, &CATCH2);
            check_selected(&world, &["first", "tagged"], "passed").assert_no_program_failures();
        }
    }
}

#[test]
fn order_of_doctest_changes_no_result() {
    let world = world_of(&fixtures::doctest_with_own_main());
    for order in ["rand", "name", "none"] {
        eprintln!("{order}");
        world.env("ORDER", order);
        check_all(&world, &DOCTEST);
        check_selected(&world, &["first", "last"], "passed").assert_no_program_failures();
    }
}

#[test]
fn large_program_of_catch2_in_random_order_has_no_places() {
    let Some(program) = fixtures::catch2_with_own_main(Catch2Version::Three) else { return };
    let world = world_of(&program);
    world.env("TESTS", "2100");
    world.env("ORDER", "after");
    let names: Vec<String> = (0..700).map(|number| format!("added {number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    check_selected(&world, &names, "passed").assert_no_program_failures();
}

#[test]
fn main_that_runs_another_test_is_an_error() {
    let doctest = world_of(&fixtures::doctest_with_own_main());
    for world in catch2_programs().map(|(_, world)| world).chain([doctest]) {
        world.env("ONLY", "fails");
        for (names, settings) in
            [(&["last"][..], ""), (&["first", "last"], ""), (&["last"], "isolate = true\n")]
        {
            world.write("heeler.toml", &format!("[profile.default]\n{settings}"));
            let checked_run = check_selected(&world, names, "error");
            let node = &checked_run.programs["program"];
            let message = node["error.message"].as_str().unwrap();
            assert!(message.contains("fails ran but was not selected"), "{message}");
        }
        let checked_run = check_selected(&world, &["fails"], "failed");
        checked_run.assert_no_program_failures();
    }
}

#[test]
fn program_of_catch2_with_hundreds_of_tests_is_listed() {
    for (version, world) in catch2_programs() {
        for (tests, code) in
            [("249", ""), ("250", ""), ("251", ""), ("300", ""), ("506", ""), ("600", ""), ("300", "0")]
        {
            eprintln!("{version:?} {tests} {code}");
            world.env("TESTS", tests);
            world.env("CODE", code);
            let mut server = TestServer::initialized(&world, &["program"]);
            let names: Vec<String> =
                (0..tests.parse().unwrap()).map(|number| format!("added {number}")).collect();
            let all = names.iter().map(String::as_str).chain(CATCH2.map(|(name, _)| name));
            let run = server.run(None);
            let checked_run = server.finish(&run, &uids("program", all));
            assert!(names.iter().all(|name| checked_run.state(&format!("program::{name}")) == "passed"));
            assert_eq!(checked_run.state("program::fails"), "failed");
            // A `main` that discards Catch2's result is a program failure.
            assert_eq!(checked_run.programs.is_empty(), code.is_empty(), "{checked_run:#?}");
            assert_eq!(server.exit(), Some(0));
        }
    }
}

#[test]
fn option_of_catch2_that_is_there_twice_is_an_error_of_the_options() {
    for (version, world) in catch2_programs() {
        world.write("patterns", "first\n");
        let patterns = world.path("patterns");
        let patterns = patterns.to_str().unwrap();
        let mut twice = vec![("--order", "rand"), ("--durations", "no"), ("--input-file", patterns)];
        if version == Catch2Version::Two {
            // Version 3 accepts several reporters.
            twice.push(("-r", "console"));
        }
        for (option, value) in twice {
            let ran = world.run(&["run", "program", "--", option, value]);
            eprintln!("{version:?} {option}");
            assert!(!ran.stdout.contains("EXIT"), "{ran}");
            assert!(ran.code != Some(0) && ran.stdout.contains("remove "), "{ran}");
        }
    }
}
