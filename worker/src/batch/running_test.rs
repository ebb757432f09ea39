//! A running test: since when it runs, and what it has written.

use std::time::Duration;

use heeler_adapters::OutputStream;

use super::{
    RawOutputs, RunningBatch, live_output::LiveOutput, run_evidence::sanitizer_summary,
    test_parts::TestParts, verdict::TestOutputs,
};
use crate::{process::process_clock::ClockReading, results::output_capture::OutputCapture};

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

#[derive(Debug)]
pub(super) struct RunningTest {
    pub(super) place: usize,
    pub(super) started_at: ClockReading,
    /// Set when the test ends.
    pub(super) duration: Duration,
    pub(super) stdout: OutputCapture,
    pub(super) stderr: OutputCapture,
    pub(super) live: LiveOutput,
    pub(super) is_timed_out: bool,
    /// When the test or its process last produced output, moved forward by the time in which the system did
    /// not schedule it.
    pub(super) last_activity: Duration,
    pub(super) is_idle: bool,
    /// Limit that its framework has set while it ran, in place of the settings'.
    pub(super) own_time_limit: Option<Duration>,
    /// Its framework reported its end after its time limit had passed.
    pub(super) is_late: bool,
    /// Since when a tear-down behind it may stand, in running time.
    pub(super) tear_down_since: Option<Duration>,
    /// Since when it waits for others, in running time.
    pub(super) paused_since: Option<Duration>,
    /// The number of times it was reported as slow.
    pub(super) slow_warnings: u32,
    pub(super) parts: TestParts,
}

impl RunningTest {
    pub(super) fn with_limit(limit_bytes: u64) -> Self {
        Self {
            place: 0,
            started_at: ClockReading::default(),
            duration: Duration::ZERO,
            stdout: OutputCapture::with_limit(limit_bytes),
            stderr: OutputCapture::with_limit(limit_bytes),
            live: LiveOutput::default(),
            is_timed_out: false,
            last_activity: Duration::ZERO,
            is_idle: false,
            own_time_limit: None,
            is_late: false,
            tear_down_since: None,
            paused_since: None,
            slow_warnings: 0,
            parts: TestParts::default(),
        }
    }

    pub(super) fn push_outputs(&mut self, outputs: RawOutputs<'_>, is_shared: bool) {
        for (capture, bytes) in [(&mut self.stdout, outputs.stdout), (&mut self.stderr, outputs.stderr)] {
            if is_shared && !bytes.is_empty() {
                capture.push(SHARED_OUTPUT_NOTE);
            }
            capture.push(bytes);
            self.live.push(bytes);
        }
    }

    /// Adds what the test wrote to one output.
    pub(super) fn push_output(&mut self, stream: OutputStream, bytes: &[u8]) {
        let capture = match stream {
            OutputStream::Output => &mut self.stdout,
            OutputStream::Error => &mut self.stderr,
        };
        capture.push(bytes);
        self.live.push(bytes);
    }

    /// Adds the output that the framework captured, unless it has let it through as well.
    pub(super) fn push_captured(&mut self, captured: &str) {
        if self.stdout.is_empty() || !self.stdout.text().contains(captured.trim()) {
            self.stdout.push(captured.as_bytes());
        }
    }

    /// Returns the output that may contain the framework's details of a failure: standard error, or the
    /// common output if standard output and standard error are one stream.
    pub(super) fn text_of_details(&self) -> String {
        if self.stderr.is_empty() { self.stdout.text() } else { self.stderr.text() }
    }

    pub(super) fn push_stderr(&mut self, bytes: &[u8]) {
        self.stderr.push(bytes);
    }

    /// Returns whether it waits for others.
    pub(super) fn is_paused(&self) -> bool {
        self.paused_since.is_some()
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

    pub(super) fn reset(&mut self) {
        self.stdout.clear();
        self.stderr.clear();
        self.is_timed_out = false;
        self.is_idle = false;
        self.own_time_limit = None;
        self.is_late = false;
        self.tear_down_since = None;
        self.paused_since = None;
        self.slow_warnings = 0;
        self.parts.clear();
    }
}

impl RunningBatch {
    /// Returns the time limit of a test: that of its framework while it runs, its own, otherwise the lease's.
    pub(super) fn time_limit(&self, place: usize) -> Option<Duration> {
        let running = self.running_tests.iter().find(|flight| flight.place == place);
        if let Some(limit) = running.and_then(|flight| flight.own_time_limit) {
            return Some(limit);
        }
        self.order.tests()[place].timeout_ms.or(self.limits.timeout_ms).map(Duration::from_millis)
    }

    pub(super) fn idle_timeout(&self, place: usize) -> Option<Duration> {
        self.order.tests()[place].idle_timeout_ms.map(Duration::from_millis)
    }

    /// Gives a running test this limit, from now, in place of its other one.
    pub(super) fn limit_from_now(&mut self, place: usize, limit: Duration) {
        if let Some(flight) = self.running_tests.iter_mut().find(|one| one.place == place) {
            let since = self.now.running.saturating_sub(flight.started_at.running);
            flight.own_time_limit = Some(since.saturating_add(limit));
        }
    }
}
