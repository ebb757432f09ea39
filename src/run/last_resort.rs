//! Finishes a run on the main connection, when no watchdog can be had: the same steps as the watchdog's, from the same
//! journals.

use std::path::Path;

use bytes::Bytes;
use wire::{
    control::{JournalledResult, WorkerId, journal_name},
    journal::{self, Record},
    mtp::{Attachment, RawChange, attachments_frame, completion_frame, updates_frame},
};

use super::{RunPlan, groups};

/// So many changes go into one frame.
const CHANGES_PER_FRAME: usize = 500;

/// Returns the terminal results of a worker's journal; none when there is no journal that can be read.
pub(super) fn settled(run_dir: &Path, worker: WorkerId) -> Vec<JournalledResult> {
    records(run_dir, worker).into_iter().map(|(result, _)| result).collect()
}

fn records(run_dir: &Path, worker: WorkerId) -> Vec<(JournalledResult, Vec<u8>)> {
    let Ok(bytes) = std::fs::read(run_dir.join(journal_name(worker))) else { return Vec::new() };
    let (records, damage) = journal::read(&bytes);
    if let Some(damage) = damage {
        tracing::warn!(%worker, %damage, "a journal could not be read to its end");
    }
    records
        .into_iter()
        .filter_map(|record| match record {
            Record::Settled { result, change } => Some((result, change)),
            Record::Started(_) | Record::Held { .. } => None,
        })
        .collect()
}

/// Sends what is due and the completion.
///
/// Cancel safe: no, because a part may be sent.
pub(super) async fn finish(
    plan: &RunPlan,
    client: &link::Outbox,
    resend: Vec<(WorkerId, u64)>,
    (told, attachments): (&[RawChange], &[Attachment]),
) {
    let groups = groups::due(plan, resend.len() + told.len());
    let raw = groups.iter().chain(told).map(|change| change.as_bytes().to_vec());
    let mut changes: Vec<Vec<u8>> = raw.collect();
    for (worker, proven) in resend {
        let proven = usize::try_from(proven).unwrap_or(usize::MAX);
        changes.extend(records(&plan.run_dir, worker).into_iter().skip(proven).map(|(_, change)| change));
    }
    let updates = changes
        .chunks(CHANGES_PER_FRAME)
        .map(|chunk| updates_frame(&plan.run, chunk.iter().map(Vec::as_slice)));
    let files = Some(attachments.to_vec()).filter(|files| !files.is_empty());
    let files = files.map(|files| attachments_frame(&plan.run, Some(files)));
    let files = files.into_iter().chain([attachments_frame(&plan.run, None)]);
    let files = files.filter(|_| plan.has_attachments_stream);
    let frames: Vec<Bytes> = updates.chain(files).chain([completion_frame(&plan.run)]).collect();
    for frame in frames {
        if client.send(frame).await.is_err() {
            tracing::warn!("the client left before its run was completed");
            return;
        }
    }
}
