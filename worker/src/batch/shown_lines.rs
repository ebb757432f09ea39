//! Output of tests as it is shown while they run (`--no-capture`): a line for the start of each test, and
//! what the test writes. Where other workers write to the same terminal, whole lines with the test's name in
//! front; otherwise the bytes as they come.

use heeler_adapters::{OutputStream, TranscriptEvent};
use heeler_protocol::control::{OutputDisplay, OutputForm};

use super::{RawOutputs, RunningBatch};
use crate::results::{
    shown_output::{ShownOutput, StandardStream},
    update_batch::UpdateBatch,
};

/// A line that is longer is shown in parts of about this size: a program that never ends a line is seen.
const LINE_BYTES: usize = 16 << 10;

/// Who has written output: a test, by its place and name, or nobody that is known.
type Writer<'a> = Option<(usize, &'a str)>;

/// What is shown of a process, and the beginnings of lines whose ends are still to come.
#[derive(Debug)]
pub(super) struct ShownLines {
    /// `None`: nothing is shown.
    form: Option<OutputForm>,
    /// What stands in front of output that belongs to no test.
    suite: String,
    /// The writer of the beginnings below, by its place, and what stands in front of its lines.
    writer: Option<usize>,
    prefix: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The last byte shown ended a line.
    is_line_start: bool,
}

impl ShownLines {
    pub(super) fn new(display: OutputDisplay, suite: &str) -> Self {
        let form = match display {
            OutputDisplay::Hidden => None,
            OutputDisplay::Shown(form) => Some(form),
        };
        Self {
            form,
            prefix: prefix(suite),
            suite: suite.to_owned(),
            writer: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            is_line_start: true,
        }
    }

    fn is_off(&self) -> bool {
        self.form.is_none()
    }

    /// Shows that a test begins.
    fn begin(&mut self, name: &str, out: &mut ShownOutput) {
        self.end_lines(out);
        out.push(StandardStream::Error, format!("{:>12}  {}\n", "START", self.shown_name(name)).as_bytes());
    }

    fn shown_name(&self, name: &str) -> String {
        match self.form {
            Some(OutputForm { has_suite: true, .. }) => format!("{} {name}", self.suite),
            Some(OutputForm { has_suite: false, .. }) | None => name.to_owned(),
        }
    }

    fn has_prefix(&self) -> bool {
        self.form.is_some_and(|form| form.has_prefix)
    }

    /// Shows output. What belongs to no test is shown by lines, without those of the framework.
    fn push(
        &mut self,
        writer: Writer<'_>,
        (stream, bytes): (StandardStream, &[u8]),
        is_own_line: impl Fn(&[u8]) -> bool,
        out: &mut ShownOutput,
    ) {
        let Some(last) = bytes.last() else { return };
        let place = writer.map(|(place, _)| place);
        if self.writer != place {
            self.end_lines(out);
            self.writer = place;
            self.prefix =
                prefix(&writer.map_or_else(|| self.suite.clone(), |(_, name)| self.shown_name(name)));
        }
        let has_own_lines = writer.is_none() && stream == StandardStream::Output;
        if !self.has_prefix() && !has_own_lines {
            out.push(stream, bytes);
            self.is_line_start = *last == b'\n';
            return;
        }
        let has_prefix = self.has_prefix();
        let open = match stream {
            StandardStream::Output => &mut self.stdout,
            StandardStream::Error => &mut self.stderr,
        };
        open.extend_from_slice(bytes);
        while let Some(end) = end_of_line(open) {
            let line = open[..end].strip_suffix(b"\n").unwrap_or(&open[..end]);
            // Frameworks separate their own lines with empty ones.
            if !has_own_lines || !line.is_empty() && !is_own_line(line) {
                show_line(has_prefix.then_some(&self.prefix), (stream, line), out);
            }
            open.drain(..end);
        }
    }

    /// Shows the beginnings of lines whose ends do not come any more.
    fn end_lines(&mut self, out: &mut ShownOutput) {
        if !self.is_line_start {
            out.push(StandardStream::Output, b"\n");
            self.is_line_start = true;
        }
        let has_prefix = self.has_prefix();
        let streams = [(StandardStream::Output, &mut self.stdout), (StandardStream::Error, &mut self.stderr)];
        for (stream, open) in streams {
            if !open.is_empty() {
                show_line(has_prefix.then_some(&self.prefix), (stream, open), out);
                open.clear();
            }
        }
    }
}

fn prefix(name: &str) -> String {
    format!("{name} | ")
}

fn show_line(prefix: Option<&String>, (stream, line): (StandardStream, &[u8]), out: &mut ShownOutput) {
    if let Some(prefix) = prefix {
        out.push(stream, prefix.as_bytes());
    }
    out.push(stream, line);
    out.push(stream, b"\n");
}

/// Returns the length of the first line with its end, or of the part of a long line that is shown alone.
fn end_of_line(open: &[u8]) -> Option<usize> {
    let end = open.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
    end.or_else(|| (open.len() >= LINE_BYTES).then_some(open.len()))
}

impl RunningBatch {
    /// Returns the only test that can have written these raw outputs, if there is one. Called before the
    /// events of the same read are handled.
    pub(super) fn writer_of(&self, outputs: RawOutputs<'_>) -> Option<usize> {
        if self.shown.is_off() || outputs.is_empty() || self.is_output_shared {
            return None;
        }
        if let [only] = self.receivers[..] { Some(only) } else { None }
    }

    /// Returns whether the raw outputs of a read are shown behind its events: their writer has not begun.
    pub(super) fn begins_in_this_chunk(&self, writer: Option<usize>) -> bool {
        writer.is_some_and(|place| self.order.is_waiting(place))
    }

    pub(super) fn show_outputs(
        &mut self,
        writer: Option<usize>,
        outputs: RawOutputs<'_>,
        updates: &mut UpdateBatch,
    ) {
        self.show(writer, (StandardStream::Output, outputs.stdout), updates);
        self.show(writer, (StandardStream::Error, outputs.stderr), updates);
    }

    /// Shows what an event has to show, before it is handled.
    pub(super) fn show_event(&mut self, event: &TranscriptEvent, updates: &mut UpdateBatch) {
        if self.shown.is_off() {
            return;
        }
        match event {
            TranscriptEvent::Begun { place } => {
                if self.order.is_waiting(*place) && self.terminate_reason.is_none() {
                    self.shown.begin(&self.order.listed(*place).name, &mut updates.shown);
                }
            }
            TranscriptEvent::Output(bytes) => {
                let writer = self.running_tests.last().map(|flight| flight.place);
                self.show(writer, (StandardStream::Output, bytes), updates);
            }
            TranscriptEvent::ErrorOutput(bytes) => {
                let writer = self.running_tests.last().map(|flight| flight.place);
                self.show(writer, (StandardStream::Error, bytes), updates);
            }
            TranscriptEvent::TestOutput { place, stream, bytes } => {
                let stream = match stream {
                    OutputStream::Output => StandardStream::Output,
                    OutputStream::Error => StandardStream::Error,
                };
                self.show(Some(*place), (stream, bytes), updates);
            }
            TranscriptEvent::Ended { place, verdict } => {
                let captured = verdict.stdout.as_deref().unwrap_or_default().as_bytes();
                self.show(Some(*place), (StandardStream::Output, captured), updates);
            }
            TranscriptEvent::Part { .. }
            | TranscriptEvent::Paused { .. }
            | TranscriptEvent::Resumed { .. }
            | TranscriptEvent::TimeLimit { .. }
            | TranscriptEvent::File { .. }
            | TranscriptEvent::Confirmed => {}
        }
    }

    /// Shows the beginnings of lines that are left when the process has ended.
    pub(super) fn end_shown_lines(&mut self, updates: &mut UpdateBatch) {
        self.shown.end_lines(&mut updates.shown);
    }

    fn show(&mut self, writer: Option<usize>, output: (StandardStream, &[u8]), updates: &mut UpdateBatch) {
        if self.shown.is_off() {
            return;
        }
        let writer =
            writer.and_then(|place| Some((place, self.order.tests().get(place)?.listed.name.as_str())));
        let framework = &self.framework;
        self.shown.push(writer, output, |line| framework.is_own_line(line), &mut updates.shown);
    }
}
