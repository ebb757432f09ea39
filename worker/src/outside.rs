//! Messages for process exits and output outside any test. Pure.

use std::time::Duration;

use wire::control::RawEnd;

use crate::{conclusion::seconds, death::death_of, output::Capture};

/// The number of bytes reported from the end of each stream.
const TAIL_BYTES: usize = 4 << 10;

/// The point between tests at which a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// Before the first test started.
    BeforeFirst,
    /// With tests still waiting, after this test, the last to end.
    After(&'a str),
    /// All tests have ended.
    AfterLast,
}

/// The output outside any test.
#[derive(Debug)]
pub(crate) struct Outside {
    stdout: Capture,
    stderr: Capture,
}

impl Default for Outside {
    fn default() -> Self {
        Self { stdout: Capture::of_tail(TAIL_BYTES), stderr: Capture::of_tail(TAIL_BYTES) }
    }
}

impl Outside {
    /// Adds standard output that belongs to no test.
    pub(crate) fn stdout(&mut self, bytes: &[u8]) {
        self.stdout.push(bytes);
    }

    /// Adds standard error that belongs to no test.
    pub(crate) fn stderr(&mut self, bytes: &[u8]) {
        self.stderr.push(bytes);
    }

    /// Returns a message that describes the end and includes the last output. `waited` is how long the
    /// process was idle before it was terminated for that.
    pub(crate) fn message(&self, place: Place<'_>, end: &RawEnd, waited: Option<Duration>) -> String {
        self.under(match waited {
            Some(limit) => idle(place, limit),
            None => ended(place, end),
        })
    }

    /// Appends the last output to a message.
    pub(crate) fn under(&self, mut message: String) -> String {
        for (capture, name) in [(&self.stdout, "standard output"), (&self.stderr, "standard error")] {
            if !capture.is_empty() {
                message.push_str(&format!("\n--- {name} outside tests ---\n{}", capture.text().trim_end()));
            }
        }
        message
    }
}

fn idle(place: Place<'_>, limit: Duration) -> String {
    let limit = seconds(limit);
    match place {
        Place::BeforeFirst => format!("the process began no test within {limit} and was ended"),
        Place::After(test) => {
            format!("the process began no further test within {limit} after {test} and was ended")
        }
        Place::AfterLast => {
            format!("the process did not leave within {limit} after its last test and was ended")
        }
    }
}

fn ended(place: Place<'_>, end: &RawEnd) -> String {
    let death = death_of(end);
    let how = match (&death.signal, death.code) {
        (Some(signal), _) => format!("the process died of {signal}"),
        (None, Some(code)) => format!("the process left with exit code {code}"),
        (None, None) => "the process was lost".to_owned(),
    };
    match place {
        Place::BeforeFirst => format!("{how} before its first test"),
        Place::After(test) => format!("{how} after {test}, with tests still waiting"),
        Place::AfterLast if death.code.is_some() => {
            format!("{how} after its last test, which the results do not explain")
        }
        Place::AfterLast => format!("{how} after its last test"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(place: Place<'_>, code: Option<i32>, signal: Option<i32>, waited: Option<u64>) -> String {
        let end = RawEnd { code, signal, ..RawEnd::default() };
        Outside::default().message(place, &end, waited.map(Duration::from_secs))
    }

    #[test]
    fn each_end_outside_tests_has_its_own_words() {
        for (seen, expected) in [
            (
                message(Place::BeforeFirst, Some(3), None, None),
                "the process left with exit code 3 before its first test",
            ),
            (
                message(Place::After("A.b"), None, Some(11), None),
                "the process died of SIGSEGV after A.b, with tests still waiting",
            ),
            (
                message(Place::AfterLast, Some(1), None, None),
                "the process left with exit code 1 after its last test, which the results do not explain",
            ),
            (
                message(Place::AfterLast, None, Some(6), None),
                "the process died of SIGABRT after its last test",
            ),
            (message(Place::AfterLast, None, None, None), "the process was lost after its last test"),
            (
                message(Place::BeforeFirst, None, Some(15), Some(60)),
                "the process began no test within 60 s and was ended",
            ),
            (
                message(Place::After("A.b"), None, Some(15), Some(60)),
                "the process began no further test within 60 s after A.b and was ended",
            ),
            (
                message(Place::AfterLast, None, Some(15), Some(60)),
                "the process did not leave within 60 s after its last test and was ended",
            ),
        ] {
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn the_end_of_the_output_is_told_and_capped() {
        let mut outside = Outside::default();
        outside.stdout(&[b'x'; 5000]);
        outside.stderr(b"boom\n");
        let message = outside.message(Place::BeforeFirst, &RawEnd::default(), None);
        assert!(
            message.contains("--- standard output outside tests ---\n[... 904 bytes cut ...]\nxxx"),
            "{message}"
        );
        assert!(message.ends_with("--- standard error outside tests ---\nboom"), "{message}");
        assert!(message.len() < 4500);
    }
}
