//! Fallback finish on the main connection, when no watchdog can be started: the same updates as the
//! watchdog's, from the same journals.

use bytes::Bytes;
use heeler_protocol::{
    control::FinishRequest,
    mtp::{attachments_frame, completion_frame},
};
use heeler_recovery::{JournalFile, finish};

/// Sends the pending updates and the completion.
///
/// Cancel safe: no, because only a part may be sent.
pub(super) async fn send_pending(client: &heeler_transport::Outbox, request: &FinishRequest) {
    let mut changes = finish::group_changes(request);
    for resend in &request.resend {
        let journal = JournalFile::read_worker(request.run_dir.as_path(), resend.worker);
        if let Some(damage) = journal.damage() {
            tracing::warn!(damage, "a journal could not be read to its end");
        }
        changes.extend(finish::resent_results(request, resend, &journal).changes);
    }
    changes.extend(finish::synthesized_changes(request));
    let updates = finish::update_frames(&request.run, &changes).into_iter().map(|frame| frame.bytes);
    let frames = updates.chain(finish::attachment_frames(request)).chain([completion_frame(&request.run)]);
    for frame in frames {
        if client.send(frame).await.is_err() {
            tracing::warn!("the client disconnected before its run was completed");
            return;
        }
    }
}

/// Sends only the completion, to a client that is proven to have received everything before it.
///
/// Cancel safe: yes, because the frame is queued in one step.
pub(super) async fn send_completion(run: &str, client: &heeler_transport::Outbox) {
    if client.send(completion_frame(run)).await.is_err() {
        tracing::warn!("the client disconnected before its run was completed");
    }
}

/// Returns the final frames of a run that never began: updates, the end of the attachments for a client that
/// reads them, completion.
pub(crate) fn end_frames(run: &str, changes: &[Vec<u8>], has_attachments_stream: bool) -> Vec<Bytes> {
    let updates = finish::update_frames(run, changes).into_iter().map(|frame| frame.bytes);
    let attachments = has_attachments_stream.then(|| attachments_frame(run, None));
    updates.chain(attachments).chain([completion_frame(run)]).collect()
}
