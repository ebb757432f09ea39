//! Journal writer: from records to bytes.

use super::{FIXED_BYTES, HEAD_BYTES, JournalRecord, read::state_number};
use crate::control::{JournalledResult, TestIndex};

/// Appends one record to `out`.
pub fn write(out: &mut Vec<u8>, record: &JournalRecord) {
    let no_test = TestIndex(0);
    match record {
        JournalRecord::Started(test) => {
            append_record(out, RecordHead { kind: 0, test: *test, result: None }, &[])
        }
        JournalRecord::Settled { result, change } => write_settled(out, *result, change),
        JournalRecord::Provisional { test, attempt } => {
            let body = serde_json::to_vec(attempt).expect("an attempt is a plain struct");
            append_record(out, RecordHead { kind: 2, test: *test, result: None }, &body);
        }
        JournalRecord::ProgramFailure { change } => {
            append_record(out, RecordHead { kind: 3, test: no_test, result: None }, change)
        }
        JournalRecord::Ended(end) => {
            let body = serde_json::to_vec(end).expect("an end is a plain struct");
            append_record(out, RecordHead { kind: 4, test: no_test, result: None }, &body);
        }
    }
}

/// Appends one [`JournalRecord::SettledResults`] to `out` without owning its change, because workers write hundreds of
/// thousands a second.
pub fn write_settled(out: &mut Vec<u8>, result: JournalledResult, change: &[u8]) {
    append_record(out, RecordHead { kind: 1, test: result.test, result: Some(result) }, change);
}

/// Fixed part of a record.
struct RecordHead {
    kind: u8,
    test: TestIndex,
    result: Option<JournalledResult>,
}

fn append_record(out: &mut Vec<u8>, head: RecordHead, body: &[u8]) {
    let RecordHead { kind, test, result } = head;
    let start = out.len();
    let length = u32::try_from(FIXED_BYTES + body.len()).expect("a result is far below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    out.extend_from_slice(&test.0.to_le_bytes());
    out.push(result.map_or(0, |result| state_number(result.state)));
    out.extend_from_slice(&result.map_or(0, |result| result.duration_us).to_le_bytes());
    out.extend_from_slice(body);
    let sum = crc32fast::hash(&out[start + HEAD_BYTES..]);
    out[start + HEAD_BYTES - 4..start + HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
}
