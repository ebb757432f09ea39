//! The positions of runs on a connection: up to which result, or frame, each run was sent, and was handled.

use std::collections::{BTreeMap, VecDeque};

/// The positions of the runs on one connection.
#[derive(Debug, Default)]
pub(super) struct StreamPositions {
    sent: BTreeMap<String, u64>,
    handled: BTreeMap<String, u64>,
    /// Number of frames sent.
    frames: u64,
    /// The frames that the client has not handled yet, oldest first. Its windows bound them.
    unhandled: VecDeque<UnhandledFrame>,
}

#[derive(Debug)]
struct UnhandledFrame {
    number: u64,
    run: String,
    position: u64,
}

impl StreamPositions {
    /// Sets the position of a run that includes the next frame.
    pub(super) fn set(&mut self, run: &str, position: u64) {
        match self.sent.get_mut(run) {
            Some(sent) => *sent = position,
            None => drop(self.sent.insert(run.to_owned(), position)),
        }
    }

    /// Notes a frame of a run that is sent now. What a client without answers handles will never be known.
    pub(super) fn on_frame(&mut self, run: &str, is_client_silent: bool) {
        self.frames += 1;
        if is_client_silent {
            self.unhandled.clear();
            return;
        }
        let position = self.sent.get(run).copied().unwrap_or(0);
        self.unhandled.push_back(UnhandledFrame { number: self.frames, run: run.to_owned(), position });
    }

    /// Notes how many frames the client has handled.
    pub(super) fn on_handled(&mut self, frames: u64) {
        while let Some(frame) = self.unhandled.pop_front_if(|frame| frame.number <= frames) {
            self.handled.insert(frame.run, frame.position);
        }
    }

    /// Returns the position up to which the client has handled a run.
    pub(super) fn handled(&self, run: &str) -> u64 {
        self.handled.get(run).copied().unwrap_or(0)
    }

    /// Returns the positions of all runs, sent and handled.
    pub(super) fn all(&self) -> (&BTreeMap<String, u64>, &BTreeMap<String, u64>) {
        (&self.sent, &self.handled)
    }

    /// Forgets a run of which everything is proven.
    pub(super) fn forget(&mut self, run: &str) {
        self.sent.remove(run);
        self.handled.remove(run);
        self.unhandled.retain(|frame| frame.run != run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handled_frames_give_the_positions_of_their_runs() {
        let mut positions = StreamPositions::default();
        for (run, position) in [("a", 1), ("b", 5), ("a", 2)] {
            positions.set(run, position);
            positions.on_frame(run, false);
        }
        positions.on_handled(2);
        assert_eq!(["a", "b", "c"].map(|run| positions.handled(run)), [1, 5, 0]);
        positions.forget("a");
        positions.on_handled(3);
        assert_eq!(["a", "b"].map(|run| positions.handled(run)), [0, 5]);
        assert_eq!(positions.all().0.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn frames_of_a_client_without_answers_are_not_kept() {
        let mut positions = StreamPositions::default();
        positions.set("a", 1);
        positions.on_frame("a", false);
        positions.on_frame("a", true);
        assert!(positions.unhandled.is_empty());
        positions.on_handled(2);
        assert_eq!(positions.handled("a"), 0);
    }
}
