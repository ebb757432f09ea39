//! Decides how long to wait after file system events before checking for changes: a linker writes a file many
//! times, and a build writes many files. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Time without events after which a build step counts as done.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(300);
/// Maximum wait for a quiet period: constant writes next to the programs must not hide changes.
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Minimum time between two checks.
pub(super) const SHORTEST_INTERVAL: Duration = Duration::from_secs(2);

/// Time of the last check, and events since then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ChangeDebounce {
    /// First and last event since the last check.
    pending: Option<EventSpan>,
    last_look: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EventSpan {
    first: Instant,
    last: Instant,
}

impl ChangeDebounce {
    pub(super) fn on_event(&mut self, now: Instant) {
        let first = self.pending.map_or(now, |span| span.first);
        self.pending = Some(EventSpan { first, last: now });
    }

    /// Records a check.
    pub(super) fn on_look(&mut self, now: Instant) {
        self.pending = None;
        self.last_look = Some(now);
    }

    /// Returns the time of the next check; `None` without an event since the last one.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let EventSpan { first, last } = self.pending?;
        let settled = (last + QUIET_PERIOD).min(first + LONGEST_DELAY);
        Some(self.last_look.map_or(settled, |look| settled.max(look + SHORTEST_INTERVAL)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_follows_quiet_but_is_not_postponed_forever() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut debounce = ChangeDebounce::default();
        assert_eq!(debounce.next_look(), None);
        debounce.on_event(at(0));
        assert_eq!(debounce.next_look(), Some(at(300)));
        for ms in (200..=10_000).step_by(200) {
            debounce.on_event(at(ms));
            assert_eq!(debounce.next_look(), Some(at(ms + 300).min(at(5000))), "{ms}");
        }
        debounce.on_look(at(5000));
        assert_eq!(debounce.next_look(), None);
        // The next check respects the minimum interval.
        debounce.on_event(at(5100));
        assert_eq!(debounce.next_look(), Some(at(7000)));
        debounce.on_event(at(6900));
        assert_eq!(debounce.next_look(), Some(at(7200)));
    }
}
