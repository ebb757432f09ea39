//! Positions of runs on a connection: how many results or frames of each run were sent and handled.

use std::collections::{BTreeMap, VecDeque};

/// Number of drained runs whose positions are kept. Until a run is over, the watchdog needs its position in
/// case the coordinator is killed. More runs than this rarely end at the same time.
const DRAINED_RUNS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct StreamPositions {
    sent: BTreeMap<String, u64>,
    handled: BTreeMap<String, u64>,
    /// Runs whose results the client has handled completely, oldest first.
    drained: VecDeque<(String, u64)>,
    frames: u64,
    /// Frames that the client has not handled, oldest first. The client's windows limit them.
    unhandled: VecDeque<UnhandledFrame>,
}

#[derive(Debug)]
struct UnhandledFrame {
    number: u64,
    run: String,
    position: u64,
}

impl StreamPositions {
    /// Sets the position of a run, including the next frame.
    pub(super) fn set(&mut self, run: &str, position: u64) {
        match self.sent.get_mut(run) {
            Some(sent) => *sent = position,
            None => {
                // A reused run id begins another run.
                self.drained.retain(|(drained, _)| drained != run);
                self.sent.insert(run.to_owned(), position);
            }
        }
    }

    /// Records a sent frame of a run. If the client never answers, handled frames stay unknown.
    pub(super) fn on_frame(&mut self, run: &str, is_client_silent: bool) {
        self.frames += 1;
        if is_client_silent {
            self.unhandled.clear();
            return;
        }
        let position = self.sent.get(run).copied().unwrap_or(0);
        self.unhandled.push_back(UnhandledFrame { number: self.frames, run: run.to_owned(), position });
    }

    /// Records how many frames the client has handled.
    pub(super) fn on_handled(&mut self, frames: u64) {
        while let Some(frame) = self.unhandled.pop_front_if(|frame| frame.number <= frames) {
            self.handled.insert(frame.run, frame.position);
        }
    }

    pub(super) fn handled(&self, run: &str) -> u64 {
        self.handled.get(run).copied().unwrap_or(0)
    }

    /// Returns the sent and the handled positions of all runs.
    pub(super) fn all(&self) -> [BTreeMap<String, u64>; 2] {
        [&self.sent, &self.handled].map(|positions| {
            let drained = self.drained.iter().map(|(run, position)| (run.clone(), *position));
            drained.chain(positions.iter().map(|(run, position)| (run.clone(), *position))).collect()
        })
    }

    /// Records that the client has handled everything of a run up to a position, and that no more of the run
    /// is sent.
    pub(super) fn drain(&mut self, run: &str, position: u64) {
        self.forget(run);
        self.drained.push_back((run.to_owned(), position));
        if self.drained.len() > DRAINED_RUNS {
            self.drained.pop_front();
        }
    }

    /// Forgets a run whose positions are no longer needed.
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
        assert_eq!(positions.all()[0].keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn positions_of_drained_runs_stay_known_until_their_ids_are_used_again() {
        let mut positions = StreamPositions::default();
        for (run, position) in [("a", 3), ("b", 5)] {
            positions.set(run, position);
            positions.on_frame(run, false);
        }
        positions.on_handled(1);
        positions.drain("a", 3);
        let of = |positions: &StreamPositions, run: &str| positions.all().map(|all| all.get(run).copied());
        assert_eq!(of(&positions, "a"), [Some(3); 2]);
        assert_eq!(of(&positions, "b"), [Some(5), None]);
        positions.set("a", 1);
        assert_eq!(of(&positions, "a"), [Some(1), None]);
        for number in 0..=DRAINED_RUNS as u64 {
            positions.drain(&format!("r{number}"), number);
        }
        assert_eq!(of(&positions, "r0"), [None; 2]);
        assert_eq!(of(&positions, "r1"), [Some(1); 2]);
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
