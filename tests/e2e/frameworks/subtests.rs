//! Subtests, sections and TAP points in reports: steps of their test in JSON and CTRF, test cases in JUnit on
//! request, and a count in the summary. Reports include the steps of passed tests, and more steps than fit in
//! memory.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{go::go_cache, pytest::python};
use crate::support::{requirement, world::TestWorld};

/// Outcome and message of each step, by its name.
type Steps = BTreeMap<String, (String, String)>;

fn steps_of(list: &Value, outcome: &str, message: impl Fn(&Value) -> Value) -> Steps {
    let step = |step: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&step["name"]), (text(&step[outcome]), text(&message(step))))
    };
    list.as_array().into_iter().flatten().map(step).collect()
}

/// Reads the steps of one test from each report, live and from the record, and compares them with the
/// expected steps.
#[track_caller]
fn check_reports(world: &TestWorld, words: &[&str], test: &str, expected: &[(&str, &str, &str)]) {
    let expected: Steps = expected
        .iter()
        .map(|(name, outcome, message)| ((*name).to_owned(), ((*outcome).to_owned(), (*message).to_owned())))
        .collect();
    let reports = ["--format", "json", "--report", "ctrf=ctrf.json", "--report", "junit-subtests=junit.xml"];
    for words in [&[&["run"], words].concat()[..], &["report"]] {
        let ran = world.run_with_separate_outputs(&[words, &reports].concat());
        let events = ran.stdout.lines().filter(|line| line.starts_with('{'));
        let events: Vec<Value> = events.map(|line| serde_json::from_str(line).unwrap()).collect();
        let is_end = |event: &&Value| event["name"] == test && event["outcome"].is_string();
        let end = events.iter().find(is_end).unwrap_or_else(|| panic!("no end of {test}: {ran}"));
        assert_eq!(steps_of(&end["steps"], "outcome", |step| step["message"].clone()), expected, "{words:?}");
        let of_run = &events.last().unwrap()["steps"];
        let total: u64 =
            ["passed", "failed", "skipped"].iter().map(|kind| of_run[kind].as_u64().unwrap()).sum();
        assert!(total >= expected.len() as u64, "{of_run}");
        let ctrf: Value = serde_json::from_str(&world.read("ctrf.json")).unwrap();
        let tests = ctrf["results"]["tests"].as_array().unwrap();
        let entry = tests.iter().find(|entry| entry["name"] == test).unwrap();
        let found = steps_of(&entry["steps"], "status", |step| step["extra"]["message"].clone());
        assert_eq!(found, expected, "{words:?}");
        let junit = world.read("junit.xml");
        let cases = junit.matches("<testcase ").count();
        assert!(junit.contains(&format!("tests=\"{cases}\"")), "{cases} cases: {junit}");
        assert_eq!(cases as u64, tests.len() as u64 + total, "{junit}");
    }
}

#[test]
fn subtests_of_go_are_steps() {
    if requirement::directory_of_program("go", "Go must be in PATH").is_none() {
        return;
    }
    let world = TestWorld::new();
    world.env("GOCACHE", go_cache().to_str().unwrap());
    world.write("go.mod", "module example.com/steps\n\ngo 1.19\n");
    world.write(
        "steps_test.go",
        "package steps\n\nimport \"testing\"\n\n\
         func TestTable(t *testing.T) {\n\
         \tt.Run(\"one\", func(t *testing.T) {})\n\
         \tt.Run(\"two\", func(t *testing.T) { t.Run(\"deep\", func(t *testing.T) {}) })\n\
         \tt.Run(\"off\", func(t *testing.T) { t.Skip(\"not here\") })\n}\n",
    );
    let expected = [
        ("one", "passed", ""),
        ("two", "passed", ""),
        ("two/deep", "passed", ""),
        ("off", "skipped", "not here"),
    ];
    check_reports(&world, &["--go", "./..."], "TestTable", &expected);
}

#[test]
fn points_of_tap_are_steps_and_are_counted() {
    let world = TestWorld::new();
    world.write_program(
        "points",
        "#!/bin/sh\necho 1..3\necho 'ok 1 - one'\necho 'ok 2 - two # SKIP no net'\necho 'ok 3'\n",
    );
    let words = ["points", "--framework", "tap"];
    let expected = [("1 - one", "passed", ""), ("2 - two", "skipped", "no net"), ("3", "passed", "")];
    check_reports(&world, &words, "points", &expected);
    let ran = world.run(&[&["run"], &words[..]].concat()).assert_code(0);
    ran.line_with(&["Subtests", "3: 2 passed, 1 skipped"]);
}

#[test]
fn more_points_than_are_kept_are_counted() {
    let world = TestWorld::new();
    world.write_program("points", "#!/bin/sh\necho 1..12000\nseq 1 12000 | sed 's/^/ok /'\n");
    let ran = world.run(&["run", "points", "--framework", "tap"]).assert_code(0);
    ran.line_with(&["Subtests", "12,000: 10,000 passed, 2,000 not listed"]);
}

#[test]
fn subtests_of_pytest_are_steps_also_with_equal_names() {
    let Some(python) = python() else { return };
    let world = TestWorld::new();
    world.env("PYTHONDONTWRITEBYTECODE", "1");
    world.write(
        "test_steps.py",
        "import pytest\n\n\
         def test_table(subtests):\n    \
             for i in range(3):\n        \
                 with subtests.test('same'):\n            \
                     if i == 1:\n                \
                         pytest.skip('not here')\n    \
             with subtests.test(i=7):\n        pass\n    \
             with subtests.test('row', i=1, name='x'):\n        pass\n    \
             with subtests.test():\n        pass\n",
    );
    let expected = [
        ("[same]", "passed", ""),
        ("[same] #2", "skipped", "not here"),
        ("[same] #3", "passed", ""),
        ("(i=7)", "passed", ""),
        ("[row] (i=1, name='x')", "passed", ""),
        ("(<subtest>)", "passed", ""),
    ];
    let words = ["--pytest", ".", "--python", python.to_str().unwrap()];
    check_reports(&world, &words, "test_steps.py::test_table", &expected);
}

#[test]
fn steps_are_read_again_where_they_are_more_than_a_summary_keeps() {
    // The messages exceed the 8 MiB that a summary keeps.
    let world = TestWorld::new();
    let long = "x".repeat(150);
    world.write_program(
        "points",
        &format!("#!/bin/sh\necho 1..9000\nseq 1 9000 | sed 's/$/ - {long}/; s/^/ok /'\n"),
    );
    let suites: String = (0..8)
        .map(|number| {
            format!("[[suite]]\nname = \"s{number}\"\nprograms = [\"points\"]\nframework = \"tap\"\n")
        })
        .collect();
    world.write("heeler.toml", &suites);
    world.run(&["run", "--report", "ctrf=ctrf.json"]).assert_code(0);
    let ctrf: Value = serde_json::from_str(&world.read("ctrf.json")).unwrap();
    for entry in ctrf["results"]["tests"].as_array().unwrap() {
        assert_eq!(entry["steps"].as_array().unwrap().len(), 9000, "{}", entry["testId"]);
        assert_eq!(entry.get("stdout"), None, "of a test that passed: {}", entry["testId"]);
    }
    let steps = &ctrf["results"]["summary"]["extra"]["steps"];
    assert_eq!(steps["passed"], json!(72_000));
}
