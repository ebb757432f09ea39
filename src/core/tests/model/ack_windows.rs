//! Every interleaving of one stream's window events: frames, handling, answers, opening, final barriers.

use std::collections::{HashSet, VecDeque};

use heeler_core::ack_window::{AckWindow, AnswerState, WindowLimits};

/// How the client answers barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerModel {
    Always,
    /// Any answer may be lost in flight.
    MayBeLost,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum StreamItem {
    Frame,
    Barrier(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowStep {
    /// Send the opening barrier.
    Open,
    /// Send a frame with this number of changes and bytes.
    Frame(usize, usize),
    FinalBarrier,
    /// The client handles the next message.
    Handle,
    /// The oldest answer in flight arrives.
    Answer,
    LoseAnswer,
    /// Start sending updates without waiting for answers.
    SendUnopened,
    /// An unrequested answer arrives.
    StrayAnswer,
}

/// One stream, from its sender to the client's handlers and back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct WindowedStream {
    window: AckWindow,
    /// Messages sent and not yet handled, oldest first.
    queue: VecDeque<StreamItem>,
    /// Answers in flight.
    answers: VecDeque<u64>,
    sent: u64,
    handled: u64,
    /// Number of frames before the last barrier.
    covered: u64,
    /// Barriers whose answers have not arrived.
    open: Vec<u64>,
    final_barriers: u8,
    /// Number of frames sent before the first answer arrived.
    first_answered_at: Option<u64>,
    is_dialled: bool,
    is_unopened: bool,
    has_stray_answer: bool,
}

const LIMITS: WindowLimits = WindowLimits { changes: 2, bytes: 3, open: 2 };
const FRAMES: u64 = 6;
const FINAL_BARRIERS: u8 = 2;

impl WindowedStream {
    fn new() -> Self {
        Self {
            window: AckWindow::new(LIMITS),
            queue: VecDeque::new(),
            answers: VecDeque::new(),
            sent: 0,
            handled: 0,
            covered: 0,
            open: Vec::new(),
            final_barriers: 0,
            first_answered_at: None,
            is_dialled: false,
            is_unopened: false,
            has_stray_answer: false,
        }
    }

    fn is_blocked(&self) -> bool {
        self.sent < FRAMES && !self.window.has_room()
    }

    fn steps(&self, answers: AnswerModel) -> Vec<WindowStep> {
        if !self.is_dialled {
            return vec![WindowStep::Open];
        }
        let mut steps = Vec::new();
        if self.sent < FRAMES && self.window.has_room() {
            steps.extend([WindowStep::Frame(1, 0), WindowStep::Frame(2, 0), WindowStep::Frame(0, 3)]);
        }
        if self.sent > 0 && self.final_barriers < FINAL_BARRIERS {
            steps.push(WindowStep::FinalBarrier);
        }
        if !self.queue.is_empty() {
            steps.push(WindowStep::Handle);
        }
        if !self.answers.is_empty() {
            steps.push(WindowStep::Answer);
            steps.extend((answers == AnswerModel::MayBeLost).then_some(WindowStep::LoseAnswer));
        }
        if !self.is_unopened {
            steps.push(WindowStep::SendUnopened);
        }
        if !self.has_stray_answer {
            steps.push(WindowStep::StrayAnswer);
        }
        steps
    }

    fn put_barrier(&mut self, barrier: Option<u64>) {
        self.queue.extend(barrier.map(StreamItem::Barrier));
        self.open.extend(barrier);
        self.covered = barrier.map_or(self.covered, |_| self.sent);
    }

    fn take(&mut self, answers: AnswerModel, step: WindowStep) {
        match step {
            WindowStep::Open => {
                self.is_dialled = true;
                let opening = self.window.opening_barrier();
                assert!(opening.is_some(), "a stream has an opening barrier");
                self.put_barrier(opening);
            }
            WindowStep::Frame(changes, bytes) => {
                assert_eq!(self.window.opening_barrier(), None, "there is one opening barrier");
                self.sent += 1;
                self.queue.push_back(StreamItem::Frame);
                let barrier = self.window.on_frame(changes, bytes);
                self.put_barrier(barrier);
            }
            WindowStep::FinalBarrier => {
                self.final_barriers += 1;
                let barrier = self.window.final_barrier();
                self.put_barrier(barrier);
                assert_eq!(self.covered, self.sent, "no barrier follows the last frame");
                assert_eq!(self.window.final_barrier(), None, "an open barrier proves all");
            }
            WindowStep::Handle => match self.queue.pop_front() {
                Some(StreamItem::Frame) => self.handled += 1,
                Some(StreamItem::Barrier(number)) if answers != AnswerModel::Never => {
                    self.answers.push_back(number);
                }
                Some(StreamItem::Barrier(_)) | None => {}
            },
            WindowStep::Answer => {
                if let Some(number) = self.answers.pop_front() {
                    self.window.on_answer(number);
                    self.open.retain(|open| *open > number);
                    self.first_answered_at.get_or_insert(self.sent);
                }
            }
            WindowStep::LoseAnswer => drop(self.answers.pop_front()),
            WindowStep::SendUnopened => {
                self.is_unopened = true;
                self.window.send_unopened();
            }
            WindowStep::StrayAnswer => {
                self.has_stray_answer = true;
                self.window.on_answer(99);
            }
        }
    }

    fn check(&self, answers: AnswerModel) {
        let window = &self.window;
        assert!(window.handled_frames() <= self.handled, "more than the client handled is taken for handled");
        assert_eq!(
            window.is_all_handled(),
            window.handled_frames() == self.sent,
            "all is not all that was sent"
        );
        // A final barrier is sent even if others are open: nothing else could prove the last frames.
        let most = LIMITS.open + usize::from(self.final_barriers);
        assert!(self.open.len() <= most, "{} barriers are open", self.open.len());
        if window.answers() == AnswerState::Answering {
            let has_room = self.open.len() < LIMITS.open;
            assert_eq!(window.has_room(), has_room, "the number of open barriers decides alone");
        }
        let is_awaited =
            self.queue.iter().any(|item| matches!(item, StreamItem::Barrier(_))) || !self.answers.is_empty();
        let may_wait = answers == AnswerModel::MayBeLost || !self.is_dialled;
        // An unanswered opening ends by timeout, which is not modelled.
        let is_unanswered = answers == AnswerModel::Never && !self.is_unopened;
        assert!(!self.is_blocked() || is_awaited || may_wait || is_unanswered, "blocked for ever");
        let is_waited_for = self.is_blocked() && self.is_unopened && answers == AnswerModel::Never;
        assert!(!is_waited_for, "a client without answers is waited for");
        let is_opened = self.first_answered_at.is_some() || self.is_unopened;
        assert!(self.sent == 0 || is_opened, "a frame is sent before the stream is opened");
        // When updates are sent without answers, nothing limits the frames before the first answer.
        let in_windows = self.sent - self.handled.max(self.first_answered_at.unwrap_or(self.sent));
        let most = (LIMITS.open * LIMITS.changes) as u64;
        assert!(in_windows <= most, "{in_windows} frames are sent in windows and not handled");
    }

    /// Checks a stream with nothing in flight: one more final barrier proves everything unproven.
    fn check_end(mut self, answers: AnswerModel) {
        assert_eq!(self.sent, FRAMES, "the last frames are not sent");
        self.take(answers, WindowStep::FinalBarrier);
        for step in [WindowStep::Handle, WindowStep::Answer].repeat(1 + self.queue.len()) {
            self.take(answers, step);
        }
        match answers {
            AnswerModel::Always => {
                assert!(self.window.is_all_handled(), "all is answered, not all is proven")
            }
            AnswerModel::MayBeLost => {}
            AnswerModel::Never => {
                assert!(!self.window.is_all_handled());
                assert_eq!(self.window.answers(), AnswerState::Silent);
            }
        }
    }
}

/// Tries every path; returns the number of states.
fn search_windows(answers: AnswerModel) -> usize {
    let first = WindowedStream::new();
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(stream) = open.pop() {
        let steps = stream.steps(answers);
        // After a lost answer, the sender may wait for the timeout of a later answer, which is not modelled.
        let has_ended = steps.iter().all(|step| *step == WindowStep::FinalBarrier);
        if has_ended && (answers != AnswerModel::MayBeLost || !stream.is_blocked()) {
            stream.clone().check_end(answers);
        }
        for step in steps {
            let mut next = stream.clone();
            next.take(answers, step);
            next.check(answers);
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    println!("{answers:?}: {} states", seen.len());
    seen.len()
}

#[test]
fn windows_bound_the_queue_of_a_client_that_answers_and_never_stop_it() {
    assert!(search_windows(AnswerModel::Always) > 1_000);
}

#[test]
fn lost_answers_prove_nothing() {
    assert!(search_windows(AnswerModel::MayBeLost) > 1_000);
}

#[test]
fn windows_never_stop_a_client_without_answers() {
    assert!(search_windows(AnswerModel::Never) > 1_000);
}
