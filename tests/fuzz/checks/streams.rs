//! Frames, packets and journals: the result does not depend on how the bytes are split, and everything that
//! was written can be read back.

use bytes::BytesMut;
use heeler_core::{
    Attempt, DiagnosticsFile, FixturePhase, LeaseId, LogLine, NextRun, OsText, Outcome, ProcessEnd,
    ProcessStart, ProcessUsage, ProgramFailure, RunRecord, SetUpProgress, SuiteFixture, TestId, TestResult,
    TestStart,
};
use heeler_protocol::{
    StreamDecoder,
    fork_server::ForkReply,
    frame::{self, FrameDecoder},
    journal::{self, JournalContent, JournalRecord, RunEnd},
    manifest::{Manifest, ManifestHead},
    packet::{self, ControlPacket, PacketDecoder},
};

use super::pieces::pieces;

/// Maximum body size. A low limit, so that the fuzzer reaches it.
const BODY_BYTES: usize = 4096;

/// Decodes the pieces one after the other; returns the decoded items and the final error, if any.
fn decode<D: StreamDecoder>(mut decoder: D, pieces: &[&[u8]]) -> (Vec<D::Item>, Option<String>) {
    let mut buffer = BytesMut::new();
    let mut items = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => return (items, Some(error.to_string())),
            }
        }
    }
    (items, None)
}

/// Checks frames of the test protocol.
pub fn frame(bytes: &[u8]) {
    let (whole, pieces) = pieces(bytes);
    let (bodies, error) = decode(FrameDecoder::with_limit(BODY_BYTES), &[whole]);
    assert_eq!(
        decode(FrameDecoder::with_limit(BODY_BYTES), &pieces),
        (bodies.clone(), error),
        "cut otherwise"
    );
    let mut again = Vec::new();
    bodies.iter().for_each(|body| again.extend_from_slice(&frame::encode(body)));
    assert_eq!(decode(FrameDecoder::with_limit(BODY_BYTES), &[&again]), (bodies, None), "written again");
}

/// Checks packets of control connections, and responses of fork servers.
pub fn packet(bytes: &[u8]) {
    let (whole, pieces) = pieces(bytes);
    let (packets, error) = decode(PacketDecoder, &[whole]);
    assert_eq!(decode(PacketDecoder, &pieces), (packets.clone(), error), "cut otherwise");
    for one in packets {
        // `messages` checks the other packets' contents.
        if let ControlPacket::Forward { client, position, frame } = &one {
            let again = packet::forward(*client, *position, frame);
            assert_eq!(decode(PacketDecoder, &[&again]), (vec![one], None), "written again");
        }
    }
    if let Some(reply) = ForkReply::from_bytes(whole) {
        assert_eq!(reply.to_bytes(), whole);
    }
}

/// Checks journals: arbitrary bytes, and the journal of a worker that died while writing a record.
pub fn journal(bytes: &[u8]) {
    let (whole, pieces) = pieces(bytes);
    let JournalContent { records, .. } = journal::read(whole);
    let again = JournalContent { records: records.clone(), ..JournalContent::default() };
    assert_eq!(journal::read(&written(&records)), again, "written again");

    let records: Vec<_> = pieces.iter().map(|piece| record(piece)).collect();
    let file = written(&records);
    let cut = whole.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let cut = cut % (file.len() + 1);
    let JournalContent { records: read, damage, .. } = journal::read(&file[..cut]);
    assert_eq!(damage, None, "a torn tail is no damage");
    assert_eq!(read, records[..read.len()]);
    let next =
        records.get(read.len()).map(|next| written(&records[..read.len()]).len() + encoded(next).len());
    assert!(next.is_none_or(|end| end > cut), "every whole record is read");
}

/// Checks manifests: arbitrary bytes, and reading a valid manifest again.
pub fn manifest(bytes: &[u8]) {
    let head = ManifestHead::read(bytes);
    let Ok(read) = Manifest::read(bytes) else { return };
    assert_eq!(head.ok().as_ref(), Some(&read.head), "the head alone");
    let again = read.to_bytes();
    assert_eq!(Manifest::read(&again).ok(), Some(read), "written again");
    assert!(
        (0..again.len()).all(|cut| Manifest::read(&again[..cut]).is_err()),
        "a part is not taken for the whole"
    );
}

fn encoded(record: &JournalRecord) -> Vec<u8> {
    let mut out = Vec::new();
    match record {
        JournalRecord::Event(event) => journal::write(&mut out, event),
        JournalRecord::Ended(end) => journal::write_end(&mut out, end),
    }
    out
}

fn written(records: &[JournalRecord]) -> Vec<u8> {
    let mut file = journal::MAGIC.to_vec();
    records.iter().for_each(|record| file.extend(encoded(record)));
    file
}

fn record(piece: &[u8]) -> JournalRecord {
    let test = TestId(piece.len() as u32);
    let duration_us = piece.iter().map(|byte| u64::from(*byte)).sum();
    let event = match piece.first().map(|byte| byte % 12) {
        None | Some(0) => RunRecord::Started(TestStart { test, started_ms: duration_us, is_again: false }),
        Some(1) => {
            let stdout = String::from_utf8_lossy(piece).into_owned();
            let result =
                TestResult { duration_us: Some(duration_us), stdout, ..TestResult::new(Outcome::Failed) };
            RunRecord::Finished { test, result }
        }
        Some(2) => RunRecord::ProgramFailed(ProgramFailure {
            suite: "s".to_owned(),
            program: OsText::Bytes(piece.to_vec()),
            fixture: None,
            message: String::new(),
        }),
        Some(3) => {
            let ended_utc = String::from_utf8_lossy(piece).into_owned();
            return JournalRecord::Ended(Box::new(RunEnd { ended_utc, ..RunEnd::default() }));
        }
        Some(4) => RunRecord::ProcessStarted(ProcessStart {
            pid: test.0,
            lease: LeaseId(test.0),
            suite: String::from_utf8_lossy(piece).into_owned(),
            tests: 1,
            started_ms: duration_us,
        }),
        Some(5) => RunRecord::ProcessEnded(ProcessEnd {
            pid: test.0,
            ended_ms: duration_us,
            first_test_ms: Some(duration_us),
            last_test_ms: None,
            tests: 1,
            test: Some(test),
            usage: Some(ProcessUsage::default()),
            exit: None,
        }),
        Some(6) => RunRecord::FilesKept(vec![DiagnosticsFile {
            path: OsText::Bytes(piece.to_vec()),
            description: String::new(),
        }]),
        Some(7) => RunRecord::SetUp {
            fixture: String::from_utf8_lossy(piece).into_owned(),
            progress: SetUpProgress::Failed,
        },
        Some(8) => RunRecord::FixtureFailed {
            fixture: SuiteFixture {
                suite: String::from_utf8_lossy(piece).into_owned(),
                phase: FixturePhase::SetUp,
            },
            message: String::new(),
        },
        Some(9) => RunRecord::Leaked { tests: vec![test; piece.len()], processes: Vec::new() },
        Some(10) => RunRecord::Log(LogLine::warning(Some(test), String::from_utf8_lossy(piece).into_owned())),
        Some(_) => {
            let message = String::from_utf8_lossy(piece).into_owned();
            RunRecord::Provisional {
                test,
                attempt: Attempt { duration_us, ..Attempt::new(Outcome::Crashed, message) },
                next: if duration_us.is_multiple_of(2) { NextRun::Retry } else { NextRun::Isolated },
            }
        }
    };
    JournalRecord::Event(event)
}
