//! Decides when a silent Heeler process is continued (SIGCONT), and when it is replaced.
//!
//! ```text
//! heard ── limit ──► continue ── limit ──► replace
//!   ▲                    │ heard
//!   └────────────────────┘
//! ```
//!
//! Heeler's processes send a heartbeat at least every few seconds. A silent process may be stopped, because
//! any test can stop its parents; SIGCONT continues it. A process that is still stopped, or stopped again, is
//! killed and replaced. A silent process that is not stopped is left alone: the machine or its disk is busy.

use std::time::Duration;

/// A process that is silent for this long is continued. If it stays silent for the same time again, it is
/// replaced.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(10);
/// A process that is stopped again within this time after it was continued is replaced instead.
const RELAPSE_TIME: Duration = Duration::from_secs(60);
/// If a check is later than this, the checking process itself was stopped or starved. The silence was not
/// observed, and is counted from now on.
const LATE_CHECK: Duration = Duration::from_secs(1);

/// Action on a silent process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SilenceStep {
    /// Send SIGCONT.
    Continue,
    /// Kill the process; a new one replaces it.
    Replace,
}

/// Silence of one process. Times are relative to any fixed instant, and never run backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilenceWatch {
    check_at: Duration,
    continued_at: Option<Duration>,
}

impl SilenceWatch {
    /// Starts to watch a process that was heard just now.
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

    /// Decides what to do after a period of silence. A process that is not stopped is only slow: killing it
    /// would rerun all its tests. If it is stopped later, that counts as the first time.
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
