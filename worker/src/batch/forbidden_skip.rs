//! Tests that must not skip themselves because the tool that registered them counts a skip as a failure.

use heeler_adapters::{FrameworkResult, FrameworkVerdict};
use heeler_core::Failure;
use heeler_protocol::{control::LeasedTest, ctest};

use super::test_ending::TestEnding;

/// Turns a skip into a failure if CTest would report it as one.
pub(super) fn without_forbidden_skip(seen: TestEnding, test: &LeasedTest) -> TestEnding {
    let is_failure = || {
        let mut traits = test.listed.traits.iter();
        traits.any(|one| one.name == ctest::SKIP_TRAIT && one.value == ctest::SKIP_FAILS)
    };
    match seen {
        TestEnding::Verdict(verdict) if verdict.result == FrameworkResult::Skipped && is_failure() => {
            let reason = verdict.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            let text = format!(
                "skipped itself{reason}, which CTest reports as a failure: no SKIP_RETURN_CODE is set for this test"
            );
            let mut failed = FrameworkVerdict { result: FrameworkResult::Failed, reason: None, ..verdict };
            failed.push_failure(Failure { message: Some(text), ..Failure::default() });
            TestEnding::Verdict(failed)
        }
        other => other,
    }
}
