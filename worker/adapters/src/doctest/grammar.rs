//! Parser of doctest's XML reporter on standard output. Test output appears between the elements. Text
//! printed by a test is parsed as an element only where an element is possible.

use std::time::Duration;

use heeler_core::Failure;
use heeler_protocol::control::ListedTest;

use super::listing::{NameUse, PlacedSelector, UNNAMED};
use crate::{
    FrameworkResult, FrameworkVerdict, TestPart,
    assertion_failures::{AssertionFailures, equality_sides},
    expected_tests::ExpectedTests,
    scan::{ByteCursor, ScanResult, ScanStop, either},
    stream_parser::{FrameworkCounts, Marker, MarkerGrammar, ParserState, StreamParser},
    xml_elements::{XmlElement, attribute, child_texts, escape_attribute, read_element, unescape},
};

/// Maximum indentation of an element. Deeper subcases are rare.
const INDENTATION_BYTES: usize = 64;
/// Maximum size of a tag with its attributes.
const TAG_BYTES: usize = 16 * 1024;
/// Maximum subcase nesting that is tracked.
const SUBCASE_DEPTH: usize = 64;

const EXPRESSION_CHILDREN: [&str; 6] =
    ["Original", "Expanded", "Exception", "ExpectedException", "ExpectedExceptionString", "Info"];
const MESSAGE_CHILDREN: [&str; 2] = ["Text", "Info"];

pub(crate) fn doctest_parser(tests: &[&ListedTest]) -> StreamParser<DoctestGrammar> {
    let sequence = ExpectedTests::new(tests.iter().map(|test| begin_attributes(test).into_bytes()));
    StreamParser::new(DoctestGrammar::default(), sequence)
}

/// Returns the attributes that name a test in its begin marker.
fn begin_attributes(test: &ListedTest) -> String {
    let mut text = String::new();
    let is_unnamed = PlacedSelector::of(test).name == NameUse::Unnamed;
    let name = Some(test.name.as_str()).filter(|_| !is_unnamed);
    for (name, value) in [("name", name), ("filename", test.framework_file())] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            text.push_str(&format!(" {name}=\"{}\"", escape_attribute(value)));
        }
    }
    text.push_str(&format!(" line=\"{}\"", test.line.unwrap_or(0)));
    text
}

/// Parser state in addition to the expected sequence.
#[derive(Default)]
pub(crate) struct DoctestGrammar {
    /// Decorators of the running test: the attributes after those that name it.
    decorators: Vec<u8>,
    /// Decorators of the next test, whose begin marker is read before the previous test is completed.
    next_decorators: Vec<u8>,
    failures: AssertionFailures,
    /// Open subcases, outermost first, and whether something in them failed.
    subcases: Vec<(String, bool)>,
    /// doctest's signal handler ran, which closes all elements as if the run had ended.
    is_crashing: bool,
    /// Failed tests outside this batch that share a name with a test in it.
    failed_others: u64,
}

/// Marker with its length.
type ReadMarker = ScanResult<(usize, Marker)>;

impl DoctestGrammar {
    fn read_begin(&mut self, at: &[u8], cursor: ByteCursor<'_>, situation: &ParserState<'_>) -> ReadMarker {
        let mut cursor = cursor;
        cursor.literal(b"<TestCase")?;
        let sequence = situation.sequence;
        let try_test = |place: usize| {
            let mut cursor = cursor;
            cursor.name(sequence.name(place))?;
            let decorators = cursor.until(b">\n", TAG_BYTES)?;
            let is_begin =
                decorators.is_empty() || decorators.starts_with(b" ") && !decorators.ends_with(b"/");
            if is_begin { Ok((cursor.used(), place, decorators.to_vec())) } else { Err(ScanStop::Mismatch) }
        };
        let expected = sequence.next_expected().map_or(Err(ScanStop::Mismatch), try_test);
        let found = either(expected, || {
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
        });
        let (used, place, decorators) = found?;
        self.next_decorators = decorators;
        Ok((used, Marker::Begin(place)))
    }

    /// Reads the end of a test: its assertion counts and its closing tag.
    fn read_end(&self, cursor: ByteCursor<'_>) -> ScanResult<(usize, FrameworkVerdict)> {
        let mut cursor = cursor;
        cursor.literal(b"<OverallResultsAsserts successes=\"")?;
        cursor.number()?;
        cursor.literal(b"\" failures=\"")?;
        let failed = cursor.number()?;
        let rest = cursor.until(b"/>\n", 200)?;
        let seconds = attribute(rest, "duration").and_then(|text| text.parse().ok());
        let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let result = match attribute(rest, "test_case_success").as_deref() {
            Some("true") => FrameworkResult::Passed,
            Some("false") => FrameworkResult::Failed,
            Some(_) => return Err(ScanStop::Mismatch),
            None => self.result_by_decorators(failed, seconds),
        };
        cursor.literal(b"    </TestCase>\n")?;
        Ok((cursor.used(), FrameworkVerdict::new(result, duration)))
    }

    /// Returns the result of a test, given the number of failed assertions and the duration in seconds.
    /// doctest before 2.4.7 does not report the result.
    fn result_by_decorators(&self, failed: u64, seconds: Option<f64>) -> FrameworkResult {
        let decorator = |name: &str| attribute(&self.decorators, name);
        let limit: Option<f64> = decorator("timeout").and_then(|text| text.parse().ok());
        let is_late = limit.zip(seconds).is_some_and(|(limit, seconds)| limit > 0.0 && seconds > limit);
        let has_failure = failed > 0 || !self.failures.is_empty() || is_late;
        let expected: Option<u64> = decorator("expected_failures").and_then(|text| text.parse().ok());
        let is_passed = if decorator("should_fail").is_some() {
            has_failure
        } else if has_failure && decorator("may_fail").is_some() {
            true
        } else {
            expected.filter(|expected| *expected > 0).map_or(!has_failure, |expected| expected == failed)
        };
        if is_passed { FrameworkResult::Passed } else { FrameworkResult::Failed }
    }

    /// Reads the end of the document.
    fn read_last(cursor: ByteCursor<'_>) -> ReadMarker {
        let mut cursor = cursor;
        cursor.literal(b"<OverallResultsAsserts successes=\"")?;
        cursor.number()?;
        cursor.literal(b"\" failures=\"")?;
        cursor.number()?;
        cursor.literal(b"\"/>\n  <OverallResultsTestCases successes=\"")?;
        cursor.number()?;
        cursor.literal(b"\" failures=\"")?;
        cursor.number()?;
        let rest = cursor.until(b"/>\n", 200)?;
        if !rest.starts_with(b"\"") {
            return Err(ScanStop::Mismatch);
        }
        cursor.literal(b"</doctest>\n")?;
        Ok((cursor.used(), Marker::FinalLine(None)))
    }

    /// Reads elements around tests that carry no information.
    fn read_frame(cursor: ByteCursor<'_>) -> ReadMarker {
        const FRAMES: [&[u8]; 5] = [b"</TestSuite>\n", b"<TestSuite", b"<?xml ", b"<doctest ", b"<Options "];
        let mut cursor = cursor;
        if cursor.one_of(&FRAMES)? > 0 {
            let attributes = cursor.until(b">\n", TAG_BYTES)?;
            if attributes.contains(&b'<') {
                return Err(ScanStop::Mismatch);
            }
        }
        Ok((cursor.used(), Marker::Ignore))
    }

    /// Reads the elements of a test outside this batch.
    fn read_other_test(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        if let Some((used, verdict)) = found(self.read_end(cursor))? {
            self.failed_others += u64::from(verdict.result == FrameworkResult::Failed);
            return Ok((used, Marker::Ignore));
        }
        read_unselected_begin(cursor)
    }

    fn read_subcase(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        let mut cursor = cursor;
        if cursor.one_of(&[b"<SubCase", b"</SubCase>\n"])? == 1 {
            let path = self.subcase_path();
            let Some((_, has_failed)) = self.subcases.pop() else { return Err(ScanStop::Mismatch) };
            if self.is_crashing {
                return Ok((cursor.used(), Marker::Ignore));
            }
            let result = if has_failed { FrameworkResult::Failed } else { FrameworkResult::Passed };
            let part = TestPart { name: path, result: Some(result), message: None };
            return Ok((cursor.used(), Marker::Part(part)));
        }
        let attributes = cursor.until(b">\n", TAG_BYTES)?;
        if !attributes.starts_with(b" ") || attributes.contains(&b'<') || self.subcases.len() >= SUBCASE_DEPTH
        {
            return Err(ScanStop::Mismatch);
        }
        self.subcases.push((attribute(attributes, "name").unwrap_or_default(), false));
        let part = TestPart { name: self.subcase_path(), result: None, message: None };
        Ok((cursor.used(), Marker::Part(part)))
    }

    fn subcase_path(&self) -> String {
        self.subcases.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" > ")
    }

    fn read_report(&mut self, cursor: ByteCursor<'_>) -> ReadMarker {
        let mut expression = cursor;
        if let Some(element) = found(read_element(&mut expression, "Expression", &EXPRESSION_CHILDREN))? {
            return Ok((expression.used(), self.on_expression(&element)));
        }
        let mut message = cursor;
        if let Some(element) = found(read_element(&mut message, "Message", &MESSAGE_CHILDREN))? {
            return Ok((message.used(), self.on_message(&element)));
        }
        let mut exception = cursor;
        let element = read_element(&mut exception, "Exception", &[])?;
        self.on_exception(&element);
        Ok((exception.used(), Marker::Ignore))
    }

    fn on_expression(&mut self, element: &XmlElement<'_>) -> Marker {
        let kind = attribute(element.attributes, "type").unwrap_or_default();
        if attribute(element.attributes, "success").as_deref() == Some("true") {
            return Marker::Ignore;
        }
        let mut text =
            format!("{kind}( {} ) is NOT correct!", child_texts(element.body, "Original").join(", "));
        let label = [
            ("Expanded", "values"),
            ("Exception", "threw"),
            ("ExpectedException", "instead of"),
            ("ExpectedExceptionString", "instead of the text"),
            ("Info", "logged"),
        ];
        for (name, label) in label {
            for value in child_texts(element.body, name) {
                text.push_str(&format!("\n  {label}: {value}"));
            }
        }
        let thrown = child_texts(element.body, "Exception").into_iter().next();
        let expected = ["ExpectedException", "ExpectedExceptionString"]
            .into_iter()
            .find_map(|name| child_texts(element.body, name).into_iter().next());
        let values = child_texts(element.body, "Expanded").into_iter().next();
        let sides = values.as_deref().and_then(equality_sides);
        let sides = sides.map(|(actual, expected)| (expected.to_owned(), actual.to_owned()));
        let (expected, actual) = expected.zip(thrown).or(sides).unzip();
        let failure = Failure { message: Some(text), expected, actual, ..Failure::default() };
        self.report(element, kind.starts_with("WARN"), "WARNING", failure)
    }

    fn on_message(&mut self, element: &XmlElement<'_>) -> Marker {
        let kind = attribute(element.attributes, "type").unwrap_or_default();
        let mut text = child_texts(element.body, "Text").join("\n");
        for value in child_texts(element.body, "Info") {
            text.push_str(&format!("\n  logged: {value}"));
        }
        let failure = Failure { message: Some(text), ..Failure::default() };
        self.report(element, kind == "WARNING", "MESSAGE", failure)
    }

    /// Records a failure. A warning that does not fail the test becomes a line of output.
    fn report(
        &mut self,
        element: &XmlElement<'_>,
        is_harmless: bool,
        label: &str,
        failure: Failure,
    ) -> Marker {
        let file = attribute(element.attributes, "filename");
        let line = attribute(element.attributes, "line");
        if is_harmless {
            let (file, line) = (file.unwrap_or_default(), line.unwrap_or_default());
            let text = failure.message.unwrap_or_default();
            return Marker::Text(format!("{file}:{line}: {label}: {text}\n").into_bytes());
        }
        self.fail(Failure { file, line: line.and_then(|line| line.parse().ok()), ..failure });
        Marker::Ignore
    }

    fn fail(&mut self, failure: Failure) {
        self.subcases.iter_mut().for_each(|(_, has_failed)| *has_failed = true);
        let path = self.subcase_path();
        let mut message = failure.message.unwrap_or_default();
        if !path.is_empty() {
            message.push_str(&format!("\n  in subcase: {path}"));
        }
        self.failures.push(Failure { message: Some(message), ..failure });
    }

    fn on_exception(&mut self, element: &XmlElement<'_>) {
        if attribute(element.attributes, "crash").as_deref() == Some("true") {
            self.is_crashing = true;
            return;
        }
        let message = Some(format!("threw: {}", unescape(element.body.trim_ascii())));
        self.fail(Failure { message, ..Failure::default() });
    }
}

/// Reads the start of an unselected test: neither filters nor positions select additional tests.
fn read_unselected_begin(cursor: ByteCursor<'_>) -> ReadMarker {
    let mut cursor = cursor;
    cursor.literal(b"<TestCase")?;
    let attributes = cursor.until(b">\n", TAG_BYTES)?;
    let is_whole = attributes.ends_with(b"/");
    if !attributes.starts_with(b" ") || is_whole || attribute(attributes, "line").is_none() {
        return Err(ScanStop::Mismatch);
    }
    let name = attribute(attributes, "name").unwrap_or_else(|| UNNAMED.to_owned());
    Ok((cursor.used(), Marker::Unselected(name)))
}

/// Returns the element, `None` if it is another element, or an error if more bytes are needed.
fn found<T>(read: ScanResult<T>) -> ScanResult<Option<T>> {
    match read {
        Ok(element) => Ok(Some(element)),
        Err(ScanStop::Mismatch) => Ok(None),
        Err(ScanStop::NeedsMore) => Err(ScanStop::NeedsMore),
    }
}

impl MarkerGrammar for DoctestGrammar {
    fn find_marker(&self, bytes: &[u8], _situation: &ParserState<'_>) -> Option<usize> {
        memchr::memchr2(b' ', b'<', bytes)
    }

    fn read_marker(&mut self, at: &[u8], situation: &ParserState<'_>) -> ReadMarker {
        if situation.is_complete {
            return Err(ScanStop::Mismatch);
        }
        let indentation = at.iter().take(INDENTATION_BYTES + 1).take_while(|byte| **byte == b' ').count();
        let mut cursor = ByteCursor::new(at);
        cursor.advance(indentation);
        match cursor.rest().first() {
            None if indentation <= INDENTATION_BYTES => return Err(ScanStop::NeedsMore),
            Some(b'<') if indentation <= INDENTATION_BYTES => {}
            None | Some(_) => return Err(ScanStop::Mismatch),
        }
        if situation.running.is_none() {
            let begin = either(Self::read_frame(cursor), || self.read_begin(at, cursor, situation));
            let last = either(begin, || Self::read_last(cursor));
            return either(last, || self.read_other_test(cursor));
        }
        let end = self.read_end(cursor).map(|(used, verdict)| {
            (used, if self.is_crashing { Marker::Ignore } else { Marker::End(verdict) })
        });
        let own = either(end, || either(self.read_subcase(cursor), || self.read_report(cursor)));
        if self.is_crashing {
            let last = || Self::read_last(cursor).map(|(used, _)| (used, Marker::Ignore));
            return either(own, || either(Self::read_frame(cursor), last));
        }
        if !situation.has_end {
            return own;
        }
        let frame = either(own, || Self::read_frame(cursor));
        let next =
            either(frame, || either(self.read_begin(at, cursor, situation), || Self::read_last(cursor)));
        either(next, || read_unselected_begin(cursor))
    }

    fn on_begin(&mut self, _place: usize) {
        self.decorators = std::mem::take(&mut self.next_decorators);
        self.failures = AssertionFailures::default();
        self.subcases.clear();
    }

    fn complete_verdict(&mut self, verdict: &mut FrameworkVerdict, _name: &[u8]) {
        let failures = std::mem::take(&mut self.failures);
        if verdict.result != FrameworkResult::Failed {
            return;
        }
        failures.add_to(verdict);
        if verdict.failures.is_empty() {
            let message = match attribute(&self.decorators, "timeout") {
                _ if attribute(&self.decorators, "should_fail").is_some() => {
                    "should have failed but did not".to_owned()
                }
                Some(limit) => format!("exceeded the timeout of its decorator: {limit} s"),
                None => "no assertion failed, but its decorators mark it as failed".to_owned(),
            };
            verdict.push_failure(Failure { message: Some(message), ..Failure::default() });
        }
    }

    fn explains_exit(
        &self,
        code: i32,
        reported: &FrameworkCounts,
        _counted: Option<&FrameworkCounts>,
    ) -> bool {
        let has_failed = reported.failed > 0 || self.failed_others > 0;
        match code {
            0 => !has_failed,
            1 => has_failed,
            _ => false,
        }
    }
}
