//! One journal of a run as it is kept in memory: small results as they are, of the others their places. The
//! outputs of a run may not fit into memory.

use std::{collections::HashMap, path::PathBuf};

use heeler_core::{RunRecord, TestId, TestResult, delivery::JournalMark};
use heeler_protocol::journal::{JournalRecord, LocatedRecord, RecordPlace, RunEnd};
use heeler_recovery::{JournalFile, mark_of};

use super::recorded_run::{RecordedProcess, RecordedResult, RecordedTestResult, ResultContent};

/// Maximum size of a record that is kept. Those of passed tests, most of all, are smaller, and few failures
/// have outputs.
const KEPT_RECORD_BYTES: u64 = 1 << 10;

/// The records of one journal.
#[derive(Debug, Default)]
pub(super) struct ScannedJournal {
    /// Its index among the journals of the run.
    number: usize,
    /// The file, without records.
    pub(super) file: JournalFile,
    /// The results and program failures, in their order.
    pub(super) results: Vec<RecordedResult>,
    /// The processes of the worker, in the order of their starts.
    pub(super) processes: Vec<RecordedProcess>,
    /// The record of the run's end, if this journal has it.
    pub(super) end: Option<Box<RunEnd>>,
    /// What the journal holds of each test, in its order.
    pub(super) marks: Vec<(TestId, JournalMark)>,
    /// The last provisional result of each test that has one.
    pub(super) last_attempts: HashMap<TestId, RecordPlace>,
}

impl ScannedJournal {
    /// Reads a journal, given its index among those of the run. One that was never begun is empty.
    pub(super) fn scan(number: usize, path: PathBuf) -> Self {
        let mut journal = Self { number, ..Self::default() };
        let file = JournalFile::visit(path, |located| journal.add(located));
        for process in &mut journal.processes {
            process.worker = file.worker;
        }
        Self { file, ..journal }
    }

    fn add(&mut self, LocatedRecord { record, place }: LocatedRecord) {
        let event = match record {
            JournalRecord::Event(event) => event,
            JournalRecord::Ended(end) => {
                self.end = Some(end);
                return;
            }
        };
        self.marks.extend(mark_of(&event));
        match event {
            RunRecord::Provisional { test, .. } => {
                self.last_attempts.insert(test, place);
            }
            RunRecord::Finished { test, result } => {
                self.results.push(RecordedResult::Test(self.result(test, result, place)));
            }
            RunRecord::ProgramFailed(failure) => self.results.push(RecordedResult::Program(failure)),
            RunRecord::ProcessStarted(start) => {
                self.processes.push(RecordedProcess { worker: None, start, end: None });
            }
            RunRecord::ProcessEnded(end) => {
                let mut latest = self.processes.iter_mut().rev();
                if let Some(process) = latest.find(|one| one.start.pid == end.pid && one.end.is_none()) {
                    process.end = Some(end);
                }
            }
            RunRecord::Started(_)
            | RunRecord::Output { .. }
            | RunRecord::Held { .. }
            | RunRecord::IterationPassed { .. }
            | RunRecord::FilesKept(_)
            | RunRecord::SetUp { .. }
            | RunRecord::FixtureFailed { .. }
            | RunRecord::Leaked { .. }
            | RunRecord::Log(_) => {}
        }
    }

    /// Returns a result, in memory if it is small.
    fn result(&self, test: TestId, result: TestResult, place: RecordPlace) -> RecordedTestResult {
        let recorded = RecordedTestResult::kept(test, result);
        if place.length <= KEPT_RECORD_BYTES {
            return recorded;
        }
        RecordedTestResult { content: ResultContent::Journalled { journal: self.number, place }, ..recorded }
    }
}
