//! Detects clients that have stopped reading. A client that reads nothing for `client-stall-timeout` while
//! output is waiting counts as gone, as on a callback connection. Time is counted in checks, so a pause of
//! this process does not count against its client.

use std::time::Duration;

use heeler_transport::Outbox;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Number of checks within the limit. A client may get up to one check period more.
const CHECKS_PER_LIMIT: u32 = 8;
/// Minimum and maximum time between two checks.
const CHECK_PERIODS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

#[derive(Debug)]
pub(crate) struct StallWatch {
    limit: Duration,
    check: Interval,
    written_bytes: u64,
    /// Number of checks since progress or an empty queue was last seen.
    silent_checks: u32,
}

impl StallWatch {
    pub(crate) fn new(limit: Duration) -> Self {
        let (least, most) = CHECK_PERIODS;
        let mut check = interval((limit / CHECKS_PER_LIMIT).clamp(least, most));
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { limit, check, written_bytes: 0, silent_checks: 0 }
    }

    /// Waits for the next check.
    ///
    /// Cancel safe: yes, because it only waits.
    pub(crate) async fn next_check(&mut self) {
        self.check.tick().await;
    }

    /// Returns whether the client has read nothing for the limit. Must be called at each check. `is_waiting`:
    /// whether frames wait for room in the outbox.
    pub(crate) fn is_stalled(&mut self, outbox: &Outbox, is_waiting: bool) -> bool {
        let written_bytes = outbox.written_bytes();
        let has_output = is_waiting || outbox.backlog_bytes() > 0;
        if !has_output || written_bytes != self.written_bytes {
            self.written_bytes = written_bytes;
            self.silent_checks = 0;
            return false;
        }
        self.silent_checks = self.silent_checks.saturating_add(1);
        self.check.period().saturating_mul(self.silent_checks) >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use heeler_protocol::frame::FrameDecoder;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn time_in_which_this_process_did_not_run_is_not_counted() {
        let (_ours, theirs) = tokio::io::duplex(8);
        let (outbox, _inbox, _task) = heeler_transport::open(theirs, FrameDecoder::default());
        let mut watch = StallWatch::new(Duration::from_millis(80));
        let mut checks = 0;
        let started = std::time::Instant::now();
        while !watch.is_stalled(&outbox, true) {
            checks += 1;
            // Many limits pass between two checks, as if the process had been stopped.
            while started.elapsed() < Duration::from_millis(200) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(checks, CHECKS_PER_LIMIT - 1);
    }

    #[tokio::test]
    async fn client_that_reads_or_has_nothing_to_read_is_not_stalled() {
        let (mut ours, theirs) = tokio::io::duplex(8);
        let (outbox, _inbox, _task) = heeler_transport::open(theirs, FrameDecoder::default());
        // With this limit, every check times out.
        let mut watch = StallWatch::new(Duration::ZERO);
        assert!(!watch.is_stalled(&outbox, false), "there is nothing to read");
        outbox.send(Bytes::from_static(b"twelve bytes")).await.unwrap();
        while outbox.written_bytes() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!watch.is_stalled(&outbox, false), "the client's buffer took some of it");
        assert!(watch.is_stalled(&outbox, false));
        ours.read_exact(&mut [0; 12]).await.unwrap();
        while outbox.backlog_bytes() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(!watch.is_stalled(&outbox, false));
        assert!(watch.is_stalled(&outbox, true), "an answer waits for room");
    }
}
