//! The example adapters, run as a user would run them: one test kills its process, and one exits.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    fixtures::fixtures,
    schema::{json_lines_report_violation, json_lines_request_violation},
    world::TestWorld,
};

pub(super) fn example(name: &str) -> String {
    format!("{}/examples/json-lines/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn example_adapters_run_and_name_the_test_that_kills_its_process() {
    for (adapter, tests, prefix) in
        [("adapter.py", "python_tests.py", "python_tests."), ("adapter.sh", "shell_tests.sh", "")]
    {
        let (adapter, tests) = (example(adapter), example(tests));
        let world = TestWorld::new();
        let ran = world.run(&["run", &adapter, "--framework", "json-lines", "--", &tests]).assert_code(2);
        let named = |test: &str| format!("{prefix}test_{test}");
        ran.line_with(&["SIGKILL", &named("kills_its_process")]);
        ran.line_with(&["FAIL", &named("fails")]);
        ran.assert_stdout("1 skipped");
        ran.assert_stdout("last words");
        for test in ["adds", "runs_after_them"] {
            ran.line_with(&["PASS", &named(test)]);
        }
        assert!(!ran.stdout.contains("invalid report"), "{ran}");
    }
}

#[test]
fn example_adapter_lists_its_tests_with_their_places() {
    for (adapter, tests, name) in [
        ("adapter.py", "python_tests.py", "python_tests.test_fails"),
        ("adapter.sh", "shell_tests.sh", "test_fails"),
    ] {
        let (adapter, tests) = (example(adapter), example(tests));
        let line = std::fs::read_to_string(&tests)
            .unwrap()
            .lines()
            .position(|line| line.contains("test_fails"))
            .unwrap();
        let world = TestWorld::new();
        let ran = world.run(&["list", &adapter, "--framework", "json-lines", "--", &tests]).assert_code(0);
        ran.line_with(&[name, &format!("{tests}:{}", line + 1)]);
    }
}

#[test]
fn program_that_is_no_adapter_is_reported_with_what_it_did_instead() {
    let world = TestWorld::new();
    world.write_program("silent", "#!/bin/sh\nexit 0\n");
    let ran = world.run(&["list", "./silent", "--framework", "json-lines"]).assert_code(4);
    ran.assert_stderr("it wrote nothing to its report channel, descriptor 3");
    world.write_program(
        "later",
        "#!/bin/sh\necho '{\"k\":\"hello\",\"v\":7}' >&3; echo '{\"k\":\"listed\"}' >&3",
    );
    let ran = world.run(&["list", "./later", "--framework", "json-lines"]).assert_code(4);
    ran.assert_stderr("\"hello\" of version 7; this version of Heeler supports version 1");
}

#[test]
fn lines_between_heeler_and_the_examples_are_those_of_the_schema() {
    let record = fixtures().join("json-lines/record.py");
    let record = record.to_str().unwrap();
    for (adapter, tests) in [("adapter.py", "python_tests.py"), ("adapter.sh", "shell_tests.sh")] {
        let (adapter, tests) = (example(adapter), example(tests));
        let world = TestWorld::new();
        let directory = world.dir().to_str().unwrap().to_owned();
        let words = ["run", record, "--framework", "json-lines", "--", &directory, &adapter, &tests];
        world.run(&words).assert_code(2).assert_stdout("SIGKILL");
        let kinds = |name: &str, violation: fn(&Value) -> Option<String>| {
            let text = world.read(name);
            let lines = text.lines().map(|line| {
                let line: Value =
                    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                assert_eq!(violation(&line), None, "{adapter}: {line}");
                line["k"].as_str().unwrap().to_owned()
            });
            lines.collect::<BTreeSet<_>>()
        };
        let requests = kinds("requests", json_lines_request_violation);
        assert_eq!(requests, ["list", "run", "stop"].map(str::to_owned).into(), "{adapter}");
        let reports = kinds("reports", json_lines_report_violation);
        let expected = ["test", "listed", "begin", "end", "done"].map(str::to_owned).into();
        assert_eq!(reports, expected, "{adapter}");
    }
}

#[test]
fn schema_of_json_lines_refuses_wrong_lines_and_knows_what_the_page_does() {
    for line in [
        json!({"k": "end", "i": 0, "state": "good"}),
        json!({"k": "end", "i": 0, "state": "failed", "line": 0}),
        json!({"k": "end", "i": 0, "state": "failed", "failures": [{"message": 1}]}),
        json!({"k": "test", "id": ""}),
        json!({"k": "test", "id": "a", "tags": "slow"}),
        json!({"k": "begin"}),
        json!({"k": "part", "i": 0}),
        json!({"k": "out", "i": 0, "s": "both", "t": ""}),
        json!({"k": "file", "i": 0, "path": "relative"}),
        json!({"k": "hello", "v": "1"}),
        json!({"k": "list", "v": 1}),
        json!({"i": 0}),
    ] {
        assert!(json_lines_report_violation(&line).is_some(), "{line}");
    }
    for line in [json!({"k": "run", "v": 1, "tests": ["a"]}), json!({"k": "list"}), json!({"k": "done"})] {
        assert!(json_lines_request_violation(&line).is_some(), "{line}");
    }
    for line in [
        json!({"k": "later", "x": 1}),
        json!({"k": "hello", "v": 1, "name": "x", "fence": "f"}),
        json!({"k": "test", "id": "a", "skip": null, "line": null}),
        json!({"k": "end", "i": 0, "state": "failed", "ms": 1.5, "failures": [{"message": "m", "line": 3}], "f": 2}),
        json!({"k": "part", "i": 1, "name": "p", "state": "passed"}),
    ] {
        assert_eq!(json_lines_report_violation(&line), None, "{line}");
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
    let page = read("docs/frameworks/json-lines.md");
    let schema: Value = serde_json::from_str(&read("docs/reference/json-lines.schema.json")).unwrap();
    for definition in ["is-request", "is-report"] {
        for kind in schema["$defs"][definition]["properties"]["k"]["enum"].as_array().unwrap() {
            assert!(page.contains(&format!("\"k\":{kind}")), "the page does not specify {kind}");
        }
    }
}
