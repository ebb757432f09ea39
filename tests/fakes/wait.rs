//! Functions that wait, for a time or forever.

use std::time::{Duration, Instant};

/// Waits until the process is killed.
pub(crate) fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Waits for this time.
pub(crate) fn pass_time(duration: Duration) {
    let begun = Instant::now();
    while let Some(rest) = duration.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero()) {
        std::thread::park_timeout(rest);
    }
}
