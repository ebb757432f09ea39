//! Sample starts and results of tests of the suite `core`, for tests of the display.
#![cfg(test)]

use std::time::Instant;

use heeler_core::{
    Attempt, ExitReason, Failure, IsolatedRerun, NotRunReason, Outcome, TestDiagnostics, TestResult,
    shell_words::quote,
};
use heeler_protocol::mtp::NodeDescription;
use heeler_report::{RunSummary, TestReport};

use super::{RunDisplay, StartedTest};

#[derive(Clone)]
pub(super) enum TestEvent {
    Started(StartedTest),
    Ended(TestReport),
}

impl TestEvent {
    pub(super) fn show(&self, display: &mut RunDisplay, now: Instant) {
        match self {
            Self::Started(test) => display.start_test(test, now),
            Self::Ended(report) => display.end_test(report, now),
        }
    }

    pub(super) fn count(&self, summary: &mut RunSummary) {
        match self {
            Self::Started(test) => drop(summary.start(&test.uid)),
            Self::Ended(report) => summary.add_reports([report.clone()]),
        }
    }
}

pub(super) fn show_all(display: &mut RunDisplay, events: &[TestEvent], now: Instant) {
    events.iter().for_each(|event| event.show(display, now));
}

pub(super) fn count_all(summary: &mut RunSummary, events: &[TestEvent]) {
    events.iter().for_each(|event| event.count(summary));
}

pub(super) fn ended(name: &str, result: TestResult) -> TestEvent {
    ended_at(name, None, result)
}

fn ended_at(name: &str, place: Option<(&str, u32)>, result: TestResult) -> TestEvent {
    let uid = format!("core::{name}");
    let test = NodeDescription {
        uid: &uid,
        display_name: name,
        suite: "core",
        file: place.map(|(file, _)| file),
        line: place.map(|(_, line)| line),
        ..NodeDescription::default()
    };
    let reproduce = result.reproduce.clone().or_else(|| Some(format!("./core --exact {name}")));
    TestEvent::Ended(TestReport::from_result(&test, &TestResult { reproduce, ..result }))
}

pub(super) fn of_outcome(name: &str, outcome: Outcome) -> TestEvent {
    ended(name, TestResult::new(outcome))
}

pub(super) fn begun(name: &str, worker: u32) -> TestEvent {
    let uid = format!("core::{name}");
    TestEvent::Started(StartedTest { uid, suite: Some("core".into()), name: name.into(), worker })
}

pub(super) fn passed(name: &str, milliseconds: u64) -> TestEvent {
    ended(name, TestResult { duration_us: Some(1000 * milliseconds), ..TestResult::new(Outcome::Passed) })
}

fn died(signal: Option<&str>, code: Option<i32>) -> Option<ExitReason> {
    Some(ExitReason { signal: signal.map(str::to_owned), code, ..ExitReason::default() })
}

pub(super) fn results_of_every_kind() -> Vec<TestEvent> {
    let not_run = || {
        let outcome = Outcome::NotRun(NotRunReason::Unrunnable);
        TestResult::with_reason(outcome, "core died 3 times before its first test")
    };
    let fails = TestResult {
        duration_us: Some(75_000),
        stdout: "\u{1b}[32mchecking\u{1b}[0m\u{1b}[2J 1\n::error::forged\n".into(),
        stderr: "panicked at src/math.rs:12:\nassertion `left == right` failed\n  left: 1\n right: 2\n"
            .into(),
        ..TestResult::with_reason(Outcome::Failed, "assertion `left == right` failed\n  left: 1\n right: 2")
    };
    let stack =
        TestDiagnostics { stack: "#0 core::crash::null\n#1 main".into(), ..TestDiagnostics::default() };
    let crashes = TestResult {
        duration_us: Some(412_000),
        exit_reason: died(Some("SIGSEGV"), None),
        isolated_rerun: Some(IsolatedRerun::Crashes),
        diagnostics: Some(Box::new(stack)),
        ..TestResult::with_reason(Outcome::Crashed, "killed by SIGSEGV")
    };
    let leaves = TestResult {
        exit_reason: died(None, Some(0)),
        ..TestResult::with_reason(Outcome::ExitedEarly, "the process left with code 0 under the test")
    };
    let hangs = TestResult {
        duration_us: Some(62_000_000),
        ..TestResult::with_reason(Outcome::TimedOut, "ran longer than 1m 00s")
    };
    let earlier = Attempt::new(Outcome::Failed, "no");
    let flaky = TestResult {
        duration_us: Some(1_200_000),
        attempts: vec![earlier],
        ..TestResult::new(Outcome::Flaky)
    };
    let unequal = Failure {
        message: Some("Expected equality".into()),
        expected: Some("3".into()),
        actual: Some("4".into()),
        ..Failure::default()
    };
    let named = TestResult {
        reproduce: Some(format!("./core --exact {}", quote(b"a name\nwith a newline"))),
        failures: vec![unequal],
        ..TestResult::new(Outcome::Failed)
    };
    let program = TestResult {
        exit_reason: died(None, Some(1)),
        ..TestResult::with_reason(Outcome::ExitedEarly, "left with code 1 after its last test")
    };
    let mut program = ended("", program);
    if let TestEvent::Ended(report) = &mut program {
        report.uid = "core".into();
        report.is_group = true;
    }
    vec![
        passed("math::adds", 4),
        ended_at("math::fails", Some(("/w/src/math.rs", 12)), fails),
        ended("crash::null", crashes),
        ended("exit::leaves", leaves),
        ended("hangs", hangs),
        ended("ignored", TestResult::with_reason(Outcome::Skipped, "needs net")),
        ended("net::flaky", flaky),
        ended("a name\nwith a newline", named),
        ended("waits::one", not_run()),
        ended("waits::two", not_run()),
        program,
    ]
}
