//! Markers that the package `testing` writes: lines about tests and their parts.

use std::time::Duration;

use crate::{FrameworkResult, scan::decode_lossy};

/// First byte of each marker since Go 1.20.
pub(super) const FRAME: u8 = 0x16;
/// Maximum length of a marker. Names of subtests may be long.
pub(super) const MARKER_BYTES: usize = 64 << 10;

/// Prefixes of lines that may be markers.
const BEGINNINGS: [&str; 5] = ["=== ", "--- ", PASSED, FAILED, RACE];
const PASSED: &str = "PASS\n";
const FAILED: &str = "FAIL\n";
const RACE: &str = "testing: race detected outside of test execution\n";

/// Meaning of a marker line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum GoMarker {
    /// A test or a part begins.
    Run(GoTestName),
    /// A test or part waits for its turn to run in parallel.
    Pause(GoTestName),
    /// A test or part continues. Before Go 1.20, this also means that it writes the following output.
    Continue(GoTestName),
    /// The following output belongs to this test or part. Without a name, it belongs to no test.
    Name(Option<GoTestName>),
    /// A test or a part has ended.
    End { name: GoTestName, result: FrameworkResult, duration: Option<Duration> },
    /// The last line.
    Final { has_failed: bool },
    /// A data race was found while no test was running, which is a failure.
    RaceOutside,
}

/// Name of a test or of a part of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GoTestName {
    pub(super) test: String,
    /// Empty for the test itself.
    pub(super) part: String,
}

impl GoTestName {
    pub(super) fn read(text: &str) -> Self {
        let (test, part) = text.split_once('/').unwrap_or((text, ""));
        Self { test: test.to_owned(), part: part.to_owned() }
    }

    pub(super) fn is_part(&self) -> bool {
        !self.part.is_empty()
    }
}

/// Returns whether these bytes, which contain no newline, may be the start of a marker.
pub(super) fn may_become_marker(bytes: &[u8]) -> bool {
    bytes.len() < MARKER_BYTES
        && BEGINNINGS.iter().any(|beginning| {
            let length = beginning.len().min(bytes.len());
            bytes[..length] == beginning.as_bytes()[..length]
        })
}

/// Reads a line with its newline, but without the marker byte.
pub(super) fn read(line: &[u8]) -> Option<GoMarker> {
    let text = decode_lossy(line);
    match text.as_str() {
        PASSED => return Some(GoMarker::Final { has_failed: false }),
        FAILED => return Some(GoMarker::Final { has_failed: true }),
        RACE => return Some(GoMarker::RaceOutside),
        _ => {}
    }
    let line = text.strip_suffix('\n')?;
    if let Some(rest) = line.strip_prefix("--- ") {
        return read_end(rest);
    }
    let rest = line.strip_prefix("=== ")?;
    if let Some(name) = rest.strip_prefix("NAME") {
        let name = name.trim();
        return Some(GoMarker::Name((!name.is_empty()).then(|| GoTestName::read(name))));
    }
    let named = |word: &str| rest.strip_prefix(word).filter(|name| !name.is_empty()).map(GoTestName::read);
    named("RUN   ")
        .map(GoMarker::Run)
        .or_else(|| named("PAUSE ").map(GoMarker::Pause))
        .or_else(|| named("CONT  ").map(GoMarker::Continue))
}

/// Reads `PASS: TestX (0.05s)`.
fn read_end(text: &str) -> Option<GoMarker> {
    let (word, rest) = text.split_once(": ")?;
    let result = match word {
        "PASS" => FrameworkResult::Passed,
        "FAIL" => FrameworkResult::Failed,
        "SKIP" => FrameworkResult::Skipped,
        _ => return None,
    };
    let (name, seconds) = rest.strip_suffix("s)")?.rsplit_once(" (")?;
    let seconds: f64 = seconds.parse().ok()?;
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    let duration = Some(duration).filter(|duration| !duration.is_zero());
    (!name.is_empty()).then(|| GoMarker::End { name: GoTestName::read(name), result, duration })
}

#[cfg(test)]
mod cases {
    use super::*;

    fn name(test: &str, part: &str) -> GoTestName {
        GoTestName { test: test.into(), part: part.into() }
    }

    #[test]
    fn each_marker_is_read() {
        let end = |name, result, ms| {
            let duration = (ms > 0).then(|| Duration::from_millis(ms));
            Some(GoMarker::End { name, result, duration })
        };
        for (line, marker) in [
            ("=== RUN   TestA\n", Some(GoMarker::Run(name("TestA", "")))),
            ("=== RUN   TestA/b/c\n", Some(GoMarker::Run(name("TestA", "b/c")))),
            ("=== PAUSE TestA\n", Some(GoMarker::Pause(name("TestA", "")))),
            ("=== CONT  TestA/x\n", Some(GoMarker::Continue(name("TestA", "x")))),
            ("=== NAME  TestA\n", Some(GoMarker::Name(Some(name("TestA", ""))))),
            ("=== NAME  \n", Some(GoMarker::Name(None))),
            ("=== NAME   \n", Some(GoMarker::Name(None))),
            ("--- PASS: TestA (1.25s)\n", end(name("TestA", ""), FrameworkResult::Passed, 1250)),
            ("--- SKIP: TestA/a_(b) (0.00s)\n", end(name("TestA", "a_(b)"), FrameworkResult::Skipped, 0)),
            ("PASS\n", Some(GoMarker::Final { has_failed: false })),
            ("FAIL\n", Some(GoMarker::Final { has_failed: true })),
            (RACE, Some(GoMarker::RaceOutside)),
        ] {
            assert_eq!(read(line.as_bytes()), marker, "{line}");
            let cut = &line.as_bytes()[..line.len() - 1];
            assert!((0..=cut.len()).all(|end| may_become_marker(&cut[..end])), "{line}");
        }
    }

    #[test]
    fn other_lines_are_no_marker() {
        for line in [
            "=== ATTR  TestA key value\n",
            "=== RUN   \n",
            "--- BENCH: BenchmarkA (1.0s)\n",
            "--- PASS: TestA\n",
            "--- PASS: TestA (-1s)\n",
            "--- PASS: TestA (infs)\n",
            "--- PASS:  (0.00s)\n",
            "PASSED\n",
            "\n",
        ] {
            assert_eq!(read(line.as_bytes()), None, "{line}");
        }
        assert!(!may_become_marker(b"PASSED") && !may_become_marker(b"panic"));
        assert!(!may_become_marker(&[b"=== RUN   ", vec![b'x'; MARKER_BYTES].as_slice()].concat()));
    }
}
