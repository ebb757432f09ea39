//! Limits how many updates of one stream a client may have received but not handled.
//!
//! A barrier is a request that the client answers once it has handled everything before it on the stream. The
//! opening barrier precedes the first update. No update is sent until the client answers that barrier, so
//! nothing can be late, lost or duplicated on a stream that the client never reads. Each window of updates
//! ends with a barrier. Only a few barriers may be open, because the client's own queue is bounded and the
//! run must know what the client has handled. A stream that is not opened in time is given up, and its
//! updates take another route. Updates are sent without an answer only if there is no other route.
//!
//! ```text
//! opening barrier ─► (wait) ─► answer to 1 ─► updates… ─► barrier 2 ─► updates… ─► (two are open: wait) ─► …
//! ```

use std::collections::VecDeque;

/// Sizes of windows. A frame that reaches either limit ends its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowLimits {
    /// Number of changes that ends a window.
    pub changes: usize,
    /// Number of bytes that ends a window.
    pub bytes: usize,
    /// Maximum number of open barriers while the client answers.
    pub open: usize,
}

impl Default for WindowLimits {
    /// These limits cost real clients no measurable time. They keep a client's queue below about 2,000
    /// changes.
    fn default() -> Self {
        Self { changes: 640, bytes: 256 << 10, open: 2 }
    }
}

/// Whether the client answers barriers on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnswerState {
    /// No answer has arrived: no update is sent.
    Unknown,
    /// The client answers barriers, so windows limit the updates that it has not handled.
    Answering,
    /// The client does not answer, and updates are sent without windows.
    Silent,
}

/// The windows of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AckWindow {
    limits: WindowLimits,
    answers: AnswerState,
    /// Open barriers with the number of frames before each, oldest first.
    open: VecDeque<OpenBarrier>,
    last_barrier: u64,
    sent_frames: u64,
    handled_frames: u64,
    window_changes: usize,
    window_bytes: usize,
    /// Frames sent since the last barrier.
    window_frames: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct OpenBarrier {
    number: u64,
    frames: u64,
}

impl AckWindow {
    /// Returns the windows of a new stream, before anything is sent.
    #[must_use]
    pub fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
            answers: AnswerState::Unknown,
            open: VecDeque::new(),
            last_barrier: 0,
            sent_frames: 0,
            handled_frames: 0,
            window_changes: 0,
            window_bytes: 0,
            window_frames: 0,
        }
    }

    /// Returns the barrier that opens a new stream; `None` if it has been sent.
    pub fn opening_barrier(&mut self) -> Option<u64> {
        (self.last_barrier == 0).then(|| self.open_barrier())
    }

    /// Returns whether a frame may be sent now. No frame may be sent before the stream is opened, or while
    /// the maximum number of barriers is open.
    #[must_use]
    pub fn has_room(&self) -> bool {
        match self.answers {
            AnswerState::Unknown => false,
            AnswerState::Answering => self.open.len() < self.limits.open,
            AnswerState::Silent => true,
        }
    }

    /// Records a sent frame. Returns the barrier to send after it if the frame ends a window.
    pub fn on_frame(&mut self, changes: usize, bytes: usize) -> Option<u64> {
        self.sent_frames += 1;
        self.window_frames += 1;
        self.window_changes += changes;
        self.window_bytes += bytes;
        let is_full = self.window_changes >= self.limits.changes || self.window_bytes >= self.limits.bytes;
        // A client that may not answer gets no more barriers than the limit: they would not make it answer.
        (is_full && self.open.len() < self.limits.open).then(|| self.open_barrier())
    }

    /// Returns the barrier whose answer proves that all frames are handled. `None` if an open barrier proves
    /// it, or all frames are handled already.
    pub fn final_barrier(&mut self) -> Option<u64> {
        (self.window_frames > 0).then(|| self.open_barrier())
    }

    /// Returns another barrier to send, regardless of how many are open.
    pub fn open_barrier(&mut self) -> u64 {
        self.last_barrier += 1;
        self.open.push_back(OpenBarrier { number: self.last_barrier, frames: self.sent_frames });
        (self.window_changes, self.window_bytes, self.window_frames) = (0, 0, 0);
        self.last_barrier
    }

    /// Records the answer to a barrier: the client has handled everything before it. Answers to barriers that
    /// are not open are ignored.
    pub fn on_answer(&mut self, number: u64) {
        let Some(place) = self.open.iter().position(|barrier| barrier.number == number) else { return };
        self.answers = AnswerState::Answering;
        // The client answers in order, so answers to older barriers, if any are still open, were lost.
        if let Some(answered) = self.open.drain(..=place).next_back() {
            self.handled_frames = answered.frames;
        }
    }

    /// Allows updates before the client has answered. Call this only if no other route is left, because
    /// another route would preserve the order.
    pub fn send_unopened(&mut self) {
        if self.answers == AnswerState::Unknown {
            self.answers = AnswerState::Silent;
        }
    }

    /// Records that the client has not answered in time. Updates are sent without windows until it answers
    /// again.
    pub fn on_answer_overdue(&mut self) {
        self.answers = AnswerState::Silent;
    }

    /// Returns whether the client answers barriers.
    #[must_use]
    pub fn answers(&self) -> AnswerState {
        self.answers
    }

    /// Returns how many of the recorded frames the client has handled.
    #[must_use]
    pub fn handled_frames(&self) -> u64 {
        self.handled_frames
    }

    /// Returns whether the client has handled every frame.
    #[must_use]
    pub fn is_all_handled(&self) -> bool {
        self.handled_frames == self.sent_frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WindowLimits = WindowLimits { changes: 3, bytes: 100, open: 2 };

    /// Returns the windows of a stream whose opening barrier is answered.
    fn opened() -> AckWindow {
        let mut window = AckWindow::new(LIMITS);
        assert_eq!(window.opening_barrier(), Some(1));
        window.on_answer(1);
        window
    }

    #[test]
    fn nothing_is_sent_before_the_opening_barrier_is_answered() {
        let mut window = AckWindow::new(LIMITS);
        assert!(!window.has_room());
        assert_eq!([window.opening_barrier(), window.opening_barrier()], [Some(1), None]);
        assert!(!window.has_room());
        window.on_answer(1);
        assert!(window.has_room());
        assert_eq!((window.answers(), window.is_all_handled()), (AnswerState::Answering, true));
    }

    #[test]
    fn updates_wait_while_two_barriers_are_open() {
        let mut window = opened();
        assert_eq!([window.on_frame(2, 1), window.on_frame(1, 1)], [None, Some(2)]);
        assert!(window.has_room());
        assert_eq!(window.on_frame(1, 100), Some(3));
        assert!(!window.has_room());
        window.on_answer(2);
        assert!(window.has_room());
        assert_eq!((window.handled_frames(), window.is_all_handled()), (2, false));
        assert_eq!(window.final_barrier(), None, "an open barrier proves all");
        window.on_answer(3);
        assert!(window.is_all_handled());
    }

    #[test]
    fn unopened_stream_without_another_route_is_sent_without_windows() {
        let mut window = AckWindow::new(LIMITS);
        assert_eq!(window.opening_barrier(), Some(1));
        window.send_unopened();
        for frame in 0..10 {
            assert!(window.has_room());
            assert_eq!(window.on_frame(3, 1), (frame == 0).then_some(2));
        }
        assert_eq!(window.answers(), AnswerState::Silent);
        // A late answer enables the windows again: the barrier after the first frame is still open.
        window.on_answer(1);
        assert_eq!((window.answers(), window.handled_frames()), (AnswerState::Answering, 0));
        assert!(window.has_room());
        assert_eq!(window.on_frame(1, 1), Some(3), "the window is long full");
        assert!(!window.has_room());
        window.on_answer(3);
        assert!(window.is_all_handled() && window.has_room());
        window.send_unopened();
        assert_eq!(window.answers(), AnswerState::Answering, "a stream that is opened stays so");
    }

    #[test]
    fn unknown_and_repeated_answers_prove_nothing() {
        let mut window = AckWindow::new(LIMITS);
        assert_eq!(window.opening_barrier(), Some(1));
        window.on_answer(7);
        assert_eq!(window.answers(), AnswerState::Unknown);
        window.on_answer(1);
        assert_eq!(window.on_frame(1, 1), None);
        window.on_answer(1);
        assert!(!window.is_all_handled());
        assert_eq!(window.final_barrier(), Some(2));
        assert_eq!(window.final_barrier(), None);
    }
}
