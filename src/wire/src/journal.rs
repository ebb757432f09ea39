//! Records of a worker's write-ahead journal: what is told to the client stands here first.
//!
//! A file is the magic line and then records: four bytes of length, four of CRC-32 over the rest, then kind, test,
//! state, duration and a body. Appended in one `write` each batch; a process that dies in the middle leaves at most
//! one torn record at the end, which readers tolerate. Damage before the end is an error that names the offset.

use crate::{
    control::{Attempt, JournalledResult, TestIndex},
    mtp::ExecutionState,
};

/// First bytes of each journal; the number is the format's version.
pub const MAGIC: &[u8] = b"heeler-journal 1\n";

const HEAD_BYTES: usize = 8;
const FIXED_BYTES: usize = 1 + 4 + 1 + 8;

/// One record.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A test runs.
    Started(TestIndex),
    /// A test has its terminal result.
    Settled {
        /// The result without its node.
        result: JournalledResult,
        /// The JSON of the change, as the client gets it.
        change: Vec<u8>,
    },
    /// A result that may still be replaced.
    Held {
        /// Which test.
        test: TestIndex,
        /// What was seen.
        attempt: Attempt,
    },
}

/// Why a journal can't be read to its end.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum JournalError {
    /// The file is no journal of this version.
    #[error("expected a journal that begins with {:?}", String::from_utf8_lossy(MAGIC))]
    Magic,
    /// A record before the end is damaged.
    #[error("damaged record at byte {offset}")]
    Damaged {
        /// Where.
        offset: usize,
    },
}

/// Appends one record to `out`.
pub fn write(out: &mut Vec<u8>, record: &Record) {
    match record {
        Record::Started(test) => frame(out, Head { kind: 0, test: *test, result: None }, &[]),
        Record::Settled { result, change } => write_settled(out, *result, change),
        Record::Held { test, attempt } => {
            let body = serde_json::to_vec(attempt).expect("an attempt is a plain struct");
            frame(out, Head { kind: 2, test: *test, result: None }, &body);
        }
    }
}

/// Appends one [`Record::Settled`] to `out` without owning its change: workers write hundreds of thousands a second.
pub fn write_settled(out: &mut Vec<u8>, result: JournalledResult, change: &[u8]) {
    frame(out, Head { kind: 1, test: result.test, result: Some(result) }, change);
}

/// The fixed part of a record.
struct Head {
    kind: u8,
    test: TestIndex,
    result: Option<JournalledResult>,
}

fn frame(out: &mut Vec<u8>, head: Head, body: &[u8]) {
    let Head { kind, test, result } = head;
    let start = out.len();
    let length = u32::try_from(FIXED_BYTES + body.len()).expect("a result is far below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    out.extend_from_slice(&test.0.to_le_bytes());
    out.push(result.map_or(0, |result| state_number(result.state)));
    out.extend_from_slice(&result.map_or(0, |result| result.duration_us).to_le_bytes());
    out.extend_from_slice(body);
    let sum = crc32fast::hash(&out[start + HEAD_BYTES..]);
    out[start + 4..start + HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Reads a whole journal; a torn record at the end is left out.
///
/// # Errors
/// With what could be read before the damage.
pub fn read(bytes: &[u8]) -> (Vec<Record>, Option<JournalError>) {
    let mut records = Vec::new();
    if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
        return (records, None);
    }
    if !bytes.starts_with(MAGIC) {
        return (records, Some(JournalError::Magic));
    }
    let mut offset = MAGIC.len();
    while let Some(head) = bytes[offset..].first_chunk::<HEAD_BYTES>() {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let Some(payload) = bytes.get(offset + HEAD_BYTES..offset + HEAD_BYTES + length) else { break };
        let is_last = offset + HEAD_BYTES + length == bytes.len();
        match record(payload).filter(|_| crc32fast::hash(payload) == sum) {
            Some(record) => records.push(record),
            None if is_last => break,
            None => return (records, Some(JournalError::Damaged { offset })),
        }
        offset += HEAD_BYTES + length;
    }
    (records, None)
}

fn record(payload: &[u8]) -> Option<Record> {
    let fixed = payload.first_chunk::<FIXED_BYTES>()?;
    let test = TestIndex(u32::from_le_bytes([fixed[1], fixed[2], fixed[3], fixed[4]]));
    let body = &payload[FIXED_BYTES..];
    match fixed[0] {
        0 => Some(Record::Started(test)),
        1 => {
            let state = state_of(fixed[5])?;
            let duration_us = u64::from_le_bytes(fixed[6..14].try_into().ok()?);
            let result = JournalledResult { test, state, duration_us };
            Some(Record::Settled { result, change: body.to_vec() })
        }
        2 => Some(Record::Held { test, attempt: serde_json::from_slice(body).ok()? }),
        _ => None,
    }
}

const STATES: [ExecutionState; 6] = [
    ExecutionState::Passed,
    ExecutionState::Skipped,
    ExecutionState::Failed,
    ExecutionState::TimedOut,
    ExecutionState::Error,
    ExecutionState::Cancelled,
];

fn state_number(state: ExecutionState) -> u8 {
    let place = STATES.iter().position(|one| *one == state).expect("only terminal states are settled");
    u8::try_from(place).expect("there are six")
}

fn state_of(number: u8) -> Option<ExecutionState> {
    STATES.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Record> {
        let result =
            |test, state| JournalledResult { test: TestIndex(test), state, duration_us: 1_234_567_890_123 };
        vec![
            Record::Started(TestIndex(3)),
            Record::Settled { result: result(3, ExecutionState::Passed), change: b"{}".to_vec() },
            Record::Held {
                test: TestIndex(9),
                attempt: Attempt {
                    state: ExecutionState::Failed,
                    message: "m".into(),
                    death: None,
                    stdout: String::new(),
                    stderr: "e".into(),
                    evidence: None,
                    duration_us: 5,
                },
            },
            Record::Settled { result: result(4, ExecutionState::Cancelled), change: vec![b'x'; 300] },
        ]
    }

    fn bytes() -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for record in sample() {
            write(&mut out, &record);
        }
        out
    }

    #[test]
    fn a_journal_cut_anywhere_gives_its_whole_records() {
        let bytes = bytes();
        let mut last = 0;
        for cut in 0..=bytes.len() {
            let (records, error) = read(&bytes[..cut]);
            assert_eq!(error, None, "cut at {cut}");
            assert!(records.len() >= last, "cut at {cut}");
            assert_eq!(records, sample()[..records.len()], "cut at {cut}");
            last = records.len();
        }
        assert_eq!(last, 4);
    }

    #[test]
    fn damage_before_the_end_is_named_with_its_place() {
        let mut bytes = bytes();
        bytes[MAGIC.len() + HEAD_BYTES] ^= 0x55;
        let (records, error) = read(&bytes);
        assert_eq!((records.len(), error), (0, Some(JournalError::Damaged { offset: MAGIC.len() })));
        assert_eq!(read(b"something else entirely").1, Some(JournalError::Magic));
    }
}
