//! What is to run: selected tests of the catalogue, with what settings and history say of each.

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

/// What a name costs beside itself: its end and a pointer to it.
const SELECTION_OVERHEAD_BYTES: usize = 16;
/// So many bytes of names fit on one command line: the system takes 2 MiB with the environment, and other
/// arguments want room.
const SELECTION_BUDGET_BYTES: usize = 1 << 20;

/// One selected test, with all that a lease needs to say of it.
#[derive(Debug, Clone)]
pub struct SelectedTest {
    /// Its name for the client.
    pub uid: String,
    /// As the framework lists it; a program that can't be listed stands here by its own name.
    pub listed: ListedTest,
    /// Its program, in [`RunPlan::programs`].
    pub program: usize,
    /// Its place in the framework's order.
    pub place: usize,
    /// Its group, in [`RunPlan::groups`].
    pub group: Option<u32>,
    /// Members that the client gave it, as JSON: `"name":value,…`.
    pub foreign: Option<Arc<str>>,
    /// A test that runs longer is ended.
    pub timeout: Option<Duration>,
    /// Its process tree is killed when it uses more bytes.
    pub memory_bytes: Option<u64>,
    /// It is ended when it gives no sign for so long.
    pub silence: Option<Duration>,
    /// The log is told each time when it has run so long.
    pub slow: Option<Duration>,
    /// What is dumped of its process.
    pub dumps: Dumps,
    /// Which of its processes are watched.
    pub watch: Watch,
    /// Why it can't be run, if so.
    pub unrunnable: Option<String>,
}

/// Limits of dumps.
#[derive(Debug, Clone, Copy)]
pub struct Dumping {
    /// Of one dump.
    pub limit_bytes: u64,
    /// How many in one run.
    pub most: u32,
    /// Of all of one run.
    pub total_bytes: u64,
    /// They keep the environment of the process.
    pub keeps_environment: bool,
}

/// Everything about one run that does not change while it runs.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The client's id.
    pub run: String,
    /// Where journals and attachments go.
    pub run_dir: RunDir,
    /// Where it comes from.
    pub provenance: Provenance,
    /// The profile's name.
    pub profile: String,
    /// The directory that the run's own belongs to.
    pub state_dir: PathBuf,
    /// The programs, frameworks known where they could be listed.
    pub programs: Vec<Program>,
    /// The selected tests.
    pub tests: Vec<SelectedTest>,
    /// The groups above them, each behind its own group.
    pub groups: Vec<Group>,
    /// What the state machine needs.
    pub model: Plan,
    /// Limits of all tests; a test's own timeout stands with the test.
    pub limits: TestLimits,
    /// How long to wait for clients.
    pub delivery: DeliveryLimits,
    /// What may be dumped in this run.
    pub dumping: Dumping,
    /// The run is ended after this time.
    pub time_limit: Option<Duration>,
    /// Output goes to our own standard output as it comes.
    pub is_output_shown: bool,
    /// Its tests are for debuggers: each alone in its process, one at a time, without the run's own time limit.
    pub is_debugged: bool,
    /// The client reads the attachments stream.
    pub has_attachments_stream: bool,
    /// Which form of log messages the client reads.
    pub log_form: LogForm,
}

/// What a run is made of.
pub(crate) struct Ingredients<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) selected: &'a [TestRef],
    /// Uids that were asked for and that no listing has.
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

    /// Makes it a run for debuggers. What a debugger does to a test is no failure of it that a retry could mend.
    pub(crate) fn debug(&mut self) {
        self.is_debugged = true;
        self.time_limit = None;
        self.model.slots = 1;
        for test in &mut self.model.tests {
            (test.is_alone, test.retries) = (true, 0);
        }
    }

    /// Tests of one process share its memory: the widest of their limits holds, and none where one has none.
    pub(super) fn memory_limit(&self, tests: &[TestId]) -> Option<u64> {
        let limits = tests.iter().map(|test| self.tests[test.index()].memory_bytes);
        limits.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Gives the tests and groups the members that the client sent with them.
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
        // Files of names cost nothing; but a worker decides that, and so the budget holds for all.
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

/// Returns how long to wait for clients, by the settings.
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

/// Fisher-Yates over xorshift: the same seed gives the same order on every machine and in every version.
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
