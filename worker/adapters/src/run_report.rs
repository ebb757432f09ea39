//! The report that a framework writes into a file when its run ends. What tests print can look like the
//! framework's own markers; this report cannot be printed.

use std::path::PathBuf;

use crate::{FixtureFailure, FrameworkVerdict};

/// The files in which a framework reports its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReportFiles {
    /// Written when the run ends.
    pub report: PathBuf,
    /// Exists while tests run, and still if the process was left in the middle of them.
    pub run_mark: PathBuf,
}

/// The report of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunReport {
    /// For each test given, the verdict; `None` if it was not run.
    pub verdicts: Vec<Option<FrameworkVerdict>>,
    /// The failure outside of any test and suite: in set-up or tear-down of the environment.
    pub outside_failure: Option<String>,
    /// Failures in set-up or tear-down of suites.
    pub fixture_failures: Vec<FixtureFailure>,
    /// A test that was run, but is not one of those given.
    pub unselected: Option<String>,
    /// A test has failed that is not one of those given, but has the name of one.
    pub has_other_failure: bool,
}
