//! Parser of Catch2's XML reporter on standard output. Catch2 captures C++ stream output and reports it at
//! the end of the test. All other output appears between the elements.

use std::time::Duration;

use heeler_core::Failure;
use heeler_protocol::control::ListedTest;

use super::selector::{SelectedNames, TestSelector, reported_name};
use crate::{
    FrameworkResult, FrameworkVerdict, TestPart,
    assertion_failures::{AssertionFailures, equality_sides},
    expected_tests::ExpectedTests,
    scan::{ByteCursor, ScanResult, ScanStop, either},
    stream_parser::{FrameworkCounts, LongMarker, Marker, MarkerGrammar, ParserState, StreamParser},
    xml_elements::{
        XmlElement, attribute, child_texts, escape_attribute, read_element, read_end_tag, unescape,
    },
};

/// Maximum indentation of an element. Deeper sections are rare.
const INDENTATION_BYTES: usize = 64;
/// Maximum size of a tag with its attributes.
const TAG_BYTES: usize = 16 * 1024;
/// Maximum section nesting that is tracked.
const SECTION_DEPTH: usize = 64;
/// Maximum size of the messages logged before an assertion.
const LOGGED_BYTES: usize = 16 * 1024;
/// Maximum size of one piece of captured output.
const CAPTURED_PIECE_BYTES: usize = 64 * 1024;
/// Longest entity in captured output.
const ENTITY_BYTES: usize = 8;

const EXPRESSION_CHILDREN: [&str; 4] = ["Original", "Expanded", "Exception", "FatalErrorCondition"];

pub(crate) fn catch2_parser(tests: &[&ListedTest]) -> StreamParser<Catch2Grammar> {
    let sequence = ExpectedTests::new(tests.iter().map(|test| begin_attributes(test).into_bytes()));
    let places = tests.iter().map(|test| place_attributes(test).into_bytes()).collect();
    let selected = SelectedNames::of(tests);
    StreamParser::new(Catch2Grammar { places, selected, ..Catch2Grammar::default() }, sequence)
}

/// Returns the attribute that names a test in its begin marker.
fn begin_attributes(test: &ListedTest) -> String {
    let name = reported_name(&TestSelector::of(test).name);
    if name.is_empty() { String::new() } else { format!(" name=\"{}\"", escape_attribute(&name)) }
}

/// Returns the location attributes, which distinguish tests with the same name.
fn place_attributes(test: &ListedTest) -> String {
    let file = escape_attribute(&reported_name(test.framework_file().unwrap_or_default().as_bytes()));
    format!(" filename=\"{file}\" line=\"{}\"", test.line.unwrap_or(0))
}

/// Parser state in addition to the expected sequence.
#[derive(Default)]
pub(crate) struct Catch2Grammar {
    /// Location attributes of each test.
    places: Vec<Vec<u8>>,
    selected: SelectedNames,
    failures: AssertionFailures,
    /// Messages logged for the next assertion.
    logged: Vec<String>,
    skip_reason: Option<String>,
    sections: Vec<String>,
    /// Result of the running test, while its element is open and captured output follows.
    open_result: Option<FrameworkVerdict>,
    /// Captured output is being read.
    is_in_captured: bool,
    /// Catch2's signal handler ran, which closes all elements as if the run had ended.
    is_crashing: bool,
    /// Results of tests outside this batch whose names Catch2 considers equal to a selected name.
    others: FrameworkCounts,
}

/// Marker with its length.
type ReadMarker = ScanResult<(usize, Marker)>;

impl Catch2Grammar {
    fn read_begin(&mut self, at: &[u8], cursor: ByteCursor<'_>, situation: &ParserState<'_>) -> ReadMarker {
        let mut cursor = cursor;
        cursor.literal(b"<TestCase")?;
        let sequence = situation.sequence;
        let places = &self.places;
        let try_test = |place: usize| {
            let mut cursor = cursor;
            cursor.name(sequence.name(place))?;
            let rest = cursor.attributes(TAG_BYTES)?;
            if rest.starts_with(b" ") && rest.ends_with(&places[place]) {
                Ok((cursor.used(), Marker::Begin(place)))
            } else {
                Err(ScanStop::Mismatch)
            }
        };
        let expected = sequence.next_expected().map_or(Err(ScanStop::Mismatch), try_test);
        either(expected, || {
            // After other output on the same line, only the next expected test may begin.
            if !situation.is_line_start || !at.starts_with(b" ") {
                return Err(ScanStop::Mismatch);
            }
            let mut stop = ScanStop::Mismatch;
            for place in sequence.not_begun() {
                match try_test(place) {
                    Ok(found) => return Ok(found),
                    Err(ScanStop::NeedsMore) => stop = ScanStop::NeedsMore,
                    Err(ScanStop::Mismatch) => {}
                }
            }
            Err(stop)
        })
    }

    /// Reads the start of a test's result. The element is complete if the test wrote nothing.
    fn read_result(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        let mut cursor = cursor;
        cursor.literal(b"<OverallResult success=\"")?;
        let is_success = cursor.one_of(&[b"true\"", b"false\""])? == 0;
        let rest = cursor.attributes(TAG_BYTES)?;
        let (rest, is_whole) = match rest.strip_suffix(b"/") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        if is_whole {
            read_test_end(&mut cursor)?;
        }
        let has_skips = attribute(rest, "skips").is_some_and(|skips| skips != "0");
        let result = match (is_success, has_skips) {
            (false, _) => FrameworkResult::Failed,
            (true, true) => FrameworkResult::Skipped,
            (true, false) => FrameworkResult::Passed,
        };
        let seconds = attribute(rest, "durationInSeconds").and_then(|text| text.parse().ok());
        let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let verdict = FrameworkVerdict::new(result, duration);
        if is_whole {
            return Ok((cursor.used(), Marker::End(verdict)));
        }
        self.open_result = Some(verdict);
        Ok((cursor.used(), Marker::Ignore))
    }

    /// Reads the end of a result after captured output, or the start of captured output.
    fn read_in_result(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        let mut cursor = cursor;
        if cursor.one_of(&[b"<StdOut>\n", b"<StdErr>\n", b"</OverallResult>\n"])? < 2 {
            self.is_in_captured = true;
            return Ok((cursor.used(), Marker::Ignore));
        }
        read_test_end(&mut cursor)?;
        let verdict = self.open_result.take().ok_or(ScanStop::Mismatch)?;
        Ok((cursor.used(), Marker::End(verdict)))
    }

    /// Reads a piece of captured output. A `<` occurs only at the end of its element.
    fn read_captured(&mut self, at: &[u8]) -> ReadMarker {
        let window = &at[..at.len().min(CAPTURED_PIECE_BYTES)];
        let end = memchr::memchr(b'<', window);
        let text = &window[..end.unwrap_or(window.len())];
        if let (Some(end), true) = (end, text.trim_ascii().is_empty()) {
            let mut cursor = ByteCursor::new(at);
            cursor.advance(end);
            cursor.one_of(&[b"</StdOut>\n", b"</StdErr>\n"])?;
            self.is_in_captured = false;
            // Catch2 trims all trailing whitespace of the output.
            return Ok((cursor.used(), Marker::Text(b"\n".to_vec())));
        }
        // Trailing spaces may belong to the closing element, and the end of the piece may cut an entity.
        let is_cut = |tail: &[u8]| end.is_none() && memchr::memrchr(b'&', tail).is_some();
        let tail_start = text.len().saturating_sub(ENTITY_BYTES);
        let text = if is_cut(&text[tail_start..]) {
            &text[..memchr::memrchr(b'&', text).unwrap_or(text.len())]
        } else {
            text
        };
        let kept = text.trim_ascii_end().len();
        let kept = if kept == 0 && text.len() == CAPTURED_PIECE_BYTES { text.len() } else { kept };
        if kept == 0 {
            return Err(if end.is_some() { ScanStop::Mismatch } else { ScanStop::NeedsMore });
        }
        Ok((kept, Marker::Text(unescape_bytes(&text[..kept]))))
    }

    /// Reads the end of the document.
    fn read_last(cursor: ByteCursor<'_>) -> ReadMarker {
        let mut cursor = cursor;
        cursor.literal(b"<OverallResultsCases successes=\"")?;
        cursor.number()?;
        cursor.literal(b"\" failures=\"")?;
        cursor.number()?;
        let rest = cursor.until(b"/>\n", TAG_BYTES)?;
        if !rest.starts_with(b"\"") {
            return Err(ScanStop::Mismatch);
        }
        skip_spaces(&mut cursor)?;
        match cursor.one_of(&[b"</Catch2TestRun>\n", b"</Catch>\n", b"</Group>\n"])? {
            // Version 2 reports its only group, then the whole run.
            2 => Ok((cursor.used(), Marker::Ignore)),
            _ => Ok((cursor.used(), Marker::FinalLine(None))),
        }
    }

    /// Reads elements around tests that carry no information.
    fn read_frame(cursor: ByteCursor<'_>) -> ReadMarker {
        const FRAMES: [&[u8]; 6] =
            [b"<Catch2TestRun ", b"<Catch ", b"<Group ", b"<Randomness ", b"<?xml ", b"<OverallResults "];
        let mut cursor = cursor;
        let frame = cursor.one_of(&FRAMES)?;
        if frame < 2 {
            return Ok((cursor.used(), Marker::Long(Box::new(ReportTag { is_after_bracket: false }))));
        }
        cursor.attributes(TAG_BYTES)?;
        if frame == FRAMES.len() - 1 {
            // Before the end of a section, these are the counts of the section.
            let mut next = cursor;
            skip_spaces(&mut next)?;
            next.literal(b"<OverallResultsCases ")?;
        }
        Ok((cursor.used(), Marker::Ignore))
    }

    /// Reads the elements of a test outside this batch.
    fn read_other_test(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        if self.open_result.is_some() {
            let (used, marker) = self.read_in_result(cursor)?;
            return Ok((used, self.count_other(marker)));
        }
        match self.read_result(cursor) {
            Ok((used, marker)) => return Ok((used, self.count_other(marker))),
            Err(ScanStop::NeedsMore) => return Err(ScanStop::NeedsMore),
            Err(ScanStop::Mismatch) => {}
        }
        let (used, name) = self.read_other_begin(cursor)?;
        Ok((used, name.map_or(Marker::Ignore, Marker::Unselected)))
    }

    /// Reads the start of a test outside this batch; returns its name if no pattern selects it.
    fn read_other_begin(&self, cursor: ByteCursor<'_>) -> ScanResult<(usize, Option<String>)> {
        let mut cursor = cursor;
        cursor.literal(b"<TestCase")?;
        let attributes = cursor.attributes(TAG_BYTES)?;
        if !attributes.starts_with(b" ") || attribute(attributes, "line").is_none() {
            return Err(ScanStop::Mismatch);
        }
        let name = attribute(attributes, "name").unwrap_or_default();
        Ok((cursor.used(), (!self.selected.may_have(&name)).then_some(name)))
    }

    fn count_other(&mut self, marker: Marker) -> Marker {
        let Marker::End(verdict) = marker else { return marker };
        self.others.count(verdict.result);
        Marker::Ignore
    }

    fn read_section(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        let mut cursor = cursor;
        if cursor.one_of(&[b"<Section", b"<OverallResults successes=\""])? == 1 {
            return self.read_section_end(cursor);
        }
        let attributes = cursor.attributes(TAG_BYTES)?;
        if !attributes.starts_with(b" ") || self.sections.len() >= SECTION_DEPTH {
            return Err(ScanStop::Mismatch);
        }
        self.sections.push(attribute(attributes, "name").unwrap_or_default());
        let part = TestPart { name: self.section_path(), result: None, message: None };
        Ok((cursor.used(), Marker::Part(part)))
    }

    /// Reads the end of a section, after the start of its counts.
    fn read_section_end(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        let mut cursor = cursor;
        cursor.number()?;
        cursor.literal(b"\" failures=\"")?;
        let failures = cursor.number()?;
        let rest = cursor.until(b"/>\n", TAG_BYTES)?;
        skip_spaces(&mut cursor)?;
        read_end_tag(&mut cursor, "Section")?;
        let name = self.section_path();
        if self.sections.pop().is_none() {
            return Err(ScanStop::Mismatch);
        }
        if self.is_crashing {
            return Ok((cursor.used(), Marker::Ignore));
        }
        let is_skipped = attribute(rest, "skipped").as_deref() == Some("true");
        let result = match (failures, is_skipped) {
            (1.., _) => FrameworkResult::Failed,
            (0, true) => FrameworkResult::Skipped,
            (0, false) => FrameworkResult::Passed,
        };
        Ok((cursor.used(), Marker::Part(TestPart { name, result: Some(result), message: None })))
    }

    fn section_path(&self) -> String {
        self.sections.join(" > ")
    }

    /// Reads an assertion report.
    fn read_report(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        const REPORTS: [&[u8]; 7] = [
            b"<Expression ",
            b"<Failure ",
            b"<Exception ",
            b"<FatalErrorCondition ",
            b"<Skip ",
            b"<Info",
            b"<Warning",
        ];
        let mut after = cursor;
        let kind = after.one_of(&REPORTS)?;
        if kind >= 5 {
            return self.read_message(after, if kind == 5 { "Info" } else { "Warning" });
        }
        let name = ["Expression", "Failure", "Exception", "FatalErrorCondition", "Skip"][kind];
        let children: &[&str] = if kind == 0 { &EXPRESSION_CHILDREN } else { &[] };
        let mut after = cursor;
        let element = read_element(&mut after, name, children)?;
        let text = || unescape(element.body.trim_ascii());
        match kind {
            0 => self.on_expression(&element),
            1 => self.fail(&element, text(), None),
            2 => self.fail(&element, format!("threw: {}", text()), None),
            3 => self.is_crashing = true,
            _ => self.skip_reason = Some(text()).filter(|reason| !reason.is_empty()),
        }
        Ok((after.used(), Marker::Ignore))
    }

    /// Reads a message after its element name. Version 2 has no attributes there.
    fn read_message(&mut self, cursor: ByteCursor<'_>, name: &str) -> ReadMarker {
        let mut cursor = cursor;
        let attributes = cursor.attributes(TAG_BYTES)?;
        let is_tag = attributes.is_empty() || attributes.starts_with(b" ");
        if !is_tag {
            return Err(ScanStop::Mismatch);
        }
        let end = memchr::memchr(b'<', cursor.rest());
        let body = match end {
            Some(length) if length <= TAG_BYTES => &cursor.rest()[..length],
            Some(_) => return Err(ScanStop::Mismatch),
            None if cursor.rest().len() > TAG_BYTES => return Err(ScanStop::Mismatch),
            None => return Err(ScanStop::NeedsMore),
        };
        cursor.advance(body.len());
        read_end_tag(&mut cursor, name)?;
        let text = unescape(body.trim_ascii());
        if name == "Warning" {
            return Ok((cursor.used(), Marker::Text(format!("warning: {text}\n").into_bytes())));
        }
        if self.logged.iter().map(String::len).sum::<usize>() < LOGGED_BYTES {
            self.logged.push(text);
        }
        Ok((cursor.used(), Marker::Ignore))
    }

    fn on_expression(&mut self, element: &XmlElement<'_>) {
        let first = |name: &str| child_texts(element.body, name).into_iter().next();
        if first("FatalErrorCondition").is_some() {
            self.is_crashing = true;
            return;
        }
        let kind = attribute(element.attributes, "type").unwrap_or_default();
        let original = first("Original").unwrap_or_default();
        let mut text = format!("{kind}( {original} )");
        let expanded = first("Expanded").filter(|expanded| *expanded != original);
        if let Some(thrown) = first("Exception") {
            text.push_str(&format!("\n  threw: {thrown}"));
        } else if let Some(expanded) = &expanded {
            text.push_str(&format!("\n  values: {expanded}"));
        }
        self.fail(element, text, expanded.as_deref().and_then(equality_sides));
    }

    /// Records a failure; `sides` are the actual and the expected value of a comparison.
    fn fail(&mut self, element: &XmlElement<'_>, text: String, sides: Option<(&str, &str)>) {
        let mut message = text;
        for logged in self.logged.drain(..) {
            message.push_str(&format!("\n  logged: {logged}"));
        }
        let path = self.section_path();
        if !path.is_empty() {
            message.push_str(&format!("\n  in section: {path}"));
        }
        let (actual, expected) = sides.unzip();
        self.failures.push(Failure {
            message: Some(message),
            file: attribute(element.attributes, "filename"),
            line: attribute(element.attributes, "line").and_then(|line| line.parse().ok()),
            expected: expected.map(str::to_owned),
            actual: actual.map(str::to_owned),
            ..Failure::default()
        });
    }

    /// Reads an element inside the running test.
    fn read_in_test(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        if self.open_result.is_some()
            && let Some(read) = decided(self.read_in_result(cursor))
        {
            return read;
        }
        let result = self.read_result(cursor);
        either(result, || {
            let section = self.read_section(cursor);
            either(section, || self.read_report(cursor))
        })
    }
}

/// The opening tag of the report, which repeats all patterns of the command.
struct ReportTag {
    /// The last byte was a `>`.
    is_after_bracket: bool,
}

impl LongMarker for ReportTag {
    fn feed(&mut self, bytes: &[u8]) -> Option<(usize, Marker)> {
        if self.is_after_bracket && bytes.first() == Some(&b'\n') {
            return Some((1, Marker::Ignore));
        }
        if let Some(at) = memchr::memmem::find(bytes, b">\n") {
            return Some((at + 2, Marker::Ignore));
        }
        self.is_after_bracket = match bytes.last() {
            Some(last) => *last == b'>',
            None => self.is_after_bracket,
        };
        None
    }

    fn take_text(&mut self) -> Vec<u8> {
        Vec::new()
    }

    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        0
    }
}

/// Returns the unescaped bytes of a text node, which may not be UTF-8.
fn unescape_bytes(text: &[u8]) -> Vec<u8> {
    const ENTITIES: [(&[u8], u8); 4] =
        [(b"&lt;", b'<'), (b"&amp;", b'&'), (b"&gt;", b'>'), (b"&quot;", b'"')];
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'&', rest) {
        bytes.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let entity = ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity));
        let (length, byte) = entity.map_or((1, b'&'), |(entity, byte)| (entity.len(), *byte));
        bytes.push(byte);
        rest = &rest[length..];
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// Returns `None` for a mismatch, otherwise `read` unchanged.
fn decided(read: ReadMarker) -> Option<ReadMarker> {
    match read {
        Err(ScanStop::Mismatch) => None,
        read => Some(read),
    }
}

fn skip_spaces(cursor: &mut ByteCursor<'_>) -> ScanResult<()> {
    let spaces = cursor.rest().iter().take(INDENTATION_BYTES).take_while(|byte| **byte == b' ').count();
    cursor.advance(spaces);
    if cursor.rest().is_empty() { Err(ScanStop::NeedsMore) } else { Ok(()) }
}

fn read_test_end(cursor: &mut ByteCursor<'_>) -> ScanResult<()> {
    skip_spaces(cursor)?;
    cursor.literal(b"</TestCase>\n")
}

impl MarkerGrammar for Catch2Grammar {
    fn find_marker(&self, bytes: &[u8], _situation: &ParserState<'_>) -> Option<usize> {
        if self.is_in_captured {
            return (!bytes.is_empty()).then_some(0);
        }
        memchr::memchr2(b' ', b'<', bytes)
    }

    fn read_marker(&mut self, at: &[u8], situation: &ParserState<'_>) -> ReadMarker {
        if situation.is_complete {
            return Err(ScanStop::Mismatch);
        }
        if self.is_in_captured {
            let read = self.read_captured(at);
            // Not the end of the element, so a test printed a fake begin of captured output.
            if matches!(read, Err(ScanStop::Mismatch)) {
                self.is_in_captured = false;
            }
            return read;
        }
        // Skip the indentation before an element.
        let indentation = at.iter().take(INDENTATION_BYTES + 1).take_while(|byte| **byte == b' ').count();
        let mut cursor = ByteCursor::new(at);
        cursor.advance(indentation);
        match cursor.rest().first() {
            None if indentation <= INDENTATION_BYTES => return Err(ScanStop::NeedsMore),
            Some(b'<') if indentation <= INDENTATION_BYTES => {}
            None | Some(_) => return Err(ScanStop::Mismatch),
        }
        // Between tests.
        if situation.running.is_none() {
            let begin = self.read_begin(at, cursor, situation);
            let framed = either(begin, || either(Self::read_last(cursor), || Self::read_frame(cursor)));
            return either(framed, || self.read_other_test(cursor));
        }
        // Inside the running test. After a crash, no end marker or final line counts.
        let own = self.read_in_test(cursor);
        if self.is_crashing {
            let own = either(own, || either(Self::read_last(cursor), || Self::read_frame(cursor)));
            return own.map(|(used, marker)| match marker {
                Marker::End(_) | Marker::FinalLine(_) => (used, Marker::Ignore),
                marker => (used, marker),
            });
        }
        if !situation.has_end {
            return own;
        }
        // After an end marker, also markers that continue the run.
        let next = either(own, || self.read_begin(at, cursor, situation));
        let last = either(next, || Self::read_last(cursor));
        // The begin of another test confirms the end of the previous one.
        let other = || {
            let (used, name) = self.read_other_begin(cursor)?;
            Ok((used, name.map_or(Marker::Confirm, Marker::Unselected)))
        };
        either(last, || either(Self::read_frame(cursor), other))
    }

    fn on_begin(&mut self, _place: usize) {
        self.failures = AssertionFailures::default();
        self.logged.clear();
        self.skip_reason = None;
        self.sections.clear();
        self.open_result = None;
    }

    fn complete_verdict(&mut self, verdict: &mut FrameworkVerdict, _name: &[u8]) {
        let failures = std::mem::take(&mut self.failures);
        match verdict.result {
            FrameworkResult::Passed | FrameworkResult::NotRun => {}
            FrameworkResult::Skipped => verdict.reason = self.skip_reason.take(),
            FrameworkResult::Failed => {
                failures.add_to(verdict);
                if verdict.failures.is_empty() {
                    verdict.push_failure(failure_by_tags());
                }
            }
        }
    }

    fn explains_exit(
        &self,
        code: i32,
        reported: &FrameworkCounts,
        _counted: Option<&FrameworkCounts>,
    ) -> bool {
        explains_exit(code, reported, &self.others)
    }
}

/// Returns the failure for a failed test without a failed assertion.
pub(super) fn failure_by_tags() -> Failure {
    let text = "no assertion failed, but its tags mark it as failed".to_owned();
    Failure { message: Some(text), ..Failure::default() }
}

/// Returns whether the results explain an exit code: 0, or 4 if all tests were skipped. After failures, the
/// code is 42, their number (version 2 and early version 3), or chosen by the program's own `main`.
pub(super) fn explains_exit(code: i32, reported: &FrameworkCounts, others: &FrameworkCounts) -> bool {
    const ALL_SKIPPED: i32 = 4;
    let has_failed = reported.failed + others.failed > 0;
    let is_all_skipped = reported.passed + others.passed == 0 && reported.skipped + others.skipped > 0;
    match code {
        0 => !has_failed,
        ALL_SKIPPED => has_failed || is_all_skipped,
        _ => has_failed,
    }
}
