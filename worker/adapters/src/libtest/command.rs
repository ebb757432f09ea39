//! Commands of libtest programs, which accept names only as arguments.

use heeler_protocol::control::OsText;

use super::LibtestFormat;
use crate::{AdapterInvocation, BatchSelection, CommandLineError, InvocationChannel, SelectionScope};

/// Environment variables that would reorder or filter tests or change the output format. libtest sets the
/// last one when it executes itself.
const UNSET_VARIABLES: [&str; 6] = [
    "RUST_TEST_NOCAPTURE",
    "RUST_TEST_SHUFFLE",
    "RUST_TEST_SHUFFLE_SEED",
    "RUST_TEST_THREADS",
    "RUST_TEST_TIME_UNIT",
    "__RUST_TEST_INVOKE",
];

/// Limit of one name. Linux rejects single arguments above 131,072 bytes.
const MAX_NAME_BYTES: usize = 131_000;

/// Limit of all names. With the usual stack limit, Linux accepts 2 MiB of arguments and environment; half of
/// it is left for everything else.
pub(super) const MAX_SELECTION_BYTES: usize = 1024 * 1024;

/// Returns the environment changes of every command.
pub(crate) fn unset_variables() -> Vec<(OsText, Option<OsText>)> {
    UNSET_VARIABLES.iter().map(|name| ((*name).into(), None)).collect()
}

fn invocation(args: &[&str], is_unstable: bool) -> AdapterInvocation {
    let mut env = unset_variables();
    if is_unstable {
        env.push(("RUSTC_BOOTSTRAP".into(), Some("1".into())));
    }
    AdapterInvocation {
        args: args.iter().map(|arg| (*arg).into()).collect(),
        env,
        ..AdapterInvocation::default()
    }
}

pub(super) fn json_listing() -> AdapterInvocation {
    invocation(&["-Z", "unstable-options", "--list", "--format", "json"], true)
}

/// Returns the listing commands for programs without JSON support: all names, then the ignored names.
pub(super) fn terse_listings() -> [AdapterInvocation; 2] {
    [
        invocation(&["--list", "--format", "terse"], false),
        invocation(&["--list", "--format", "terse", "--ignored"], false),
    ]
}

/// Returns the command that runs these tests on one thread, so that the running test is always known.
pub(super) fn run_command(
    form: LibtestFormat,
    selection: &BatchSelection<'_>,
) -> Result<AdapterInvocation, CommandLineError> {
    let mut command = match form {
        LibtestFormat::Events => {
            let flags = ["-Z", "unstable-options", "--format", "json", "--report-time", "--test-threads=1"];
            let mut command = invocation(&flags, true);
            // libtest keeps captured output in memory until the test ends, so a test that dies or hangs would
            // lose its output.
            if selection.scope != SelectionScope::TestsOfVariant {
                command.args.push("--nocapture".into());
                // Panics go to standard error. With two pipes they could not be attributed to a test. A
                // single test needs no attribution.
                if selection.tests.len() > 1 {
                    command.channel = InvocationChannel::CombinedOutput;
                }
            }
            command
        }
        // No capture: captured output is printed only after the last test, and a crash loses it.
        LibtestFormat::Plain => invocation(&["--test-threads=1", "--color=never", "--nocapture"], false),
    };
    if selection.runs_ignored {
        command.args.push("--include-ignored".into());
    }
    command.args.push("--exact".into());
    // Names may begin with a dash in harnesses that imitate libtest.
    command.args.push("--".into());
    for (place, test) in selection.tests.iter().enumerate() {
        if let Some(reason) = unselectable(&test.name) {
            return Err(CommandLineError::Unselectable { place, reason });
        }
        command.args.push(test.name.as_str().into());
    }
    Ok(command)
}

fn unselectable(name: &str) -> Option<String> {
    if name.len() > MAX_NAME_BYTES {
        return Some(format!(
            "its name has {} bytes, more than the {MAX_NAME_BYTES} bytes allowed in an argument",
            name.len()
        ));
    }
    name.contains('\0').then(|| "its name contains a NUL byte, which arguments cannot".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use heeler_protocol::control::ListedTest;

    fn command_of(form: LibtestFormat, tests: &[&ListedTest]) -> Result<AdapterInvocation, CommandLineError> {
        run_command(
            form,
            &BatchSelection {
                tests,
                scope: SelectionScope::SomeTests,
                runs_ignored: false,
                follows_unclear_death: false,
            },
        )
    }

    #[test]
    fn overlong_name_error_has_its_index() {
        let test = |name: String| ListedTest { name, ..ListedTest::default() };
        let (short, long) = (test("a".into()), test("b".repeat(MAX_NAME_BYTES + 1)));
        let error = command_of(LibtestFormat::Events, &[&short, &long]).unwrap_err();
        let CommandLineError::Unselectable { place, reason } = error;
        assert_eq!((place, reason.contains("131001 bytes")), (1, true));
        assert_eq!(command_of(LibtestFormat::Plain, &[&short]).unwrap().args.last(), Some(&"a".into()));
    }

    #[test]
    fn output_is_not_captured_and_that_of_several_tests_is_one_stream() {
        let test = |name: &str| ListedTest { name: name.to_owned(), ..ListedTest::default() };
        let (one, other) = (test("a"), test("b"));
        let is_shown = |command: &AdapterInvocation| command.args.contains(&"--nocapture".into());
        let alone = command_of(LibtestFormat::Events, &[&one]).unwrap();
        let together = command_of(LibtestFormat::Events, &[&one, &other]).unwrap();
        assert!(is_shown(&alone) && is_shown(&together));
        let channels = (alone.channel, together.channel);
        assert_eq!(channels, (InvocationChannel::StandardOutput, InvocationChannel::CombinedOutput));
        let variant = BatchSelection {
            tests: &[&one],
            scope: SelectionScope::TestsOfVariant,
            runs_ignored: false,
            follows_unclear_death: false,
        };
        assert!(!is_shown(&run_command(LibtestFormat::Events, &variant).unwrap()), "it is not asked for");
    }
}
