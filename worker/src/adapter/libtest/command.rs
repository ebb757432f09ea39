//! Commands of libtest programs, which accept names only on the command line.

use wire::control::{ListedTest, OsBytes};

use super::Libtest;
use crate::adapter::{CommandError, Invocation};

/// Environment variables that would reorder, filter, or change the format of the output; the last one is set
/// by libtest when it executes itself.
const UNSET: [&str; 6] = [
    "RUST_TEST_NOCAPTURE",
    "RUST_TEST_SHUFFLE",
    "RUST_TEST_SHUFFLE_SEED",
    "RUST_TEST_THREADS",
    "RUST_TEST_TIME_UNIT",
    "__RUST_TEST_INVOKE",
];

/// Limit of one name: Linux accepts no single argument above 131,072 bytes.
const NAME_BYTES: usize = 131_000;

/// Limit of all names: Linux accepts 2 MiB of arguments and environment with the usual stack limit; half of
/// that is left for the rest.
pub(super) const SELECTION_BYTES: usize = 1024 * 1024;

/// Returns the bytes that a name takes: itself, its terminator, and a pointer.
pub(super) fn selection_cost(name: &str) -> usize {
    name.len() + 1 + size_of::<usize>()
}

fn invocation(args: &[&str], is_unstable: bool) -> Invocation {
    let mut env: Vec<(OsBytes, Option<OsBytes>)> = UNSET.iter().map(|name| ((*name).into(), None)).collect();
    if is_unstable {
        env.push(("RUSTC_BOOTSTRAP".into(), Some("1".into())));
    }
    Invocation { args: args.iter().map(|arg| (*arg).into()).collect(), env, ..Invocation::default() }
}

/// Returns the listing commands: as JSON, then for programs without JSON all names, then the ignored ones.
pub(super) fn listings() -> Vec<Invocation> {
    vec![
        invocation(&["-Z", "unstable-options", "--list", "--format", "json"], true),
        invocation(&["--list", "--format", "terse"], false),
        invocation(&["--list", "--format", "terse", "--ignored"], false),
    ]
}

/// Returns the command that runs these tests. It uses one thread, so that the running test is known.
pub(super) fn run(form: Libtest, tests: &[&ListedTest]) -> Result<Invocation, CommandError> {
    let mut command = match form {
        Libtest::Events => {
            let flags = ["-Z", "unstable-options", "--format", "json", "--report-time", "--test-threads=1"];
            invocation(&flags, true)
        }
        // Output is not captured: captured output is printed only after the last test, and lost in a crash.
        Libtest::Plain => invocation(&["--test-threads=1", "--color=never", "--nocapture"], false),
    };
    command.args.push("--exact".into());
    // A name may begin with a dash in harnesses that imitate libtest.
    command.args.push("--".into());
    for (place, test) in tests.iter().enumerate() {
        if let Some(reason) = unselectable(&test.name) {
            return Err(CommandError::Unselectable { place, reason });
        }
        command.args.push(test.name.as_str().into());
    }
    Ok(command)
}

fn unselectable(name: &str) -> Option<String> {
    if name.len() > NAME_BYTES {
        return Some(format!("its name has {} bytes, and an argument takes {NAME_BYTES}", name.len()));
    }
    name.contains('\0').then(|| "its name holds a zero byte, which no argument can".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beyond_an_argument_is_told_with_its_place() {
        let test = |name: String| ListedTest { name, ..ListedTest::default() };
        let (short, long) = (test("a".into()), test("b".repeat(NAME_BYTES + 1)));
        let error = run(Libtest::Events, &[&short, &long]).unwrap_err();
        let CommandError::Unselectable { place, reason } = error;
        assert_eq!((place, reason.contains("131001 bytes")), (1, true));
        assert_eq!(run(Libtest::Plain, &[&short]).unwrap().args.last(), Some(&"a".into()));
    }
}
