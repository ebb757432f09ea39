//! Records when a test process started, ran its first and last tests, and ended. Timelines are drawn from
//! these records.

use std::time::Duration;

use heeler_core::{ProcessEnd, ProcessStart, RecordSink as _, RunRecord};
use heeler_protocol::control::ProcessExit;
use heeler_sys::process::Pid;

use super::result_sink::ResultSink;
use crate::{
    batch::{RunningBatch, exit_reason::exit_reason_of},
    process::process_clock::ClockReading,
};

/// Record of a started process.
pub(super) struct ProcessSpan {
    pid: u32,
}

impl ProcessSpan {
    /// Records the start of a process. A waiting process started before its lease.
    pub(super) fn begin(pid: Pid, batch: &RunningBatch, now: ClockReading, sink: &mut ResultSink) -> Self {
        let pid = pid.as_u32();
        sink.record(RunRecord::ProcessStarted(ProcessStart {
            pid,
            lease: sink.lease,
            suite: batch.settlement.suite().to_owned(),
            tests: u32::try_from(batch.tests().len()).unwrap_or(u32::MAX),
            started_ms: utc_ms(Duration::ZERO, now),
        }));
        Self { pid }
    }

    /// Records the end of the process, before its running tests are settled.
    pub(super) fn end(&self, exit: &ProcessExit, batch: &RunningBatch, now: ClockReading) -> RunRecord {
        let last = if !batch.order.running().is_empty() {
            Some(now.running)
        } else {
            batch.order.last_ended().map(|_| batch.deadlines.idle_since())
        };
        RunRecord::ProcessEnded(ProcessEnd {
            pid: self.pid,
            ended_ms: utc_ms(now.running, now),
            first_test_ms: batch.order.first_begun().map(|first| utc_ms(first, now)),
            last_test_ms: last.map(|last| utc_ms(last, now)),
            tests: u32::try_from(batch.tests().len()).unwrap_or(u32::MAX),
            test: batch.order.is_single().then(|| batch.tests()[0].test),
            usage: exit.usage(),
            exit: (exit.code != Some(0)).then(|| exit_reason_of(exit)),
        })
    }
}

/// Converts running time to milliseconds since 1970.
fn utc_ms(running: Duration, now: ClockReading) -> u64 {
    let ago = now.running.saturating_sub(running);
    now.utc.since_epoch_ms().saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::process_clock::UtcTime;

    #[test]
    fn times_of_a_process_are_counted_back_from_now() {
        let second = Duration::from_secs;
        let now = ClockReading {
            running: second(9),
            utc: UtcTime::from_epoch(second(100)),
            ..ClockReading::default()
        };
        assert_eq!(utc_ms(Duration::ZERO, now), 91_000);
        assert_eq!(utc_ms(second(4), now), 95_000);
        assert_eq!(utc_ms(second(9), now), 100_000);
    }
}
