//! One journal of a run as it is kept in memory: small results as they are, of the others their places. The
//! outputs of a run may not fit into memory.

use std::{collections::HashMap, path::PathBuf};

use heeler_core::{Outcome, TestId, TestResult, delivery::JournalMark};
use heeler_protocol::journal::{JournalRecord, LocatedRecord, ProgramFailure, RecordPlace, RunEnd};
use heeler_recovery::JournalFile;

use super::recorded_run::{RecordedResult, RecordedTestResult, ResultContent, ended_at_ms};

/// Maximum size of a record that is kept. Those of passed tests, most of all, are smaller, and few failures
/// have outputs.
const KEPT_RECORD_BYTES: u64 = 1 << 10;

/// The records of one journal.
#[derive(Debug, Default)]
pub(super) struct ScannedJournal {
    /// The file, without records.
    pub(super) file: JournalFile,
    /// The results and program failures, in their order.
    pub(super) results: Vec<ScannedResult>,
    /// The record of the run's end, if this journal has it.
    pub(super) end: Option<Box<RunEnd>>,
    /// What the journal holds of each test, in its order.
    pub(super) marks: Vec<(TestId, JournalMark)>,
    /// The last provisional result of each test that has one.
    pub(super) last_attempts: HashMap<TestId, RecordPlace>,
}

/// A result in a journal.
#[derive(Debug)]
pub(super) enum ScannedResult {
    Kept(RecordedTestResult),
    Large { test: TestId, outcome: Outcome, ended_ms: Option<u64>, place: RecordPlace },
    Program(ProgramFailure),
}

impl ScannedJournal {
    /// Reads a journal. One that was never begun is empty.
    pub(super) fn scan(path: PathBuf) -> Self {
        let mut journal = Self::default();
        let file = JournalFile::visit(path, |located| journal.add(located));
        Self { file, ..journal }
    }

    fn add(&mut self, LocatedRecord { record, place }: LocatedRecord) {
        match record {
            JournalRecord::Started(test) => self.marks.push((test, JournalMark::Started)),
            JournalRecord::Provisional { test, .. } => {
                self.marks.push((test, JournalMark::Provisional));
                self.last_attempts.insert(test, place);
            }
            JournalRecord::Finished { test, result } => {
                self.marks.push((test, JournalMark::Settled));
                self.results.push(ScannedResult::of(test, result, place));
            }
            JournalRecord::ProgramFailed(failure) => self.results.push(ScannedResult::Program(failure)),
            JournalRecord::Ended(end) => self.end = Some(end),
        }
    }
}

impl ScannedResult {
    fn of(test: TestId, result: TestResult, place: RecordPlace) -> Self {
        if place.length <= KEPT_RECORD_BYTES {
            return Self::Kept(RecordedTestResult::kept(test, result));
        }
        Self::Large { test, outcome: result.outcome, ended_ms: ended_at_ms(&result), place }
    }

    /// Returns when the test ended, in milliseconds since 1970; `None` if it is unknown.
    pub(super) fn ended_ms(&self) -> Option<u64> {
        match self {
            Self::Kept(kept) => kept.ended_ms,
            Self::Large { ended_ms, .. } => *ended_ms,
            Self::Program(_) => None,
        }
    }

    /// Returns the result as one of the run's `journal`.
    pub(super) fn in_journal(self, journal: usize) -> RecordedResult {
        match self {
            Self::Kept(kept) => RecordedResult::Test(kept),
            Self::Large { test, outcome, ended_ms, place } => {
                let content = ResultContent::Journalled { journal, place };
                RecordedResult::Test(RecordedTestResult { test, outcome, ended_ms, content })
            }
            Self::Program(failure) => RecordedResult::Program(failure),
        }
    }
}
