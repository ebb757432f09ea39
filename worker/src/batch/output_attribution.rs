//! Attributes output to tests: to the running test, to several tests that may have written it, or to none.

use std::time::Duration;

use heeler_adapters::{FrameworkVerdict, OutputStream, TestPart, TranscriptEvent};

use super::{
    batch_input::RawOutputs,
    framework_queries::FrameworkQueries,
    live_output::LiveOutput,
    stderr_attribution::{SHARED_OUTPUT_NOTE, StderrAttribution, attribution_of},
    test_order::TestOrder,
    test_parts::TestParts,
    unattributed_output::UnattributedOutput,
    verdict::TestOutputs,
};
use crate::results::output_capture::{OutputCapture, truncate_text};

#[derive(Debug)]
struct RunningOutput {
    place: usize,
    stdout: OutputCapture,
    stderr: OutputCapture,
    live: LiveOutput,
    parts: TestParts,
}

impl RunningOutput {
    fn with_limit(limit_bytes: u64) -> Self {
        Self {
            place: 0,
            stdout: OutputCapture::with_limit(limit_bytes),
            stderr: OutputCapture::with_limit(limit_bytes),
            live: LiveOutput::default(),
            parts: TestParts::default(),
        }
    }

    /// Drops the preceding test's data and reuses its memory.
    fn reset(&mut self, place: usize, is_live: bool) {
        self.place = place;
        self.stdout.clear();
        self.stderr.clear();
        self.live.reset(is_live);
        self.parts.clear();
    }

    fn push_raw(&mut self, outputs: RawOutputs<'_>, is_shared: bool) {
        for (capture, bytes) in [(&mut self.stdout, outputs.stdout), (&mut self.stderr, outputs.stderr)] {
            if is_shared && !bytes.is_empty() {
                capture.push(SHARED_OUTPUT_NOTE);
            }
            capture.push(bytes);
            self.live.push(bytes);
        }
    }

    /// Adds output that the test wrote to one stream.
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let capture = match stream {
            OutputStream::Output => &mut self.stdout,
            OutputStream::Error => &mut self.stderr,
        };
        capture.push(bytes);
        self.live.push(bytes);
    }

    fn outputs(&self) -> TestOutputs {
        TestOutputs {
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            evidence: None,
            attached: Vec::new(),
            parts: self.parts.clone(),
        }
    }
}

#[derive(Debug)]
pub(super) struct OutputAttribution {
    /// Outputs of the running tests, in begin order.
    running: Vec<RunningOutput>,
    /// Buffers of an ended test, recycled for the next.
    recycled: Option<RunningOutput>,
    unattributed: UnattributedOutput,
    /// Tests that receive the raw outputs of this chunk, by place.
    receivers: Vec<usize>,
    /// Several tests may have written this chunk's raw outputs.
    is_shared: bool,
    /// The client receives test output while tests run.
    is_live: bool,
    limit_bytes: u64,
}

impl OutputAttribution {
    pub(super) fn new(limit_bytes: u64, is_live: bool) -> Self {
        Self {
            running: Vec::new(),
            recycled: None,
            unattributed: UnattributedOutput::default(),
            receivers: Vec::new(),
            is_shared: false,
            is_live,
            limit_bytes,
        }
    }

    /// Attributes the raw outputs that came with these events. Running tests receive them now, other tests
    /// when they begin.
    pub(super) fn on_raw_outputs(
        &mut self,
        outputs: RawOutputs<'_>,
        events: &[TranscriptEvent],
        order: &TestOrder,
        framework: &dyn FrameworkQueries,
    ) {
        self.receivers.clear();
        if outputs.is_empty() {
            return;
        }
        let StderrAttribution { receivers, is_shared } =
            attribution_of(order, framework, events, outputs.stderr);
        if receivers.is_empty() {
            self.unattributed.push_stdout(outputs.stdout);
            self.unattributed.push_stderr(outputs.stderr);
        }
        (self.receivers, self.is_shared) = (receivers, is_shared);
        for running in &mut self.running {
            if self.receivers.binary_search(&running.place).is_ok() {
                running.push_raw(outputs, is_shared);
            }
        }
    }

    /// Returns the test that wrote this chunk's raw outputs, if only one test can have written them.
    pub(super) fn sole_writer(&self) -> Option<usize> {
        if let ([only], false) = (&self.receivers[..], self.is_shared) { Some(*only) } else { None }
    }

    /// Starts collecting output of a test that begins. `outputs`: the raw outputs of this chunk.
    pub(super) fn begin(&mut self, place: usize, outputs: RawOutputs<'_>) {
        let mut output = self.recycled.take().unwrap_or_else(|| RunningOutput::with_limit(self.limit_bytes));
        output.reset(place, self.is_live);
        if self.receivers.binary_search(&place).is_ok() {
            output.push_raw(outputs, self.is_shared);
        }
        self.running.push(output);
    }

    /// Resumes a test that seemed to have ended with these outputs.
    pub(super) fn reopen(&mut self, place: usize, outputs: TestOutputs) {
        self.begin(place, RawOutputs::default());
        if let Some(running) = self.running.last_mut() {
            running.stdout.push(outputs.stdout.as_bytes());
            running.stderr.push(outputs.stderr.as_bytes());
            running.parts = outputs.parts;
        }
    }

    fn find(&mut self, place: usize) -> Option<&mut RunningOutput> {
        self.running.iter_mut().find(|running| running.place == place)
    }

    /// Handles standard output. If several tests run, any of them may have written it.
    pub(super) fn on_stdout(&mut self, bytes: &[u8], order: &TestOrder) {
        let is_shared = order.active().nth(1).is_some();
        let mut active = self.running.iter_mut().filter(|running| !order.is_paused(running.place)).peekable();
        if active.peek().is_none() {
            return self.unattributed.push_stdout(bytes);
        }
        active.for_each(|running| running.push_raw(RawOutputs { stdout: bytes, stderr: &[] }, is_shared));
    }

    /// Handles standard error that appeared between the events.
    pub(super) fn on_stderr(&mut self, bytes: &[u8]) {
        match self.running.last_mut() {
            Some(running) => running.push(OutputStream::Error, bytes),
            None => self.unattributed.push_stderr(bytes),
        }
    }

    /// Handles output of one of the running tests.
    pub(super) fn on_test_output(&mut self, place: usize, stream: OutputStream, bytes: &[u8]) {
        match (self.find(place), stream) {
            (Some(running), stream) => running.push(stream, bytes),
            (None, OutputStream::Output) => self.unattributed.push_stdout(bytes),
            (None, OutputStream::Error) => self.unattributed.push_stderr(bytes),
        }
    }

    pub(super) fn record_part(&mut self, place: usize, part: TestPart) {
        if let Some(running) = self.find(place) {
            running.parts.record(part);
        }
    }

    /// Moves output captured by the framework to the test's other output, unless standard output already
    /// contains it.
    pub(super) fn take_captured(&mut self, place: usize, verdict: &mut FrameworkVerdict) {
        let (stdout, stderr) = (verdict.stdout.take(), verdict.stderr.take());
        let Some(running) = self.find(place) else { return };
        let is_new =
            |text: &String| running.stdout.is_empty() || !running.stdout.text().contains(text.trim());
        if let Some(captured) = stdout.filter(is_new) {
            running.stdout.push(captured.as_bytes());
        }
        if let Some(captured) = stderr {
            running.stderr.push(captured.as_bytes());
        }
    }

    /// Returns the output that may contain the framework's failure details: standard error, or standard
    /// output if both go to one stream.
    pub(super) fn text_of_details(&self, place: usize) -> String {
        let Some(running) = self.running.iter().find(|running| running.place == place) else {
            return String::new();
        };
        if running.stderr.is_empty() { running.stdout.text() } else { running.stderr.text() }
    }

    /// Returns the output of a running test so far.
    pub(super) fn outputs_of(&self, place: usize) -> Option<TestOutputs> {
        self.running.iter().find(|running| running.place == place).map(RunningOutput::outputs)
    }

    /// Takes the output of a test that no longer runs.
    pub(super) fn take(&mut self, place: usize) -> TestOutputs {
        let Some(index) = self.running.iter().position(|running| running.place == place) else {
            return TestOutputs::default();
        };
        let ended = self.running.remove(index);
        let outputs = ended.outputs();
        self.recycled = Some(ended);
        outputs
    }

    /// Takes the output of all running tests, in begin order.
    pub(super) fn take_all(&mut self) -> Vec<TestOutputs> {
        self.running.drain(..).map(|running| running.outputs()).collect()
    }

    /// Drops the outputs of tests that no longer run.
    pub(super) fn retain(&mut self, is_running: impl Fn(usize) -> bool) {
        self.running.retain(|running| is_running(running.place));
    }

    /// Returns standard error written outside any test, truncated to the per-test limit.
    pub(super) fn unattributed_stderr(&self) -> String {
        truncate_text(self.unattributed.stderr_text(), self.limit_bytes)
    }

    pub(super) fn unattributed(&self) -> &UnattributedOutput {
        &self.unattributed
    }

    /// Returns the running time when output of a running test is due to be sent.
    pub(super) fn live_due_at(&self) -> Option<Duration> {
        self.running.iter().filter_map(|running| running.live.due_at()).min()
    }

    /// Sends the output of running tests that is due.
    pub(super) fn send_live(&mut self, now: Duration, mut send: impl FnMut(usize, &str)) {
        for running in &mut self.running {
            if let Some(text) = running.live.take_due(now) {
                send(running.place, &text);
            }
        }
    }
}
