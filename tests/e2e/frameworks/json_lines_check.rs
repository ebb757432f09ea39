//! `heeler check-adapter`: the example adapters follow every rule, and for each of many broken adapters, the
//! check names exactly the broken rule.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{fixtures::fixtures, has_long_forms, world::TestWorld};

/// Faults of the fixture, each with the rule that it breaks.
const FAULTS: [(&str, &str); 25] = [
    ("exits-at-once", "start"),
    ("works-alone", "two-processes"),
    ("garbage", "json"),
    ("long-line", "line-length"),
    ("late-hello", "hello"),
    ("later-hello-version", "hello"),
    ("requires-version-1", "later-version"),
    ("refuses-members", "unknown-members"),
    ("refuses-requests", "unknown-requests"),
    ("reports-after-done", "reports-on-request"),
    ("no-listed", "listed"),
    ("counts-lines-from-0", "test-members"),
    ("lists-twice", "unique-ids"),
    ("changes-its-listing", "stable-listing"),
    ("begins-twice", "begin-end"),
    ("part-before-begin", "part-in-test"),
    ("unknown-state", "report-members"),
    ("leaves-out", "all-tests"),
    ("counts-in-listing", "selection"),
    ("runs-in-listing-order", "request-order"),
    ("requires-tests", "no-tests"),
    ("runs-once", "next-request"),
    ("passes-unknown", "unknown-test"),
    ("fences-one-output", "fence"),
    ("exits-with-3", "stop"),
];
/// Faults that make the check wait until its timeout, each with the rule that it breaks.
const SILENT_FAULTS: [(&str, &str); 8] = [
    ("writes-elsewhere", "carrier"),
    ("writes-late", "at-once"),
    ("drops-joined-requests", "joined-requests"),
    ("drops-pieces", "cut-requests"),
    ("drops-long-requests", "long-requests"),
    ("drops-unread", "slow-reader"),
    ("no-done", "done"),
    ("outlives-its-requests", "end-of-input"),
];
/// A timeout that is never reached, even on a busy machine.
const LONG_LIMIT: &str = "300s";
/// A timeout that the check reaches, but long enough for the messages that do arrive.
const SHORT_LIMIT: &str = "30s";

/// Results of a check, by rule, and its output.
struct Checked {
    results: BTreeMap<String, Value>,
    text: String,
}

impl Checked {
    fn with_result(&self, result: &str) -> Vec<&str> {
        let rules = self.results.iter().filter(|(_, one)| one["result"] == result);
        rules.map(|(rule, _)| rule.as_str()).collect()
    }
}

/// Checks an adapter with output in JSON.
fn check(framework: &str, limit: &str, words: &[&str], code: i32) -> Checked {
    let world = TestWorld::new();
    let head = ["check-adapter", "--framework", framework, "--timeout", limit, "--format", "json"];
    let ran = world.run_with_separate_outputs(&[&head[..], words].concat()).assert_code(code);
    let read: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
    let results = read.into_iter().map(|one| (one["rule"].as_str().unwrap().to_owned(), one)).collect();
    Checked { results, text: ran.stdout }
}

fn check_fault(framework: &str, limit: &str, (fault, rule): (&str, &str)) {
    let fixture = fixtures().join("json-lines/broken.py");
    let words = ["python3", "--", "-S", fixture.to_str().unwrap(), fault];
    let checked = check(framework, limit, &words, 2);
    assert_eq!(checked.with_result("failed"), [rule], "{framework} {fault}: {}", checked.text);
    let broken = &checked.results[rule];
    for member in ["sent", "came", "expected"] {
        assert!(!broken[member].as_str().unwrap().is_empty(), "{fault}: {broken:#}");
    }
    let section = broken["section"].as_str().unwrap();
    assert!(section.starts_with("docs/frameworks/json-lines.md#"), "{section}");
}

/// Checks faults in parallel, because each check mostly waits.
fn check_faults(
    framework: &str,
    limit: &str,
    faults: impl IntoIterator<Item = (&'static str, &'static str)>,
) {
    std::thread::scope(|scope| {
        for fault in faults {
            scope.spawn(move || check_fault(framework, limit, fault));
        }
    });
}

#[test]
fn check_adapter_names_exactly_the_rule_that_is_broken_on_the_channel() {
    check_faults("json-lines", LONG_LIMIT, FAULTS);
}

#[test]
fn check_adapter_names_exactly_the_rule_that_is_broken_on_standard_streams() {
    // Only the channel has fences. The same code checks both transports, so a third of the faults is enough
    // in the gate.
    let faults = FAULTS.into_iter().filter(|(_, rule)| *rule != "fence");
    let faults = faults.step_by(if has_long_forms() { 1 } else { 3 });
    check_faults("json-lines-stdio", LONG_LIMIT, faults);
}

#[test]
fn check_adapter_names_exactly_the_rule_of_an_answer_that_does_not_come() {
    std::thread::scope(|scope| {
        for framework in ["json-lines", "json-lines-stdio"] {
            scope.spawn(move || check_faults(framework, SHORT_LIMIT, SILENT_FAULTS));
        }
    });
}

#[test]
fn check_adapter_passes_an_adapter_that_keeps_every_rule() {
    let fixture = fixtures().join("json-lines/broken.py");
    for framework in ["json-lines", "json-lines-stdio"] {
        for behaviour in ["none", "fences"] {
            let words = ["python3", "--", "-S", fixture.to_str().unwrap(), behaviour];
            let checked = check(framework, LONG_LIMIT, &words, 0);
            let untried = checked.with_result("not-tried");
            let is_expected = |rule: &&str| ["slow-reader", "fence"].contains(rule);
            assert!(untried.iter().all(is_expected), "{framework} {behaviour}: {}", checked.text);
            assert_eq!(checked.with_result("failed"), [""; 0]);
        }
    }
}

#[test]
fn check_adapter_passes_the_examples_which_kill_their_process() {
    for (adapter, tests) in [("adapter.py", "python_tests.py"), ("adapter.sh", "shell_tests.sh")] {
        let example = |name: &str| format!("{}/examples/json-lines/{name}", env!("CARGO_MANIFEST_DIR"));
        let (adapter, tests) = (example(adapter), example(tests));
        let world = TestWorld::new();
        let ran =
            world.run(&["check-adapter", "--timeout", LONG_LIMIT, &adapter, "--", &tests]).assert_code(0);
        for rule in ["stop", "unknown-test", "next-request", "request-order", "long-requests"] {
            ran.line_with(&["ok  ", rule]);
        }
        ran.line_with(&["note", "signal 9", "test_kills_its_process", "not a fault of the adapter"]);
        assert!(!ran.stdout.contains("FAILED"), "{ran}");
    }
}

#[test]
fn check_adapter_explains_what_is_wrong() {
    let fixture = fixtures().join("json-lines/broken.py");
    let world = TestWorld::new();
    let fixture = fixture.to_str().unwrap();
    let words = ["check-adapter", "--timeout", LONG_LIMIT, "python3", "--", "-S", fixture, "exits-with-3"];
    let ran = world.run(&words).assert_code(2);
    ran.line_with(&["FAILED", "stop", "after \"stop\", the process exits with code 0"]);
    ran.line_with(&["sent", "{\"k\":\"stop\"}"]);
    ran.line_with(&["received", "the process exited with code 3"]);
    ran.line_with(&["expected", "it exits with code 0"]);
    ran.line_with(&["see", "docs/frameworks/json-lines.md#end"]);
    let ran = world.run(&["check-adapter", "no-such-adapter"]).assert_code(4);
    ran.assert_stderr("adapter not found: no-such-adapter");
    world.write("text", "");
    world.run(&["check-adapter", "./text"]).assert_code(4);
    world.write_program("own", "#!/bin/sh\nexit 0\n");
    for path in ["own", "./own", world.path("own").to_str().unwrap()] {
        world.run(&["check-adapter", path]).assert_code(2).line_with(&["FAILED", "start"]);
    }
    world.run(&["check-adapter", "/bin/true", "--framework", "gtest"]).assert_code(5);
}

#[test]
fn check_adapter_rules_are_those_of_the_specification() {
    let page = include_str!("../../../docs/frameworks/json-lines.md");
    let world = TestWorld::new();
    let ran =
        world.run_with_separate_outputs(&["check-adapter", "/bin/true", "--format", "json"]).assert_code(2);
    let rules: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let slugs: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|title| title.to_lowercase().replace(' ', "-"))
        .collect();
    for rule in &rules {
        let [name, text, section] = ["rule", "text", "section"].map(|member| rule[member].as_str().unwrap());
        let anchor = section.split_once('#').unwrap().1;
        assert!(slugs.iter().any(|slug| slug == anchor), "{section} is no section: {slugs:?}");
        let row = format!("| [`{name}`](#{anchor}) | {text} |");
        assert!(page.lines().any(|line| line == row), "the page lacks the row: {row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| [`")).count();
    assert_eq!(rows, rules.len());
}
