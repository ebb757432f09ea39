//! Run plan: the selected tests of the catalogue, with their settings and their history.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use model::{
    ProgramId, TestId,
    run::{Plan, PlannedTest},
    split::ProgramCosts,
};
use wire::{
    control::{DeliveryLimits, Group, ListedTest, Program, TestLimits},
    mtp::{Foreign, LogForm},
};

use super::{groups::GroupList, memory::Knowledge};

use crate::{
    config::{Capture, Dumps, FailLimit, Settings, Shuffle, TimeLimit, Watch},
    discover::{Catalogue, Listing, TestRef},
    filter::Subject,
    runs::{Provenance, RunDir},
};

/// Bytes that a name takes on a command line beside its text: the terminator and a pointer to it.
const SELECTION_OVERHEAD_BYTES: usize = 16;
/// Maximum number of bytes of names on one command line: the system accepts 2 MiB including the environment,
/// and other arguments need room.
const SELECTION_BUDGET_BYTES: usize = 1 << 20;

/// One selected test, with everything that its lease carries.
#[derive(Debug, Clone)]
pub struct SelectedTest {
    /// Its client-visible identifier.
    pub uid: String,
    /// As the framework listed it; a program whose listing failed is represented by its own name.
    pub listed: ListedTest,
    /// Index of its program in [`RunPlan::programs`].
    pub program: usize,
    /// Its index in the framework's order.
    pub place: usize,
    /// Index of its group in [`RunPlan::groups`].
    pub group: Option<u32>,
    /// Unknown members that the client sent with it, as JSON: `"name":value,…`.
    pub foreign: Option<Arc<str>>,
    /// Time limit, after which the test is ended.
    pub timeout: Option<Duration>,
    /// Memory limit in bytes, above which its process tree is killed.
    pub memory_bytes: Option<u64>,
    /// Idle timeout: the test is ended after this long without a sign of activity.
    pub silence: Option<Duration>,
    /// The test is logged as slow each time this period elapses.
    pub slow: Option<Duration>,
    /// Which dumps of its process are written.
    pub dumps: Dumps,
    /// Crash capture: which of its processes are traced.
    pub watch: Watch,
    /// Why it can't be run, or `None` if it can.
    pub unrunnable: Option<String>,
}

/// Limits of dumps.
#[derive(Debug, Clone, Copy)]
pub struct Dumping {
    /// Maximum size of one dump.
    pub limit_bytes: u64,
    /// Maximum number of dumps in one run.
    pub most: u32,
    /// Maximum size of all dumps of one run.
    pub total_bytes: u64,
    /// Dumps include the environment of the process.
    pub keeps_environment: bool,
}

/// Everything about one run that does not change while it runs.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The client's run id.
    pub run: String,
    /// The directory of its journals and attachments.
    pub run_dir: RunDir,
    /// How the run was started.
    pub provenance: Provenance,
    /// Name of the configuration profile.
    pub profile: String,
    /// The state directory, which contains the run's own directory.
    pub state_dir: PathBuf,
    /// The programs, with their framework if they could be listed.
    pub programs: Vec<Program>,
    pub tests: Vec<SelectedTest>,
    /// The groups above the tests, each after its parent.
    pub groups: Vec<Group>,
    /// The plan for the state machine.
    pub model: Plan,
    /// Limits common to all tests; each test's own timeout is stored with the test.
    pub limits: TestLimits,
    /// Time limits for a slow client.
    pub delivery: DeliveryLimits,
    /// Limits of the dumps of this run.
    pub dumping: Dumping,
    /// Time limit of the whole run.
    pub time_limit: Option<Duration>,
    /// Test output is passed to our own standard output as it arrives.
    pub is_output_shown: bool,
    /// Debug run: each test is isolated in its own process, one at a time, without the run's own time limit.
    pub is_debugged: bool,
    /// The client reads the attachments stream.
    pub has_attachments_stream: bool,
    /// The form of log messages that the client accepts.
    pub log_form: LogForm,
}

/// Inputs of a run plan.
pub(crate) struct Ingredients<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) selected: &'a [TestRef],
    /// Requested uids that no listing has.
    pub(crate) missing: &'a [String],
    pub(crate) settings: &'a Settings,
    pub(crate) knowledge: &'a Knowledge,
}

impl RunPlan {
    /// Plans a run of the selected tests.
    pub(crate) fn new(run: &str, run_dir: RunDir, ingredients: &Ingredients<'_>) -> Self {
        let settings = ingredients.settings;
        let mut programs = Programs::default();
        let mut groups = GroupList::default();
        let mut tests = Vec::with_capacity(ingredients.selected.len());
        let mut planned = Vec::with_capacity(ingredients.selected.len());
        for place in ingredients.selected {
            let (mut test, plan) = select(*place, ingredients, &mut programs);
            test.group = groups.add(&ingredients.catalogue.groups(*place));
            tests.push(test);
            planned.push(plan);
        }
        for uid in ingredients.missing {
            let (test, plan) = missing(uid, &mut programs);
            tests.push(test);
            planned.push(plan);
        }
        if let Shuffle::Seed(seed) = settings.run.shuffle {
            shuffle(&mut tests, &mut planned, seed);
        }
        let model = Plan {
            programs: programs.costs,
            tests: planned,
            slots: settings.run.jobs.slots().get(),
            max_failures: match settings.run.fail_limit {
                FailLimit::Never => None,
                FailLimit::After(most) => Some(most.get() as usize),
            },
            give_up_after: settings.run.give_up_after.get(),
        };
        Self {
            run: run.to_owned(),
            run_dir,
            provenance: Provenance::default(),
            profile: settings.profile.clone(),
            state_dir: settings.state_dir.clone(),
            programs: programs.programs,
            tests,
            groups: groups.finish(),
            model,
            limits: limits(settings),
            delivery: delivery(settings),
            dumping: Dumping {
                limit_bytes: settings.run.dump_limit_bytes,
                most: settings.run.dumps_per_run,
                total_bytes: settings.run.dumps_total_bytes,
                keeps_environment: settings.run.is_environment_dumped,
            },
            time_limit: match settings.run.run_timeout {
                TimeLimit::Never => None,
                TimeLimit::After(limit) => Some(limit),
            },
            is_output_shown: settings.run.capture == Capture::Shown,
            is_debugged: false,
            has_attachments_stream: false,
            log_form: LogForm::Single,
        }
    }

    /// Makes this a debug run. Tests are not retried, because an effect of the debugger on a test is no
    /// failure that a retry could fix.
    pub(crate) fn debug(&mut self) {
        self.is_debugged = true;
        self.time_limit = None;
        self.model.slots = 1;
        for test in &mut self.model.tests {
            (test.is_alone, test.retries) = (true, 0);
        }
    }

    /// Returns the memory limit of a process that runs these tests. They share its memory, so the largest of
    /// their limits applies, and none if one of them has none.
    pub(super) fn memory_limit(&self, tests: &[TestId]) -> Option<u64> {
        let limits = tests.iter().map(|test| self.tests[test.index()].memory_bytes);
        limits.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Attaches to tests and groups the unknown members that the client sent with them.
    pub(crate) fn carry(&mut self, foreign: &Foreign) {
        if foreign.is_empty() {
            return;
        }
        self.tests.iter_mut().for_each(|test| test.foreign = foreign.get(&test.uid).cloned());
        for group in &mut self.groups {
            group.foreign = foreign.get(&group.uid).map(|foreign| (**foreign).to_owned());
        }
    }
}

#[derive(Default)]
struct Programs {
    by_place: HashMap<Option<usize>, usize>,
    programs: Vec<Program>,
    costs: Vec<ProgramCosts>,
}

impl Programs {
    fn number(&mut self, place: Option<usize>, make: impl FnOnce() -> (Program, ProgramCosts)) -> usize {
        *self.by_place.entry(place).or_insert_with(|| {
            let (program, costs) = make();
            self.programs.push(program);
            self.costs.push(costs);
            self.programs.len() - 1
        })
    }
}

fn select(place: TestRef, of: &Ingredients<'_>, programs: &mut Programs) -> (SelectedTest, PlannedTest) {
    let entry = &of.catalogue.programs()[place.program];
    let suite = &entry.source.program.suite;
    let program = programs.number(Some(place.program), || {
        let mut program = entry.source.program.clone();
        let mut costs = ProgramCosts {
            start: of.knowledge.start_of(suite),
            selection_budget_bytes: Some(SELECTION_BUDGET_BYTES),
        };
        if let Listing::Listed { framework, start, .. } = &entry.listing {
            program.framework = Some(framework.clone());
            costs.start = costs.start.or(Some(*start));
        }
        (program, costs)
    });
    let (uid, listed, unrunnable) = match (of.catalogue.test(place), &entry.listing) {
        (Some(test), _) => (test.uid().to_owned(), test.listed(), test.unrunnable().map(str::to_owned)),
        (None, Listing::Broken { error }) => (suite.clone(), named(suite), Some(error.clone())),
        (None, Listing::Unknown | Listing::Listed { .. }) => {
            (suite.clone(), named(suite), Some("not run: the program was not listed".to_owned()))
        }
    };
    let subject = Subject {
        uid: &uid,
        suite,
        program: entry.source.program.path.to_text(),
        tags: listed.traits.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect(),
        last: of.knowledge.outcome_of(&uid),
    };
    let own = of.settings.of_test(entry.source.config_suite.as_deref(), &subject);
    let planned = PlannedTest {
        program: program_id(program),
        weight: of.knowledge.duration_of(&uid),
        is_alone: own.is_isolated || of.knowledge.is_dangerous(&uid),
        retries: own.retries,
        // Names passed in a file cost nothing, but only the worker decides how to pass them, so the budget
        // applies to all.
        selection_bytes: listed.name.len() + SELECTION_OVERHEAD_BYTES,
        is_unrunnable: unrunnable.is_some(),
    };
    let test = SelectedTest {
        uid,
        listed,
        program,
        place: place.test.unwrap_or(0),
        group: None,
        foreign: None,
        timeout: own.timeout,
        memory_bytes: own.memory_bytes,
        silence: own.silence,
        slow: Some(own.slow_period).filter(|period| !period.is_zero()),
        dumps: own.dumps,
        watch: own.watch,
        unrunnable,
    };
    (test, planned)
}

fn missing(uid: &str, programs: &mut Programs) -> (SelectedTest, PlannedTest) {
    let program = programs.number(None, || {
        let nobody = Program {
            suite: String::new(),
            path: "".into(),
            args: Vec::new(),
            tool_env: Vec::new(),
            env: Vec::new(),
            cwd: "".into(),
            framework: None,
        };
        (nobody, ProgramCosts::default())
    });
    let unrunnable = "not run: no program of this session lists this test".to_owned();
    let test = SelectedTest {
        uid: uid.to_owned(),
        listed: named(uid),
        program,
        place: 0,
        group: None,
        foreign: None,
        timeout: None,
        memory_bytes: None,
        silence: None,
        slow: None,
        dumps: Dumps::Off,
        watch: Watch::Off,
        unrunnable: Some(unrunnable),
    };
    let planned = PlannedTest {
        program: program_id(program),
        weight: None,
        is_alone: false,
        retries: 0,
        selection_bytes: 0,
        is_unrunnable: true,
    };
    (test, planned)
}

fn named(name: &str) -> ListedTest {
    ListedTest { name: name.to_owned(), ..ListedTest::default() }
}

fn program_id(place: usize) -> ProgramId {
    ProgramId(u32::try_from(place).expect("a session has fewer than 2^32 programs"))
}

fn limits(settings: &Settings) -> TestLimits {
    TestLimits {
        timeout_ms: None,
        grace_ms: millis(settings.run.grace_period),
        output_bytes: settings.run.output_limit_bytes,
        startup_ms: millis(settings.run.startup_timeout),
        memory_bytes: None,
    }
}

/// Returns the time limits for a slow client, from the settings.
pub(crate) fn delivery(settings: &Settings) -> DeliveryLimits {
    DeliveryLimits {
        connect_ms: millis(settings.run.connect_timeout),
        stall_ms: millis(settings.run.stall_timeout),
        drain_ms: millis(settings.run.drain_timeout),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Shuffles with Fisher-Yates over xorshift: the same seed gives the same order on every machine and in every
/// version.
fn shuffle(tests: &mut [SelectedTest], planned: &mut [PlannedTest], seed: u64) {
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
