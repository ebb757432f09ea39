//! The settings of one run: command line over suite over profile over defaults, and the overrides of single tests.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use super::{
    Capture, Config, Jobs, Override, Partition, RunLayer, RunSettings, TestLayer, TestSettings,
    UnknownProfile, defaults::DEFAULT_PROFILE,
};
use crate::filter::{Filter, Subject};

/// What the command line says, already parsed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommandLine {
    /// Which profile; `None` is the default one.
    pub profile: Option<String>,
    /// Of the run as a whole.
    pub run: RunLayer,
    /// Of every test.
    pub tests: TestLayer,
    /// Which tests: those that any of these matches; empty means all.
    pub filters: Vec<Filter>,
    /// Which share of them.
    pub partition: Option<Partition>,
    /// The framework of programs that the command line names.
    pub framework: Option<String>,
    /// Where state lies.
    pub state_dir: Option<PathBuf>,
}

/// The settings of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The profile's name.
    pub profile: String,
    /// Of the run as a whole.
    pub run: RunSettings,
    /// Which tests: those that any of these matches; empty means all.
    pub filters: Vec<Filter>,
    /// Which share of them.
    pub partition: Option<Partition>,
    /// The framework of programs that the command line names.
    pub framework: Option<String>,
    /// Where the history and journals of runs lie.
    pub state_dir: PathBuf,
    profile_tests: TestSettings,
    suite_tests: BTreeMap<String, TestLayer>,
    overrides: Vec<Override>,
    command_line_tests: TestLayer,
}

impl Settings {
    /// Lays the command line over suites over the profile over the defaults.
    ///
    /// Output that is shown as it comes can't be told apart when tests run side by side: without a number of jobs on
    /// the command line there is then one.
    ///
    /// # Errors
    /// The profile does not exist.
    pub fn resolve(config: &Config, command_line: CommandLine) -> Result<Self, UnknownProfile> {
        let profile = config.profile(command_line.profile.as_deref().unwrap_or(DEFAULT_PROFILE))?;
        let mut run = profile.run.under(&command_line.run);
        if run.capture == Capture::Shown && command_line.run.jobs.is_none() {
            run.jobs = Jobs::Count(std::num::NonZeroUsize::MIN);
        }
        Ok(Self {
            profile: profile.name,
            run,
            filters: command_line.filters,
            partition: command_line.partition,
            framework: command_line.framework,
            state_dir: command_line.state_dir.unwrap_or_else(|| config.state_dir.clone()),
            profile_tests: profile.tests,
            suite_tests: config
                .suites
                .iter()
                .map(|suite| (suite.name.clone(), suite.tests.clone()))
                .collect(),
            overrides: profile.overrides,
            command_line_tests: command_line.tests,
        })
    }

    /// Returns whether the filters take this test.
    #[must_use]
    pub fn is_selected(&self, subject: &Subject<'_>) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.is_match(subject))
    }

    /// Returns whether the filters may take tests of a program that could not be listed.
    #[must_use]
    pub fn may_be_selected(&self, program: &Subject<'_>) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.may_match(program))
    }

    /// Returns after how long the display calls a test slow.
    #[must_use]
    pub fn slow_after(&self) -> Duration {
        self.profile_tests.under(&self.command_line_tests).slow_period
    }

    /// Returns the settings of one test: command line over overrides over suite over profile over defaults.
    ///
    /// `suite` is the name of its `[[suite]]` section; `None` for programs that the command line names.
    #[must_use]
    pub fn of_test(&self, suite: Option<&str>, subject: &Subject<'_>) -> TestSettings {
        let suite = suite.and_then(|name| self.suite_tests.get(name));
        let below = suite.map_or(self.profile_tests, |suite| self.profile_tests.under(suite));
        // The first override that says something decides, so the last is laid down first.
        let overrides = self.overrides.iter().rev().filter(|one| one.filter.is_match(subject));
        overrides.fold(below, |below, one| below.under(&one.tests)).under(&self.command_line_tests)
    }
}
