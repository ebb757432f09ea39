//! Journal writer: from records to bytes.

use heeler_core::{RunRecord, TestId, TestResult};
use serde::Serialize;

use super::{HEAD_BYTES, RunEnd};

/// Written in records of no test.
const NO_TEST: TestId = TestId(0);

/// Appends an event to `out`.
pub fn write(out: &mut Vec<u8>, record: &RunRecord) {
    match record {
        RunRecord::Started(test) => append_record(out, 0, *test, None::<&()>),
        RunRecord::Finished { test, result } => write_finished(out, *test, result),
        RunRecord::Provisional { test, attempt } => append_record(out, 2, *test, Some(attempt)),
        RunRecord::ProgramFailed(failure) => append_record(out, 3, NO_TEST, Some(failure)),
        RunRecord::ProcessStarted(start) => append_record(out, 5, NO_TEST, Some(start)),
        RunRecord::ProcessEnded(end) => append_record(out, 6, NO_TEST, Some(end)),
    }
}

/// Appends the end of a run to `out`.
pub fn write_end(out: &mut Vec<u8>, end: &RunEnd) {
    append_record(out, 4, NO_TEST, Some(end));
}

/// Appends one [`RunRecord::Finished`] to `out` without owning its result, because workers write hundreds
/// of thousands a second.
pub fn write_finished(out: &mut Vec<u8>, test: TestId, result: &TestResult) {
    append_record(out, 1, test, Some(result));
}

fn append_record(out: &mut Vec<u8>, kind: u8, test: TestId, body: Option<&impl Serialize>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    out.push(kind);
    out.extend_from_slice(&test.0.to_le_bytes());
    if let Some(body) = body {
        serde_json::to_writer(&mut *out, body)
            .expect("records are plain structs, and memory takes everything");
    }
    let payload = &out[start + HEAD_BYTES..];
    let length = u32::try_from(payload.len()).expect("a result is far below 4 GiB");
    let sum = crc32fast::hash(payload);
    let head = &mut out[start..start + HEAD_BYTES];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..8].copy_from_slice(&(!length).to_le_bytes());
    head[8..].copy_from_slice(&sum.to_le_bytes());
}
