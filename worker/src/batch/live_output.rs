//! Output of running tests that is sent to the client at once. The result of the test repeats it.

use std::time::Duration;

/// Minimum time between two updates of a test's output. Ten updates a second look like a stream.
const SEND_PERIOD: Duration = Duration::from_millis(100);
/// Maximum size of the output in one update. A person who watches a running test reads no more at once, and
/// the result contains all output.
const UPDATE_LIMIT_BYTES: usize = 8 << 10;

/// Output of a running test that has not been sent to the client.
#[derive(Debug, Default)]
pub(super) struct LiveOutput {
    is_on: bool,
    unsent: Vec<u8>,
    /// Bytes cut because they exceed the limit of the next update.
    cut_bytes: u64,
    sent_at: Option<Duration>,
}

impl LiveOutput {
    /// Drops the preceding test's output.
    pub(super) fn reset(&mut self, is_on: bool) {
        self.unsent.clear();
        (self.is_on, self.cut_bytes, self.sent_at) = (is_on, 0, None);
    }

    /// Adds output. The part beyond the limit of the next update is only counted.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.is_on {
            let room = UPDATE_LIMIT_BYTES.saturating_sub(self.unsent.len());
            // Nothing is added after a cut, so the note appears where the bytes are missing.
            let taken = if self.cut_bytes == 0 { bytes.len().min(room) } else { 0 };
            self.unsent.extend_from_slice(&bytes[..taken]);
            self.cut_bytes += (bytes.len() - taken) as u64;
        }
    }

    /// Returns the running time when the next update is due, or `None` without output.
    pub(super) fn due_at(&self) -> Option<Duration> {
        let is_due = self.sendable_bytes() > 0;
        is_due.then(|| self.sent_at.map_or(Duration::ZERO, |at| at.saturating_add(SEND_PERIOD)))
    }

    /// Returns the output that is due, as text.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<String> {
        self.due_at().filter(|due| *due <= now)?;
        self.sent_at = Some(now);
        let sent: Vec<u8> = self.unsent.drain(..self.sendable_bytes()).collect();
        let mut text = String::from_utf8_lossy(&sent).into_owned();
        if self.cut_bytes > 0 {
            // A character whose last bytes were cut is cut entirely.
            let cut_bytes = std::mem::take(&mut self.cut_bytes) + self.unsent.len() as u64;
            self.unsent.clear();
            text.push_str(&format!("\n[... {cut_bytes} bytes cut ...]\n"));
        }
        Some(text)
    }

    /// Returns the length of the output, excluding an incomplete last character.
    fn sendable_bytes(&self) -> usize {
        match std::str::from_utf8(&self.unsent) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.unsent.len(),
        }
    }
}

#[cfg(test)]
mod cases {
    use super::*;

    fn live() -> LiveOutput {
        LiveOutput { is_on: true, ..LiveOutput::default() }
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn first_output_is_due_at_once_and_the_next_after_a_period() {
        let mut live = live();
        assert_eq!(live.due_at(), None);
        live.push(b"one");
        assert_eq!(live.take_due(ms(5)).as_deref(), Some("one"));
        assert_eq!(live.due_at(), None);
        live.push(b"two");
        live.push(b" three");
        assert_eq!((live.take_due(ms(104)), live.due_at()), (None, Some(ms(105))));
        assert_eq!(live.take_due(ms(105)).as_deref(), Some("two three"));
        live.push(b"old");
        live.reset(true);
        assert_eq!(live.due_at(), None);
    }

    #[test]
    fn output_beyond_the_limit_is_counted() {
        let mut live = live();
        live.push(&[b'x'; UPDATE_LIMIT_BYTES - 1]);
        live.push("éé".as_bytes());
        live.push(b"later");
        let text = live.take_due(ms(0)).unwrap();
        assert_eq!(text, format!("{}\n[... 9 bytes cut ...]\n", "x".repeat(UPDATE_LIMIT_BYTES - 1)));
        live.push(b"after");
        assert_eq!(live.take_due(ms(100)).as_deref(), Some("after"));
    }

    #[test]
    fn character_is_sent_whole() {
        let mut live = live();
        let bytes = "aé".as_bytes();
        live.push(&bytes[..2]);
        assert_eq!(live.take_due(ms(0)).as_deref(), Some("a"));
        assert_eq!(live.due_at(), None, "half a character is not due");
        live.push(&bytes[2..]);
        assert_eq!(live.take_due(ms(100)).as_deref(), Some("é"));
        live.push(b"\xff!");
        assert_eq!(live.take_due(ms(200)).as_deref(), Some("\u{fffd}!"));
    }

    #[test]
    fn nothing_is_kept_without_request() {
        let mut live = LiveOutput::default();
        live.push(b"output");
        assert!(live.unsent.is_empty() && live.due_at().is_none());
    }
}
