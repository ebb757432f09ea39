//! Fallback finish on the main connection, when no watchdog can be started: the same updates as the
//! watchdog's, from the same journals. The client's session sends it.

use bytes::Bytes;
use heeler_protocol::{
    control::FinishRequest,
    mtp::{Attachment, attachments_frame, completion_frame},
};
use heeler_recovery::{JournalFile, finish};

use super::RunPlan;

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
pub(super) fn pending_updates(request: &FinishRequest) -> FallbackFinish {
    let mut changes = finish::group_changes(request);
    for resend in &request.resend {
        let journal = JournalFile::read_worker(request.run_dir.as_path(), resend.worker);
        if let Some(damage) = journal.damage() {
            tracing::warn!(damage, "a journal could not be read to its end");
        }
        changes.extend(finish::resent_results(request, resend, &journal).changes);
    }
    changes.extend(finish::synthesized_changes(request));
    let attachments = request.has_attachments_stream.then(|| request.attachments.clone());
    FallbackFinish { run_id: request.run.id.clone(), changes, attachments }
}

/// Returns the final frames of a run in order: updates, attachments and their terminator (`None` for a client
/// that does not read them), completion.
pub(crate) fn end_frames(run: &str, changes: &[Vec<u8>], attachments: Option<&[Attachment]>) -> Vec<Bytes> {
    let updates = finish::update_frames(run, changes).into_iter().map(|frame| frame.bytes);
    let files = attachments.filter(|files| !files.is_empty());
    let files = files.map(|files| attachments_frame(run, Some(files.to_vec())));
    let terminator = attachments.map(|_| attachments_frame(run, None));
    updates.chain(files).chain(terminator).chain([completion_frame(run)]).collect()
}
