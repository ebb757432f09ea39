//! Updates from one chunk of a test process's output, in order: bytes for the journal, changes for the
//! client, reports for the coordinator. Nothing is written or sent here.

use std::collections::{HashMap, HashSet};

use heeler_core::{Attempt, DiagnosticsFile, Failure, LogLine, NextRun, TestId, TestResult};
use heeler_protocol::{
    control::{FRAME_LIMIT_BYTES, LeaseEvent},
    journal,
};

use super::shown_output::ShownOutput;

#[derive(Debug, Default)]
pub(crate) struct UpdateBatch {
    /// Bytes for the journal, written before anything is sent.
    pub(crate) journal: Vec<u8>,
    /// Reports to the coordinator, sent last.
    pub(crate) reports: Vec<LeaseEvent>,
    /// Test output to show while tests run.
    pub(crate) shown: ShownOutput,
    /// Lines for the client's log.
    pub(crate) logs: Vec<LogLine>,
    /// The results are in no journal, so the coordinator must learn of them before the client does.
    pub(crate) is_unjournalled: bool,
    /// The journals of the run have reached their limit, so results are recorded without outputs.
    pub(crate) is_journal_full: bool,
    /// Groups sent before or with this batch.
    pub(crate) sent_groups: HashSet<String>,
    changes: Vec<u8>,
    change_ends: Vec<ChangeEnd>,
    /// Indexes of the changes that introduce groups.
    group_indexes: Vec<usize>,
    /// Index of each started test's change, for tests without a result in this batch.
    started_indexes: HashMap<TestId, usize>,
    /// Files of results in order, each with the index of the result's change.
    files: Vec<IndexedFile>,
    /// Number of the run's settled results, including this batch.
    position: u64,
}

#[derive(Debug, Clone, Copy)]
struct ChangeEnd {
    at: usize,
    position: u64,
    /// The change is not sent, because the test's result follows in the same batch.
    is_left_out: bool,
    /// Test and kind of change; `None` for a change that introduces a group.
    test: Option<(TestId, TestChangeKind)>,
}

#[derive(Debug)]
struct IndexedFile {
    change: usize,
    file: DiagnosticsFile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestChangeKind {
    /// The start of the test, or output while the test runs.
    Running,
    Ended,
}

/// A change of a test within a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestChange {
    /// Index within the chunk.
    pub(crate) index: usize,
    pub(crate) test: TestId,
    pub(crate) kind: TestChangeKind,
}

/// Changes that fit into one frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UpdateChunk<'a> {
    /// Number of the run's results sent up to and including this chunk.
    pub(crate) position: u64,
    /// JSON of each change.
    pub(crate) changes: Vec<&'a [u8]>,
    /// The changes that belong to tests, each marked as running or ended.
    pub(crate) tests: Vec<TestChange>,
    /// Files of the results in this chunk.
    pub(crate) files: Vec<&'a DiagnosticsFile>,
}

impl UpdateBatch {
    /// Creates an empty batch. `position`: number of the run's results in this worker's journal.
    pub(crate) fn at_position(position: u64) -> Self {
        Self { position, ..Self::default() }
    }

    /// Returns the number of the run's settled results after this batch.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn is_empty(&self) -> bool {
        let is_anything_sent = !self.reports.is_empty() || !self.logs.is_empty() || !self.changes.is_empty();
        !is_anything_sent && self.journal.is_empty() && self.shown.is_empty()
    }

    /// Takes the contents, leaving an empty batch at the same position.
    pub(crate) fn take(&mut self) -> Self {
        let rest = Self {
            sent_groups: std::mem::take(&mut self.sent_groups),
            is_journal_full: self.is_journal_full,
            ..Self::at_position(self.position)
        };
        std::mem::replace(self, rest)
    }

    /// Adds a group, unless it was already sent.
    pub(crate) fn add_group(&mut self, uid: &str, change: &[u8]) {
        if self.sent_groups.insert(uid.to_owned()) {
            self.group_indexes.push(self.change_ends.len());
            self.changes.extend_from_slice(change);
            self.end_change(None);
        }
    }

    fn end_change(&mut self, test: Option<(TestId, TestChangeKind)>) {
        let end = ChangeEnd { at: self.changes.len(), position: self.position, is_left_out: false, test };
        self.change_ends.push(end);
    }

    /// Returns the changes that introduce groups, in order.
    pub(crate) fn group_changes(&self) -> impl Iterator<Item = &[u8]> {
        self.group_indexes.iter().map(|place| {
            let start = place.checked_sub(1).map_or(0, |before| self.change_ends[before].at);
            &self.changes[start..self.change_ends[*place].at]
        })
    }

    /// Adds the start of a test. `write` appends its change.
    pub(crate) fn add_started(&mut self, test: TestId, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.changes);
        self.started_indexes.insert(test, self.change_ends.len());
        self.end_change(Some((test, TestChangeKind::Running)));
        self.reports.push(LeaseEvent::Started(test));
    }

    /// Adds output of a running test. `write` appends its change.
    pub(crate) fn add_output(&mut self, test: TestId, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.changes);
        if self.change_ends.last().map_or(0, |end| end.at) < self.changes.len() {
            self.end_change(Some((test, TestChangeKind::Running)));
        }
    }

    /// Drops the start of an ended test if it is in this batch, since the result follows soon.
    pub(crate) fn leave_out_start(&mut self, test: TestId) {
        if let Some(index) = self.started_indexes.remove(&test) {
            self.change_ends[index].is_left_out = true;
        }
    }

    /// Adds a terminal result. `write` appends its change. Drops the test's start if it is in this batch,
    /// which halves the work of the client, usually the slower side.
    pub(crate) fn add_settled(
        &mut self,
        test: TestId,
        result: &TestResult,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.is_journal_full {
            journal::write_finished(&mut self.journal, test, &without_outputs(result));
        } else {
            journal::write_finished(&mut self.journal, test, result);
        }
        self.leave_out_start(test);
        write(&mut self.changes);
        let change = self.change_ends.len();
        let files = result.files();
        self.files.extend(files.iter().cloned().map(|file| IndexedFile { change, file }));
        if !files.is_empty() {
            self.reports.push(LeaseEvent::FilesAttached { test: Some(test), files });
        }
        self.position += 1;
        self.end_change(Some((test, TestChangeKind::Ended)));
        self.reports.push(LeaseEvent::Settled {
            test,
            outcome: result.outcome,
            duration_us: result.duration_us.unwrap_or(0),
            position: self.position,
        });
    }

    /// Adds a provisional result, which is not sent to the client.
    pub(crate) fn add_provisional(&mut self, test: TestId, attempt: Attempt, next: NextRun) {
        if self.is_journal_full {
            journal::write_provisional(&mut self.journal, test, &attempt_without_outputs(&attempt), next);
        } else {
            journal::write_provisional(&mut self.journal, test, &attempt, next);
        }
        let attempt = Box::new(attempt);
        self.reports.push(match next {
            NextRun::Retry => LeaseEvent::FailedProvisionally { test, attempt },
            NextRun::Isolated => LeaseEvent::CrashedProvisionally { test, attempt },
        });
    }

    pub(crate) fn has_changes(&self) -> bool {
        self.change_ends.iter().any(|end| !end.is_left_out)
    }

    /// Returns the changes, split into frames.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = UpdateChunk<'_>> {
        let mut next = 0_usize;
        std::iter::from_fn(move || {
            let first = next;
            let from = first.checked_sub(1).map_or(0, |before| self.change_ends[before].at);
            let mut start = from;
            let mut bytes = 0;
            let mut changes = Vec::new();
            let mut tests = Vec::new();
            while let Some(end) = self.change_ends.get(next) {
                let change = &self.changes[start..end.at];
                if !end.is_left_out {
                    bytes += change.len();
                    if !changes.is_empty() && bytes > FRAME_LIMIT_BYTES {
                        break;
                    }
                    let index = changes.len();
                    tests.extend(end.test.map(|(test, kind)| TestChange { index, test, kind }));
                    changes.push(change);
                }
                start = end.at;
                next += 1;
            }
            let files = self.files.iter().filter(|file| (first..next).contains(&file.change));
            (!changes.is_empty()).then(|| UpdateChunk {
                position: self.change_ends[next - 1].position,
                changes,
                tests,
                files: files.map(|indexed| &indexed.file).collect(),
            })
        })
    }
}

/// Maximum size of each text of a result in a full journal.
const RECORDED_TEXT_BYTES: usize = 1 << 10;

/// Returns a result for a full journal: without outputs and long messages.
fn without_outputs(result: &TestResult) -> TestResult {
    let failure = |failure: &Failure| Failure {
        message: failure.message.as_deref().map(shortened_text),
        expected: failure.expected.as_deref().map(shortened_text),
        actual: failure.actual.as_deref().map(shortened_text),
        ..failure.clone()
    };
    TestResult {
        stdout: omitted_output(&result.stdout),
        stderr: omitted_output(&result.stderr),
        reason: result.reason.as_deref().map(shortened_text),
        failures: result.failures.iter().map(failure).collect(),
        attempts: result.attempts.iter().map(attempt_without_outputs).collect(),
        parts: Vec::new(),
        parts_left_out: u32::try_from(result.parts.len())
            .unwrap_or(u32::MAX)
            .saturating_add(result.parts_left_out),
        answer: None,
        ..result.clone()
    }
}

fn attempt_without_outputs(attempt: &Attempt) -> Attempt {
    Attempt {
        message: shortened_text(&attempt.message),
        stdout: omitted_output(&attempt.stdout),
        stderr: omitted_output(&attempt.stderr),
        ..attempt.clone()
    }
}

fn omitted_output(output: &str) -> String {
    if output.len() <= RECORDED_TEXT_BYTES {
        return output.to_owned();
    }
    format!("[heeler: {} bytes dropped: journal-limit was reached]\n", output.len())
}

fn shortened_text(text: &str) -> String {
    if text.len() <= RECORDED_TEXT_BYTES {
        return text.to_owned();
    }
    let (kept, cut) = text.split_at(text.floor_char_boundary(RECORDED_TEXT_BYTES));
    format!("{kept}\n[heeler: {} bytes dropped: journal-limit was reached]", cut.len())
}

#[cfg(test)]
mod tests {
    use heeler_core::{Outcome, RunRecord, TestDiagnostics};
    use heeler_protocol::journal::{JournalContent, JournalRecord};

    use super::*;

    fn settle(updates: &mut UpdateBatch, test: u32, change: &[u8]) {
        let result = TestResult { duration_us: Some(1), ..TestResult::new(Outcome::Passed) };
        updates.add_settled(TestId(test), &result, |out| out.extend_from_slice(change));
    }

    #[test]
    fn update_batch_keeps_each_update_once_in_order() {
        let mut updates = UpdateBatch::at_position(4);
        updates.add_started(TestId(7), |out| out.extend_from_slice(b"a"));
        settle(&mut updates, 7, b"bc");
        updates.add_started(TestId(8), |out| out.extend_from_slice(b"d"));
        let loads: Vec<_> = updates.chunks().collect();
        // The start of the test that has a result is dropped.
        let changes = vec![&b"bc"[..], b"d"];
        let tests = vec![
            TestChange { index: 0, test: TestId(7), kind: TestChangeKind::Ended },
            TestChange { index: 1, test: TestId(8), kind: TestChangeKind::Running },
        ];
        assert_eq!(loads, [UpdateChunk { position: 5, changes, tests, files: Vec::new() }]);
        assert!(matches!(updates.reports[1], LeaseEvent::Settled { position: 5, .. }));
        let bytes = [journal::MAGIC, &updates.journal].concat();
        let JournalContent { records, damage, .. } = journal::read(&bytes);
        assert_eq!(damage, None);
        assert!(matches!(&records[..], [JournalRecord::Event(RunRecord::Finished { test: TestId(7), .. }),]));
        let taken = updates.take();
        assert!(!taken.is_empty() && updates.is_empty());
        assert_eq!(updates.position(), 5);
    }

    #[test]
    fn full_journal_has_the_result_and_the_client_its_output() {
        let output = "o".repeat(5000);
        let failure = Failure { message: Some("m".repeat(5000)), line: Some(7), ..Failure::default() };
        let result = TestResult {
            stdout: output.clone(),
            stderr: "short".to_owned(),
            failures: vec![failure],
            ..TestResult::new(Outcome::Failed)
        };
        let mut updates = UpdateBatch { is_journal_full: true, ..UpdateBatch::default() };
        updates.add_settled(TestId(3), &result, |out| out.extend_from_slice(output.as_bytes()));
        let bytes = [journal::MAGIC, &updates.journal].concat();
        let [JournalRecord::Event(RunRecord::Finished { result: recorded, .. })] =
            &journal::read(&bytes).records[..]
        else {
            panic!("one result")
        };
        assert_eq!((recorded.outcome, recorded.stderr.as_str()), (Outcome::Failed, "short"));
        assert!(recorded.stdout.contains("5000 bytes dropped"), "{}", recorded.stdout);
        let message = recorded.failures[0].message.as_deref().unwrap();
        assert!(message.starts_with("mmm") && message.contains("3976 bytes dropped"), "{message}");
        assert_eq!(recorded.failures[0].line, Some(7));
        assert_eq!(updates.chunks().next().unwrap().changes, [output.as_bytes()]);
        assert!(updates.take().is_journal_full && updates.is_journal_full, "it stays full");
    }

    #[test]
    fn changes_are_split_into_frames_by_size() {
        let mut updates = UpdateBatch::default();
        let sizes = [FRAME_LIMIT_BYTES / 2, FRAME_LIMIT_BYTES / 2, 1, FRAME_LIMIT_BYTES * 3, 5];
        for (test, size) in sizes.iter().enumerate() {
            settle(&mut updates, u32::try_from(test).unwrap(), &vec![b'x'; *size]);
        }
        let seen: Vec<_> = updates.chunks().map(|load| (load.position, load.changes.len())).collect();
        assert_eq!(seen, [(2, 2), (3, 1), (4, 1), (5, 1)]);
        let lengths: Vec<_> = updates.chunks().flat_map(|load| load.changes).map(<[u8]>::len).collect();
        assert_eq!(lengths, sizes);
    }

    #[test]
    fn files_go_with_the_frame_of_their_result() {
        let mut updates = UpdateBatch::default();
        let file = |name: &str| DiagnosticsFile { path: name.into(), description: String::new() };
        for (test, name) in [(1, Some("a")), (2, None), (3, Some("b"))] {
            let diagnostics = name.map(|name| {
                Box::new(TestDiagnostics { files: vec![file(name)], ..TestDiagnostics::default() })
            });
            let result = TestResult { diagnostics, ..TestResult::new(Outcome::Crashed) };
            let change = vec![b'x'; FRAME_LIMIT_BYTES / 2];
            updates.add_settled(TestId(test), &result, |out| out.extend_from_slice(&change));
        }
        let files: Vec<Vec<_>> = updates
            .chunks()
            .map(|chunk| chunk.files.iter().map(|file| file.path.to_text().into_owned()).collect())
            .collect();
        assert_eq!(files, [["a"], ["b"]]);
    }

    #[test]
    fn provisional_result_is_journalled_but_not_sent() {
        let mut updates = UpdateBatch::default();
        let attempt = Attempt::new(Outcome::Crashed, "m");
        updates.add_provisional(TestId(1), attempt, NextRun::Isolated);
        assert_eq!(updates.chunks().count(), 0);
        assert!(matches!(updates.reports[..], [LeaseEvent::CrashedProvisionally { test: TestId(1), .. }]));
        assert_eq!(updates.position(), 0);
        assert!(!updates.journal.is_empty());
    }
}
