//! Timeouts for peers that count only while this process runs. A stopped or starved process does not read the
//! peer's answers, so a timeout would prove nothing about the peer.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Number of parts of a timeout. Each part counts once, even if this process wakes up late from it.
const PARTS: u32 = 8;
/// Minimum wait, even for a timeout that has already passed, so that pending answers are read.
const LEAST: Duration = Duration::from_millis(8);

/// Waits for `duration` of running time, at least 8 ms.
///
/// Cancel safe: yes, because it only waits.
pub async fn sleep_running(duration: Duration) {
    let part = duration.max(LEAST) / PARTS;
    for _ in 0..PARTS {
        sleep(part).await;
    }
}

/// Waits like [`sleep_running`] for the time left until `deadline`.
///
/// Cancel safe: yes, because it only waits; a new call counts an earlier stop as elapsed time.
pub(crate) async fn sleep_until_running(deadline: Instant) {
    sleep_running(deadline.saturating_duration_since(Instant::now())).await;
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::{Pin, pin},
        task::{Context, Waker},
    };

    use super::*;

    fn is_over(wait: Pin<&mut impl Future<Output = ()>>) -> bool {
        wait.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn time_in_which_this_process_did_not_run_is_one_part_at_most() {
        let limit = Duration::from_millis(800);
        let mut wait = pin!(sleep_running(limit));
        assert!(!is_over(wait.as_mut()));
        let stopped = Instant::now();
        while stopped.elapsed() <= limit {
            std::hint::spin_loop();
        }
        tokio::task::yield_now().await;
        assert!(!is_over(wait.as_mut()), "it was stopped for longer than the limit");
        wait.await;
        assert!(stopped.elapsed() > limit + limit / PARTS * (PARTS - 2));
    }

    #[tokio::test]
    async fn limit_that_has_passed_leaves_time_to_read() {
        let mut wait = pin!(sleep_until_running(Instant::now()));
        assert!(!is_over(wait.as_mut()));
        wait.await;
    }
}
