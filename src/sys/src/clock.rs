//! The monotonic clock, which reads the same in all processes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the monotonic time. All processes of the machine share this clock, which stops while the machine
/// sleeps.
#[must_use]
pub fn monotonic() -> Duration {
    // The clock is never negative.
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
