//! Size limit for the messages of one verdict.

use heeler_adapters::FrameworkVerdict;

use crate::results::output_capture::truncate_text;

/// Minimum size limit of messages, even if the output limit is smaller.
const MIN_MESSAGE_LIMIT_BYTES: u64 = 64 << 10;

/// Truncates the reason and the failure messages, which share one limit: the output limit, but at least
/// `MIN_MESSAGE_LIMIT_BYTES`.
pub(super) fn truncate_messages(verdict: &mut FrameworkVerdict, output_bytes: u64) {
    let mut room = output_bytes.max(MIN_MESSAGE_LIMIT_BYTES);
    let messages = verdict.failures.iter_mut().map(|failure| &mut failure.message);
    for message in messages.chain([&mut verdict.reason]) {
        *message = message.take().map(|text| truncate_text(text, room));
        let size = message.as_ref().map_or(0, |text| text.len() as u64);
        room = room.saturating_sub(size);
    }
}
