//! The parser shared by all transcripts on standard output. A state machine follows the expected sequence of
//! tests in output that user code also writes. A grammar defines the form of the markers.
//!
//! ```text
//!            begin marker                end marker of this very test
//!  between ───────────────► in a test ───────────────────────────────► ended, not yet confirmed
//!     ▲                         ▲ │ all else is output                   │  │ all else is output;
//!     │                         └─┘                                      │  │ another end marker replaces it
//!     └──────────────────────────────────────────────────────────────────┘◄─┘
//!       the framework continues: begin marker of another test, end of the suite, final line
//! ```
//!
//! A test can print its own end marker and then die, so an end marker is confirmed only when the framework
//! itself continues after it. Frameworks write the next marker at once, so results are not delayed. The
//! exception is a slow tear-down of a suite, which delays the result of its last test. Output alone does not
//! decide whether a process died in that tear-down.

use super::{
    FixtureFailure, FrameworkResult, FrameworkVerdict, SuitePhase, TestPart, TranscriptEvent,
    TranscriptParser,
    expected_tests::ExpectedTests,
    scan::{ScanResult, ScanStop},
};

/// Parser state that a grammar can see.
#[derive(Debug)]
pub(super) struct ParserState<'a> {
    pub(super) sequence: &'a ExpectedTests,
    pub(super) running: Option<usize>,
    /// The running test wrote an end marker.
    pub(super) has_end: bool,
    pub(super) is_line_start: bool,
    /// The framework printed its final line.
    pub(super) is_complete: bool,
}

impl ParserState<'_> {
    /// Returns whether the framework may continue here: no test is running, or the running test wrote its end
    /// marker.
    pub(super) fn may_continue(&self) -> bool {
        self.running.is_none() || self.has_end
    }
}

/// A marker recognized by a grammar.
pub(super) enum Marker {
    /// A test begins.
    Begin(usize),
    /// The running test reports its end.
    End(FrameworkVerdict),
    /// The framework does not begin these tests, but reports this result for them. Confirms a previous end
    /// marker.
    Unbegun(Vec<usize>, FrameworkVerdict),
    /// The framework continues, which confirms a previous end marker. The text belongs to no test.
    Confirm,
    /// A test that was not selected begins. Confirms a previous end marker.
    Unselected(String),
    /// The framework's final line, with its counts. The text belongs to no test.
    FinalLine(Option<FrameworkCounts>),
    /// Framework text that is dropped.
    Ignore,
    /// A marker whose rest may be long.
    Long(Box<dyn LongMarker>),
    /// A part of the running test begins or ends.
    Part(TestPart),
    /// Text that turned out not to be a marker, or output in another form.
    Text(Vec<u8>),
}

/// Parser of the long rest of a marker. Keeps only a constant number of bytes.
pub(super) trait LongMarker: Send {
    /// Reads bytes. At the end of the marker, returns how many bytes belonged to it, and the marker.
    fn feed(&mut self, bytes: &[u8]) -> Option<(usize, Marker)>;
    /// Returns the text kept so far, when the marker or the output has ended.
    fn take_text(&mut self) -> Vec<u8>;
    #[cfg(test)]
    fn kept_bytes(&self) -> usize;
}

/// Number of tests by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FrameworkCounts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl FrameworkCounts {
    pub(super) fn count(&mut self, result: FrameworkResult) {
        match result {
            FrameworkResult::Passed => self.passed += 1,
            FrameworkResult::Skipped | FrameworkResult::NotRun => self.skipped += 1,
            FrameworkResult::Failed => self.failed += 1,
        }
    }
}

/// Where output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputOrigin {
    /// The running test.
    Test,
    /// The running test or the tear-down of its suite, because the test has written an end marker.
    AfterEnd,
    /// Outside any test.
    Outside,
}

/// The marker format of a framework.
pub(super) trait MarkerGrammar: Send {
    /// Returns the first position where a marker may begin. `situation.is_line_start` describes the first
    /// byte.
    fn find_marker(&self, bytes: &[u8], situation: &ParserState<'_>) -> Option<usize>;
    /// Reads a marker at the start of the bytes; returns its length and the marker.
    fn read_marker(&mut self, at: &[u8], situation: &ParserState<'_>) -> ScanResult<(usize, Marker)>;
    /// Returns whether the first test begins with the process because the framework reports no start.
    fn begins_with_process(&self) -> bool {
        false
    }
    fn on_begin(&mut self, _place: usize) {}
    fn on_output(&mut self, _bytes: &[u8], _side: OutputOrigin, _sequence: &ExpectedTests) {}
    /// Called at an end marker. Any earlier end marker of the same test was output.
    fn on_end_marker(&mut self) {}
    fn on_final_line(&mut self) {}
    /// Called when the process exits by itself.
    fn on_exit(&mut self, _code: i32) {}
    /// Completes the verdict of the test `name`, whose end is confirmed.
    fn complete_verdict(&mut self, _verdict: &mut FrameworkVerdict, _name: &[u8]) {}
    /// Returns the verdict for all tests, if the framework printed its final line and deliberately ran none
    /// of them.
    fn verdict_for_all(&mut self) -> Option<FrameworkVerdict> {
        None
    }
    /// Returns whether the reported results and the framework's counts explain an exit code.
    fn explains_exit(&self, code: i32, reported: &FrameworkCounts, counted: Option<&FrameworkCounts>)
    -> bool;
    /// Returns the failures in set-up or tear-down of suites.
    fn fixture_failures(&self) -> &[FixtureFailure] {
        &[]
    }
    /// Returns the failure outside any test and suite.
    fn outside_failure(&self) -> Option<&str> {
        None
    }
    /// Returns the first test with a doubtful result, because misplaced markers have appeared since its
    /// start.
    fn doubtful_since(&self) -> Option<usize> {
        None
    }
    /// Returns a test that began but is not in this batch.
    fn unselected_test(&self) -> Option<&str> {
        None
    }
    /// Returns the suite whose set-up or tear-down is running. `unconfirmed` is the verdict of a running test
    /// that wrote its end marker.
    fn suite_phase(
        &self,
        _situation: &ParserState<'_>,
        _unconfirmed: Option<&FrameworkVerdict>,
    ) -> Option<SuitePhase> {
        None
    }
}

struct UnconfirmedEnd {
    verdict: FrameworkVerdict,
    text: Vec<u8>,
    is_text_emitted: bool,
}

/// Transcript parser for a grammar.
pub(super) struct StreamParser<G> {
    grammar: G,
    sequence: ExpectedTests,
    running: Option<usize>,
    unconfirmed: Option<UnconfirmedEnd>,
    long_marker: Option<Box<dyn LongMarker>>,
    /// Bytes that may become a marker.
    buffered: Vec<u8>,
    is_line_start: bool,
    is_complete: bool,
    reported: FrameworkCounts,
    counted: Option<FrameworkCounts>,
    /// The first test that began without being selected.
    unselected: Option<String>,
}

const MARKER_TEXT_BYTES: usize = 64 * 1024;

impl<G: MarkerGrammar> StreamParser<G> {
    /// Creates a parser at the beginning of the output.
    pub(super) fn new(grammar: G, sequence: ExpectedTests) -> Self {
        Self {
            grammar,
            sequence,
            running: None,
            unconfirmed: None,
            long_marker: None,
            buffered: Vec::new(),
            is_line_start: true,
            is_complete: false,
            reported: FrameworkCounts::default(),
            counted: None,
            unselected: None,
        }
    }

    /// Returns the number of buffered bytes of output.
    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered.capacity()
            + self.unconfirmed.as_ref().map_or(0, |ending| ending.text.len())
            + self.long_marker.as_ref().map_or(0, |rest| rest.kept_bytes())
    }

    /// Parses as much as possible; returns the number of bytes consumed.
    fn read(&mut self, bytes: &[u8], events: &mut Vec<TranscriptEvent>) -> usize {
        let (mut done, mut cursor) = (0, 0);
        loop {
            if let Some(mut rest) = self.long_marker.take() {
                let Some((used, marker)) = rest.feed(&bytes[done..]) else {
                    self.long_marker = Some(rest);
                    return bytes.len();
                };
                done += used;
                cursor = done;
                self.is_line_start = true;
                self.apply(marker, &rest.take_text(), events);
            }
            let Some((at, found)) = self.next_marker(&bytes[done..], cursor - done) else {
                self.emit_output(&bytes[done..], events);
                return bytes.len();
            };
            let at = done + at;
            match found {
                Err(ScanStop::Mismatch) => cursor = at + 1,
                Err(ScanStop::NeedsMore) => {
                    self.emit_output(&bytes[done..at], events);
                    return at;
                }
                Ok((length, marker)) => {
                    self.emit_output(&bytes[done..at], events);
                    let text = &bytes[at..at + length];
                    self.is_line_start = text.ends_with(b"\n");
                    self.apply(marker, text, events);
                    done = at + length;
                    cursor = done;
                }
            }
        }
    }

    /// Finds the next position at or after `from` where a marker may begin, and reads it.
    fn next_marker(&mut self, bytes: &[u8], from: usize) -> Option<(usize, ScanResult<(usize, Marker)>)> {
        let at_start = self.is_line_start;
        let is_line_start = |at: usize| if at == 0 { at_start } else { bytes[at - 1] == b'\n' };
        let mut situation = ParserState {
            sequence: &self.sequence,
            running: self.running,
            has_end: self.unconfirmed.is_some(),
            is_line_start: is_line_start(from),
            is_complete: self.is_complete,
        };
        let at = from + self.grammar.find_marker(&bytes[from..], &situation)?;
        situation.is_line_start = is_line_start(at);
        Some((at, self.grammar.read_marker(&bytes[at..], &situation)))
    }

    fn apply(&mut self, marker: Marker, text: &[u8], events: &mut Vec<TranscriptEvent>) {
        match marker {
            // Up to the final line, every marker but an end marker shows that the framework continues.
            Marker::Begin(place) => {
                self.confirm_end(events);
                self.begin(place, events);
            }
            // An earlier end marker of the same test was output.
            Marker::End(verdict) => {
                self.emit_end_text(events);
                self.grammar.on_end_marker();
                let text = text[..text.len().min(MARKER_TEXT_BYTES)].to_vec();
                self.unconfirmed = Some(UnconfirmedEnd { verdict, text, is_text_emitted: false });
            }
            Marker::Unbegun(places, verdict) => {
                self.confirm_end(events);
                self.conclude(places, &verdict, events);
            }
            Marker::Confirm => {
                self.confirm_end(events);
                self.emit_output(text, events);
            }
            Marker::Unselected(name) => {
                self.confirm_end(events);
                self.emit_output(text, events);
                self.unselected.get_or_insert(name);
            }
            // Nothing follows the final line.
            Marker::FinalLine(tally) => {
                self.confirm_end(events);
                self.grammar.on_final_line();
                self.emit_output(text, events);
                self.is_complete = true;
                self.counted = tally;
                self.conclude_all(events);
            }
            // The remaining markers do not show that the framework continues.
            Marker::Ignore => {}
            Marker::Part(part) => {
                if let Some(place) = self.running {
                    events.push(TranscriptEvent::Part { place, part });
                }
            }
            Marker::Long(rest) => self.long_marker = Some(rest),
            Marker::Text(text) => self.emit_output(&text, events),
        }
    }

    fn begin(&mut self, place: usize, events: &mut Vec<TranscriptEvent>) {
        self.sequence.mark_begun(place);
        self.running = Some(place);
        self.grammar.on_begin(place);
        events.push(TranscriptEvent::Begun { place });
    }

    /// Confirms the end marker of the running test, if there is one, and emits its verdict.
    fn confirm_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        let Some(ending) = self.unconfirmed.take() else { return };
        let place = self.running.take().expect("an end marker is read only with a test in flight");
        let mut verdict = ending.verdict;
        self.grammar.complete_verdict(&mut verdict, self.sequence.name(place));
        self.reported.count(verdict.result);
        events.push(TranscriptEvent::Ended { place, verdict });
    }

    /// Emits the verdict for all tests if the framework skipped the whole run.
    fn conclude_all(&mut self, events: &mut Vec<TranscriptEvent>) {
        if !self.sequence.has_none_begun() {
            return;
        }
        let Some(verdict) = self.grammar.verdict_for_all() else { return };
        self.conclude(self.sequence.not_begun().collect(), &verdict, events);
    }

    /// Emits a verdict for tests that never begin.
    fn conclude(
        &mut self,
        places: Vec<usize>,
        verdict: &FrameworkVerdict,
        events: &mut Vec<TranscriptEvent>,
    ) {
        for place in places {
            self.begin(place, events);
            self.running = None;
            self.reported.count(verdict.result);
            events.push(TranscriptEvent::Ended { place, verdict: verdict.clone() });
        }
    }

    /// Emits output. If output follows an end marker, the marker may have been printed by the test, so its
    /// text is emitted first.
    fn emit_output(&mut self, bytes: &[u8], events: &mut Vec<TranscriptEvent>) {
        let Some(last) = bytes.last() else { return };
        self.is_line_start = *last == b'\n';
        self.emit_end_text(events);
        let side = match (self.running, &self.unconfirmed) {
            (None, _) => OutputOrigin::Outside,
            (Some(_), None) => OutputOrigin::Test,
            (Some(_), Some(_)) => OutputOrigin::AfterEnd,
        };
        self.grammar.on_output(bytes, side, &self.sequence);
        events.push(TranscriptEvent::Output(bytes.to_vec()));
    }

    fn emit_end_text(&mut self, events: &mut Vec<TranscriptEvent>) {
        if let Some(ending) = self.unconfirmed.as_mut().filter(|ending| !ending.is_text_emitted) {
            ending.is_text_emitted = true;
            events.push(TranscriptEvent::Output(std::mem::take(&mut ending.text)));
        }
    }
}

impl<G: MarkerGrammar> TranscriptParser for StreamParser<G> {
    fn opening_request(&mut self, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        if self.grammar.begins_with_process() && self.running.is_none() && !self.is_complete {
            self.begin(0, events);
        }
        Vec::new()
    }

    fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) {
        if self.buffered.is_empty() {
            let done = self.read(chunk, events);
            self.buffered.extend_from_slice(&chunk[done..]);
            return;
        }
        let mut bytes = std::mem::take(&mut self.buffered);
        bytes.extend_from_slice(chunk);
        let done = self.read(&bytes, events);
        bytes.drain(..done);
        bytes.shrink_to(MARKER_TEXT_BYTES);
        self.buffered = bytes;
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        let mut left = self.long_marker.take().map(|mut rest| rest.take_text()).unwrap_or_default();
        left.append(&mut self.buffered);
        self.emit_output(&left, events);
        self.emit_end_text(events);
    }

    fn on_exit(&mut self, code: i32, _events: &mut Vec<TranscriptEvent>) {
        self.grammar.on_exit(code);
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn explains_exit(&self, code: i32) -> bool {
        self.grammar.explains_exit(code, &self.reported, self.counted.as_ref())
    }

    fn is_after_end_marker(&self) -> bool {
        self.unconfirmed.is_some()
    }

    fn fixture_failures(&self) -> &[FixtureFailure] {
        self.grammar.fixture_failures()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.grammar.outside_failure()
    }

    fn doubtful_since(&self) -> Option<usize> {
        self.grammar.doubtful_since()
    }

    fn unselected_test(&self) -> Option<&str> {
        self.unselected.as_deref().or_else(|| self.grammar.unselected_test())
    }

    fn suite_phase(&self) -> Option<SuitePhase> {
        let situation = ParserState {
            sequence: &self.sequence,
            running: self.running,
            has_end: self.unconfirmed.is_some(),
            is_line_start: self.is_line_start,
            is_complete: self.is_complete,
        };
        self.grammar.suite_phase(&situation, self.unconfirmed.as_ref().map(|ending| &ending.verdict))
    }
}
