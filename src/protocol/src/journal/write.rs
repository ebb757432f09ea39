//! Journal writer: from records to bytes.

use heeler_core::{Attempt, NextRun, RunRecord, TestId, TestResult, TestStart};
use serde::Serialize;

use super::{HEAD_BYTES, RunEnd, record::RecordKind};

/// Test id in records that belong to no test.
const NO_TEST: TestId = TestId(0);

/// Appends an event to `out`, except events that journals do not need: output (the results repeat it), held
/// results (they follow later), and starts and passes of further iterations (there may be a million).
pub fn write(out: &mut Vec<u8>, record: &RunRecord) {
    match record {
        RunRecord::Output { .. }
        | RunRecord::Held { .. }
        | RunRecord::IterationPassed { .. }
        | RunRecord::Started(TestStart { is_again: true, .. }) => {}
        RunRecord::Started(TestStart { test, started_ms, is_again: false }) => {
            append_record(out, RecordKind::Started, *test, |out| {
                out.extend_from_slice(&started_ms.to_le_bytes());
            });
        }
        RunRecord::Finished { test, result } => write_finished(out, *test, result),
        RunRecord::Provisional { test, attempt, next } => write_provisional(out, *test, attempt, *next),
        RunRecord::ProgramFailed(failure) => append_json(out, RecordKind::ProgramFailed, NO_TEST, failure),
        RunRecord::ProcessStarted(start) => append_json(out, RecordKind::ProcessStarted, NO_TEST, start),
        RunRecord::ProcessEnded(end) => append_json(out, RecordKind::ProcessEnded, NO_TEST, end),
        RunRecord::FilesKept(files) => append_json(out, RecordKind::FilesKept, NO_TEST, files),
        RunRecord::SetUp { fixture, progress } => {
            append_json(out, RecordKind::SetUp, NO_TEST, &(fixture, progress));
        }
        RunRecord::FixtureFailed { fixture, message } => {
            append_json(out, RecordKind::FixtureFailed, NO_TEST, &(fixture, message));
        }
        RunRecord::Leaked { tests, processes } => {
            append_json(out, RecordKind::Leaked, NO_TEST, &(tests, processes));
        }
        RunRecord::Log(line) => append_json(out, RecordKind::Log, NO_TEST, line),
    }
}

/// Appends the end of a run to `out`.
pub fn write_end(out: &mut Vec<u8>, end: &RunEnd) {
    append_json(out, RecordKind::RunEnded, NO_TEST, end);
}

/// Appends a [`RunRecord::Finished`] to `out` without owning the result, because workers write hundreds of
/// thousands per second.
pub fn write_finished(out: &mut Vec<u8>, test: TestId, result: &TestResult) {
    append_json(out, RecordKind::Finished, test, result);
}

/// Appends a [`RunRecord::Provisional`] to `out` without owning the attempt.
pub fn write_provisional(out: &mut Vec<u8>, test: TestId, attempt: &Attempt, next: NextRun) {
    let kind = match next {
        NextRun::Retry => RecordKind::FailedProvisionally,
        NextRun::Isolated => RecordKind::CrashedProvisionally,
    };
    append_json(out, kind, test, attempt);
}

fn append_json(out: &mut Vec<u8>, kind: RecordKind, test: TestId, body: &impl Serialize) {
    append_record(out, kind, test, |out| {
        serde_json::to_writer(out, body).expect("records are plain structs, and memory takes everything");
    });
}

fn append_record(out: &mut Vec<u8>, kind: RecordKind, test: TestId, append_body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    out.push(kind.number());
    out.extend_from_slice(&test.0.to_le_bytes());
    append_body(out);
    let payload = &out[start + HEAD_BYTES..];
    let length = u32::try_from(payload.len()).expect("a result is far below 4 GiB");
    let sum = crc32fast::hash(payload);
    let head = &mut out[start..start + HEAD_BYTES];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..8].copy_from_slice(&(!length).to_le_bytes());
    head[8..].copy_from_slice(&sum.to_le_bytes());
}
