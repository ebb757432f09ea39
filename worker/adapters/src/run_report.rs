//! The report that a framework writes into a file at the end of its run. Tests can print fake markers, but
//! they cannot fake this report.

use std::path::PathBuf;

use crate::{FixtureFailure, FrameworkVerdict};

/// Files with a framework's report of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReportFiles {
    /// Written when the run ends.
    pub report: PathBuf,
    /// Exists while tests run. Remains if the process ended in the middle of them.
    pub run_mark: PathBuf,
}

/// The report of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunReport {
    /// Verdict of each given test; `None` if it was not run.
    pub verdicts: Vec<Option<FrameworkVerdict>>,
    /// The failure outside any test and suite: in the set-up or tear-down of the environment.
    pub outside_failure: Option<String>,
    /// Failures in set-up or tear-down of suites.
    pub fixture_failures: Vec<FixtureFailure>,
    /// A test that ran but was not selected.
    pub unselected: Option<String>,
    /// A test failed that was not selected but has the name of a selected test.
    pub has_other_failure: bool,
}
