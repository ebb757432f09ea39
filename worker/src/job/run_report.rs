//! Reads what a framework has left behind of its run, when its process has ended.

use heeler_adapters::{Adapter, RunReportFiles};

use super::prepared_lease::listed_tests;
use crate::{
    batch::{RunEvidence, RunningBatch},
    process::regular_file::read_regular_file,
};

/// A report of 20,000 passed tests is 4 MB; with long failures in each of them, this.
const REPORT_LIMIT_BYTES: u64 = 256 << 20;

/// Reads the report of one process.
pub(super) struct RunReportReader {
    adapter: &'static dyn Adapter,
    files: Option<RunReportFiles>,
}

impl RunReportReader {
    pub(super) fn new(adapter: &'static dyn Adapter, files: Option<RunReportFiles>) -> Self {
        Self { adapter, files }
    }

    /// Returns whether the framework reports its run when it ends.
    pub(super) fn is_expected(&self) -> bool {
        self.files.is_some()
    }

    /// Returns what is there. A report that is cut, or larger than any real one, is none; so is one that
    /// another process may have written, because `has_other_run`: the output decides then.
    pub(super) fn read(&self, batch: &RunningBatch, has_other_run: bool) -> RunEvidence {
        let Some(files) = &self.files else { return RunEvidence::None };
        let bytes = if has_other_run { None } else { read_regular_file(&files.report, REPORT_LIMIT_BYTES) };
        let report = bytes.and_then(|bytes| self.adapter.read_run_report(&listed_tests(batch), &bytes));
        match report {
            Some(report) => RunEvidence::Report(report),
            None if files.run_mark.exists() => RunEvidence::LeftOpen,
            None => RunEvidence::None,
        }
    }
}
