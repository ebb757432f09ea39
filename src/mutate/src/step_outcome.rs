//! Interprets the end of a mutant's process.

use heeler_core::{Outcome, TestResult};

use crate::runtime::{HIT_LIMIT_EXIT_CODE, STEP_LIMIT_EXIT_CODE};

/// Maximum number of characters kept of a reason.
const REASON_CHARS: usize = 1000;

/// Signals that end a C program at its limits.
const HIT_LIMIT_SIGNAL: &str = "SIGVTALRM";
const STEP_LIMIT_SIGNAL: &str = "SIGPROF";
/// Signals that may come from another process: an operator, the kernel's out-of-memory killer, or a cleanup
/// script. Programs rarely end themselves with one.
const FOREIGN_SIGNALS: [&str; 5] = ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"];

/// How a process with a mutant ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// All tests of the process passed.
    Passed,
    /// A test failed, or the process died in it.
    Failed { test: String, reason: String },
    /// The process died from a signal that another process may have sent, in this test if known.
    Signalled { test: Option<String>, reason: String },
    /// The process reached its mutant too often, in this test if known.
    HitLimit { test: Option<String> },
    /// The process reached too many places, in this test if known.
    StepLimit { test: Option<String> },
    /// The process was idle for too long, or exceeded its total timeout.
    Silent { reason: String },
    /// The process died before its first test.
    DiedEarly { reason: String },
    /// The cause is unknown: the process did not run, or was cancelled.
    Unknown { reason: String },
}

impl StepOutcome {
    /// Returns the outcome of a process from the combined result of its tests.
    #[must_use]
    pub fn of(result: &TestResult) -> Self {
        let reason = || cut(result.message().as_deref().unwrap_or_else(|| result.outcome.label()));
        let code = result.exit_reason.as_ref().and_then(|exit| exit.code);
        let signal = result.exit_reason.as_ref().and_then(|exit| exit.signal.as_deref());
        // The failed test, or the test that was running when the process ended.
        let test = result.parts.last().map(|part| part.name.clone());
        match result.outcome {
            Outcome::Passed | Outcome::Flaky => Self::Passed,
            Outcome::Crashed | Outcome::OutOfMemory
                if signal.is_some_and(|signal| FOREIGN_SIGNALS.contains(&signal)) =>
            {
                Self::Signalled { test, reason: reason() }
            }
            Outcome::Failed | Outcome::Crashed | Outcome::ExitedEarly | Outcome::OutOfMemory => {
                match (code, signal, test) {
                    (Some(HIT_LIMIT_EXIT_CODE), _, test) | (_, Some(HIT_LIMIT_SIGNAL), test) => {
                        Self::HitLimit { test }
                    }
                    (Some(STEP_LIMIT_EXIT_CODE), _, test) | (_, Some(STEP_LIMIT_SIGNAL), test) => {
                        Self::StepLimit { test }
                    }
                    (.., Some(test)) => Self::Failed { test, reason: reason() },
                    (.., None) => Self::DiedEarly { reason: reason() },
                }
            }
            Outcome::TimedOut | Outcome::Idle => Self::Silent { reason: reason() },
            Outcome::Skipped
            | Outcome::Lost
            | Outcome::Interrupted
            | Outcome::Cancelled
            | Outcome::NotRun(_) => Self::Unknown { reason: reason() },
        }
    }
}

/// Trims a text and limits its length.
fn cut(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(REASON_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heeler_core::{ExitReason, Failure, NotRunReason, PartResult};

    fn result(outcome: Outcome, code: Option<i32>, part: Option<&str>) -> TestResult {
        let part = part.map(|name| PartResult { name: name.to_owned(), outcome: None, message: None });
        TestResult {
            exit_reason: Some(ExitReason { code, ..ExitReason::default() }),
            parts: part.into_iter().collect(),
            ..TestResult::with_reason(outcome, " why\n")
        }
    }

    #[test]
    fn every_outcome_of_a_process_has_a_meaning() {
        let reason = || "why".to_owned();
        let failed = |test: &str| StepOutcome::Failed { test: test.to_owned(), reason: reason() };
        let unknown = || StepOutcome::Unknown { reason: reason() };
        let not_run = Outcome::NotRun(NotRunReason::Unrunnable);
        for (outcome, code, part, expected) in [
            (Outcome::Passed, None, None, StepOutcome::Passed),
            (Outcome::Flaky, None, None, StepOutcome::Passed),
            (Outcome::Failed, None, Some("a"), failed("a")),
            (Outcome::Crashed, None, Some("a"), failed("a")),
            (Outcome::OutOfMemory, None, Some("a"), failed("a")),
            (Outcome::ExitedEarly, Some(3), Some("a"), failed("a")),
            (Outcome::ExitedEarly, Some(87), Some("a"), StepOutcome::HitLimit { test: Some("a".into()) }),
            (Outcome::ExitedEarly, Some(87), None, StepOutcome::HitLimit { test: None }),
            (Outcome::ExitedEarly, Some(88), Some("a"), StepOutcome::StepLimit { test: Some("a".into()) }),
            (Outcome::Crashed, None, None, StepOutcome::DiedEarly { reason: reason() }),
            (Outcome::TimedOut, None, Some("a"), StepOutcome::Silent { reason: reason() }),
            (Outcome::Idle, None, None, StepOutcome::Silent { reason: reason() }),
            (Outcome::Skipped, None, None, unknown()),
            (Outcome::Lost, None, Some("a"), unknown()),
            (Outcome::Interrupted, None, None, unknown()),
            (Outcome::Cancelled, None, Some("a"), unknown()),
            (not_run, None, None, unknown()),
        ] {
            assert_eq!(StepOutcome::of(&result(outcome, code, part)), expected, "{outcome:?}");
        }
    }

    #[test]
    fn signals_of_others_say_nothing_of_the_mutant() {
        let died = |signal: &str, outcome: Outcome, part| TestResult {
            exit_reason: Some(ExitReason { signal: Some(signal.to_owned()), ..ExitReason::default() }),
            ..result(outcome, None, part)
        };
        let signalled = |test: Option<&str>| StepOutcome::Signalled {
            test: test.map(str::to_owned),
            reason: "why".to_owned(),
        };
        for signal in FOREIGN_SIGNALS {
            let died = |part| died(signal, Outcome::Crashed, part);
            assert_eq!(StepOutcome::of(&died(Some("a"))), signalled(Some("a")), "{signal}");
            assert_eq!(StepOutcome::of(&died(None)), signalled(None), "{signal}");
        }
        let out_of_memory = died("SIGKILL", Outcome::OutOfMemory, Some("a"));
        assert_eq!(StepOutcome::of(&out_of_memory), signalled(Some("a")), "perhaps the memory of another");
        // A test that had failed before counts as the failure.
        for (signal, outcome) in [("SIGSEGV", Outcome::Crashed), ("SIGKILL", Outcome::Failed)] {
            let failed = StepOutcome::Failed { test: "a".into(), reason: "why".into() };
            assert_eq!(StepOutcome::of(&died(signal, outcome, Some("a"))), failed);
        }
    }

    #[test]
    fn reason_is_the_message_of_the_failure() {
        let failure = Failure { message: Some("é".repeat(2000)), ..Failure::default() };
        let result =
            TestResult { reason: None, failures: vec![failure], ..result(Outcome::Failed, None, Some("a")) };
        let StepOutcome::Failed { reason, .. } = StepOutcome::of(&result) else { panic!("it failed") };
        assert_eq!(reason, format!("{}…", "é".repeat(1000)));
        let bare = TestResult { reason: None, ..result };
        let bare = TestResult { failures: Vec::new(), ..bare };
        assert_eq!(StepOutcome::of(&bare), StepOutcome::Failed { test: "a".into(), reason: "failed".into() });
    }
}
