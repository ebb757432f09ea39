//! Running time of a lease's process, and the time of day. Running time excludes pauses, times when a slow
//! client keeps the worker from reading, and times when the worker or the whole machine did not run.

use std::time::{Duration, Instant, UNIX_EPOCH};

/// Maximum interval between clock checks. A longer gap means that the worker did not run. One wake-up per
/// second is cheap.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Minimum gap between checks that counts as a stalled worker. On an overloaded machine, checks are late by
/// tenths of a second.
const STALLED_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UtcTime {
    since_epoch: Duration,
}

impl UtcTime {
    pub(crate) fn now() -> Self {
        // A system clock before 1970 counts as unset.
        Self { since_epoch: heeler_sys::fail::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }

    /// Returns the time at this offset from 1970.
    #[cfg(test)]
    pub(crate) fn from_epoch(since_epoch: Duration) -> Self {
        Self { since_epoch }
    }

    pub(crate) fn since_epoch_ms(self) -> u64 {
        u64::try_from(self.since_epoch.as_millis()).unwrap_or(u64::MAX)
    }
}

/// One point in time of a lease's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClockReading {
    pub(crate) running: Duration,
    pub(crate) utc: UtcTime,
    /// Total duration of pauses. Not part of the running time.
    pub(crate) paused: Duration,
    /// Time since boot, which the system also uses for process start times.
    pub(crate) since_boot: Duration,
}

/// Why the clock of a process is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockHold {
    Paused,
    /// The process may be running, or may be blocked until its output is read or a debugger continues it.
    Unread,
}

/// The clock of one process. Does not advance while stopped.
#[derive(Debug)]
pub(crate) struct ProcessClock {
    started: Instant,
    /// Total time that the clock was stopped, and the part of it due to pauses.
    held: Duration,
    paused: Duration,
    held_since: Option<(Instant, ClockHold)>,
    looked_at: Instant,
}

impl ProcessClock {
    /// Creates a clock that starts now.
    pub(crate) fn start() -> Self {
        let started = Instant::now();
        let (held, paused) = (Duration::ZERO, Duration::ZERO);
        Self { started, held, paused, held_since: None, looked_at: started }
    }

    /// Returns when [`Self::look`] is due.
    pub(crate) fn next_look(&self) -> Instant {
        self.looked_at + LOOK_EVERY
    }

    /// Subtracts the time since the last check if the worker did not run during that time.
    pub(crate) fn look(&mut self) {
        self.look_at(Instant::now());
    }

    fn look_at(&mut self, now: Instant) {
        let gap = now.duration_since(std::mem::replace(&mut self.looked_at, now));
        if gap >= STALLED_AFTER && self.held_since.is_none() {
            self.held += gap - LOOK_EVERY;
        }
    }

    pub(crate) fn now(&self) -> ClockReading {
        let until = self.held_since.map_or_else(Instant::now, |(since, _)| since);
        let open_pause = self.held_since.filter(|(_, hold)| *hold == ClockHold::Paused);
        ClockReading {
            running: until.duration_since(self.started).saturating_sub(self.held),
            utc: UtcTime::now(),
            paused: self.paused + open_pause.map_or(Duration::ZERO, |(since, _)| since.elapsed()),
            since_boot: heeler_sys::process::time_since_boot(),
        }
    }

    /// Stops the clock, or restarts it with `None`.
    pub(crate) fn set_held(&mut self, hold: Option<ClockHold>) {
        let now = Instant::now();
        if let Some((since, earlier)) = self.held_since.take_if(|(_, earlier)| Some(*earlier) != hold) {
            self.held += now.duration_since(since);
            if earlier == ClockHold::Paused {
                self.paused += now.duration_since(since);
            }
        }
        if let (Some(hold), None) = (hold, self.held_since) {
            self.held_since = Some((now, hold));
        }
    }

    /// Returns the instant when the running time reaches `running`, or `None` while the clock is stopped.
    pub(crate) fn instant_at(&self, running: Duration) -> Option<Instant> {
        match self.held_since {
            Some(_) => None,
            None => self.started.checked_add(self.held)?.checked_add(running),
        }
    }
}

/// Waits until the deadline. Waits forever without one.
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

    fn spin(duration: Duration) {
        let until = Instant::now() + duration;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn held_clock_stops_and_has_no_instants() {
        let mut clock = ProcessClock::start();
        clock.set_held(Some(ClockHold::Unread));
        let then = clock.now().running;
        assert_eq!(clock.instant_at(Duration::ZERO), None);
        spin(Duration::from_millis(5));
        assert_eq!((clock.now().running, clock.now().paused), (then, Duration::ZERO));
        clock.set_held(None);
        assert!(
            clock.now().running < then + Duration::from_millis(5) || clock.held >= Duration::from_millis(5)
        );
        assert!(clock.instant_at(Duration::ZERO).unwrap() >= clock.started + Duration::from_millis(5));
    }

    #[test]
    fn time_in_which_nothing_looked_is_no_running_time() {
        let mut clock = ProcessClock::start();
        let (started, second) = (clock.started, Duration::from_secs(1));
        clock.look_at(started + second);
        assert_eq!((clock.held, clock.next_look()), (Duration::ZERO, started + second * 2));
        clock.look_at(started + second * 2 + second / 2);
        assert_eq!(clock.held, Duration::ZERO, "late by half a second");
        clock.look_at(started + second * 12 + second / 2);
        assert_eq!(clock.held, second * 9, "stopped for ten seconds");
        let deadline = started + second * 69;
        assert_eq!(clock.instant_at(second * 60), Some(deadline), "a limit is reached that much later");
        clock.set_held(Some(ClockHold::Unread));
        clock.look_at(started + second * 100);
        assert_eq!(clock.held, second * 9, "what is held already is not counted twice");
    }

    #[test]
    fn pauses_are_counted_apart() {
        let mut clock = ProcessClock::start();
        clock.set_held(Some(ClockHold::Unread));
        clock.set_held(Some(ClockHold::Paused));
        let then = clock.now();
        spin(Duration::from_millis(5));
        assert_eq!(clock.now().running, then.running);
        assert!(clock.now().paused >= Duration::from_millis(5));
        clock.set_held(None);
        let paused = clock.now().paused;
        assert!(paused >= Duration::from_millis(5) && paused <= clock.held);
        assert_eq!(clock.now().paused, paused);
    }
}
