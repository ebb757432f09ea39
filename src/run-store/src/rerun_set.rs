//! The rerun set of a run: tests that failed, and tests without a result. Tests of an earlier rerun set that
//! a rerun did not select remain in its own rerun set, so that none is lost until all have passed.

use std::collections::{HashMap, HashSet};

use heeler_protocol::{
    manifest::RerunSet,
    mtp::{ExecutionState, TestNode},
};

use super::RecordedRun;
use heeler_report::ReportedOutcome;

/// Selects the tests of an earlier run to rerun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RerunSelector {
    /// The failed tests of the latest run.
    Failed,
    /// The tests of the latest run without a result.
    NotRun,
    /// Both kinds, of the named run.
    Run(String),
}

impl std::str::FromStr for RerunSelector {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "failed" => Self::Failed,
            "not-run" => Self::NotRun,
            run => Self::Run(run.to_owned()),
        })
    }
}

impl RerunSelector {
    /// Returns the word that names the run.
    #[must_use]
    pub fn run_word(&self) -> &str {
        match self {
            Self::Failed | Self::NotRun => super::resolve::LATEST,
            Self::Run(run) => run,
        }
    }

    /// Returns the selected tests.
    #[must_use]
    pub fn select<'l>(&self, left: &'l RerunSet) -> HashSet<&'l str> {
        let (failed, not_run) = match self {
            Self::Failed => (left.failed.as_slice(), [].as_slice()),
            Self::NotRun => ([].as_slice(), left.not_run.as_slice()),
            Self::Run(_) => (left.failed.as_slice(), left.not_run.as_slice()),
        };
        failed.iter().chain(not_run).map(String::as_str).collect()
    }
}

/// Returns the rerun set of a run, including that of the runs which it reran.
#[must_use]
pub fn rerun_set(story: &RecordedRun) -> RerunSet {
    let plan = &story.manifest.plan;
    let last: HashMap<&str, &TestNode> =
        story.changes.iter().map(|change| (change.node.uid.as_str(), &change.node)).collect();
    let mut left = RerunSet::default();
    for test in &plan.tests {
        match last.get(test.uid.as_str()).and_then(|node| rerun_reason(node)) {
            Some(RerunReason::Failed) => left.failed.push(test.uid.clone()),
            Some(RerunReason::NotRun) => left.not_run.push(test.uid.clone()),
            None => {}
        }
    }
    let selected: HashSet<&str> = plan.tests.iter().map(|test| test.uid.as_str()).collect();
    let is_waiting = |uid: &&String| !selected.contains(uid.as_str());
    left.failed.extend(plan.earlier_rerun_set.failed.iter().filter(is_waiting).cloned());
    left.not_run.extend(plan.earlier_rerun_set.not_run.iter().filter(is_waiting).cloned());
    left
}

enum RerunReason {
    Failed,
    NotRun,
}

/// Returns why a test must be rerun; `None` for one that passed or was skipped.
fn rerun_reason(node: &TestNode) -> Option<RerunReason> {
    let has_no_result = matches!(node.outcome_kind.as_deref(), Some("interrupted" | "lost"))
        || node.state == Some(ExecutionState::Cancelled);
    match ReportedOutcome::from_node(node) {
        _ if has_no_result => Some(RerunReason::NotRun),
        None | Some(ReportedOutcome::NotRun | ReportedOutcome::Cancelled) => Some(RerunReason::NotRun),
        Some(ReportedOutcome::Passed | ReportedOutcome::Flaky | ReportedOutcome::Skipped) => None,
        Some(
            ReportedOutcome::Failed
            | ReportedOutcome::TimedOut
            | ReportedOutcome::Crashed
            | ReportedOutcome::Error,
        ) => Some(RerunReason::Failed),
    }
}
