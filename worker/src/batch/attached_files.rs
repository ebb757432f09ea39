//! The files that the tests of a process attached, until their results are settled.

use std::collections::HashMap;

use heeler_core::DiagnosticsFile;
use heeler_protocol::{
    control::{LeaseEvent, LogLine},
    mtp::LogLevel,
};

use super::RunningBatch;
use crate::results::update_batch::UpdateBatch;

/// Kept files of tests without a settled result, by the index of the test.
#[derive(Debug, Default)]
pub(super) struct AttachedFiles {
    files: HashMap<usize, Vec<DiagnosticsFile>>,
}

impl AttachedFiles {
    /// Takes the files of a test whose result is being settled.
    pub(super) fn take(&mut self, place: usize) -> Vec<DiagnosticsFile> {
        self.files.remove(&place).unwrap_or_default()
    }
}

impl RunningBatch {
    /// Adds a kept file to the result of a test. One that comes after the result was settled is a file of the
    /// run, with a warning.
    pub(crate) fn attach(&mut self, place: usize, file: DiagnosticsFile, updates: &mut UpdateBatch) {
        if place >= self.order.tests().len() {
            return;
        }
        if !self.settled.contains(place) {
            self.attached.files.entry(place).or_default().push(file);
            return;
        }
        let message = format!(
            "the file {} came after the result of its test, and is among the files of the run only",
            file.path.to_text()
        );
        let test = Some(self.order.tests()[place].test);
        updates.logs.push(LogLine { test, level: LogLevel::Warning, message });
        updates.reports.push(LeaseEvent::FilesAttached { test: None, files: vec![file] });
    }
}
