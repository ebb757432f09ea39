//! Parser of libtest's human-readable lines, from one thread: `test NAME ... `, the test's own output, then
//! `ok` or `FAILED`. The end is a mere word, so it counts only if the next test or the end of the run follows
//! at once.

use wire::{control::ListedTest, mtp::ExecutionState};

use super::events::explains;
use crate::adapter::{
    Verdict,
    follow::{Follower, Grammar, Marker, Situation, Tally},
    scan::{Cursor, Step, Stop, either, spell},
    sequence::Sequence,
};

const DOTS: &[u8] = b" ... ";
/// Notes after the names of tests that should panic, and of documentation tests.
const NOTES: [&[u8]; 4] = [b" - should panic ... ", b" - compile fail ... ", b" - compile ... ", DOTS];
const ENDS: [(&[u8], ExecutionState); 2] =
    [(b"ok\n", ExecutionState::Passed), (b"FAILED\n", ExecutionState::Failed)];
const REASON_BYTES: usize = 4096;

/// Returns the parser for a run of these tests.
pub(in crate::adapter) fn follow(tests: &[&ListedTest]) -> Follower<Lines> {
    let sequence = Sequence::new(tests.iter().map(|test| test.name.clone().into_bytes()));
    Follower::new(Lines { is_over: false }, sequence)
}

/// State beside the expected sequence.
pub(in crate::adapter) struct Lines {
    /// The run's summary has begun: it contains no tests.
    is_over: bool,
}

impl Lines {
    fn read_begin(at: &[u8], situation: &Situation<'_>) -> Step<(usize, Marker)> {
        let mut cursor = Cursor::new(at);
        cursor.literal(b"test ")?;
        let sequence = situation.sequence;
        let expected = sequence.expected().map_or(Err(Stop::No), |place| {
            let mut cursor = cursor;
            cursor.name(sequence.name(place))?;
            notes(&mut cursor)?;
            Ok((cursor.used(), Marker::Begin(place)))
        });
        either(expected, || {
            if !situation.is_line_start {
                return Err(Stop::No);
            }
            let mut found = Err(Stop::No);
            for note in NOTES {
                found = either(found, || Self::read_later(cursor, sequence, note));
            }
            found
        })
    }

    /// Reads the begin of any test that has not begun, whose name is at the cursor and then this note.
    fn read_later(cursor: Cursor<'_>, sequence: &Sequence, note: &[u8]) -> Step<(usize, Marker)> {
        let mut line = cursor;
        let name = spell(line.until(note, sequence.longest_line())?);
        let (place, _) = sequence.find(name.trim_end().as_bytes(), cursor, b"")?;
        Ok((line.used(), Marker::Begin(place)))
    }

    fn read_end(at: &[u8]) -> Step<(usize, Marker)> {
        let mut cursor = Cursor::new(at);
        let state = ENDS[cursor.one_of(&ENDS.map(|(text, _)| text))?].1;
        Ok((cursor.used(), Marker::End(Verdict::new(state, None))))
    }

    fn read_ignored(at: &[u8]) -> Step<(usize, Marker)> {
        let mut cursor = Cursor::new(at);
        cursor.literal(b"ignored")?;
        let reason = match cursor.one_of(&[b"\n", b", "])? {
            0 => None,
            _ => Some(spell(cursor.until(b"\n", REASON_BYTES)?)),
        };
        let mut verdict = Verdict::new(ExecutionState::Skipped, None);
        verdict.message = reason;
        Ok((cursor.used(), Marker::End(verdict)))
    }

    /// Reads the blank line before the summary.
    fn read_close(&mut self, at: &[u8]) -> Step<(usize, Marker)> {
        let mut cursor = Cursor::new(at);
        cursor.one_of(&[b"\nfailures:\n", b"\ntest result: "])?;
        self.is_over = true;
        Ok((1, Marker::Close))
    }

    fn read_last(at: &[u8]) -> Step<(usize, Marker)> {
        let mut cursor = Cursor::new(at);
        cursor.literal(b"test result: ")?;
        cursor.one_of(&[b"ok. ", b"FAILED. "])?;
        let passed = cursor.number()?;
        cursor.literal(b" passed; ")?;
        let failed = cursor.number()?;
        cursor.literal(b" failed; ")?;
        let skipped = cursor.number()?;
        cursor.literal(b" ignored; ")?;
        Ok((cursor.used(), Marker::Last(Some(Tally { passed, failed, skipped }))))
    }
}

/// Reads the note between a name and the test's output; harnesses that imitate libtest align it.
fn notes(cursor: &mut Cursor<'_>) -> Step<()> {
    while cursor.rest().starts_with(b"  ") {
        cursor.advance(1);
    }
    cursor.one_of(&NOTES).map(|_| ())
}

impl Grammar for Lines {
    fn find(&self, bytes: &[u8], situation: &Situation<'_>) -> Option<usize> {
        match (situation.in_flight, situation.has_end) {
            (None, _) => memchr::memchr2(b't', b'\n', bytes),
            (Some(_), false) => memchr::memchr3(b'o', b'F', b'i', bytes),
            (Some(_), true) => bytes.iter().position(|byte| b"oFit\n".contains(byte)),
        }
    }

    fn read(&mut self, at: &[u8], situation: &Situation<'_>) -> Step<(usize, Marker)> {
        if situation.is_complete {
            return Err(Stop::No);
        }
        let last = || if situation.is_line_start { Self::read_last(at) } else { Err(Stop::No) };
        if self.is_over {
            return last();
        }
        let own = match situation.in_flight {
            Some(_) => either(Self::read_end(at), || Self::read_ignored(at)),
            None => Err(Stop::No),
        };
        if !situation.is_free() {
            return own;
        }
        let begin = either(own, || Self::read_begin(at, situation));
        either(begin, || if situation.is_line_start { self.read_close(at) } else { Err(Stop::No) })
    }

    fn explains(&self, code: i32, told: &Tally, counted: Option<&Tally>) -> bool {
        explains(code, told, counted)
    }
}
