//! The resolved settings of one run: the request that starts it over command line over suite over profile
//! over defaults, and the overrides of single tests.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use super::{
    CaptureStrategy, Config, JobCount, PartitionSpec, ProgramOptions, RunIgnored, RunLayer, RunOptions,
    RunSettings, SettingsOverride, SplitOptions, TestLayer, TestSettings, UnknownProfileError,
    profiles::DEFAULT_PROFILE,
};
use crate::filter::{Filter, FilterSubject};

/// The parsed options of the command line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommandLineSettings {
    /// Name of the profile; `None` selects the default one.
    pub profile: Option<String>,
    /// Settings of the run as a whole.
    pub run: RunLayer,
    /// Settings of every test.
    pub tests: TestLayer,
    /// The selected tests are those that any of these filters matches; an empty list selects all.
    pub filters: Vec<Filter>,
    /// The partition of the selected tests to run.
    pub partition: Option<PartitionSpec>,
    /// What the partition is split by, and what it must be.
    pub split: SplitOptions,
    /// The framework of programs that the command line names.
    pub framework: Option<String>,
    /// The state directory, if the command line sets it.
    pub state_dir: Option<PathBuf>,
    /// Number of times that each test runs to pass, if the command line sets it.
    pub repeat: Option<NonZeroU32>,
    /// How long all tests run again and again, if the command line sets it; replaces `repeat`.
    pub stress_duration: Option<Duration>,
    /// Whether tests run that their framework would skip.
    pub run_ignored: RunIgnored,
}

/// The settings of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedSettings {
    /// The profile's name.
    pub profile: String,
    /// Settings of the run as a whole.
    pub run: RunSettings,
    /// The selected tests are those that any of these filters matches; an empty list selects all.
    pub filters: Vec<Filter>,
    /// The partition of the selected tests to run.
    pub partition: Option<PartitionSpec>,
    /// What the partition is split by, and what it must be.
    pub split: SplitOptions,
    /// The framework of programs that the command line names.
    pub framework: Option<String>,
    /// Directory of the history and of the journals of runs.
    pub state_dir: PathBuf,
    profile_tests: TestSettings,
    suite_tests: BTreeMap<String, TestLayer>,
    overrides: Vec<SettingsOverride>,
    command_line_tests: TestLayer,
    /// Options of the request that starts the run.
    requested_tests: TestLayer,
    /// Options of the run for its programs.
    pub program: ProgramOptions,
}

impl ResolvedSettings {
    /// Applies the command line over suites over the profile over the defaults.
    ///
    /// The output of parallel tests would be mixed when it is shown live, so the number of jobs is then 1
    /// unless the command line sets it.
    ///
    /// # Errors
    /// The profile does not exist.
    pub fn resolve(config: &Config, command_line: CommandLineSettings) -> Result<Self, UnknownProfileError> {
        let profile = config.resolve_profile(command_line.profile.as_deref().unwrap_or(DEFAULT_PROFILE))?;
        let mut run = profile.run.with_layer(&command_line.run);
        if run.capture == CaptureStrategy::Shown && command_line.run.jobs.is_none() {
            run.jobs = JobCount::Count(NonZeroUsize::MIN);
        }
        Ok(Self {
            profile: profile.name,
            run,
            filters: command_line.filters,
            partition: command_line.partition,
            split: command_line.split,
            framework: command_line.framework,
            state_dir: command_line.state_dir.unwrap_or_else(|| config.state_dir.clone()),
            profile_tests: profile.tests,
            suite_tests: config.suites.iter().map(|suite| (suite.name.clone(), suite.tests)).collect(),
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

    /// Returns the settings of one run of these settings' session: the options of its request are applied
    /// over all others. More jobs than the session has count as the session's, because its slots are shared
    /// by all runs.
    #[must_use]
    pub fn for_run(&self, options: &RunOptions) -> Self {
        let mut settings = self.clone();
        if let Some(jobs) = options.jobs {
            let jobs = NonZeroUsize::try_from(jobs).unwrap_or(NonZeroUsize::MAX);
            settings.run.jobs = JobCount::Count(jobs.min(self.run.jobs.slots()));
        }
        settings.requested_tests = options.tests;
        settings.program.clone_from(&options.program);
        settings.program.repeat = options.program.repeat.or(self.program.repeat);
        settings.program.run_ignored = self.program.run_ignored;
        settings.program.stress_duration =
            self.program.stress_duration.filter(|_| options.program.repeat.is_none());
        settings
    }

    /// Returns whether the filters select this test.
    #[must_use]
    pub fn is_selected(&self, subject: &FilterSubject<'_>) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.is_match(subject))
    }

    /// Returns whether the filters may select tests of a program that could not be listed.
    #[must_use]
    pub fn may_be_selected(&self, program: &FilterSubject<'_>) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.may_match(program))
    }

    /// Returns the period after which the display reports a test as slow.
    #[must_use]
    pub fn slow_after(&self) -> Duration {
        self.profile_tests.with_layer(&self.command_line_tests).slow_timeout.period
    }

    /// Returns the settings of one test: request over command line over overrides over suite over profile
    /// over defaults.
    ///
    /// `suite` is the name of its `[[suite]]` section; `None` for programs that the command line names.
    #[must_use]
    pub fn for_test(&self, suite: Option<&str>, subject: &FilterSubject<'_>) -> TestSettings {
        let suite = suite.and_then(|name| self.suite_tests.get(name));
        let below = suite.map_or(self.profile_tests, |suite| self.profile_tests.with_layer(suite));
        // The first override that sets a value decides, so the last one is applied first.
        let overrides = self.overrides.iter().rev().filter(|one| one.filter.is_match(subject));
        let below = overrides.fold(below, |below, one| below.with_layer(&one.tests));
        below.with_layer(&self.command_line_tests).with_layer(&self.requested_tests)
    }
}
