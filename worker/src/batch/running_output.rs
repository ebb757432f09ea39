//! What a running test has written.

use std::time::Duration;

use heeler_adapters::{OutputStream, TestPart};

use super::{
    batch_input::RawOutputs, live_output::LiveOutput, run_evidence::sanitizer_summary, test_parts::TestParts,
    verdict::TestOutputs,
};
use crate::results::output_capture::OutputCapture;

pub(super) const SHARED_OUTPUT_NOTE: &[u8] =
    b"[heeler: several tests ran while this was written; any of them may have written it]\n";

/// Returns the end of a test's standard error that several tests may have written, if a sanitizer's report
/// is in it.
pub(super) fn shared_report(stderr: &str) -> Option<String> {
    let note = std::str::from_utf8(SHARED_OUTPUT_NOTE).unwrap_or_default();
    let (_, report) = stderr.rsplit_once(note)?;
    sanitizer_summary(report).is_some().then(|| report.to_owned())
}

/// Removes the note at the end of a test's standard error, whose shared part another test has received.
pub(super) fn remove_shared_note(stderr: &mut String) {
    if stderr.as_bytes().ends_with(SHARED_OUTPUT_NOTE) {
        stderr.truncate(stderr.len() - SHARED_OUTPUT_NOTE.len());
    }
}

/// Output of a running test.
#[derive(Debug)]
pub(super) struct RunningOutput {
    place: usize,
    stdout: OutputCapture,
    stderr: OutputCapture,
    live: LiveOutput,
    parts: TestParts,
}

impl RunningOutput {
    pub(super) fn with_limit(limit_bytes: u64) -> Self {
        Self {
            place: 0,
            stdout: OutputCapture::with_limit(limit_bytes),
            stderr: OutputCapture::with_limit(limit_bytes),
            live: LiveOutput::default(),
            parts: TestParts::default(),
        }
    }

    /// Forgets the preceding test, and keeps its memory for this one.
    pub(super) fn reset(&mut self, place: usize, is_live: bool) {
        self.place = place;
        self.stdout.clear();
        self.stderr.clear();
        self.live.reset(is_live);
        self.parts.clear();
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    pub(super) fn push_raw(&mut self, outputs: RawOutputs<'_>, is_shared: bool) {
        for (capture, bytes) in [(&mut self.stdout, outputs.stdout), (&mut self.stderr, outputs.stderr)] {
            if is_shared && !bytes.is_empty() {
                capture.push(SHARED_OUTPUT_NOTE);
            }
            capture.push(bytes);
            self.live.push(bytes);
        }
    }

    /// Adds what the test wrote to one output.
    pub(super) fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let capture = match stream {
            OutputStream::Output => &mut self.stdout,
            OutputStream::Error => &mut self.stderr,
        };
        capture.push(bytes);
        self.live.push(bytes);
    }

    /// Adds the output that the framework captured, unless it has let standard output through as well.
    pub(super) fn push_captured(&mut self, stdout: Option<&str>, stderr: Option<&str>) {
        if let Some(captured) = stdout
            && (self.stdout.is_empty() || !self.stdout.text().contains(captured.trim()))
        {
            self.stdout.push(captured.as_bytes());
        }
        if let Some(captured) = stderr {
            self.stderr.push(captured.as_bytes());
        }
    }

    pub(super) fn record_part(&mut self, part: TestPart) {
        self.parts.record(part);
    }

    /// Puts back the outputs of a test that seemed to have ended.
    pub(super) fn restore(&mut self, outputs: TestOutputs) {
        self.stdout.push(outputs.stdout.as_bytes());
        self.stderr.push(outputs.stderr.as_bytes());
        self.parts = outputs.parts;
    }

    /// Returns the output that may contain the framework's details of a failure: standard error, or the
    /// common output if standard output and standard error are one stream.
    pub(super) fn text_of_details(&self) -> String {
        if self.stderr.is_empty() { self.stdout.text() } else { self.stderr.text() }
    }

    /// Returns when, in running time, output is due to be sent.
    pub(super) fn due_at(&self) -> Option<Duration> {
        self.live.due_at()
    }

    /// Returns the output that is due to be sent, as text.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<String> {
        self.live.take_due(now)
    }

    pub(super) fn outputs(&self) -> TestOutputs {
        TestOutputs {
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            evidence: None,
            attached: Vec::new(),
            parts: self.parts.clone(),
        }
    }
}
