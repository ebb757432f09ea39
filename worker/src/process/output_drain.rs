//! Decides how long the outputs of an ended process are read. Output that the process left is always read,
//! however long that takes. Waiting for the outputs to close is limited, because an escaped process may hold
//! them open.

use std::time::Duration;

use tokio::time::Instant;

/// Time to keep reading outputs that stay open after everything the process left has been read. Normally no
/// process has them open any more.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// Maximum wait, and maximum time counted between two calls. If more time has passed, the worker was not
/// running and could not have read anything.
const LONGEST_STEP: Duration = Duration::from_millis(50);

/// Time and number of reads that remain for the outputs of an ended process.
#[derive(Debug)]
pub(super) struct OutputDrain {
    /// Number of reads needed to read all output that was there at the beginning.
    owed_reads: u64,
    remaining: Duration,
    looked_at: Instant,
}

impl OutputDrain {
    /// Call after the end of the process and one read of all outputs. `unread_bytes`: largest number of bytes
    /// left in one output. `read_bytes`: bytes of each output per read.
    pub(super) fn begin(unread_bytes: u64, read_bytes: usize, now: Instant) -> Self {
        let read_bytes = u64::try_from(read_bytes).unwrap_or(u64::MAX);
        // The first call of `on_read` is for the read that was already done.
        let owed_reads = unread_bytes.div_ceil(read_bytes) + 1;
        Self { owed_reads, remaining: DRAIN_TIME, looked_at: now }
    }

    /// Records a read of all outputs.
    pub(super) fn on_read(&mut self) {
        self.owed_reads = self.owed_reads.saturating_sub(1);
    }

    /// Returns how long to wait for more output before the next call, or `None` to stop reading.
    pub(super) fn next_wait(&mut self, now: Instant) -> Option<Duration> {
        let step = now.duration_since(std::mem::replace(&mut self.looked_at, now)).min(LONGEST_STEP);
        self.remaining = self.remaining.saturating_sub(step);
        if self.owed_reads > 0 {
            return Some(LONGEST_STEP);
        }
        (!self.remaining.is_zero()).then(|| self.remaining.min(LONGEST_STEP))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use super::*;
    use crate::process::{
        output_pipe::{OutputPipe, PipeRead},
        process_outputs::ProcessOutputs,
        report_channel::ReportChannel,
    };

    const READ_BYTES: usize = 1 << 10;

    #[tokio::test]
    async fn output_that_a_process_left_is_read_by_a_worker_that_stood_still() {
        let (stdout, stdout_writer) = OutputPipe::new().unwrap();
        let (stderr, stderr_writer) = OutputPipe::new().unwrap();
        let (channel, theirs) = ReportChannel::new().unwrap();
        let mut outputs = ProcessOutputs { stdout, stderr, channel: Some(channel), connections: None };
        let lengths = [20 * READ_BYTES, 7, 30 * READ_BYTES + 1];
        for (writer, length) in [stdout_writer, stderr_writer, theirs].into_iter().zip(lengths) {
            File::from(writer).write_all(&vec![b'x'; length]).unwrap();
        }
        let mut read = [0; 3];
        let mut buffer = [0; READ_BYTES];
        let mut drain: Option<OutputDrain> = None;
        let mut now = Instant::now();
        loop {
            let pieces = [
                outputs.stdout.try_read(&mut buffer),
                outputs.stderr.try_read(&mut buffer),
                outputs.channel.as_mut().unwrap().try_read(&mut buffer),
            ];
            for (total, piece) in read.iter_mut().zip(pieces) {
                let PipeRead::Bytes(count) = piece else { continue };
                *total += count;
            }
            let unread_bytes = outputs.unread_bytes();
            let drain = drain.get_or_insert_with(|| OutputDrain::begin(unread_bytes, READ_BYTES, now));
            drain.on_read();
            // Nothing ran for a minute.
            now += Duration::from_secs(60);
            if outputs.are_at_end() || drain.next_wait(now).is_none() {
                break;
            }
        }
        assert_eq!(read, lengths);
    }

    #[test]
    fn output_that_is_held_open_is_left_after_the_time_in_which_the_worker_ran() {
        let start = Instant::now();
        let mut drain = OutputDrain::begin(0, READ_BYTES, start);
        drain.on_read();
        let mut now = start;
        let mut waits = Duration::ZERO;
        while let Some(wait) = drain.next_wait(now) {
            waits += wait;
            // The clock jumps while waiting.
            now += wait + Duration::from_secs(1);
        }
        assert_eq!(waits, DRAIN_TIME);
    }

    #[test]
    fn output_that_is_written_without_end_is_left() {
        let start = Instant::now();
        let mut drain = OutputDrain::begin(3 * 1024, READ_BYTES, start);
        let mut reads = 0_u32;
        loop {
            drain.on_read();
            if drain.next_wait(start + Duration::from_millis(1) * reads).is_none() {
                break;
            }
            reads += 1;
        }
        assert_eq!(reads, 500, "at one millisecond each");
    }
}
