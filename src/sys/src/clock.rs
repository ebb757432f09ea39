//! Clocks with the same reading in all processes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of the monotonic clock, which all processes of the machine share and which stops while
/// the machine sleeps.
#[must_use]
pub fn monotonic() -> Duration {
    // The clock is never negative.
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
