//! The plain types that configuration is read into: layers, where everything may be unset, and resolved profiles,
//! where nothing is. No reading and no merging across sources lives here.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use crate::filter::Filter;

/// A place in `heeler.toml`; both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// Everything that `heeler.toml` says, with paths made absolute or relative to the current directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where it was read from; `None` when there is no file.
    pub file: Option<PathBuf>,
    /// The directory that relative paths in it start from.
    pub dir: PathBuf,
    /// Where the history and journals of runs lie.
    pub state_dir: PathBuf,
    /// In the order of the file.
    pub suites: Vec<Suite>,
    /// As written, before inheritance.
    pub(super) profiles: BTreeMap<String, WrittenProfile>,
}

/// A profile as written.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct WrittenProfile {
    pub(super) run: RunLayer,
    pub(super) tests: TestLayer,
    pub(super) overrides: Vec<Override>,
}

/// A profile with everything that it inherits.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Settings of the run as a whole.
    pub run: RunSettings,
    /// Settings of each test, before suites and overrides.
    pub tests: TestSettings,
    /// Its own, then those of the default profile; the first that says something decides.
    pub overrides: Vec<Override>,
}

/// A profile that no section defines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("find the profile \"{name}\"; {known}")]
pub struct UnknownProfile {
    /// As asked for.
    pub name: String,
    /// Which ones there are, in words, and which is nearest.
    pub known: String,
}

/// What one source says of the run as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunLayer {
    /// Worker slots.
    pub jobs: Option<Jobs>,
    /// After how many failures the rest is not run.
    pub fail_limit: Option<FailLimit>,
    /// Order of tests.
    pub shuffle: Option<Shuffle>,
    /// Which results are printed as they come.
    pub status_level: Option<StatusLevel>,
    /// Where the JUnit report goes.
    pub junit: Option<PathBuf>,
    /// Whether output is kept or shown.
    pub capture: Option<Capture>,
    /// Kept of each output of a test, in bytes.
    pub output_limit_bytes: Option<u64>,
    /// Between TERM and KILL.
    pub grace_period: Option<Duration>,
    /// Of each step of a drain without progress.
    pub drain_timeout: Option<Duration>,
    /// Of a client that reads nothing.
    pub stall_timeout: Option<Duration>,
    /// Of dialling a client.
    pub connect_timeout: Option<Duration>,
    /// A client has so long to attach a debugger to a test process.
    pub debugger_timeout: Option<Duration>,
    /// Of a test process, before its first test and after its last.
    pub startup_timeout: Option<Duration>,
    /// Of a listing.
    pub list_timeout: Option<Duration>,
    /// Of the whole run.
    pub run_timeout: Option<TimeLimit>,
    /// Deaths outside tests, one test a process, before a program is given up.
    pub give_up_after: Option<NonZeroU32>,
    /// Runs kept in the state directory.
    pub keep_runs: Option<NonZeroU32>,
    /// Whether durations and outcomes are recorded.
    pub history: Option<bool>,
    /// Most bytes of one dump.
    pub dump_limit_bytes: Option<u64>,
    /// Most dumps of one run.
    pub dumps_per_run: Option<u32>,
    /// Most bytes of all dumps of one run.
    pub dumps_total_bytes: Option<u64>,
    /// Whether dumps keep the environment.
    pub dump_environment: Option<bool>,
}

/// What one source says of a test.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestLayer {
    /// Its time limit.
    pub timeout: Option<TimeLimit>,
    /// When it counts as slow.
    pub slow_timeout: Option<SlowTimeout>,
    /// How often a failure is tried again.
    pub retries: Option<u32>,
    /// Whether it gets a process of its own.
    pub isolate: Option<bool>,
    /// Of a test process and all below it, in bytes.
    pub max_memory: Option<MemoryLimit>,
    /// Of a running test that gives no sign.
    pub silence_timeout: Option<TimeLimit>,
    /// What is dumped.
    pub dumps: Option<Dumps>,
    /// Which processes are watched for crashes.
    pub watch: Option<Watch>,
}

/// Settings of a run as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// Worker slots.
    pub jobs: Jobs,
    /// After how many failures the rest is not run.
    pub fail_limit: FailLimit,
    /// Order of tests.
    pub shuffle: Shuffle,
    /// Which results are printed as they come; `None` leaves it to the display.
    pub status_level: Option<StatusLevel>,
    /// Where the JUnit report goes; `None` for nowhere.
    pub junit: Option<PathBuf>,
    /// Whether output is kept or shown.
    pub capture: Capture,
    /// Kept of each output of a test, in bytes.
    pub output_limit_bytes: u64,
    /// Between TERM and KILL.
    pub grace_period: Duration,
    /// Of each step of a drain without progress.
    pub drain_timeout: Duration,
    /// Of a client that reads nothing.
    pub stall_timeout: Duration,
    /// Of dialling a client.
    pub connect_timeout: Duration,
    /// A client has so long to attach a debugger to a test process.
    pub debugger_timeout: Duration,
    /// Of a test process, before its first test and after its last.
    pub startup_timeout: Duration,
    /// Of a listing.
    pub list_timeout: Duration,
    /// The run ends after this time, with a truthful report.
    pub run_timeout: TimeLimit,
    /// Deaths outside tests, one test a process, before a program is given up.
    pub give_up_after: NonZeroU32,
    /// Runs kept in the state directory, the new one among them.
    pub keep_runs: NonZeroU32,
    /// Whether durations and outcomes are recorded.
    pub is_history_kept: bool,
    /// Most bytes of one dump.
    pub dump_limit_bytes: u64,
    /// Most dumps of one run.
    pub dumps_per_run: u32,
    /// Most bytes of all dumps of one run.
    pub dumps_total_bytes: u64,
    /// Dumps keep the environment of the process.
    pub is_environment_dumped: bool,
}

/// Settings of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestSettings {
    /// It is terminated after this time; `None` means never.
    pub timeout: Option<Duration>,
    /// It is told to be slow each time when this has passed.
    pub slow_period: Duration,
    /// How often a failure is tried again.
    pub retries: u32,
    /// Whether it gets a process of its own.
    pub is_isolated: bool,
    /// Its process tree is killed when it uses more bytes; `None` means no limit.
    pub memory_bytes: Option<u64>,
    /// It is ended when it gives no sign for so long, while it is let run; `None` means never.
    pub silence: Option<Duration>,
    /// What is dumped of its process.
    pub dumps: Dumps,
    /// Which of its processes are watched for crashes.
    pub watch: Watch,
}

/// How many worker slots there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// So many.
    Count(NonZeroUsize),
    /// One for each processor that we may use.
    Cpus,
}

impl Jobs {
    /// Returns the number of slots on this machine.
    #[must_use]
    pub fn slots(self) -> NonZeroUsize {
        match self {
            Self::Count(count) => count,
            Self::Cpus => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// After how many failures the tests not yet begun are not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailLimit {
    /// All tests run, whatever fails.
    Never,
    /// After so many.
    After(NonZeroU32),
}

/// The order in which tests begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shuffle {
    /// As the scheduler finds best.
    Off,
    /// By chance, by a seed that the run picks and tells.
    Random,
    /// By chance, by this seed.
    Seed(u64),
}

/// The least that is printed while tests run; each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusLevel {
    /// Nothing.
    None,
    /// Failures, crashes and time-outs.
    Fail,
    /// Attempts that are tried again.
    Retry,
    /// Slow tests.
    Slow,
    /// Passed tests.
    Pass,
    /// Skipped tests.
    Skip,
    /// Everything.
    All,
}

impl StatusLevel {
    /// The words of all levels, lowest first.
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

/// What happens to a test's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// It is kept with the test's result.
    Kept,
    /// It also goes to our own output as it comes.
    Shown,
}

/// How long a test may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLimit {
    /// As long as it likes.
    Never,
    /// It is terminated after this time.
    After(Duration),
}

/// Of what minidumps are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dumps {
    /// Nothing.
    Off,
    /// Processes that crash.
    Crash,
    /// Processes that hang.
    Hang,
    /// Both.
    All,
}

impl Dumps {
    /// The words of all kinds.
    pub const WORDS: [(&'static str, Self); 4] =
        [("off", Self::Off), ("crash", Self::Crash), ("hang", Self::Hang), ("all", Self::All)];
}

/// Which processes are watched for crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// None: results are the same, with fewer facts.
    Off,
    /// The test process; where that is a script, also what it starts.
    Root,
    /// The test process and all that it starts.
    Tree,
}

impl Watch {
    /// The words of all kinds.
    pub const WORDS: [(&'static str, Self); 3] =
        [("off", Self::Off), ("root", Self::Root), ("tree", Self::Tree)];
}

/// How much memory a test process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// As much as it likes.
    Never,
    /// So many bytes.
    Bytes(u64),
}

/// When a test is told to be slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowTimeout {
    /// It is told each time when so much has passed.
    pub period: Duration,
    /// After so many periods it is terminated.
    pub terminate_after: Option<NonZeroU32>,
}

/// Settings of some tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// Which tests.
    pub filter: Filter,
    /// What is different for them.
    pub tests: TestLayer,
}

/// A suite of tests: where its programs come from and how they are started.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Where the section begins, for messages.
    pub position: Position,
    /// Where the programs come from.
    pub source: SuiteSource,
    /// The framework's name; `None` asks the program.
    pub framework: Option<String>,
    /// Arguments before all of ours.
    pub args: Vec<String>,
    /// Set on top of our environment; `None` unsets.
    pub env: Vec<(String, Option<String>)>,
    /// Working directory of the tests; `None` leaves it to the source.
    pub cwd: Option<PathBuf>,
    /// Runs before the programs are looked for, in the directory of the file. Not empty.
    pub build: Option<Vec<String>>,
    /// What is different for its tests, whatever the profile.
    pub tests: TestLayer,
}

/// Where the programs of a suite come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuiteSource {
    /// Paths and globs, relative to the file's directory. Not empty.
    Programs(Vec<String>),
    /// The test programs of a cargo package or workspace.
    Cargo {
        /// Where cargo runs.
        dir: PathBuf,
        /// Arguments behind `cargo test --no-run`.
        args: Vec<String>,
    },
}
