//! Which tests run for a mutant, in which processes, and within which limits: from what the tests reach
//! without any mutant.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroU32,
    time::Duration,
};

use heeler_protocol::control::ForkPoint;

use crate::built_project::{FunctionId, MutantNumber};

/// Hits that a mutant's process may have, as a multiple of those without the mutant, and beyond it: an
/// endless loop is found by its number of rounds, whatever the load of the machine.
const HITS_FACTOR: u64 = 100;
const HITS_BEYOND: u64 = 100;
/// Hits that a mutant's process may have in any case, if its tests reach so many places without the mutant.
/// What runs once because of what it does, such as the first initialization, runs at every call without its
/// effect, and its tests are none the slower.
const MOST_HITS_OF_REACHED: u64 = 1_000_000;
/// The same for all places together: a mutant is often beside the loop that it makes endless. A tenth of a
/// second has more.
const STEPS_BEYOND: u64 = 1_000_000;
/// Silence of a mutant's process, as a multiple of the slowest covering test's time, and at least. Of tests
/// that take minutes, a multiple of ten would be the longest part of a run.
const SILENCE_FACTOR: u32 = 10;
const LEAST_SILENCE: Duration = Duration::from_secs(1);
const LONG_SILENCE_FACTOR: u32 = 2;
const LONG_SILENCE_BEYOND: Duration = Duration::from_secs(30);
/// Time of all tests of a process that writes again and again: as a multiple of what they took, and beyond
/// it.
const TOTAL_FACTOR: u32 = 20;
const TOTAL_BEYOND: Duration = Duration::from_secs(30);
const LONG_TOTAL_FACTOR: u32 = 3;
const LONG_TOTAL_BEYOND: Duration = Duration::from_secs(60);
/// From this time of the covering tests on, the likeliest killer runs in a process of its own first: a start
/// takes a few milliseconds.
const LIKELIEST_ALONE_FROM: Duration = Duration::from_millis(40);

/// A test: the indices of its program and its place in the listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TestIndex {
    pub program: usize,
    pub test: usize,
}

/// In the place of a mutant's number: all places together.
pub(crate) const ALL_PLACES: MutantNumber = MutantNumber(0);

/// How often a test, or a program outside of its tests, reached a mutant's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reached {
    program: usize,
    /// `None` outside of tests.
    test: Option<usize>,
    noted: u32,
}

/// Place of a [`ReachedList`] among all, from 1.
type ListIndex = NonZeroU32;

/// All that reaches a place: how often the last test that was added did, and the rest as another list.
#[derive(Clone, Copy, Debug)]
struct ReachedList {
    noted: u32,
    rest: Option<ListIndex>,
}

/// A test that was added, or a program outside of its tests.
#[derive(Clone, Copy, Debug)]
struct AddedTest {
    program: usize,
    test: Option<usize>,
    /// The first list that ends with it; those that follow do as well, up to that of the next test.
    first_list: usize,
}

/// What the tests reach. Counts are noted at powers of two: what was reached 5 times counts as 4.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    added: Vec<AddedTest>,
    /// Lists that begin with the same tests share them, and mutants of one place share their list: there may
    /// be as many pairs of a test and a mutant that it reaches as tests times mutants.
    lists: Vec<ReachedList>,
    /// By the number of the mutant.
    by_mutant: Vec<Option<ListIndex>>,
}

impl Coverage {
    /// Adds the file that a guarded program wrote: 32-bit numbers by mutant, and before them one for all
    /// places together. What is missing was not reached.
    /// `test` is `None` for a process that ran no test.
    pub fn add(&mut self, program: usize, test: Option<usize>, file: &[u8]) {
        let (numbers, _rest) = file.as_chunks::<4>();
        let numbers = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes));
        self.add_reached(program, test, (0..).map(MutantNumber).zip(numbers));
    }

    /// Adds what a test reached in an earlier run: how often places, whichever they are, and which mutants'
    /// places.
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
        // Mutants with the same list and the same count have the same list again.
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

    /// Returns what reaches a mutant's place, the last first.
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

    /// Returns the same by program and test.
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

/// The index of a place, and how often it was reached.
type PlaceCount = (u32, u32);

/// Counts of mutants' places by program and test.
#[derive(Debug, Default)]
pub(crate) struct CoverageByTest {
    /// Mutants that the same tests reach equally often.
    places: Vec<Vec<MutantNumber>>,
    /// By program and test, `None` outside of tests.
    counts: BTreeMap<(usize, Option<usize>), Vec<PlaceCount>>,
}

impl CoverageByTest {
    /// Returns how often a test, or a program outside of its tests, reached places, in the order of their
    /// numbers; that of all places has the number 0.
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
    /// Returns the greatest number of times that the place may have been reached.
    fn most(self) -> u64 {
        (u64::from(self.noted) * 2).saturating_sub(1)
    }
}

/// A program's tests without any mutant.
#[derive(Clone, Debug, Default)]
pub struct BaselineProgram {
    /// What its framework calls the tests.
    pub names: Vec<String>,
    /// How long each took; `None` for those that its framework skips.
    pub durations: Vec<Option<Duration>>,
    /// What a process takes besides its tests, where their durations do not include it.
    pub start: Duration,
    /// What the name of each takes of `selection_budget`.
    pub selection_costs: Vec<usize>,
    /// How much names of one process may take; `None` where they do not travel on the command line.
    pub selection_budget: Option<usize>,
    /// Whether a process runs one test, and can't run several.
    pub is_one_test: bool,
    /// Whether its tests may run in a fork of a process that has loaded it.
    pub is_forkable: bool,
    /// They do not pass in one.
    pub fails_in_forks: bool,
}

/// All programs without any mutant.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    pub programs: Vec<BaselineProgram>,
    pub coverage: Coverage,
    /// Tests that failed without a mutant and then passed: what they say of a mutant is to be confirmed.
    pub flaky: BTreeSet<TestIndex>,
}

/// The tests of a mutant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MutantPlan {
    /// The processes that run for it, one after the other, until one of them decides. Without any, no test
    /// reaches the mutant.
    pub steps: Vec<PlanStep>,
    pub covered_by: Vec<TestIndex>,
    /// Whether the place is reached outside of tests: then all tests of the program run.
    pub is_static: bool,
}

/// The tests that run for a mutant in one process, which ends with the first that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    pub program: usize,
    /// In the order of their framework.
    pub tests: Vec<usize>,
    /// How often the place may be reached.
    pub hit_limit: u64,
    /// How often places may be reached, whichever they are.
    pub step_limit: u64,
    /// How long nothing may be heard of the process. It counts double when the mutant is confirmed alone.
    pub silence: Duration,
    /// How long the process may take.
    pub total: Duration,
    /// How long the tests take without the mutant.
    pub expected: Duration,
    /// Of which process they may run in a fork: one that has loaded the program only if the mutant is reached
    /// nowhere but in tests.
    pub fork_point: Option<ForkPoint>,
}

/// Tests that failed under mutants of this run, which fail again most likely.
#[derive(Clone, Debug, Default)]
pub struct KnownKillers {
    last: BTreeMap<TestIndex, u64>,
    by_function: BTreeMap<FunctionId, BTreeMap<TestIndex, u64>>,
    count: u64,
}

impl KnownKillers {
    /// Notes that a test failed under a mutant of a function.
    pub fn note(&mut self, test: TestIndex, function: FunctionId) {
        self.count += 1;
        self.last.insert(test, self.count);
        self.by_function.entry(function).or_default().insert(test, self.count);
    }

    /// Returns how likely a test is to fail: greater is likelier.
    fn rank(&self, test: TestIndex, function: FunctionId) -> (u64, u64) {
        let here = self.by_function.get(&function).and_then(|tests| tests.get(&test));
        (here.copied().unwrap_or(0), self.last.get(&test).copied().unwrap_or(0))
    }
}

impl Baseline {
    /// Returns the tests that reach a mutant; all of a program where it is reached outside of them.
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

    /// Returns the processes of a mutant of a function. Programs with tests that failed under mutants of the
    /// same function come first, then those with tests that failed under others, then the fastest.
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

    /// Returns all tests of each program that run, in as many processes as one command line has names for.
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

    /// Divides the tests of a program among processes. Those that need one each run in the order in which
    /// they fail most likely.
    fn groups(
        &self,
        program: usize,
        tests: Vec<usize>,
        function: FunctionId,
        killers: &KnownKillers,
    ) -> Vec<Vec<usize>> {
        let mut groups = Vec::new();
        let mut rest = tests;
        if self.programs[program].is_one_test {
            let index = |test: usize| TestIndex { program, test };
            rest.sort_by_cached_key(|&test| {
                (Reverse(killers.rank(index(test), function)), self.expected(program, &[test]), test)
            });
            return rest.into_iter().map(|test| vec![test]).collect();
        }
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

    /// Returns the process of a mutant with some tests of a program.
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

    /// Returns whether tests of a program may run in a fork of a process that has loaded it.
    #[must_use]
    pub fn is_forkable(&self, program: usize) -> bool {
        self.programs[program].is_forkable && !self.programs[program].fails_in_forks
    }

    /// Returns how long the processes of these tests take without a mutant.
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

    /// Returns how long tests take without a mutant.
    #[must_use]
    pub fn expected(&self, program: usize, tests: &[usize]) -> Duration {
        let one = &self.programs[program];
        let of_tests: Duration = tests.iter().filter_map(|&test| one.durations[test]).sum();
        of_tests + one.start
    }
}

impl PlanStep {
    /// Returns the same with double time and a process of its own, for a mutant that runs alone.
    #[must_use]
    pub(crate) fn with_double_time(&self) -> Self {
        let (silence, total) = (self.silence.saturating_mul(2), self.total.saturating_mul(2));
        Self { silence, total, fork_point: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
