//! Estimates the durations of cases from ended cases. All runs of the session are planned with these
//! estimates.

use std::{collections::HashMap, time::Duration};

/// Assumed duration of a case of an unknown suite. Most cases take a few milliseconds.
const ASSUMED_CASE: Duration = Duration::from_millis(10);
/// Number of durations kept per suite of cases: the latest ones.
const SAMPLES: usize = 64;
/// Quantile of the samples used as the estimate. The quantile is low because the first case of each process
/// includes the process start, and fewer than half of the samples are first cases.
const QUANTILE: (usize, usize) = (1, 4);

/// Durations of ended cases, by suite (the first part of a case's name).
#[derive(Debug, Default)]
pub(super) struct CaseDurations {
    suites: HashMap<String, Vec<Duration>>,
    recorded: usize,
}

impl CaseDurations {
    pub(super) fn record(&mut self, case: &str, duration: Duration) {
        let samples = self.suites.entry(suite_of(case).to_owned()).or_default();
        if samples.len() < SAMPLES {
            samples.push(duration);
        } else {
            samples[self.recorded % SAMPLES] = duration;
        }
        self.recorded = self.recorded.wrapping_add(1);
    }

    pub(super) fn estimate(&self, case: &str) -> Duration {
        let Some(samples) = self.suites.get(suite_of(case)) else { return ASSUMED_CASE };
        let mut sorted = samples.clone();
        let (part, whole) = QUANTILE;
        *sorted.select_nth_unstable(samples.len() * part / whole).1
    }
}

fn suite_of(case: &str) -> &str {
    case.split('/').next().unwrap_or(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_is_that_of_most_cases_of_the_suite() {
        let mut durations = CaseDurations::default();
        assert_eq!(durations.estimate("Basic/a"), ASSUMED_CASE);
        for start in [30, 2, 2, 31, 3, 2] {
            durations.record("Basic/x/y", Duration::from_millis(start));
        }
        assert_eq!(durations.estimate("Basic/other"), Duration::from_millis(2));
        assert_eq!(durations.estimate("Timeouts/other"), ASSUMED_CASE);
        for _ in 0..3 * SAMPLES {
            durations.record("Basic/x", Duration::from_millis(9));
        }
        assert_eq!(durations.estimate("Basic/b"), Duration::from_millis(9), "old samples are replaced");
        assert_eq!(durations.suites["Basic"].len(), SAMPLES);
    }
}
