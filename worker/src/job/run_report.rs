//! Reads the framework's report of its run after its process has ended.

use heeler_adapters::{Adapter, RunReportFiles};

use super::prepared_lease::listed_tests;
use crate::{
    batch::{RunEvidence, RunningBatch},
    process::regular_file::read_regular_file,
};

/// Maximum size of a report. A report of 20,000 passed tests has 4 MB; long failure messages in all of them
/// would make it this large.
const REPORT_LIMIT_BYTES: u64 = 256 << 20;

pub(super) struct RunReportReader {
    adapter: &'static dyn Adapter,
    files: Option<RunReportFiles>,
}

impl RunReportReader {
    pub(super) fn new(adapter: &'static dyn Adapter, files: Option<RunReportFiles>) -> Self {
        Self { adapter, files }
    }

    /// Returns whether the framework writes a report at the end of its run.
    pub(super) fn is_expected(&self) -> bool {
        self.files.is_some()
    }

    /// Reads the report or run mark. Ignores a report that is truncated, larger than any real one, or
    /// possibly written by another process (`has_other_run`); the output then decides.
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
