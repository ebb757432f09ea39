//! Decides the result of one test from how it ended and from what happened before: earlier attempts, or the
//! crash that an isolated rerun checks. Pure; the messages that users read about crashes are here.

use std::{fmt::Write as _, time::Duration};

use heeler_protocol::{
    control::{Attempt, ExitReason, LeasedTest, TestDiagnostics},
    mtp::ExecutionState,
};

use crate::output_capture::truncate_text;
use crate::update_batch::ProvisionalMark;
use heeler_adapters::{FrameworkResult, FrameworkVerdict, TestPart};

/// An attempt travels to the coordinator and comes back with the next lease, so its texts are truncated
/// again.
const ATTEMPT_TEXT_BYTES: u64 = 64 << 10;

/// How a test ended.
#[derive(Debug)]
pub(crate) enum TestEnding {
    /// Its framework reported a result.
    Verdict(FrameworkVerdict),
    /// Its process ended while it was running.
    Died {
        exit_reason: ExitReason,
        /// Its framework wrote an end marker for it, but no later output confirmed that.
        is_after_end_marker: bool,
    },
    /// It exceeded its time limit.
    TimedOut(Duration),
    /// It exceeded its idle timeout.
    Idle(Duration),
    /// The user cancelled it.
    Cancelled,
}

/// Output and evidence of a test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TestOutputs {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Dumps and stacks captured while its process died or hung.
    pub(crate) evidence: Option<Box<TestDiagnostics>>,
    /// Parts of the test that began, with their results.
    pub(crate) parts: Vec<TestPart>,
}

/// A terminal result, without the test that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FinalResult {
    pub(crate) state: ExecutionState,
    pub(crate) kind: Option<&'static str>,
    pub(crate) message: Option<String>,
    pub(crate) stacktrace: Option<String>,
    pub(crate) actual: Option<String>,
    pub(crate) expected: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) outputs: TestOutputs,
    pub(crate) exit_reason: Option<ExitReason>,
    /// How the isolated rerun of the crashed test ended.
    pub(crate) isolated_rerun: Option<&'static str>,
    /// Number of the attempt that decided, from 1.
    pub(crate) attempt: usize,
}

impl FinalResult {
    fn new(state: ExecutionState, outputs: TestOutputs) -> Self {
        Self {
            state,
            kind: None,
            message: None,
            stacktrace: None,
            actual: None,
            expected: None,
            file: None,
            line: None,
            outputs,
            exit_reason: None,
            isolated_rerun: None,
            attempt: 1,
        }
    }

    /// Returns the result of a test that its framework would skip.
    pub(crate) fn skipped(reason: &str) -> Self {
        Self {
            message: Some(reason.to_owned()),
            ..Self::new(ExecutionState::Skipped, TestOutputs::default())
        }
    }

    /// Returns the result of a test that could not be run.
    pub(crate) fn not_run(reason: &str) -> Self {
        Self {
            kind: Some("not-run"),
            message: Some(format!("not run: {reason}")),
            ..Self::new(ExecutionState::Error, TestOutputs::default())
        }
    }

    /// Returns whether the test did not pass and a retry may replace the result.
    fn is_bad(&self) -> bool {
        matches!(self.state, ExecutionState::Failed | ExecutionState::TimedOut | ExecutionState::Error)
    }
}

/// The decision about a result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    /// The result is final.
    Final(Box<FinalResult>),
    /// The result is provisional.
    Provisional(Box<Attempt>, ProvisionalMark),
}

/// The policy for the test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestPolicy<'a> {
    /// The test, with its earlier attempts or the crash that this run checks.
    pub(crate) test: &'a LeasedTest,
    /// Whether a crash is final, because the test was the only one in its process.
    pub(crate) is_isolated: bool,
    pub(crate) duration: Duration,
}

/// Decides the result of an ended test.
pub(crate) fn decide(rules: TestPolicy<'_>, seen: TestEnding, outputs: TestOutputs) -> Decision {
    if !rules.is_isolated && matches!(seen, TestEnding::Died { .. }) {
        let outcome = single_run_result(seen, outputs);
        return Decision::Provisional(
            Box::new(attempt_of(outcome, rules.duration)),
            ProvisionalMark::AwaitsIsolatedRun,
        );
    }
    let is_cancelled = matches!(seen, TestEnding::Cancelled);
    let outcome = match &rules.test.crashed_attempt {
        None => single_run_result(seen, outputs),
        Some(first) => isolated_rerun_result(first, seen, outputs),
    };
    if rules.test.is_failure_provisional && outcome.is_bad() && !is_cancelled {
        return Decision::Provisional(
            Box::new(attempt_of(outcome, rules.duration)),
            ProvisionalMark::AwaitsRetry,
        );
    }
    Decision::Final(Box::new(with_earlier_attempts(outcome, &rules.test.attempts)))
}

/// Returns the result of one run of a test, without regard to earlier runs.
fn single_run_result(seen: TestEnding, outputs: TestOutputs) -> FinalResult {
    match seen {
        TestEnding::Verdict(verdict) => FinalResult {
            message: verdict.message,
            stacktrace: verdict.stacktrace,
            actual: verdict.actual,
            expected: verdict.expected,
            file: verdict.file,
            line: verdict.line,
            ..FinalResult::new(verdict.result.into(), outputs)
        },
        TestEnding::Died { exit_reason: death, is_after_end_marker } => {
            let mut message = exit_reason_text(&death);
            if is_after_end_marker {
                message.push_str(" after its end marker: in the test's own tear-down or its suite's");
            }
            FinalResult {
                kind: Some(exit_reason_kind(&death)),
                message: Some(message),
                exit_reason: Some(death),
                ..FinalResult::new(ExecutionState::Error, outputs)
            }
        }
        TestEnding::TimedOut(limit) => FinalResult {
            message: Some(format!("timed out after {}", format_seconds(limit))),
            ..FinalResult::new(ExecutionState::TimedOut, outputs)
        },
        TestEnding::Idle(limit) => FinalResult {
            kind: Some("silent"),
            message: Some(format!("gave no sign for {}, and was ended", format_seconds(limit))),
            ..FinalResult::new(ExecutionState::TimedOut, outputs)
        },
        TestEnding::Cancelled => FinalResult {
            message: Some("cancelled while it ran".into()),
            ..FinalResult::new(ExecutionState::Cancelled, outputs)
        },
    }
}

/// Returns the result of a test whose process died while it ran among others, and that has now been rerun in
/// isolation. The first crash remains the result, whatever the isolated rerun did: it happened.
fn isolated_rerun_result(first: &Attempt, seen: TestEnding, lone: TestOutputs) -> FinalResult {
    let mut death = first.exit_reason.clone().unwrap_or_default();
    if let TestEnding::Died { exit_reason: again, .. } = &seen
        && (&again.signal, again.code) == (&death.signal, death.code)
    {
        // The isolated rerun may have been traced more closely.
        death.detail = death.detail.or_else(|| again.detail.clone());
    }
    let what = exit_reason_text(&death);
    let after_others = match death.signal {
        Some(_) => format!("{what} when run after other tests"),
        None => format!("{what}, when run after other tests"),
    };
    let (message, alone) = match &seen {
        TestEnding::Died { exit_reason: again, .. }
            if (&again.signal, again.code) == (&death.signal, death.code) =>
        {
            let again = if death.signal.is_some() { "crashes alone as well" } else { "alone as well" };
            (format!("{what}; {again}"), Some("crashes-alone"))
        }
        TestEnding::Died { exit_reason: again, .. } => {
            (format!("{what}; alone: {}", exit_reason_text(again)), Some("crashes-alone"))
        }
        TestEnding::TimedOut(limit) => (
            format!("{after_others}; times out alone (after {})", format_seconds(*limit)),
            Some("hangs-alone"),
        ),
        TestEnding::Idle(limit) => (
            format!("{after_others}; hangs alone (no sign for {})", format_seconds(*limit)),
            Some("hangs-alone"),
        ),
        TestEnding::Cancelled => (format!("{what}; the check alone was cancelled"), None),
        TestEnding::Verdict(verdict) => match verdict.result {
            FrameworkResult::Passed => {
                (format!("{after_others}; passes alone (order-dependent?)"), Some("passes-alone"))
            }
            FrameworkResult::Skipped => (format!("{after_others}; is skipped alone"), Some("passes-alone")),
            FrameworkResult::Failed => {
                let message = verdict.message.as_deref().unwrap_or("it gave no message");
                (format!("{after_others}; fails alone: {message}"), Some("fails-alone"))
            }
        },
    };
    let outputs = TestOutputs {
        stdout: join_outputs(&first.stdout, &lone.stdout),
        stderr: join_outputs(&first.stderr, &lone.stderr),
        // The first crash remains the result; evidence of the isolated rerun repeats it, or is the only
        // evidence.
        evidence: first
            .diagnostics
            .clone()
            .filter(|first| has_stack(first) || lone.evidence.is_none())
            .or(lone.evidence),
        parts: lone.parts,
    };
    let own = single_run_result(seen, TestOutputs::default());
    FinalResult {
        kind: Some(exit_reason_kind(&death)),
        message: Some(message),
        isolated_rerun: alone,
        exit_reason: Some(death),
        stacktrace: own.stacktrace,
        ..FinalResult::new(ExecutionState::Error, outputs)
    }
}

fn has_stack(evidence: &TestDiagnostics) -> bool {
    !evidence.stack.is_empty()
}

/// Joins the output of the first crash and of the isolated rerun, where they differ.
fn join_outputs(first: &str, lone: &str) -> String {
    if lone.is_empty() || lone == first {
        return first.to_owned();
    }
    let border = if first.is_empty() || first.ends_with('\n') { "" } else { "\n" };
    format!("{first}{border}--- when run alone ---\n{lone}")
}

fn with_earlier_attempts(mut outcome: FinalResult, attempts: &[Attempt]) -> FinalResult {
    if attempts.is_empty() {
        return outcome;
    }
    outcome.attempt = attempts.len() + 1;
    let mut told = String::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let message = if attempt.message.is_empty() { "no message" } else { attempt.message.trim_end() };
        writeln!(told, "attempt {} ({}): {message}", index + 1, attempt.state).expect("a String takes all");
    }
    if outcome.state == ExecutionState::Passed {
        outcome.kind = Some("passed-with-retries");
        outcome.outputs.stdout.insert_str(0, &told);
    } else {
        let message = outcome.message.get_or_insert_default();
        if !message.is_empty() && !message.ends_with('\n') {
            message.push('\n');
        }
        message.push_str("earlier attempts:\n");
        message.push_str(told.trim_end());
    }
    outcome
}

fn attempt_of(outcome: FinalResult, duration: Duration) -> Attempt {
    Attempt {
        state: outcome.state,
        message: truncate_text(outcome.message.unwrap_or_default(), ATTEMPT_TEXT_BYTES),
        exit_reason: outcome.exit_reason,
        stdout: truncate_text(outcome.outputs.stdout, ATTEMPT_TEXT_BYTES),
        stderr: truncate_text(outcome.outputs.stderr, ATTEMPT_TEXT_BYTES),
        diagnostics: outcome.outputs.evidence,
        duration_us: microseconds(duration),
    }
}

/// Returns whole microseconds.
pub(crate) fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Describes how the process of a running test ended.
pub(crate) fn exit_reason_text(death: &ExitReason) -> String {
    if let Some(cause) = &death.cause {
        return cause.clone();
    }
    match (death.signal.as_deref(), death.code) {
        (Some(signal @ ("SIGKILL" | "SIGTERM" | "SIGINT" | "SIGHUP")), _) => format!("killed by {signal}"),
        (Some(signal), _) => match &death.detail {
            Some(detail) => format!("crashed with {signal} ({detail})"),
            None => format!("crashed with {signal}"),
        },
        (None, Some(code)) => {
            let left = format!("the process left with exit code {code} before the test ended");
            death.detail.as_ref().map_or(left.clone(), |detail| format!("{left} ({detail})"))
        }
        (None, None) => {
            death.detail.clone().unwrap_or_else(|| "the process was lost before the test ended".to_owned())
        }
    }
}

fn exit_reason_kind(death: &ExitReason) -> &'static str {
    if death.cause.is_some() {
        return "out-of-memory";
    }
    match (&death.signal, death.code) {
        (Some(_), _) => "crashed",
        (None, Some(_)) => "exited",
        (None, None) => "lost",
    }
}

/// Formats a limit as users write it: `2 s`, `0.5 s`.
pub(crate) fn format_seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_values;

    fn test() -> LeasedTest {
        test_values::leased(0)
    }

    fn death(signal: Option<&str>, code: Option<i32>) -> ExitReason {
        ExitReason { signal: signal.map(str::to_owned), code, ..ExitReason::default() }
    }

    fn verdict(result: FrameworkResult, message: Option<&str>) -> TestEnding {
        TestEnding::Verdict(FrameworkVerdict {
            message: message.map(str::to_owned),
            ..test_values::verdict(result)
        })
    }

    fn died(death: ExitReason) -> TestEnding {
        TestEnding::Died { exit_reason: death, is_after_end_marker: false }
    }

    fn attempt(state: ExecutionState, message: &str, death: Option<ExitReason>) -> Attempt {
        Attempt {
            state,
            message: message.into(),
            exit_reason: death,
            stdout: "first out".into(),
            stderr: "first err".into(),
            diagnostics: None,
            duration_us: 1,
        }
    }

    fn out(stdout: &str) -> TestOutputs {
        TestOutputs { stdout: stdout.into(), ..TestOutputs::default() }
    }

    fn conclusion(test: &LeasedTest, is_alone: bool, seen: TestEnding) -> Decision {
        decide(
            TestPolicy { test, is_isolated: is_alone, duration: Duration::from_micros(7) },
            seen,
            out("lone out"),
        )
    }

    fn settled(test: &LeasedTest, seen: TestEnding) -> FinalResult {
        match conclusion(test, true, seen) {
            Decision::Final(outcome) => *outcome,
            held @ Decision::Provisional(..) => panic!("{held:?}"),
        }
    }

    fn checking(first: ExitReason) -> LeasedTest {
        LeasedTest { crashed_attempt: Some(attempt(ExecutionState::Error, "", Some(first))), ..test() }
    }

    #[test]
    fn isolated_rerun_of_crash_describes_both_runs() {
        let segv = || death(Some("SIGSEGV"), None);
        let cases = [
            (died(segv()), "crashed with SIGSEGV; crashes alone as well", "crashes-alone"),
            (
                died(death(Some("SIGABRT"), None)),
                "crashed with SIGSEGV; alone: crashed with SIGABRT",
                "crashes-alone",
            ),
            (
                verdict(FrameworkResult::Passed, None),
                "crashed with SIGSEGV when run after other tests; passes alone (order-dependent?)",
                "passes-alone",
            ),
            (
                verdict(FrameworkResult::Failed, Some("1 is not 2")),
                "crashed with SIGSEGV when run after other tests; fails alone: 1 is not 2",
                "fails-alone",
            ),
            (
                TestEnding::TimedOut(Duration::from_secs(2)),
                "crashed with SIGSEGV when run after other tests; times out alone (after 2 s)",
                "hangs-alone",
            ),
        ];
        for (seen, message, alone) in cases {
            let outcome = settled(&checking(segv()), seen);
            assert_eq!(outcome.message.as_deref(), Some(message));
            assert_eq!((outcome.state, outcome.kind), (ExecutionState::Error, Some("crashed")));
            assert_eq!(outcome.isolated_rerun, Some(alone));
            assert_eq!(outcome.exit_reason, Some(segv()));
            assert_eq!(outcome.outputs.stdout, "first out\n--- when run alone ---\nlone out");
            assert_eq!(outcome.outputs.stderr, "first err");
        }
    }

    #[test]
    fn evidence_of_isolated_rerun_only_is_reported() {
        let seen =
            |detail: Option<&str>| ExitReason { detail: detail.map(str::to_owned), ..death(None, Some(139)) };
        let evidence = |stack: &str| {
            Some(Box::new(TestDiagnostics { stack: stack.to_owned(), ..TestDiagnostics::default() }))
        };
        let outcome = |first: Option<Box<TestDiagnostics>>| {
            let mut test = checking(seen(None));
            test.crashed_attempt.as_mut().unwrap().diagnostics = first;
            let rules = TestPolicy { test: &test, is_isolated: true, duration: Duration::ZERO };
            let outputs = TestOutputs { evidence: evidence("lone"), ..TestOutputs::default() };
            match decide(rules, died(seen(Some("SIGSEGV in its child"))), outputs) {
                Decision::Final(outcome) => *outcome,
                held @ Decision::Provisional(..) => panic!("{held:?}"),
            }
        };
        let told = outcome(None);
        let left = "the process left with exit code 139 before the test ended";
        assert_eq!(told.message, Some(format!("{left} (SIGSEGV in its child); alone as well")));
        assert_eq!(told.outputs.evidence, evidence("lone"));
        assert_eq!(outcome(evidence("")).outputs.evidence, evidence("lone"));
        assert_eq!(outcome(evidence("first")).outputs.evidence, evidence("first"));
    }

    #[test]
    fn isolated_rerun_of_exit_describes_both_runs() {
        let exit = || death(None, Some(0));
        let outcome = settled(&checking(exit()), died(exit()));
        assert_eq!(
            outcome.message.as_deref(),
            Some("the process left with exit code 0 before the test ended; alone as well")
        );
        assert_eq!(outcome.kind, Some("exited"));
        let outcome = settled(&checking(exit()), verdict(FrameworkResult::Passed, None));
        assert_eq!(
            outcome.message.as_deref(),
            Some(
                "the process left with exit code 0 before the test ended, when run after other tests; passes alone (order-dependent?)"
            )
        );
    }

    #[test]
    fn cancelled_isolated_rerun_keeps_the_crash() {
        let test = LeasedTest { is_failure_provisional: true, ..checking(death(Some("SIGBUS"), None)) };
        let outcome = settled(&test, TestEnding::Cancelled);
        assert_eq!(outcome.state, ExecutionState::Error);
        assert_eq!(outcome.message.as_deref(), Some("crashed with SIGBUS; the check alone was cancelled"));
        assert_eq!(outcome.isolated_rerun, None);
    }

    #[test]
    fn batch_crash_is_provisional_and_isolated_crash_final() {
        let seen = || died(death(Some("SIGSEGV"), None));
        let Decision::Provisional(held, ProvisionalMark::AwaitsIsolatedRun) =
            conclusion(&test(), false, seen())
        else {
            panic!()
        };
        assert_eq!((held.state, held.message.as_str()), (ExecutionState::Error, "crashed with SIGSEGV"));
        assert_eq!((held.stdout.as_str(), held.duration_us), ("lone out", 7));
        let outcome = settled(&test(), seen());
        assert_eq!((outcome.state, outcome.kind), (ExecutionState::Error, Some("crashed")));
        assert_eq!(settled(&test(), died(death(None, None))).kind, Some("lost"));
    }

    #[test]
    fn only_unsuccessful_results_await_a_retry() {
        let test = LeasedTest { is_failure_provisional: true, ..test() };
        for seen in [
            verdict(FrameworkResult::Failed, None),
            TestEnding::TimedOut(Duration::from_secs(1)),
            died(death(None, Some(3))),
        ] {
            assert!(matches!(
                conclusion(&test, true, seen),
                Decision::Provisional(_, ProvisionalMark::AwaitsRetry)
            ));
        }
        for seen in [
            verdict(FrameworkResult::Passed, None),
            verdict(FrameworkResult::Skipped, None),
            TestEnding::Cancelled,
        ] {
            assert!(matches!(conclusion(&test, true, seen), Decision::Final(_)));
        }
    }

    #[test]
    fn pass_after_failures_lists_them() {
        let attempts = vec![
            attempt(ExecutionState::Failed, "1 is not 2\n", None),
            attempt(ExecutionState::TimedOut, "", None),
        ];
        let outcome = settled(&LeasedTest { attempts, ..test() }, verdict(FrameworkResult::Passed, None));
        assert_eq!((outcome.kind, outcome.attempt), (Some("passed-with-retries"), 3));
        assert_eq!(
            outcome.outputs.stdout,
            "attempt 1 (failed): 1 is not 2\nattempt 2 (timed-out): no message\nlone out"
        );
        assert_eq!(outcome.message, None);
    }

    #[test]
    fn last_failure_lists_all_attempts() {
        let attempts = vec![attempt(ExecutionState::Failed, "first", None)];
        let test = LeasedTest { attempts, ..test() };
        let outcome = settled(&test, verdict(FrameworkResult::Failed, Some("last")));
        assert_eq!(outcome.message.as_deref(), Some("last\nearlier attempts:\nattempt 1 (failed): first"));
        assert_eq!((outcome.state, outcome.attempt), (ExecutionState::Failed, 2));
    }

    #[test]
    fn timeout_message_has_its_limit() {
        let message = |ms| settled(&test(), TestEnding::TimedOut(Duration::from_millis(ms))).message.unwrap();
        assert_eq!(message(2000), "timed out after 2 s");
        assert_eq!(message(500), "timed out after 0.5 s");
    }

    #[test]
    fn kill_signal_is_not_called_a_crash() {
        assert_eq!(exit_reason_text(&death(Some("SIGKILL"), None)), "killed by SIGKILL");
        assert_eq!(
            exit_reason_text(&death(None, Some(0))),
            "the process left with exit code 0 before the test ended"
        );
    }
}
