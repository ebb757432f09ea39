//! Finds the test that left a process behind, by comparing the start time of the process with the times of
//! the tests. Pure; also contains the log messages about leaks.
//!
//! The system rounds start times to its clock tick (mostly 10 ms), and the worker reads markers shortly after
//! they were written. Each test therefore gets the widest possible time span, and a process is attributed to
//! every test that may have been running when it started. A process started between two tests counts for the
//! later one, because most of a test's set-up happens there. A process started before the first test counts
//! for the first. A process started after the last test is attributed to all tests: a daemon started by a
//! test forks again in the background, as late as the system lets it.

use std::time::Duration;

use heeler_core::{LeakedProcess, describe::leak_text};

/// Maximum number of tests named in a message about one leaked process.
const MAX_NAMED_TESTS: usize = 5;

/// Possible time spans of the tests of one process. All times are since boot.
#[derive(Debug, Default)]
pub(crate) struct TestTimeSpans {
    spans: Vec<TestTimeSpan>,
}

#[derive(Debug, Clone, Copy)]
struct TestTimeSpan {
    place: usize,
    from: Duration,
    /// `None` while the test runs.
    until: Option<Duration>,
    /// Minimum duration of the test.
    min_duration: Duration,
}

impl TestTimeSpans {
    /// Records a test's begin marker, written after `before`, the time of the previous read.
    pub(crate) fn record_begin(&mut self, place: usize, before: Duration) {
        // Tests run one after the other, so this test cannot have begun before the previous one ended.
        let behind_last =
            self.spans.last().map_or(Duration::ZERO, |last| last.from.saturating_add(last.min_duration));
        let from = if self.spans.is_empty() { Duration::ZERO } else { before.max(behind_last) };
        self.spans.push(TestTimeSpan { place, from, until: None, min_duration: Duration::ZERO });
    }

    /// Records a test's end marker, read at `now`. `took`: the duration that the framework reported, a lower
    /// bound.
    pub(crate) fn record_end(&mut self, place: usize, now: Duration, took: Duration) {
        if let Some(span) = self.spans.iter_mut().rev().find(|span| span.place == place) {
            (span.until, span.min_duration) = (Some(now), took);
        }
    }

    /// Groups leaked processes by the tests that may have started them. A group has no tests if no test had
    /// begun.
    pub(crate) fn attribute(&self, leaked: &[LeakedProcess], tick: Duration) -> Vec<ProcessLeak> {
        let mut leaks: Vec<ProcessLeak> = Vec::new();
        for process in leaked {
            let places = self.possible_tests(process.started_ms.map(Duration::from_millis), tick);
            match leaks.iter_mut().find(|leak| leak.places == places) {
                Some(leak) => leak.processes.push(process.clone()),
                None => leaks.push(ProcessLeak { places, processes: vec![process.clone()] }),
            }
        }
        leaks
    }

    fn possible_tests(&self, started: Option<Duration>, tick: Duration) -> Vec<usize> {
        if let [only] = self.spans[..] {
            return vec![only.place];
        }
        let is_suspect = |span: &&TestTimeSpan| {
            started.is_none_or(|at| {
                at.saturating_add(tick) > span.from && span.until.is_none_or(|until| at <= until)
            })
        };
        let suspects: Vec<_> = self.spans.iter().filter(is_suspect).map(|span| span.place).collect();
        if suspects.is_empty() { self.spans.iter().map(|span| span.place).collect() } else { suspects }
    }
}

/// Processes left behind by one test, or by one of several tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessLeak {
    /// Indexes of the tests in their batch.
    pub(crate) places: Vec<usize>,
    pub(crate) processes: Vec<LeakedProcess>,
}

/// Returns the log message about leaked processes, which have been killed already.
pub(crate) fn leak_message(suite: &str, uids: &[&str], processes: &[LeakedProcess]) -> String {
    let what = leak_text(processes);
    match uids {
        [] => format!("{suite} (outside its tests): {what}"),
        // The log line already contains the test's name.
        [_] => what,
        several => {
            let mut names = several[..several.len().min(MAX_NAMED_TESTS)].join(", ");
            if several.len() > MAX_NAMED_TESTS {
                names.push_str(&format!(" and {} more", several.len() - MAX_NAMED_TESTS));
            }
            format!("{what}; started by one of {} tests (use --isolate to find it): {names}", several.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(10);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn leaked(pid: u32, started_ms: Option<u64>) -> LeakedProcess {
        LeakedProcess { pid, command: "sleep 9".into(), started_ms, ..LeakedProcess::default() }
    }

    /// Three tests: the first takes 100 ms; the markers of the other two arrive in one read at 300 ms, and
    /// the framework reports 150 ms for the second.
    fn spans() -> TestTimeSpans {
        let mut spans = TestTimeSpans::default();
        spans.record_begin(0, ms(1000));
        spans.record_end(0, ms(1100), ms(99));
        spans.record_begin(1, ms(1090));
        spans.record_end(1, ms(1300), ms(150));
        spans.record_begin(2, ms(1100));
        spans
    }

    fn suspects(started_ms: u64) -> Vec<usize> {
        let leaks = spans().attribute(&[leaked(1, Some(started_ms))], TICK);
        leaks.into_iter().flat_map(|leak| leak.places).collect()
    }

    #[test]
    fn leak_is_attributed_to_every_possible_test() {
        assert_eq!(suspects(500), [0], "the set-up before the first test is the first test's");
        assert_eq!(suspects(1050), [0]);
        assert_eq!(suspects(1095), [0, 1], "the tick may be either's");
        assert_eq!(suspects(1150), [1]);
        assert_eq!(suspects(1250), [1, 2], "the third may have begun 150 ms after the second");
        assert_eq!(suspects(1400), [2], "it has not ended");
    }

    #[test]
    fn leak_started_after_all_tests_matches_all_tests() {
        let mut spans = spans();
        spans.record_end(2, ms(1500), ms(0));
        let leaks = spans.attribute(&[leaked(1, Some(1600)), leaked(2, Some(1700))], TICK);
        assert_eq!(leaks.len(), 1);
        assert_eq!((leaks[0].places.as_slice(), leaks[0].processes.len()), ([0, 1, 2].as_slice(), 2));
    }

    #[test]
    fn leak_of_process_without_tests_has_no_test() {
        let leaks = TestTimeSpans::default().attribute(&[leaked(1, Some(1600))], TICK);
        assert_eq!((leaks.len(), leaks[0].places.len()), (1, 0));
    }

    #[test]
    fn leak_without_start_time_matches_all_tests() {
        assert_eq!(spans().attribute(&[leaked(1, None)], TICK)[0].places, [0, 1, 2]);
        let mut one_test = TestTimeSpans::default();
        one_test.record_begin(4, ms(1000));
        one_test.record_end(4, ms(1001), ms(0));
        assert_eq!(one_test.attribute(&[leaked(1, Some(9000))], TICK)[0].places, [4]);
    }

    #[test]
    fn leak_message_names_tests_and_processes() {
        let processes = [leaked(7, None)];
        assert_eq!(
            leak_message("s", &["s::a"], &processes),
            "leaked a process, which was killed: sleep 9 (pid 7)"
        );
        assert!(leak_message("s", &[], &processes).starts_with("s (outside its tests): leaked a process"));
        let running = [processes[0].clone(), LeakedProcess { is_running: true, ..processes[0].clone() }];
        assert_eq!(
            leak_message("s", &["s::a"], &running),
            "leaked a process, which was killed: sleep 9 (pid 7); leaked a process, which could not be \
             killed and is still running: sleep 9 (pid 7)"
        );
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        let text = leak_message("s", &many, &[processes[0].clone(), processes[0].clone()]);
        assert!(text.starts_with("leaked processes, which were killed"), "{text}");
        assert!(text.contains("; started by one of 7 tests"), "{text}");
        assert!(text.ends_with(": a, b, c, d, e and 2 more"), "{text}");
    }
}
