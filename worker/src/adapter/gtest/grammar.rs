//! Parser of GoogleTest's markers on standard output.

use std::time::Duration;

use wire::{control::ListedTest, mtp::ExecutionState};

use super::{
    command::is_vague,
    failure::{Block, Blocks, complete},
};
use crate::adapter::{
    Verdict,
    follow::{Follower, Grammar, Marker, Rest, Side, Situation, Tally},
    scan::{Cursor, Step, Stop, common, either, spell},
    sequence::Sequence,
};

const BEGIN: &[u8] = b"[ RUN      ] ";
const ENDS: [(&[u8], ExecutionState); 3] = [
    (b"[       OK ] ", ExecutionState::Passed),
    (b"[  FAILED  ] ", ExecutionState::Failed),
    (b"[  SKIPPED ] ", ExecutionState::Skipped),
];
const SUITE: &[u8] = b"[----------] ";
const RUN: &[u8] = b"[==========] ";
const FILTER_NOTE: &[u8] = b"Note: Google Test filter = ";

/// Returns the parser for a run of these tests.
pub(in crate::adapter) fn follow(tests: &[&ListedTest]) -> Follower<Markers> {
    let sequence = Sequence::new(tests.iter().map(|test| test.name.clone().into_bytes()));
    Follower::new(Markers::new(tests), sequence)
}

/// State beside the expected sequence.
pub(in crate::adapter) struct Markers {
    files: Vec<Option<String>>,
    /// Blocks of the running test up to its end marker, after that, and outside of any test.
    test: Blocks,
    after: Blocks,
    outside: Blocks,
    first_outside: Option<String>,
    /// The reason of skips without a reason of their own: the environment, or the suite, failed to set up.
    failed_environment: Option<String>,
    failed_suite: Option<String>,
    /// Tests run that are not of this batch: patterns select more than names do, and names may occur twice.
    has_uninvited: bool,
    has_started: bool,
    is_timed: bool,
    is_suite_over: bool,
    summary: Summary,
}

/// The counts that GoogleTest prints after its final line. It prints no count of failed tests when there are
/// none.
#[derive(Debug, Default)]
struct Summary {
    passed: Option<u64>,
    failed: Option<u64>,
}

impl Markers {
    fn new(tests: &[&ListedTest]) -> Self {
        Self {
            files: tests.iter().map(|test| test.file.clone()).collect(),
            test: Blocks::default(),
            after: Blocks::outside(),
            outside: Blocks::outside(),
            first_outside: None,
            failed_environment: None,
            failed_suite: None,
            has_uninvited: tests.iter().any(|test| is_vague(&test.name)),
            has_started: false,
            is_timed: true,
            is_suite_over: false,
            summary: Summary::default(),
        }
    }

    fn read_begin(&mut self, at: &[u8], situation: &Situation<'_>) -> Step<(usize, Marker)> {
        let mut cursor = Cursor::new(at);
        cursor.literal(BEGIN)?;
        let sequence = situation.sequence;
        let expected = sequence.expected().map_or(Err(Stop::No), |place| {
            let mut cursor = cursor;
            cursor.name(sequence.name(place))?;
            cursor.literal(b"\n")?;
            Ok((cursor.used(), Marker::Begin(place)))
        });
        either(expected, || {
            // On a line with other output before it, only the next expected test may begin.
            if !situation.is_line_start {
                return Err(Stop::No);
            }
            let mut line = cursor;
            let line = line.until(b"\n", sequence.longest_line())?;
            let line = spell(line);
            let found = sequence.find(line.as_bytes(), cursor, b"\n");
            self.has_uninvited |= found == Err(Stop::No) && situation.in_flight.is_none();
            found.map(|(place, used)| (used, Marker::Begin(place)))
        })
    }

    fn read_end(&mut self, at: &[u8], name: &[u8]) -> Step<(usize, Marker)> {
        let mut cursor = Cursor::new(at);
        let state = ENDS[cursor.one_of(&ENDS.map(|(text, _)| text))?].1;
        cursor.name(name)?;
        let duration = match cursor.one_of(&[b"\n", b" (", b", where "])? {
            0 => None,
            1 => {
                let duration = cursor.number()?;
                cursor.literal(b" ms)\n")?;
                Some(Duration::from_millis(duration))
            }
            _ if state == ExecutionState::Failed => {
                self.is_timed = true;
                let rest = Parameters { text: at[..cursor.used()].to_vec(), last: Vec::new() };
                return Ok((cursor.used(), Marker::Open(Box::new(rest))));
            }
            _ => return Err(Stop::No),
        };
        self.is_timed = duration.is_some();
        Ok((cursor.used(), Marker::End(Verdict::new(state, duration))))
    }

    /// Reads the end of a suite. With a test running it must be the test's own suite: a test that forges an
    /// end marker is not confirmed by just any dashed line.
    fn read_suite_end(at: &[u8], in_flight: &[u8]) -> Step<(usize, Marker)> {
        let mut cursor = Cursor::new(at);
        cursor.literal(SUITE)?;
        let count = cursor.number()?;
        cursor.noun(b" test", count)?;
        cursor.literal(b" from ")?;
        let (used, of_name) = common(cursor.rest(), in_flight);
        if used == cursor.rest().len() {
            return Err(Stop::Partial);
        }
        if in_flight.get(of_name) != Some(&b'.') {
            return Err(Stop::No);
        }
        cursor.advance(used);
        cursor.literal(b" (")?;
        cursor.number()?;
        cursor.literal(b" ms total)\n")?;
        Ok((cursor.used(), Marker::Close))
    }

    fn read_last(at: &[u8]) -> Step<(usize, Marker)> {
        let mut cursor = Cursor::new(at);
        cursor.literal(RUN)?;
        let tests = cursor.number()?;
        cursor.noun(b" test", tests)?;
        cursor.literal(b" from ")?;
        let suites = cursor.number()?;
        // Suites were called cases before 1.10.
        cursor.one_of(&[b" test suite", b" test case"])?;
        cursor.noun(b"", suites)?;
        cursor.literal(b" ran.")?;
        Ok((cursor.used(), Marker::Last(None)))
    }

    fn hear_line(summary: &mut Summary, line: &[u8]) {
        let count = |line: &[u8]| Cursor::new(line).number().ok();
        if let Some(line) = line.strip_prefix(b"[  PASSED  ] ") {
            summary.passed = summary.passed.or(count(line));
        } else if let Some(line) = line.strip_prefix(b"[  FAILED  ] ") {
            summary.failed = summary.failed.or(count(line).filter(|_| line.ends_with(b", listed below:")));
        }
    }

    fn note_outside(&mut self) {
        self.outside.finish();
        let Some(block) = self.outside.failure.take() else { return };
        let text = in_words(&block);
        self.first_outside.get_or_insert_with(|| text.clone());
        if block.is_before_suites {
            self.failed_environment = Some(text);
        } else {
            self.failed_suite = Some(text);
        }
    }
}

impl Grammar for Markers {
    fn find(&self, bytes: &[u8], _situation: &Situation<'_>) -> Option<usize> {
        if self.has_started { memchr::memchr(b'[', bytes) } else { memchr::memchr2(b'[', b'N', bytes) }
    }

    fn read(&mut self, at: &[u8], situation: &Situation<'_>) -> Step<(usize, Marker)> {
        if situation.is_complete {
            return Err(Stop::No);
        }
        if at.first() == Some(&b'N') {
            // The filter of a large batch is as long as all its names.
            let is_possible = situation.is_line_start && !self.has_started;
            let mut cursor = Cursor::new(at);
            if is_possible {
                cursor.literal(FILTER_NOTE)?
            } else {
                return Err(Stop::No);
            }
            return Ok((cursor.used(), Marker::Open(Box::new(Line))));
        }
        let Some(place) = situation.in_flight else {
            let marker = either(self.read_begin(at, situation), || Self::read_last(at));
            self.has_started |= marker.is_ok() || at.starts_with(RUN);
            return marker;
        };
        let name = situation.sequence.name(place);
        let end = self.read_end(at, name);
        if !situation.has_end {
            return end;
        }
        let last = |at| if self.is_timed { Err(Stop::No) } else { Self::read_last(at) };
        let suite_end = Self::read_suite_end(at, name);
        self.is_suite_over = suite_end.is_ok();
        let goes_on = either(suite_end, || last(at));
        either(end, || either(goes_on, || self.read_begin(at, situation)))
    }

    fn begin(&mut self, place: usize) {
        self.note_outside();
        self.test = Blocks::new(self.files[place].clone());
    }

    fn observe(&mut self, bytes: &[u8], side: Side) {
        match side {
            Side::Test => self.test.take(bytes, |_| {}),
            Side::AfterEnd => self.after.take(bytes, |_| {}),
            Side::Outside => {
                let summary = &mut self.summary;
                self.outside.take(bytes, |line| Self::hear_line(summary, line));
            }
        }
    }

    fn end(&mut self) {
        let after = std::mem::replace(&mut self.after, Blocks::outside());
        self.test.absorb(after);
    }

    fn settle(&mut self, verdict: &mut Verdict) {
        self.test.finish();
        complete(verdict, &self.test);
        // The output after the end marker was written by the suite's tear-down.
        let mut after = std::mem::replace(&mut self.after, Blocks::outside());
        after.finish();
        if verdict.state == ExecutionState::Skipped && verdict.message.is_none() {
            // A suite or environment that failed to set up skips its tests without a reason.
            let reason = self.failed_suite.as_ref().or(self.failed_environment.as_ref());
            verdict.message = reason.map(|reason| format!("not run, because set-up failed: {reason}"));
        }
        if let Some(block) = after.failure {
            self.first_outside.get_or_insert_with(|| in_words(&block));
        }
        if std::mem::take(&mut self.is_suite_over) {
            self.failed_suite = None;
        }
    }

    fn last(&mut self) {
        self.note_outside();
    }

    fn blanket(&mut self) -> Option<Verdict> {
        self.outside.skip.as_ref()?;
        let mut verdict = Verdict::new(ExecutionState::Skipped, None);
        complete(&mut verdict, &self.outside);
        // GoogleTest counts these as passed.
        self.has_uninvited = true;
        Some(verdict)
    }

    fn explains(&self, code: i32, told: &Tally, _counted: Option<&Tally>) -> bool {
        let agrees = |counted: Option<u64>, told: u64| match counted {
            Some(counted) if self.has_uninvited => counted >= told || told == 0,
            Some(counted) => counted == told,
            None => true,
        };
        let failed = self.summary.failed.unwrap_or(0).max(told.failed);
        // A `main` that drops the framework's return value exits with 0 whatever has failed.
        self.outside_failure().is_none()
            && agrees(self.summary.passed, told.passed)
            && agrees(self.summary.failed, told.failed)
            && match code {
                0 => failed == 0,
                1 => failed > 0,
                _ => false,
            }
    }

    fn outside_failure(&self) -> Option<&str> {
        self.first_outside.as_deref()
    }
}

fn in_words(block: &Block) -> String {
    let text = block.text().unwrap_or_else(|| "Failure".to_owned());
    match (&block.file, block.line) {
        (Some(file), Some(line)) => format!("{file}:{line}: {text}"),
        _ => text,
    }
}

/// The rest of `[  FAILED  ] A.b/0, where GetParam() = ... (3 ms)`. A value may be long, and contain
/// anything.
struct Parameters {
    text: Vec<u8>,
    /// Enough of the line to recognize its end.
    last: Vec<u8>,
}

const TEXT_BYTES: usize = 64 * 1024;
const END_BYTES: usize = 40;

impl Parameters {
    fn keep(&mut self, piece: &[u8]) {
        let room = TEXT_BYTES.saturating_sub(self.text.len());
        self.text.extend_from_slice(&piece[..piece.len().min(room)]);
        self.last.extend_from_slice(&piece[piece.len().saturating_sub(END_BYTES)..]);
        let excess = self.last.len().saturating_sub(END_BYTES);
        self.last.drain(..excess);
    }

    fn duration(&self) -> Option<Duration> {
        let line = self.last.strip_suffix(b" ms)\n")?;
        let open = memchr::memrchr(b'(', line)?;
        let digits = std::str::from_utf8(&line[open + 1..]).ok()?;
        let is_number = line[..open].ends_with(b" ") && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { digits.parse().ok().map(Duration::from_millis) } else { None }
    }
}

impl Rest for Parameters {
    fn feed(&mut self, bytes: &[u8]) -> Option<(usize, Marker)> {
        let mut used = 0;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            used += piece.len();
            self.keep(piece);
            if let Some(duration) = self.duration() {
                let verdict = Verdict::new(ExecutionState::Failed, Some(duration));
                return Some((used, Marker::End(verdict)));
            }
        }
        None
    }

    fn give_up(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        self.text.len() + self.last.len()
    }
}

/// The rest of a line that is dropped.
struct Line;

impl Rest for Line {
    fn feed(&mut self, bytes: &[u8]) -> Option<(usize, Marker)> {
        memchr::memchr(b'\n', bytes).map(|end| (end + 1, Marker::Noise))
    }

    fn give_up(&mut self) -> Vec<u8> {
        Vec::new()
    }

    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        0
    }
}
