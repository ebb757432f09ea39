//! Decides what the end of a process, and the files that its framework left behind, prove about results read
//! from its output. Pure.

use heeler_adapters::{FrameworkResult, RunReport, StackPosition};
use heeler_core::ExitReason;

/// Maximum number of tests named in a message about results that contradict the framework's report.
pub(super) const NAMED_CONTRADICTIONS: usize = 10;

/// Files that a framework wrote in addition to the output of its run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum RunEvidence {
    /// The framework writes no report, or the process never reached its tests.
    #[default]
    None,
    /// The framework's report of the whole run.
    Report(RunReport),
    /// The framework's marker of an unfinished run: the process ended in the middle of it.
    LeftOpen,
}

/// How a process ended: the facts that help to prove or refute the results read from its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessEndFacts {
    /// The process ended by itself, not because a limit passed or the worker ended it.
    pub(super) is_own_end: bool,
    /// The process was ended because it reached a limit.
    pub(super) is_limit: bool,
    /// The stack trace, if any, was captured at the end: at a signal, at the process's own exit, or at its
    /// limit.
    pub(super) is_stack_of_end: bool,
    /// The output contains the framework's final line.
    pub(super) is_complete: bool,
    /// The framework's run was not finished when the process ended.
    pub(super) is_left_open: bool,
    /// According to the output, a test was running when the process ended.
    pub(super) has_running_test: bool,
    pub(super) stack_position: StackPosition,
    /// First test with a doubtful result: from this test on, the output contains misplaced markers.
    pub(super) doubtful_since: Option<usize>,
}

/// Results read from the output that are proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProvenResults {
    All,
    /// Results of the tests before this one. From this test on, the output contains misplaced markers.
    Before(usize),
    /// The end of the process contradicts its output, and nothing shows which results are wrong.
    None,
}

impl ProvenResults {
    pub(super) fn contains(self, place: usize) -> bool {
        match self {
            Self::All => true,
            Self::Before(end) => place < end,
            Self::None => false,
        }
    }
}

/// Returns the results that the end of a process proves without a report from its framework.
pub(super) fn proven_results(facts: ProcessEndFacts) -> ProvenResults {
    let is_in_test = matches!(facts.stack_position, StackPosition::RunningTest | StackPosition::OtherTest);
    // The output says that the run, or every test that began, has ended, but the stack trace shows a test.
    let contradicts_stack = facts.is_stack_of_end
        && if facts.has_running_test { facts.stack_position == StackPosition::OtherTest } else { is_in_test };
    let contradicts_exit = facts.is_left_open && facts.is_complete;
    if facts.has_running_test && facts.stack_position == StackPosition::RunningTest {
        // The stack trace confirms the running test, so all tests before it have ended.
        return ProvenResults::All;
    }
    if facts.is_own_end && (contradicts_stack || contradicts_exit) || facts.is_limit && contradicts_stack {
        return ProvenResults::None;
    }
    // Results that the process itself reported were already settled when it reached its limit.
    if facts.is_limit && facts.has_running_test {
        return ProvenResults::Before(0);
    }
    facts.doubtful_since.map_or(ProvenResults::All, ProvenResults::Before)
}

/// Describes how a result that was already sent differs from the framework's report.
pub(super) fn contradicted_result_text(
    name: &str,
    sent: FrameworkResult,
    reported: Option<FrameworkResult>,
) -> String {
    let reported = reported.map_or("not run", FrameworkResult::as_str);
    format!("{name}: {} in the output, but {reported} in the framework's report", sent.as_str())
}

/// Returns the summary printed by a sanitizer.
pub(super) fn sanitizer_summary(stderr: &str) -> Option<&str> {
    let summary = stderr.lines().rev().find_map(|line| line.trim().strip_prefix("SUMMARY: "));
    summary.filter(|summary| summary.contains("Sanitizer"))
}

/// Returns whether a sanitizer has begun or ended a report. The end may be read together with other tests'
/// output.
pub(super) fn has_sanitizer_report(stderr: &str) -> bool {
    stderr.contains("Sanitizer: ")
}

/// Returns what a sanitizer found when it ended the process: its summary or, since UndefinedBehaviorSanitizer
/// may print none, `UndefinedBehaviorSanitizer: WHAT at FILE:LINE:COLUMN`.
pub(super) fn sanitizer_finding(stderr: &str) -> Option<String> {
    // The summary of UndefinedBehaviorSanitizer does not say what was found.
    let summary = sanitizer_summary(stderr).filter(|one| !one.starts_with("UndefinedBehaviorSanitizer"));
    summary.map(str::to_owned).or_else(|| {
        let (place, what) = stderr.lines().rev().find_map(|line| line.split_once(": runtime error: "))?;
        let mut numbers = place.rsplitn(3, ':');
        let is_place = numbers.by_ref().take(2).all(|number| number.parse::<u32>().is_ok());
        (is_place && numbers.next().is_some())
            .then(|| format!("UndefinedBehaviorSanitizer: {} at {}", what.trim(), place.trim()))
    })
}

/// Joins the output of the first crash and of the isolated rerun if they differ. Sanitizer reports with the
/// same finding count as equal, since their addresses always differ.
pub(super) fn join_outputs(first: &str, isolated: &str) -> String {
    let finding = sanitizer_finding(first);
    let is_same_report = finding.is_some() && sanitizer_finding(isolated) == finding;
    if isolated.is_empty() || isolated == first || is_same_report {
        return first.to_owned();
    }
    let border = if first.is_empty() || first.ends_with('\n') { "" } else { "\n" };
    format!("{first}{border}--- isolated rerun ---\n{isolated}")
}

/// Returns the exit reason for one of several suspects. Any of them may be the cause.
pub(super) fn shared_blame(exit: ExitReason, tests: usize) -> ExitReason {
    ExitReason { other_suspects: u32::try_from(tests).unwrap_or(u32::MAX).max(1), ..exit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_a_sanitizer_stands_once() {
        let report =
            |place: &str| format!("==1==ERROR at {place}\nSUMMARY: AddressSanitizer: overflow a.cc:3\n");
        assert_eq!(join_outputs(&report("0x1"), &report("0x2")), report("0x1"));
        assert!(join_outputs(&report("0x1"), "another end\n").contains("--- isolated rerun ---\nanother"));
        assert!(join_outputs("one\n", "two\n").contains("one\n--- isolated rerun ---\ntwo"));
    }

    const BOOLS: [bool; 2] = [false, true];
    const POSITIONS: [StackPosition; 4] = [
        StackPosition::Unknown,
        StackPosition::RunningTest,
        StackPosition::OtherTest,
        StackPosition::SuiteFixture,
    ];

    fn all_facts() -> Vec<ProcessEndFacts> {
        let mut all = Vec::new();
        for bits in 0..64_u8 {
            for stack_position in POSITIONS {
                for doubtful_since in [None, Some(3)] {
                    let is_set = |bit: u8| BOOLS[usize::from(bits >> bit & 1)];
                    all.push(ProcessEndFacts {
                        is_own_end: is_set(0),
                        is_stack_of_end: is_set(1),
                        is_complete: is_set(2),
                        is_left_open: is_set(3),
                        has_running_test: is_set(4),
                        is_limit: is_set(5) && !is_set(0),
                        stack_position,
                        doubtful_since,
                    });
                }
            }
        }
        all
    }

    #[test]
    fn results_are_proven_unless_the_end_contradicts_them() {
        for facts in all_facts() {
            let is_in_test =
                [StackPosition::RunningTest, StackPosition::OtherTest].contains(&facts.stack_position);
            let is_end_elsewhere = facts.is_stack_of_end
                && is_in_test
                && (!facts.has_running_test || facts.stack_position == StackPosition::OtherTest);
            let is_forged_run = facts.is_complete && facts.is_left_open;
            let is_confirmed = facts.has_running_test && facts.stack_position == StackPosition::RunningTest;
            let expected = if is_confirmed {
                ProvenResults::All
            } else if facts.is_own_end && (is_end_elsewhere || is_forged_run)
                || facts.is_limit && is_end_elsewhere
            {
                ProvenResults::None
            } else if facts.is_limit && facts.has_running_test {
                ProvenResults::Before(0)
            } else {
                facts.doubtful_since.map_or(ProvenResults::All, ProvenResults::Before)
            };
            assert_eq!(proven_results(facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn last_summary_of_a_sanitizer_is_found() {
        let report = "==1==ERROR: x\n    #0 f\nSUMMARY: AddressSanitizer: SEGV a.cc:3 in f\n==1==ABORTING\n";
        assert_eq!(sanitizer_summary(report), Some("AddressSanitizer: SEGV a.cc:3 in f"));
        assert_eq!(sanitizer_finding(report).as_deref(), Some("AddressSanitizer: SEGV a.cc:3 in f"));
        let error = "/w/b.cc:4:35: runtime error: signed integer overflow: 1 + 2\n";
        let found = "UndefinedBehaviorSanitizer: signed integer overflow: 1 + 2 at /w/b.cc:4:35";
        assert_eq!(sanitizer_finding(error).as_deref(), Some(found));
        let with_summary =
            format!("{error}SUMMARY: UndefinedBehaviorSanitizer: undefined-behavior b.cc:4:35\n");
        assert_eq!(sanitizer_finding(&with_summary).as_deref(), Some(found));
        assert_eq!(sanitizer_finding("b.cc: runtime error: no place\n"), None);
        assert_eq!(join_outputs(error, &format!("==2==\n{error}")), error);
        assert_eq!(sanitizer_summary("SUMMARY: all is well\n"), None);
    }
}
