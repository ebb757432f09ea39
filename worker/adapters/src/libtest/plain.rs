//! Parser of libtest's human-readable output from one thread: `test NAME ... `, the test's own output, then
//! `ok` or `FAILED`. The end marker is a plain word, so it counts only if the next test or the end of the run
//! follows directly.

use heeler_protocol::control::ListedTest;

use super::events::counts_explain_exit;
use crate::{
    FrameworkResult, FrameworkVerdict,
    expected_tests::ExpectedTests,
    scan::{ByteCursor, ScanResult, ScanStop, decode_lossy, either},
    stream_parser::{FrameworkCounts, Marker, MarkerGrammar, ParserState, StreamParser},
};

const DOTS: &[u8] = b" ... ";
/// Notes after the names of documentation tests and of tests that should panic.
const NOTES: [&[u8]; 4] = [b" - should panic ... ", b" - compile fail ... ", b" - compile ... ", DOTS];
const ENDS: [(&[u8], FrameworkResult); 2] =
    [(b"ok\n", FrameworkResult::Passed), (b"FAILED\n", FrameworkResult::Failed)];
const REASON_BYTES: usize = 4096;

pub(crate) fn plain_parser(tests: &[&ListedTest]) -> StreamParser<PlainGrammar> {
    let sequence = ExpectedTests::new(tests.iter().map(|test| test.name.clone().into_bytes()));
    StreamParser::new(PlainGrammar::default(), sequence)
}

/// Returns whether a line outside any test is libtest's own.
pub(crate) fn is_own_line(line: &[u8]) -> bool {
    let own: [&[u8]; 5] = [b"running ", b"test result: ", b"failures:", b"successes:", b"    "];
    own.iter().any(|own| line.starts_with(own))
}

/// Parser state in addition to the expected sequence.
#[derive(Default)]
pub(crate) struct PlainGrammar {
    /// The summary of the run has begun; no tests follow.
    is_over: bool,
}

impl PlainGrammar {
    fn read_begin(at: &[u8], situation: &ParserState<'_>) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(b"test ")?;
        let sequence = situation.sequence;
        let expected = sequence.next_expected().map_or(Err(ScanStop::Mismatch), |place| {
            let mut cursor = cursor;
            cursor.name(sequence.name(place))?;
            read_note(&mut cursor)?;
            Ok((cursor.used(), Marker::Begin(place)))
        });
        either(expected, || {
            if !situation.is_line_start {
                return Err(ScanStop::Mismatch);
            }
            let mut found = Err(ScanStop::Mismatch);
            for note in NOTES {
                found = either(found, || Self::read_later(cursor, sequence, note));
            }
            found
        })
    }

    /// Reads the start of a test that has not begun, if its name and this note are at the cursor.
    fn read_later(
        cursor: ByteCursor<'_>,
        sequence: &ExpectedTests,
        note: &[u8],
    ) -> ScanResult<(usize, Marker)> {
        let mut line = cursor;
        let name = decode_lossy(line.until(note, sequence.longest_line())?);
        let (place, _) = sequence.find(name.trim_end().as_bytes(), cursor, b"")?;
        Ok((line.used(), Marker::Begin(place)))
    }

    fn read_end(at: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        let state = ENDS[cursor.one_of(&ENDS.map(|(text, _)| text))?].1;
        Ok((cursor.used(), Marker::End(FrameworkVerdict::new(state, None))))
    }

    fn read_ignored(at: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(b"ignored")?;
        let reason = match cursor.one_of(&[b"\n", b", "])? {
            0 => None,
            _ => Some(decode_lossy(cursor.until(b"\n", REASON_BYTES)?)),
        };
        let mut verdict = FrameworkVerdict::new(FrameworkResult::Skipped, None);
        verdict.reason = reason;
        Ok((cursor.used(), Marker::End(verdict)))
    }

    /// Reads the blank line before the summary.
    fn read_close(&mut self, at: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.one_of(&[b"\nfailures:\n", b"\ntest result: "])?;
        self.is_over = true;
        Ok((1, Marker::Confirm))
    }

    fn read_last(at: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(b"test result: ")?;
        cursor.one_of(&[b"ok. ", b"FAILED. "])?;
        let passed = cursor.number()?;
        cursor.literal(b" passed; ")?;
        let failed = cursor.number()?;
        cursor.literal(b" failed; ")?;
        let skipped = cursor.number()?;
        cursor.literal(b" ignored; ")?;
        Ok((cursor.used(), Marker::FinalLine(Some(FrameworkCounts { passed, failed, skipped }))))
    }
}

/// Reads the note between a name and the test's output. Harnesses that imitate libtest align it with spaces.
fn read_note(cursor: &mut ByteCursor<'_>) -> ScanResult<()> {
    while cursor.rest().starts_with(b"  ") {
        cursor.advance(1);
    }
    cursor.one_of(&NOTES).map(|_| ())
}

impl MarkerGrammar for PlainGrammar {
    fn find_marker(&self, bytes: &[u8], situation: &ParserState<'_>) -> Option<usize> {
        match (situation.running, situation.has_end) {
            (None, _) => memchr::memchr2(b't', b'\n', bytes),
            (Some(_), false) => memchr::memchr3(b'o', b'F', b'i', bytes),
            (Some(_), true) => bytes.iter().position(|byte| b"oFit\n".contains(byte)),
        }
    }

    fn read_marker(&mut self, at: &[u8], situation: &ParserState<'_>) -> ScanResult<(usize, Marker)> {
        if situation.is_complete {
            return Err(ScanStop::Mismatch);
        }
        let last = || if situation.is_line_start { Self::read_last(at) } else { Err(ScanStop::Mismatch) };
        if self.is_over {
            return last();
        }
        let own = match situation.running {
            Some(_) => either(Self::read_end(at), || Self::read_ignored(at)),
            None => Err(ScanStop::Mismatch),
        };
        if !situation.may_continue() {
            return own;
        }
        let begin = either(own, || Self::read_begin(at, situation));
        either(begin, || if situation.is_line_start { self.read_close(at) } else { Err(ScanStop::Mismatch) })
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
