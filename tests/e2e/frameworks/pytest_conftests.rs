//! pytest: fixtures and hooks from conftest files in many directories, while each interpreter runs several
//! parts of the suite. The expected results come from pytest itself.

use std::{collections::BTreeMap, path::Path, process::Command};

use super::pytest::{pythons, run, world};
use crate::support::{fixtures::fixtures, has_long_forms, world::TestWorld};

/// Returns a world with a suite that has conftest files in its directories.
fn suite() -> TestWorld {
    let world = world(&[]);
    let from = fixtures().join("pytest/conftests/.");
    let copied = Command::new("cp").arg("-r").arg(from).arg(world.dir()).status().unwrap();
    assert!(copied.success());
    world
}

/// Returns each test's outcome in a pytest session: the worst of its set-up, call and tear-down.
fn outcomes_of_pytest(world: &TestWorld, python: &Path) -> BTreeMap<String, &'static str> {
    let mut pytest = Command::new(python);
    pytest.current_dir(world.dir()).args(["-m", "pytest", "-v", "--tb=no", "-p", "no:cacheprovider"]);
    let output = pytest.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let mut outcomes = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(word)) = (words.next().filter(|name| name.contains(".py::")), words.next())
        else {
            continue;
        };
        let outcome = match word {
            "FAILED" | "ERROR" => "failed",
            "SKIPPED" => "skipped",
            _ => "passed",
        };
        let known = outcomes.entry(name.to_owned()).or_insert(outcome);
        if outcome == "failed" {
            *known = outcome;
        }
    }
    outcomes
}

#[test]
fn fixtures_of_all_conftest_files_stay_in_every_part_of_a_run() {
    for python in pythons() {
        let world = suite();
        let expected = outcomes_of_pytest(&world, &python);
        assert_eq!(expected.len(), 222, "{expected:?}");
        let runs: [&[&str]; 3] =
            [&["--no-history", "-E", "test(strict) | test(deeper)"], &["--no-history"], &[]];
        // Runs with a history split the suite into parts of other sizes.
        for more in &runs[..if has_long_forms() { 3 } else { 2 }] {
            let run = run(&world, &python, more);
            for (name, end) in &run.ends {
                assert_eq!(end["outcome"], expected[name], "{}: {more:?}: {end:#}", python.display());
            }
            let is_all = !more.contains(&"-E");
            assert!(run.ends.len() == if is_all { 222 } else { 70 }, "{more:?}: {}", run.command);
            assert!(run.program_failures.is_empty(), "{}", run.command);
        }
    }
}
