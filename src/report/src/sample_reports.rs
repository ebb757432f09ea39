//! Sample reports of tests in the suite `core`, for the tests of this crate.
#![cfg(test)]

use heeler_core::{Attempt, ExitReason, Failure, Outcome, TestDiagnostics, TestResult};
use heeler_protocol::mtp::NodeDescription;

use crate::TestReport;

/// Returns the report of a test with only an outcome and a duration of 1.5 s.
pub(super) fn report(name: &str, outcome: Outcome) -> TestReport {
    result_report(name, TestResult::new(outcome))
}

pub(super) fn reason_report(name: &str, outcome: Outcome, reason: &str) -> TestReport {
    result_report(name, TestResult::with_reason(outcome, reason))
}

/// Returns the report of a result whose test has no known definition.
pub(super) fn result_report(name: &str, result: TestResult) -> TestReport {
    located_report(name, None, result)
}

/// Returns the report of a result whose test is defined at `place`.
pub(super) fn located_report(name: &str, place: Option<(&str, u32)>, result: TestResult) -> TestReport {
    let uid = format!("core::{name}");
    let test = NodeDescription {
        uid: &uid,
        display_name: name,
        suite: "core",
        file: place.map(|(file, _)| file),
        line: place.map(|(_, line)| line),
        ..NodeDescription::default()
    };
    TestReport::from_result(&test, &TestResult { duration_us: Some(1_500_000), ..result })
}

/// Returns a failure at a line of `x.cc`.
pub(super) fn failure(message: &str, line: u32) -> Failure {
    Failure {
        message: Some(message.into()),
        file: Some("x.cc".into()),
        line: Some(line),
        ..Failure::default()
    }
}

/// Returns a failed comparison of 1 with 2.
pub(super) fn unequal() -> Failure {
    Failure { expected: Some("2".into()), actual: Some("1".into()), ..Failure::default() }
}

pub(super) fn failed(failures: Vec<Failure>) -> TestResult {
    TestResult { failures, ..TestResult::new(Outcome::Failed) }
}

/// Returns the exit reason of a process that a signal killed.
pub(super) fn killed_by(signal: &str) -> Option<ExitReason> {
    Some(ExitReason { signal: Some(signal.into()), ..ExitReason::default() })
}

/// Returns the result of a crash with a stack, in worker 2.
pub(super) fn crashed() -> TestResult {
    let stack = TestDiagnostics { stack: "#0 main".into(), ..TestDiagnostics::default() };
    TestResult {
        exit_reason: killed_by("SIGSEGV"),
        diagnostics: Some(Box::new(stack)),
        worker: Some(2),
        ..TestResult::with_reason(Outcome::Crashed, "killed by SIGSEGV")
    }
}

/// Returns the result of a test that passed after a crash.
pub(super) fn flaky() -> TestResult {
    let attempt = Attempt {
        exit_reason: killed_by("SIGABRT"),
        stdout: "o".into(),
        duration_us: 2000,
        ..Attempt::new(Outcome::Crashed, "died")
    };
    TestResult { attempts: vec![attempt], ..TestResult::new(Outcome::Flaky) }
}
