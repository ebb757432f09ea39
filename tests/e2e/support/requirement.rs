//! Requirements of some tests: tools that `scripts/test` installs, and privileges. If one is missing, the
//! test, or part of it, is skipped and counted. With `HEELER_TESTS_REQUIRE=all`, it fails instead.

use std::{backtrace::Backtrace, fs::OpenOptions, io::Write as _, path::PathBuf};

/// Reports that the calling test, or part of it, is skipped because the machine lacks `what`. `hint` says how
/// to install it. The caller must return.
///
/// # Panics
///
/// If nothing may be skipped (`HEELER_TESTS_REQUIRE=all`).
#[track_caller]
pub(crate) fn leave_out(what: &str, hint: &str) {
    let is_required = std::env::var_os("HEELER_TESTS_REQUIRE").is_some_and(|required| required == "all");
    assert!(!is_required, "{what} is missing, and HEELER_TESTS_REQUIRE is all: {hint}");
    let test = calling_test();
    // Written directly, because the test harness would capture `eprintln!`.
    let note = format!("{test}, or a part of it, is left out: {what} is missing: {hint}\n");
    std::io::stderr().write_all(note.as_bytes()).expect("standard error is open");
    if let Some(list) = std::env::var_os("HEELER_TESTS_LEFT_OUT") {
        let mut file = OpenOptions::new().append(true).create(true).open(list).unwrap();
        file.write_all(format!("{what}\t{test}\n").as_bytes()).unwrap();
    }
}

/// Returns the name of the calling test: the outermost function of this crate in the backtrace. The thread
/// name is not reliable, because libtest names threads after tests only if several tests run in parallel.
fn calling_test() -> String {
    let stack = Backtrace::force_capture().to_string();
    let own = |line: &str| {
        let (_, function) = line.trim_start().split_once(": ")?;
        let own = function.strip_prefix(env!("CARGO_CRATE_NAME"))?.strip_prefix("::")?;
        (own != "main").then(|| own.to_owned())
    };
    let outermost = stack.lines().rev().find_map(own).unwrap_or_else(|| "a test".to_owned());
    outermost.trim_end_matches("::{{closure}}").to_owned()
}

/// Returns the directory in this variable, which `scripts/test` sets, or `None` if the test must be skipped.
#[track_caller]
pub(crate) fn directory_of(variable: &str, what: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    if found.is_none() {
        leave_out(what, &format!("{variable} names no directory with it; scripts/test makes one"));
    }
    found
}

/// Returns the directory in `PATH` that contains a program, or `None` if the test must be skipped.
#[track_caller]
pub(crate) fn directory_of_program(program: &str, hint: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).find(|directory| directory.join(program).is_file());
    if found.is_none() {
        leave_out(program, hint);
    }
    found
}
