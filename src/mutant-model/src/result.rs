//! Results of mutants, and the mutation score.

use crate::mutant::Mutant;
use std::{sync::Arc, time::Duration};

/// The result of testing a mutant. Names follow the mutation testing report schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MutantStatus {
    /// Not tested yet.
    Pending,
    /// Not tested, because the user or the build configuration excludes the code.
    Ignored,
    /// The changed code does not compile.
    CompileError,
    /// No test reaches the mutant.
    NoCoverage,
    /// All covering tests passed.
    Survived,
    /// A test failed.
    Killed,
    /// The tests did not end, or reached the mutant's code far more often than without the mutant.
    Timeout,
    /// The test program died before its first test.
    RuntimeError,
}

impl MutantStatus {
    /// All statuses, in declaration order.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Ignored,
        Self::CompileError,
        Self::NoCoverage,
        Self::Survived,
        Self::Killed,
        Self::Timeout,
        Self::RuntimeError,
    ];

    /// Returns the name used in protocols and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ignored => "Ignored",
            Self::CompileError => "CompileError",
            Self::NoCoverage => "NoCoverage",
            Self::Survived => "Survived",
            Self::Killed => "Killed",
            Self::Timeout => "Timeout",
            Self::RuntimeError => "RuntimeError",
        }
    }

    /// Returns whether the tests noticed the change.
    pub const fn is_detected(self) -> bool {
        matches!(self, Self::Killed | Self::Timeout)
    }

    /// Returns whether the change compiles and could have been noticed, but was not.
    pub const fn is_undetected(self) -> bool {
        matches!(self, Self::Survived | Self::NoCoverage)
    }
}

/// A set of test uids. Mutants with the same covering tests share the data.
#[derive(Clone, Debug, Default)]
pub struct TestSet {
    /// Uids of all tests.
    uids: Arc<[Arc<str>]>,
    /// Indices of the tests in the set.
    tests: Arc<[u32]>,
}

impl TestSet {
    /// Returns the tests with these indices among all uids.
    pub fn new(uids: Arc<[Arc<str>]>, tests: Arc<[u32]>) -> Self {
        Self { uids, tests }
    }

    pub fn len(&self) -> usize {
        self.tests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tests.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.tests.iter().filter_map(|&test| self.uids.get(test as usize))
    }
}

impl FromIterator<Arc<str>> for TestSet {
    fn from_iter<T: IntoIterator<Item = Arc<str>>>(uids: T) -> Self {
        let uids: Arc<[Arc<str>]> = uids.into_iter().collect();
        let tests = (0_u32..).take(uids.len()).collect();
        Self { uids, tests }
    }
}

impl PartialEq for TestSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for TestSet {}

/// A mutant and its result. Tests are identified by uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutantResult {
    pub mutant: Arc<Mutant>,
    pub status: MutantStatus,
    /// The reason for the status: failure message, compiler message or limit.
    pub reason: Option<Arc<str>>,
    /// The tests that reach the mutant.
    pub covered_by: TestSet,
    /// The tests that failed.
    pub killed_by: Vec<Arc<str>>,
    /// Number of tests that ended, including the failed one.
    pub tests_completed: Option<u32>,
    /// Whether the mutant is reached before or outside of tests, so every test may notice the change. `None`
    /// if unknown.
    pub is_static: Option<bool>,
    /// Run time of the tests.
    pub duration: Option<Duration>,
}

impl MutantResult {
    /// Returns a result with only a status and reason.
    pub fn new(mutant: Arc<Mutant>, status: MutantStatus, reason: Option<Arc<str>>) -> Self {
        Self {
            mutant,
            status,
            reason,
            covered_by: TestSet::default(),
            killed_by: Vec::new(),
            tests_completed: None,
            is_static: None,
            duration: None,
        }
    }
}

/// Number of mutants by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MutationCounts([u32; MutantStatus::ALL.len()]);

impl MutationCounts {
    pub fn add(&mut self, status: MutantStatus) {
        self.0[status as usize] += 1;
    }

    pub fn of(&self, status: MutantStatus) -> u32 {
        self.0[status as usize]
    }

    pub fn total(&self) -> u32 {
        self.0.iter().sum()
    }

    /// Returns whether some mutants have not been tested yet.
    pub fn is_partial(&self) -> bool {
        self.of(MutantStatus::Pending) > 0
    }

    /// Returns the percentage of detectable mutants that the tests detected; `None` if there are none. While
    /// some mutants are untested, mutants without coverage do not count: all of them are known at once, and
    /// would outweigh the few that have been tested.
    pub fn score(&self) -> Option<f64> {
        let sum = |is_meant: fn(MutantStatus) -> bool| -> u32 {
            MutantStatus::ALL.iter().filter(|&&status| is_meant(status)).map(|&status| self.of(status)).sum()
        };
        let detected = sum(MutantStatus::is_detected);
        let undetected = match self.is_partial() {
            true => self.of(MutantStatus::Survived),
            false => sum(MutantStatus::is_undetected),
        };
        let valid = detected + undetected;
        (valid > 0).then(|| f64::from(detected) * 100.0 / f64::from(valid))
    }
}

impl FromIterator<MutantStatus> for MutationCounts {
    fn from_iter<T: IntoIterator<Item = MutantStatus>>(statuses: T) -> Self {
        let mut counts = Self::default();
        statuses.into_iter().for_each(|status| counts.add(status));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_tests_are_told_by_their_tests() {
        let uids: Arc<[Arc<str>]> = ["a", "b", "c"].map(Arc::from).into();
        let set = TestSet::new(Arc::clone(&uids), [0, 2].into());
        assert_eq!((set.len(), set.is_empty()), (2, false));
        assert!(set.iter().map(|uid| &**uid).eq(["a", "c"]));
        assert_eq!(set, ["a", "c"].map(Arc::from).into_iter().collect());
        assert_ne!(set, TestSet::new(Arc::clone(&uids), [0, 1].into()));
        // An index past the end is ignored.
        assert_eq!(TestSet::new(uids, [7].into()).iter().next(), None);
        assert_eq!(TestSet::default(), std::iter::empty().collect());
    }

    #[test]
    fn score_leaves_out_what_tests_could_not_notice() {
        use MutantStatus::{
            CompileError, Ignored, Killed, NoCoverage, Pending, RuntimeError, Survived, Timeout,
        };
        let statuses = [Killed, Killed, Timeout, Survived, NoCoverage, CompileError, Ignored, RuntimeError];
        let mut counts: MutationCounts = statuses.into_iter().collect();
        assert_eq!((counts.total(), counts.of(Killed), counts.score()), (8, 2, Some(60.0)));
        assert!(!counts.is_partial());
        // In a partial run, only tested mutants count.
        counts.add(Pending);
        assert_eq!((counts.is_partial(), counts.score()), (true, Some(75.0)));
        assert_eq!(MutationCounts::default().score(), None);
        assert!(MutantStatus::ALL.iter().enumerate().all(|(index, &status)| status as usize == index));
    }
}
