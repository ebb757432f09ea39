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

    /// Appends the time in ISO 8601 with milliseconds: `2026-02-03T04:05:06.789Z`.
    pub(crate) fn write_iso8601(self, out: &mut Vec<u8>) {
        let seconds = self.since_epoch.as_secs();
        let (year, month, day) = date_of_day(seconds / 86_400);
        write_digits(out, year, 4);
        out.push(b'-');
        write_digits(out, month, 2);
        out.push(b'-');
        write_digits(out, day, 2);
        out.push(b'T');
        write_digits(out, seconds / 3600 % 24, 2);
        out.push(b':');
        write_digits(out, seconds / 60 % 60, 2);
        out.push(b':');
        write_digits(out, seconds % 60, 2);
        out.push(b'.');
        write_digits(out, u64::from(self.since_epoch.subsec_millis()), 3);
        out.push(b'Z');
    }
}

fn write_digits(out: &mut Vec<u8>, number: u64, width: u32) {
    for place in (0..width).rev() {
        let digit = number / 10_u64.pow(place) % 10;
        out.push(b'0' + u8::try_from(digit).expect("one digit"));
    }
}

/// Returns year, month and day of a day since 1970 (Hinnant's algorithm for the Gregorian calendar).
fn date_of_day(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(seconds: u64, millis: u64) -> String {
        let mut out = Vec::new();
        UtcTime::from_epoch(Duration::from_millis(seconds * 1000 + millis)).write_iso8601(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn utc_time_is_written_as_iso_8601() {
        assert_eq!(iso(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(iso(951_782_400, 5), "2000-02-29T00:00:00.005Z");
        assert_eq!(iso(1_709_251_200, 0), "2024-03-01T00:00:00.000Z");
        assert_eq!(iso(1_767_225_599, 1), "2025-12-31T23:59:59.001Z");
        assert_eq!(iso(4_102_444_800, 0), "2100-01-01T00:00:00.000Z");
    }

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
