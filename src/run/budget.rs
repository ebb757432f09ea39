//! Dump budget of a run, and the crash capture of a lease's process that follows from it.

use std::collections::HashSet;

use model::TestId;
use wire::control::{Attempt, DumpKinds, EvidenceFile, OsBytes, TraceMode, WatchPlan};

use super::RunPlan;
use crate::config::{Dumps, Watch};

/// Dumps written so far in the run. Leases in progress may exceed the limit slightly.
#[derive(Debug, Default)]
pub(super) struct DumpBudget {
    dumps: HashSet<OsBytes>,
    bytes: u64,
}

impl DumpBudget {
    /// Counts the files of a provisional attempt. They are reported as attached only when the test is
    /// settled, and by then many other dumps may have been written.
    pub(super) fn count_held(&mut self, attempt: &Attempt) {
        if let Some(evidence) = &attempt.evidence {
            self.count(&evidence.files);
        }
    }

    /// Counts files; a file that is known already counts once.
    pub(super) fn count(&mut self, files: &[EvidenceFile]) {
        for file in files {
            if file.path.as_bytes().ends_with(b".dmp") && self.dumps.insert(file.path.clone()) {
                self.bytes += std::fs::metadata(file.path.as_path()).map_or(0, |found| found.len());
            }
        }
    }

    /// Returns the crash capture and the dumps for a process of these tests. They share the process, so the
    /// most restrictive setting applies.
    pub(super) fn watch(&self, plan: &RunPlan, tests: &[TestId]) -> WatchPlan {
        let selected = || tests.iter().map(|test| &plan.tests[test.index()]);
        let is_off = selected().any(|test| test.watch == Watch::Off);
        let is_tree = selected().all(|test| test.watch == Watch::Tree);
        let has_room = self.dumps.len() < plan.dumping.most as usize && self.bytes < plan.dumping.total_bytes;
        let wants =
            |kind: Dumps| has_room && selected().all(|test| test.dumps == Dumps::All || test.dumps == kind);
        WatchPlan {
            mode: if is_off {
                None
            } else if is_tree {
                Some(TraceMode::Tree)
            } else {
                Some(TraceMode::Root)
            },
            dumps: DumpKinds { crash: wants(Dumps::Crash), hang: wants(Dumps::Hang) },
            limit_bytes: plan.dumping.limit_bytes,
            keeps_environment: plan.dumping.keeps_environment,
        }
    }
}
