//! Plans the tests of each mutant: which processes run them, and within which limits. Based on what the
//! tests reach without a mutant.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroU32,
    time::Duration,
};

use heeler_protocol::control::ForkPoint;

use crate::built_project::{FunctionId, MutantNumber};

/// Allowed hits of the mutant's place: this factor times the hits without the mutant, plus the constant.
/// Counting iterations detects endless loops independently of machine load.
const HITS_FACTOR: u64 = 100;
const HITS_BEYOND: u64 = 100;
/// The hit limit is at least the hits of all places together without the mutant, up to this maximum. A mutant
/// that disables lazy initialisation makes the initialisation run at every call, which is harmless and must
/// not count as a timeout.
const MOST_HITS_OF_REACHED: u64 = 1_000_000;
/// Constant part of the limit for hits of all places together. The mutant is often outside of the loop that
/// it makes endless. Such a loop exceeds the limit within a tenth of a second.
const STEPS_BEYOND: u64 = 1_000_000;
/// Idle timeout of a mutant's process: a multiple of the slowest covering test's time, with a minimum. For
/// tests that take minutes, a smaller factor plus a constant applies, because ten times would dominate the
/// run.
const SILENCE_FACTOR: u32 = 10;
const LEAST_SILENCE: Duration = Duration::from_secs(1);
const LONG_SILENCE_FACTOR: u32 = 2;
const LONG_SILENCE_BEYOND: Duration = Duration::from_secs(30);
/// Total timeout, for processes that keep writing: a multiple of the tests' expected time, plus a constant.
/// Long tests have the smaller factor.
const TOTAL_FACTOR: u32 = 20;
const TOTAL_BEYOND: Duration = Duration::from_secs(30);
const LONG_TOTAL_FACTOR: u32 = 3;
const LONG_TOTAL_BEYOND: Duration = Duration::from_secs(60);
/// Minimum expected test time for running the likeliest killer alone first. For shorter tests, an extra
/// process start of a few milliseconds does not pay off.
const LIKELIEST_ALONE_FROM: Duration = Duration::from_millis(40);

/// A test, by program index and index in the program's listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TestIndex {
    pub program: usize,
    pub test: usize,
}

/// Mutant number that stands for all places together.
pub(crate) const ALL_PLACES: MutantNumber = MutantNumber(0);

/// Hit count of a place, for one test or for a program outside of its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reached {
    program: usize,
    /// `None` outside of tests.
    test: Option<usize>,
    noted: u32,
}

/// Index of a [`ReachedList`], from 1.
type ListIndex = NonZeroU32;

/// Everything that reaches a place, as a linked list: the count of the test added last, and the rest.
#[derive(Clone, Copy, Debug)]
struct ReachedList {
    noted: u32,
    rest: Option<ListIndex>,
}

/// An added test, or a program outside of its tests.
#[derive(Clone, Copy, Debug)]
struct AddedTest {
    program: usize,
    test: Option<usize>,
    /// The first list whose head belongs to this test, as do all lists before the next test's first list.
    first_list: usize,
}

/// Which tests reach which places. Counts are rounded down to powers of two: 5 hits count as 4.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    added: Vec<AddedTest>,
    /// Lists share tails, and mutants at one place share a list. Otherwise memory would grow with tests
    /// times mutants.
    lists: Vec<ReachedList>,
    /// List of each mutant, by mutant number; `None` if nothing reaches the mutant.
    by_mutant: Vec<Option<ListIndex>>,
}

impl Coverage {
    /// Adds a coverage file of a guarded program: a 32-bit hit count for all places together, then one per
    /// mutant number. Missing counts are zero. `test` is `None` for a process that ran no test.
    pub fn add(&mut self, program: usize, test: Option<usize>, file: &[u8]) {
        let (numbers, _rest) = file.as_chunks::<4>();
        let numbers = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes));
        self.add_reached(program, test, (0..).map(MutantNumber).zip(numbers));
    }

    /// Adds a test's coverage from an earlier run: hits of all places together, and hits per mutant.
    pub fn add_counts(
        &mut self,
        program: usize,
        test: usize,
        steps: u32,
        counts: impl IntoIterator<Item = (MutantNumber, u32)>,
    ) {
        self.add_reached(program, Some(test), std::iter::once((ALL_PLACES, steps)).chain(counts));
    }

    fn add_reached(
        &mut self,
        program: usize,
        test: Option<usize>,
        counts: impl Iterator<Item = (MutantNumber, u32)>,
    ) {
        self.added.push(AddedTest { program, test, first_list: self.lists.len() });
        // Mutants with the same list and count also share the new list.
        let mut lists: HashMap<(Option<ListIndex>, u32), Option<ListIndex>> = HashMap::new();
        for (number, noted) in counts.filter(|(_, noted)| *noted > 0) {
            let place = number.0 as usize;
            if self.by_mutant.len() <= place {
                self.by_mutant.resize(place + 1, None);
            }
            let rest = self.by_mutant[place];
            self.by_mutant[place] = *lists.entry((rest, noted)).or_insert_with(|| {
                self.lists.push(ReachedList { noted, rest });
                u32::try_from(self.lists.len()).ok().and_then(NonZeroU32::new)
            });
        }
    }

    /// Returns what reaches a mutant's place, last added first.
    fn of(&self, number: MutantNumber) -> impl Iterator<Item = Reached> + '_ {
        self.of_list(self.by_mutant.get(number.0 as usize).copied().flatten())
    }

    fn of_list(&self, list: Option<ListIndex>) -> impl Iterator<Item = Reached> + '_ {
        let place = |index: ListIndex| index.get() as usize - 1;
        let lists = std::iter::successors(list.map(place), move |&at| self.lists[at].rest.map(place));
        lists.map(|at| {
            let added = self.added.partition_point(|one| one.first_list <= at) - 1;
            let AddedTest { program, test, .. } = self.added[added];
            Reached { program, test, noted: self.lists[at].noted }
        })
    }

    /// Returns the counts grouped by program and test.
    pub(crate) fn by_test(&self) -> CoverageByTest {
        let mut places: BTreeMap<ListIndex, Vec<MutantNumber>> = BTreeMap::new();
        for (list, number) in self.by_mutant.iter().zip(0..) {
            if let Some(list) = list {
                places.entry(*list).or_default().push(MutantNumber(number));
            }
        }
        let mut found = CoverageByTest::default();
        for ((list, numbers), place) in places.into_iter().zip(0..) {
            for Reached { program, test, noted } in self.of_list(Some(list)) {
                found.counts.entry((program, test)).or_default().push((place, noted));
            }
            found.places.push(numbers);
        }
        found
    }
}

/// Index of a place, and its hit count.
type PlaceCount = (u32, u32);

/// Hit counts by program and test.
#[derive(Debug, Default)]
pub(crate) struct CoverageByTest {
    /// Mutants grouped by place: the same tests reach each group equally often.
    places: Vec<Vec<MutantNumber>>,
    /// By program and test (`None` outside of tests).
    counts: BTreeMap<(usize, Option<usize>), Vec<PlaceCount>>,
}

impl CoverageByTest {
    /// Returns the hit counts of a test, or of a program outside of its tests, ordered by mutant number.
    /// [`ALL_PLACES`] is the number of all places together.
    pub(crate) fn of(&self, program: usize, test: Option<usize>) -> Vec<(MutantNumber, u32)> {
        let counts = self.counts.get(&(program, test)).map_or(&[][..], Vec::as_slice);
        let places = counts.iter().flat_map(|&(place, noted)| {
            self.places[place as usize].iter().map(move |&number| (number, noted))
        });
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        places
    }
}

impl Reached {
    /// Returns the largest hit count that rounds down to `noted`.
    fn most(self) -> u64 {
        (u64::from(self.noted) * 2).saturating_sub(1)
    }
}

/// A program's baseline: its tests without a mutant.
#[derive(Clone, Debug, Default)]
pub struct BaselineProgram {
    /// Test names, as the framework prints them.
    pub names: Vec<String>,
    /// Test durations; `None` for skipped tests.
    pub durations: Vec<Option<Duration>>,
    /// Time of a process outside of its tests, if the test durations do not include it.
    pub start: Duration,
    /// Share of `selection_budget` that each test name uses.
    pub selection_costs: Vec<usize>,
    /// Space for test names per process; `None` if names are not passed on the command line.
    pub selection_budget: Option<usize>,
    /// Whether a process can run only one test.
    pub is_one_test: bool,
    /// Whether the tests may run in forks of a process that has loaded the program.
    pub is_forkable: bool,
    /// Whether the tests have failed in forks.
    pub fails_in_forks: bool,
}

/// The baseline of all programs.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    pub programs: Vec<BaselineProgram>,
    pub coverage: Coverage,
    /// Tests that failed and then passed without a mutant. Their failures under a mutant need confirmation.
    pub flaky: BTreeSet<TestIndex>,
}

/// The processes and tests planned for a mutant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MutantPlan {
    /// Test processes, run one after another until one decides the mutant's status. Empty if no test reaches
    /// the mutant.
    pub steps: Vec<PlanStep>,
    pub covered_by: Vec<TestIndex>,
    /// Whether the place is reached outside of tests. All tests of the program run then.
    pub is_static: bool,
}

/// Tests of a mutant that run in one process, which ends at the first failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    pub program: usize,
    /// Indices of the tests, in framework order.
    pub tests: Vec<usize>,
    /// Maximum number of hits of the mutant's place.
    pub hit_limit: u64,
    /// Maximum number of hits of all places together.
    pub step_limit: u64,
    /// Idle timeout. Doubled when the mutant is confirmed alone.
    pub silence: Duration,
    /// Total timeout.
    pub total: Duration,
    /// Expected time without the mutant.
    pub expected: Duration,
    /// Where a process may fork to run these tests. Forking after the program is loaded is allowed only if no
    /// code outside of tests reaches the mutant.
    pub fork_point: Option<ForkPoint>,
}

/// Tests that killed mutants in this run, and are likely to kill others.
#[derive(Clone, Debug, Default)]
pub struct KnownKillers {
    last: BTreeMap<TestIndex, u64>,
    by_function: BTreeMap<FunctionId, BTreeMap<TestIndex, u64>>,
    count: u64,
}

impl KnownKillers {
    /// Records that a test failed under a mutant of a function.
    pub fn note(&mut self, test: TestIndex, function: FunctionId) {
        self.count += 1;
        self.last.insert(test, self.count);
        self.by_function.entry(function).or_default().insert(test, self.count);
    }

    /// Returns how likely a test is to fail; greater is likelier.
    fn rank(&self, test: TestIndex, function: FunctionId) -> (u64, u64) {
        let here = self.by_function.get(&function).and_then(|tests| tests.get(&test));
        (here.copied().unwrap_or(0), self.last.get(&test).copied().unwrap_or(0))
    }
}

impl Baseline {
    /// Returns the tests that reach a mutant; all tests of a program that reaches it outside of tests.
    #[must_use]
    pub fn covering(&self, number: MutantNumber) -> BTreeSet<TestIndex> {
        let mut covering = BTreeSet::new();
        for reached in self.coverage.of(number) {
            let program = reached.program;
            let durations = &self.programs[program].durations;
            let tests = reached.test.map_or(0..durations.len(), |test| test..test + 1);
            let is_run = |test: &usize| durations.get(*test).is_some_and(Option::is_some);
            let places = tests.filter(is_run);
            covering.extend(places.map(|test| TestIndex { program, test }));
        }
        covering
    }

    /// Plans the processes of a mutant. Programs with tests that killed mutants of the same function come
    /// first, then programs with other killers, then the fastest.
    #[must_use]
    pub fn plan(&self, number: MutantNumber, function: FunctionId, killers: &KnownKillers) -> MutantPlan {
        let covering = self.covering(number);
        let is_static = self.coverage.of(number).any(|reached| reached.test.is_none());
        let mut by_program: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for one in &covering {
            by_program.entry(one.program).or_default().push(one.test);
        }
        let mut programs: Vec<_> = by_program.into_iter().collect();
        programs.sort_by_cached_key(|(program, tests)| {
            let index = |test: &usize| TestIndex { program: *program, test: *test };
            let rank = tests.iter().map(|test| killers.rank(index(test), function)).max();
            (Reverse(rank), self.expected(*program, tests), *program)
        });
        let mut steps = Vec::new();
        for (program, tests) in programs {
            for group in self.groups(program, tests, function, killers) {
                steps.push(self.step(number, program, group));
            }
        }
        MutantPlan { steps, covered_by: covering.into_iter().collect(), is_static }
    }

    /// Returns all tests of each program, grouped so that the names of each group fit on one command line.
    #[must_use]
    pub fn all_groups(&self) -> Vec<Vec<Vec<usize>>> {
        let groups = |program: usize| {
            let durations = &self.programs[program].durations;
            let run = (0..durations.len()).filter(|&test| durations[test].is_some());
            let function = FunctionId { source: 0, function: 0 };
            self.groups(program, run.collect(), function, &KnownKillers::default())
        };
        (0..self.programs.len()).map(groups).collect()
    }

    /// Groups the tests of a program by process. If a process can run only one test, the tests are ordered by
    /// how likely they are to fail.
    fn groups(
        &self,
        program: usize,
        tests: Vec<usize>,
        function: FunctionId,
        killers: &KnownKillers,
    ) -> Vec<Vec<usize>> {
        let mut groups = Vec::new();
        let mut rest = tests;
        // One process per test: likeliest killer first, then fastest.
        if self.programs[program].is_one_test {
            let index = |test: usize| TestIndex { program, test };
            rest.sort_by_cached_key(|&test| {
                (Reverse(killers.rank(index(test), function)), self.expected(program, &[test]), test)
            });
            return rest.into_iter().map(|test| vec![test]).collect();
        }
        // Run the likeliest killer alone first, if that can save enough time.
        let start = self.programs[program].start;
        let of_tests = self.expected(program, &rest).saturating_sub(start);
        if rest.len() > 1 && of_tests >= LIKELIEST_ALONE_FROM.max(start) {
            let rank = |test: usize| killers.rank(TestIndex { program, test }, function);
            let likeliest = rest.iter().copied().max_by_key(|&test| rank(test));
            if let Some(likeliest) = likeliest.filter(|&test| rank(test) > (0, 0)) {
                groups.push(vec![likeliest]);
                rest.retain(|&test| test != likeliest);
            }
        }
        // Fill each process until its command line has no space for another name.
        let one = &self.programs[program];
        let budget = one.selection_budget.unwrap_or(usize::MAX);
        let (mut group, mut taken) = (Vec::new(), 0_usize);
        for test in rest {
            let cost = one.selection_costs.get(test).copied().unwrap_or(0);
            if taken.saturating_add(cost) > budget && !group.is_empty() {
                groups.push(std::mem::take(&mut group));
                taken = 0;
            }
            taken = taken.saturating_add(cost);
            group.push(test);
        }
        groups.extend(Some(group).filter(|group| !group.is_empty()));
        groups
    }

    /// Returns the process that runs some tests of a program under a mutant, with its limits.
    pub(crate) fn step(&self, number: MutantNumber, program: usize, tests: Vec<usize>) -> PlanStep {
        let is_own = |reached: &Reached| {
            reached.program == program && reached.test.is_none_or(|test| tests.binary_search(&test).is_ok())
        };
        let most = |number: MutantNumber| {
            let reached = self.coverage.of(number).filter(is_own);
            reached.map(Reached::most).fold(0, u64::saturating_add)
        };
        let (hits, steps) = (most(number), most(ALL_PLACES));
        let durations = tests.iter().filter_map(|&test| self.programs[program].durations[test]);
        let slowest = durations.max().unwrap_or_default() + self.programs[program].start;
        let expected = self.expected(program, &tests);
        let is_outside = |reached: Reached| reached.program == program && reached.test.is_none();
        let is_static = self.coverage.of(number).any(is_outside);
        let fork_point = if is_static { ForkPoint::Framework } else { ForkPoint::Program };
        let long_silence = slowest.saturating_mul(LONG_SILENCE_FACTOR).saturating_add(LONG_SILENCE_BEYOND);
        let silence = slowest.saturating_mul(SILENCE_FACTOR).min(long_silence).max(LEAST_SILENCE);
        let long_total = expected.saturating_mul(LONG_TOTAL_FACTOR).saturating_add(LONG_TOTAL_BEYOND);
        let total = expected.saturating_mul(TOTAL_FACTOR).saturating_add(TOTAL_BEYOND).min(long_total);
        PlanStep {
            program,
            tests,
            hit_limit: hits
                .saturating_mul(HITS_FACTOR)
                .saturating_add(HITS_BEYOND)
                .max(steps.min(MOST_HITS_OF_REACHED)),
            step_limit: steps.saturating_mul(HITS_FACTOR).saturating_add(STEPS_BEYOND),
            silence,
            total: total.max(silence),
            expected,
            fork_point: self.is_forkable(program).then_some(fork_point),
        }
    }

    /// Returns whether tests of a program may run in forks of a process that has loaded it.
    #[must_use]
    pub fn is_forkable(&self, program: usize) -> bool {
        self.programs[program].is_forkable && !self.programs[program].fails_in_forks
    }

    /// Returns the expected time of these tests and their processes without a mutant.
    #[must_use]
    pub(crate) fn expected_of(&self, tests: &BTreeSet<TestIndex>) -> Duration {
        let mut expected = Duration::ZERO;
        let mut last = None;
        for one in tests {
            let program = &self.programs[one.program];
            if program.is_one_test || last.replace(one.program) != Some(one.program) {
                expected += program.start;
            }
            expected += program.durations[one.test].unwrap_or_default();
        }
        expected
    }

    /// Returns the expected time of one process with these tests without a mutant.
    #[must_use]
    pub fn expected(&self, program: usize, tests: &[usize]) -> Duration {
        let one = &self.programs[program];
        let of_tests: Duration = tests.iter().filter_map(|&test| one.durations[test]).sum();
        of_tests + one.start
    }
}

impl PlanStep {
    /// Returns the step with doubled timeouts and without forking, for a mutant that runs alone.
    #[must_use]
    pub(crate) fn with_double_time(&self) -> Self {
        let (silence, total) = (self.silence.saturating_mul(2), self.total.saturating_mul(2));
        Self { silence, total, fork_point: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
