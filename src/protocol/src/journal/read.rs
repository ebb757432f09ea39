//! Journal reader: from bytes to whole records, torn ends and damage.

use heeler_core::TestId;

use super::{FIXED_BYTES, HEAD_BYTES, JournalRecord, MAGIC, MAGIC_PREFIX, VERSION};

/// Content of a journal.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JournalContent {
    /// Whole records, up to the end or to the first damage.
    pub records: Vec<JournalRecord>,
    /// Offset of a record that was never written to its end, if there is one. Nothing else is missing.
    pub torn_at: Option<usize>,
    /// Reason why the journal can't be read to its end, if so.
    pub damage: Option<JournalError>,
}

/// Error that keeps a journal from being read to its end.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum JournalError {
    /// The file is not a journal.
    #[error("expected a journal that begins with {:?} at byte 0", String::from_utf8_lossy(MAGIC))]
    Magic,
    /// The file was written by a heeler with another version of the format.
    #[error("it is written in version {found} of the format, and this heeler reads version {VERSION}")]
    Version {
        /// Version of the file.
        found: String,
    },
    /// A record before the end is damaged.
    #[error("damaged record at byte {offset}: expected {expected}")]
    Damaged {
        /// Offset of the record.
        offset: usize,
        /// The expected content and the content found.
        expected: String,
    },
}

/// Reads a whole journal.
#[must_use]
pub fn read(bytes: &[u8]) -> JournalContent {
    let mut reading = JournalContent::default();
    // A version may have more digits than ours.
    if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) || bytes.iter().all(|byte| *byte == 0) {
        reading.torn_at = (!bytes.is_empty()).then_some(0);
        return reading;
    }
    if !bytes.starts_with(MAGIC) {
        reading.damage = Some(format_error(bytes));
        return reading;
    }
    let mut offset = MAGIC.len();
    while offset < bytes.len() {
        match decode_next(&bytes[offset..]) {
            DecodedRecord::Record(record, length) => {
                reading.records.push(record);
                offset += length;
            }
            DecodedRecord::Torn => {
                reading.torn_at = Some(offset);
                break;
            }
            DecodedRecord::Damaged(expected) => {
                reading.damage = Some(JournalError::Damaged { offset, expected });
                break;
            }
        }
    }
    reading
}

fn format_error(bytes: &[u8]) -> JournalError {
    let number = bytes.strip_prefix(MAGIC_PREFIX).and_then(|rest| {
        let digits = rest.iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
        (digits > 0).then(|| String::from_utf8_lossy(&rest[..digits]).into_owned())
    });
    match number {
        Some(found) if found != VERSION.to_string() => JournalError::Version { found },
        _ => JournalError::Magic,
    }
}

/// Result of reading one record from the remaining bytes.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made, once for each record")]
enum DecodedRecord {
    /// A whole record and its length in bytes.
    Record(JournalRecord, usize),
    /// A record that was never written to its end.
    Torn,
    /// Anything else, with the content that was expected.
    Damaged(String),
}

fn decode_next(rest: &[u8]) -> DecodedRecord {
    // A machine that dies may leave a file of the right length without its last bytes.
    if rest.iter().all(|byte| *byte == 0) {
        return DecodedRecord::Torn;
    }
    let Some(head) = rest.first_chunk::<HEAD_BYTES>() else { return DecodedRecord::Torn };
    let number =
        |place: usize| u32::from_le_bytes([head[place], head[place + 1], head[place + 2], head[place + 3]]);
    let (length, inverse, sum) = (number(0), number(4), number(8));
    let is_unwritten = |from: usize| rest.get(from..).is_none_or(|rest| rest.iter().all(|byte| *byte == 0));
    if inverse != !length {
        // A page may end within a number.
        if (1..8).any(is_unwritten) {
            return DecodedRecord::Torn;
        }
        return DecodedRecord::Damaged(format!(
            "the inverse of the length {length:#010x}, found {inverse:#010x}"
        ));
    }
    let end = HEAD_BYTES.saturating_add(length as usize);
    let Some(payload) = rest.get(HEAD_BYTES..end) else { return DecodedRecord::Torn };
    let found = crc32fast::hash(payload);
    match (found == sum).then(|| decode_record(payload)).flatten() {
        Some(record) => DecodedRecord::Record(record, end),
        None if is_unwritten(end) => DecodedRecord::Torn,
        None if found == sum => {
            DecodedRecord::Damaged("a record of a kind that this version knows".to_owned())
        }
        None => DecodedRecord::Damaged(format!("bytes with the checksum {sum:#010x}, found {found:#010x}")),
    }
}

fn decode_record(payload: &[u8]) -> Option<JournalRecord> {
    let fixed = payload.first_chunk::<FIXED_BYTES>()?;
    let test = TestId(u32::from_le_bytes([fixed[1], fixed[2], fixed[3], fixed[4]]));
    let body = &payload[FIXED_BYTES..];
    match fixed[0] {
        0 => Some(JournalRecord::Started(test)),
        1 => Some(JournalRecord::Finished { test, result: serde_json::from_slice(body).ok()? }),
        2 => Some(JournalRecord::Provisional { test, attempt: serde_json::from_slice(body).ok()? }),
        3 => Some(JournalRecord::ProgramFailed(serde_json::from_slice(body).ok()?)),
        4 => Some(JournalRecord::Ended(serde_json::from_slice(body).ok()?)),
        _ => None,
    }
}
