//! Parser of rustdoc's text output: like a libtest program, with one section for the tests that are compiled
//! together and one for the others. Only the summary of the last section ends the run.

use heeler_protocol::control::ListedTest;

use crate::{
    expected_tests::ExpectedTests,
    libtest::{PlainGrammar, counts_explain_exit},
    scan::{ByteCursor, ScanResult, ScanStop, either},
    stream_parser::{FrameworkCounts, Marker, MarkerGrammar, ParserState, StreamParser},
};

pub(super) fn rustdoc_parser(tests: &[&ListedTest]) -> StreamParser<RustdocGrammar> {
    let sequence = ExpectedTests::new(tests.iter().map(|test| test.name.clone().into_bytes()));
    StreamParser::new(RustdocGrammar { section: PlainGrammar::default() }, sequence)
}

/// Parser state in addition to the expected sequence.
pub(super) struct RustdocGrammar {
    section: PlainGrammar,
}

impl RustdocGrammar {
    /// Reads the start of another section.
    fn read_section(&mut self, at: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(b"running ")?;
        cursor.number()?;
        cursor.one_of(&[b" tests\n", b" test\n"])?;
        self.section = PlainGrammar::default();
        Ok((cursor.used(), Marker::Confirm))
    }
}

impl MarkerGrammar for RustdocGrammar {
    fn find_marker(&self, bytes: &[u8], situation: &ParserState<'_>) -> Option<usize> {
        match situation.running {
            Some(_) => self.section.find_marker(bytes, situation),
            None => bytes.iter().position(|byte| b"tr\n".contains(byte)),
        }
    }

    fn read_marker(&mut self, at: &[u8], situation: &ParserState<'_>) -> ScanResult<(usize, Marker)> {
        if situation.is_complete {
            return Err(ScanStop::Mismatch);
        }
        if situation.running.is_none() && situation.is_line_start {
            let section = self.read_section(at);
            if !matches!(section, Err(ScanStop::Mismatch)) {
                return section;
            }
        }
        let read = either(self.section.read_marker(at, situation), || Err(ScanStop::Mismatch))?;
        Ok(match read {
            // Tests of another section follow. The counts cover only one section.
            (used, Marker::FinalLine(_)) if situation.sequence.next_expected().is_some() => {
                (used, Marker::Confirm)
            }
            (used, Marker::FinalLine(_)) => (used, Marker::FinalLine(None)),
            other => other,
        })
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
