//! Composes the end of a run from a finish request and the journals, as frames in order: groups, resent
//! results, synthesized results, program failures, attachments, completion.

use bytes::Bytes;
use heeler_core::{TestId, TestResult};
use heeler_protocol::{
    control::{
        FRAME_LIMIT_BYTES, FRAME_LIMIT_UPDATES, FinishRequest, JournalResend, KnownResult, UpdateEncoding,
    },
    mtp::{GroupDescription, NodeDescription, attachments_frame},
};

use crate::JournalFile;

/// A frame of updates.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateFrame {
    pub bytes: Bytes,
    /// Number of changes in the frame.
    pub changes: usize,
}

/// Results of one worker that are sent again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResentResults {
    /// JSON of each change.
    pub changes: Vec<Vec<u8>>,
    /// Number of results missing from the journals; they are sent without their details.
    pub lost: usize,
}

/// Returns the changes of the groups that contain the tests to send.
#[must_use]
pub fn group_changes(finish: &FinishRequest) -> Vec<Vec<u8>> {
    let encoding = finish.route.encoding;
    if !encoding.has_groups() || (finish.resend.is_empty() && finish.synthesized.is_empty()) {
        return Vec::new();
    }
    let change = |group: GroupDescription<'_>| {
        let client_members = finish.client_members.get(group.uid);
        let mut change = Vec::new();
        encoding.append_group(&mut change, &GroupDescription { client_members, ..group });
        change
    };
    finish.descriptions.described_groups().map(change).collect()
}

/// Returns a worker's results that are sent again, read from its journal.
#[must_use]
pub fn resent_results(
    finish: &FinishRequest,
    resend: &JournalResend,
    journal: &JournalFile,
) -> ResentResults {
    let proven = usize::try_from(resend.proven).unwrap_or(usize::MAX);
    let journalled = journal.finished().count() as u64;
    let mut changes: Vec<_> =
        journal.finished().skip(proven).filter_map(|(test, result)| render(finish, test, result)).collect();
    let missing: Vec<_> = resend
        .known
        .iter()
        .filter(|known| known.position > journalled)
        .filter_map(|known| render(finish, known.test, &known_result(known)))
        .collect();
    let lost = missing.len();
    changes.extend(missing);
    ResentResults { changes, lost }
}

/// Returns the result of a test whose journal entry is lost, from the worker's report to the coordinator.
fn known_result(known: &KnownResult) -> TestResult {
    if known.outcome.is_failure() {
        let reason = "the message and output are lost, because the journal could not be written";
        return TestResult::with_reason(known.outcome, reason);
    }
    TestResult::new(known.outcome)
}

/// Returns the changes of the synthesized results, then of the failed programs.
#[must_use]
pub fn synthesized_changes(finish: &FinishRequest) -> Vec<Vec<u8>> {
    let results = finish.synthesized.iter().filter_map(|due| render(finish, due.test, &due.result));
    let programs = finish.program_failures.iter().map(|failure| {
        let mut change = Vec::new();
        finish.route.encoding.append_program_failure(&mut change, failure);
        change
    });
    results.chain(programs).collect()
}

fn render(finish: &FinishRequest, test: TestId, result: &TestResult) -> Option<Vec<u8>> {
    let mut change = Vec::new();
    let rendered = finish.descriptions.with_test(test, |test| {
        let client_members = finish.client_members.get(test.uid);
        let test = NodeDescription { client_members, ..*test };
        finish.route.encoding.append_finished(&mut change, &test, result);
    });
    if rendered.is_none() {
        tracing::error!(test = test.0, "dropped a result, because its test is not part of the run");
    }
    rendered.map(|()| change)
}

/// Splits changes into frames.
#[must_use]
pub fn update_frames(encoding: UpdateEncoding, run: &str, changes: &[Vec<u8>]) -> Vec<UpdateFrame> {
    let mut frames = Vec::new();
    let mut rest = changes;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |change: &&Vec<u8>| {
            bytes += change.len();
            bytes <= FRAME_LIMIT_BYTES
        };
        let count = rest.iter().take(FRAME_LIMIT_UPDATES).take_while(fits).count().max(1);
        let (frame, later) = rest.split_at(count);
        let bytes = encoding.frame(run, frame.iter().map(Vec::as_slice));
        frames.push(UpdateFrame { bytes, changes: count });
        rest = later;
    }
    frames
}

/// Returns all frames of a finish that the client still lacks, in order: updates, attachments, completion.
/// Splits them exactly as the watchdog does, because only the number of frames already sent is known.
/// Logs damaged journals.
#[must_use]
pub fn frames(finish: &FinishRequest) -> Vec<Bytes> {
    let mut parts = Vec::new();
    for resend in &finish.resend {
        let journal = JournalFile::read_worker(finish.run_dir.as_path(), resend.worker);
        if let Some(damage) = journal.damage() {
            tracing::warn!(damage, "a journal is damaged; its remaining records are lost");
        }
        parts.push(resent_results(finish, resend, &journal).changes);
    }
    // Add the synthesized results, and skip the frames that were already sent.
    parts.push(synthesized_changes(finish));
    let encoding = finish.route.encoding;
    let divide = |changes: &Vec<Vec<u8>>| update_frames(encoding, &finish.run.id, changes);
    let groups = divide(&group_changes(finish));
    let count = |frames: u64| usize::try_from(frames).unwrap_or(usize::MAX);
    let sent = count(finish.sent_frames.max(finish.relayed_frames)).saturating_sub(groups.len());
    let updates = parts.iter().flat_map(divide).map(|frame| frame.bytes);
    let completion = encoding.completion(&finish.run.id);
    let due = updates.chain(attachment_frames(finish)).skip(sent).chain([completion]);
    // Groups are sent once on each connection, so skip only those already relayed on the main connection.
    groups.into_iter().map(|frame| frame.bytes).skip(count(finish.relayed_frames)).chain(due).collect()
}

/// Returns the frames of the attachments and their end; empty for a client that does not read attachments.
#[must_use]
pub fn attachment_frames(finish: &FinishRequest) -> Vec<Bytes> {
    if !finish.has_attachments_stream {
        return Vec::new();
    }
    let files = finish.attachments.chunks(FRAME_LIMIT_UPDATES);
    let files = files.map(|files| attachments_frame(&finish.run.id, Some(files.to_vec())));
    files.chain([attachments_frame(&finish.run.id, None)]).collect()
}
