//! Dump budget of a run, and the crash capture settings of each lease that follow from it.

use std::collections::HashSet;

use heeler_core::TestId;
use heeler_protocol::control::{Attempt, CrashCapturePlan, DiagnosticsFile, DumpKinds, OsText, TraceMode};

use super::RunPlan;
use heeler_config::{CrashCapture, DumpPolicy};

/// Dumps written so far in the run. Leases in progress may slightly exceed the limits.
#[derive(Debug, Default)]
pub(super) struct DumpBudget {
    counted_dumps: HashSet<OsText>,
    bytes: u64,
}

impl DumpBudget {
    /// Counts the dumps of a provisional attempt now. They are reported as attachments only when the test is
    /// settled, and many other dumps may have been written by then.
    pub(super) fn count_provisional(&mut self, attempt: &Attempt) {
        if let Some(evidence) = &attempt.diagnostics {
            self.count(&evidence.files);
        }
    }

    /// Counts the dumps among these files, each path once.
    pub(super) fn count(&mut self, files: &[DiagnosticsFile]) {
        for file in files {
            if file.path.as_bytes().ends_with(b".dmp") && self.counted_dumps.insert(file.path.clone()) {
                self.bytes += std::fs::metadata(file.path.as_path()).map_or(0, |found| found.len());
            }
        }
    }

    /// Returns crash capture and dump settings for a process of these tests. The tests share the process, so
    /// the most restrictive setting applies.
    pub(super) fn watch_plan(&self, plan: &RunPlan, tests: &[TestId]) -> CrashCapturePlan {
        let selected = || tests.iter().map(|test| &plan.tests[test.index()]);
        let is_off = selected().any(|test| test.settings.crash_capture == CrashCapture::Off);
        let is_tree = selected().all(|test| test.settings.crash_capture == CrashCapture::Tree);
        let has_room = self.counted_dumps.len() < plan.dump_limits.max_dumps as usize
            && self.bytes < plan.dump_limits.total_bytes;
        let wants = |kind: DumpPolicy| {
            has_room && selected().all(|test| [DumpPolicy::All, kind].contains(&test.settings.dumps))
        };
        CrashCapturePlan {
            mode: if is_off {
                None
            } else if is_tree {
                Some(TraceMode::Tree)
            } else {
                Some(TraceMode::Root)
            },
            dumps: DumpKinds { crash: wants(DumpPolicy::Crash), hang: wants(DumpPolicy::Hang) },
            limit_bytes: plan.dump_limits.limit_bytes,
            keeps_environment: plan.dump_limits.keeps_environment,
        }
    }
}
