//! Attributes the standard outputs of one process to its tests. Reports, standard output and standard error
//! arrive on three streams and are read in any order. Between two tests, the program writes a fence to both
//! outputs: a line with a nonce and a number. Fences restore the order.
//!
//! A report with a fence number is passed on when both outputs have been read up to that fence. Output after
//! the fence of the last begin that was passed on waits for the next report.

use std::collections::VecDeque;

use crate::TranscriptEvent;

/// Byte before the nonce of a fence.
const FENCE_START: u8 = 0x1e;
/// Maximum number of digits in a fence.
const MAX_DIGITS: usize = 19;
/// Maximum number of bytes and of reports that may wait. More only wait if fences never arrive. From then on
/// nothing waits, and output belongs to the test that is running when the output is read.
const MAX_WAITING_BYTES: usize = 4 << 20;
const MAX_WAITING_REPORTS: usize = 1 << 16;

/// A report that waits for its fence.
#[derive(Debug)]
enum WaitingReport {
    /// Emits the event. A begin opens the span after its fence. An end does not, because that output belongs
    /// to the next test.
    Event(TranscriptEvent),
    /// The request is done, so the following output belongs to no test.
    Done,
}

/// One of the two outputs.
#[derive(Debug, Default)]
struct FencedOutput {
    /// Bytes that may be the start of a fence.
    unread: Vec<u8>,
    /// Number of fences read.
    fences: u64,
    /// Output, with the number of fences before it.
    waiting: VecDeque<(u64, Vec<u8>)>,
}

/// The two outputs of a process, and the reports that wait for their fences.
#[derive(Debug, Default)]
pub(crate) struct DividedOutputs {
    /// Prefix of each fence; `None` until the program has reported its nonce.
    fence: Option<Vec<u8>>,
    outputs: [FencedOutput; 2],
    reports: VecDeque<(u64, WaitingReport)>,
    /// Output after this fence is emitted at once.
    open_span: u64,
    waiting_bytes: usize,
    is_without_fences: bool,
}

impl DividedOutputs {
    /// Sets the nonce. Only the first call has an effect.
    pub(crate) fn set_nonce(&mut self, nonce: &str) {
        let fence = || [&[FENCE_START], nonce.as_bytes(), b" "].concat();
        if !nonce.is_empty() {
            self.fence.get_or_insert_with(fence);
        }
    }

    pub(crate) fn has_nonce(&self) -> bool {
        self.fence.is_some()
    }

    /// Adds the event of a report after this fence; `None` means the fence of the previous report.
    pub(crate) fn push_event(&mut self, fence: Option<u64>, event: TranscriptEvent) {
        if let TranscriptEvent::Part { part, .. } = &event {
            self.waiting_bytes += part.name.len() + part.message.as_ref().map_or(0, String::len);
        }
        self.push_report(fence, WaitingReport::Event(event));
    }

    /// Adds the end of a request.
    pub(crate) fn push_done(&mut self, fence: Option<u64>) {
        self.push_report(fence, WaitingReport::Done);
    }

    fn push_report(&mut self, fence: Option<u64>, report: WaitingReport) {
        let before = self.reports.back().map_or(self.open_span, |(fence, _)| *fence);
        self.reports.push_back((fence.unwrap_or(before).max(before), report));
    }

    /// Adds what was read from standard output and standard error.
    pub(crate) fn push_outputs(&mut self, stdout: &[u8], stderr: &[u8]) {
        for (output, bytes) in self.outputs.iter_mut().zip([stdout, stderr]) {
            output.unread.extend_from_slice(bytes);
            self.waiting_bytes += bytes.len();
            if let Some(fence) = &self.fence {
                output.find_fences(fence);
            }
        }
    }

    pub(crate) fn has_waiting_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Passes on all reports and output that need not wait.
    pub(crate) fn pass_on(&mut self, events: &mut Vec<TranscriptEvent>) {
        if self.waiting_bytes > MAX_WAITING_BYTES || self.reports.len() > MAX_WAITING_REPORTS {
            self.is_without_fences = true;
        }
        let read = self.outputs.iter().map(|output| output.fences).min().unwrap_or_default();
        let reached = if self.is_without_fences { u64::MAX } else { read };
        while let Some((fence, report)) = self.reports.pop_front_if(|(fence, _)| *fence <= reached) {
            // Output before this fence belongs to the test that ends here.
            self.pass_on_outputs(|span| span < fence, events);
            match report {
                WaitingReport::Event(event) => {
                    if matches!(event, TranscriptEvent::Begun { .. }) {
                        self.open_span = fence;
                    }
                    events.push(event);
                }
                WaitingReport::Done => self.open_span = fence,
            }
        }
        let open_span = if self.is_without_fences { u64::MAX } else { self.open_span };
        self.pass_on_outputs(|span| span <= open_span, events);
        let waiting = |output: &FencedOutput| {
            output.unread.len() + output.waiting.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
        };
        if self.reports.is_empty() {
            self.waiting_bytes = self.outputs.iter().map(waiting).sum();
        }
    }

    /// Stops waiting for fences. Called after a report that follows all fences: if reports are still waiting,
    /// the program must have replaced its output descriptors.
    pub(crate) fn expect_no_fences(&mut self) {
        self.is_without_fences |= self.has_waiting_reports();
    }

    /// Passes on everything after the end of the process.
    pub(crate) fn finish(&mut self, events: &mut Vec<TranscriptEvent>) {
        for output in &mut self.outputs {
            let rest = std::mem::take(&mut output.unread);
            output.keep(rest);
        }
        self.is_without_fences = true;
        self.pass_on(events);
    }

    fn pass_on_outputs(&mut self, is_due: impl Fn(u64) -> bool, events: &mut Vec<TranscriptEvent>) {
        let kinds: [fn(Vec<u8>) -> TranscriptEvent; 2] =
            [TranscriptEvent::Output, TranscriptEvent::ErrorOutput];
        for (output, event) in self.outputs.iter_mut().zip(kinds) {
            if self.is_without_fences && self.fence.is_none() {
                let rest = std::mem::take(&mut output.unread);
                output.keep(rest);
            }
            while let Some((_, bytes)) = output.waiting.pop_front_if(|(span, _)| is_due(*span)) {
                events.push(event(bytes));
            }
        }
    }
}

impl FencedOutput {
    /// Removes the fences from the unread bytes, and keeps a possible start of a fence unread.
    fn find_fences(&mut self, fence: &[u8]) {
        let bytes = std::mem::take(&mut self.unread);
        let mut rest = bytes.as_slice();
        while let Some(at) = memchr::memchr(FENCE_START, rest) {
            let (before, from) = rest.split_at(at);
            self.keep_slice(before);
            match read_fence(fence, from) {
                FenceRead::Fence { number, length } if number == self.fences.saturating_add(1) => {
                    self.fences = number;
                    rest = &from[length..];
                }
                FenceRead::Incomplete => {
                    self.unread = from.to_vec();
                    return;
                }
                // Not a fence: a test may write this byte.
                FenceRead::Fence { .. } | FenceRead::Other => {
                    self.keep_slice(&from[..1]);
                    rest = &from[1..];
                }
            }
        }
        self.keep_slice(rest);
    }

    fn keep_slice(&mut self, bytes: &[u8]) {
        match self.waiting.back_mut() {
            Some((span, waiting)) if *span == self.fences => waiting.extend_from_slice(bytes),
            _ => self.keep(bytes.to_vec()),
        }
    }

    fn keep(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.waiting.push_back((self.fences, bytes));
        }
    }
}

enum FenceRead {
    Fence {
        number: u64,
        length: usize,
    },
    /// The bytes may be the start of a fence.
    Incomplete,
    Other,
}

/// Reads bytes that start with `FENCE_START`.
fn read_fence(fence: &[u8], bytes: &[u8]) -> FenceRead {
    let Some(rest) = bytes.strip_prefix(fence) else {
        return if fence.starts_with(bytes) { FenceRead::Incomplete } else { FenceRead::Other };
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse().ok());
    match (rest.get(digits), number) {
        (None, _) if digits <= MAX_DIGITS => FenceRead::Incomplete,
        (Some(b'\n'), Some(number)) => FenceRead::Fence { number, length: fence.len() + digits + 1 },
        _ => FenceRead::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameworkResult, FrameworkVerdict};

    fn ended(place: usize) -> TranscriptEvent {
        TranscriptEvent::Ended { place, verdict: FrameworkVerdict::new(FrameworkResult::Passed, None) }
    }

    /// Renders events, joining consecutive output of the same stream.
    fn shown(events: &[TranscriptEvent]) -> String {
        let mut text = String::new();
        for event in events {
            text.push_str(&match event {
                TranscriptEvent::Begun { place } => format!("<{place}"),
                TranscriptEvent::Ended { place, .. } => format!("{place}>"),
                TranscriptEvent::Output(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                TranscriptEvent::ErrorOutput(bytes) => format!("!{}", String::from_utf8_lossy(bytes)),
                TranscriptEvent::Part { part, .. } => format!("({})", part.name),
                other => panic!("{other:?}"),
            });
        }
        text
    }

    fn divided() -> DividedOutputs {
        let mut divided = DividedOutputs::default();
        divided.set_nonce("n");
        divided
    }

    fn pass_on(divided: &mut DividedOutputs, stdout: &str, stderr: &str) -> String {
        let mut events = Vec::new();
        divided.push_outputs(
            stdout.replace('~', "\u{1e}n ").as_bytes(),
            stderr.replace('~', "\u{1e}n ").as_bytes(),
        );
        divided.pass_on(&mut events);
        shown(&events)
    }

    #[test]
    fn output_that_is_read_too_early_waits_for_its_test() {
        let mut divided = divided();
        assert_eq!(pass_on(&mut divided, "start~1\na", "~1\n"), "start");
        divided.push_event(Some(1), TranscriptEvent::Begun { place: 0 });
        assert_eq!(pass_on(&mut divided, "b", ""), "<0ab");
        assert_eq!(pass_on(&mut divided, "c~2\nd", ""), "c");
        divided.push_event(Some(2), ended(0));
        assert_eq!(pass_on(&mut divided, "", "e"), "!e", "its end waits for the other output");
        assert_eq!(pass_on(&mut divided, "", "~2\nf"), "0>", "the next beginning was not read");
        divided.push_event(Some(2), TranscriptEvent::Begun { place: 1 });
        assert_eq!(pass_on(&mut divided, "", ""), "<1d!f");
        divided.push_event(Some(3), ended(1));
        divided.push_done(Some(3));
        assert_eq!(pass_on(&mut divided, "~3\nafter", "~3\n"), "1>after");
    }

    #[test]
    fn fence_is_found_wherever_it_is_cut() {
        let text = "a\u{1e}\u{1e}n 7\nb\u{1e}n 1\nc\u{1e}n 2x\u{1e}nn\u{1e}n 2\nd".as_bytes();
        let replay = |pieces: &[&[u8]]| {
            let mut divided = divided();
            divided.push_event(Some(1), TranscriptEvent::Begun { place: 0 });
            divided.push_event(Some(2), ended(0));
            divided.push_done(Some(2));
            let mut events = Vec::new();
            divided.push_outputs(b"", "\u{1e}n 1\n\u{1e}n 2\n".as_bytes());
            for piece in pieces {
                divided.push_outputs(piece, b"");
                divided.pass_on(&mut events);
            }
            divided.finish(&mut events);
            shown(&events)
        };
        let whole = "a\u{1e}\u{1e}n 7\nb<0c\u{1e}n 2x\u{1e}nn0>d";
        assert_eq!(replay(&[text]), whole);
        for cut in 0..text.len() {
            let (head, tail) = text.split_at(cut);
            assert_eq!(replay(&[head, tail]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn output_before_the_nonce_waits_for_it() {
        let mut divided = DividedOutputs::default();
        assert_eq!(pass_on(&mut divided, "start~1\na", ""), "");
        divided.set_nonce("n");
        divided.set_nonce("other");
        assert_eq!(pass_on(&mut divided, "", ""), "start");
    }

    #[test]
    fn nothing_waits_after_the_end_of_the_process() {
        let mut divided = divided();
        divided.push_event(Some(1), TranscriptEvent::Begun { place: 0 });
        divided.push_event(Some(2), ended(0));
        divided.push_outputs("x\u{1e}n 1\ny\u{1e}n".as_bytes(), b"z");
        let mut events = Vec::new();
        divided.finish(&mut events);
        assert_eq!(shown(&events), "x!z<0y\u{1e}n0>");
    }

    #[test]
    fn fences_that_never_come_hold_nothing_up_for_long() {
        let mut divided = divided();
        divided.push_event(Some(1), TranscriptEvent::Begun { place: 0 });
        let (mut events, mut bytes) = (Vec::new(), 0);
        for _ in 0..100 {
            divided.push_outputs("\u{1e}n 1\n".as_bytes(), &[]);
            divided.push_outputs(&[b'x'; 1 << 16], &[]);
            divided.pass_on(&mut events);
            for event in events.drain(..) {
                if let TranscriptEvent::Output(output) = event {
                    bytes += output.len();
                }
            }
            assert!(divided.waiting_bytes <= MAX_WAITING_BYTES + (2 << 16));
        }
        assert!(divided.is_without_fences && bytes >= 99 << 16, "{bytes}");
    }
}
