//! The limit of the messages of one verdict.

use heeler_adapters::FrameworkVerdict;

use crate::results::output_capture::truncate_text;

/// The minimum size limit of an error message, however small the limit for output is.
const MIN_MESSAGE_LIMIT_BYTES: u64 = 64 << 10;

/// Truncates the reason and the failure messages, which have one limit together: that of outputs, if it is
/// not very small.
pub(super) fn truncate_messages(verdict: &mut FrameworkVerdict, output_bytes: u64) {
    let mut room = output_bytes.max(MIN_MESSAGE_LIMIT_BYTES);
    let messages = verdict.failures.iter_mut().map(|failure| &mut failure.message);
    for message in messages.chain([&mut verdict.reason]) {
        *message = message.take().map(|text| truncate_text(text, room));
        let size = message.as_ref().map_or(0, |text| text.len() as u64);
        room = room.saturating_sub(size);
    }
}
