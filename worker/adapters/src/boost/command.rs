//! Commands of Boost.Test programs. Tests are selected by their paths, several in one argument.

use heeler_protocol::control::{ListedTest, OsText};

use crate::{AdapterInvocation, BatchSelection, CommandLineError, SelectionScope};

/// Limit of the paths in one argument. Linux rejects arguments above 131,072 bytes.
const MAX_ARGUMENT_BYTES: usize = 100_000;
/// Limit of all paths of a command. Linux accepts 2 MiB of arguments and environment.
const MAX_SELECTION_BYTES: usize = 1_000_000;

/// Options of every run. Boost.Test must not catch signals, so that a crash stays a crash. The log goes to
/// standard output without `--log_sink`, because with that option `exit` in a test would crash in a
/// destructor.
const RUN_OPTIONS: [&str; 5] = [
    "--log_level=test_suite",
    "--log_format=HRF",
    "--color_output=no",
    "--report_level=no",
    "--catch_system_errors=no",
];

/// Environment variables that would select, reorder, redirect or silence tests.
const UNSET_VARIABLES: [&str; 9] = [
    "BOOST_TEST_LOGGER",
    "BOOST_TEST_LOG_FORMAT",
    "BOOST_TEST_LOG_LEVEL",
    "BOOST_TEST_LOG_SINK",
    "BOOST_TEST_OUTPUT_FORMAT",
    "BOOST_TEST_RANDOM",
    "BOOST_TEST_RESULT_CODE",
    "BOOST_TEST_RUN_FILTERS",
    "BOOST_TEST_SHOW_PROGRESS",
];

fn invocation(args: Vec<OsText>) -> AdapterInvocation {
    let env = UNSET_VARIABLES.iter().map(|name| ((*name).into(), None)).collect();
    AdapterInvocation { args, env, ..AdapterInvocation::default() }
}

pub(super) fn listing_command() -> AdapterInvocation {
    invocation(vec!["--list_content=DOT".into(), "--color_output=no".into()])
}

/// Returns whether a filter treats every character of the path literally.
fn is_selectable(test: &ListedTest) -> bool {
    !test.name.contains([',', ':', '*', '!', '@', '+', char::REPLACEMENT_CHARACTER])
}

/// Returns the number of tests, from the front, that one command can select.
pub(super) fn selectable_together(tests: &[&ListedTest]) -> usize {
    let mut budget = MAX_SELECTION_BYTES;
    let is_fitting = |test: &&&ListedTest| {
        let cost = test.name.len() + 1;
        let is_fitting = cost <= budget.min(MAX_ARGUMENT_BYTES);
        budget = budget.saturating_sub(cost);
        is_fitting
    };
    tests.iter().take_while(is_fitting).count()
}

pub(super) fn run_command(selection: &BatchSelection<'_>) -> Result<AdapterInvocation, CommandLineError> {
    let mut args: Vec<OsText> = RUN_OPTIONS.map(OsText::from).to_vec();
    if selection.scope == SelectionScope::WholeProgram {
        return Ok(invocation(args));
    }
    let mut paths = String::new();
    for (place, test) in selection.tests.iter().enumerate() {
        if !is_selectable(test) || test.name.len() > MAX_ARGUMENT_BYTES {
            let reason = "its path has characters that Boost.Test's filters cannot express".to_owned();
            return Err(CommandLineError::Unselectable { place, reason });
        }
        if !paths.is_empty() && paths.len() + test.name.len() >= MAX_ARGUMENT_BYTES {
            args.push(OsText::from(format!("--run_test={paths}").as_str()));
            paths.clear();
        }
        if !paths.is_empty() {
            paths.push(':');
        }
        paths.push_str(&test.name);
    }
    args.push(OsText::from(format!("--run_test={paths}").as_str()));
    Ok(invocation(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str) -> ListedTest {
        ListedTest { name: name.to_owned(), ..ListedTest::default() }
    }

    #[test]
    fn paths_are_joined_and_a_path_with_a_wildcard_is_refused_by_itself() {
        let (a, b, odd) = (test("s/a"), test("s/b<int>"), test("x*"));
        let (tests, with_odd) = ([&a, &b], [&a, &odd]);
        let scope = SelectionScope::SomeTests;
        let selection =
            BatchSelection { tests: &tests, scope, runs_ignored: false, follows_unclear_death: false };
        let command = run_command(&selection).unwrap();
        assert_eq!(command.args.last().unwrap().to_text(), "--run_test=s/a:s/b<int>");
        let error = run_command(&BatchSelection { tests: &with_odd, ..selection }).unwrap_err();
        assert!(matches!(error, CommandLineError::Unselectable { place: 1, .. }), "{error}");
    }

    #[test]
    fn arguments_stay_below_the_limit_of_the_system() {
        let tests: Vec<_> = (0..60_000).map(|number| test(&format!("suite/case_{number}"))).collect();
        let all: Vec<_> = tests.iter().collect();
        let count = selectable_together(&all);
        assert!((20_000..60_000).contains(&count), "{count}");
        let selection = BatchSelection {
            tests: &all[..count],
            scope: SelectionScope::SomeTests,
            runs_ignored: false,
            follows_unclear_death: false,
        };
        let command = run_command(&selection).unwrap();
        assert!(command.args.iter().all(|arg| arg.as_bytes().len() < 131_000));
    }
}
