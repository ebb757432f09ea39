//! Durations for people.

use std::time::Duration;

/// Formats an elapsed time: `0.4s`, `9.9s`, `10s`, `1m 02s`, `2h 03m`.
#[must_use]
pub fn rough_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}
