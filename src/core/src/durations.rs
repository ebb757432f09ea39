//! Conversion of durations for messages and reports.

/// Returns whole microseconds as milliseconds.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "durations are far below 2^53 microseconds")]
pub fn milliseconds_of(microseconds: u64) -> f64 {
    microseconds as f64 / 1e3
}
