//! Tests that begin without being selected, because a `main` selected or ordered them differently. Parsers
//! name such tests, and their reports do not count for selected tests.

use super::{replay, summary, tests};
use crate::TranscriptParser;
use heeler_protocol::control::ListedTest;

const PASSED: &str = "{ \"type\": \"test\", \"name\": \"~\", \"event\": \"ok\" }\n";

/// Returns the output of one test of a framework, with a good or bad end.
fn test_of(framework: &str, name: &str, line: u32, is_good: bool) -> String {
    match framework {
        "libtest" => {
            let event = if is_good { PASSED.to_owned() } else { PASSED.replace("\"ok\"", "\"failed\"") };
            let begin = "{ \"type\": \"test\", \"event\": \"started\", \"name\": \"~\" }\n";
            format!("{begin}{event}").replace('~', name)
        }
        "doctest" => format!(
            "  <TestCase name=\"{name}\" filename=\"t.cc\" line=\"{line}\">\n      <OverallResultsAsserts successes=\"1\" failures=\"0\" test_case_success=\"{is_good}\" duration=\"0.1\"/>\n    </TestCase>\n"
        ),
        "boost" => {
            let error = if is_good { String::new() } else { format!("t.cc(9): error: in \"{name}\": bad\n") };
            // Boost writes a whole number of milliseconds in another unit.
            let time = if is_good { "7us" } else { "7ms" };
            format!(
                "t.cc({line}): Entering test case \"{name}\"\n{error}t.cc({line}): Leaving test case \"{name}\"; testing time: {time}\n"
            )
        }
        "go" => {
            let result = if is_good { "PASS" } else { "FAIL" };
            format!("\u{16}=== RUN   {name}\n\u{16}--- {result}: {name} (0.00s)\n")
        }
        framework => panic!("{framework}"),
    }
}

fn listed(names: &[&str]) -> Vec<ListedTest> {
    let mut given = tests(names.to_vec());
    for (line, test) in (1..).zip(&mut given) {
        (test.file, test.line) = (Some("t.cc".to_owned()), Some(line));
    }
    given
}

fn run(framework: &str, text: &str) -> (Vec<String>, Box<dyn TranscriptParser + Send>) {
    let (events, transcript) = replay(framework, &listed(&["TestA", "TestB"]), [text.as_bytes()]);
    (summary(&events), transcript)
}

#[test]
fn test_that_was_not_selected_is_named_and_changes_no_result() {
    for framework in ["libtest", "doctest", "boost", "go"] {
        let (a, b) = (test_of(framework, "TestA", 1, true), test_of(framework, "TestB", 2, true));
        let other = test_of(framework, "TestC", 7, false);
        for text in [format!("{other}{a}{b}"), format!("{a}{other}{b}"), format!("{b}{other}{a}")] {
            let (seen, transcript) =
                run(framework, &format!("{text}{}", test_of(framework, "TestZ", 9, true)));
            assert_eq!(transcript.unselected_test(), Some("TestC"), "{framework}: {text}");
            let failed = seen.iter().filter(|one| one.starts_with("failed")).count();
            let passed = seen.iter().filter(|one| one.starts_with("passed")).count();
            assert_eq!((passed, failed), (2, 0), "{framework}: {seen:?}");
        }
        let (_, transcript) = run(framework, &format!("{b}{a}"));
        assert_eq!(transcript.unselected_test(), None, "{framework}");
    }
}

#[test]
fn dependency_of_boost_test_is_selected_with_the_tests_that_need_it() {
    let other = test_of("boost", "TestC", 7, false);
    let included = "Including test case TestC as a dependency of test case TestB\nRunning 3 test cases...\n";
    let (_, transcript) = run("boost", &format!("{included}{other}"));
    assert_eq!(transcript.unselected_test(), None);
    let (_, transcript) = run("boost", &format!("{included}{}", other.replace("TestC", "TestD")));
    assert_eq!(transcript.unselected_test(), Some("TestD"));
}
