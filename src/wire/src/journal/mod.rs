//! Records of write-ahead journals: what is told to the client stands here first.
//!
//! A file is the magic line and then records: four bytes of length, the same four inverted, four of CRC-32 over the rest,
//! then kind, test, state, duration and a body. Appended in one `write` each batch; a process that dies in the middle
//! leaves at most one torn record at the end, and a machine that dies zeros, which readers tolerate and name. Damage
//! before the end is an error that names the offset: the inverted length tells a length that is damaged from a record
//! that is cut off.
//!
//! - `record`: what stands in a journal.
//! - `write`, `read`: from records to bytes and back.

mod read;
mod record;
mod write;

#[cfg(test)]
mod tests;

pub use read::{JournalError, Reading, read};
pub use record::{EndCounts, Record, RunEnd, StopReason};
pub use write::{write, write_settled};

/// First bytes of each journal; the number is [`VERSION`].
pub const MAGIC: &[u8] = b"heeler-journal 2\n";
/// The format's version; readers refuse others.
pub const VERSION: u32 = 2;
/// The journal of what no worker tells, in the run's directory, beside those of the workers: written by the coordinator
/// when it finishes the run.
pub const FINISH_NAME: &str = "finish.journal";

/// The magic line without its number and line end.
const NAME: &[u8] = b"heeler-journal ";
const HEAD_BYTES: usize = 4 + 4 + 4;
const FIXED_BYTES: usize = 1 + 4 + 1 + 8;
