//! Messages about tests that fail when run together with other tests of their program, or that fail once and
//! then pass. Pure.

use heeler_core::{Outcome, TestResult};
use heeler_protocol::control::LeasedTest;

/// Returns the likely cause of the failure of a test that passes alone.
pub(super) fn suspected_cause(test: &LeasedTest) -> String {
    match interference_text(test) {
        Some(interference) => format!("order-dependent, or {interference}"),
        None => "order-dependent?".to_owned(),
    }
}

/// Names the tests that a failed test may interfere with, and the config key that keeps them apart. `None` if
/// no test ran at the same time.
pub(super) fn interference_text(test: &LeasedTest) -> Option<String> {
    let (last, others) = test.ran_beside.split_last()?;
    let names = if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) };
    Some(format!(
        "conflicts with tests that ran at the same time in other processes of the program, such as {names}? Set \
         max-processes = 1 to run one process of the program at a time"
    ))
}

/// Marks a pass after failed attempts as flaky, or as failed if configured.
pub(super) fn mark_flaky(result: &mut TestResult, is_failure: bool) {
    if !is_failure {
        result.outcome = Outcome::Flaky;
        return;
    }
    // The messages of the earlier attempts follow this text.
    let passing = result.attempts.len() + 1;
    let text = format!("flaky, failed by flaky-result: passed on attempt {passing}");
    (result.outcome, result.reason) = (Outcome::Failed, Some(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_ran_beside_a_failed_one_are_named() {
        let mut test = crate::test_values::leased(0);
        assert_eq!((suspected_cause(&test).as_str(), interference_text(&test)), ("order-dependent?", None));
        test.ran_beside = vec!["a".into(), "b".into(), "c".into()];
        let cause = suspected_cause(&test);
        assert!(
            cause.starts_with("order-dependent, or conflicts with tests that ran at the same time"),
            "{cause}"
        );
        assert!(cause.contains("such as a, b and c?") && cause.contains("max-processes = 1"), "{cause}");
    }
}
