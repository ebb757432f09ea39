//! Results of cases: Heeler's record of the client's processes, overlaid with the judge's verdicts and the
//! retries. Pure.

use std::collections::HashMap;

use heeler_config::FlakyResult;
use heeler_core::{Attempt, Failure, Outcome, TestResult};
use heeler_protocol::connect::{JudgeFinding, JudgeReport};

/// Maximum size of each text kept of an attempt.
const ATTEMPT_TEXT_BYTES: usize = 64 << 10;

/// The judge's report contradicts the answers that the judge got.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum VerdictError {
    #[error("the judge reports {case:?}, which was not selected")]
    UnknownCase { case: String },
    #[error("the judge reports {stated} {what}, but Heeler counted {found}")]
    Miscounted { what: &'static str, stated: usize, found: usize },
    #[error("the judge passed {case:?}, but its client gave no answer: {reason}")]
    PassedWithoutAnswer { case: String, reason: String },
}

/// Result of one case in one run of the judge.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JudgedCase {
    pub(super) result: TestResult,
    /// Whether another run of the judge may replace the result.
    pub(super) is_retryable: bool,
}

/// Returns the results of one run's cases, in the order of `cases`. `answered` contains Heeler's result of
/// each case that was answered.
///
/// # Errors
/// The report does not match the cases and answers. Cases without a finding are then undecided.
pub(super) fn judged_results(
    cases: &[&str],
    mut answered: HashMap<String, TestResult>,
    report: &JudgeReport,
) -> Result<Vec<JudgedCase>, VerdictError> {
    check_report(cases, &answered, report)?;
    Ok(cases.iter().map(|case| judged_case(answered.remove(*case), report.findings.get(*case))).collect())
}

fn check_report(
    cases: &[&str],
    answered: &HashMap<String, TestResult>,
    report: &JudgeReport,
) -> Result<(), VerdictError> {
    let unknown = report.findings.keys().find(|name| !cases.contains(&name.as_str()));
    if let Some(case) = unknown {
        return Err(VerdictError::UnknownCase { case: case.clone() });
    }
    let mut passed = 0;
    let mut not_run = 0;
    for case in cases.iter().filter(|case| !report.findings.contains_key(**case)) {
        match answered.get(*case) {
            Some(result) if result.outcome == Outcome::Passed => passed += 1,
            Some(result) => {
                let reason = result.message().unwrap_or_default().into_owned();
                return Err(VerdictError::PassedWithoutAnswer { case: (*case).to_owned(), reason });
            }
            None => not_run += 1,
        }
    }
    let counts = [("passed", report.passed, passed), ("not run", report.not_run, not_run)];
    match counts.into_iter().find(|(_, stated, found)| stated != found) {
        Some((what, stated, found)) => Err(VerdictError::Miscounted { what, stated, found }),
        None => Ok(()),
    }
}

/// Returns the result of a case. If the client died, Heeler's own description is kept, because it is more
/// precise. Otherwise the judge's finding decides.
fn judged_case(answered: Option<TestResult>, finding: Option<&JudgeFinding>) -> JudgedCase {
    let is_answered = answered.as_ref().is_some_and(|result| result.outcome == Outcome::Passed);
    let result = answered.unwrap_or_else(|| TestResult::new(Outcome::Lost));
    match finding {
        None if is_answered => JudgedCase { result, is_retryable: false },
        None => {
            let reason = "not run by the judge: the client took too long or had exited".to_owned();
            JudgedCase { result: TestResult { reason: Some(reason), ..result }, is_retryable: true }
        }
        Some(JudgeFinding::Failed(reason)) if is_answered || result.outcome == Outcome::Lost => {
            let failures = vec![Failure { message: Some(reason.clone()), ..Failure::default() }];
            let result = TestResult { outcome: Outcome::Failed, reason: None, failures, ..result };
            JudgedCase { result, is_retryable: true }
        }
        Some(JudgeFinding::Failed(_)) => JudgedCase { result, is_retryable: true },
        Some(JudgeFinding::UnexpectedPass) => {
            let reason = Some("passed, but --known-failing expects it to fail".to_owned());
            let result = TestResult { outcome: Outcome::Failed, reason, ..result };
            JudgedCase { result, is_retryable: false }
        }
        Some(JudgeFinding::FailedAsExpected(reason)) => {
            let reason = Some(format!("failed as expected (--known-failing): {reason}"));
            let result = TestResult { outcome: Outcome::Skipped, reason, failures: Vec::new(), ..result };
            JudgedCase { result, is_retryable: false }
        }
    }
}

/// Returns the results of cases without a verdict, because the judge ended early or its report is rejected.
/// `stop` contains the outcome and reason for cases that did not fail themselves.
pub(super) fn unjudged_results(
    cases: &[&str],
    mut answered: HashMap<String, TestResult>,
    stop: &UnjudgedReason,
) -> Vec<TestResult> {
    let result = |case: &&str| match answered.remove(*case) {
        Some(result) if result.outcome != Outcome::Passed => result,
        Some(result) => TestResult { outcome: stop.answered, reason: Some(stop.reason.clone()), ..result },
        None => TestResult::with_reason(stop.unanswered, stop.reason.clone()),
    };
    cases.iter().map(result).collect()
}

/// Reason and outcomes of cases without a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnjudgedReason {
    /// Outcome of a case that the client answered.
    pub(super) answered: Outcome,
    /// Outcome of a case without an answer.
    pub(super) unanswered: Outcome,
    pub(super) reason: String,
}

/// Converts a result to the attempt that precedes a retry.
pub(super) fn attempt_of(result: TestResult) -> Attempt {
    let message = result.message().unwrap_or_default().into_owned();
    Attempt {
        outcome: result.outcome,
        message: truncated(message),
        exit_reason: result.exit_reason,
        stdout: truncated(result.stdout),
        stderr: truncated(result.stderr),
        diagnostics: result.diagnostics,
        attached: result.attached,
        failed_at: result.failed_at,
        duration_us: result.duration_us.unwrap_or_default(),
    }
}

fn truncated(mut text: String) -> String {
    if text.len() > ATTEMPT_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(ATTEMPT_TEXT_BYTES));
        text.push_str("\n… (truncated)");
    }
    text
}

/// Returns the final result of a case, with its earlier attempts.
pub(super) fn final_result(
    result: TestResult,
    attempts: Vec<Attempt>,
    flaky_result: FlakyResult,
) -> TestResult {
    let is_flaky = result.outcome == Outcome::Passed && !attempts.is_empty();
    let result = TestResult { attempts, ..result };
    match (is_flaky, flaky_result) {
        (false, _) => result,
        (true, FlakyResult::Pass) => TestResult { outcome: Outcome::Flaky, ..result },
        (true, FlakyResult::Fail) => {
            let passing = result.attempts.len() + 1;
            let first = result.attempts.first().map_or("", |attempt| attempt.message.as_str());
            let reason =
                format!("flaky, failed by flaky-result: passed on attempt {passing}; attempt 1: {first}");
            TestResult { outcome: Outcome::Failed, reason: Some(reason), ..result }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn failed(reason: &str) -> JudgeFinding {
        JudgeFinding::Failed(reason.to_owned())
    }

    fn report(findings: &[(&str, JudgeFinding)], passed: usize, not_run: usize) -> JudgeReport {
        let findings = findings.iter().map(|(name, finding)| ((*name).to_owned(), finding.clone()));
        JudgeReport { findings: findings.collect::<BTreeMap<_, _>>(), passed, not_run }
    }

    fn answers(results: &[(&str, Outcome)]) -> HashMap<String, TestResult> {
        let result = |(name, outcome): &(&str, Outcome)| {
            let reason = (*outcome != Outcome::Passed).then(|| "SIGABRT".to_owned());
            ((*name).to_owned(), TestResult { reason, ..TestResult::new(*outcome) })
        };
        results.iter().map(result).collect()
    }

    /// Outcome, message and retryability of the only case.
    fn judged(answered: Option<Outcome>, finding: Option<JudgeFinding>) -> (Outcome, String, bool) {
        let answered = answers(&answered.map(|outcome| ("a", outcome)).into_iter().collect::<Vec<_>>());
        let is_passed = answered.get("a").is_some_and(|result| result.outcome == Outcome::Passed);
        let counts = match finding {
            Some(_) => (0, 0),
            None => (usize::from(is_passed), usize::from(answered.is_empty())),
        };
        let findings: Vec<_> = finding.map(|finding| ("a", finding)).into_iter().collect();
        let judged = judged_results(&["a"], answered, &report(&findings, counts.0, counts.1)).unwrap();
        let JudgedCase { result, is_retryable } = judged.into_iter().next().unwrap();
        (result.outcome, result.message().unwrap_or_default().into_owned(), is_retryable)
    }

    #[test]
    fn every_answer_with_every_finding_has_its_result() {
        use Outcome::{Crashed, Failed, Lost, Passed, Skipped};
        let not_run = "not run by the judge: the client took too long or had exited";
        let expected = || JudgeFinding::FailedAsExpected("why".to_owned());
        let known = "failed as expected (--known-failing): why";
        let unexpected = "passed, but --known-failing expects it to fail";
        let cases = [
            (Some(Passed), None, (Passed, "", false)),
            (None, None, (Lost, not_run, true)),
            (Some(Passed), Some(failed("why")), (Failed, "why", true)),
            (Some(Crashed), Some(failed("why")), (Crashed, "SIGABRT", true)),
            (None, Some(failed("no server")), (Failed, "no server", true)),
            (Some(Passed), Some(JudgeFinding::UnexpectedPass), (Failed, unexpected, false)),
            (Some(Passed), Some(expected()), (Skipped, known, false)),
            (Some(Crashed), Some(expected()), (Skipped, known, false)),
            (None, Some(expected()), (Skipped, known, false)),
        ];
        for (answered, finding, (outcome, message, is_retryable)) in cases {
            let found = judged(answered, finding.clone());
            assert_eq!(found, (outcome, message.to_owned(), is_retryable), "{answered:?} {finding:?}");
        }
    }

    #[test]
    fn report_that_contradicts_the_answers_is_refused() {
        let answered = || answers(&[("a", Outcome::Passed), ("b", Outcome::Crashed)]);
        let error = |report: JudgeReport| {
            judged_results(&["a", "b", "c"], answered(), &report).unwrap_err().to_string()
        };
        assert_eq!(
            error(report(&[("x", failed("?"))], 1, 1)),
            "the judge reports \"x\", which was not selected"
        );
        assert_eq!(
            error(report(&[], 2, 1)),
            "the judge passed \"b\", but its client gave no answer: SIGABRT"
        );
        let with_b = |passed, not_run| report(&[("b", failed("died"))], passed, not_run);
        assert_eq!(error(with_b(2, 0)), "the judge reports 2 passed, but Heeler counted 1");
        assert_eq!(error(with_b(1, 0)), "the judge reports 0 not run, but Heeler counted 1");
        assert!(judged_results(&["a", "b", "c"], answered(), &with_b(1, 1)).is_ok());
    }

    #[test]
    fn without_a_judge_only_deaths_are_known() {
        let answered = answers(&[("a", Outcome::Passed), ("b", Outcome::Crashed)]);
        let stop = UnjudgedReason {
            answered: Outcome::Lost,
            unanswered: Outcome::Interrupted,
            reason: "the judge was killed".to_owned(),
        };
        let results = unjudged_results(&["a", "b", "c"], answered, &stop);
        let found: Vec<_> = results.iter().map(|one| (one.outcome, one.message().unwrap())).collect();
        assert_eq!(found[0], (Outcome::Lost, "the judge was killed".into()));
        assert_eq!(found[1], (Outcome::Crashed, "SIGABRT".into()));
        assert_eq!(found[2], (Outcome::Interrupted, "the judge was killed".into()));
    }

    #[test]
    fn case_that_passes_on_a_retry_is_flaky_or_failed() {
        let first = || vec![attempt_of(TestResult::with_reason(Outcome::Failed, "wrong code"))];
        let end = |outcome, attempts, flaky| {
            let result = final_result(TestResult::new(outcome), attempts, flaky);
            (result.outcome, result.attempts.len(), result.reason)
        };
        assert_eq!(end(Outcome::Passed, Vec::new(), FlakyResult::Fail), (Outcome::Passed, 0, None));
        assert_eq!(end(Outcome::Passed, first(), FlakyResult::Pass), (Outcome::Flaky, 1, None));
        assert_eq!(end(Outcome::Failed, first(), FlakyResult::Pass), (Outcome::Failed, 1, None));
        let (outcome, _, reason) = end(Outcome::Passed, first(), FlakyResult::Fail);
        assert_eq!(outcome, Outcome::Failed);
        assert!(reason.unwrap().ends_with("passed on attempt 2; attempt 1: wrong code"));
    }

    #[test]
    fn texts_of_attempts_are_bounded() {
        let long = "ü".repeat(ATTEMPT_TEXT_BYTES);
        let attempt = attempt_of(TestResult { stderr: long, ..TestResult::new(Outcome::Failed) });
        assert!(attempt.stderr.len() < ATTEMPT_TEXT_BYTES + 32 && attempt.stderr.ends_with("(truncated)"));
    }
}
