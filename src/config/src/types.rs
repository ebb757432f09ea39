//! The plain types of the configuration: layers, in which every setting is optional, and resolved profiles,
//! in which every setting has a value. No reading and no merging here.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use heeler_report::ReportRequest;

use crate::filter::Filter;

/// A position in `heeler.toml`; both numbers count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePosition {
    pub line: u32,
    pub column: u32,
}

/// The content of `heeler.toml`, with paths made absolute or relative to the current directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Path of the file; `None` when there is no file.
    pub file: Option<PathBuf>,
    /// The directory that relative paths in the file start from.
    pub dir: PathBuf,
    /// Directory of the history and of the journals of runs.
    pub state_dir: PathBuf,
    /// The suites in the order of the file.
    pub suites: Vec<SuiteConfig>,
    /// The profiles before inheritance.
    pub(super) profiles: BTreeMap<String, UnresolvedProfile>,
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
pub struct ResolvedProfile {
    pub name: String,
    /// Settings of the run as a whole.
    pub run: RunSettings,
    /// Settings of each test, before suites and overrides.
    pub tests: TestSettings,
    /// The profile's own overrides, then those of the default profile; the first that sets a value decides.
    pub overrides: Vec<SettingsOverride>,
}

/// The error for a profile that no section defines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("find the profile \"{name}\"; {known}")]
pub struct UnknownProfileError {
    pub name: String,
    /// The existing profiles, or the one with the nearest name, in words.
    pub known: String,
}

/// The settings of a run from one source; `None` means not set there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunLayer {
    /// The number of worker slots.
    pub jobs: Option<JobCount>,
    /// The number of failures after which the remaining tests are not run.
    pub fail_limit: Option<FailLimit>,
    pub shuffle: Option<ShuffleMode>,
    /// Lowest level of results printed during the run.
    pub status_level: Option<StatusLevel>,
    /// The report files that a run writes.
    pub reports: Option<Vec<ReportRequest>>,
    /// Whether the output of tests is kept or shown live.
    pub capture: Option<CaptureStrategy>,
    /// Kept bytes of each output stream of a test.
    pub output_limit_bytes: Option<u64>,
    /// Time between TERM and KILL.
    pub grace_period: Option<Duration>,
    /// Time limit of each drain step without progress.
    pub drain_timeout: Option<Duration>,
    /// Time limit for a client that reads nothing.
    pub client_stall_timeout: Option<Duration>,
    /// Time limit for connecting to a client.
    pub connect_timeout: Option<Duration>,
    /// Time limit for a client to attach a debugger to a test process.
    pub debugger_timeout: Option<Duration>,
    /// Time limit of a test process before its first test and after its last.
    pub startup_timeout: Option<Duration>,
    /// Time limit for listing the tests of a program.
    pub list_timeout: Option<Duration>,
    /// Time limit of the whole run.
    pub run_timeout: Option<TimeLimit>,
    /// Deaths of a program outside any test, with one test per process, after which the program is not
    /// started again.
    pub max_startup_crashes: Option<NonZeroU32>,
    /// The number of runs kept in the state directory.
    pub keep_runs: Option<NonZeroU32>,
    /// Whether durations and outcomes are recorded.
    pub history: Option<bool>,
    /// Maximum size of one dump.
    pub dump_limit_bytes: Option<u64>,
    /// Maximum number of dumps of one run.
    pub dumps_per_run: Option<u32>,
    /// Maximum size of all dumps of one run.
    pub dumps_total_bytes: Option<u64>,
    /// Whether dumps keep the environment.
    pub dump_environment: Option<bool>,
}

/// The settings of a test from one source; `None` means not set there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestLayer {
    /// Time limit of the test.
    pub timeout: Option<TimeLimit>,
    /// The period after which a test is reported as slow.
    pub slow_timeout: Option<SlowTimeout>,
    /// The number of retries after a failure.
    pub retries: Option<u32>,
    /// Whether the test gets a process of its own.
    pub isolate: Option<bool>,
    /// Memory limit of a test process and all its descendants.
    pub max_memory: Option<MemoryLimit>,
    /// Time limit for a running test process without output or a finished test.
    pub idle_timeout: Option<TimeLimit>,
    /// The events that write minidumps.
    pub dumps: Option<DumpPolicy>,
    /// The processes that are traced for crashes.
    pub crash_capture: Option<CrashCapture>,
}

/// Resolved settings of a run as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// The number of worker slots.
    pub jobs: JobCount,
    /// The number of failures after which the remaining tests are not run.
    pub fail_limit: FailLimit,
    pub shuffle: ShuffleMode,
    /// Lowest level of results printed during the run; `None` lets the display choose.
    pub status_level: Option<StatusLevel>,
    /// The report files that a run writes.
    pub reports: Vec<ReportRequest>,
    /// Whether the output of tests is kept or shown live.
    pub capture: CaptureStrategy,
    /// Kept bytes of each output stream of a test.
    pub output_limit_bytes: u64,
    /// Time between TERM and KILL.
    pub grace_period: Duration,
    /// Time limit of each drain step without progress.
    pub drain_timeout: Duration,
    /// Time limit for a client that reads nothing.
    pub client_stall_timeout: Duration,
    /// Time limit for connecting to a client.
    pub connect_timeout: Duration,
    /// Time limit for a client to attach a debugger to a test process.
    pub debugger_timeout: Duration,
    /// Time limit of a test process before its first test and after its last.
    pub startup_timeout: Duration,
    /// Time limit for listing the tests of a program.
    pub list_timeout: Duration,
    /// Time limit of the whole run; it then ends with a truthful report.
    pub run_timeout: TimeLimit,
    /// Deaths of a program outside any test, with one test per process, after which the program is not
    /// started again.
    pub max_startup_crashes: NonZeroU32,
    /// The number of runs kept in the state directory, including the new one.
    pub keep_runs: NonZeroU32,
    /// Whether durations and outcomes are recorded.
    pub is_history_kept: bool,
    /// Maximum size of one dump.
    pub dump_limit_bytes: u64,
    /// Maximum number of dumps of one run.
    pub dumps_per_run: u32,
    /// Maximum size of all dumps of one run.
    pub dumps_total_bytes: u64,
    /// Whether dumps keep the environment of the process.
    pub is_environment_dumped: bool,
}

/// Resolved settings of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestSettings {
    /// The test is terminated after this time; `None` means never.
    pub timeout: Option<Duration>,
    /// The test is reported as slow each time this period elapses.
    pub slow_period: Duration,
    /// The number of retries after a failure.
    pub retries: u32,
    /// Whether the test gets a process of its own.
    pub is_isolated: bool,
    /// The process tree is killed when it uses more memory; `None` means no limit.
    pub memory_bytes: Option<u64>,
    /// The test is terminated after this time without output or other activity, not counting time in which
    /// the machine did not schedule it; `None` means never.
    pub idle_timeout: Option<Duration>,
    /// The events of the test's process that write minidumps.
    pub dumps: DumpPolicy,
    /// The processes of the test that are traced for crashes.
    pub crash_capture: CrashCapture,
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

/// The number of failures after which tests that have not started are not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailLimit {
    /// All tests run, regardless of failures.
    Never,
    After(NonZeroU32),
}

/// The order in which tests start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShuffleMode {
    /// The order chosen by the scheduler.
    Off,
    /// Random order, with a seed that the run chooses and reports.
    Random,
    /// Random order with this seed.
    Seed(u64),
}

/// The lowest level of results printed while tests run; each level includes those before it.
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
    /// The configuration values of all levels, lowest first.
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
    /// The test has no time limit.
    Unlimited,
    /// The test is terminated after this time.
    After(Duration),
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
    /// The configuration values of all kinds.
    pub const WORDS: [(&'static str, Self); 4] =
        [("off", Self::Off), ("crash", Self::Crash), ("hang", Self::Hang), ("all", Self::All)];
}

/// The processes that are traced for crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashCapture {
    /// No process: results are the same, with less detail.
    Off,
    /// The test process; if that is a script, also the processes it starts.
    Root,
    /// The test process and all its descendants.
    Tree,
}

impl CrashCapture {
    /// The configuration values of all kinds.
    pub const WORDS: [(&'static str, Self); 3] =
        [("off", Self::Off), ("root", Self::Root), ("tree", Self::Tree)];
}

/// The memory limit of a test process, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The process may use any amount of memory.
    Unlimited,
    Bytes(u64),
}

/// When a test is reported as slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowTimeout {
    /// The test is reported as slow each time this period elapses.
    pub period: Duration,
    /// The number of periods after which the test is terminated.
    pub terminate_after: Option<NonZeroU32>,
}

/// Settings of the tests that a filter matches.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingsOverride {
    /// Selects the tests.
    pub filter: Filter,
    /// The settings that differ for them.
    pub tests: TestLayer,
}

/// A suite of tests: the source of its programs and how they are started.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteConfig {
    pub name: String,
    /// Position of the section, for messages.
    pub position: FilePosition,
    /// The source of the programs.
    pub source: SuiteSource,
    /// Name of the framework; `None` detects it by asking the program.
    pub framework: Option<String>,
    /// Arguments before all of Heeler's own.
    pub args: Vec<String>,
    /// Variables added to Heeler's own environment; `None` unsets one.
    pub env: Vec<(String, Option<String>)>,
    /// Working directory of the tests; `None` lets the source decide.
    pub cwd: Option<PathBuf>,
    /// A command that runs before the programs are searched, in the directory of the file. Not empty.
    pub build: Option<Vec<String>>,
    /// Settings of the suite's tests, over those of any profile.
    pub tests: TestLayer,
}

/// The source of a suite's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuiteSource {
    /// Paths and globs, relative to the file's directory. Not empty.
    Programs(Vec<String>),
    /// The test programs of a cargo package or workspace.
    Cargo {
        /// Directory in which cargo runs.
        dir: PathBuf,
        /// Arguments after `cargo test --no-run`.
        args: Vec<String>,
    },
}
