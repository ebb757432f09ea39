//! Running time of a lease's process, and the time of day. Running time excludes pauses and the time in which
//! a slow client keeps the worker from reading. Deadlines are decided elsewhere.

use std::time::{Duration, Instant, UNIX_EPOCH};

/// A time of day, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UtcTime {
    since_epoch: Duration,
}

impl UtcTime {
    /// Returns the current time.
    pub(crate) fn now() -> Self {
        // A system clock before 1970 counts as unset.
        Self { since_epoch: heeler_sys::fail::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }

    /// Returns the time at this offset from 1970.
    #[cfg(test)]
    pub(crate) fn from_epoch(since_epoch: Duration) -> Self {
        Self { since_epoch }
    }

    /// Returns the milliseconds since 1970.
    pub(crate) fn since_epoch_ms(self) -> u64 {
        u64::try_from(self.since_epoch.as_millis()).unwrap_or(u64::MAX)
    }
}

/// One point in time of a lease's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClockReading {
    /// How long the process has been running.
    pub(crate) running: Duration,
    /// The time of day.
    pub(crate) utc: UtcTime,
    /// The time since boot, which the system also uses for process start times.
    pub(crate) since_boot: Duration,
}

/// The clock of one process. It does not advance while held.
#[derive(Debug)]
pub(crate) struct ProcessClock {
    started: Instant,
    held: Duration,
    held_since: Option<Instant>,
}

impl ProcessClock {
    /// Returns a clock that starts now.
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), held: Duration::ZERO, held_since: None }
    }

    /// Returns the current time on this clock.
    pub(crate) fn now(&self) -> ClockReading {
        let until = self.held_since.unwrap_or_else(Instant::now);
        ClockReading {
            running: until.duration_since(self.started).saturating_sub(self.held),
            utc: UtcTime::now(),
            since_boot: heeler_sys::process::time_since_boot(),
        }
    }

    /// Stops or restarts the clock.
    pub(crate) fn set_held(&mut self, is_held: bool) {
        match (is_held, self.held_since) {
            (true, None) => self.held_since = Some(Instant::now()),
            (false, Some(since)) => {
                self.held += since.elapsed();
                self.held_since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Returns the instant at which the running time reaches `running`; `None` while the clock is held.
    pub(crate) fn instant_at(&self, running: Duration) -> Option<Instant> {
        match self.held_since {
            Some(_) => None,
            None => self.started.checked_add(self.held)?.checked_add(running),
        }
    }
}

/// Waits until the deadline; forever without one.
///
/// Cancel safe: yes, because it changes nothing.
pub(crate) async fn sleep_until_deadline(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_clock_stops_and_has_no_instants() {
        let mut clock = ProcessClock::start();
        clock.set_held(true);
        let then = clock.now().running;
        assert_eq!(clock.instant_at(Duration::ZERO), None);
        let until = Instant::now() + Duration::from_millis(5);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert_eq!(clock.now().running, then);
        clock.set_held(false);
        assert!(
            clock.now().running < then + Duration::from_millis(5) || clock.held >= Duration::from_millis(5)
        );
        assert!(clock.instant_at(Duration::ZERO).unwrap() >= clock.started + Duration::from_millis(5));
    }
}
