//! Rerun set of a run: its failed tests, and its tests without a result. Tests of an earlier rerun set that
//! a rerun did not select stay in the rerun set, so that no test is lost until all have passed.

use std::collections::{HashMap, HashSet};

use heeler_core::{Outcome, TestId};
use heeler_protocol::manifest::RerunSet;

use super::{RecordedResult, RecordedRun};

/// Selects the tests of an earlier run to rerun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RerunSelector {
    /// Failed tests of the latest run.
    Failed,
    /// Tests of the latest run without a result.
    NotRun,
    /// Failed tests, and tests without a result, of the named run.
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
    /// Returns the run to resolve: `latest`, or the run that the user named.
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

/// Returns the rerun set of a run, including tests inherited from the run that it reran.
#[must_use]
pub fn rerun_set(story: &RecordedRun) -> RerunSet {
    let plan = &story.manifest.plan;
    let last: HashMap<TestId, Outcome> = story
        .results
        .iter()
        .filter_map(|result| match result {
            RecordedResult::Test(recorded) => Some((recorded.test, recorded.outcome)),
            RecordedResult::Program(_) => None,
        })
        .collect();
    let mut left = RerunSet::default();
    for (id, test) in plan.selected_tests() {
        match last.get(&id) {
            Some(outcome) if outcome.lacks_result() => left.not_run.push(test.uid.clone()),
            Some(outcome) if outcome.is_failure() => left.failed.push(test.uid.clone()),
            Some(_) => {}
            None => left.not_run.push(test.uid.clone()),
        }
    }
    let selected: HashSet<&str> = plan.tests.iter().map(|test| test.uid.as_str()).collect();
    let is_waiting = |uid: &&String| !selected.contains(uid.as_str());
    left.failed.extend(plan.earlier_rerun_set.failed.iter().filter(is_waiting).cloned());
    left.not_run.extend(plan.earlier_rerun_set.not_run.iter().filter(is_waiting).cloned());
    left
}
