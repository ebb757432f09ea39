//! How long the outputs of a process are read after its end. What it left in them is read in any case,
//! however long that takes; waiting for their ends is limited, because an escaped process may hold them open.

use std::time::Duration;

use tokio::time::Instant;

/// How long outputs that are still open are read when what the process left in them is read. No process
/// should hold them any more.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// The longest wait, and the longest time between two looks at the clock that counts: in a longer one the
/// worker did not run, so that nothing could be read.
const LONGEST_STEP: Duration = Duration::from_millis(50);

/// The time and the reads that remain for the outputs of a process that has ended.
#[derive(Debug)]
pub(super) struct OutputDrain {
    /// The reads after which everything is read that was there at the beginning.
    owed_reads: u64,
    remaining: Duration,
    looked_at: Instant,
}

impl OutputDrain {
    /// Begins after a read of all outputs that followed the end of the process: `unread_bytes` are left in
    /// one of them, and a read takes `read_bytes` of each.
    pub(super) fn begin(unread_bytes: u64, read_bytes: usize, now: Instant) -> Self {
        let read_bytes = u64::try_from(read_bytes).unwrap_or(u64::MAX);
        // That of the first call of `on_read` has been done already.
        let owed_reads = unread_bytes.div_ceil(read_bytes) + 1;
        Self { owed_reads, remaining: DRAIN_TIME, looked_at: now }
    }

    /// Records a read of all outputs.
    pub(super) fn on_read(&mut self) {
        self.owed_reads = self.owed_reads.saturating_sub(1);
    }

    /// Returns how long to wait for more output before the next call; `None` when nothing more is to be read.
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
            // It stands still while it waits.
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
