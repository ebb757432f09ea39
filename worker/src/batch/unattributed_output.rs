//! Messages about process exits and output outside any test. Pure.

use std::time::Duration;

use heeler_protocol::control::ProcessExit;

use super::{exit_reason::exit_reason_of, run_evidence::sanitizer_finding, verdict::format_seconds};
use crate::results::output_capture::OutputCapture;

/// Bytes reported from the end of standard output.
const REPORTED_TAIL_BYTES: usize = 4 << 10;
/// Bytes reported from the end of standard error. Larger, because sanitizers print many stack traces at exit.
const SANITIZER_REPORT_BYTES: usize = 16 << 10;

const UNEXPLAINED: &str = ", and no test result explains this exit code";
const EXPLAINED_OUTSIDE: &str = ", because of a failure outside tests";

/// The point between tests at which a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitPosition<'a> {
    /// Before the first test started.
    BeforeFirst,
    /// After this test, the last to end, with tests left to run.
    AfterTest(&'a str),
    /// All tests have ended.
    AfterLast,
    /// All tests have ended, and the framework has reported a failure outside of them.
    AfterFailureOutside,
}

#[derive(Debug)]
pub(crate) struct UnattributedOutput {
    stdout: OutputCapture,
    stderr: OutputCapture,
}

impl Default for UnattributedOutput {
    fn default() -> Self {
        Self {
            stdout: OutputCapture::tail_only(REPORTED_TAIL_BYTES),
            stderr: OutputCapture::tail_only(SANITIZER_REPORT_BYTES),
        }
    }
}

impl UnattributedOutput {
    pub(crate) fn push_stdout(&mut self, bytes: &[u8]) {
        self.stdout.push(bytes);
    }

    pub(crate) fn push_stderr(&mut self, bytes: &[u8]) {
        self.stderr.push(bytes);
    }

    pub(super) fn stderr_text(&self) -> String {
        self.stderr.text()
    }

    /// Returns a message that describes the exit and includes the last output. `waited`: how long the process
    /// was idle before it was ended for being idle.
    pub(crate) fn exit_message(
        &self,
        place: ExitPosition<'_>,
        end: &ProcessExit,
        waited: Option<Duration>,
    ) -> String {
        let text = match waited {
            Some(limit) => stalled_text(place, limit),
            None => exited_text(place, end),
        };
        // A sanitizer's finding, such as a leak, is more specific than the exit code that the sanitizer
        // chose.
        let finding = sanitizer_finding(&self.stderr_text());
        let is_after_last = matches!(place, ExitPosition::AfterLast | ExitPosition::AfterFailureOutside);
        self.with_output(match finding.filter(|_| is_after_last && end.code.is_some()) {
            Some(finding) => {
                let text = text.replace(UNEXPLAINED, "");
                format!("{finding}\n{text}; use --isolate to find the test that caused it")
            }
            None => text,
        })
    }

    /// Appends the last output to a message.
    pub(crate) fn with_output(&self, mut message: String) -> String {
        for (capture, name) in [(&self.stdout, "standard output"), (&self.stderr, "standard error")] {
            if !capture.is_empty() {
                message.push_str(&format!("\n--- {name} outside tests ---\n{}", capture.text().trim_end()));
            }
        }
        message
    }
}

fn stalled_text(place: ExitPosition<'_>, limit: Duration) -> String {
    let limit = format_seconds(limit);
    match place {
        ExitPosition::BeforeFirst => {
            format!("the process started no test within {limit} (startup-timeout) and was terminated")
        }
        ExitPosition::AfterTest(test) => {
            format!(
                "the process started no further test within {limit} (startup-timeout) after {test} and was terminated"
            )
        }
        ExitPosition::AfterLast | ExitPosition::AfterFailureOutside => {
            format!(
                "the process did not exit within {limit} (startup-timeout) after its last test and was terminated"
            )
        }
    }
}

fn exited_text(place: ExitPosition<'_>, end: &ProcessExit) -> String {
    let death = exit_reason_of(end);
    let how = match (&death.signal, death.code) {
        (Some(signal), _) => format!("the process was killed by {signal}"),
        (None, Some(code)) => format!("the process exited with code {code}"),
        (None, None) => "the process was lost".to_owned(),
    };
    match place {
        ExitPosition::BeforeFirst => format!("{how} before its first test"),
        ExitPosition::AfterTest(test) => format!("{how} after {test}, with tests left to run"),
        ExitPosition::AfterLast if death.code.is_some() => {
            format!("{how} after its last test{UNEXPLAINED}")
        }
        ExitPosition::AfterFailureOutside if death.code.is_some() => {
            format!("{how} after its last test{EXPLAINED_OUTSIDE}")
        }
        ExitPosition::AfterLast | ExitPosition::AfterFailureOutside => format!("{how} after its last test"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(
        place: ExitPosition<'_>,
        code: Option<i32>,
        signal: Option<i32>,
        waited: Option<u64>,
    ) -> String {
        let end = ProcessExit { code, signal, ..ProcessExit::default() };
        UnattributedOutput::default().exit_message(place, &end, waited.map(Duration::from_secs))
    }

    #[test]
    fn exit_outside_tests_names_position_and_cause() {
        for (seen, expected) in [
            (
                message(ExitPosition::BeforeFirst, Some(3), None, None),
                "the process exited with code 3 before its first test",
            ),
            (
                message(ExitPosition::AfterTest("A.b"), None, Some(11), None),
                "the process was killed by SIGSEGV after A.b, with tests left to run",
            ),
            (
                message(ExitPosition::AfterLast, Some(1), None, None),
                "the process exited with code 1 after its last test, and no test result explains this exit code",
            ),
            (
                message(ExitPosition::AfterFailureOutside, Some(1), None, None),
                "the process exited with code 1 after its last test, because of a failure outside tests",
            ),
            (
                message(ExitPosition::AfterLast, None, Some(6), None),
                "the process was killed by SIGABRT after its last test",
            ),
            (message(ExitPosition::AfterLast, None, None, None), "the process was lost after its last test"),
            (
                message(ExitPosition::BeforeFirst, None, Some(15), Some(60)),
                "the process started no test within 60 s (startup-timeout) and was terminated",
            ),
            (
                message(ExitPosition::AfterTest("A.b"), None, Some(15), Some(60)),
                "the process started no further test within 60 s (startup-timeout) after A.b and was terminated",
            ),
            (
                message(ExitPosition::AfterLast, None, Some(15), Some(60)),
                "the process did not exit within 60 s (startup-timeout) after its last test and was terminated",
            ),
        ] {
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn exit_message_includes_capped_output() {
        let mut outside = UnattributedOutput::default();
        outside.push_stdout(&[b'x'; 5000]);
        outside.push_stderr(b"boom\n");
        let message = outside.exit_message(ExitPosition::BeforeFirst, &ProcessExit::default(), None);
        assert!(
            message.contains("--- standard output outside tests ---\n[... 904 bytes cut ...]\nxxx"),
            "{message}"
        );
        assert!(message.ends_with("--- standard error outside tests ---\nboom"), "{message}");
        assert!(message.len() < 4500);
    }
}
