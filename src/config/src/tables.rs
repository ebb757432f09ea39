//! The tables of `heeler.toml`, one type for each. The docs of the fields are the reference of the keys:
//! `docs/reference/config.md` and `docs/reference/heeler.schema.json` are generated from these types.
//!
//! Each field declares its key (the field name unless renamed), type, notation and, if the table has
//! defaults, its default. Reading and cross-checks are elsewhere.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use heeler_core::RetryPolicy;
use heeler_report::ReportRequest;
use serde::{Deserialize, de::IgnoredAny};

#[cfg(test)]
use super::reference::{OverrideKeys, ProfileKeys, SuiteKeys, WriteNotation as _};
use super::{
    CaptureStrategy, CrashCapture, DumpPolicy, FailFast, FailLimit, FinalStatusLevel, FlakyResult, JobCount,
    MachineSlots, MemoryLimit, OutputTiming, ShuffleMode, SlowTimeout, StatusLevel, TimeLimit,
    notation::{
        ByteSize, CommandArray, Count, DirectoryPath, DurationText, FilterText, Flag, FrameworkName,
        GroupName, NameArray, NameText, Notation, Number, PeriodText, Priority, ReportArray, TextArray,
        UnitArray, required,
    },
    resources::{ResourceUse, ResourceUses},
    retries::RetryNotation,
};

/// Defines a table of settings as two types: a layer with every setting optional, and resolved settings with
/// a value for each. A setting is declared as `field: Type as "Notation" = default;`. Without a default, it
/// is optional in the resolved settings as well.
macro_rules! layered_settings {
    (
        $(#[$layer_attribute:meta])* layer $layer:ident;
        $(#[$settings_attribute:meta])* settings $settings:ident;
        $($(#[doc = $doc:literal])+ $(#[serde($serde:meta)])?
        $field:ident: $type:ty as $notation:literal $(= $default:expr)?;)+
    ) => {
        $(#[$layer_attribute])*
        #[derive(Debug, Clone, PartialEq, Default, Deserialize)]
        #[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema))]
        #[serde(rename_all = "kebab-case", default)]
        pub struct $layer {
            $($(#[doc = $doc])+ #[serde(with = $notation)] $(#[serde($serde)])? pub $field: Option<$type>,)+
        }

        $(#[$settings_attribute])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $settings {
            $($(#[doc = $doc])+ pub $field: layered_settings!(@type $type $(, $default)?),)+
        }

        impl Default for $settings {
            fn default() -> Self {
                Self { $($field: layered_settings!(@default $($default)?),)+ }
            }
        }

        impl $settings {
            /// Returns these settings, replaced by the layer's settings where set.
            fn replaced_by(self, layer: &$layer) -> Self {
                let layer = layer.clone();
                Self { $($field: layered_settings!(@merge layer.$field, self.$field $(, $default)?),)+ }
            }

            /// Returns a layer that sets all of these settings.
            #[cfg(test)]
            pub(super) fn into_layer(self) -> $layer {
                let own = self;
                $layer { $($field: layered_settings!(@some own.$field $(, $default)?),)+ }
            }
        }
    };
    (@type $type:ty) => { Option<$type> };
    (@type $type:ty, $default:expr) => { $type };
    (@default) => { None };
    (@default $default:expr) => { $default };
    (@some $own:expr) => { $own };
    (@some $own:expr, $default:expr) => { Some($own) };
    (@merge $layer:expr, $own:expr) => { $layer.or($own) };
    (@merge $layer:expr, $own:expr, $default:expr) => { $layer.unwrap_or($own) };
}

layered_settings! {
    /// The settings of a run from one source; `None` means not set there.
    layer RunLayer;
    /// Resolved settings of a run as a whole.
    settings RunSettings;

    /// Number of worker slots: the maximum number of test processes that run at the same time.
    jobs: JobCount as "JobCount" = JobCount::Cpus;
    /// Whether to stop after the first failure. With `true`, running tests finish and the rest are not run;
    /// with `"immediate"`, running tests are cancelled too.
    fail_fast: FailFast as "FailFast" = FailFast::Off;
    /// Number of failures after which no more tests are started; running tests finish. Replaces `fail-fast`.
    max_fail: NonZeroU32 as "Count";
    /// Run tests in random order: a seed, or `true` for a new seed in each run.
    shuffle: ShuffleMode as "ShuffleMode" = ShuffleMode::Off;
    /// Lowest level of results printed during the run: none, fail, retry, slow, pass, skip or all. Each level
    /// includes the ones before it. The default depends on the number of tests and on whether the output is a
    /// terminal.
    status_level: StatusLevel as "StatusLevel";
    /// Lowest level of results listed at the end of the run: none, fail, flaky, slow, skip, pass or all. Each
    /// level includes the ones before it. By default, failed, flaky and leaky tests are listed, and the
    /// slowest and largest ones.
    final_status_level: FinalStatusLevel as "FinalStatusLevel";
    /// When the output of a passed test is printed: immediate, final (at the end of the run), immediate-final
    /// (both) or never.
    success_output: OutputTiming as "OutputTiming" = OutputTiming::Never;
    /// When the output of a failed test is printed: immediate, final (at the end of the run), immediate-final
    /// (both) or never.
    failure_output: OutputTiming as "OutputTiming" = OutputTiming::Immediate;
    /// Report files to write after each run, including runs of `heeler serve`: `FORMAT` or `FORMAT=FILE`,
    /// relative to the configuration file. `{run}` in a file name stands for the run ID. `heeler run --help`
    /// lists the formats.
    reports: Vec<ReportRequest> as "ReportArray" = Vec::new();
    /// Show the output of tests live. Tests then run one at a time, unless `--jobs` is given.
    #[serde(rename = "no-capture")]
    capture: CaptureStrategy as "CaptureStrategy" = CaptureStrategy::Kept;
    /// Maximum size kept of each output stream of a test: half from the start, half from the end.
    #[serde(rename = "output-limit")]
    output_limit_bytes: u64 as "ByteSize" = 1 << 20;
    /// Approximate maximum size of the journals of a run, which record its results below `state-dir`. Beyond
    /// it, results are still recorded, but without output and with shortened messages; clients still receive
    /// everything.
    #[serde(rename = "journal-limit")]
    journal_limit_bytes: u64 as "ByteSize" = 4 << 30;
    /// Time between SIGTERM and SIGKILL when a test process is terminated.
    grace_period: Duration as "DurationText" = Duration::from_secs(5);
    /// Time limit for a client to answer a request, on each of its connections, before it counts as
    /// disconnected. Applies only to clients that have answered a request before. A client that is slow to
    /// handle updates is not affected, because it answers barriers in between.
    client_answer_timeout: Duration as "DurationText" = Duration::from_secs(30);
    /// Time limit without progress for sending the last bytes to a client, used where the client is not asked
    /// to confirm that it has handled them.
    drain_timeout: Duration as "DurationText" = Duration::from_secs(5);
    /// Time limit for a client that does not read pending output, before it counts as disconnected. Also the
    /// time limit for a new connection to send `initialize`.
    client_stall_timeout: Duration as "DurationText" = Duration::from_secs(120);
    /// End a session when the client's process exits: the process that the client names in `initialize` or
    /// with `--exit-on-process-exit`. If no such process exists, the session is refused. Set `false` for
    /// clients in another PID namespace, such as outside the container, whose process IDs mean nothing here.
    #[serde(rename = "watch-client")]
    is_client_watched: bool as "Flag" = true;
    /// Time limit for opening a callback connection, before it counts as refused.
    connect_timeout: Duration as "DurationText" = Duration::from_secs(5);
    /// Time limit for a client to attach or launch a debugger on request. After it, the test runs without a
    /// debugger.
    debugger_timeout: Duration as "DurationText" = Duration::from_secs(120);
    /// Maximum time that a test process may spend outside its tests: before the first test, between two
    /// tests, and from the last test to its exit. At the limit, Heeler saves the stack traces of the process
    /// and terminates it. A set-up or tear-down that the framework announces gets four times as long.
    startup_timeout: Duration as "DurationText" = Duration::from_secs(60);
    /// Time limit for listing the tests of a program. A program that is still working at the limit (running,
    /// or waiting for a CPU or a disk) gets the same time once more.
    list_timeout: Duration as "DurationText" = Duration::from_secs(60);
    /// Time limit of the whole run. At the limit, running tests are cancelled, and the rest are reported as
    /// not run. `false` removes an inherited limit.
    run_timeout: TimeLimit as "TimeLimit" = TimeLimit::Unlimited;
    /// How often a program may die outside its tests, with one test per process, before Heeler gives up on
    /// it. Its remaining tests are then reported as not run.
    max_startup_crashes: NonZeroU32 as "Count" = NonZeroU32::MIN.saturating_add(2);
    /// Run the `build` commands and cargo again before each discovery by an editor or other client of
    /// `heeler serve`, as `heeler.build` in the request does.
    #[serde(rename = "build-on-discovery")]
    is_built_on_discovery: bool as "Flag" = false;
    /// Show the values of configured environment variables in the commands that reproduce a test, and the
    /// arguments of leaked, hung or crashed child processes in results. Both often contain secrets.
    #[serde(rename = "show-env")]
    is_environment_shown: bool as "Flag" = false;
    /// Record durations and outcomes of tests, which determine the order of the next run.
    #[serde(rename = "history")]
    is_history_kept: bool as "Flag" = true;
    /// Number of runs kept in the state directory, with journals and evidence (dumps, stack traces and
    /// outputs). A new run removes the oldest ones, but never one that is still in progress.
    keep_runs: NonZeroU32 as "Count" = NonZeroU32::MIN.saturating_add(19);
    /// Maximum size of a dump. Larger dumps are not kept.
    #[serde(rename = "dump-limit")]
    dump_limit_bytes: u64 as "ByteSize" = 64 << 20;
    /// Maximum number of dumps per run.
    dumps_per_run: u32 as "Number" = 50;
    /// Maximum total size of all dumps of a run.
    #[serde(rename = "dumps-total")]
    dumps_total_bytes: u64 as "ByteSize" = 1 << 30;
    /// Also set `TMPDIR` to the private temporary directory that each test process gets as `TEST_TMPDIR`. Use
    /// it for programs whose tests use the same names of temporary files and fail when several of their
    /// processes run at once.
    #[serde(rename = "private-tmpdir")]
    has_private_tmpdir: bool as "Flag" = false;
    /// Keep the environment of the process in dumps. It often contains secrets.
    #[serde(rename = "dump-environment")]
    is_environment_dumped: bool as "Flag" = false;
}

impl RunSettings {
    /// Applies a layer to these settings. A failure limit of the layer, of either kind, replaces the
    /// inherited one.
    #[must_use]
    pub(crate) fn with_layer(self, layer: &RunLayer) -> Self {
        match (layer.fail_fast, layer.max_fail) {
            (None, None) => self.replaced_by(layer),
            _ => Self { fail_fast: FailFast::Off, max_fail: None, ..self }.replaced_by(layer),
        }
    }

    /// Returns the failure limit of the run, and whether it also cancels running tests.
    #[must_use]
    pub fn fail_limit(&self) -> FailLimit {
        match (self.max_fail, self.fail_fast) {
            (Some(failures), _) => FailLimit::After { failures, is_immediate: false },
            (None, FailFast::Off) => FailLimit::Never,
            (None, FailFast::Wait) => FailLimit::After { failures: NonZeroU32::MIN, is_immediate: false },
            (None, FailFast::Immediate) => FailLimit::After { failures: NonZeroU32::MIN, is_immediate: true },
        }
    }
}

layered_settings! {
    /// The settings of a test from one source; `None` means not set there.
    #[derive(Eq)]
    layer TestLayer;
    /// Resolved settings of one test.
    #[derive(Eq)]
    settings TestSettings;

    /// Number of retries of a failed test, or a table that also sets the delay between them. A test that
    /// passes on a retry is reported as flaky.
    retries: RetryPolicy as "RetryNotation" = RetryPolicy::immediate(0);
    /// Result of a flaky test (one that passes on a retry): `pass` or `fail`.
    flaky_result: FlakyResult as "FlakyResult" = FlakyResult::Pass;
    /// Time limit of a test. At the limit, it is terminated. `false` removes an inherited limit.
    timeout: TimeLimit as "TimeLimit" = TimeLimit::Unlimited;
    /// Report a test as slow each time this period elapses. The table form can also terminate the test.
    slow_timeout: SlowTimeout as "SlowTimeout" = SlowTimeout::every(Duration::from_secs(60));
    /// Run each test in its own process.
    #[serde(rename = "isolate")]
    is_isolated: bool as "Flag" = false;
    /// Maximum number of processes of a program that run at the same time. Use `1` for programs whose tests
    /// use the same files or ports. If the tests of a program have different values, the smallest applies.
    max_processes: NonZeroU32 as "Count";
    /// Number of slots (see `jobs`) that a test takes while it runs, such as the number of its threads. More
    /// than there are means all of them, so a large number makes a test run alone.
    weight: NonZeroU32 as "Count";
    /// Resources that a test takes while it runs: `"NAME"` takes all of it, `"NAME=2"` two units, and
    /// `"NAME:read"` one. `[[resource]]` declares them.
    uses: std::sync::Arc<[ResourceUse]> as "ResourceUses";
    /// Fixtures that are set up before the test and torn down after it. `[[fixture]]` declares them.
    needs: std::sync::Arc<[String]> as "NameArray";
    /// Tests of a program that run in one process, in the order of their framework: `"class"` keeps the tests
    /// of each class, module or other innermost group together, `"file"` those of each source file, and any
    /// other name all tests with that name. Frameworks that start a process for each test ignore it.
    together: std::sync::Arc<str> as "GroupName";
    /// Tests with a higher priority start first: a number from -100 to 100.
    priority: i32 as "Priority" = 0;
    /// Memory limit of a test process with all its descendants. Beyond it, they are killed, and the test
    /// fails as out of memory. `false` removes an inherited limit.
    max_memory: MemoryLimit as "MemoryLimit" = MemoryLimit::Unlimited;
    /// Time limit for a running test process that writes no output and finishes no test. At the limit, its
    /// stack traces are saved and it is terminated. Time during which the machine did not schedule the
    /// process does not count. `false` removes an inherited limit.
    idle_timeout: TimeLimit as "TimeLimit" = TimeLimit::Unlimited;
    /// Events that write a minidump: `off`, `crash`, `hang` or `all`. Stack traces as text are always kept.
    dumps: DumpPolicy as "DumpPolicy" = DumpPolicy::All;
    /// Processes traced for crashes: `off`, `root` (the test process; if that is a script, also the processes
    /// it starts; not programs that tracing could disturb) or `tree` (the test process and all its
    /// descendants).
    crash_capture: CrashCapture as "CrashCapture" = CrashCapture::Root;
}

impl TestSettings {
    /// Applies a layer to these settings. A time limit of the layer, of either kind, replaces the inherited
    /// one.
    #[must_use]
    pub(crate) fn with_layer(self, layer: &TestLayer) -> Self {
        let by_periods = layer.slow_timeout.and_then(SlowTimeout::time_limit);
        let timeout = match (layer.timeout, by_periods) {
            (None, None) => self.timeout,
            (Some(TimeLimit::After(limit)), by_periods) => {
                TimeLimit::After(by_periods.map_or(limit, |periods| periods.min(limit)))
            }
            (Some(TimeLimit::Unlimited), None) => TimeLimit::Unlimited,
            (Some(TimeLimit::Unlimited) | None, Some(periods)) => TimeLimit::After(periods),
        };
        let merged = self.replaced_by(layer);
        let slow_timeout = SlowTimeout::every(merged.slow_timeout.period);
        Self { timeout, slow_timeout, ..merged }
    }
}

/// The top level of the file.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct TopTable {
    /// Directory for the history and the journals of runs, relative to the configuration file. Default:
    /// `.heeler`.
    #[serde(with = "DirectoryPath")]
    pub(super) state_dir: Option<PathBuf>,
    /// Directory of the StrykerJS package that `heeler mutate` uses for JavaScript and TypeScript, relative
    /// to the configuration file. Default: `node_modules/@stryker-mutator/core` in the directory of
    /// `package.json` or above.
    #[serde(with = "DirectoryPath")]
    pub(super) stryker: Option<PathBuf>,
    /// Suites that run if the command line names no programs.
    #[cfg_attr(test, schemars(with = "Vec<SuiteKeys>"))]
    suite: IgnoredAny,
    /// Resources that tests take while they run, see `uses`.
    #[cfg_attr(test, schemars(with = "Vec<ResourceTable>"))]
    resource: IgnoredAny,
    /// Fixtures that tests need, see `needs`.
    #[cfg_attr(test, schemars(with = "Vec<FixtureTable>"))]
    fixture: IgnoredAny,
    /// Settings of this machine, for all runs together.
    #[cfg_attr(test, schemars(with = "MachineTable"))]
    machine: IgnoredAny,
    /// Profiles. `default` is used unless another one is selected, and all others inherit from it.
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, ProfileKeys>"))]
    profile: IgnoredAny,
}

/// The keys of `[profile.NAME]` in addition to those of [`RunLayer`] and [`TestLayer`].
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub(super) struct ProfileTable {
    /// Settings for tests that match a filter. For each setting, the first matching override that sets it
    /// applies.
    #[serde(rename = "override")]
    #[cfg_attr(test, schemars(with = "Vec<OverrideKeys>"))]
    overrides: IgnoredAny,
}

/// The keys of `[[profile.NAME.override]]` in addition to those of [`TestLayer`].
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("required" = ["filter"])))]
#[serde(default)]
pub(super) struct OverrideTable {
    /// Tests that get the settings: a substring of the uid, a glob (`*`, `?`) matched against the uid
    /// or the part after a `::`, or a filter expression.
    #[serde(with = "FilterText")]
    pub(super) filter: Option<String>,
}

/// `slow-timeout` in its table form.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields, extend("required" = ["period"])))]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct SlowTimeoutTable {
    /// Report a test as slow each time this period elapses.
    #[serde(deserialize_with = "required")]
    #[cfg_attr(test, schemars(with = "super::notation::PeriodText"))]
    pub(super) period: Option<Option<Duration>>,
    /// Number of periods after which the test is terminated.
    #[serde(with = "Count")]
    pub(super) terminate_after: Option<NonZeroU32>,
}

/// The keys of `[machine]`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct MachineTable {
    /// Number of test processes that all of your runs on this machine may have together, or `"off"` if they
    /// do not wait for each other. Default: one for each processor available to Heeler.
    #[serde(with = "MachineSlots")]
    pub(super) slots: Option<MachineSlots>,
}

/// The keys of `[[resource]]`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields, extend("required" = ["name"])))]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct ResourceTable {
    /// Name of the resource, such as `database` or `port-8080`.
    #[serde(with = "NameText")]
    pub(super) name: Option<String>,
    /// Amount of the resource: how many tests can use one unit of it at the same time. Default: 1.
    #[serde(with = "Count")]
    pub(super) capacity: Option<NonZeroU32>,
    /// Names of the units, such as `["0", "1"]`, instead of `capacity`. A test process finds the units that
    /// belong to it in the environment variable `HEELER_UNIT_NAME`, separated by commas. The name of the
    /// resource is in upper case there, with `_` for everything except letters and digits.
    #[serde(with = "UnitArray")]
    pub(super) units: Option<std::sync::Arc<[String]>>,
}

/// The keys of `[[fixture]]`. Its commands run in the directory of the configuration file.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(
    test,
    derive(schemars::JsonSchema),
    schemars(deny_unknown_fields, extend("required" = ["name", "setup"]))
)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct FixtureTable {
    /// Name of the fixture, such as `server`.
    #[serde(with = "NameText")]
    pub(super) name: Option<String>,
    /// Command that sets the fixture up, once in each run with a test that needs it. If it fails, these tests
    /// are not run. The lines `NAME=VALUE` that it writes to the file named by `HEELER_ENV` become
    /// environment variables of these tests.
    #[serde(with = "CommandArray")]
    pub(super) setup: Option<Vec<String>>,
    /// Command that tears the fixture down, after all tests that need it. It runs whenever the set-up has
    /// begun, even if the set-up failed or the run was cancelled.
    #[serde(with = "CommandArray")]
    pub(super) teardown: Option<Vec<String>>,
    /// Fixtures that are set up before this one and torn down after it.
    #[serde(with = "TextArray")]
    pub(super) needs: Option<Vec<String>>,
    /// Time limit of each of the two commands. Default: 5 minutes.
    #[serde(with = "PeriodText")]
    pub(super) timeout: Option<Duration>,
}

/// The keys of `[[suite]]` in addition to those of [`TestLayer`] and of its source.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(extend("required" = ["name"])))]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct SuiteTable {
    /// Name of the suite, and the first part of the uids of its tests. If the suite has several programs,
    /// their names come next.
    #[serde(with = "NameText")]
    pub(super) name: Option<String>,
    /// Test framework of the programs; `heeler run --help` lists the names. By default, the framework is
    /// detected.
    #[serde(with = "FrameworkName")]
    pub(super) framework: Option<String>,
    /// Arguments passed to the programs on every invocation, before Heeler's own.
    #[serde(with = "TextArray")]
    pub(super) args: Option<Vec<String>>,
    /// Environment variables of the programs. `false` unsets a variable.
    #[cfg_attr(test, schemars(with = "super::reference::EnvironmentKeys"))]
    env: IgnoredAny,
    /// Arguments for tests that accept some: a table for each test name, such as
    /// `"mcp.test.echo" = { echo = "hi" }`.
    #[cfg_attr(test, schemars(with = "super::reference::TestArgumentKeys"))]
    arguments: IgnoredAny,
    /// Working directory of the programs, relative to the configuration file. Default: the directory of that
    /// file, or of the cargo package.
    #[serde(with = "DirectoryPath")]
    pub(super) cwd: Option<PathBuf>,
    /// Build command, run first, in the directory of the configuration file. If it fails, no test is run.
    #[serde(with = "CommandArray")]
    pub(super) build: Option<Vec<String>>,
}
