//! Tests that are a batch of one, the longest first.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{ProgramId, TestId};

/// Tests by program, each with its duration. Tests of equal duration are in the plan's order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct SingleTests {
    /// No set is empty.
    by_program: BTreeMap<ProgramId, BTreeSet<(Reverse<Duration>, TestId)>>,
    /// Sum of the durations of each program's tests.
    work: BTreeMap<ProgramId, Duration>,
    count: usize,
}

impl SingleTests {
    pub(super) fn insert(&mut self, program: ProgramId, test: TestId, duration: Duration) {
        let is_new = self.by_program.entry(program).or_default().insert((Reverse(duration), test));
        if is_new {
            self.count += 1;
            let work = self.work.entry(program).or_default();
            *work = work.saturating_add(duration);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the programs of the tests.
    pub(super) fn programs(&self) -> impl Iterator<Item = ProgramId> + '_ {
        self.by_program.keys().copied()
    }

    pub(super) fn has(&self, program: ProgramId) -> bool {
        self.by_program.contains_key(&program)
    }

    pub(super) fn count_of(&self, program: ProgramId) -> usize {
        self.by_program.get(&program).map_or(0, BTreeSet::len)
    }

    /// Returns the time that the tests of a program take.
    pub(super) fn work_of(&self, program: ProgramId) -> Duration {
        self.work.get(&program).copied().unwrap_or_default()
    }

    /// Returns the accepted program with the longest test.
    pub(super) fn program_of_longest(&self, is_accepted: impl Fn(ProgramId) -> bool) -> Option<ProgramId> {
        let accepted = self.by_program.iter().filter(|(program, _)| is_accepted(**program));
        accepted.min_by_key(|(_, tests)| tests.first()).map(|(program, _)| *program)
    }

    /// Removes and returns the longest test of a program.
    pub(super) fn take_longest(&mut self, program: ProgramId) -> Option<TestId> {
        let tests = self.by_program.get_mut(&program)?;
        let (Reverse(duration), test) = tests.pop_first()?;
        if tests.is_empty() {
            self.by_program.remove(&program);
            self.work.remove(&program);
        } else if let Some(work) = self.work.get_mut(&program) {
            *work = work.saturating_sub(duration);
        }
        self.count -= 1;
        Some(test)
    }

    pub(super) fn take_program(&mut self, program: ProgramId) -> Vec<TestId> {
        let tests = self.by_program.remove(&program).unwrap_or_default();
        self.work.remove(&program);
        self.count -= tests.len();
        tests.into_iter().map(|(_, test)| test).collect()
    }

    /// Removes and returns the accepted tests.
    pub(super) fn take(&mut self, is_accepted: impl Fn(TestId) -> bool) -> Vec<TestId> {
        let mut taken = Vec::new();
        self.by_program.retain(|_, tests| {
            taken.extend(tests.extract_if(.., |(_, test)| is_accepted(*test)));
            !tests.is_empty()
        });
        self.count -= taken.len();
        taken.sort_unstable();
        taken.into_iter().map(|(_, test)| test).collect()
    }
}
