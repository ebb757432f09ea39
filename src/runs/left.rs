//! The rerun set of a run: tests that failed, and tests without a result. Tests of an earlier rerun set that
//! a rerun did not select remain in its own rerun set, so that none is lost until all have passed.

use std::collections::{HashMap, HashSet};

use wire::{
    manifest::Left,
    mtp::{ExecutionState, TestNode},
};

use super::Story;
use crate::report::Outcome;

/// Selects the tests of an earlier run to rerun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The failed tests of the latest run.
    Failed,
    /// The tests of the latest run without a result.
    NotRun,
    /// Both kinds, of the named run.
    Of(String),
}

impl std::str::FromStr for Wanted {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "failed" => Self::Failed,
            "not-run" => Self::NotRun,
            run => Self::Of(run.to_owned()),
        })
    }
}

impl Wanted {
    /// Returns the word that names the run.
    #[must_use]
    pub fn run(&self) -> &str {
        match self {
            Self::Failed | Self::NotRun => super::choose::LATEST,
            Self::Of(run) => run,
        }
    }

    /// Returns the selected tests.
    #[must_use]
    pub fn of<'l>(&self, left: &'l Left) -> HashSet<&'l str> {
        let (failed, not_run) = match self {
            Self::Failed => (left.failed.as_slice(), [].as_slice()),
            Self::NotRun => ([].as_slice(), left.not_run.as_slice()),
            Self::Of(_) => (left.failed.as_slice(), left.not_run.as_slice()),
        };
        failed.iter().chain(not_run).map(String::as_str).collect()
    }
}

/// Returns the rerun set of a run, including that of the runs which it reran.
#[must_use]
pub fn left(story: &Story) -> Left {
    let plan = &story.manifest.plan;
    let last: HashMap<&str, &TestNode> =
        story.changes.iter().map(|change| (change.node.uid.as_str(), &change.node)).collect();
    let mut left = Left::default();
    for test in &plan.tests {
        match last.get(test.uid.as_str()).and_then(|node| kind(node)) {
            Some(Kind::Failed) => left.failed.push(test.uid.clone()),
            Some(Kind::NotRun) => left.not_run.push(test.uid.clone()),
            None => {}
        }
    }
    let selected: HashSet<&str> = plan.tests.iter().map(|test| test.uid.as_str()).collect();
    let is_waiting = |uid: &&String| !selected.contains(uid.as_str());
    left.failed.extend(plan.left_before.failed.iter().filter(is_waiting).cloned());
    left.not_run.extend(plan.left_before.not_run.iter().filter(is_waiting).cloned());
    left
}

enum Kind {
    Failed,
    NotRun,
}

/// Returns why a test must be rerun; `None` for one that passed or was skipped.
fn kind(node: &TestNode) -> Option<Kind> {
    let has_no_result = matches!(node.outcome_kind.as_deref(), Some("interrupted" | "lost"))
        || node.state == Some(ExecutionState::Cancelled);
    match Outcome::of(node) {
        _ if has_no_result => Some(Kind::NotRun),
        None | Some(Outcome::NotRun | Outcome::Cancelled) => Some(Kind::NotRun),
        Some(Outcome::Passed | Outcome::Flaky | Outcome::Skipped) => None,
        Some(Outcome::Failed | Outcome::TimedOut | Outcome::Crashed | Outcome::Error) => Some(Kind::Failed),
    }
}
