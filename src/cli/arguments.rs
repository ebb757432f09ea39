//! Command line arguments with their help, and their conversion to the types of `config`. The commands are
//! implemented elsewhere.
//!
//! Doc comments on fields are the help text that users read. The command lines of editors are first
//! translated by [`normalise`].

mod cargo;
mod check_adapter;
#[cfg(feature = "connect")]
mod connect;
mod convert;
#[cfg(feature = "minidump")]
mod dump;
mod editor;
mod foreign_filters;
mod go;
mod habits;
mod history;
mod libtest_arguments;
mod mcp;
#[cfg(feature = "mutation")]
mod mutate;
mod normalise;
mod other_tools;
mod parse;
mod pytest;
#[cfg(test)]
mod reference;
mod shown_results;
mod suites;
#[cfg(test)]
mod tests;

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

pub(crate) use cargo::CargoTargetArguments;
pub(crate) use check_adapter::{CheckAdapterArguments, CheckFormat};
#[cfg(feature = "connect")]
pub(crate) use connect::{
    ClientArguments, ConnectArguments, ConnectCommand, ConnectListArguments, ConnectRunArguments,
    JudgeArguments,
};
#[cfg(feature = "minidump")]
pub(crate) use dump::DumpArguments;
pub(crate) use editor::EditorArguments;
pub(crate) use go::GoArguments;
pub(crate) use history::{HistoryArguments, HistoryCommand};
pub(crate) use mcp::{McpArguments, McpBridgeArguments, McpCommand};
#[cfg(feature = "mutation")]
pub(crate) use mutate::{
    MutateArguments, MutationServerArguments, MutationServerTransport, ProgressFormArgument,
};
pub(crate) use normalise::{NormaliseError, normalise};
pub(crate) use parse::{parse, write_manual_pages};
pub(crate) use pytest::PytestArguments;
pub(crate) use shown_results::{RunFormat, ShownResultArguments};
pub(crate) use suites::SuiteArguments;

use super::{
    debugger::DebuggerCommand,
    display::{list::ListFormat, runs::RunsFormat},
    exit::CliExitCode,
};
use heeler_config::filter::Filter;
use heeler_config::{
    FailFast, FlakyResult, JobCount, MachineSlots, MemoryLimit, PartitionSpec, RunIgnored, ShuffleMode,
    SlowTimeout, TimeLimit,
};
use heeler_core::{RetryPolicy, partition::SplitDigest};
use heeler_report::ReportRequest;
use heeler_run_store::RerunSelector;

const EXAMPLES: &str = "\
Examples:
  heeler run                             run the suites of heeler.toml, or the
                                         projects found here
  heeler run build/unit_tests            run the tests of a program
  heeler run --cargo                     build and run a cargo package's tests
  heeler run --mcp 'node server.js'      run the test tools of an MCP server
  heeler run -E 'Parser.*' -j 8          run the tests of one class, 8 at a time
  heeler run --partition hash:1/4        run one quarter of the tests
  heeler list build/unit_tests           list tests with file and line
  heeler runs                            list earlier runs
  heeler report latest --junit j.xml     write a report of the latest run
  heeler serve mcp build/unit_tests      serve an agent over MCP
  heeler build/unit_tests --server --client-port 4711
                                         serve an editor that listens on a port";

/// Returns the text after the options: examples and exit codes.
fn help_footer() -> String {
    let codes = CliExitCode::MEANINGS.iter().map(|(code, meaning)| format!("\n  {code:<3} {meaning}"));
    format!("{EXAMPLES}\n\nExit codes:{}", codes.collect::<String>())
}

const RUN_EXAMPLES: &str = "\
Examples:
  heeler run                             run the suites of heeler.toml, or the
                                         projects found here
  heeler run --suite unit                run one of the suites
  heeler run build/*_test                run programs of any framework
  heeler run tests/test_io.py ./svc/...  run tests of pytest and of Go
  heeler run --cargo . --cargo-arg=--release
  heeler run --retries 2 --timeout 30s --junit junit.xml
  heeler run --isolate --shuffle=42 -E herd -E 'Pen.*'
  heeler run -E 'state(failed) | state(crashed)'
  heeler run --rerun failed

Filters (X is a text, =exact, ~part, /regex/ or #glob):
  test(X) suite(X) program(X)     by name, by suite, by the program's path
  tag(NAME) tag(NAME=X)           by tags that the framework reports
  state(WORD)                     by the last recorded outcome: failed, crashed,
                                  timed-out, passed, skipped, new
  all() none()                    every test, no test
  & and, | + or, - and not, ! not, ( )
                                  operators; ! binds tightest, | loosest";

const SERVE_EXAMPLES: &str = "\
Examples:
  heeler serve --stdio build/unit_tests  serve the client that started Heeler
  heeler serve rsp build/unit_tests      serve a suite that an editor controls
  heeler serve mcp build/unit_tests      serve the agent that started Heeler
  heeler serve rsp --port 4711           serve the suites of heeler.toml";
const MUTATION_SERVE_EXAMPLES: &str = "
  heeler serve mutation                  serve mutants, protocol 0.0.1-alpha.1
  heeler serve stdio                     serve mutants, protocol 0.4
  heeler serve socket --port 4711        the same on this port";

/// Returns the examples for the servers in this build.
fn serve_examples() -> String {
    SERVE_EXAMPLES.to_owned() + if cfg!(feature = "mutation") { MUTATION_SERVE_EXAMPLES } else { "" }
}

const RUNS_RULE: &str = "\
The newest 20 runs are kept in the state directory (.heeler/runs), with their
journals and evidence; keep-runs in heeler.toml sets the number. A new run
removes the oldest runs in excess of it, but never a run in progress.";

/// Runs tests in worker processes and keeps every result when a test crashes.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(
    name = "heeler",
    version,
    long_version = env!("HEELER_VERSION"),
    after_help = help_footer(),
    max_term_width = 100,
    disable_help_subcommand = false
)]
pub(crate) struct CommandLineArguments {
    #[command(subcommand)]
    pub command: CliCommand,
}

/// A command with its arguments.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum CliCommand {
    /// Run tests and report their results.
    Run(Box<RunArguments>),
    /// List tests, with file and line where the framework reports them.
    List(Box<ListArguments>),
    /// Write a heeler.toml with the tests found in this directory and its first two levels.
    Init,
    /// List earlier runs and their states.
    Runs(RunsArguments),
    /// Print the report of an earlier run.
    Report(ReportArguments),
    /// Export or import the history of test durations and outcomes.
    History(HistoryArguments),
    /// Serve editors, CI and agents over the MSTest Runner Protocol, MCP or RSP.
    Serve(Box<ServeArguments>),
    /// Serve clients of the Mutation Server Protocol: heeler serve mutation, stdio or socket.
    #[cfg(feature = "mutation")]
    #[command(name = parse::SERVER_COMMAND, hide = true)]
    ServeMutants(Box<MutationServerArguments>),
    /// Mutation testing: change the code and check that a test fails.
    #[cfg(feature = "mutation")]
    Mutate(Box<MutateArguments>),
    /// Run the Connect conformance suite against a client.
    #[cfg(feature = "connect")]
    Connect(ConnectArguments),
    /// Check that a JSON lines adapter follows the specification.
    CheckAdapter(CheckAdapterArguments),
    /// Hide the test tools of an MCP server.
    Mcp(McpArguments),
    /// Print a minidump as text.
    #[cfg(feature = "minidump")]
    Dump(DumpArguments),
    /// Check crash capture, cgroups, memory limits and test tools on this machine.
    Doctor(GeneralArguments),
    /// Print a completion script for a shell.
    Completions {
        /// Shell that will load the script.
        shell: Shell,
    },
    /// Write a manual page for each command to a directory.
    Man {
        /// Directory, such as ~/.local/share/man/man1.
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
    /// Serve the editor that started this process as its test application; see [`normalise`].
    #[command(name = normalise::EDITOR_COMMAND, hide = true)]
    Editor(Box<EditorArguments>),
    /// Reach a server of the Model Context Protocol over HTTP, as a test process.
    #[command(name = heeler_protocol::mcp::http::BRIDGE_COMMAND, hide = true)]
    McpBridge(McpBridgeArguments),
}

/// Arguments of `heeler run`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub programs: ProgramArguments,
    #[command(flatten)]
    pub selection: SelectionArguments,
    /// Rerun tests of an earlier run: failed (tests that failed in the latest run), not-run (tests without a
    /// result there, because it was cancelled, stopped or killed), or both kinds of tests of one run: latest,
    /// or the start of an id printed by heeler runs. Tests that do not run this time are kept for the next
    /// rerun. If no programs are named, the programs of the earlier run are used, unless that run was copied.
    #[arg(long, value_name = "RUN", help_heading = "Selection")]
    pub rerun: Option<RerunSelector>,
    /// Build and list the tests without running them.
    #[arg(long = "no-run", conflicts_with = "debugger", help_heading = "Running")]
    pub is_no_run: bool,
    #[command(flatten)]
    pub running: RunningArguments,
    #[command(flatten)]
    pub repetition: RepetitionArguments,
    /// Run each test under a debugger, one at a time: a command such as gdb or "lldb -p {pid}" (without
    /// {pid}, -p PID is appended). The debugger uses the terminal and attaches before the first instruction
    /// of the test. Time limits are off, and output is shown live.
    #[arg(long, value_name = "COMMAND", value_parser = convert::debugger, help_heading = "Running")]
    pub debugger: Option<DebuggerCommand>,
    /// Format of standard output: human prints nothing there (results go to standard error), json prints one
    /// JSON object per line for each event of the run.
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        alias = "message-format",
        conflicts_with = "debugger",
        help_heading = "Reporting"
    )]
    pub format: RunFormat,
    /// After the summary, explain the duration of the run: the least possible duration, and the time lost
    /// to builds, starts of processes, waiting tests and idle slots.
    #[arg(long = "explain", conflicts_with_all = ["is_no_run", "debugger"], help_heading = "Reporting")]
    pub is_explained: bool,
    #[command(flatten)]
    pub reporting: ReportingArguments,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Arguments that run tests again although they pass.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Running")]
#[command(group = clap::ArgGroup::new("repetition").multiple(false).args(["repeat", "stress_count", "stress_duration"]))]
pub(crate) struct RepetitionArguments {
    /// Run each test N times; a test that does not pass is not repeated further (until-fail:N means the
    /// same).
    #[arg(long, value_name = "N", value_parser = convert::repeat)]
    pub repeat: Option<NonZeroU32>,
    /// Same as --repeat N; with infinite, repeat until the run is cancelled.
    #[arg(long, value_name = "N", value_parser = convert::stress_count)]
    pub stress_count: Option<StressCount>,
    /// Repeat all tests until this time has elapsed, such as 10m; a test that does not pass is not repeated
    /// further.
    #[arg(long, value_name = "TIME", value_parser = heeler_config::parse_positive_duration)]
    pub stress_duration: Option<Duration>,
}

/// Value of `--stress-count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StressCount {
    Times(NonZeroU32),
    Infinite,
}

/// Arguments of `heeler list`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub programs: ProgramArguments,
    #[command(flatten)]
    pub selection: SelectionArguments,
    /// Output format: human, json, or names (one per line).
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
    pub format: ListFormat,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Arguments of `heeler runs`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = RUNS_RULE)]
pub(crate) struct RunsArguments {
    /// Output format: human, json, or names (one run id per line).
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
    pub format: RunsFormat,
    /// First remove the oldest runs in excess of keep-runs, as the next run would.
    #[arg(long = "prune")]
    pub is_pruning: bool,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Arguments of `heeler report`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ReportArguments {
    /// Run to report: latest, the start of its id, or the name of its directory.
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
    /// Run directory of one partition; repeat the option for every partition. Heeler checks that the
    /// partitions are disjoint and complete, and reports them together.
    #[arg(long = "shard", value_name = "DIR", conflicts_with = "run", value_hint = ValueHint::DirPath)]
    pub shards: Vec<PathBuf>,
    /// Format of the report: human, or json (one JSON object per line, as printed by heeler run).
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Reporting")]
    pub format: RunFormat,
    /// After the summary, explain the duration of the run, like heeler run --explain.
    #[arg(long = "explain", conflicts_with = "shards", help_heading = "Reporting")]
    pub is_explained: bool,
    #[command(flatten)]
    pub report_files: ReportFileArguments,
    #[command(flatten)]
    pub shown: ShownResultArguments,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Arguments of `heeler serve`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(override_usage = "\
heeler serve [OPTIONS] <--stdio|--listen ADDR|--port N|--pipe NAME>
                    [PROGRAM]...
       heeler serve PROTOCOL [OPTIONS] [PROGRAM]...")]
#[command(after_help = serve_examples())]
#[command(group = clap::ArgGroup::new("transport").required(true).args(["is_stdio", "listen", "port", "pipe"]))]
pub(crate) struct ServeArguments {
    /// Serve one client on standard input and output.
    #[arg(long = "stdio", help_heading = "Transport")]
    pub is_stdio: bool,
    /// Listen for clients on a TCP address, such as 127.0.0.1:4711; with port 0, a free port is chosen and
    /// printed.
    #[arg(long, value_name = "ADDR", value_parser = convert::address, help_heading = "Transport")]
    pub listen: Option<String>,
    /// Listen for clients on this port of 127.0.0.1; with port 0, a free port is chosen and printed.
    #[arg(long, value_name = "N", help_heading = "Transport")]
    pub port: Option<u16>,
    /// Listen for clients on a Unix domain socket with this path.
    #[arg(long, value_name = "NAME", help_heading = "Transport")]
    pub pipe: Option<PathBuf>,
    /// Protocol of the clients: mtp (MSTest Runner Protocol), mcp (Model Context Protocol) or rsp (Runtime
    /// Server Protocol). May also be the first argument: heeler serve mcp; the default transport is then
    /// --stdio for mcp, and --port 0 for the others.
    #[arg(long, value_name = "NAME", value_parser = convert::protocols(), help_heading = "Transport")]
    pub protocol: Option<String>,
    /// Have the client attach its debugger to each test before its first instruction, one test at a time.
    #[arg(long = "debug", help_heading = "Transport")]
    pub is_debug: bool,
    #[command(flatten)]
    pub served: ServedArguments,
}

/// Arguments of every command that serves clients: the programs, and the settings of their runs.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ServedArguments {
    #[command(flatten)]
    pub programs: ProgramArguments,
    #[command(flatten)]
    pub running: RunningArguments,
    #[command(flatten)]
    pub report_files: ReportFileArguments,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Returns the help of `--framework`, with the names of the frameworks from their registry.
fn framework_help() -> String {
    let names = heeler_adapters::framework_names();
    format!("Test framework of the programs (default: detected): {names}")
}

/// Arguments that name the test programs.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Programs")]
pub(crate) struct ProgramArguments {
    /// Tests to run: test programs, globs, directories (Cargo, CMake, pytest or Go projects, or any with test
    /// programs), files and node ids of pytest, Go packages such as ./..., .NET assemblies. Default: the
    /// suites of heeler.toml, or the projects in this directory and its first two levels.
    #[arg(value_name = "PROGRAM", value_hint = ValueHint::FilePath, help_heading = None)]
    pub programs: Vec<PathBuf>,
    /// Build and run the tests of a cargo package or workspace.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", value_hint = ValueHint::DirPath)]
    pub cargo: Option<PathBuf>,
    /// Extra argument for cargo, such as --cargo-arg=--locked; may be repeated.
    #[arg(long = "cargo-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub cargo_args: Vec<String>,
    /// Run the mcp.test.* tools of an MCP server, given as the command that starts it, such as 'node
    /// server.js', or as the address of a running server, such as http://127.0.0.1:3000/mcp; may be repeated.
    #[arg(long, value_name = "COMMAND")]
    pub mcp: Vec<String>,
    /// Run the tests of a Microsoft Testing Platform application (MSTest, NUnit, xUnit), given as the command
    /// that starts it, such as bin/Debug/net10.0/Tests or 'dotnet exec Tests.dll'; may be repeated.
    #[arg(long, value_name = "COMMAND")]
    pub mtp: Vec<String>,
    /// Run the CTest tests of this CMake build directory.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", value_hint = ValueHint::DirPath)]
    pub ctest: Option<PathBuf>,
    #[command(flatten)]
    pub suites: SuiteArguments,
    #[command(flatten)]
    pub pytest: PytestArguments,
    #[command(flatten)]
    pub go: GoArguments,
    #[arg(long, value_name = "NAME", help = framework_help())]
    pub framework: Option<String>,
    #[command(flatten)]
    pub cargo_targets: CargoTargetArguments,
    /// Arguments for the test programs, appended to the args of heeler.toml.
    #[arg(last = true, value_name = "ARGS", help_heading = None)]
    pub program_args: Vec<String>,
}

/// Arguments that select tests.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct SelectionArguments {
    /// Select tests whose name contains this text or matches this glob (*, ?), or that match a filter
    /// expression, such as 'test(parse) & not tag(slow)'. May be repeated: a test that matches any filter is
    /// selected.
    #[arg(short = 'E', long = "filter", value_name = "FILTER", value_parser = convert::filter)]
    pub filters: Vec<Filter>,
    /// Whether to run tests that are ignored in the code (#[ignore], DISABLED_): default skips them, only
    /// runs nothing else, all runs every test.
    #[arg(long, value_name = "WHICH", value_parser = convert::run_ignored(), default_value = "default", hide_default_value = true)]
    pub run_ignored: RunIgnored,
    /// Select partition k of n of the tests: slice:k/n, hash:k/n, or time:k/n (needs --partition-history).
    #[arg(long, value_name = "PARTITION")]
    pub partition: Option<PartitionSpec>,
    /// History file with the test durations for time:k/n: a copy of a state directory's history.sqlite, the
    /// same on all machines. Without it, time:k/n splits like hash:k/n.
    #[arg(long, value_name = "FILE", requires = "partition", value_hint = ValueHint::FilePath)]
    pub partition_history: Option<PathBuf>,
    /// Fail before running anything unless the tests and durations to split have this digest, which every
    /// partition prints in the first line of its run.
    #[arg(long, value_name = "DIGEST", requires = "partition", value_parser = convert::split_digest)]
    pub partition_digest: Option<SplitDigest>,
}

/// Arguments that control how tests run.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Running")]
#[command(group = clap::ArgGroup::new("fail-limit").multiple(false).args(["fail_fast", "is_no_fail_fast", "max_fail"]))]
pub(crate) struct RunningArguments {
    /// Number of tests to run in parallel, or num-cpus.
    #[arg(short, long, value_name = "N", alias = "test-threads", value_parser = convert::jobs)]
    pub jobs: Option<JobCount>,
    /// Run each test in its own process.
    #[arg(long = "isolate")]
    pub is_isolated: bool,
    /// Memory limit of a test process and its descendants, such as 512MiB; they are killed if they exceed it.
    /// none removes the limit of heeler.toml.
    #[arg(long, value_name = "SIZE", value_parser = convert::memory_limit)]
    pub max_memory: Option<MemoryLimit>,
    /// Run tests in random order; the seed of an earlier run repeats its order.
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "random", value_parser = convert::shuffle)]
    pub shuffle: Option<ShuffleMode>,
    /// Number of times to retry a failed test, without a delay; or with delays, such as
    /// count=3,backoff=exponential,delay=1s (also max-delay=10s and jitter).
    #[arg(long, value_name = "N", value_parser = heeler_config::parse_retries)]
    pub retries: Option<RetryPolicy>,
    /// Result of a flaky test (a test that passes on a retry).
    #[arg(long, value_name = "RESULT", value_parser = convert::flaky_result())]
    pub flaky_result: Option<FlakyResult>,
    /// Time limit of a test, such as 30s or 5m; none removes the limit of heeler.toml.
    #[arg(long, value_name = "TIME", value_parser = convert::time_limit)]
    pub timeout: Option<TimeLimit>,
    /// Report a test as slow each time this period elapses.
    #[arg(long, value_name = "TIME", value_parser = convert::slow_timeout)]
    pub slow_timeout: Option<SlowTimeout>,
    /// Time limit of the whole run, such as 30m: running tests are then cancelled, the others are reported as
    /// not run.
    #[arg(long, value_name = "TIME", value_parser = convert::time_limit)]
    pub run_timeout: Option<TimeLimit>,
    /// Stop the run at the first failure: running tests finish, the others are not run. With =immediate,
    /// running tests are cancelled.
    #[arg(
        long,
        alias = "ff",
        value_name = "MODE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "wait",
        value_parser = convert::fail_fast
    )]
    pub fail_fast: Option<FailFast>,
    /// Run all tests, regardless of failures.
    #[arg(long = "no-fail-fast", alias = "nff")]
    pub is_no_fail_fast: bool,
    /// Stop the run after N failures: running tests finish, the others are not run.
    #[arg(long, value_name = "N")]
    pub max_fail: Option<NonZeroU32>,
}

/// Arguments that control what is printed and reported of a run.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Reporting")]
pub(crate) struct ReportingArguments {
    /// Show the output of tests live; tests then run one at a time, unless -j is given.
    #[arg(long = "no-capture", alias = "nocapture")]
    pub is_output_shown: bool,
    /// Show the values of configured environment variables in reproduce commands, and the arguments of leaked
    /// processes.
    #[arg(long = "show-env")]
    pub is_environment_shown: bool,
    #[command(flatten)]
    pub shown: ShownResultArguments,
    #[command(flatten)]
    pub report_files: ReportFileArguments,
}

/// Arguments that name the report files to write.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Reporting")]
pub(crate) struct ReportFileArguments {
    #[arg(
        long = "report",
        value_name = "FORMAT[=FILE]",
        value_parser = heeler_config::parse_report_request,
        help = convert::report_help()
    )]
    pub reports: Vec<ReportRequest>,
    /// Write a JUnit report: the same as --report junit=FILE.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
}

/// Environment variable with a value of `--machine-slots`.
const MACHINE_SLOTS_VARIABLE: &str = "HEELER_MACHINE_SLOTS";

/// Arguments common to all commands.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "General")]
pub(crate) struct GeneralArguments {
    /// Profile of heeler.toml to use.
    #[arg(short = 'P', long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Read this file instead of the nearest heeler.toml in this directory or above.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config_file: Option<PathBuf>,
    /// Directory for the test history and the journals of runs.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
    /// Do not use or record the history of test durations and outcomes.
    #[arg(long = "no-history")]
    pub is_history_off: bool,
    /// Maximum number of test processes of all your runs on this machine, or off [default: processors].
    #[arg(long, value_name = "N|off", env = MACHINE_SLOTS_VARIABLE, hide_env = true, value_parser = convert::machine_slots)]
    pub machine_slots: Option<MachineSlots>,
    /// Use colours: auto (on terminals), always or never.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub color: ColorChoice,
    /// Log more: -v for info, -vv for debug.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// Value of `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColorChoice {
    /// When the output is a terminal.
    #[default]
    Auto,
    /// For every kind of output.
    Always,
    /// Without escape sequences.
    Never,
}
