//! Record of a callback connection in a memory file: the frame that its process was writing when it was
//! killed, and the position of each run. A process with duplicates of the socket and the file can complete
//! the last frame and continue. Each frame is recorded before its first byte is written; small frames that
//! are written together count as one.
//!
//! ```text
//! 0: recorded frames ─ 8: bytes accepted before the first frame ─ 16: whether anything is unproven
//! slot 0, slot 1, in turn: start of the frame in the stream, its length, length of the mark; mark; frame
//! ```

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
    sync::Arc,
};

use heeler_protocol::control::StreamMark;

use crate::writer::FrameRecorder;

const COUNT_OFFSET: u64 = 0;
const BASE_OFFSET: u64 = 8;
const UNPROVEN_OFFSET: u64 = 16;
/// The slots are far apart, so a frame of any size fits. The file has holes between them.
const SLOT_OFFSETS: [u64; 2] = [1 << 12, 1 << 40];
const SLOT_HEAD_BYTES: usize = 24;
/// Frame count of a record that could not be written.
const DAMAGED: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct StreamRecord {
    file: File,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordedFrame {
    /// Position of the frame's first byte in the stream.
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) mark: StreamMark,
}

impl StreamRecord {
    /// Creates the record of a connection whose socket has accepted this number of bytes.
    pub(super) fn create(accepted: u64) -> io::Result<Arc<Self>> {
        let record = Self { file: heeler_sys::io::memory_file("heeler-stream")? };
        record.write_number(COUNT_OFFSET, 0)?;
        record.write_number(BASE_OFFSET, accepted)?;
        record.write_number(UNPROVEN_OFFSET, 0)?;
        Ok(Arc::new(record))
    }

    pub(super) fn of_file(fd: OwnedFd) -> Self {
        Self { file: fd.into() }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Records whether frames were sent that the client is not proven to have handled.
    pub(super) fn set_unproven(&self, is_unproven: bool) {
        if self.write_number(UNPROVEN_OFFSET, u64::from(is_unproven)).is_err() {
            self.mark_damaged();
        }
    }

    pub(super) fn is_unproven(&self) -> io::Result<bool> {
        Ok(self.read_number(UNPROVEN_OFFSET)? != 0)
    }

    /// Returns the number of bytes that the socket had accepted before the first frame.
    pub(super) fn base(&self) -> io::Result<u64> {
        self.read_number(BASE_OFFSET)
    }

    /// Returns the last recorded frame; `None` if there is none.
    pub(super) fn last_frame(&self) -> io::Result<Option<RecordedFrame>> {
        let count = self.read_number(COUNT_OFFSET)?;
        if count == DAMAGED {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the record could not be written"));
        }
        if count == 0 {
            return Ok(None);
        }
        let slot = SLOT_OFFSETS[usize::from(count % 2 == 1)];
        let start = self.read_number(slot)?;
        let (length, mark_length) = (self.read_number(slot + 8)?, self.read_number(slot + 16)?);
        let mark = self.read_bytes(slot + SLOT_HEAD_BYTES as u64, mark_length)?;
        let bytes = self.read_bytes(slot + SLOT_HEAD_BYTES as u64 + mark_length, length)?;
        let mark = if mark.is_empty() { StreamMark::default() } else { serde_json::from_slice(&mark)? };
        Ok(Some(RecordedFrame { start, bytes, mark }))
    }

    fn mark_damaged(&self) {
        if let Err(error) = self.write_number(COUNT_OFFSET, DAMAGED) {
            tracing::debug!(%error, "failed to write the record of a callback connection");
        }
    }

    fn write_number(&self, at: u64, number: u64) -> io::Result<()> {
        self.file.write_all_at(&number.to_le_bytes(), at)
    }

    fn read_number(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn read_bytes(&self, at: u64, length: u64) -> io::Result<Vec<u8>> {
        // Another instance of this program wrote the length. The file size limits what can be read.
        let is_inside = self.file.metadata()?.len() >= at.saturating_add(length);
        let length = usize::try_from(length).ok().filter(|_| is_inside);
        let mut bytes = vec![0; length.ok_or(io::ErrorKind::UnexpectedEof)?];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}

/// Writes the record of a connection.
#[derive(Debug)]
pub(super) struct StreamRecorder {
    record: Arc<StreamRecord>,
    count: u64,
    /// Total size of all recorded frames.
    bytes: u64,
    mark: Vec<u8>,
}

impl StreamRecorder {
    pub(super) fn new(record: Arc<StreamRecord>) -> Self {
        Self { record, count: 0, bytes: 0, mark: Vec::new() }
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let count = self.count + 1;
        let slot = SLOT_OFFSETS[usize::from(count % 2 == 1)];
        let mut head = Vec::with_capacity(SLOT_HEAD_BYTES + self.mark.len());
        for number in [self.bytes, frame.len() as u64, self.mark.len() as u64] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(&self.mark);
        self.record.file.write_all_at(&head, slot)?;
        self.record.file.write_all_at(frame, slot + head.len() as u64)?;
        // A killed process writes these few bytes completely or not at all.
        self.record.write_number(COUNT_OFFSET, count)?;
        self.count = count;
        self.bytes += frame.len() as u64;
        Ok(())
    }
}

impl FrameRecorder for StreamRecorder {
    fn record(&mut self, frame: &[u8], mark: Option<&[u8]>) {
        if let Some(mark) = mark {
            mark.clone_into(&mut self.mark);
        }
        if self.write(frame).is_err() {
            self.record.mark_damaged();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_frame_is_recorded_with_its_start_and_the_latest_mark() {
        let record = StreamRecord::create(7).unwrap();
        assert_eq!(record.last_frame().unwrap(), None);
        let mut recorder = StreamRecorder::new(Arc::clone(&record));
        let mark =
            StreamMark { run: "r".into(), positions: [("r".to_owned(), 3)].into(), ..StreamMark::default() };
        let frames: [&[u8]; 4] = [b"hello", b"update", b"", b"barrier"];
        recorder.record(frames[0], None);
        assert_eq!(record.last_frame().unwrap().unwrap().mark, StreamMark::default());
        recorder.record(frames[1], Some(&serde_json::to_vec(&mark).unwrap()));
        recorder.record(frames[2], None);
        recorder.record(frames[3], None);
        // Another process reads a duplicate.
        let duplicate = StreamRecord::of_file(record.as_fd().try_clone_to_owned().unwrap());
        let last = duplicate.last_frame().unwrap().unwrap();
        assert_eq!(last, RecordedFrame { start: 11, bytes: b"barrier".to_vec(), mark });
        assert_eq!(duplicate.base().unwrap(), 7);
        record.set_unproven(true);
        assert!(duplicate.is_unproven().unwrap());
    }

    #[test]
    fn damaged_record_is_no_evidence() {
        let record = StreamRecord::create(0).unwrap();
        record.mark_damaged();
        assert!(record.last_frame().is_err());
    }
}
