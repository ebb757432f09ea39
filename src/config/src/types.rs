//! Plain types of the configuration: settings, suites, and profiles before and after inheritance. No reading
//! and no merging here.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use heeler_core::SourceRequest;

use crate::{MachineSlots, ResourceCapacity, RunLayer, RunSettings, TestLayer, TestSettings, filter::Filter};

/// A position in `heeler.toml`. Line and column count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePosition {
    pub line: u32,
    pub column: u32,
}

/// The contents of `heeler.toml`, with paths resolved against the directory of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Path of the file; `None` without a file.
    pub file: Option<PathBuf>,
    /// Directory that relative paths in the file start from.
    pub dir: PathBuf,
    /// Directory for the history and for journals of runs.
    pub state_dir: PathBuf,
    /// StrykerJS directory for JavaScript and TypeScript; `None` uses the package's own.
    pub stryker: Option<PathBuf>,
    /// Suites in file order.
    pub suites: Vec<SuiteConfig>,
    /// Declared resources by name.
    pub resources: BTreeMap<String, ResourceCapacity>,
    /// Declared fixtures in file order.
    pub fixtures: Vec<FixtureConfig>,
    /// Slots of the machine, if the file sets them.
    pub machine_slots: Option<MachineSlots>,
    /// Profiles before inheritance.
    pub(super) profiles: BTreeMap<String, UnresolvedProfile>,
}

/// A fixture: what must be set up before the tests that need it, and torn down after them. The commands run
/// in the directory of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixtureConfig {
    pub name: String,
    /// Program and arguments that set the fixture up.
    pub setup: Vec<String>,
    /// Program and arguments that tear it down; `None` if there is nothing to tear down.
    pub teardown: Option<Vec<String>>,
    /// Fixtures that are set up before this one, and torn down after it.
    pub needs: Vec<String>,
    /// Time limit of each command.
    pub timeout: Duration,
}

/// A profile before inheritance.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct UnresolvedProfile {
    pub(super) run: RunLayer,
    pub(super) tests: TestLayer,
    pub(super) overrides: Vec<SettingsOverride>,
}

/// A profile with all inherited settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResolvedProfile {
    pub name: String,
    /// Settings of the whole run.
    pub run: RunSettings,
    /// Settings of each test, before suites and overrides.
    pub tests: TestSettings,
    /// The profile's own overrides, then overrides of the default profile. The first one that sets a value
    /// wins.
    pub overrides: Vec<SettingsOverride>,
}

/// A profile that no section defines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown profile \"{name}\"{known}")]
pub struct UnknownProfileError {
    pub name: String,
    /// A hint with the closest profile name or all names, appended to the message.
    pub known: String,
}

/// The number of worker slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobCount {
    Count(NonZeroUsize),
    /// One slot for each processor available to this process.
    Cpus,
}

impl JobCount {
    /// Returns the number of slots on this machine.
    #[must_use]
    pub fn slots(self) -> NonZeroUsize {
        match self {
            Self::Count(count) => count,
            Self::Cpus => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// The number of failures after which no further test starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailLimit {
    /// All tests run, regardless of failures.
    Never,
    After {
        failures: NonZeroU32,
        /// Whether running tests are cancelled. Otherwise they finish.
        is_immediate: bool,
    },
}

/// The effect of the first failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailFast {
    /// Failures do not stop the run.
    Off,
    /// Running tests finish, and the rest is not run.
    Wait,
    /// Running tests are cancelled, and the rest is not run.
    Immediate,
}

/// Start order of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShuffleMode {
    /// Order chosen by the scheduler.
    Off,
    /// Random order, with a new seed that the run reports.
    Random,
    /// Random order with this seed.
    Seed(u64),
}

/// Lowest level of results printed while tests run. Each level includes the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusLevel {
    None,
    /// Failures, crashes and timeouts.
    Fail,
    /// Attempts that are retried.
    Retry,
    Slow,
    Pass,
    Skip,
    All,
}

impl StatusLevel {
    /// Names of all levels in the configuration, lowest first.
    pub const WORDS: [(&'static str, Self); 7] = [
        ("none", Self::None),
        ("fail", Self::Fail),
        ("retry", Self::Retry),
        ("slow", Self::Slow),
        ("pass", Self::Pass),
        ("skip", Self::Skip),
        ("all", Self::All),
    ];
}

/// Lowest level of results listed at the end of a run. Each level includes the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FinalStatusLevel {
    None,
    /// Failures, crashes, timeouts, and tests that did not run.
    Fail,
    /// Tests that passed on a retry or left processes behind.
    Flaky,
    Slow,
    Skip,
    Pass,
    All,
}

impl FinalStatusLevel {
    /// Names of all levels in the configuration, lowest first.
    pub const WORDS: [(&'static str, Self); 7] = [
        ("none", Self::None),
        ("fail", Self::Fail),
        ("flaky", Self::Flaky),
        ("slow", Self::Slow),
        ("skip", Self::Skip),
        ("pass", Self::Pass),
        ("all", Self::All),
    ];
}

/// When the output of a test is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputTiming {
    /// Printed with the test's result.
    Immediate,
    /// With the test's result, and again at the end of the run.
    ImmediateFinal,
    /// Printed at the end of the run.
    Final,
    Never,
}

impl OutputTiming {
    /// Names of all values in the configuration.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("immediate", Self::Immediate),
        ("immediate-final", Self::ImmediateFinal),
        ("final", Self::Final),
        ("never", Self::Never),
    ];

    /// Returns whether the output is printed with the result.
    #[must_use]
    pub fn is_immediate(self) -> bool {
        matches!(self, Self::Immediate | Self::ImmediateFinal)
    }

    /// Returns whether the output is printed at the end of the run.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Final | Self::ImmediateFinal)
    }
}

/// How to treat tests that their framework would skip (`#[ignore]`, `DISABLED_`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunIgnored {
    /// Ignored tests are skipped.
    #[default]
    Default,
    /// Only ignored tests run.
    Only,
    /// Ignored tests run like all others.
    All,
}

/// The handling of a test's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureStrategy {
    /// The output is kept with the test's result.
    Kept,
    /// The output is also copied to this process's own output as it arrives.
    Shown,
}

/// A time limit or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLimit {
    /// No limit.
    Unlimited,
    /// The test or run is terminated after this time.
    After(Duration),
}

impl TimeLimit {
    /// Returns the limit; `None` means unlimited.
    #[must_use]
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::Unlimited => None,
            Self::After(limit) => Some(limit),
        }
    }
}

/// The result of a test that fails and then passes on a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlakyResult {
    /// Passes, and is counted as flaky.
    Pass,
    Fail,
}

impl FlakyResult {
    /// Names of all values in the configuration.
    pub const WORDS: [(&'static str, Self); 2] = [("pass", Self::Pass), ("fail", Self::Fail)];
}

/// The events for which minidumps are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpPolicy {
    Off,
    /// Processes that crash.
    Crash,
    /// Processes that hang.
    Hang,
    /// Processes that crash and processes that hang.
    All,
}

impl DumpPolicy {
    /// Names of all values in the configuration.
    pub const WORDS: [(&'static str, Self); 4] =
        [("off", Self::Off), ("crash", Self::Crash), ("hang", Self::Hang), ("all", Self::All)];
}

/// The processes that are traced for crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashCapture {
    /// No process. Results stay the same but have less detail.
    Off,
    /// The test process; if that is a script, also the processes it starts.
    Root,
    /// The test process and all its descendants.
    Tree,
}

impl CrashCapture {
    /// Names of all values in the configuration.
    pub const WORDS: [(&'static str, Self); 3] =
        [("off", Self::Off), ("root", Self::Root), ("tree", Self::Tree)];
}

/// The memory limit of a test process, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// No limit.
    Unlimited,
    Bytes(u64),
}

impl MemoryLimit {
    /// Returns the limit in bytes; `None` means unlimited.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

/// When a test is reported as slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowTimeout {
    /// The test is reported as slow each time this period elapses.
    pub period: Duration,
    /// The test is terminated after this many periods.
    pub terminate_after: Option<NonZeroU32>,
}

impl SlowTimeout {
    /// Returns a slow timeout that reports a test at each `period` and never terminates it.
    #[must_use]
    pub const fn every(period: Duration) -> Self {
        Self { period, terminate_after: None }
    }

    /// Returns the time after which the test is terminated; `None` if it never is.
    pub(super) fn time_limit(self) -> Option<Duration> {
        Some(self.period.saturating_mul(self.terminate_after?.get()))
    }
}

/// Settings for the tests matched by a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingsOverride {
    /// Selects the tests.
    pub filter: Filter,
    /// Settings of these tests.
    pub tests: TestLayer,
}

/// A suite of tests: where its programs come from, and how they are started.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteConfig {
    pub name: String,
    /// Position of the section, for messages.
    pub position: FilePosition,
    /// Where the programs come from.
    pub source: SourceRequest,
    /// Name of the framework; `None` detects it by asking the program.
    pub framework: Option<String>,
    /// Arguments passed to the programs before Heeler's own.
    pub args: Vec<String>,
    /// Variables added to Heeler's environment; `None` unsets one.
    pub env: Vec<(String, Option<String>)>,
    /// Arguments of tests by test name, each as a JSON object.
    pub test_arguments: BTreeMap<String, String>,
    /// Working directory of the tests; `None` lets the source decide.
    pub cwd: Option<PathBuf>,
    /// Build command, run in the directory of the file before programs are searched. Not empty.
    pub build: Option<Vec<String>>,
    /// Settings of the suite's tests, applied over any profile.
    pub tests: TestLayer,
}
