//! A journal of a run in memory. Only small results are kept; for other results, only their places in the
//! file are kept, because a run's outputs may not fit into memory.

use std::{collections::HashMap, path::PathBuf};

use heeler_core::{RunRecord, TestId, TestResult, delivery::JournalMark};
use heeler_protocol::journal::{JournalRecord, LocatedRecord, RecordPlace, RunEnd};
use heeler_recovery::{JournalFile, mark_of};

use super::recorded_run::{RecordedProcess, RecordedResult, RecordedTestResult, ResultContent};

/// Maximum size of a record kept in memory. Most results are of passed tests, which are smaller; few
/// failures have outputs.
const KEPT_RECORD_BYTES: u64 = 1 << 10;

/// Records of one journal.
#[derive(Debug, Default)]
pub(super) struct ScannedJournal {
    /// Index among the run's journals.
    number: usize,
    /// The file, without records.
    pub(super) file: JournalFile,
    /// Results and program failures, in order.
    pub(super) results: Vec<RecordedResult>,
    /// Processes of the worker, in the order of their starts.
    pub(super) processes: Vec<RecordedProcess>,
    /// Record of the run's end, if in this journal.
    pub(super) end: Option<Box<RunEnd>>,
    /// Marks of the tests in this journal, in order.
    pub(super) marks: Vec<(TestId, JournalMark)>,
    /// Place of the last provisional result of each test that has one.
    pub(super) last_attempts: HashMap<TestId, RecordPlace>,
}

impl ScannedJournal {
    /// Reads a journal, given its index among the run's journals. A missing journal counts as empty.
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

    /// Returns a result, kept in memory if small.
    fn result(&self, test: TestId, result: TestResult, place: RecordPlace) -> RecordedTestResult {
        // A worker runs one process at a time, and settles its tests before it starts the next one.
        let process = self.processes.len().checked_sub(1);
        let recorded = RecordedTestResult { process, ..RecordedTestResult::kept(test, result) };
        if place.length <= KEPT_RECORD_BYTES {
            return recorded;
        }
        RecordedTestResult { content: ResultContent::Journalled { journal: self.number, place }, ..recorded }
    }
}
