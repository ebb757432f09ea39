//! Journals that are cut, zeroed and damaged at every offset.

use heeler_core::{
    Attempt, DiagnosticsFile, Failure, FixturePhase, LeaseId, LogLine, NextRun, NotRunReason, Outcome,
    ProcessEnd, ProcessStart, ProcessUsage, ProgramFailure, RunRecord, SetUpProgress, SuiteFixture, TestId,
    TestResult, TestStart,
};

use super::*;

fn sample_records() -> Vec<JournalRecord> {
    let result = TestResult {
        duration_us: Some(1_234_567_890_123),
        stdout: "x".repeat(200),
        failures: vec![Failure { line: Some(7), ..Failure::default() }],
        ..TestResult::with_reason(Outcome::NotRun(NotRunReason::ProgramGivenUp { deaths: 3 }), "why")
    };
    let events = [
        RunRecord::Started(TestStart { test: TestId(3), started_ms: 1 << 40, is_again: false }),
        RunRecord::Finished { test: TestId(3), result: TestResult::new(Outcome::Passed) },
        RunRecord::Provisional {
            test: TestId(9),
            attempt: Attempt { stderr: "e".into(), duration_us: 5, ..Attempt::new(Outcome::Failed, "m") },
            next: NextRun::Isolated,
        },
        RunRecord::FilesKept(vec![DiagnosticsFile { path: "/f".into(), description: "d".into() }]),
        RunRecord::SetUp { fixture: "f".into(), progress: SetUpProgress::Done },
        RunRecord::FixtureFailed {
            fixture: SuiteFixture { suite: "s".into(), phase: FixturePhase::TearDown },
            message: "m".into(),
        },
        RunRecord::Leaked { tests: vec![TestId(6)], processes: Vec::new() },
        RunRecord::Log(LogLine::warning(Some(TestId(7)), "w".into())),
        RunRecord::Finished { test: TestId(4), result },
        RunRecord::ProgramFailed(ProgramFailure {
            suite: "s".into(),
            program: "/bin/p".into(),
            fixture: None,
            message: "m".into(),
        }),
        RunRecord::ProcessStarted(ProcessStart {
            pid: 9,
            lease: LeaseId(4),
            suite: "s".into(),
            tests: 2,
            started_ms: 1,
        }),
        RunRecord::ProcessEnded(ProcessEnd {
            pid: 9,
            ended_ms: 5,
            first_test_ms: Some(2),
            last_test_ms: None,
            tests: 2,
            test: None,
            usage: Some(ProcessUsage::default()),
            exit: None,
        }),
    ];
    let end =
        RunEnd { duration_ms: 7, stopped_by: Some(NotRunReason::TimeLimitReached), ..RunEnd::default() };
    events.map(JournalRecord::Event).into_iter().chain([JournalRecord::Ended(Box::new(end))]).collect()
}

fn append(out: &mut Vec<u8>, record: &JournalRecord) {
    match record {
        JournalRecord::Event(event) => write(out, event),
        JournalRecord::Ended(end) => write_end(out, end),
    }
}

fn sample_bytes() -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for record in sample_records() {
        append(&mut out, &record);
    }
    out
}

/// Returns the offsets of all records and of the end.
fn record_offsets() -> Vec<usize> {
    let mut out = MAGIC.to_vec();
    let mut places = vec![out.len()];
    for record in sample_records() {
        append(&mut out, &record);
        places.push(out.len());
    }
    places
}

#[test]
fn truncated_journal_keeps_whole_records_and_names_torn_offset() {
    let (bytes, places) = (sample_bytes(), record_offsets());
    for cut in 0..=bytes.len() {
        let reading = read(&bytes[..cut]);
        let whole = places.iter().rposition(|place| *place <= cut).unwrap_or(0);
        let torn = match cut {
            0 => None,
            cut if cut < MAGIC.len() => Some(0),
            cut => Some(places[whole] as u64).filter(|place| *place < cut as u64),
        };
        let expected =
            JournalContent { records: sample_records()[..whole].to_vec(), torn_at: torn, damage: None };
        assert_eq!(reading, expected, "cut at {cut}");
    }
}

#[test]
fn trailing_zeros_are_torn_not_damaged() {
    let (bytes, places) = (sample_bytes(), record_offsets());
    for written in 0..=bytes.len() {
        let mut zeroed = bytes.clone();
        zeroed[written..].fill(0);
        zeroed.extend([0; 700]);
        let reading = read(&zeroed);
        assert_eq!(reading.records, sample_records()[..reading.records.len()], "written up to {written}");
        if written >= MAGIC.len() || written == 0 {
            let whole = places.iter().rposition(|place| *place <= written).unwrap_or(0);
            assert_eq!(reading.damage, None, "written up to {written}");
            // The missing part may have been zeros anyway.
            assert!(reading.records.len() >= whole, "written up to {written}");
            assert!(reading.torn_at.is_some(), "written up to {written}");
        }
    }
}

#[test]
fn flipped_bit_is_damage_with_record_offset() {
    let (whole, places) = (sample_bytes(), record_offsets());
    for place in MAGIC.len()..places[places.len() - 2] {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x55;
        let reading = read(&bytes);
        let record = places.iter().rposition(|begin| *begin <= place).unwrap();
        assert_eq!(reading.records, sample_records()[..record], "turned at {place}");
        let offset = places[record] as u64;
        assert!(
            matches!(&reading.damage, Some(JournalError::Damaged { offset: at, .. }) if *at == offset),
            "turned at {place}: {reading:?}"
        );
    }
}

/// Input that yields one byte at a time.
struct SlowInput<'a>(&'a [u8]);

impl std::io::Read for SlowInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
        buffer[0] = *first;
        self.0 = rest;
        Ok(1)
    }
}

#[test]
fn record_is_read_again_from_its_place() {
    let (bytes, places) = (sample_bytes(), record_offsets());
    let mut reader = JournalReader::new(SlowInput(&bytes));
    for (number, record) in sample_records().into_iter().enumerate() {
        let located = reader.next_record().unwrap().unwrap();
        let (begin, end) = (places[number], places[number + 1]);
        let place = RecordPlace { offset: begin as u64, length: (end - begin) as u64 };
        assert_eq!(located, LocatedRecord { record: record.clone(), place });
        assert_eq!(read_record(&bytes[begin..end]), Some(record));
        assert_eq!(read_record(&bytes[begin..end - 1]), None);
        assert_eq!(read_record(&bytes[begin..=end.min(bytes.len() - 1)]).is_some(), end == bytes.len());
    }
    assert_eq!(reader.next_record().unwrap(), None);
    assert_eq!(reader.into_ending(), JournalEnding::default());
}

#[test]
fn foreign_files_and_other_versions_are_refused() {
    assert_eq!(read(b"something else entirely").damage, Some(JournalError::Magic));
    assert_eq!(read(b"heeler-journal x\n").damage, Some(JournalError::Magic));
    for (text, found) in [("heeler-journal 1\n", "1"), ("heeler-journal 31\nwhat", "31")] {
        let damage = read(text.as_bytes()).damage.unwrap();
        assert_eq!(damage, JournalError::Version { found: found.into() });
        let words =
            format!("it has format version {found}, but this version of Heeler reads version {VERSION}");
        assert_eq!(damage.to_string(), words);
    }
}
