//! Journal reader: whole records, torn ends and damage. Only one record is in memory at a time, because the
//! results of a run may contain gigabytes of output.

use std::io::{self, Read};

use heeler_core::{NextRun, RunRecord, TestId, TestStart};

use super::{FIXED_BYTES, HEAD_BYTES, JournalRecord, MAGIC, MAGIC_PREFIX, VERSION, record::RecordKind};

/// Size of the pieces when a file is checked for non-zero bytes.
const PIECE_BYTES: usize = 8 << 10;
/// Maximum number of trailing zeros after a machine crash. A foreign file may have any size.
const MAX_TORN_BYTES: usize = 256 << 20;
/// Maximum size of a record; more than any output that is kept.
const MAX_RECORD_BYTES: u32 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct JournalContent {
    /// Whole records up to the end or the first damage.
    pub records: Vec<JournalRecord>,
    /// Offset of a record that was not written completely, if there is one. Nothing else is missing.
    pub torn_at: Option<u64>,
    /// Why the journal cannot be read to its end; `None` if it can.
    pub damage: Option<JournalError>,
}

/// Error that stops the reading of a journal before its end.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum JournalError {
    /// The file is not a journal.
    #[error("not a journal: expected {:?} at byte 0", String::from_utf8_lossy(MAGIC))]
    Magic,
    /// The file has another format version.
    #[error("it has format version {found}, but this version of Heeler reads version {VERSION}")]
    Version {
        /// Version of the file.
        found: String,
    },
    /// A record before the end is damaged.
    #[error("damaged record at byte {offset}: expected {expected}")]
    Damaged {
        /// Offset of the record.
        offset: u64,
        /// Expected and found content.
        expected: String,
    },
}

/// A record and its location, for reading it again with [`read_record`].
#[derive(Debug, Clone, PartialEq)]
pub struct LocatedRecord {
    pub record: JournalRecord,
    pub place: RecordPlace,
}

/// Location of a record in its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes, including the head.
    pub length: u64,
}

/// End of a journal as the reader found it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalEnding {
    /// Offset of a record that was not written completely, if there is one. Nothing else is missing.
    pub torn_at: Option<u64>,
    /// Why the journal cannot be read to its end; `None` if it can.
    pub damage: Option<JournalError>,
}

/// Reads a whole journal.
#[must_use]
pub fn read(bytes: &[u8]) -> JournalContent {
    let mut reader = JournalReader::new(bytes);
    let mut records = Vec::new();
    while let Some(located) = reader.next_record().expect("reading from memory does not fail") {
        records.push(located.record);
    }
    let JournalEnding { torn_at, damage } = reader.into_ending();
    JournalContent { records, torn_at, damage }
}

/// Reads one record from its bytes; `None` if the bytes are not exactly one record.
#[must_use]
pub fn read_record(bytes: &[u8]) -> Option<JournalRecord> {
    let (head, payload) = bytes.split_at_checked(HEAD_BYTES)?;
    let head = RecordHead::read(head.first_chunk()?);
    let is_whole = head.is_intact() && payload.len() as u64 == u64::from(head.length);
    (is_whole && crc32fast::hash(payload) == head.sum).then(|| decode_record(payload)).flatten()
}

/// Reads the records of a journal one at a time.
#[derive(Debug)]
pub struct JournalReader<R> {
    input: R,
    offset: u64,
    is_at_end: bool,
    ending: JournalEnding,
    /// Payload of the last record.
    payload: Vec<u8>,
}

impl<R: Read> JournalReader<R> {
    /// Returns a reader at the start of a journal. Reads are small, so wrap a file in a buffer.
    pub fn new(input: R) -> Self {
        let ending = JournalEnding::default();
        Self { input, offset: 0, is_at_end: false, ending, payload: Vec::new() }
    }

    /// Returns the next whole record; `None` at the end, or at the first torn or damaged record.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn next_record(&mut self) -> io::Result<Option<LocatedRecord>> {
        if self.offset == 0 && !self.is_at_end {
            self.read_magic()?;
        }
        if self.is_at_end {
            return Ok(None);
        }
        // The head. A part of it is a torn record.
        let mut head = [0; HEAD_BYTES];
        let length = read_until_full(&mut self.input, &mut head)?;
        let Some(head_bytes) = head.get(..length).filter(|found| found.len() == HEAD_BYTES) else {
            return Ok(self.end((length > 0).then_some(RecordEnd::Torn)));
        };
        let head = RecordHead::read(head_bytes.first_chunk().expect("the head is whole"));
        if !head.is_intact() {
            // After a machine crash, a file may have the right length but zeros at its end, and the zeros may
            // begin within a number.
            let is_torn = head_bytes[7..].iter().all(|byte| *byte == 0) && self.is_rest_zero()?;
            let (length, inverse) = (head.length, head.inverse);
            let expected = || format!("the inverse of the length {length:#010x}, found {inverse:#010x}");
            return Ok(self.end(Some(RecordEnd::of(is_torn, expected))));
        }
        if head.length > MAX_RECORD_BYTES {
            let expected = || format!("a record of at most {MAX_RECORD_BYTES} bytes, found {}", head.length);
            return Ok(self.end(Some(RecordEnd::of(false, expected))));
        }
        // The payload.
        self.payload.clear();
        // Allocate for the bytes that exist, not for the claimed length.
        let read = (&mut self.input).take(u64::from(head.length)).read_to_end(&mut self.payload)?;
        if (read as u64) < u64::from(head.length) {
            return Ok(self.end(Some(RecordEnd::Torn)));
        }
        let found = crc32fast::hash(&self.payload);
        if let Some(record) = (found == head.sum).then(|| decode_record(&self.payload)).flatten() {
            let place = RecordPlace { offset: self.offset, length: (HEAD_BYTES + self.payload.len()) as u64 };
            self.offset += place.length;
            return Ok(Some(LocatedRecord { record, place }));
        }
        let is_torn = self.is_rest_zero()?;
        let expected = || match found == head.sum {
            true => "a record of a known kind".to_owned(),
            false => format!("bytes with the checksum {:#010x}, found {found:#010x}", head.sum),
        };
        Ok(self.end(Some(RecordEnd::of(is_torn, expected))))
    }

    /// Returns how the journal ended. Only known after [`JournalReader::next_record`] has returned `None`.
    pub fn into_ending(self) -> JournalEnding {
        self.ending
    }

    fn read_magic(&mut self) -> io::Result<()> {
        let mut magic = [0; MAGIC.len()];
        let length = read_until_full(&mut self.input, &mut magic)?;
        let found = &magic[..length];
        if found == MAGIC {
            self.offset = MAGIC.len() as u64;
            return Ok(());
        }
        // Another version may have more digits than ours.
        let is_torn =
            MAGIC.starts_with(found) || (found.iter().all(|byte| *byte == 0) && self.is_rest_zero()?);
        self.is_at_end = true;
        if is_torn {
            self.ending.torn_at = (length > 0).then_some(0);
        } else {
            let mut start = found.to_vec();
            (&mut self.input).take(MAGIC.len() as u64).read_to_end(&mut start)?;
            self.ending.damage = Some(format_error(&start));
        }
        Ok(())
    }

    fn end(&mut self, end: Option<RecordEnd>) -> Option<LocatedRecord> {
        self.is_at_end = true;
        match end {
            None => {}
            Some(RecordEnd::Torn) => self.ending.torn_at = Some(self.offset),
            Some(RecordEnd::Damaged(expected)) => {
                self.ending.damage = Some(JournalError::Damaged { offset: self.offset, expected });
            }
        }
        None
    }

    /// Returns whether the rest of the input is empty or all zeros.
    fn is_rest_zero(&mut self) -> io::Result<bool> {
        let zeros = [0; PIECE_BYTES];
        let mut piece = zeros;
        for _ in 0..MAX_TORN_BYTES / PIECE_BYTES {
            let length = read_until_full(&mut self.input, &mut piece)?;
            if length == 0 {
                return Ok(true);
            }
            if piece[..length] != zeros[..length] {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// Reads until the buffer is full or the input ends; returns the number of bytes read.
fn read_until_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
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

/// Why no whole record follows.
enum RecordEnd {
    /// The record was not written completely.
    Torn,
    /// Any other damage, with the expected content.
    Damaged(String),
}

impl RecordEnd {
    fn of(is_torn: bool, expected: impl FnOnce() -> String) -> Self {
        if is_torn { Self::Torn } else { Self::Damaged(expected()) }
    }
}

/// Header of a record.
#[derive(Debug, Clone, Copy)]
struct RecordHead {
    length: u32,
    /// Inverted length.
    inverse: u32,
    /// Checksum of the payload.
    sum: u32,
}

impl RecordHead {
    fn read(head: &[u8; HEAD_BYTES]) -> Self {
        let number = |place: usize| {
            u32::from_le_bytes([head[place], head[place + 1], head[place + 2], head[place + 3]])
        };
        Self { length: number(0), inverse: number(4), sum: number(8) }
    }

    fn is_intact(self) -> bool {
        self.inverse == !self.length
    }
}

fn decode_record(payload: &[u8]) -> Option<JournalRecord> {
    let fixed = payload.first_chunk::<FIXED_BYTES>()?;
    let test = TestId(u32::from_le_bytes([fixed[1], fixed[2], fixed[3], fixed[4]]));
    let body = &payload[FIXED_BYTES..];
    let provisional = |next| {
        let attempt = serde_json::from_slice(body).ok()?;
        Some(RunRecord::Provisional { test, attempt, next })
    };
    let event = match RecordKind::of(fixed[0])? {
        RecordKind::Started => {
            let started_ms = u64::from_le_bytes(body.try_into().ok()?);
            RunRecord::Started(TestStart { test, started_ms, is_again: false })
        }
        RecordKind::Finished => RunRecord::Finished { test, result: serde_json::from_slice(body).ok()? },
        RecordKind::FailedProvisionally => provisional(NextRun::Retry)?,
        RecordKind::CrashedProvisionally => provisional(NextRun::Isolated)?,
        RecordKind::ProgramFailed => RunRecord::ProgramFailed(serde_json::from_slice(body).ok()?),
        RecordKind::RunEnded => return Some(JournalRecord::Ended(serde_json::from_slice(body).ok()?)),
        RecordKind::ProcessStarted => RunRecord::ProcessStarted(serde_json::from_slice(body).ok()?),
        RecordKind::ProcessEnded => RunRecord::ProcessEnded(serde_json::from_slice(body).ok()?),
        RecordKind::FilesKept => RunRecord::FilesKept(serde_json::from_slice(body).ok()?),
        RecordKind::SetUp => {
            let (fixture, progress) = serde_json::from_slice(body).ok()?;
            RunRecord::SetUp { fixture, progress }
        }
        RecordKind::FixtureFailed => {
            let (fixture, message) = serde_json::from_slice(body).ok()?;
            RunRecord::FixtureFailed { fixture, message }
        }
        RecordKind::Leaked => {
            let (tests, processes) = serde_json::from_slice(body).ok()?;
            RunRecord::Leaked { tests, processes }
        }
        RecordKind::Log => RunRecord::Log(serde_json::from_slice(body).ok()?),
    };
    Some(JournalRecord::Event(event))
}
