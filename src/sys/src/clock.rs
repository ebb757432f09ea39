//! Clocks that several processes read alike.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the reading of the monotonic clock, which all processes of the machine share, and which stands
/// still while the machine sleeps.
#[must_use]
pub fn monotonic() -> Duration {
    // The clock never reads less than zero.
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
