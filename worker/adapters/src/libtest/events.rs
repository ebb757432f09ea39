//! Parser of libtest's JSON events. User code writes to the same standard output, so an event may start
//! anywhere in a line. An event must belong to the running test or begin the next one.

use std::time::Duration;

use heeler_protocol::control::ListedTest;
use serde_json::Value;

use super::panic;
use crate::{
    FrameworkResult, FrameworkVerdict,
    expected_tests::ExpectedTests,
    scan::{ByteCursor, ScanResult, ScanStop, decode_lossy, either},
    stream_parser::{
        FrameworkCounts, LongMarker, Marker, MarkerGrammar, OutputOrigin, ParserState, StreamParser,
    },
};

const BEGIN: &[u8] = br#"{ "type": "test", "event": "started", "name": ""#;
const END: &[u8] = br#"{ "type": "test", "name": ""#;
const END_EVENT: &[u8] = br#"", "event": ""#;
const STATES: [(&[u8], FrameworkResult); 3] = [
    (br#"ok""#, FrameworkResult::Passed),
    (br#"failed""#, FrameworkResult::Failed),
    (br#"ignored""#, FrameworkResult::Skipped),
];
const TIMEOUT: &[u8] = br#"{ "type": "test", "event": "timeout", "name": ""#;
const SUITE: &[u8] = br#"{ "type": "suite", "event": ""#;

/// Maximum length of a line that is buffered until it is complete.
const LINE_BYTES: usize = 64 * 1024;

pub(crate) fn event_parser(tests: &[&ListedTest]) -> StreamParser<EventGrammar> {
    let names = tests.iter().map(|test| test.name.clone()).collect();
    let sequence = ExpectedTests::new(tests.iter().map(|test| escape(&test.name).into_bytes()));
    StreamParser::new(EventGrammar { names, in_flight: 0, doubtful_since: None }, sequence)
}

/// Escapes a name like libtest.
fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\u{8}' => escaped.push_str("\\b"),
            '\t' => escaped.push_str("\\t"),
            '\n' => escaped.push_str("\\n"),
            '\u{c}' => escaped.push_str("\\f"),
            '\r' => escaped.push_str("\\r"),
            '\0'..='\u{1f}' | '\u{7f}' => escaped.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Parser state in addition to the expected sequence.
pub(crate) struct EventGrammar {
    names: Vec<String>,
    in_flight: usize,
    /// The first test with events in its output, or named by such an event.
    doubtful_since: Option<usize>,
}

/// Parses a complete line as JSON; returns its length and value.
fn parse_json_line(at: &[u8]) -> ScanResult<(usize, Value)> {
    let mut cursor = ByteCursor::new(at);
    let line = cursor.until(b"\n", LINE_BYTES)?;
    let value = serde_json::from_slice(line).map_err(|_| ScanStop::Mismatch)?;
    Ok((cursor.used(), value))
}

impl EventGrammar {
    fn read_begin(at: &[u8], situation: &ParserState<'_>) -> ScanResult<(usize, Marker)> {
        const CLOSE: &[u8] = b"\" }\n";
        let mut cursor = ByteCursor::new(at);
        cursor.literal(BEGIN)?;
        let sequence = situation.sequence;
        let expected = sequence.next_expected().map_or(Err(ScanStop::Mismatch), |place| {
            let mut cursor = cursor;
            cursor.literal(sequence.name(place))?;
            cursor.literal(CLOSE)?;
            Ok((cursor.used(), Marker::Begin(place)))
        });
        either(expected, || {
            // After other output on the same line, only the next expected test may begin.
            if !situation.is_line_start {
                return Err(ScanStop::Mismatch);
            }
            let mut line = cursor;
            let name = line.until(CLOSE, LINE_BYTES)?;
            match sequence.find(name, cursor, CLOSE) {
                Err(ScanStop::Mismatch) if !sequence.is_any(name) => {
                    Ok((line.used(), Marker::Unselected(decode_lossy(name))))
                }
                found => found.map(|(place, used)| (used, Marker::Begin(place))),
            }
        })
    }

    fn read_end(&self, at: &[u8], name: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(END)?;
        cursor.literal(name)?;
        cursor.literal(END_EVENT)?;
        let state = STATES[cursor.one_of(&STATES.map(|(text, _)| text))?].1;
        let own_thread = &self.names[self.in_flight];
        // The event of a failed test contains all of its output on one line.
        let is_long = cursor.rest().len() > LINE_BYTES && !cursor.rest()[..LINE_BYTES].contains(&b'\n');
        if is_long {
            let fields = LongFailureEvent {
                state,
                own_thread: own_thread.clone(),
                ..LongFailureEvent::new(&at[..cursor.used()])
            };
            return Ok((cursor.used(), Marker::Long(Box::new(fields))));
        }
        let mut rest = cursor;
        rest.until(b"\n", LINE_BYTES)?;
        let value: Value = serde_json::from_slice(&at[..rest.used()]).map_err(|_| ScanStop::Mismatch)?;
        Ok((rest.used(), Marker::End(verdict(state, &value, own_thread))))
    }

    fn read_timeout(at: &[u8], name: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(TIMEOUT)?;
        cursor.literal(name)?;
        cursor.literal(b"\" }\n")?;
        Ok((cursor.used(), Marker::Ignore))
    }

    fn read_suite(at: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(SUITE)?;
        let event = cursor.one_of(&[br#"started""#, br#"ok""#, br#"failed""#])?;
        let (used, value) = parse_json_line(at)?;
        if event == 0 {
            return Ok((used, Marker::Ignore));
        }
        let count = |key: &str| value[key].as_u64().ok_or(ScanStop::Mismatch);
        let tally = FrameworkCounts {
            passed: count("passed")?,
            failed: count("failed")?,
            skipped: count("ignored")?,
        };
        Ok((used, Marker::FinalLine(Some(tally))))
    }
}

impl MarkerGrammar for EventGrammar {
    fn find_marker(&self, bytes: &[u8], _situation: &ParserState<'_>) -> Option<usize> {
        memchr::memchr(b'{', bytes)
    }

    fn read_marker(&mut self, at: &[u8], situation: &ParserState<'_>) -> ScanResult<(usize, Marker)> {
        if situation.is_complete {
            return Err(ScanStop::Mismatch);
        }
        let own = match situation.running {
            Some(place) => {
                let name = situation.sequence.name(place);
                either(self.read_end(at, name), || Self::read_timeout(at, name))
            }
            None => Err(ScanStop::Mismatch),
        };
        if !situation.may_continue() {
            return own;
        }
        either(own, || either(Self::read_begin(at, situation), || Self::read_suite(at)))
    }

    fn on_begin(&mut self, place: usize) {
        self.in_flight = place;
    }

    fn on_output(&mut self, bytes: &[u8], _side: OutputOrigin, sequence: &ExpectedTests) {
        // An event split across two chunks goes unnoticed. This check is only one of several.
        for event in [BEGIN, END] {
            let Some(at) = memchr::memmem::find(bytes, event) else { continue };
            let named = sequence.find_anywhere(&bytes[at + event.len()..], b"\"");
            let earliest = self.in_flight.min(named.unwrap_or(usize::MAX));
            self.doubtful_since = Some(self.doubtful_since.map_or(earliest, |since| since.min(earliest)));
        }
    }

    fn doubtful_since(&self) -> Option<usize> {
        self.doubtful_since
    }

    fn explains_exit(
        &self,
        code: i32,
        reported: &FrameworkCounts,
        counted: Option<&FrameworkCounts>,
    ) -> bool {
        counts_explain_exit(code, reported, counted)
    }
}

/// Returns whether the counts explain an exit code of libtest. If the counts disagree, an event was forged.
pub(crate) fn counts_explain_exit(
    code: i32,
    reported: &FrameworkCounts,
    counted: Option<&FrameworkCounts>,
) -> bool {
    counted.is_none_or(|counted| counted == reported)
        && match code {
            0 => reported.failed == 0,
            101 => reported.failed > 0,
            _ => false,
        }
}

fn verdict(state: FrameworkResult, value: &Value, own_thread: &str) -> FrameworkVerdict {
    let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let message = text("message").or_else(|| text("reason"));
    verdict_of_texts(FrameworkVerdict::new(state, duration(value)), message, text("stdout"), own_thread)
}

fn duration(value: &Value) -> Option<Duration> {
    value["exec_time"].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// Completes a verdict with the texts of its event.
fn verdict_of_texts(
    mut verdict: FrameworkVerdict,
    message: Option<String>,
    stdout: Option<String>,
    own_thread: &str,
) -> FrameworkVerdict {
    if verdict.result == FrameworkResult::Failed {
        let output = stdout.as_deref().unwrap_or_default();
        verdict.push_failure(panic::read_failure(message, output, Some(own_thread)));
    } else {
        verdict.reason = message;
    }
    verdict.stdout = stdout;
    verdict
}

const HEAD_BYTES: usize = 4 * 1024 * 1024;
const TAIL_BYTES: usize = 1024 * 1024;

/// Kept parts of an event with long output: the head, which has the fields before the output, and the tail,
/// which has the panic and the fields after the output.
struct LongFailureEvent {
    state: FrameworkResult,
    own_thread: String,
    head: Vec<u8>,
    /// At most `2 * TAIL_BYTES`.
    tail: Vec<u8>,
    left_out: u64,
}

impl LongFailureEvent {
    fn new(head: &[u8]) -> Self {
        let state = FrameworkResult::Failed;
        Self { state, own_thread: String::new(), head: head.to_vec(), tail: Vec::new(), left_out: 0 }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = HEAD_BYTES.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        for piece in bytes[room..].chunks(TAIL_BYTES) {
            self.tail.extend_from_slice(piece);
            if self.tail.len() > 2 * TAIL_BYTES {
                let excess = self.tail.len() - TAIL_BYTES;
                self.tail.drain(..excess);
                self.left_out += excess as u64;
            }
        }
    }

    fn finish(&self) -> Option<FrameworkVerdict> {
        if self.left_out == 0 {
            let line = [self.head.as_slice(), &self.tail].concat();
            let value: Value = serde_json::from_slice(&line).ok()?;
            return Some(verdict(self.state, &value, &self.own_thread));
        }
        self.finish_cut()
    }

    /// Parses a line whose middle was dropped. Quotes in the output are escaped, so `", "` occurs only
    /// between fields.
    fn finish_cut(&self) -> Option<FrameworkVerdict> {
        const STDOUT: &[u8] = br#", "stdout": ""#;
        const MESSAGE: &[u8] = br#"", "message": ""#;
        let at = memchr::memmem::find(&self.head, STDOUT)?;
        let before: Value = serde_json::from_slice(&[&self.head[..at], b"}"].concat()).ok()?;
        let tail = self.tail.strip_suffix(b"\" }\n")?;
        let (tail, message) = match memchr::memmem::rfind(tail, MESSAGE) {
            Some(at) => (&tail[..at], Some(unescape(&tail[at + MESSAGE.len()..]))),
            None => (tail, None),
        };
        let output = format!(
            "{}\n[{} bytes omitted]\n{}",
            unescape(&self.head[at + STDOUT.len()..]),
            self.left_out,
            unescape(tail),
        );
        let verdict = FrameworkVerdict::new(self.state, duration(&before));
        Some(verdict_of_texts(verdict, message, Some(output), &self.own_thread))
    }
}

/// Unescapes a fragment of a JSON string. Drops partial escape sequences at both ends.
fn unescape(piece: &[u8]) -> String {
    const LONGEST_ESCAPE: usize = 12;
    for (start, end) in (0..LONGEST_ESCAPE).flat_map(|cut| [(cut, 0), (0, cut), (cut, cut)]) {
        let Some(piece) = piece.get(start..piece.len().saturating_sub(end)) else { continue };
        let quoted = [b"\"", String::from_utf8_lossy(piece).as_bytes(), b"\""].concat();
        if let Ok(text) = serde_json::from_slice::<String>(&quoted) {
            return text;
        }
    }
    String::from_utf8_lossy(piece).into_owned()
}

impl LongMarker for LongFailureEvent {
    fn feed(&mut self, bytes: &[u8]) -> Option<(usize, Marker)> {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.keep(bytes);
            return None;
        };
        self.keep(&bytes[..=end]);
        let marker = match self.finish() {
            Some(verdict) => Marker::End(verdict),
            None => Marker::Text(self.take_text()),
        };
        Some((end + 1, marker))
    }

    fn take_text(&mut self) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.head);
        text.append(&mut self.tail);
        text
    }

    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_like_libtest() {
        assert_eq!(escape("a\"\\\n\t\u{1}\u{7f}ü"), "a\\\"\\\\\\n\\t\\u0001\\u007fü");
    }

    #[test]
    fn string_fragment_loses_only_partial_escapes() {
        assert_eq!(unescape(br"a\nb\u00"), "a\nb");
        assert_eq!(unescape(br"fc\nb"), "fc\nb");
        assert_eq!(unescape(br#"u00fcx\"y\"#), "u00fcx\"y");
    }
}
