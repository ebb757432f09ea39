//! Live test output (`--no-capture`): a start line for each test, then its output. If several workers share a
//! terminal, whole lines are shown, prefixed with the test's name. Otherwise bytes are shown as they arrive.

use heeler_adapters::{OutputStream, TranscriptEvent};
use heeler_protocol::control::{OutputDisplay, OutputForm};

use super::{batch_input::RawOutputs, framework_queries::FrameworkQueries, test_order::TestOrder};
use crate::results::shown_output::{ShownOutput, StandardStream};

/// Longer lines are shown in pieces of about this size, so that output without line breaks is visible.
const LINE_BYTES: usize = 16 << 10;

/// The test that wrote some output, by place and name; `None` if unknown.
type Writer<'a> = Option<(usize, &'a str)>;

/// Output to show, and unfinished lines.
#[derive(Debug)]
pub(super) struct ShownLines {
    /// `None`: show nothing.
    form: Option<OutputForm>,
    /// Prefix for output that belongs to no test.
    suite: String,
    /// Place of the test that wrote the unfinished lines below, and the prefix of its lines.
    writer: Option<usize>,
    prefix: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The last byte shown ended a line.
    is_line_start: bool,
    out: ShownOutput,
}

/// Bytes written to one standard stream.
#[derive(Clone, Copy)]
struct ShownPiece<'a> {
    stream: StandardStream,
    bytes: &'a [u8],
}

impl<'a> ShownPiece<'a> {
    fn of_stdout(bytes: &'a [u8]) -> Self {
        Self { stream: StandardStream::Output, bytes }
    }
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
            out: ShownOutput::default(),
        }
    }

    /// Takes the output to show since the last call.
    pub(super) fn take(&mut self) -> ShownOutput {
        std::mem::take(&mut self.out)
    }

    /// Shows the raw outputs of a read, written by this test or by an unknown writer.
    pub(super) fn show_raw(
        &mut self,
        writer: Option<usize>,
        outputs: RawOutputs<'_>,
        order: &TestOrder,
        framework: &dyn FrameworkQueries,
    ) {
        self.show(writer, ShownPiece::of_stdout(outputs.stdout), order, framework);
        self.show(
            writer,
            ShownPiece { stream: StandardStream::Error, bytes: outputs.stderr },
            order,
            framework,
        );
    }

    /// Shows the output of an event, before the event is handled. `is_ending`: the process is being ended, so
    /// no test begins.
    pub(super) fn show_event(
        &mut self,
        event: &TranscriptEvent,
        order: &TestOrder,
        framework: &dyn FrameworkQueries,
        is_ending: bool,
    ) {
        if self.form.is_none() {
            return;
        }
        let last = || order.running().last().copied();
        match event {
            TranscriptEvent::Begun { place } => {
                if order.is_waiting(*place) && !is_ending {
                    self.begin(&order.listed(*place).name);
                }
            }
            TranscriptEvent::Output(bytes) => {
                self.show(last(), ShownPiece::of_stdout(bytes), order, framework);
            }
            TranscriptEvent::ErrorOutput(bytes) => {
                self.show(last(), ShownPiece { stream: StandardStream::Error, bytes }, order, framework);
            }
            TranscriptEvent::TestOutput { place, stream, bytes } => {
                let stream = match stream {
                    OutputStream::Output => StandardStream::Output,
                    OutputStream::Error => StandardStream::Error,
                };
                self.show(Some(*place), ShownPiece { stream, bytes }, order, framework);
            }
            TranscriptEvent::Ended { place, verdict } => {
                let captured = verdict.stdout.as_deref().unwrap_or_default().as_bytes();
                self.show(Some(*place), ShownPiece::of_stdout(captured), order, framework);
            }
            TranscriptEvent::Part { .. }
            | TranscriptEvent::Paused { .. }
            | TranscriptEvent::Resumed { .. }
            | TranscriptEvent::TimeLimit { .. }
            | TranscriptEvent::File { .. }
            | TranscriptEvent::Confirmed => {}
        }
    }

    fn show(
        &mut self,
        writer: Option<usize>,
        output: ShownPiece<'_>,
        order: &TestOrder,
        framework: &dyn FrameworkQueries,
    ) {
        if self.form.is_none() {
            return;
        }
        let tests = order.tests();
        let writer = writer.and_then(|place| Some((place, tests.get(place)?.listed.name.as_str())));
        self.push(writer, output, |line| framework.is_own_line(line));
    }

    /// Shows a start line for a test.
    fn begin(&mut self, name: &str) {
        self.end_lines();
        self.out
            .push(StandardStream::Error, format!("{:>12}  {}\n", "START", self.shown_name(name)).as_bytes());
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

    /// Shows output. Output that belongs to no test is shown by lines, without the framework's own lines.
    fn push(
        &mut self,
        writer: Writer<'_>,
        ShownPiece { stream, bytes }: ShownPiece<'_>,
        is_own_line: impl Fn(&[u8]) -> bool,
    ) {
        let Some(last) = bytes.last() else { return };
        let place = writer.map(|(place, _)| place);
        if self.writer != place {
            self.end_lines();
            self.writer = place;
            self.prefix =
                prefix(&writer.map_or_else(|| self.suite.clone(), |(_, name)| self.shown_name(name)));
        }
        let has_own_lines = writer.is_none() && stream == StandardStream::Output;
        if !self.has_prefix() && !has_own_lines {
            self.out.push(stream, bytes);
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
            // Frameworks separate their own lines with empty lines.
            if !has_own_lines || !line.is_empty() && !is_own_line(line) {
                show_line(has_prefix.then_some(&self.prefix), stream, line, &mut self.out);
            }
            open.drain(..end);
        }
    }

    /// Shows unfinished lines whose ends will not arrive.
    pub(super) fn end_lines(&mut self) {
        if !self.is_line_start {
            self.out.push(StandardStream::Output, b"\n");
            self.is_line_start = true;
        }
        let has_prefix = self.has_prefix();
        let streams = [(StandardStream::Output, &mut self.stdout), (StandardStream::Error, &mut self.stderr)];
        for (stream, open) in streams {
            if !open.is_empty() {
                show_line(has_prefix.then_some(&self.prefix), stream, open, &mut self.out);
                open.clear();
            }
        }
    }
}

fn prefix(name: &str) -> String {
    format!("{name} | ")
}

fn show_line(prefix: Option<&String>, stream: StandardStream, line: &[u8], out: &mut ShownOutput) {
    if let Some(prefix) = prefix {
        out.push(stream, prefix.as_bytes());
    }
    out.push(stream, line);
    out.push(stream, b"\n");
}

/// Returns the length of the next piece to show: the first line including its line break, or a part of a long
/// line.
fn end_of_line(open: &[u8]) -> Option<usize> {
    let end = open.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
    end.or_else(|| (open.len() >= LINE_BYTES).then_some(open.len()))
}
