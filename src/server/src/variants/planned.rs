//! The plan of a run of variants. Each variant is a test of its program, alone in its process.

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use heeler_config::{
    CaptureStrategy, CrashCapture, DumpPolicy, FailFast, ProgramOptions, ResolvedSettings, ShuffleMode,
    SlowTimeout, TestSettings, TimeLimit,
};
use heeler_core::{batching::ProcessTraits, test_path::NameNesting};
use heeler_protocol::control::{ForkPoint, ListedTest, OsText, SelectionLimit, TestVariant};
use heeler_run_store::Provenance;
use heeler_sys::dirs::DirError;

use crate::{
    discovery::{
        Catalogue, ListingState, ProgramEntry, ProgramListing, ProgramSource, TestEntry, TestSelection,
    },
    run::{PlanContext, PreparedRun, plan_tests, prepare_planned_run},
};

/// Bytes kept of each output of a variant, enough for the message of its first failure.
const OUTPUT_LIMIT_BYTES: u64 = 16 << 10;
/// Time between SIGTERM and SIGKILL for a variant that exceeds a limit.
const GRACE_PERIOD: Duration = Duration::from_millis(500);

/// A program with its listed tests.
#[derive(Debug, Clone)]
pub struct ListedProgram {
    /// First part of the uids of its tests.
    pub suite: String,
    pub path: String,
    /// Tests in the framework's order.
    pub tests: Vec<Arc<ListedTest>>,
    /// Uids of the tests.
    pub uids: Vec<String>,
    pub selection_limit: Option<SelectionLimit>,
    /// Whether a process of this program can run only one test.
    pub is_one_test: bool,
    /// Why the program could not be listed, as one sentence. It then has no tests.
    pub error: Option<String>,
}

/// Tests of a program that run as a single test.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Name within the run.
    pub name: String,
    /// Index of the program in the listing.
    pub program: usize,
    /// Environment variables on top of the program's; `None` unsets one.
    pub env: Vec<(OsText, Option<OsText>)>,
    /// Indices of the tests in the program's listing, ascending and never empty.
    pub tests: Vec<usize>,
    pub limits: VariantLimits,
    /// Where a process may be forked to run the tests, if the framework supports forks.
    pub fork_point: Option<ForkPoint>,
    /// Expected duration.
    pub weight: Duration,
}

/// Time limits of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariantLimits {
    /// Maximum time without output or an ended test. The clock pauses while the machine does not run the
    /// process.
    pub silence: Duration,
    /// Time limit for all tests of the variant.
    pub total: Duration,
}

/// How many variants of a run are in progress at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariantSlots {
    /// All slots run variants.
    All,
    /// One variant at a time.
    One,
}

/// Returns settings for runs of variants, which leave files only in `state_dir`.
pub(super) fn settings_of_variants(settings: &ResolvedSettings, state_dir: &Path) -> ResolvedSettings {
    let mut own = settings.clone();
    state_dir.clone_into(&mut own.state_dir);
    own.filters.clear();
    own.partition = None;
    own.program = ProgramOptions::default();
    own.run.fail_fast = FailFast::Off;
    own.run.max_fail = None;
    own.run.shuffle = ShuffleMode::Off;
    own.run.capture = CaptureStrategy::Kept;
    own.run.output_limit_bytes = OUTPUT_LIMIT_BYTES;
    own.run.grace_period = GRACE_PERIOD;
    own.run.run_timeout = TimeLimit::Unlimited;
    own.run.is_history_kept = false;
    own.run.reports.clear();
    own
}

pub(super) fn listed_programs(catalogue: &Catalogue) -> Vec<ListedProgram> {
    let listed = |entry: &ProgramEntry| {
        let (tests, selection_limit, is_one_test, error): (&[TestEntry], _, _, _) = match &entry.listing {
            ListingState::Listed { tests, selection_limit, process, .. } => {
                (tests, *selection_limit, process.is_one_test, None)
            }
            ListingState::Broken { error } => (&[], None, false, Some(error.clone())),
            ListingState::Unknown => (&[], None, false, Some("not listed".to_owned())),
        };
        ListedProgram {
            suite: entry.source.program.suite.clone(),
            path: entry.source.program.path.to_text().into_owned(),
            tests: tests.iter().map(|test| Arc::new(test.listed())).collect(),
            uids: tests.iter().map(|test| test.uid().to_owned()).collect(),
            selection_limit,
            is_one_test,
            error,
        }
    };
    catalogue.programs().iter().map(listed).collect()
}

/// Inputs of the plan of a run of variants.
pub(super) struct VariantPlan<'a> {
    pub(super) catalogue: &'a Catalogue,
    /// Tests of each program in the catalogue.
    pub(super) tests: &'a [Vec<Arc<ListedTest>>],
    pub(super) settings: &'a ResolvedSettings,
    pub(super) variants: &'a [Variant],
    pub(super) slots: VariantSlots,
}

/// A planned run, and the names of its variants by uid.
pub(super) struct PlannedVariants {
    pub(super) prepared: PreparedRun,
    pub(super) names: HashMap<String, String>,
}

impl VariantPlan<'_> {
    /// Plans a run and makes its directory.
    ///
    /// # Errors
    /// No directory can be made for the journals.
    pub(super) fn prepare(&self, run_id: &str) -> Result<PlannedVariants, DirError> {
        let by_name: HashMap<&str, &Variant> =
            self.variants.iter().map(|variant| (variant.name.as_str(), variant)).collect();
        let catalogue = self.catalogue_of_variants();
        let mut names = HashMap::with_capacity(self.variants.len());
        for test in catalogue.all().filter_map(|place| catalogue.test(place)) {
            names.insert(test.uid().to_owned(), test.name().to_owned());
        }
        let context = PlanContext {
            catalogue: &catalogue,
            settings: self.settings,
            provenance: &Provenance::default(),
        };
        let mut planned = plan_tests(&TestSelection { uids: None, filter: None }, &context);
        planned.estimate_durations(|name| by_name.get(name).map_or(Duration::ZERO, |one| one.weight));
        planned.replace_settings(|name| settings_of(by_name.get(name).map(|one| one.limits)));
        let mut prepared = prepare_planned_run(run_id, planned, &context)?;
        if self.slots == VariantSlots::One {
            prepared.plan.model.slots = 1;
        }
        Ok(PlannedVariants { prepared, names })
    }

    /// Returns a catalogue of the programs that lists the variants as their tests.
    fn catalogue_of_variants(&self) -> Catalogue {
        // Entries restrict a program to its registered tests, which would remove all variants.
        let source = |entry: &ProgramEntry| {
            let mut source = entry.source.clone();
            source.program.entries.clear();
            source
        };
        let sources = self.catalogue.programs().iter().map(source);
        let mut catalogue = Catalogue::new(sources.collect::<Vec<ProgramSource>>());
        for (program, (entry, tests)) in self.catalogue.programs().iter().zip(self.tests).enumerate() {
            let ListingState::Listed { framework, selection_limit, start, .. } = &entry.listing else {
                continue;
            };
            let own = self.variants.iter().filter(|variant| variant.program == program);
            let listed = |variant: &Variant| ListedTest {
                name: variant.name.clone(),
                variant: Some(Arc::new(TestVariant {
                    env: variant.env.clone(),
                    tests: variant.tests.iter().filter_map(|&test| tests.get(test).cloned()).collect(),
                    fork_point: variant.fork_point,
                })),
                ..ListedTest::default()
            };
            let listing = ProgramListing {
                framework: framework.clone(),
                nesting: NameNesting::Flat,
                selection_limit: *selection_limit,
                tests: own.map(listed).collect(),
                start: *start,
                failure: None,
                warnings: Vec::new(),
                depends_on: Vec::new(),
                process: ProcessTraits { is_one_test: true, ..ProcessTraits::NONE },
            };
            catalogue.record_listing(program, Ok(listing));
        }
        catalogue.rebuild_index();
        catalogue
    }
}

/// Returns the settings of a variant. Crashes are not examined: it only matters that the variant died.
fn settings_of(limits: Option<VariantLimits>) -> TestSettings {
    let limit = |limit: Option<Duration>| limit.map_or(TimeLimit::Unlimited, TimeLimit::After);
    TestSettings {
        timeout: limit(limits.map(|limits| limits.total)),
        idle_timeout: limit(limits.map(|limits| limits.silence)),
        slow_timeout: SlowTimeout::every(Duration::ZERO),
        is_isolated: true,
        dumps: DumpPolicy::Off,
        crash_capture: CrashCapture::Off,
        ..TestSettings::default()
    }
}
