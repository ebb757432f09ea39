//! The stream parser of all transcripts: a state machine that follows the expected sequence of tests through
//! an output that user code also writes to. The form of the markers is defined by a grammar.
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
//! A test can print its own end marker and then die. So an end marker is confirmed only when the framework
//! itself continues after it. Frameworks write the next marker at once, so results are not late; only a slow
//! tear-down of a suite delays the result of the suite's last test, and a death in it counts as a death in
//! that test.

use wire::mtp::ExecutionState;

use super::{
    Event, Transcript, Verdict,
    scan::{Step, Stop},
    sequence::Sequence,
};

/// The state of the parser, as a grammar sees it.
#[derive(Debug)]
pub(super) struct Situation<'a> {
    pub(super) sequence: &'a Sequence,
    pub(super) in_flight: Option<usize>,
    /// The running test wrote an end marker.
    pub(super) has_end: bool,
    /// The bytes are at the beginning of a line.
    pub(super) is_line_start: bool,
    /// The framework printed its final line.
    pub(super) is_complete: bool,
}

impl Situation<'_> {
    /// Returns whether the framework may continue here: no test is running, or one that wrote its end marker.
    pub(super) fn is_free(&self) -> bool {
        self.in_flight.is_none() || self.has_end
    }
}

/// A marker recognized by a grammar.
pub(super) enum Marker {
    /// A test begins.
    Begin(usize),
    /// The running test reports its end.
    End(Verdict),
    /// The framework continues, which confirms an end marker before it. Its text is output of no test.
    Close,
    /// The framework's final line, with its counts. Its text is output of no test.
    Last(Option<Tally>),
    /// Text of the framework that is dropped.
    Noise,
    /// A marker whose rest may be long.
    Open(Box<dyn Rest>),
    /// Text that turned out to be no marker.
    Text(Vec<u8>),
}

/// The long rest of a marker. Reads bytes and keeps no more than a constant number of them.
pub(super) trait Rest: Send {
    /// Reads bytes; at the end of the marker, returns the number of them that belonged to it, and the marker.
    fn feed(&mut self, bytes: &[u8]) -> Option<(usize, Marker)>;
    /// Returns the text kept so far, when the marker or the output has ended.
    fn give_up(&mut self) -> Vec<u8>;
    /// Returns the number of bytes kept.
    #[cfg(test)]
    fn kept_bytes(&self) -> usize;
}

/// The number of tests by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl Tally {
    fn count(&mut self, state: ExecutionState) {
        match state {
            ExecutionState::Passed => self.passed += 1,
            ExecutionState::Skipped => self.skipped += 1,
            _ => self.failed += 1,
        }
    }
}

/// The origin of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The running test.
    Test,
    /// The running test or the tear-down of its suite: there is an end marker before it.
    AfterEnd,
    /// No test.
    Outside,
}

/// The form of a framework's markers.
pub(super) trait Grammar: Send {
    /// Returns the first place where a marker may begin; `is_line_start` of the situation applies to the
    /// front.
    fn find(&self, bytes: &[u8], situation: &Situation<'_>) -> Option<usize>;
    /// Reads a marker at the front of the bytes; returns its length.
    fn read(&mut self, at: &[u8], situation: &Situation<'_>) -> Step<(usize, Marker)>;
    /// Handles the begin of a test.
    fn begin(&mut self, _place: usize) {}
    /// Handles output.
    fn observe(&mut self, _bytes: &[u8], _side: Side) {}
    /// Handles an end marker; an earlier one was output.
    fn end(&mut self) {}
    /// Handles the final line.
    fn last(&mut self) {}
    /// Completes the verdict of a test whose end is confirmed.
    fn settle(&mut self, _verdict: &mut Verdict) {}
    /// Returns the verdict for all tests, if the framework printed its final line and ran none of them on
    /// purpose.
    fn blanket(&mut self) -> Option<Verdict> {
        None
    }
    /// Returns whether the counts of the reported results, and of the framework, explain an exit code.
    fn explains(&self, code: i32, told: &Tally, counted: Option<&Tally>) -> bool;
    /// Returns the failure outside of any test.
    fn outside_failure(&self) -> Option<&str> {
        None
    }
}

/// An end marker that is not yet confirmed.
struct Ending {
    verdict: Verdict,
    text: Vec<u8>,
    is_text_told: bool,
}

/// A transcript parser over a grammar.
pub(super) struct Follower<G> {
    grammar: G,
    sequence: Sequence,
    in_flight: Option<usize>,
    ending: Option<Ending>,
    rest: Option<Box<dyn Rest>>,
    /// Bytes that may become a marker.
    held: Vec<u8>,
    is_line_start: bool,
    is_complete: bool,
    told: Tally,
    counted: Option<Tally>,
}

const MARKER_TEXT_BYTES: usize = 64 * 1024;

impl<G: Grammar> Follower<G> {
    /// Creates a parser at the beginning of the output.
    pub(super) fn new(grammar: G, sequence: Sequence) -> Self {
        Self {
            grammar,
            sequence,
            in_flight: None,
            ending: None,
            rest: None,
            held: Vec::new(),
            is_line_start: true,
            is_complete: false,
            told: Tally::default(),
            counted: None,
        }
    }

    /// Returns the number of buffered bytes of output.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held.capacity()
            + self.ending.as_ref().map_or(0, |ending| ending.text.len())
            + self.rest.as_ref().map_or(0, |rest| rest.kept_bytes())
    }

    /// Parses as much as possible; returns the number of bytes consumed.
    fn read(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> usize {
        let (mut done, mut cursor) = (0, 0);
        loop {
            if let Some(mut rest) = self.rest.take() {
                let Some((used, marker)) = rest.feed(&bytes[done..]) else {
                    self.rest = Some(rest);
                    return bytes.len();
                };
                done += used;
                cursor = done;
                self.is_line_start = true;
                self.apply(marker, &rest.give_up(), events);
            }
            let Some((at, found)) = self.next_marker(&bytes[done..], cursor - done) else {
                self.tell(&bytes[done..], events);
                return bytes.len();
            };
            let at = done + at;
            match found {
                Err(Stop::No) => cursor = at + 1,
                Err(Stop::Partial) => {
                    self.tell(&bytes[done..at], events);
                    return at;
                }
                Ok((length, marker)) => {
                    self.tell(&bytes[done..at], events);
                    let text = &bytes[at..at + length];
                    self.is_line_start = text.ends_with(b"\n");
                    self.apply(marker, text, events);
                    done = at + length;
                    cursor = done;
                }
            }
        }
    }

    /// Finds the next place at or after `from` where a marker may begin, and reads it.
    fn next_marker(&mut self, bytes: &[u8], from: usize) -> Option<(usize, Step<(usize, Marker)>)> {
        let at_start = self.is_line_start;
        let is_line_start = |at: usize| if at == 0 { at_start } else { bytes[at - 1] == b'\n' };
        let mut situation = Situation {
            sequence: &self.sequence,
            in_flight: self.in_flight,
            has_end: self.ending.is_some(),
            is_line_start: is_line_start(from),
            is_complete: self.is_complete,
        };
        let at = from + self.grammar.find(&bytes[from..], &situation)?;
        situation.is_line_start = is_line_start(at);
        Some((at, self.grammar.read(&bytes[at..], &situation)))
    }

    fn apply(&mut self, marker: Marker, text: &[u8], events: &mut Vec<Event>) {
        match marker {
            Marker::Begin(place) => {
                self.believe(events);
                self.begin(place, events);
            }
            Marker::End(verdict) => {
                self.tell_ending(events);
                self.grammar.end();
                let text = text[..text.len().min(MARKER_TEXT_BYTES)].to_vec();
                self.ending = Some(Ending { verdict, text, is_text_told: false });
            }
            Marker::Close => {
                self.believe(events);
                self.tell(text, events);
            }
            Marker::Last(tally) => {
                self.believe(events);
                self.grammar.last();
                self.tell(text, events);
                self.is_complete = true;
                self.counted = tally;
                self.settle_all(events);
            }
            Marker::Noise => {}
            Marker::Open(rest) => self.rest = Some(rest),
            Marker::Text(text) => self.tell(&text, events),
        }
    }

    fn begin(&mut self, place: usize, events: &mut Vec<Event>) {
        self.sequence.begin(place);
        self.in_flight = Some(place);
        self.grammar.begin(place);
        events.push(Event::Begun { place });
    }

    /// Confirms the end marker of the running test, if there is one, and emits its verdict.
    fn believe(&mut self, events: &mut Vec<Event>) {
        let Some(ending) = self.ending.take() else { return };
        let place = self.in_flight.take().expect("an end marker is read only with a test in flight");
        let mut verdict = ending.verdict;
        self.grammar.settle(&mut verdict);
        self.told.count(verdict.state);
        events.push(Event::Ended { place, verdict });
    }

    /// Emits the verdict for all tests that the framework skipped as a whole.
    fn settle_all(&mut self, events: &mut Vec<Event>) {
        if !self.sequence.is_fresh() {
            return;
        }
        let Some(verdict) = self.grammar.blanket() else { return };
        for place in self.sequence.not_begun().collect::<Vec<_>>() {
            self.begin(place, events);
            self.in_flight = None;
            self.told.count(verdict.state);
            events.push(Event::Ended { place, verdict: verdict.clone() });
        }
    }

    /// Emits output. The text of an end marker that is followed by output may itself have been output, so it
    /// comes first.
    fn tell(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        let Some(last) = bytes.last() else { return };
        self.is_line_start = *last == b'\n';
        self.tell_ending(events);
        let side = match (self.in_flight, &self.ending) {
            (None, _) => Side::Outside,
            (Some(_), None) => Side::Test,
            (Some(_), Some(_)) => Side::AfterEnd,
        };
        self.grammar.observe(bytes, side);
        events.push(Event::Output(bytes.to_vec()));
    }

    fn tell_ending(&mut self, events: &mut Vec<Event>) {
        if let Some(ending) = self.ending.as_mut().filter(|ending| !ending.is_text_told) {
            ending.is_text_told = true;
            events.push(Event::Output(std::mem::take(&mut ending.text)));
        }
    }
}

impl<G: Grammar> Transcript for Follower<G> {
    fn stdout(&mut self, chunk: &[u8], events: &mut Vec<Event>) {
        if self.held.is_empty() {
            let done = self.read(chunk, events);
            self.held.extend_from_slice(&chunk[done..]);
            return;
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(chunk);
        let done = self.read(&bytes, events);
        bytes.drain(..done);
        bytes.shrink_to(MARKER_TEXT_BYTES);
        self.held = bytes;
    }

    fn end(&mut self, events: &mut Vec<Event>) {
        let mut left = self.rest.take().map(|mut rest| rest.give_up()).unwrap_or_default();
        left.append(&mut self.held);
        self.tell(&left, events);
        self.tell_ending(events);
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn explains(&self, code: i32) -> bool {
        self.grammar.explains(code, &self.told, self.counted.as_ref())
    }

    fn is_after_end_marker(&self) -> bool {
        self.ending.is_some()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.grammar.outside_failure()
    }
}
