//! Tests that fail because they, or programs they start, open a standard stream by a name such as
//! `/dev/stdout`. The system refuses that for a socket, which is used to identify writers, but not for a
//! pipe. Such a test is rerun alone with pipes before it counts as failed. Pure.

use std::sync::Arc;

use heeler_adapters::{FrameworkResult, FrameworkVerdict};
use heeler_core::{ExitReason, LogLine, RecordSink, RunRecord};
use heeler_protocol::control::LeasedTest;

use super::{iterations::in_order, test_ending::TestEnding, verdict::TestOutputs};

/// Error messages printed when a program opens a socket by name.
const REFUSALS: [&str; 2] = ["No such device or address", "ENXIO"];

/// Names of the standard streams. An assertion that a stream is open may print only the name.
const NAMES: [&str; 4] = ["/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/"];

/// Tests to rerun with pipes, from a process whose standard output is a socket.
#[derive(Debug, Default)]
pub(crate) struct StreamNames {
    /// Standard output is a socket that identifies writers, and no copy of the process has run tests.
    is_socket: bool,
    /// Standard output is a socket that also carries the reports, so no test can run with pipes.
    is_report_socket: bool,
    /// Tests to rerun, with their places.
    refused: Vec<(usize, Arc<LeasedTest>)>,
    /// The process has pipes because it is the rerun of a test.
    is_rerun: bool,
}

impl StreamNames {
    /// Sets whether tests that fail because standard output is a socket can be rerun with pipes. Pipes do not
    /// identify their writers, so the socket must stay if a copy of the process runs tests.
    pub(crate) fn set_socket(&mut self, is_socket: bool) {
        self.is_socket = is_socket;
    }

    /// Sets whether standard output is a socket that carries the reports. Their writers must be known, so a
    /// test that fails because of the socket only gets a hint.
    pub(crate) fn set_report_socket(&mut self, is_socket: bool) {
        self.is_report_socket = is_socket;
    }

    /// Records that the process has pipes because its only test could not open a stream.
    pub(crate) fn begin_rerun(&mut self) {
        self.is_rerun = true;
    }

    /// Returns whether the only test of the process has already begun once in this lease.
    pub(super) fn is_rerun(&self) -> bool {
        self.is_rerun
    }

    /// Takes the tests to rerun with pipes, in order. They have no result.
    pub(crate) fn take_refused(&mut self) -> Vec<Arc<LeasedTest>> {
        in_order(std::mem::take(&mut self.refused))
    }

    /// Returns whether a test with this ending must be rerun with pipes.
    pub(super) fn is_refused(
        &mut self,
        place: usize,
        test: &Arc<LeasedTest>,
        seen: &TestEnding,
        outputs: &TestOutputs,
        records: &mut dyn RecordSink,
    ) -> bool {
        if !(self.is_socket || self.is_report_socket) || !may_be_refusal(seen, outputs) {
            return false;
        }
        let line = if self.is_report_socket {
            let hint = "failed, apparently because a standard stream could not be opened by name: standard output is \
                        a socket here, so write to file descriptor 1 instead of /dev/stdout";
            LogLine::warning(Some(test.test), hint.to_owned())
        } else {
            self.refused.push((place, Arc::clone(test)));
            let note = "failed, apparently because a standard stream, a socket here, could not be opened by name; \
                        rerunning alone with pipes";
            LogLine::information(Some(test.test), note.to_owned())
        };
        records.record(RunRecord::Log(line));
        !self.is_report_socket
    }
}

/// Returns whether a test may have failed because a standard stream could not be opened. Death by a signal
/// never counts.
fn may_be_refusal(seen: &TestEnding, outputs: &TestOutputs) -> bool {
    let has = |words: &[&str], text: &str| words.iter().any(|word| text.contains(word));
    let written = |words: &[&str]| has(words, &outputs.stdout) || has(words, &outputs.stderr);
    match seen {
        TestEnding::Verdict(FrameworkVerdict {
            result: FrameworkResult::Failed, failures, reason, ..
        }) => {
            let messages = failures.iter().flat_map(|failure| [&failure.message, &failure.stack]);
            let mut texts = messages.chain([reason]).flatten();
            let words = [&REFUSALS[..], &NAMES[..]].concat();
            written(&words) || texts.any(|text| has(&words, text))
        }
        TestEnding::Died { exit_reason: ExitReason { signal: None, code: Some(_), .. }, .. } => {
            written(&REFUSALS)
        }
        TestEnding::Verdict(_)
        | TestEnding::Died { .. }
        | TestEnding::TimedOut(_)
        | TestEnding::Idle(_)
        | TestEnding::TimedOutBefore { .. }
        | TestEnding::TimedOutInTearDown { .. }
        | TestEnding::Cancelled => false,
    }
}

#[cfg(test)]
mod tests {
    use heeler_core::Failure;

    use super::*;
    use crate::{batch::test_ending::DeathPosition, test_values};

    fn ended(result: FrameworkResult, message: &str) -> TestEnding {
        let mut verdict = test_values::verdict(result);
        verdict.push_failure(Failure { message: Some(message.to_owned()), ..Failure::default() });
        TestEnding::Verdict(verdict)
    }

    fn died(signal: Option<&str>, code: Option<i32>) -> TestEnding {
        let exit_reason = ExitReason { signal: signal.map(str::to_owned), code, ..ExitReason::default() };
        TestEnding::Died { exit_reason, position: DeathPosition::InTest }
    }

    #[test]
    fn only_bad_ends_with_the_words_are_refusals() {
        use FrameworkResult::{Failed, Passed};
        let sh = "sh: 1: cannot create /dev/stderr: No such device or address\n";
        let wrote = |stderr: &str| TestOutputs { stderr: stderr.to_owned(), ..TestOutputs::default() };
        let cases = [
            (ended(Failed, "Value of: std::ofstream(\"/dev/stdout\").is_open()"), "", true),
            (ended(Failed, "Os { code: 6, message: \"No such device or address\" }"), "", true),
            (ended(Failed, "status is 2"), sh, true),
            (ended(Failed, "status is 2"), "sh: 1: no such file\n", false),
            (ended(Passed, "/dev/stdout"), sh, false),
            (died(None, Some(1)), sh, true),
            (died(None, Some(1)), "writes to /dev/stdout\n", false),
            (died(Some("SIGABRT"), None), sh, false),
            (TestEnding::TimedOut(std::time::Duration::ZERO), sh, false),
        ];
        for (seen, stderr, expected) in cases {
            assert_eq!(may_be_refusal(&seen, &wrote(stderr)), expected, "{seen:?}, {stderr:?}");
        }
    }
}
