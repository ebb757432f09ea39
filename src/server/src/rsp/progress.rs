//! Limits how often a job's progress is reported. Pure; the caller passes the time.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum time between two reports of a job, which allows ten per second.
const REPORT_PERIOD: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub(super) struct JobProgressRate {
    percent: u8,
    reported: u8,
    /// Earliest time of the next report.
    next_report: Instant,
}

impl JobProgressRate {
    pub(super) fn new(begun: Instant) -> Self {
        Self { percent: 0, reported: 0, next_report: begun }
    }

    pub(super) fn percent(&self) -> u8 {
        self.percent
    }

    /// Records how many tests have ended. Returns the percentage if it should be reported now.
    pub(super) fn update(&mut self, ended: usize, selected: usize, now: Instant) -> Option<u8> {
        let percent = (ended.min(selected) * 100).checked_div(selected).unwrap_or(100);
        self.percent = u8::try_from(percent).unwrap_or(100);
        self.report_due(now)
    }

    /// Returns the percentage if a report is due, and counts it as sent.
    pub(super) fn report_due(&mut self, now: Instant) -> Option<u8> {
        if self.next_report().is_none_or(|due| due > now) {
            return None;
        }
        self.next_report = now + REPORT_PERIOD;
        self.reported = self.percent;
        Some(self.percent)
    }

    /// Returns when the next report is due; `None` if the latest percentage was reported.
    pub(super) fn next_report(&self) -> Option<Instant> {
        (self.percent != self.reported).then_some(self.next_report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_ends_is_reported_at_most_ten_times_a_second() {
        let start = Instant::now();
        let mut rate = JobProgressRate::new(start);
        let mut reports = Vec::new();
        for ended in 1..=30_000_u32 {
            let now = start + Duration::from_micros(u64::from(ended) * 100);
            reports.extend(rate.update(ended as usize, 30_000, now).map(|percent| (now, percent)));
        }
        assert!((20..=30).contains(&reports.len()), "{reports:?}");
        assert!(reports.windows(2).all(|two| two[1].0 - two[0].0 >= REPORT_PERIOD), "{reports:?}");
        assert!(reports.windows(2).all(|two| two[1].1 > two[0].1), "{reports:?}");
    }

    #[test]
    fn held_back_percentage_is_due_after_the_period() {
        let start = Instant::now();
        let mut rate = JobProgressRate::new(start);
        assert_eq!(rate.next_report(), None);
        assert_eq!(rate.update(1, 4, start + REPORT_PERIOD), Some(25));
        assert_eq!(rate.update(2, 4, start + REPORT_PERIOD), None);
        assert_eq!(rate.percent(), 50);
        let due = rate.next_report().unwrap();
        assert_eq!(due, start + 2 * REPORT_PERIOD);
        assert_eq!(rate.report_due(due), Some(50));
        assert_eq!((rate.report_due(due), rate.next_report()), (None, None));
    }

    #[test]
    fn percentage_is_a_whole_number_from_0_to_100() {
        let percent = |ended, selected| {
            let begun = Instant::now();
            let mut rate = JobProgressRate::new(begun);
            let _report = rate.update(ended, selected, begun);
            rate.percent()
        };
        assert_eq!(percent(0, 3), 0);
        assert_eq!(percent(1, 3), 33);
        assert_eq!(percent(3, 3), 100);
        assert_eq!(percent(0, 0), 100, "there is nothing to wait for");
        assert_eq!(percent(5, 3), 100);
    }
}
