//! Commands of Catch2 programs. Tests are selected by patterns in a file, one per line. Catch2 compares each
//! of its tests with each pattern, so a run of the whole program gets no patterns.

use std::path::Path;

use heeler_protocol::control::{ListedTest, OsText};

use super::{
    selector::{self, TestSelector},
    shards,
};
use crate::{AdapterInvocation, BatchSelection, CommandLineError, SelectionScope};

/// Maximum size of the patterns passed in one argument, as patterns that span several lines must be. Linux
/// rejects arguments above 131,072 bytes.
const MAX_ARGUMENT_BYTES: usize = 120_000;

/// Bazel variables that would make Catch2 add a reporter or select only some tests.
const UNSET_VARIABLES: [&str; 6] = [
    "BAZEL_TEST",
    "TESTBRIDGE_TEST_ONLY",
    "TEST_SHARD_INDEX",
    "TEST_SHARD_STATUS_FILE",
    "TEST_TOTAL_SHARDS",
    "XML_OUTPUT_FILE",
];

/// Options of every command.
const OPTIONS: [&str; 4] = ["--order", "decl", "--durations", "yes"];

/// Returns a listing command with these arguments. Listings use the same options as runs. Tests are therefore
/// listed in run order, and an option that the program's own arguments repeat already fails the listing.
pub(super) fn listing_invocation(args: &[&str], reporter: &str) -> AdapterInvocation {
    invocation(&[args, &OPTIONS, &["--reporter", reporter]].concat())
}

fn invocation(args: &[&str]) -> AdapterInvocation {
    AdapterInvocation {
        args: args.iter().map(|arg| OsText::from(*arg)).collect(),
        env: UNSET_VARIABLES.iter().map(|name| ((*name).into(), None)).collect(),
        ..AdapterInvocation::default()
    }
}

/// Returns the test of a process that runs only one test. Catch2 reports this run as text for people and does
/// not capture its output.
pub(super) fn only_test<'a>(tests: &[&'a ListedTest]) -> Option<&'a ListedTest> {
    match tests {
        // A multi-line name would span several lines of the report.
        [test] if TestSelector::of(test).is_exact && !test.name.contains('\n') => Some(test),
        _ => None,
    }
}

/// Returns the number of tests, from the front, that one command can select.
pub(super) fn selectable_together(tests: &[&ListedTest]) -> usize {
    if let Some(count) = shards::selectable_together(tests.iter().map(|test| TestSelector::place_of(test))) {
        return count;
    }
    let mut budget = MAX_ARGUMENT_BYTES;
    let is_fitting = |test: &&&ListedTest| {
        let pattern = pattern(test);
        let cost = if is_line(&pattern) { 0 } else { pattern.len() + 1 };
        let is_fitting = cost <= budget;
        budget = budget.saturating_sub(cost);
        is_fitting
    };
    tests.iter().take_while(is_fitting).count()
}

/// Returns whether the pattern of a test selects only this test.
pub(super) fn is_selected_alone(test: &ListedTest) -> bool {
    TestSelector::of(test).is_exact
}

/// Returns the tags of a test as a pattern. Tests with equal names have different tags.
pub(super) fn tags(test: &ListedTest) -> String {
    test.traits.iter().filter(|one| one.name == "tag").map(|one| format!("[{}]", one.value)).collect()
}

pub(super) fn pattern(test: &ListedTest) -> Vec<u8> {
    selector::pattern(&TestSelector::of(test).name)
}

/// Returns whether a pattern fits on one line of a file.
fn is_line(pattern: &[u8]) -> bool {
    !pattern.contains(&b'\n')
}

/// Returns the command that runs these tests; `own` are the program's own arguments.
pub(super) fn run_command(
    own: &[OsText],
    selection: &BatchSelection<'_>,
    scratch: &Path,
) -> Result<AdapterInvocation, CommandLineError> {
    let is_file_option =
        |arg: &&OsText| arg.as_bytes() == b"-f" || arg.as_bytes().starts_with(b"--input-file");
    // Listings do not use this option, so no listing has rejected a second one.
    if let Some(option) = own.iter().find(is_file_option) {
        let option = option.to_text();
        let reason =
            format!("remove {option} from the program's arguments: Heeler passes this option itself");
        return Err(CommandLineError::Unselectable { place: 0, reason });
    }
    let reporter = if only_test(selection.tests).is_some() { "console" } else { "xml" };
    let mut invocation = invocation(&OPTIONS);
    invocation.args.extend(["--reporter".into(), reporter.into()]);
    // Without patterns, Catch2 runs all tests that are not hidden.
    if selection.scope == SelectionScope::WholeProgram {
        return Ok(invocation);
    }
    // A whole shard is selected by position.
    if let Some(shard) = shards::shard_of(selection.tests.iter().map(|test| TestSelector::place_of(test))) {
        let words = [("--shard-count", shard.count), ("--shard-index", shard.index)];
        for (word, number) in words {
            invocation.args.extend([word.into(), OsText::from(number.to_string())]);
        }
        return Ok(invocation);
    }
    // Other tests are selected by patterns: in a file, or in an argument for multi-line names.
    let (mut lines, mut argument) = (Vec::new(), Vec::new());
    for (place, test) in selection.tests.iter().enumerate() {
        let pattern = pattern(test);
        if is_line(&pattern) {
            lines.extend_from_slice(&pattern);
            lines.push(b'\n');
        } else if pattern.len() + argument.len() < MAX_ARGUMENT_BYTES {
            if !argument.is_empty() {
                argument.push(b',');
            }
            argument.extend_from_slice(&pattern);
        } else {
            let reason = "its multi-line name is too long for a command line".to_owned();
            return Err(CommandLineError::Unselectable { place, reason });
        }
    }
    if !lines.is_empty() {
        let file = scratch.join("catch2-tests");
        invocation.args.extend(["--input-file".into(), file.as_os_str().into()]);
        invocation.files.push((file, lines));
    }
    if !argument.is_empty() {
        // Without a leading comma, Catch2 would join the first pattern to the last line of the file.
        if !invocation.files.is_empty() {
            argument.insert(0, b',');
        }
        invocation.args.push(argument.into());
    }
    Ok(invocation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, selector: &str) -> ListedTest {
        ListedTest { name: name.into(), selector: Some(selector.into()), ..ListedTest::default() }
    }

    fn words(tests: &[&ListedTest], scope: SelectionScope) -> (String, String) {
        let selection = BatchSelection { tests, scope, runs_ignored: false, follows_unclear_death: false };
        let command = run_command(&[], &selection, Path::new("/s")).unwrap();
        let args: Vec<_> = command.args[OPTIONS.len()..].iter().map(OsText::to_text).collect();
        let lines = command.files.iter().map(|(_, text)| String::from_utf8(text.clone()).unwrap()).collect();
        (args.join(" "), lines)
    }

    #[test]
    fn whole_program_gets_no_pattern_and_a_lone_test_the_report_for_people() {
        let (a, b, twin) = (test("a", "="), test("b\nc", "="), test("A", "~"));
        assert_eq!(words(&[&a, &b], SelectionScope::WholeProgram), ("--reporter xml".into(), String::new()));
        let file = "--input-file /s/catch2-tests";
        let some = SelectionScope::SomeTests;
        assert_eq!(
            words(&[&a, &b], some),
            (format!("--reporter xml {file} ,\"b\nc\""), "\"a\"\n".to_owned())
        );
        assert_eq!(words(&[&a], some), (format!("--reporter console {file}"), "\"a\"\n".to_owned()));
        assert_eq!(words(&[&b], some), ("--reporter xml \"b\nc\"".to_owned(), String::new()));
        assert_eq!(words(&[&twin], some), (format!("--reporter xml {file}"), "\"A\"\n".to_owned()));
    }

    #[test]
    fn part_of_a_large_program_is_a_shard() {
        let place = |index: usize| test(&format!("case {index}"), &format!("=@{index}/4000"));
        let rest: Vec<_> = (2100..4000).map(place).collect();
        let rest: Vec<_> = rest.iter().collect();
        let some = SelectionScope::SomeTests;
        let first = selectable_together(&rest);
        let (args, lines) = words(&rest[..first], some);
        assert_eq!(
            (args.as_str(), lines.lines().count()),
            ("--reporter xml --input-file /s/catch2-tests", first)
        );
        let second = selectable_together(&rest[first..]);
        let (args, lines) = words(&rest[first..first + second], some);
        assert!(args.starts_with("--reporter xml --shard-count ") && lines.is_empty(), "{args} {lines}");
    }

    #[test]
    fn names_of_several_lines_stay_below_the_limit_of_an_argument() {
        let tests: Vec<_> = (0..20_000).map(|number| test(&format!("case\n{number}"), "=")).collect();
        let all: Vec<_> = tests.iter().collect();
        let count = selectable_together(&all);
        assert!((5_000..20_000).contains(&count), "{count}");
        let selection = BatchSelection {
            tests: &all[..count],
            scope: SelectionScope::SomeTests,
            runs_ignored: false,
            follows_unclear_death: false,
        };
        let command = run_command(&[], &selection, Path::new("/s")).unwrap();
        assert!(command.args.iter().all(|arg| arg.as_bytes().len() < 131_000));
        let long = test(&format!("a\n{}", "x".repeat(200_000)), "=");
        let tests = [&all[0], &&long].map(|test| *test);
        assert_eq!(selectable_together(&tests), 1);
        let selection = BatchSelection {
            tests: &tests,
            scope: SelectionScope::SomeTests,
            runs_ignored: false,
            follows_unclear_death: false,
        };
        let error = run_command(&[], &selection, Path::new("/s")).unwrap_err();
        assert!(matches!(error, CommandLineError::Unselectable { place: 1, .. }), "{error}");
    }
}
