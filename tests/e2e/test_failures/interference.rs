//! Tests that fail while other tests of the same program run in other processes.

use crate::support::{checked_run::CheckedRun, server::TestServer, uids, world::TestWorld};

const CASES: [&str; 6] = [
    "N/Interferes.Case/0",
    "N/Interferes.Case/1",
    "N/Interferes.Case/2",
    "N/Interferes.Case/3",
    "N/Interferes.Case/4",
    "N/Interferes.Case/5",
];

fn run(meets: bool, settings: &str, cases: &[&str]) -> CheckedRun {
    let world = TestWorld::with_gtest("interferes");
    world.env("HEELER_FIXTURE_SHARED", world.path("shared").to_str().unwrap());
    if meets {
        world.env("HEELER_FIXTURE_MEETS", "1");
    }
    world.write("heeler.toml", &format!("[profile.default]\nisolate = true\n{settings}"));
    let selected = uids("interferes", cases.iter().copied());
    let mut server = TestServer::initialized(&world, &["interferes"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    assert_eq!(server.exit(), Some(0));
    checked_run
}

#[test]
fn failure_beside_another_test_that_passes_alone_names_it() {
    let checked_run = run(true, "jobs = 2\nretries = 1\n", &CASES[..2]);
    checked_run.assert_all("passed");
    let flaky = checked_run.tests.iter().find(|(_, node)| node["outcome-kind"] == "passed-with-retries");
    let (uid, _) = flaky.unwrap_or_else(|| panic!("{checked_run:#?}"));
    let other = checked_run.tests.keys().find(|other| *other != uid).unwrap();
    let is_named = |line: &String| {
        line.contains(&format!("{uid}: failed, but passes alone: conflicts with tests"))
            && line.contains(other)
    };
    assert!(checked_run.log.iter().any(is_named), "{:#?}", checked_run.log);
    assert!(checked_run.log.iter().any(|line| line.contains("max-processes = 1")), "{:#?}", checked_run.log);
}

#[test]
fn program_with_one_process_at_a_time_does_not_interfere_with_itself() {
    run(false, "jobs = 4\nmax-processes = 1\n", &CASES).assert_all("passed").assert_no_program_failures();
}
