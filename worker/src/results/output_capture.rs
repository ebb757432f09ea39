//! Captured output with limited size: keeps head and tail, and inserts a note with the number of bytes cut.

use std::{borrow::Cow, collections::VecDeque};

/// Captured output of one stream of one test. Memory stays within the limit, no matter how much is printed.
#[derive(Debug, Default)]
pub(crate) struct OutputCapture {
    head_limit: usize,
    tail_limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total_bytes: u64,
}

impl OutputCapture {
    /// Creates a capture that keeps `limit_bytes`: half at the head, half at the tail.
    pub(crate) fn with_limit(limit_bytes: u64) -> Self {
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        Self { head_limit: limit / 2, tail_limit: limit - limit / 2, ..Self::default() }
    }

    /// Creates a capture that keeps only the last `limit_bytes`.
    pub(crate) fn tail_only(limit_bytes: usize) -> Self {
        Self { tail_limit: limit_bytes, ..Self::default() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total_bytes == 0
    }

    /// Discards the contents but keeps the memory for the next test.
    pub(crate) fn clear(&mut self) {
        self.head.clear();
        self.tail.clear();
        self.total_bytes = 0;
    }

    /// Returns the captured output as text, with a note in the middle if bytes were cut.
    pub(crate) fn text(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let (front, back) = self.tail.as_slices();
        if self.total_bytes == (self.head.len() + self.tail.len()) as u64 {
            // Head and tail are contiguous, and a character may span the boundary.
            return String::from_utf8_lossy(&[&self.head, front, back].concat()).into_owned();
        }
        let tail = [front, back].concat();
        let (head, tail) = (trim_partial_end(&self.head), trim_partial_start(&tail));
        let cut_bytes = self.total_bytes - (head.len() + tail.len()) as u64;
        format!("{}{}{}", printable(head), truncation_note(cut_bytes, !head.is_empty()), printable(tail))
    }
}

/// Truncates text captured by a framework in the same way.
pub(crate) fn truncate_text(text: String, limit_bytes: u64) -> String {
    if text.len() as u64 <= limit_bytes {
        return text;
    }
    let mut capture = OutputCapture::with_limit(limit_bytes);
    capture.push(text.as_bytes());
    capture.text()
}

fn truncation_note(cut_bytes: u64, has_head: bool) -> String {
    let start = if has_head { "\n" } else { "" };
    format!("{start}[... {cut_bytes} bytes cut ...]\n")
}

fn printable(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Removes the first bytes of a character whose other bytes were cut.
fn trim_partial_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// Removes the last bytes of a character whose first bytes were cut.
fn trim_partial_start(bytes: &[u8]) -> &[u8] {
    let torn = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    &bytes[torn..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_output_is_kept_whole() {
        let mut capture = OutputCapture::with_limit(10);
        capture.push("0123".as_bytes());
        capture.push("é567".as_bytes());
        assert_eq!(capture.text(), "0123é567");
        assert!(!capture.is_empty());
        capture.clear();
        assert_eq!(capture.text(), "");
        assert!(capture.is_empty());
    }

    #[test]
    fn long_output_is_cut_in_the_middle() {
        let mut capture = OutputCapture::with_limit(10);
        capture.push(b"head!");
        for _ in 0..100 {
            capture.push(b"0123456789");
        }
        capture.push(b"tail!");
        assert_eq!(capture.text(), "head!\n[... 1000 bytes cut ...]\ntail!");
    }

    #[test]
    fn split_character_leaves_no_replacement_mark() {
        let mut capture = OutputCapture::with_limit(8);
        capture.push("aaaé".as_bytes());
        capture.push(&[b'x'; 20]);
        capture.push("éaaa".as_bytes());
        assert_eq!(capture.text(), "aaa\n[... 24 bytes cut ...]\naaa");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let mut capture = OutputCapture::with_limit(100);
        capture.push(b"a\xff\xfeb");
        assert_eq!(capture.text(), "a\u{fffd}\u{fffd}b");
    }

    #[test]
    fn tail_capture_keeps_only_last_bytes() {
        let mut capture = OutputCapture::tail_only(4);
        capture.push(b"0123456789");
        assert_eq!(capture.text(), "[... 6 bytes cut ...]\n6789");
    }

    #[test]
    fn only_texts_over_the_limit_are_truncated() {
        assert_eq!(truncate_text("abc".into(), 3), "abc");
        assert_eq!(truncate_text("abcdef".into(), 2), "a\n[... 4 bytes cut ...]\nf");
    }

    proptest! {
        #[test]
        fn capture_is_bounded_and_keeps_both_ends(
            chunks in proptest::collection::vec(proptest::collection::vec(b'a'..=b'z', 0..30), 0..30),
            limit in 0_u64..64,
        ) {
            let mut capture = OutputCapture::with_limit(limit);
            for chunk in &chunks {
                capture.push(chunk);
            }
            let all = chunks.concat();
            prop_assert!(capture.head.len() as u64 + capture.tail.len() as u64 <= limit);
            let half = usize::try_from(limit).unwrap() / 2;
            let text = capture.text();
            if all.len() as u64 <= limit {
                prop_assert_eq!(text.as_bytes(), &all[..]);
            } else {
                let rest = usize::try_from(limit).unwrap() - half;
                prop_assert!(text.as_bytes().starts_with(&all[..half]));
                prop_assert!(text.as_bytes().ends_with(&all[all.len() - rest..]));
            }
        }
    }
}
