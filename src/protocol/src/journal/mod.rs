//! Write-ahead journals: every result is journalled before it is sent to the client.
//!
//! A file is the magic line followed by records. A record has four bytes of length, the same four bytes
//! inverted, four bytes of CRC-32 over the rest, then kind, test and body. The body is JSON, or the time of a
//! start as eight bytes. Each batch is appended in one `write`. A process that dies during the write leaves
//! at most one torn record at the end, and a machine that dies leaves zeros; readers tolerate and report
//! both. Damage before the end is an error that names the offset: the inverted length distinguishes a damaged
//! length from a truncated record.
//!
//! - `record`: types of records.
//! - `write`, `read`: conversion between records and bytes.

mod read;
mod record;
mod write;

#[cfg(test)]
mod tests;

pub use read::{
    JournalContent, JournalEnding, JournalError, JournalReader, LocatedRecord, RecordPlace, read, read_record,
};
pub use record::{JournalRecord, RunEnd};
pub use write::{write, write_end, write_finished, write_provisional};

/// First bytes of each journal. The number is [`VERSION`].
pub const MAGIC: &[u8] = b"heeler-journal 5\n";
/// Version of the format; readers reject others.
pub const VERSION: u32 = 5;
/// File name of the journal of synthesized results, in the run's directory, next to the workers' journals.
/// The coordinator writes it when it finishes the run.
pub const SYNTHESIZED_JOURNAL_NAME: &str = "finish.journal";
/// Name of a file in a run's directory. The file exists once a journal is full: later results are recorded
/// without output.
pub const FULL_MARK_NAME: &str = "journals-full";

/// Magic line without its version and line end.
const MAGIC_PREFIX: &[u8] = b"heeler-journal ";
const HEAD_BYTES: usize = 4 + 4 + 4;
const FIXED_BYTES: usize = 1 + 4;
