//! The command-line arguments, their help and their conversion to the types of `config`. Commands are
//! implemented elsewhere.
//!
//! Doc comments on fields are the help text that users read. Command lines in the form in which editors start
//! a test application are first translated by [`normalise`].

mod convert;
mod normalise;
mod parse;
#[cfg(test)]
mod tests;

use std::{num::NonZeroU32, path::PathBuf};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

pub(crate) use normalise::{NormaliseError, normalise};
pub(crate) use parse::{completion_script, parse};

use super::{
    debugger::DebuggerCommand,
    display::{list::ListFormat, runs::RunsFormat},
};
use heeler_config::filter::Filter;
use heeler_config::{
    FailFast, JobCount, MemoryLimit, PartitionSpec, ShuffleMode, SlowTimeout, StatusLevel, TimeLimit,
};
use heeler_report::ReportRequest;
use heeler_run_store::RerunSelector;

const EXAMPLES: &str = "\
Examples:
  heeler run                             run the suites of heeler.toml
  heeler run build/unit_tests            run the tests of a program
  heeler run --cargo                     build and run a cargo package's tests
  heeler run -E 'Parser.*' -j 8          run the tests of one class, 8 at a time
  heeler run --partition hash:1/4        run one quarter of the tests
  heeler list build/unit_tests           list tests with file and line
  heeler runs                            list earlier runs
  heeler report latest --junit j.xml     tell what became of the latest run
  heeler build/unit_tests --server --client-port 4711
                                         serve an editor that listens on a port

Exit codes: 0 all passed, 2 tests failed, 3 aborted, 4 set-up failed,
5 wrong command line, 8 no tests, 13 failures reached the limit.";

const RUN_EXAMPLES: &str = "\
Examples:
  heeler run                             run the suites of heeler.toml
  heeler run build/*_test                run programs; each is asked what it is
  heeler run --cargo . --cargo-arg=--release
  heeler run --retries 2 --timeout 30s --junit junit.xml
  heeler run --isolate --shuffle=42 -E herd -E 'Pen.*'
  heeler run -E 'state(failed) | state(crashed)'
  heeler run --rerun failed

Filters (X is a text, =exact, ~part, /regex/ or #glob):
  test(X) suite(X) program(X)     by name, by the program's suite or path
  tag(NAME) tag(NAME=X)           by what the framework tells of a test
  state(WORD)                     by its last end here: failed, crashed,
                                  timed-out, passed, skipped, new
  all() none()                    every test, no test
  & and, | + or, - without, ! not, ( )
                                  join them; not binds first, or last";

const RUNS_RULE: &str = "\
The newest 20 runs are kept in the state directory (.heeler/runs), with their
journals and evidence; keep-runs in heeler.toml says how many. When a run
begins, the oldest beyond that go; never one that still goes on.";

/// Runs test suites across worker processes and loses nothing when tests crash.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "heeler", version, after_help = EXAMPLES, max_term_width = 100, disable_help_subcommand = false)]
pub(crate) struct CommandLineArguments {
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The subcommand.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum CliCommand {
    /// Run tests and report.
    Run(Box<RunArguments>),
    /// List tests, with file and line where the framework tells.
    List(ListArguments),
    /// List earlier runs, each with its true state.
    Runs(RunsArguments),
    /// Tell what became of an earlier run, from its journals alone.
    Report(ReportArguments),
    /// Serve test clients, such as editors, over the test protocol.
    Serve(Box<ServeArguments>),
    /// Print a minidump for people.
    Dump(DumpArguments),
    /// Try what this machine allows, and tell what follows.
    Doctor(GeneralArguments),
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// As an editor starts a test application; see [`normalise`].
    #[command(name = normalise::EDITOR_COMMAND, hide = true)]
    Editor(EditorArguments),
}

/// Arguments of `heeler run`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub programs: ProgramArguments,
    #[command(flatten)]
    pub selection: SelectionArguments,
    /// Go on with an earlier run. failed: what failed in the latest one; not-run: what got no result there,
    /// because the run was cancelled, stopped or killed; RUN (latest, or the beginning of an id, as heeler
    /// runs lists them): both of that run. What such a run leaves out, by filters or by its own end, stays
    /// left for the next one. Without programs, those of the earlier run's command line are taken.
    #[arg(long, value_name = "RUN", help_heading = "Selection")]
    pub rerun: Option<RerunSelector>,
    #[command(flatten)]
    pub running: RunningArguments,
    /// Run each test under a debugger, one test after the other: a command that takes the terminal and
    /// attaches to the test before its first instruction, such as gdb or "lldb -p {pid}"; without {pid}, -p
    /// PID is appended. There are no limits of time then, and output is shown as it comes.
    #[arg(long, value_name = "COMMAND", value_parser = convert::debugger, help_heading = "Running")]
    pub debugger: Option<DebuggerCommand>,
    #[command(flatten)]
    pub reporting: ReportingArguments,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Arguments of `heeler list`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub programs: ProgramArguments,
    #[command(flatten)]
    pub selection: SelectionArguments,
    /// Print for people, for programs, or one name a line.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
    pub format: ListFormat,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Arguments of `heeler runs`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = RUNS_RULE)]
pub(crate) struct RunsArguments {
    /// Print for people, for programs, or one id a line.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
    pub format: RunsFormat,
    /// First remove the runs that the next run would remove: the oldest beyond keep-runs.
    #[arg(long = "prune")]
    pub is_pruning: bool,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Arguments of `heeler report`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ReportArguments {
    /// Which run: latest, the beginning of its id, or its directory's name.
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
    #[command(flatten)]
    pub report_files: ReportFileArguments,
    /// Print a line for these results and all before them in the list.
    #[arg(long, value_name = "LEVEL", value_parser = convert::status_level(), help_heading = "Reporting")]
    pub status_level: Option<StatusLevel>,
    #[command(flatten)]
    pub general: GeneralArguments,
}

/// Arguments of `heeler dump`, which prints the crash reason, the crashing thread and the stacks of all
/// threads.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct DumpArguments {
    /// The minidump.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Arguments of `heeler serve`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(override_usage = "heeler serve [OPTIONS] <--stdio|--listen ADDR|--pipe NAME> [PROGRAM]...")]
#[command(group = clap::ArgGroup::new("transport").required(true).args(["is_stdio", "listen", "pipe"]))]
pub(crate) struct ServeArguments {
    /// Serve one client on standard input and output.
    #[arg(long = "stdio", help_heading = "Transport")]
    pub is_stdio: bool,
    /// Listen for clients on a TCP address, such as 127.0.0.1:4711; port 0 picks one and prints it.
    #[arg(long, value_name = "ADDR", value_parser = convert::address, help_heading = "Transport")]
    pub listen: Option<String>,
    /// Listen for clients on a local socket: a path.
    #[arg(long, value_name = "NAME", help_heading = "Transport")]
    pub pipe: Option<PathBuf>,
    /// Protocol that the clients speak: mtp, the MSTest Runner Protocol.
    #[arg(long, value_name = "NAME", value_parser = convert::protocols(), help_heading = "Transport")]
    pub protocol: Option<String>,
    /// Have the client attach its debugger to each test before its first instruction, one test at a time.
    #[arg(long = "debug", help_heading = "Transport")]
    pub is_debug: bool,
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
    format!("Take the framework of the programs as given ({names}) instead of asking them")
}

/// Arguments that name the test programs.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Programs")]
pub(crate) struct ProgramArguments {
    /// Test programs; without any, the suites of heeler.toml.
    #[arg(value_name = "PROGRAM", value_hint = ValueHint::FilePath, help_heading = None)]
    pub programs: Vec<PathBuf>,
    /// Build the test programs of a cargo package or workspace, and take those.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", value_hint = ValueHint::DirPath)]
    pub cargo: Option<PathBuf>,
    /// Hand an argument on to cargo, such as --cargo-arg=--release; may be repeated.
    #[arg(long = "cargo-arg", value_name = "ARG", requires = "cargo", allow_hyphen_values = true)]
    pub cargo_args: Vec<String>,
    /// Take the framework of the programs as given instead of asking them.
    #[arg(long, value_name = "NAME", help = framework_help())]
    pub framework: Option<String>,
}

/// Arguments that select tests.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct SelectionArguments {
    /// Take tests whose name contains a text or matches a glob (*, ?), or that an expression means, such as
    /// 'test(parse) & not tag(slow)'; may be repeated: any one is enough.
    #[arg(short = 'E', long = "filter", value_name = "FILTER", value_parser = convert::filter)]
    pub filters: Vec<Filter>,
    /// Take one share of the tests: slice:k/n, hash:k/n or time:k/n.
    #[arg(long, value_name = "SHARE")]
    pub partition: Option<PartitionSpec>,
}

/// Arguments that control how tests run.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Running")]
#[command(group = clap::ArgGroup::new("fail-limit").multiple(false).args(["fail_fast", "is_no_fail_fast", "max_fail"]))]
pub(crate) struct RunningArguments {
    /// Run so many tests at the same time: a number or num-cpus.
    #[arg(short, long, value_name = "N", alias = "test-threads", value_parser = convert::jobs)]
    pub jobs: Option<JobCount>,
    /// Give each test a process of its own.
    #[arg(long = "isolate")]
    pub is_isolated: bool,
    /// Kill a test process that uses more memory, with all below it, such as 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = convert::memory_limit)]
    pub max_memory: Option<MemoryLimit>,
    /// Run in an order by chance; the seed of the last one repeats it.
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "random", value_parser = convert::shuffle)]
    pub shuffle: Option<ShuffleMode>,
    /// Try a failed test again, so many times.
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Terminate a test that runs longer, such as 30s or 5m; none lifts a limit of heeler.toml.
    #[arg(long, value_name = "TIME", value_parser = convert::time_limit)]
    pub timeout: Option<TimeLimit>,
    /// Tell of a running test each time when this has passed.
    #[arg(long, value_name = "TIME", value_parser = convert::slow_timeout)]
    pub slow_timeout: Option<SlowTimeout>,
    /// End the whole run after this time, such as 30m, with a report of all that did and did not run.
    #[arg(long, value_name = "TIME", value_parser = convert::time_limit)]
    pub run_timeout: Option<TimeLimit>,
    /// Stop the run at the first failure: running tests finish, the rest is not run. With =immediate,
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
    /// Stop the run at this number of failures: running tests finish, the rest is not run.
    #[arg(long, value_name = "N")]
    pub max_fail: Option<NonZeroU32>,
}

/// Arguments that control what is printed and reported of a run.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Reporting")]
pub(crate) struct ReportingArguments {
    /// Show the output of tests as it comes, one test at a time unless -j says otherwise.
    #[arg(long = "no-capture", alias = "nocapture")]
    pub is_output_shown: bool,
    /// Print a line for these results and all before them in the list.
    #[arg(long, value_name = "LEVEL", value_parser = convert::status_level())]
    pub status_level: Option<StatusLevel>,
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

/// Arguments common to all commands.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "General")]
pub(crate) struct GeneralArguments {
    /// Take the settings of a profile of heeler.toml.
    #[arg(short = 'P', long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Read this file instead of the nearest heeler.toml in this directory or above.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config_file: Option<PathBuf>,
    /// Keep the history and journals of runs here.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
    /// Neither use nor record durations and outcomes.
    #[arg(long = "no-history")]
    pub is_history_off: bool,
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
    /// Log more; may be repeated.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// Value of `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColorChoice {
    /// When the output is a terminal.
    #[default]
    Auto,
    /// Whatever the output is.
    Always,
    /// Plain text.
    Never,
}

/// Arguments of the hidden command to which `heeler [PROGRAM…] --server …` is translated.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct EditorArguments {
    /// Test programs; without any, the suites of heeler.toml.
    pub programs: Vec<PathBuf>,
    /// Where the client listens.
    #[arg(long, default_value = "localhost")]
    pub client_host: String,
    /// On which port.
    #[arg(long, required = true)]
    pub client_port: u16,
    /// Leave when this process ends.
    #[arg(long, value_name = "PID")]
    pub exit_on_process_exit: Option<u32>,
    /// Have the client attach its debugger to each test.
    #[arg(long = "debug")]
    pub is_debug: bool,
    /// Print no name and version first.
    #[arg(long = "no-banner")]
    pub is_banner_off: bool,
    /// Print no colours.
    #[arg(long = "no-ansi")]
    pub is_ansi_off: bool,
    /// Log.
    #[arg(long = "diagnostic")]
    pub is_diagnostic: bool,
    /// How much: trace, debug, information, warning, error or critical.
    #[arg(long, value_name = "LEVEL")]
    pub diagnostic_verbosity: Option<String>,
    /// Read this file instead of the nearest heeler.toml.
    #[arg(long, value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Options that mean nothing here, for the log.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub ignored: Vec<String>,
}
