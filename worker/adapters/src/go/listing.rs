//! Parser of the names that `-test.list` prints, one per line, mixed with the program's own output.

use std::collections::{HashMap, HashSet};

use heeler_protocol::control::ListedTest;

use super::program::GoTestProgram;
use crate::{ListingError, ListingOutput, scan};

/// Name prefixes of functions that `-test.run` selects. Benchmarks are listed too, but are not tests.
const PREFIXES: [&str; 3] = ["Test", "Fuzz", "Example"];

/// Returns whether a function with this name can be a test.
pub(super) fn is_test_name(name: &str) -> bool {
    let is_identifier = name.chars().all(|character| character.is_alphanumeric() || character == '_');
    let is_test =
        |prefix: &&str| name.strip_prefix(*prefix).is_some_and(|rest| !rest.starts_with(char::is_lowercase));
    is_identifier && PREFIXES.iter().any(is_test)
}

/// Parses a listing. Also returns the failure of a program that exited with an error after listing its tests.
/// `program` is `None` if the program is not a native Go test program, such as a script that starts one.
pub(super) fn read(
    framework: &'static str,
    output: &ListingOutput,
    program: Option<&GoTestProgram>,
) -> Result<(Vec<ListedTest>, Option<ListingError>), ListingError> {
    let text = scan::decode_lossy(&output.stdout);
    let places = program.map(|program| program.test_places()).unwrap_or_default();
    let mut by_name = HashMap::new();
    for place in places {
        // Test files belong to the package or to its external tests. A name used in both has two locations.
        by_name.entry(place.name.clone()).and_modify(|known| *known = None).or_insert(Some(place));
    }
    let mut known = HashSet::new();
    let names = text.lines().filter_map(|line| name_in(line, |name| by_name.contains_key(name)));
    let names: Vec<&str> = names.filter(|name| known.insert(*name)).collect();
    let failure = (output.code != Some(0)).then(|| ListingError::of_exit(output));
    if names.is_empty() && failure.is_some() {
        return Err(match program {
            Some(_) => ListingError::of_recognized_exit(output),
            None => ListingError::of_exit(output),
        });
    }
    if program.is_none() && (names.is_empty() || failure.is_some()) {
        let line = scan::truncated(text.lines().next().unwrap_or_default(), 200);
        let reason = format!("expected a list of tests, found {line:?}");
        return Err(failure.unwrap_or(ListingError::NotThisFramework { framework, reason }));
    }
    let test = |name: &&str| {
        let place = by_name.get(*name).cloned().flatten();
        ListedTest {
            name: (*name).to_owned(),
            line: place.as_ref().map(|place| place.line),
            file: place.map(|place| place.file),
            ..ListedTest::default()
        }
    };
    Ok((names.iter().map(test).collect(), failure))
}

/// Returns the test name on a line of the listing. The program may have written output without a newline
/// before the first name; the name must then be one of its functions.
fn name_in(line: &str, is_function: impl Fn(&str) -> bool) -> Option<&str> {
    if is_test_name(line) {
        return Some(line);
    }
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let name = &line[line.trim_end_matches(is_part).len()..];
    (is_test_name(name) && is_function(name)).then_some(name)
}

#[cfg(test)]
mod cases {
    use super::*;

    fn printed(stdout: &str, code: i32) -> ListingOutput {
        ListingOutput { stdout: stdout.into(), code: Some(code), ..ListingOutput::default() }
    }

    #[test]
    fn tests_fuzz_tests_and_examples_are_listed_in_order() {
        let text =
            "set up\nTestAdd\nTest\nTesting\nTest_x\nTestÄ\nBenchmarkX\nFuzzX\nExample\nExample_a\nTestAdd\n";
        let (tests, failure) = read("go", &printed(text, 0), None).unwrap();
        assert_eq!(failure, None);
        let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["TestAdd", "Test", "Test_x", "TestÄ", "FuzzX", "Example", "Example_a"]);
    }

    #[test]
    fn program_without_tests_is_known_by_its_file_only() {
        let program = GoTestProgram::default();
        assert_eq!(read("go", &printed("", 0), Some(&program)).unwrap(), (Vec::new(), None));
        let other = read("go", &printed("usage: x\n", 0), None).unwrap_err();
        assert!(matches!(other, ListingError::NotThisFramework { .. }), "{other}");
        let died = read("go", &printed("", 2), Some(&program)).unwrap_err();
        assert!(died.is_of_framework(), "{died}");
        let (tests, failure) = read("go", &printed("TestAdd\n", 5), Some(&program)).unwrap();
        assert_eq!((tests.len(), failure.is_some()), (1, true), "it has listed before");
        assert!(!read("go", &printed("", 2), None).unwrap_err().is_of_framework());
    }

    #[test]
    fn name_may_follow_output_without_a_newline() {
        let is_function = |name: &str| name == "TestAdd";
        assert_eq!(name_in("set up, TestAdd", is_function), Some("TestAdd"));
        assert_eq!(name_in("TestOther", is_function), Some("TestOther"));
        for line in ["set up, TestOther", "MyTestAdd", "TestAdd.", "é", ""] {
            assert_eq!(name_in(line, is_function), None, "{line}");
        }
    }
}
