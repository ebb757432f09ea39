//! Waits with time limits, for sessions.

use std::{future::pending, time::Duration};

use tokio::time::{Instant, sleep_until, timeout};

/// Waits for a deadline; forever without one.
///
/// Cancel safe: yes, because it changes nothing.
pub(crate) async fn wait_for_deadline(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}

/// Waits for part of a session to end. Logs `what` if that takes too long.
///
/// Cancel safe: yes, if `end` is.
pub(crate) async fn await_end<T>(what: &str, limit: Duration, end: impl Future<Output = T>) -> Option<T> {
    let ended = timeout(limit, end).await.ok();
    if ended.is_none() {
        tracing::warn!("{what} did not end within {} s", limit.as_secs());
    }
    ended
}
