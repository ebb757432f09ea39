//! Data races, which the race detector reports on standard error. The package `testing` only counts them.

use heeler_core::Failure;

use super::goroutines;
use crate::{FrameworkVerdict, scan};

const BEGIN: &str = "WARNING: DATA RACE\n";
const END: &str = "==================\n";
/// Maximum size of a report, and maximum number of reports.
const REPORT_BYTES: usize = 8 << 10;
const MAX_REPORTS: usize = 10;

/// Adds the data races found in the standard error of a failed test.
pub(super) fn add_data_races(verdict: &mut FrameworkVerdict, _name: &str, stderr: &str) {
    for report in stderr.split(BEGIN).skip(1).take(MAX_REPORTS) {
        let report = scan::truncated(report.split(END).next().unwrap_or(report), REPORT_BYTES);
        let place = first_place(report);
        verdict.push_failure(Failure {
            message: Some("data race".to_owned()),
            file: place.map(|(file, _)| file.to_owned()),
            line: place.map(|(_, line)| line),
            stack: Some(report.trim_end().to_owned()),
            ..Failure::default()
        });
    }
}

/// Returns the location of the first access, which is on the line after its function.
fn first_place(report: &str) -> Option<(&str, u32)> {
    let place = report.lines().nth(2)?;
    goroutines::read_place(place.trim_start())
}

#[cfg(test)]
mod cases {
    use super::*;
    use crate::FrameworkResult;

    #[test]
    fn each_race_is_a_failure_with_its_place() {
        let report = "==================\nWARNING: DATA RACE\nWrite at 0x00c000 by goroutine 8:\n  m/p.TestRaces.func1()\n      /w/race_test.go:10 +0x3e\n\nPrevious write at 0x00c000 by goroutine 7:\n  m/p.TestRaces()\n      /w/race_test.go:13 +0x4\n==================\n";
        let mut verdict = FrameworkVerdict::new(FrameworkResult::Failed, None);
        add_data_races(&mut verdict, "TestRaces", &format!("noise\n{report}{report}"));
        let [first, second] = verdict.failures.as_slice() else { panic!("{verdict:?}") };
        assert_eq!((first.file.as_deref(), first.line), (Some("/w/race_test.go"), Some(10)));
        assert!(first.stack.as_deref().unwrap().ends_with("race_test.go:13 +0x4"), "{first:?}");
        assert_eq!(first, second);
        add_data_races(&mut verdict, "TestRaces", "WARNING: DATA RACE\n");
        assert_eq!(verdict.failures.len(), 3);
    }
}
