//! Run plan: the selected tests of the catalogue with their settings and history.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use heeler_core::{
    MemoryBudget, ProgramId, RetryPolicy, TestId,
    batching::ProgramCosts,
    run::{CancelMode, FailureLimit, ScheduledTest, SchedulingPlan},
};
use heeler_protocol::control::{
    DeliveryLimits, ListedTest, OsText, OutputDisplay, OutputForm, TestGroup, TestLimits, TestProgram,
};

use super::{
    bonds::Bonds,
    configured_fixtures::FixtureCommands,
    fixtures::add_prerequisites,
    groups::GroupList,
    needs::{ResourceName, expected_duration},
    program_table::{ListingFacts, NeedyTest, PlannedProgram, PlannedPrograms, ProgramTable, program_id},
    selected_test::SelectedTest,
    test_history::HistorySnapshot,
    units::UnitVariables,
};

use crate::discovery::{Catalogue, ListingState, TestRef};
use heeler_config::filter::FilterSubject;
use heeler_config::{
    CaptureStrategy, FailLimit, ProgramOptions, ResolvedSettings, RunIgnored, ShuffleMode, TestSettings,
};
use heeler_run_store::{Provenance, RunDir};

#[derive(Debug, Clone, Copy)]
pub struct DumpLimits {
    /// Maximum size of one dump.
    pub limit_bytes: u64,
    /// Maximum number of dumps in one run.
    pub max_dumps: u32,
    /// Maximum size of all dumps of one run.
    pub total_bytes: u64,
    /// Whether dumps include the environment of the process.
    pub keeps_environment: bool,
}

/// Everything about a run that does not change while it runs. Only open runs gain tests.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The client's run id.
    pub run_id: String,
    /// Directory of the run's journals and attachments.
    pub run_dir: RunDir,
    /// How the run was started.
    pub provenance: Provenance,
    /// Name of the configuration profile.
    pub profile: String,
    /// The state directory, which contains the run's own directory.
    pub state_dir: PathBuf,
    /// The programs. `framework` is set if a program could be listed.
    pub programs: Vec<Arc<TestProgram>>,
    /// Listing facts of each program, in the order of `programs`.
    pub listings: Vec<ListingFacts>,
    /// Index in `programs` of each program of the model. The model lists a program once for each set of
    /// resources that its tests need.
    pub model_programs: Vec<usize>,
    /// For each program of the model, the configured fixtures whose variables its processes get; each follows
    /// the fixtures that it needs.
    pub fixtures: Vec<Arc<[String]>>,
    /// For each program of the model, what its processes learn about the units of their resources.
    pub(super) units: Vec<UnitVariables>,
    /// The selected tests, then the set-ups and tear-downs of the fixtures that they need.
    pub tests: Vec<SelectedTest>,
    /// Groups that contain the tests; each follows its parent.
    pub groups: Vec<TestGroup>,
    /// Names of the resources in `model`.
    pub(crate) resources: Vec<ResourceName>,
    /// Scheduling plan for the state machine.
    pub model: SchedulingPlan,
    /// Limits common to all tests. Each test's own timeout is stored with the test.
    pub limits: TestLimits,
    /// Maximum size of the journals. Beyond it, results are recorded without output.
    pub journal_limit_bytes: u64,
    /// Time limits for a slow client.
    pub delivery_limits: DeliveryLimits,
    /// Limits of the dumps of this run.
    pub dump_limits: DumpLimits,
    /// Time limit of the whole run.
    pub time_limit: Option<Duration>,
    /// How test output is copied to our own standard streams as it arrives.
    pub output_display: OutputDisplay,
    /// Whether test output is sent to the client as it arrives.
    pub is_output_live: bool,
    /// Number of times that each test must pass.
    pub repeat: NonZeroU32,
    /// How long all tests are repeated; replaces `repeat`.
    pub stress_duration: Option<Duration>,
    /// Whether to run tests that their framework would skip.
    pub runs_ignored: bool,
    /// Whether reproduce commands contain the values of configured environment variables.
    pub is_environment_shown: bool,
    /// Whether `TMPDIR` names the private temporary directory of each test process.
    pub has_private_tmpdir: bool,
    /// Debug run: one test at a time, each in its own process, without a time limit for the run.
    pub is_debugged: bool,
    /// Whether the client reads the attachments stream.
    pub has_attachments_stream: bool,
}

pub(crate) struct RunPlanInputs<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) selected: &'a [TestRef],
    /// Requested uids that appear in no listing.
    pub(crate) missing: &'a [String],
    pub(crate) settings: &'a ResolvedSettings,
    pub(crate) history: &'a HistorySnapshot,
    /// Available memory of the machine or of the process's group in KiB, if it and the peak of a test are
    /// known.
    pub(crate) available_kib: Option<u64>,
}

/// Selected tests with their programs and groups.
#[derive(Debug)]
pub struct PlannedTests {
    programs: PlannedPrograms,
    tests: Vec<SelectedTest>,
    /// Groups that contain the tests; each follows its parent.
    groups: Vec<TestGroup>,
    /// Scheduling data of the tests for the state machine.
    scheduled: Vec<ScheduledTest>,
}

impl PlannedTests {
    pub(crate) fn new(ingredients: &RunPlanInputs<'_>) -> Self {
        // Plan each selected test, and collect its program and groups.
        let mut programs = ProgramTable::default();
        let mut groups = GroupList::default();
        let mut tests = Vec::with_capacity(ingredients.selected.len());
        let mut planned = Vec::with_capacity(ingredients.selected.len());
        let mut bonds = Bonds::default();
        let memory = memory_budget(ingredients);
        for place in ingredients.selected {
            let (mut test, mut plan) = plan_test(*place, ingredients, memory, &mut programs);
            plan.bond = bonds.of(&plan, &test, ingredients.catalogue, *place);
            test.group = groups.add(ingredients.catalogue, &ingredients.catalogue.groups(*place));
            tests.push(test);
            planned.push(plan);
        }
        // Requested tests that no program lists are reported as unrunnable.
        for uid in ingredients.missing {
            let (test, plan) = plan_missing_test(uid, &mut programs);
            tests.push(test);
            planned.push(plan);
        }
        if let ShuffleMode::Seed(seed) = ingredients.settings.run.shuffle {
            shuffle(&mut tests, &mut planned, seed);
        }
        bonds.make_adjacent(&mut tests, &mut planned);
        add_prerequisites(tests.iter().map(|test| &test.listed), &mut planned);
        FixtureCommands::add(ingredients.settings, &mut programs, &mut tests, &mut planned);
        Self { programs: programs.finish(), tests, groups: groups.finish(), scheduled: planned }
    }

    /// Replaces the estimated duration of each test with `estimate(name)`.
    pub(crate) fn estimate_durations(&mut self, estimate: impl Fn(&str) -> Duration) {
        let tests = self.scheduled.iter_mut().zip(&self.tests);
        for (scheduled, selected) in tests.filter(|(_, test)| test.fixture.is_none()) {
            scheduled.weight = Some(estimate(&selected.listed.name));
        }
    }

    /// Replaces the settings of each test with `settings(name)`.
    pub(crate) fn replace_settings(&mut self, settings: impl Fn(&str) -> TestSettings) {
        let tests = self.scheduled.iter_mut().zip(&mut self.tests);
        for (scheduled, selected) in tests.filter(|(_, test)| test.fixture.is_none()) {
            selected.settings = settings(&selected.listed.name);
            scheduled.retries = selected.settings.retries;
        }
    }
}

impl RunPlan {
    /// Plans a run of these tests.
    pub(crate) fn new(
        run: &str,
        run_dir: RunDir,
        settings: &ResolvedSettings,
        planned: PlannedTests,
    ) -> Self {
        let PlannedTests { programs, tests, groups, scheduled } = planned;
        let model = SchedulingPlan {
            programs: programs.costs,
            capacities: programs.capacities,
            tests: scheduled,
            slots: settings.run.jobs.slots().get(),
            batch_limit: None,
            is_open: false,
            failure_limit: match settings.run.fail_limit() {
                FailLimit::Never => None,
                FailLimit::After { failures, is_immediate } => Some(FailureLimit {
                    failures: failures.get() as usize,
                    cancel_mode: if is_immediate { CancelMode::Now } else { CancelMode::AfterRunningTests },
                }),
            },
            max_startup_crashes: settings.run.max_startup_crashes.get(),
            retry_seed: retry_seed(run),
        };
        Self {
            run_id: run.to_owned(),
            run_dir,
            provenance: Provenance::default(),
            profile: settings.profile.clone(),
            state_dir: settings.state_dir.clone(),
            output_display: output_display(settings, programs.programs.len()),
            programs: programs.programs,
            listings: programs.listings,
            model_programs: programs.model_programs,
            fixtures: programs.fixtures,
            resources: programs.resources,
            units: programs.units,
            tests,
            groups,
            model,
            limits: test_limits(settings),
            journal_limit_bytes: settings.run.journal_limit_bytes,
            delivery_limits: delivery_limits(settings),
            dump_limits: DumpLimits {
                limit_bytes: settings.run.dump_limit_bytes,
                max_dumps: settings.run.dumps_per_run,
                total_bytes: settings.run.dumps_total_bytes,
                keeps_environment: settings.run.is_environment_dumped,
            },
            time_limit: settings.run.run_timeout.duration(),
            is_output_live: settings.program.is_output_live,
            repeat: repeat_of(settings),
            stress_duration: settings.program.stress_duration,
            runs_ignored: settings.program.run_ignored != RunIgnored::Default,
            is_environment_shown: settings.run.is_environment_shown,
            has_private_tmpdir: settings.run.has_private_tmpdir,
            is_debugged: false,
            has_attachments_stream: false,
        }
    }

    /// Adds tests of the same programs and returns them for the state machine. Returns `None` and adds
    /// nothing if their programs differ from this plan's.
    pub(super) fn append(&mut self, added: PlannedTests) -> Option<Vec<ScheduledTest>> {
        let has_equal_needs = || {
            added.programs.costs.iter().zip(&self.model.programs).all(|(one, other)| one.needs == other.needs)
        };
        let has_fixtures = |tests: &[SelectedTest]| tests.iter().any(|test| test.fixture.is_some());
        if has_fixtures(&self.tests)
            || has_fixtures(&added.tests)
            || added.programs.programs != self.programs
            || added.programs.model_programs != self.model_programs
            || added.programs.units != self.units
            || !has_equal_needs()
        {
            return None;
        }
        let first = self.tests.len();
        // Merge the groups. `moved` maps the added indices to the merged ones.
        let mut places: HashMap<_, _> =
            self.groups.iter().zip(0_u32..).map(|(group, place)| (group.uid.clone(), place)).collect();
        let mut moved = Vec::with_capacity(added.groups.len());
        for group in added.groups {
            let place = *places.entry(group.uid.clone()).or_insert_with(|| {
                let parent = group.parent.map(|parent| moved[parent as usize]);
                self.groups.push(TestGroup { parent, ..group });
                u32::try_from(self.groups.len() - 1).expect("there are fewer groups than tests")
            });
            moved.push(place);
        }
        self.tests.extend(added.tests.into_iter().map(|test| {
            let group = test.group.map(|group| moved[group as usize]);
            SelectedTest { group, ..test }
        }));
        // Prerequisites are numbered within the added tests.
        let mut scheduled = added.scheduled;
        for one in scheduled.iter_mut().flat_map(|test| &mut test.prerequisites) {
            one.test =
                TestId(u32::try_from(first + one.test.index()).expect("a run has fewer than 2^32 tests"));
        }
        Some(scheduled)
    }

    /// Makes this a debug run: each test runs once and is never retried, because a failure caused by the
    /// debugger can't be fixed by a retry.
    pub(crate) fn make_debug_run(&mut self) {
        self.is_debugged = true;
        self.time_limit = None;
        (self.repeat, self.stress_duration) = (NonZeroU32::MIN, None);
        self.model.slots = 1;
        for test in &mut self.model.tests {
            (test.is_isolated, test.retries) = (true, RetryPolicy::immediate(0));
        }
    }

    /// Returns whether these tests are all tests of the program that its framework runs by default.
    pub(super) fn is_whole_program(&self, program: usize, tests: &[TestId]) -> bool {
        // Without a selection, the framework would run a different set of tests.
        if self.runs_ignored {
            return false;
        }
        let is_run = |test: &&TestId| self.tests[test.index()].listed.skip.is_none();
        self.listings[program].runnable_tests == Some(tests.iter().filter(is_run).count())
    }

    /// Returns how long a process of the program takes to start its first test, according to earlier runs or
    /// its listing.
    pub(super) fn known_start(&self, program: usize) -> Option<Duration> {
        let model = self.model_programs.iter().position(|one| *one == program);
        let start = model.and_then(|place| self.model.programs[place].start);
        start.max(self.listings[program].start)
    }

    /// Returns the index in `programs` of a program of the model.
    pub(super) fn program_of(&self, program: ProgramId) -> usize {
        self.model_programs[program.index()]
    }

    /// Returns the first program of the model that stands for this one, and whose processes get no variables
    /// of fixtures and units, so that a process of the program can run its tests.
    pub(super) fn model_program(&self, program: usize) -> Option<ProgramId> {
        let has_no_variables = |place: usize| self.fixtures[place].is_empty() && self.units[place].is_empty();
        let mut model = self.model_programs.iter().enumerate();
        let place = model.find(|(place, one)| **one == program && has_no_variables(*place));
        place.map(|(place, _)| program_id(place))
    }

    /// Returns the selected tests, without set-ups and tear-downs of fixtures.
    pub fn selected_tests(&self) -> &[SelectedTest] {
        let fixtures = self.tests.iter().rev().take_while(|test| test.fixture.is_some()).count();
        &self.tests[..self.tests.len() - fixtures]
    }

    /// Returns the memory limit of a process that runs these tests. The tests share the process, so the
    /// largest of their limits applies, or no limit if one of them has none.
    pub(super) fn memory_limit(&self, tests: &[TestId]) -> Option<u64> {
        let limits = tests.iter().map(|test| self.tests[test.index()].settings.max_memory.bytes());
        limits.reduce(|one, other| Some(one?.max(other?))).flatten()
    }
}

/// Returns the memory that the selected tests share, if the largest of them do not fit beside each other.
fn memory_budget(of: &RunPlanInputs<'_>) -> Option<MemoryBudget> {
    let peak_of = |place: &TestRef| {
        let suite = &of.catalogue.programs()[place.program].source.program.suite;
        of.history.peak_kib_of(of.catalogue.test(*place)?.uid(), suite)
    };
    let slots = of.settings.run.jobs.slots().get();
    MemoryBudget::new(of.available_kib?, slots, of.selected.iter().filter_map(peak_of))
}

fn plan_test(
    place: TestRef,
    of: &RunPlanInputs<'_>,
    memory: Option<MemoryBudget>,
    programs: &mut ProgramTable,
) -> (SelectedTest, ScheduledTest) {
    // Add the program, unless an earlier test has added it.
    let entry = &of.catalogue.programs()[place.program];
    let suite = &entry.source.program.suite;
    let program = programs.get_or_insert(Some(place.program), || {
        let mut program = entry.source.program.without_entries();
        apply_program_options(&mut program, &of.settings.program);
        let mut costs = ProgramCosts { start: of.history.start_of(suite), ..ProgramCosts::default() };
        let mut listing = ListingFacts::default();
        if let ListingState::Listed { framework, selection_limit, start, tests, failure, process, .. } =
            &entry.listing
        {
            program.framework = Some(framework.clone());
            costs.selection_budget_bytes = selection_limit.map(|limit| limit.budget_bytes);
            costs.listing = Some(*start);
            // If the program has entries, an unfiltered run might include tests outside the listing.
            let is_whole = entry.source.program.entries.is_empty();
            listing.runnable_tests = is_whole.then(|| tests.iter().filter(|test| !test.is_skipped()).count());
            listing.start = Some(*start);
            listing.has_conflict = of.history.has_conflict(suite);
            costs.process = *process;
            listing.failure.clone_from(failure);
        }
        PlannedProgram { program, costs, listing }
    });
    // A program without a listing is represented by one unrunnable test.
    let (uid, mut listed, unrunnable) = match (of.catalogue.test(place), &entry.listing) {
        (Some(test), _) => (test.uid().to_owned(), test.listed(), test.unrunnable().map(str::to_owned)),
        (None, ListingState::Broken { error }) => (suite.clone(), listed_by_name(suite), Some(error.clone())),
        (None, ListingState::Unknown | ListingState::Listed { .. }) => {
            (suite.clone(), listed_by_name(suite), Some("not run: the program was not listed".to_owned()))
        }
    };
    if of.settings.program.run_ignored != RunIgnored::Default {
        listed.skip = None;
    }
    // Resolve the settings that apply to this test.
    let config_suite = entry.source.config_suite.as_deref();
    let subject = FilterSubject {
        uid: &uid,
        suite,
        config_suite,
        program: entry.source.program.path.to_text(),
        tags: listed.traits.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect(),
        last: of.history.outcome_of(&uid),
    };
    let selection_limit = match &entry.listing {
        ListingState::Listed { selection_limit, .. } => *selection_limit,
        ListingState::Broken { .. } | ListingState::Unknown => None,
    };
    let settings = of.settings.for_test(config_suite, &subject);
    let fixtures = match listed.skip.is_none() && unrunnable.is_none() {
        true => of.settings.fixture_order(settings.needs.as_deref().unwrap_or_default()).into(),
        false => Arc::default(),
    };
    let peak_kib = of.history.peak_kib_of(&uid, suite);
    let memory_units = memory.zip(peak_kib).map_or(0, |(memory, peak_kib)| memory.units_of(peak_kib));
    let needy = NeedyTest { listed: &listed, settings: &settings, fixtures, memory_units };
    let model_program = programs.model_program(program, needy, &of.settings.resources);
    programs.limit_processes(model_program, &settings);
    let planned = ScheduledTest {
        weight: weight_of_iterations(
            of.history.duration_of(&uid).or_else(|| expected_duration(&listed)),
            repeat_of(of.settings),
        ),
        is_isolated: settings.is_isolated
            || programs.process_traits(program).is_one_test
            || (settings.together.is_none() && of.history.needs_isolation(&uid)),
        retries: settings.retries,
        selection_bytes: selection_limit.map_or(0, |limit| limit.cost(&listed.name)),
        is_unrunnable: unrunnable.is_some(),
        ..ScheduledTest::new(program_id(model_program))
    };
    let test = SelectedTest {
        uid,
        listed,
        program,
        listing_index: place.test.unwrap_or(0),
        group: None,
        settings,
        unrunnable,
        fixture: None,
    };
    (test, planned)
}

/// Returns how long a test takes in its lease, which runs all its iterations.
fn weight_of_iterations(one: Option<Duration>, repeat: NonZeroU32) -> Option<Duration> {
    one.map(|one| one.saturating_mul(repeat.get()))
}

/// Returns a seed that is different for each run.
fn retry_seed(run: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    run.hash(&mut hasher);
    hasher.finish()
}

fn repeat_of(settings: &ResolvedSettings) -> NonZeroU32 {
    settings.program.repeat.unwrap_or(NonZeroU32::MIN)
}

/// Adds the arguments and environment variables of the run request to the configured ones.
fn apply_program_options(program: &mut TestProgram, options: &ProgramOptions) {
    program.args.extend(options.args.iter().map(|word| OsText::from(word.as_str())));
    let variables = options.env.iter();
    let variables =
        variables.map(|(name, value)| (OsText::from(name.as_str()), value.as_deref().map(OsText::from)));
    program.env.extend(variables);
}

fn plan_missing_test(uid: &str, programs: &mut ProgramTable) -> (SelectedTest, ScheduledTest) {
    let program = programs.get_or_insert(None, || {
        let nobody = TestProgram {
            suite: String::new(),
            path: "".into(),
            args: Vec::new(),
            tool_env: Vec::new(),
            env: Vec::new(),
            cwd: "".into(),
            framework: None,
            test_arguments: BTreeMap::new(),
            entries: Vec::new(),
            unbuilt: None,
            reproduction: Default::default(),
            resources: BTreeMap::new(),
        };
        PlannedProgram { program: nobody, costs: ProgramCosts::default(), listing: ListingFacts::default() }
    });
    let listed = listed_by_name(uid);
    let settings = TestSettings::default();
    let needy = NeedyTest { listed: &listed, settings: &settings, fixtures: Arc::default(), memory_units: 0 };
    let model_program = programs.model_program(program, needy, &BTreeMap::new());
    let unrunnable = "not run: no program of this session contains this test".to_owned();
    let test = SelectedTest {
        uid: uid.to_owned(),
        listed,
        program,
        listing_index: 0,
        group: None,
        settings,
        unrunnable: Some(unrunnable),
        fixture: None,
    };
    let planned = ScheduledTest { is_unrunnable: true, ..ScheduledTest::new(program_id(model_program)) };
    (test, planned)
}

fn listed_by_name(name: &str) -> ListedTest {
    ListedTest { name: name.to_owned(), ..ListedTest::default() }
}

/// Returns how test output is shown. With one slot, tests never write at the same time and lines need no
/// prefix.
fn output_display(settings: &ResolvedSettings, programs: usize) -> OutputDisplay {
    match settings.run.capture {
        CaptureStrategy::Kept => OutputDisplay::Hidden,
        CaptureStrategy::Shown => {
            let has_prefix = settings.run.jobs.slots().get() > 1;
            OutputDisplay::Shown(OutputForm { has_prefix, has_suite: programs > 1 })
        }
    }
}

fn test_limits(settings: &ResolvedSettings) -> TestLimits {
    TestLimits {
        timeout_ms: None,
        grace_ms: millis(settings.run.grace_period),
        output_bytes: settings.run.output_limit_bytes,
        startup_ms: millis(settings.run.startup_timeout),
        memory_bytes: None,
    }
}

/// Time for a client that hasn't answered anything yet to open a callback connection, in milliseconds.
/// Exceeding it only changes the route of the results.
const FIRST_ANSWER_MS: u64 = 2000;

/// Returns the time limits for a slow client.
pub(crate) fn delivery_limits(settings: &ResolvedSettings) -> DeliveryLimits {
    DeliveryLimits {
        connect_ms: millis(settings.run.connect_timeout),
        stall_ms: millis(settings.run.client_stall_timeout),
        drain_ms: millis(settings.run.drain_timeout),
        answer_ms: millis(settings.run.client_answer_timeout),
        first_answer_ms: FIRST_ANSWER_MS,
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Shuffles with Fisher-Yates over xorshift. A seed produces the same order on every machine and in every
/// version.
fn shuffle(tests: &mut [SelectedTest], planned: &mut [ScheduledTest], seed: u64) {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    for last in (1..tests.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % (last as u64 + 1)).expect("it is at most `last`");
        tests.swap(last, other);
        planned.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_counts_all_iterations() {
        let second = Some(Duration::from_secs(1));
        let repeat = |count| NonZeroU32::new(count).unwrap();
        assert_eq!(weight_of_iterations(second, repeat(1)), second);
        assert_eq!(weight_of_iterations(second, repeat(4)), Some(Duration::from_secs(4)));
        assert_eq!(weight_of_iterations(Some(Duration::MAX), repeat(4)), Some(Duration::MAX));
        assert_eq!(weight_of_iterations(None, repeat(4)), None, "an unknown duration stays unknown");
    }
}
