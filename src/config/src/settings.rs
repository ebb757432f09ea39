//! Resolved settings of a run. Precedence: run request, command line, overrides, suite, profile, defaults.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use super::{
    CaptureStrategy, Config, FixtureConfig, JobCount, MachineSlots, PartitionSpec, ProgramOptions,
    ResourceCapacity, RunIgnored, RunLayer, RunOptions, RunSettings, SettingsOverride, SplitOptions,
    TestLayer, TestSettings, UnknownProfileError, profiles::DEFAULT_PROFILE,
};
use crate::filter::{Filter, FilterSubject};

/// Parsed command-line options.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommandLineSettings {
    /// Name of the profile; `None` for the default profile.
    pub profile: Option<String>,
    /// Settings of the whole run.
    pub run: RunLayer,
    /// Settings of every test.
    pub tests: TestLayer,
    /// Filters. A test is selected if any of them matches, or if the list is empty.
    pub filters: Vec<Filter>,
    /// The partition of the selected tests to run.
    pub partition: Option<PartitionSpec>,
    /// History and expected digest for the split into partitions.
    pub split: SplitOptions,
    /// Framework of programs named on the command line.
    pub framework: Option<String>,
    /// The state directory, if the command line sets it.
    pub state_dir: Option<PathBuf>,
    /// Number of times that each test must pass, if set on the command line.
    pub repeat: Option<NonZeroU32>,
    /// How long to repeat all tests, if set on the command line. Replaces `repeat`.
    pub stress_duration: Option<Duration>,
    /// Whether to run tests that their framework would skip.
    pub run_ignored: RunIgnored,
    /// Slots of the machine, if set on the command line.
    pub machine_slots: Option<MachineSlots>,
}

/// The machine's slots for one coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineLimits {
    /// Slots of the machine while several coordinators want some.
    pub shared: NonZeroUsize,
    /// Slots that a coordinator may take while it is the only one.
    pub alone: NonZeroUsize,
}

impl MachineLimits {
    /// Returns the limits for a setting and a number of jobs; `None` if runs do not wait for each other.
    ///
    /// Without a setting, the machine has a slot for each processor available to this process. A user who
    /// asks for more jobs gets them only while no other run wants slots.
    #[must_use]
    pub fn new(setting: Option<MachineSlots>, jobs: JobCount) -> Option<Self> {
        match setting {
            Some(MachineSlots::Off) => None,
            Some(MachineSlots::Count(slots)) => Some(Self { shared: slots, alone: slots }),
            None => {
                let shared = JobCount::Cpus.slots();
                Some(Self { shared, alone: jobs.slots().max(shared) })
            }
        }
    }
}

/// The settings of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedSettings {
    /// Name of the profile.
    pub profile: String,
    /// Settings of the whole run.
    pub run: RunSettings,
    /// Filters. A test is selected if any of them matches, or if the list is empty.
    pub filters: Vec<Filter>,
    /// The partition of the selected tests to run.
    pub partition: Option<PartitionSpec>,
    /// History and expected digest for the split into partitions.
    pub split: SplitOptions,
    /// Framework of programs named on the command line.
    pub framework: Option<String>,
    /// Directory for the history and for journals of runs.
    pub state_dir: PathBuf,
    /// Declared resources by name.
    pub resources: BTreeMap<String, ResourceCapacity>,
    /// Declared fixtures.
    pub fixtures: Arc<[FixtureConfig]>,
    /// Directory that the commands of fixtures run in.
    pub config_dir: PathBuf,
    /// Slots of the machine; `None` if runs do not wait for each other.
    pub machine: Option<MachineLimits>,
    profile_tests: TestSettings,
    suite_tests: BTreeMap<String, TestLayer>,
    overrides: Vec<SettingsOverride>,
    command_line_tests: TestLayer,
    /// Settings from the run request.
    requested_tests: TestLayer,
    /// Program options from the run request and the command line.
    pub program: ProgramOptions,
}

impl ResolvedSettings {
    /// Resolves the settings: the command line overrides suites, suites override the profile, and the profile
    /// overrides defaults.
    ///
    /// Live output of parallel tests would be interleaved, so showing it sets the number of jobs to 1, unless
    /// the command line sets another number.
    ///
    /// # Errors
    /// The profile does not exist.
    pub fn resolve(config: &Config, command_line: CommandLineSettings) -> Result<Self, UnknownProfileError> {
        let profile = config.resolve_profile(command_line.profile.as_deref().unwrap_or(DEFAULT_PROFILE))?;
        let mut run = profile.run.with_layer(&command_line.run);
        if run.capture == CaptureStrategy::Shown && command_line.run.jobs.is_none() {
            run.jobs = JobCount::Count(NonZeroUsize::MIN);
        }
        let machine_slots = command_line.machine_slots.or(config.machine_slots);
        Ok(Self {
            profile: profile.name,
            machine: MachineLimits::new(machine_slots, run.jobs),
            run,
            filters: command_line.filters,
            partition: command_line.partition,
            split: command_line.split,
            framework: command_line.framework,
            state_dir: command_line.state_dir.unwrap_or_else(|| config.state_dir.clone()),
            resources: config.resources.clone(),
            fixtures: config.fixtures.as_slice().into(),
            config_dir: config.dir.clone(),
            profile_tests: profile.tests,
            suite_tests: config
                .suites
                .iter()
                .map(|suite| (suite.name.clone(), suite.tests.clone()))
                .collect(),
            overrides: profile.overrides,
            command_line_tests: command_line.tests,
            requested_tests: TestLayer::default(),
            program: ProgramOptions {
                repeat: command_line.repeat,
                stress_duration: command_line.stress_duration,
                run_ignored: command_line.run_ignored,
                ..ProgramOptions::default()
            },
        })
    }

    /// Returns the settings of one run of this session, with the options of its request applied over
    /// everything else. The number of jobs is limited to the session's, because all runs share its slots.
    #[must_use]
    pub fn for_run(&self, options: &RunOptions) -> Self {
        let mut settings = self.clone();
        if let Some(jobs) = options.jobs {
            let jobs = NonZeroUsize::try_from(jobs).unwrap_or(NonZeroUsize::MAX);
            settings.run.jobs = JobCount::Count(jobs.min(self.run.jobs.slots()));
        }
        settings.requested_tests = options.tests.clone();
        settings.program.clone_from(&options.program);
        settings.program.repeat = options.program.repeat.or(self.program.repeat);
        settings.program.run_ignored = self.program.run_ignored;
        settings.program.stress_duration =
            self.program.stress_duration.filter(|_| options.program.repeat.is_none());
        settings
    }

    /// Returns these fixtures and all that they need; each follows the fixtures that it needs.
    #[must_use]
    pub fn fixture_order(&self, needs: &[String]) -> Vec<String> {
        let mut order = Vec::new();
        for name in needs {
            let Some(fixture) = self.fixtures.iter().find(|fixture| fixture.name == *name) else { continue };
            for one in self.fixture_order(&fixture.needs).into_iter().chain([name.clone()]) {
                if !order.contains(&one) {
                    order.push(one);
                }
            }
        }
        order
    }

    /// Returns whether the filters select this test.
    #[must_use]
    pub fn is_selected(&self, subject: &FilterSubject<'_>) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.is_match(subject))
    }

    /// Returns whether the filters may select any tests of a program that could not be listed.
    #[must_use]
    pub fn may_be_selected(&self, program: &FilterSubject<'_>) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.may_match(program))
    }

    /// Returns whether the filters may select any tests of a configured suite, before its programs are known.
    #[must_use]
    pub fn may_select_suite(&self, suite: &str) -> bool {
        let all: Vec<&str> = self.suite_tests.keys().map(String::as_str).collect();
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.may_match_suite(suite, &all))
    }

    /// Returns the period after which the display reports a test as slow.
    #[must_use]
    pub fn slow_after(&self) -> Duration {
        self.profile_tests.clone().with_layer(&self.command_line_tests).slow_timeout.period
    }

    /// Returns the settings of one test. Precedence: run request, command line, overrides, suite, profile,
    /// defaults.
    ///
    /// `suite` is the name of the `[[suite]]` section, or `None` for programs named on the command line.
    #[must_use]
    pub fn for_test(&self, suite: Option<&str>, subject: &FilterSubject<'_>) -> TestSettings {
        let suite = suite.and_then(|name| self.suite_tests.get(name));
        let profile = self.profile_tests.clone();
        let below = suite.map_or(profile.clone(), |suite| profile.with_layer(suite));
        // The first override that sets a value wins, so apply them in reverse order.
        let overrides = self.overrides.iter().rev().filter(|one| one.filter.is_match(subject));
        let below = overrides.fold(below, |below, one| below.with_layer(&one.tests));
        below.with_layer(&self.command_line_tests).with_layer(&self.requested_tests)
    }
}
