//! Tracks which tests run at the same time in other processes of the same program. A test that fails but
//! passes when run alone may interfere with them. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use heeler_core::{LeaseId, TestId, WorkerId};

/// Number of tests kept for each lease: the tests that most recently ran at the same time.
const KEPT: usize = 3;

/// The open leases of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct LeaseNeighbours {
    open: BTreeMap<LeaseId, OpenLease>,
    /// The test that each worker started last.
    last_tests: BTreeMap<WorkerId, TestId>,
}

#[derive(Debug, Clone)]
struct OpenLease {
    worker: WorkerId,
    program: usize,
    running: Option<TestId>,
    /// Recent tests that ran in other processes of the program during this lease.
    beside: VecDeque<TestId>,
}

impl OpenLease {
    fn add_beside(&mut self, test: TestId) {
        if !self.beside.contains(&test) {
            self.beside.push_back(test);
            if self.beside.len() > KEPT {
                self.beside.pop_front();
            }
        }
    }
}

impl LeaseNeighbours {
    /// Records that a worker holds a new lease of a program.
    pub(super) fn open(&mut self, lease: LeaseId, worker: WorkerId, program: usize) {
        let running = self.open.values().filter(|other| other.program == program);
        let beside: VecDeque<_> = running.filter_map(|other| other.running).take(KEPT).collect();
        self.open.insert(lease, OpenLease { worker, program, running: None, beside });
    }

    /// Records that a test of a worker's lease has started.
    pub(super) fn begin(&mut self, worker: WorkerId, lease: LeaseId, test: TestId) {
        self.last_tests.insert(worker, test);
        let Some(own) = self.open.get_mut(&lease) else { return };
        own.running = Some(test);
        let program = own.program;
        if self.open.len() > 1 {
            let others =
                self.open.iter_mut().filter(|(other, open)| **other != lease && open.program == program);
            others.for_each(|(_, open)| open.add_beside(test));
        }
    }

    /// Records the end of a lease. Returns its program.
    pub(super) fn close(&mut self, lease: LeaseId) -> Option<usize> {
        self.open.remove(&lease).map(|open| open.program)
    }

    /// Records the end of all leases of a dead worker. Returns the last test that it started.
    pub(super) fn close_worker(&mut self, worker: WorkerId) -> Option<TestId> {
        self.open.retain(|_, open| open.worker != worker);
        self.last_tests.remove(&worker)
    }

    /// Returns the workers that hold open leases.
    pub(super) fn workers(&self) -> BTreeSet<WorkerId> {
        self.open.values().map(|open| open.worker).collect()
    }

    /// Returns whether a worker holds an open lease.
    pub(super) fn is_held_by(&self, lease: LeaseId, worker: WorkerId) -> bool {
        self.open.get(&lease).is_some_and(|open| open.worker == worker)
    }

    /// Returns the program of an open lease.
    pub(super) fn program_of(&self, lease: LeaseId) -> Option<usize> {
        self.open.get(&lease).map(|open| open.program)
    }

    /// Returns the last tests that ran at the same time as a lease.
    pub(super) fn beside(&self, lease: LeaseId) -> impl Iterator<Item = TestId> + '_ {
        self.open.get(&lease).into_iter().flat_map(|open| open.beside.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(neighbours: &LeaseNeighbours, lease: u32) -> Vec<u32> {
        neighbours.beside(LeaseId(lease)).map(|test| test.0).collect()
    }

    #[test]
    fn tests_of_other_processes_of_the_program_are_kept() {
        let mut neighbours = LeaseNeighbours::default();
        neighbours.open(LeaseId(1), WorkerId(1), 0);
        neighbours.begin(WorkerId(1), LeaseId(1), TestId(10));
        neighbours.open(LeaseId(2), WorkerId(2), 7);
        neighbours.begin(WorkerId(2), LeaseId(2), TestId(20));
        neighbours.open(LeaseId(3), WorkerId(3), 0);
        neighbours.begin(WorkerId(3), LeaseId(3), TestId(30));
        neighbours.begin(WorkerId(3), LeaseId(3), TestId(30));
        assert_eq!([1, 2, 3].map(|lease| beside(&neighbours, lease)), [vec![30], Vec::new(), vec![10]]);
        for test in 31..40 {
            neighbours.begin(WorkerId(3), LeaseId(3), TestId(test));
        }
        neighbours.close(LeaseId(3));
        assert_eq!(beside(&neighbours, 1), [37, 38, 39], "also of a process that has ended");
        assert!(beside(&neighbours, 3).is_empty());
        neighbours.begin(WorkerId(3), LeaseId(3), TestId(50));
        assert_eq!(beside(&neighbours, 1), [37, 38, 39]);
        // The test of a dead worker is not running any more.
        assert!(neighbours.is_held_by(LeaseId(1), WorkerId(1)));
        assert_eq!(neighbours.close_worker(WorkerId(1)), Some(TestId(10)));
        assert!(!neighbours.is_held_by(LeaseId(1), WorkerId(1)));
        neighbours.open(LeaseId(4), WorkerId(4), 0);
        assert!(beside(&neighbours, 4).is_empty());
    }
}
