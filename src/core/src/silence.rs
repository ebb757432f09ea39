//! When a process of ours that has fallen silent is continued, and when it is replaced.
//!
//! ```text
//! heard ── limit ──► continue ── limit ──► replace
//!   ▲                    │ heard
//!   └────────────────────┘
//! ```
//!
//! Processes of ours send at least a heartbeat every few seconds. One that does not may be stopped: any test
//! can do that to its parents. SIGCONT cures it. One that is stopped again, or still, is ended, and its
//! successor takes over. One that is silent and not stopped is left alone: its machine is busy, or its disk.

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

    /// Decides after a time without a sign of life. A process that is not stopped is only slow: killing it
    /// would have all its tests run again, and a stop that follows is its first.
    pub fn on_check(&mut self, now: Duration, is_stopped: impl FnOnce() -> bool) -> Option<SilenceStep> {
        let due_at = self.check_at;
        if now < due_at {
            return None;
        }
        self.check_at = now + SILENCE_LIMIT;
        if now - due_at > LATE_CHECK || !is_stopped() {
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
        assert_eq!(watch.on_check(seconds(9), || true), None);
        assert_eq!(watch.on_check(watch.check_at(), || true), Some(SilenceStep::Continue));
        assert_eq!(watch.on_check(seconds(19), || true), None);
        assert_eq!(watch.on_check(seconds(20), || true), Some(SilenceStep::Replace));
        assert_eq!(
            watch.on_check(seconds(30), || true),
            Some(SilenceStep::Replace),
            "the first kill did not help"
        );
    }

    #[test]
    fn process_that_is_stopped_again_is_replaced_and_later_continued() {
        let mut watch = SilenceWatch::new(seconds(0));
        assert_eq!(watch.on_check(seconds(10), || true), Some(SilenceStep::Continue));
        watch.on_heard(seconds(11));
        let mut relapse = watch;
        assert_eq!(relapse.on_check(seconds(21), || true), Some(SilenceStep::Replace));
        for second in 12..=70 {
            watch.on_heard(seconds(second));
            assert_eq!(watch.on_check(seconds(second), || true), None);
        }
        assert_eq!(watch.on_check(seconds(80), || true), Some(SilenceStep::Continue));
    }

    #[test]
    fn silent_process_that_runs_is_left_alone_and_continued_when_it_is_stopped() {
        let mut watch = SilenceWatch::new(seconds(0));
        assert_eq!(watch.on_check(seconds(10), || false), None);
        assert_eq!(watch.on_check(seconds(20), || true), Some(SilenceStep::Continue));
        assert_eq!(watch.on_check(seconds(30), || false), None, "it is busy after that");
        assert_eq!(watch.on_check(seconds(40), || true), Some(SilenceStep::Replace));
    }

    #[test]
    fn own_pause_is_nothing_that_others_are_to_blame_for() {
        let mut watch = SilenceWatch::new(seconds(0));
        assert_eq!(watch.on_check(seconds(3600), || true), None);
        assert_eq!(watch.check_at(), seconds(3610));
        assert_eq!(watch.on_check(seconds(3610), || true), Some(SilenceStep::Continue));
        assert_eq!(watch.on_check(seconds(7200), || true), None);
    }
}
