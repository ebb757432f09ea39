//! When a process of ours that has fallen silent is continued, and when it is replaced.
//!
//! ```text
//! heard ── limit ──► continue ── limit ──► replace
//!   ▲                    │ heard
//!   └────────────────────┘
//! ```
//!
//! Processes of ours send at least a heartbeat every few seconds. One that does not is most likely stopped:
//! any test can do that to its parents. SIGCONT cures it, and harms no other process. One that is silent
//! again, or still, is ended, and its successor takes over.

use std::time::Duration;

/// Silence after which a process is continued, and after which it is replaced if that did not help.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// A process that is silent again within this time after it was continued is not continued a second time.
const RELAPSE_TIME: Duration = Duration::from_secs(60);
/// A check that is late by more than this says that this process was stopped or starved itself: the silence
/// was not observed, and counts from now on.
const LATE_CHECK: Duration = Duration::from_secs(1);

/// What to do about a silent process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SilenceStep {
    /// Send it SIGCONT.
    Continue,
    /// Kill it; its successor takes over.
    Replace,
}

/// The silence of one process. Times are since any fixed instant, and never run backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilenceWatch {
    check_at: Duration,
    continued_at: Option<Duration>,
}

impl SilenceWatch {
    /// Begins to watch a process that was heard just now.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { check_at: now + SILENCE_LIMIT, continued_at: None }
    }

    /// Returns when [`SilenceWatch::on_check`] is due.
    #[must_use]
    pub fn check_at(&self) -> Duration {
        self.check_at
    }

    /// Records that the process was heard.
    pub fn on_heard(&mut self, now: Duration) {
        self.check_at = now + SILENCE_LIMIT;
    }

    /// Decides after a time without a sign of life.
    pub fn on_check(&mut self, now: Duration) -> Option<SilenceStep> {
        let due_at = self.check_at;
        if now < due_at {
            return None;
        }
        self.check_at = now + SILENCE_LIMIT;
        if now - due_at > LATE_CHECK {
            return None;
        }
        if self.continued_at.is_some_and(|then| now - then <= RELAPSE_TIME) {
            return Some(SilenceStep::Replace);
        }
        self.continued_at = Some(now);
        Some(SilenceStep::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn silent_process_is_continued_then_replaced() {
        let mut watch = SilenceWatch::new(seconds(0));
        assert_eq!(watch.on_check(seconds(9)), None);
        assert_eq!(watch.on_check(watch.check_at()), Some(SilenceStep::Continue));
        assert_eq!(watch.on_check(seconds(19)), None);
        assert_eq!(watch.on_check(seconds(20)), Some(SilenceStep::Replace));
        assert_eq!(watch.on_check(seconds(30)), Some(SilenceStep::Replace), "the first kill did not help");
    }

    #[test]
    fn process_that_is_stopped_again_is_replaced_and_later_continued() {
        let mut watch = SilenceWatch::new(seconds(0));
        assert_eq!(watch.on_check(seconds(10)), Some(SilenceStep::Continue));
        watch.on_heard(seconds(11));
        let mut relapse = watch;
        assert_eq!(relapse.on_check(seconds(21)), Some(SilenceStep::Replace));
        for second in 12..=70 {
            watch.on_heard(seconds(second));
            assert_eq!(watch.on_check(seconds(second)), None);
        }
        assert_eq!(watch.on_check(seconds(80)), Some(SilenceStep::Continue));
    }

    #[test]
    fn own_pause_is_nothing_that_others_are_to_blame_for() {
        let mut watch = SilenceWatch::new(seconds(0));
        assert_eq!(watch.on_check(seconds(3600)), None);
        assert_eq!(watch.check_at(), seconds(3610));
        assert_eq!(watch.on_check(seconds(3610)), Some(SilenceStep::Continue));
        assert_eq!(watch.on_check(seconds(7200)), None);
    }
}
