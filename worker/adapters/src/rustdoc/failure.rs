//! Failure of a documentation test, from rustdoc's standard error.

use heeler_core::Failure;

use crate::{FrameworkVerdict, libtest, scan::truncated};

const MESSAGE_BYTES: usize = 64 * 1024;
/// Messages of rustdoc for a test that did not behave as its attributes require, or that died.
const REASONS: [&str; 5] = [
    "Test executable failed (signal:",
    "Test compiled successfully, but it's marked `compile_fail`.",
    "Test executable succeeded, but it's marked `should_panic`.",
    "Some expected error codes were not found:",
    "Test executable failed",
];

/// Adds the failure message of a test.
pub(super) fn add_failure(verdict: &mut FrameworkVerdict, _name: &str, stderr: &str) {
    if verdict.failures.is_empty() {
        verdict.push_failure(read_failure(stderr));
    }
}

fn read_failure(stderr: &str) -> Failure {
    let said = REASONS.iter().find_map(|reason| stderr.lines().find(|line| line.starts_with(reason)));
    let is_signal = said.is_some_and(|line| line.starts_with(REASONS[0]));
    let panic = libtest::read_panic_of(stderr);
    match (panic.message.is_some(), compile_error(stderr)) {
        // The location of a panic is in the program that rustdoc generated from the test.
        (true, _) if !is_signal => Failure { file: None, line: None, ..panic },
        (_, Some(error)) if stderr.contains("Couldn't compile the test.") => error,
        _ => Failure { message: Some(said.unwrap_or("doctest failed").to_owned()), ..Failure::default() },
    }
}

/// Returns the first compiler error with its location: `error[E0308]: …`, then `  --> FILE:LINE:COLUMN`.
fn compile_error(stderr: &str) -> Option<Failure> {
    let mut lines = stderr.lines().skip_while(|line| !line.starts_with("error"));
    let message = truncated(lines.next()?, MESSAGE_BYTES).to_owned();
    let place = lines.next().and_then(|line| line.trim_start().strip_prefix("--> "));
    let (file, line) = place.and_then(parse_place).unzip();
    Some(Failure { message: Some(message), file, line, ..Failure::default() })
}

fn parse_place(place: &str) -> Option<(String, u32)> {
    let (rest, _column) = place.rsplit_once(':')?;
    let (file, line) = rest.rsplit_once(':')?;
    Some((file.to_owned(), line.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_has_its_message() {
        let panic = "Test executable failed (exit status: 101).\n\nstderr:\n\n\
                     thread 'main' (15) panicked at src/lib.rs:6:1:\n\
                     assertion `left == right` failed: one is not two\n  left: 1\n right: 2\n";
        let failure = read_failure(panic);
        assert!(failure.message.unwrap().starts_with("assertion `left == right` failed"));
        assert_eq!((failure.file, failure.actual.as_deref()), (None, Some("1")));
        let error =
            "error[E0308]: mismatched types\n  --> src/lib.rs:44:13\n   |\nCouldn't compile the test.";
        let failure = read_failure(error);
        assert_eq!(failure.place().unwrap().to_string(), "src/lib.rs:44");
        assert_eq!(failure.message.as_deref(), Some("error[E0308]: mismatched types"));
        for line in [
            "Test executable failed (signal: 6 (SIGABRT)).",
            "Test compiled successfully, but it's marked `compile_fail`.",
            "Test executable succeeded, but it's marked `should_panic`.",
        ] {
            assert_eq!(read_failure(line).message.as_deref(), Some(line));
        }
        assert_eq!(read_failure("").message.as_deref(), Some("doctest failed"));
    }
}
