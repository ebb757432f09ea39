//! Builds the exit report of a test process. Only this module does so.
//!
//! The wait status is currently its only source. Distinguishing a tracer's first-chance signal, a sanitizer's
//! exit and an out-of-memory kill belongs here.

use std::time::Duration;

use heeler_protocol::control::{LeakedProcess, ProcessExit};
use heeler_sys::process::ExitStatus;

pub(super) fn exit_report(
    exit: ExitStatus,
    wall: Duration,
    leaked: Vec<LeakedProcess>,
    limit_peak_bytes: Option<u64>,
) -> ProcessExit {
    ProcessExit {
        code: exit.code,
        signal: exit.signal,
        has_core: exit.has_core,
        leaked,
        cpu_us: microseconds(exit.cpu),
        peak_kib: exit.peak_kib,
        wall_us: microseconds(wall),
        limit_peak_bytes,
        core: None,
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
