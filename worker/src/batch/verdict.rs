//! Decides the result of one test from how it ended and from earlier runs: failed attempts, or the crash that
//! an isolated rerun verifies. Pure; also contains the messages about crashes.

use std::time::Duration;

use heeler_core::{
    Attempt, DiagnosticsFile, ExitReason, Failure, IsolatedRerun, Iteration, NextRun, Outcome,
    TestDiagnostics, TestResult,
    describe::{exit_reason_text, outcome_of_exit},
};
use heeler_protocol::control::{LeasedTest, ListedTest};

use super::{
    absolute_files::with_absolute_files,
    failed_place::{OwnSources, failed_place},
    forbidden_skip::without_forbidden_skip,
    framework_queries::FrameworkQueries,
    interference::{mark_flaky, suspected_cause},
    iteration_text::{with_iteration, with_iteration_of_death},
    run_evidence::join_outputs,
    test_ending::{DeathPosition, TestEnding},
    test_parts::TestParts,
};
use crate::results::output_capture::truncate_text;
use heeler_adapters::{FrameworkResult, FrameworkVerdict};

/// Attempts are sent back with the next lease, so their texts are truncated further.
const ATTEMPT_TEXT_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TestOutputs {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Dumps and stack traces captured while the process died or hung.
    pub(crate) evidence: Option<Box<TestDiagnostics>>,
    /// Copies of files attached by the test.
    pub(crate) attached: Vec<DiagnosticsFile>,
    /// Parts of the test that began, with their results.
    pub(crate) parts: TestParts,
}

impl TestOutputs {
    /// Moves the stacks that the language's runtime wrote from standard error to the evidence, so that every
    /// reader finds them in one place, once.
    pub(super) fn take_runtime_stack(&mut self, framework: &dyn FrameworkQueries, test: &ListedTest) {
        let captured = self.evidence.as_deref().map_or("", |evidence| evidence.stack.as_str());
        let Some(divided) = framework.divide_stderr(&self.stderr, captured, test) else { return };
        self.stderr = divided.stderr;
        self.evidence.get_or_insert_default().stack = divided.stack;
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    Final(Box<TestResult>),
    Provisional(Box<Attempt>, NextRun),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TestPolicy<'a> {
    /// The test, with its earlier attempts or the crash to verify.
    pub(crate) test: &'a LeasedTest,
    /// The test was alone in its process, so a crash is final.
    pub(crate) is_isolated: bool,
    pub(crate) duration: Duration,
    pub(crate) iteration: Iteration,
    pub(crate) sources: &'a OwnSources,
}

/// Decides the result of an ended test.
pub(crate) fn decide(rules: TestPolicy<'_>, seen: TestEnding, outputs: TestOutputs) -> Decision {
    let repeated = rules.iteration.if_repeated();
    let seen = with_absolute_files(with_iteration_of_death(seen, repeated), &rules.test.listed);
    let seen = without_forbidden_skip(seen, rules.test);
    if !rules.is_isolated && matches!(seen, TestEnding::Died { .. }) {
        let result = located(single_run_result(seen, outputs), rules);
        let attempt = Box::new(attempt_of(result, rules.duration));
        return Decision::Provisional(attempt, NextRun::Isolated);
    }
    let is_cancelled = matches!(seen, TestEnding::Cancelled);
    let result = match &rules.test.crashed_attempt {
        None => with_iteration(single_run_result(seen, outputs), repeated),
        Some(first) => isolated_rerun_result(rules.test, first, seen, outputs),
    };
    let mut result = located(result, rules);
    if rules.test.is_failure_provisional && result.outcome.is_failure() && !is_cancelled {
        let attempt = Box::new(attempt_of(result, rules.duration));
        return Decision::Provisional(attempt, NextRun::Retry);
    }
    result.iterations = repeated.map(|one| one.number() - u32::from(is_cancelled));
    result.attempts.clone_from(&rules.test.attempts);
    if result.outcome == Outcome::Passed && !result.attempts.is_empty() {
        mark_flaky(&mut result, rules.test.is_flaky_failure);
    }
    Decision::Final(Box::new(result))
}

/// Returns the result with the place of its failure.
fn located(result: TestResult, rules: TestPolicy<'_>) -> TestResult {
    TestResult { failed_at: failed_place(&result, &rules.test.listed, rules.sources), ..result }
}

/// Returns the result of one run of a test, ignoring earlier runs.
fn single_run_result(seen: TestEnding, outputs: TestOutputs) -> TestResult {
    let result = match seen {
        TestEnding::Verdict(verdict) => result_of_verdict(verdict),
        TestEnding::Died { exit_reason, position } => {
            let reason = death_text(&exit_reason, &position);
            TestResult {
                exit_reason: Some(exit_reason.clone()),
                ..TestResult::with_reason(outcome_of_exit(&exit_reason), reason)
            }
        }
        TestEnding::TimedOut(limit) => {
            TestResult::with_reason(Outcome::TimedOut, format!("timed out after {}", format_seconds(limit)))
        }
        TestEnding::TimedOutBefore { limit, position } => {
            let place = position.before_test().unwrap_or_default();
            let reason = format!("timed out after {} {place}", format_seconds(limit));
            TestResult::with_reason(Outcome::TimedOut, reason)
        }
        TestEnding::TimedOutInTearDown { limit, place } => TestResult::with_reason(
            Outcome::TimedOut,
            format!("timed out after {limit} in the tear-down of {place}"),
        ),
        TestEnding::Idle(limit) => {
            TestResult::with_reason(Outcome::Idle, format!("idle for {}, terminated", format_seconds(limit)))
        }
        TestEnding::Cancelled => TestResult::with_reason(Outcome::Cancelled, "cancelled while running"),
    };
    with_outputs(result, outputs)
}

fn death_text(exit_reason: &ExitReason, position: &DeathPosition) -> String {
    let text = exit_reason_text(exit_reason);
    let elsewhere = || text.replace(" before the test ended", "");
    match position {
        DeathPosition::InTest => text,
        DeathPosition::AfterEndMarker => {
            format!("{} after the test's end marker, in the tear-down of the test or its suite", elsewhere())
        }
        DeathPosition::SuiteSetUp(_) | DeathPosition::Dependency(_) => {
            format!("{} {}", elsewhere(), position.before_test().unwrap_or_default())
        }
        DeathPosition::AfterEnd => {
            format!("{} after the test ended; the test result does not explain it", elsewhere())
        }
        DeathPosition::Unproven => format!("{}, which contradicts the output", elsewhere()),
    }
}

fn with_outputs(result: TestResult, outputs: TestOutputs) -> TestResult {
    let TestOutputs { stdout, stderr, evidence, attached, parts } = outputs;
    let (parts, parts_left_out) = parts.into_results();
    TestResult { stdout, stderr, diagnostics: evidence, attached, parts, parts_left_out, ..result }
}

fn result_of_verdict(verdict: FrameworkVerdict) -> TestResult {
    let outcome = Outcome::from(verdict.result);
    let FrameworkVerdict { reason, failures, answer, .. } = verdict;
    TestResult { reason, failures, answer, ..TestResult::new(outcome) }
}

/// Returns the result of a test whose process died after other tests had run in it, given the isolated rerun
/// of the test. The first crash remains the result, regardless of the rerun. But if several tests were
/// running at the crash, only a test that dies again is blamed; other tests get the result of their rerun.
fn isolated_rerun_result(
    test: &LeasedTest,
    first: &Attempt,
    seen: TestEnding,
    isolated: TestOutputs,
) -> TestResult {
    let mut death = first.exit_reason.clone().unwrap_or_default();
    // Several suspects, and this one did not die again: the rerun decides.
    if death.other_suspects > 0 && !matches!(seen, TestEnding::Died { .. }) {
        let (_, isolated_rerun) = isolated_rerun_reason(test, &death, &seen);
        return TestResult { isolated_rerun, ..single_run_result(seen, isolated) };
    }
    if let TestEnding::Died { exit_reason: again, .. } = &seen
        && is_same_death(&death, again)
    {
        // The isolated rerun may have been traced more closely. The detail must match the stack trace that is
        // kept.
        let has_stack = |evidence: &TestDiagnostics| !evidence.stack.is_empty();
        let has_better = !first.diagnostics.as_deref().is_some_and(has_stack)
            && isolated.evidence.as_deref().is_some_and(has_stack);
        let (one, other) = (death.detail.take(), again.detail.clone());
        death.detail = if has_better { other } else { one.or(other) };
        death.runtime = death.runtime.or(again.runtime);
    }
    let (reason, isolated_rerun) = isolated_rerun_reason(test, &death, &seen);
    let outputs = TestOutputs {
        stdout: join_outputs(&first.stdout, &isolated.stdout),
        stderr: join_outputs(&first.stderr, &isolated.stderr),
        // The first crash stays the result. Evidence from the isolated rerun is used only if the first has no
        // stack trace.
        evidence: first
            .diagnostics
            .clone()
            .filter(|first| !first.stack.is_empty() || isolated.evidence.is_none())
            .or(isolated.evidence),
        attached: [first.attached.clone(), isolated.attached].concat(),
        parts: isolated.parts,
    };
    let stack = match seen {
        TestEnding::Verdict(verdict) => verdict.failures.into_iter().find_map(|failure| failure.stack),
        _ => None,
    };
    let failures = stack.map(|stack| Failure { stack: Some(stack), ..Failure::default() });
    let result = TestResult {
        isolated_rerun,
        failures: failures.into_iter().collect(),
        exit_reason: Some(death.clone()),
        ..TestResult::with_reason(outcome_of_exit(&death), reason)
    };
    with_outputs(result, outputs)
}

/// Describes a crash and its isolated rerun.
fn isolated_rerun_reason(
    test: &LeasedTest,
    death: &ExitReason,
    seen: &TestEnding,
) -> (String, Option<IsolatedRerun>) {
    let what = exit_reason_text(death);
    let is_plain_signal = death.signal.is_some() && death.cause.is_none();
    let border = if is_plain_signal { "" } else { "," };
    let after_others = format!("{what}{border} when run after other tests");
    match seen {
        TestEnding::Died { exit_reason: again, position } if is_same_death(death, again) => {
            let again = if is_plain_signal { "also crashes in isolation" } else { "also in isolation" };
            // Alone in its process, the test is known to have ended before the process did.
            let is_after_end = *position == DeathPosition::AfterEnd;
            let what = if is_after_end { death_text(death, position) } else { what };
            (format!("{what}; {again}"), Some(IsolatedRerun::Crashes))
        }
        TestEnding::Died { exit_reason: again, .. } => {
            (format!("{what}; in isolation: {}", exit_reason_text(again)), Some(IsolatedRerun::Crashes))
        }
        TestEnding::TimedOut(limit) => (
            format!("{after_others}; times out in isolation (after {})", format_seconds(*limit)),
            Some(IsolatedRerun::Hangs),
        ),
        TestEnding::TimedOutBefore { limit, position } => {
            let (limit, place) = (format_seconds(*limit), position.before_test().unwrap_or_default());
            (
                format!("{after_others}; times out in isolation (after {limit}) {place}"),
                Some(IsolatedRerun::Hangs),
            )
        }
        TestEnding::TimedOutInTearDown { limit, place } => (
            format!("{after_others}; times out in isolation (after {limit}) in the tear-down of {place}"),
            Some(IsolatedRerun::Hangs),
        ),
        TestEnding::Idle(limit) => (
            format!("{after_others}; hangs in isolation (idle for {})", format_seconds(*limit)),
            Some(IsolatedRerun::Hangs),
        ),
        TestEnding::Cancelled => (format!("{what}; the isolated rerun was cancelled"), None),
        TestEnding::Verdict(verdict) => match verdict.result {
            FrameworkResult::Passed => (
                format!("{after_others}; passes in isolation ({})", suspected_cause(test)),
                Some(IsolatedRerun::Passes),
            ),
            FrameworkResult::Skipped => {
                (format!("{after_others}; is skipped in isolation"), Some(IsolatedRerun::Passes))
            }
            FrameworkResult::NotRun => (format!("{after_others}; is not run in isolation"), None),
            FrameworkResult::Failed => {
                let message = verdict.failures.iter().find_map(|failure| failure.message.as_deref());
                let message = message.unwrap_or("no message");
                (format!("{after_others}; fails in isolation: {message}"), Some(IsolatedRerun::Fails))
            }
        },
    }
}

fn is_same_death(first: &ExitReason, again: &ExitReason) -> bool {
    // The language's runtime may have reported its reason in one of the runs only.
    let outcome = |exit: &ExitReason| outcome_of_exit(&ExitReason { runtime: None, ..exit.clone() });
    outcome(first) == outcome(again) && (&first.signal, first.code) == (&again.signal, again.code)
}

fn attempt_of(result: TestResult, duration: Duration) -> Attempt {
    Attempt {
        outcome: result.outcome,
        message: truncate_text(result.message().unwrap_or_default().into_owned(), ATTEMPT_TEXT_BYTES),
        exit_reason: result.exit_reason,
        stdout: truncate_text(result.stdout, ATTEMPT_TEXT_BYTES),
        stderr: truncate_text(result.stderr, ATTEMPT_TEXT_BYTES),
        diagnostics: result.diagnostics,
        attached: result.attached,
        failed_at: result.failed_at,
        duration_us: microseconds(duration),
    }
}

pub(crate) fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Formats a time limit for users: `2 s`, `0.5 s`.
pub(crate) fn format_seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use heeler_core::describe;

    use super::*;
    use crate::test_values;

    fn test() -> LeasedTest {
        test_values::leased(0)
    }

    fn death(signal: Option<&str>, code: Option<i32>) -> ExitReason {
        ExitReason { signal: signal.map(str::to_owned), code, ..ExitReason::default() }
    }

    fn verdict(state: FrameworkResult, message: Option<&str>) -> TestEnding {
        let mut verdict = test_values::verdict(state);
        let message = message.map(str::to_owned);
        if state == FrameworkResult::Failed {
            verdict.push_failure(Failure { message, ..Failure::default() });
        } else {
            verdict.reason = message;
        }
        TestEnding::Verdict(verdict)
    }

    fn died(death: ExitReason) -> TestEnding {
        TestEnding::Died { exit_reason: death, position: DeathPosition::InTest }
    }

    fn attempt(outcome: Outcome, message: &str, death: Option<ExitReason>) -> Attempt {
        Attempt {
            outcome,
            message: message.into(),
            exit_reason: death,
            stdout: "first out".into(),
            stderr: "first err".into(),
            diagnostics: None,
            attached: Vec::new(),
            failed_at: None,
            duration_us: 1,
        }
    }

    fn out(stdout: &str) -> TestOutputs {
        TestOutputs { stdout: stdout.into(), ..TestOutputs::default() }
    }

    fn only() -> Iteration {
        Iteration::first_of(std::num::NonZeroU32::MIN)
    }

    fn conclusion(test: &LeasedTest, is_isolated: bool, seen: TestEnding) -> Decision {
        concluded_with(test, is_isolated, seen, out("isolated out"))
    }

    fn concluded_with(
        test: &LeasedTest,
        is_isolated: bool,
        seen: TestEnding,
        outputs: TestOutputs,
    ) -> Decision {
        let (duration, sources) = (Duration::from_micros(7), &OwnSources::default());
        decide(TestPolicy { test, is_isolated, duration, iteration: only(), sources }, seen, outputs)
    }

    fn settled(test: &LeasedTest, seen: TestEnding) -> TestResult {
        settled_with(test, seen, out("isolated out"))
    }

    fn settled_with(test: &LeasedTest, seen: TestEnding, outputs: TestOutputs) -> TestResult {
        match concluded_with(test, true, seen, outputs) {
            Decision::Final(outcome) => *outcome,
            held @ Decision::Provisional(..) => panic!("{held:?}"),
        }
    }

    fn checking(first: ExitReason) -> LeasedTest {
        LeasedTest { crashed_attempt: Some(attempt(Outcome::Crashed, "", Some(first))), ..test() }
    }

    #[test]
    fn isolated_rerun_of_crash_describes_both_runs() {
        let segv = || death(Some("SIGSEGV"), None);
        let cases = [
            (died(segv()), "crashed with SIGSEGV; also crashes in isolation", IsolatedRerun::Crashes),
            (
                died(death(Some("SIGABRT"), None)),
                "crashed with SIGSEGV; in isolation: crashed with SIGABRT",
                IsolatedRerun::Crashes,
            ),
            (
                verdict(FrameworkResult::Passed, None),
                "crashed with SIGSEGV when run after other tests; passes in isolation (order-dependent?)",
                IsolatedRerun::Passes,
            ),
            (
                verdict(FrameworkResult::Failed, Some("1 is not 2")),
                "crashed with SIGSEGV when run after other tests; fails in isolation: 1 is not 2",
                IsolatedRerun::Fails,
            ),
            (
                TestEnding::TimedOut(Duration::from_secs(2)),
                "crashed with SIGSEGV when run after other tests; times out in isolation (after 2 s)",
                IsolatedRerun::Hangs,
            ),
        ];
        for (seen, message, isolated) in cases {
            let outcome = settled(&checking(segv()), seen);
            assert_eq!(outcome.message().as_deref(), Some(message));
            assert_eq!(outcome.outcome, Outcome::Crashed);
            assert_eq!(outcome.isolated_rerun, Some(isolated));
            assert_eq!(outcome.exit_reason, Some(segv()));
            assert_eq!(outcome.stdout, "first out\n--- isolated rerun ---\nisolated out");
            assert_eq!(outcome.stderr, "first err");
        }
    }

    #[test]
    fn one_of_several_suspects_is_blamed_only_if_it_dies_again() {
        let first = || ExitReason { other_suspects: 2, ..death(Some("SIGSEGV"), None) };
        for (seen, outcome, message) in [
            (verdict(FrameworkResult::Passed, None), Outcome::Passed, None),
            (verdict(FrameworkResult::Failed, Some("1 is not 2")), Outcome::Failed, Some("1 is not 2")),
            (TestEnding::TimedOut(Duration::from_secs(2)), Outcome::TimedOut, Some("timed out after 2 s")),
            (
                died(death(Some("SIGSEGV"), None)),
                Outcome::Crashed,
                Some("crashed with SIGSEGV; also crashes in isolation"),
            ),
        ] {
            let result = settled(&checking(first()), seen);
            assert_eq!((result.outcome, result.message().as_deref()), (outcome, message));
            assert!(result.isolated_rerun.is_some());
        }
    }

    #[test]
    fn evidence_of_isolated_rerun_only_is_reported() {
        let seen =
            |detail: Option<&str>| ExitReason { detail: detail.map(str::to_owned), ..death(None, Some(139)) };
        let evidence = |stack: &str| {
            Some(Box::new(TestDiagnostics { stack: stack.to_owned(), ..TestDiagnostics::default() }))
        };
        let isolated = || TestOutputs { evidence: evidence("isolated"), ..TestOutputs::default() };
        let outcome = |first: Option<Box<TestDiagnostics>>| {
            let mut test = checking(seen(None));
            test.crashed_attempt.as_mut().unwrap().diagnostics = first;
            settled_with(&test, died(seen(Some("SIGSEGV in child process"))), isolated())
        };
        let result = outcome(None);
        let left = "the process exited with code 139 before the test ended";
        assert_eq!(result.reason, Some(format!("{left} (SIGSEGV in child process); also in isolation")));
        assert_eq!(result.diagnostics, evidence("isolated"));
        assert_eq!(outcome(evidence("")).diagnostics, evidence("isolated"));
        assert_eq!(outcome(evidence("first")).diagnostics, evidence("first"));
        let mut test = checking(seen(Some("no stack trace: it can trace processes")));
        test.crashed_attempt.as_mut().unwrap().diagnostics = None;
        let result = settled_with(&test, died(seen(Some("at address 0x8"))), isolated());
        let detail = result.exit_reason.and_then(|death| death.detail);
        assert_eq!(detail.as_deref(), Some("at address 0x8"), "the detail belongs to the stack");
    }

    #[test]
    fn exit_after_the_only_test_is_not_described_as_before_its_end() {
        let exit = || death(None, Some(7));
        let seen = TestEnding::Died { exit_reason: exit(), position: DeathPosition::AfterEnd };
        let message = settled(&checking(exit()), seen).reason.unwrap();
        let expected = "the process exited with code 7 after the test ended; the test result does not explain it; also in \
                        isolation";
        assert_eq!(message, expected);
    }

    #[test]
    fn isolated_rerun_of_exit_describes_both_runs() {
        let exit = || death(None, Some(0));
        let outcome = settled(&checking(exit()), died(exit()));
        assert_eq!(
            outcome.message().as_deref(),
            Some("the process exited with code 0 before the test ended; also in isolation")
        );
        assert_eq!(outcome.outcome, Outcome::ExitedEarly);
        let outcome = settled(&checking(exit()), verdict(FrameworkResult::Passed, None));
        assert_eq!(
            outcome.message().as_deref(),
            Some(
                "the process exited with code 0 before the test ended, when run after other tests; passes in isolation (order-dependent?)"
            )
        );
    }

    #[test]
    fn cancelled_isolated_rerun_keeps_the_crash() {
        let test = LeasedTest { is_failure_provisional: true, ..checking(death(Some("SIGBUS"), None)) };
        let outcome = settled(&test, TestEnding::Cancelled);
        assert_eq!(outcome.outcome, Outcome::Crashed);
        assert_eq!(
            outcome.message().as_deref(),
            Some("crashed with SIGBUS; the isolated rerun was cancelled")
        );
        assert_eq!(outcome.isolated_rerun, None);
    }

    #[test]
    fn batch_crash_is_provisional_and_isolated_crash_final() {
        let seen = || died(death(Some("SIGSEGV"), None));
        let Decision::Provisional(held, NextRun::Isolated) = conclusion(&test(), false, seen()) else {
            panic!()
        };
        assert_eq!((held.outcome, held.message.as_str()), (Outcome::Crashed, "crashed with SIGSEGV"));
        assert_eq!((held.stdout.as_str(), held.duration_us), ("isolated out", 7));
        let outcome = settled(&test(), seen());
        assert_eq!(outcome.outcome, Outcome::Crashed);
        assert_eq!(settled(&test(), died(death(None, None))).outcome, Outcome::Lost);
    }

    #[test]
    fn only_unsuccessful_results_await_a_retry() {
        let test = LeasedTest { is_failure_provisional: true, ..test() };
        for seen in [
            verdict(FrameworkResult::Failed, None),
            TestEnding::TimedOut(Duration::from_secs(1)),
            died(death(None, Some(3))),
        ] {
            assert!(matches!(conclusion(&test, true, seen), Decision::Provisional(_, NextRun::Retry)));
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
        let attempts =
            vec![attempt(Outcome::Failed, "1 is not 2\n", None), attempt(Outcome::TimedOut, "", None)];
        let outcome = settled(&LeasedTest { attempts, ..test() }, verdict(FrameworkResult::Passed, None));
        assert_eq!((outcome.outcome, outcome.attempts.len()), (Outcome::Flaky, 2));
        assert_eq!(
            describe::shown_stdout(&outcome).unwrap(),
            "attempt 1 (failed): 1 is not 2\nattempt 2 (timed out): no message\nisolated out"
        );
        assert_eq!(describe::shown_message(&outcome), None);
    }

    #[test]
    fn last_failure_lists_all_attempts() {
        let test = LeasedTest { attempts: vec![attempt(Outcome::Failed, "first", None)], ..test() };
        let outcome = settled(&test, verdict(FrameworkResult::Failed, Some("last")));
        assert_eq!(
            describe::shown_message(&outcome).as_deref(),
            Some("last\nearlier attempts:\nattempt 1 (failed): first")
        );
        assert_eq!((outcome.outcome, outcome.attempts.len()), (Outcome::Failed, 1));
    }

    #[test]
    fn timeout_message_has_its_limit() {
        let message = |ms| settled(&test(), TestEnding::TimedOut(Duration::from_millis(ms))).reason.unwrap();
        assert_eq!(message(2000), "timed out after 2 s");
        assert_eq!(message(500), "timed out after 0.5 s");
    }

    #[test]
    fn kill_signal_is_not_called_a_crash() {
        assert_eq!(exit_reason_text(&death(Some("SIGKILL"), None)), "killed by SIGKILL");
        assert_eq!(
            exit_reason_text(&death(None, Some(0))),
            "the process exited with code 0 before the test ended"
        );
    }
}
