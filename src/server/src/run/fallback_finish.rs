//! Fallback finish on the main connection, when no watchdog can be started: the same content as the watchdog's,
//! from the same journals. The client's session sends it.

use std::path::Path;

use bytes::Bytes;
use heeler_protocol::{
    control::{JournalResend, JournalledResult, WorkerId, journal_name},
    journal::{self, JournalContent, JournalRecord},
    mtp::{Attachment, EncodedChange, attachments_frame, completion_frame, updates_frame},
};

use super::{RunPlan, groups};

/// Maximum number of changes per frame.
const CHANGES_PER_FRAME: usize = 500;

/// Returns the terminal results of a worker's journal; none if no journal can be read.
pub(super) fn journalled_results(run_dir: &Path, worker: WorkerId) -> Vec<JournalledResult> {
    settled_records(run_dir, worker).into_iter().map(|(result, _)| result).collect()
}

fn settled_records(run_dir: &Path, worker: WorkerId) -> Vec<(JournalledResult, Vec<u8>)> {
    let Ok(bytes) = std::fs::read(run_dir.join(journal_name(worker))) else { return Vec::new() };
    let JournalContent { records, damage, .. } = journal::read(&bytes);
    if let Some(damage) = damage {
        tracing::warn!(%worker, %damage, "a journal could not be read to its end");
    }
    records
        .into_iter()
        .filter_map(|record| match record {
            JournalRecord::Settled { result, change } => Some((result, change)),
            JournalRecord::Started(_)
            | JournalRecord::Provisional { .. }
            | JournalRecord::ProgramFailure { .. }
            | JournalRecord::Ended(_) => None,
        })
        .collect()
}

/// The end of a run that the client's session sends, because no watchdog can: updates, attachments, completion.
#[derive(Debug)]
pub struct FallbackFinish {
    /// The client's run id.
    pub run_id: String,
    /// The changes, as the client's protocol encodes them.
    pub changes: Vec<Vec<u8>>,
    /// The attachments of the run; `None` for a client that does not read them.
    pub attachments: Option<Vec<Attachment>>,
}

impl FallbackFinish {
    /// Returns only the completion, for a client that is proven to have received everything before it.
    pub(super) fn completion(plan: &RunPlan) -> Self {
        Self { run_id: plan.run_id.clone(), changes: Vec::new(), attachments: None }
    }
}

/// Returns the pending changes and the completion.
pub(super) fn pending_updates(
    plan: &RunPlan,
    resend: &[JournalResend],
    synthesized: &[EncodedChange],
    attachments: Vec<Attachment>,
) -> FallbackFinish {
    let groups = groups::pending_group_changes(plan, resend.len() + synthesized.len());
    let raw = groups.iter().chain(synthesized).map(|change| change.as_bytes().to_vec());
    let mut changes: Vec<Vec<u8>> = raw.collect();
    for resend in resend {
        let journalled = settled_records(&plan.run_dir.path, resend.worker);
        let lost = resend.missing_changes(journalled.len()).map(|change| change.as_bytes().to_vec());
        let proven = usize::try_from(resend.proven).unwrap_or(usize::MAX);
        changes.extend(journalled.into_iter().skip(proven).map(|(_, change)| change).chain(lost));
    }
    let attachments = plan.has_attachments_stream.then_some(attachments);
    FallbackFinish { run_id: plan.run_id.clone(), changes, attachments }
}

/// Returns the final frames of a run in order: updates, attachments and their terminator (`None` for a client
/// that does not read them), completion.
pub(crate) fn end_frames(run: &str, changes: &[Vec<u8>], attachments: Option<&[Attachment]>) -> Vec<Bytes> {
    let updates =
        changes.chunks(CHANGES_PER_FRAME).map(|chunk| updates_frame(run, chunk.iter().map(Vec::as_slice)));
    let files = attachments.filter(|files| !files.is_empty());
    let files = files.map(|files| attachments_frame(run, Some(files.to_vec())));
    let terminator = attachments.map(|_| attachments_frame(run, None));
    updates.chain(files).chain(terminator).chain([completion_frame(run)]).collect()
}
