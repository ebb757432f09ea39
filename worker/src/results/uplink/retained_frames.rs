//! Frames on a callback connection that the client has not handled yet. If the connection breaks, they are
//! resent over the other route.

use std::{
    collections::{HashSet, VecDeque},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use heeler_core::TestId;
use heeler_protocol::mtp::{change_ranges, updates_frame};
use heeler_transport::callback::CallbackConnection;

use super::HandedFrame;
use crate::results::update_batch::{TestChangeKind, UpdateChunk};

/// Maximum size of the retained frames. While the client answers, its windows keep them far below this.
/// Without a limit, a client that does not answer would make a worker retain all frames of a run.
const LIMIT_BYTES: usize = 8 << 20;

/// Changes of running tests in a frame, and the byte ranges of the other changes. Frames are seldom resent
/// without the changes of running tests, so ranges are kept instead of a second frame.
#[derive(Debug, Clone)]
pub(super) struct RunningChanges {
    tests: Vec<TestId>,
    others: Vec<Range<usize>>,
    /// End of the frame of changes. The files of its results follow.
    files_at: usize,
}

impl RunningChanges {
    /// Returns the changes of running tests in a chunk that `frame` encodes, or `None` if there are none.
    pub(super) fn of_chunk(chunk: &UpdateChunk<'_>, frame: &[u8]) -> Option<Self> {
        let running = || chunk.tests.iter().filter(|change| change.kind == TestChangeKind::Running);
        running().next()?;
        let is_running: HashSet<_> = running().map(|change| change.index).collect();
        let ranges = change_ranges(frame, chunk.changes.iter().map(|change| change.len()));
        let others = ranges.enumerate().filter(|(index, _)| !is_running.contains(index));
        Some(Self {
            tests: running().map(|change| change.test).collect(),
            others: others.map(|(_, range)| range).collect(),
            files_at: frame.len(),
        })
    }

    /// Returns the frame without the changes of running tests. Empty if nothing remains.
    fn rest_of(&self, run: &str, bytes: &[u8]) -> Bytes {
        if self.others.is_empty() {
            return Bytes::new();
        }
        let others = self.others.iter().map(|range| &bytes[range.clone()]);
        [&updates_frame(run, others)[..], &bytes[self.files_at..]].concat().into()
    }
}

/// Frames that the client may not have handled, oldest first.
#[derive(Debug, Default)]
pub(super) struct RetainedFrames {
    frames: VecDeque<HandedFrame>,
    bytes: usize,
    /// Number of frames sent before the retained ones.
    released: u64,
    /// Dropped frames include some that the client may not have handled.
    is_incomplete: bool,
}

impl RetainedFrames {
    /// Retains a frame that is about to be sent.
    pub(super) fn push(&mut self, frame: HandedFrame) {
        self.bytes += frame.bytes.len();
        self.frames.push_back(frame);
        if self.bytes > LIMIT_BYTES {
            self.is_incomplete = true;
            self.drop_first(self.frames.len());
        }
    }

    /// Releases the frames that the client has handled.
    pub(super) fn release(&mut self, callback: &mut CallbackConnection) {
        self.release_to(callback.handled_frames());
    }

    fn release_to(&mut self, handled: u64) {
        let count = usize::try_from(handled.saturating_sub(self.released)).unwrap_or(usize::MAX);
        self.drop_first(count.min(self.frames.len()));
        if handled >= self.released {
            self.is_incomplete = false;
        }
    }

    fn drop_first(&mut self, count: usize) {
        for frame in self.frames.drain(..count) {
            self.bytes -= frame.bytes.len();
        }
        self.released += count as u64;
    }

    /// Drops the frames of a run that has ended. No update of the run may follow its completion.
    pub(super) fn forget_run(&mut self, run: &str) {
        // Empty frames stay in the queue, because frames are counted.
        for frame in self.frames.iter_mut().filter(|frame| frame.run.as_ref() == run) {
            self.bytes -= std::mem::take(&mut frame.bytes).len();
        }
    }

    /// Drops all frames, because no run is active.
    pub(super) fn forget_all(&mut self) {
        self.drop_first(self.frames.len());
        self.is_incomplete = false;
    }

    /// Returns the frames that the client may not have handled, or `None` if some are no longer available.
    /// Omits running changes of tests whose results are included, since the client may have handled both.
    pub(super) fn into_unhandled(mut self) -> Option<VecDeque<HandedFrame>> {
        let of_frame = |frame: &HandedFrame| {
            let run = Arc::clone(&frame.run);
            frame.ended.iter().map(move |test| (Arc::clone(&run), *test)).collect::<Vec<_>>()
        };
        // The frames of ended runs are empty.
        self.frames.retain(|frame| !frame.bytes.is_empty());
        let ended: HashSet<_> = self.frames.iter().flat_map(of_frame).collect();
        for frame in &mut self.frames {
            let run = Arc::clone(&frame.run);
            let has_ended = |test: &TestId| ended.contains(&(Arc::clone(&run), *test));
            if let Some(running) = frame.running.take_if(|running| running.tests.iter().any(has_ended)) {
                frame.bytes = running.rest_of(&run, &frame.bytes);
            }
        }
        self.frames.retain(|frame| !frame.bytes.is_empty());
        (!self.is_incomplete).then_some(self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::update_batch::TestChange;

    fn frame(bytes: usize) -> HandedFrame {
        let bytes = vec![b' '; bytes].into();
        HandedFrame { run: "r".into(), position: 0, bytes, changes: 1, running: None, ended: Vec::new() }
    }

    #[test]
    fn starts_of_tests_that_have_ended_are_not_sent_again() {
        use TestChangeKind::{Ended, Running};
        let frame_of = |changes: &[(&'static str, u32, TestChangeKind)], files: &'static str| {
            let texts: Vec<_> = changes.iter().map(|(text, ..)| text.as_bytes()).collect();
            let of_test = |(index, &(_, test, kind))| TestChange { index, test: TestId(test), kind };
            let tests: Vec<_> = changes.iter().enumerate().map(of_test).collect();
            let updates = updates_frame("r", texts.iter().copied());
            let ended =
                tests.iter().filter(|change| change.kind == Ended).map(|change| change.test).collect();
            let chunk = UpdateChunk { position: 0, changes: texts, tests, files: Vec::new() };
            let running = RunningChanges::of_chunk(&chunk, &updates);
            let bytes = [&updates[..], files.as_bytes()].concat().into();
            HandedFrame { running, ended, bytes, ..frame(0) }
        };
        let (first, second) = (r#"{"end":1}"#, r#"{"end":2,"out":"]}}"}"#);
        let frames = [
            // The start of test 1 alone, then its result with the start of test 2, then the start of test 3.
            frame_of(&[(r#"{"start":1}"#, 1, Running)], ""),
            frame_of(&[(first, 1, Ended), (r#"{"start":2}"#, 2, Running)], "files"),
            frame_of(&[(second, 2, Ended), (r#"{"start":3}"#, 3, Running)], ""),
        ];
        let last = frames[2].bytes.clone();
        let mut retained = RetainedFrames::default();
        frames.into_iter().for_each(|frame| retained.push(frame));
        let unhandled: Vec<_> =
            retained.into_unhandled().unwrap().into_iter().map(|frame| frame.bytes).collect();
        let result = [&updates_frame("r", [first.as_bytes()])[..], b"files"].concat();
        assert_eq!(unhandled, [Bytes::from(result), last], "test 3 still runs");
    }

    #[test]
    fn forgotten_frames_do_not_come_back_without_their_starts() {
        let texts = [&br#"{"start":1}"#[..], br#"{"end":2}"#];
        let kinds = [(1, TestChangeKind::Running), (2, TestChangeKind::Ended)];
        let tests =
            (0..).zip(kinds).map(|(index, (test, kind))| TestChange { index, test: TestId(test), kind });
        let chunk =
            UpdateChunk { position: 0, changes: texts.to_vec(), tests: tests.collect(), files: Vec::new() };
        let bytes = updates_frame("r", texts);
        let running = RunningChanges::of_chunk(&chunk, &bytes);
        let mut retained = RetainedFrames::default();
        retained.push(HandedFrame { running, bytes, ..frame(0) });
        retained.push(HandedFrame { ended: vec![TestId(1)], ..frame(3) });
        retained.forget_run("r");
        assert!(retained.into_unhandled().is_some_and(|frames| frames.is_empty()));
    }

    #[test]
    fn handled_frames_are_released() {
        let mut retained = RetainedFrames::default();
        for bytes in 1..=4 {
            retained.push(frame(bytes));
        }
        retained.release_to(3);
        retained.release_to(2);
        retained.push(frame(5));
        let sizes: Vec<_> =
            retained.into_unhandled().unwrap().iter().map(|frame| frame.bytes.len()).collect();
        assert_eq!(sizes, [4, 5]);
    }

    #[test]
    fn frames_of_an_ended_run_are_not_sent_again() {
        let mut retained = RetainedFrames::default();
        retained.push(HandedFrame { run: "ended".into(), ..frame(1) });
        retained.push(frame(2));
        retained.push(HandedFrame { run: "ended".into(), ..frame(3) });
        retained.push(frame(4));
        retained.forget_run("ended");
        assert_eq!(retained.bytes, 6);
        // The first two frames are handled, whichever run they belong to.
        retained.release_to(2);
        retained.push(frame(5));
        let sizes =
            |frames: VecDeque<HandedFrame>| frames.iter().map(|one| one.bytes.len()).collect::<Vec<_>>();
        assert_eq!(sizes(retained.into_unhandled().unwrap()), [4, 5]);

        let mut retained = RetainedFrames::default();
        retained.push(frame(LIMIT_BYTES + 1));
        retained.push(frame(1));
        retained.forget_all();
        retained.push(frame(7));
        assert_eq!(sizes(retained.into_unhandled().unwrap()), [7]);
    }

    #[test]
    fn frames_above_the_limit_are_incomplete_until_all_of_them_are_handled() {
        let mut retained = RetainedFrames::default();
        for _ in 0..3 {
            retained.push(frame(LIMIT_BYTES / 2));
        }
        retained.push(frame(1));
        assert!(retained.is_incomplete && retained.bytes == 1);
        retained.release_to(2);
        assert!(retained.is_incomplete);
        retained.release_to(4);
        assert!(retained.into_unhandled().is_some_and(|frames| frames.is_empty()));
    }
}
