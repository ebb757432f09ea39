//! Deadlines of sessions.

use std::future::pending;

use tokio::time::{Instant, sleep_until};

/// Waits until a deadline of a session; forever without one.
///
/// Cancel safe: yes, because it changes nothing.
pub(crate) async fn wait_for_deadline(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}
