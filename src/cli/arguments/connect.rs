//! The arguments of `heeler connect`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueHint};

use super::{
    GeneralArguments, ReportFileArguments, RunFormat, SelectionArguments, ShownResultArguments, convert,
};
use crate::cli::display::list::ListFormat;
use heeler_config::{CommandLineSettings, FlakyResult, JobCount, MemoryLimit, RunLayer, TimeLimit};
use heeler_core::RetryPolicy;
use heeler_run_store::RerunSelector;

const RUN_EXAMPLES: &str = "\
Examples:
  heeler connect run -- ./my-client
  heeler connect run --conf conf.yaml --junit junit.xml -- ./my-client
  heeler connect run -E 'tag(protocol=grpc) & test(Timeouts)' -- ./my-client
  heeler connect run --rerun failed --retries 2 -- ./my-client
  heeler connect list -E 'tag(tls=mutual)' -- ./my-client";

/// Arguments of `heeler connect`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ConnectArguments {
    #[command(subcommand)]
    pub command: ConnectCommand,
}

impl ConnectArguments {
    /// Returns the arguments common to all commands.
    pub(crate) fn general(&self) -> &GeneralArguments {
        match &self.command {
            ConnectCommand::Run(run) => &run.client.general,
            ConnectCommand::List(list) => &list.client.general,
            ConnectCommand::Relay(client) => &client.general,
            ConnectCommand::Forward(forward) => &forward.general,
        }
    }
}

/// What is done for a client under test.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum ConnectCommand {
    /// Run the conformance suite and report the results.
    ///
    /// Runs connectconformance (the judge) for the selected cases; the judge decides which of them pass.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<ConnectRunArguments>),
    /// List the cases of the conformance suite with their tags.
    List(Box<ConnectListArguments>),
    /// Distribute the cases of connectconformance among several processes of a client.
    ///
    /// Start the relay in place of the client: connectconformance --mode client -- heeler connect relay --
    /// CLIENT. If a client process dies, hangs or writes garbage, only its current case fails.
    Relay(Box<ClientArguments>),
    /// Pass what the judge writes on to the heeler that started the judge.
    #[command(hide = true)]
    Forward(ForwardArguments),
}

/// Arguments of `heeler connect run`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ConnectRunArguments {
    #[command(flatten)]
    pub judge: JudgeArguments,
    /// Stop the judge if it sends nothing for this time while no case is running.
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = "Judge", value_parser = heeler_config::parse_positive_duration)]
    pub judge_timeout: Duration,
    #[command(flatten)]
    pub selection: SelectionArguments,
    /// Rerun cases of an earlier run: failed (cases that failed in the latest run), not-run (cases without a
    /// result there), or both kinds of cases of one run: latest, or the start of an id printed by heeler
    /// runs.
    #[arg(long, value_name = "RUN", help_heading = "Selection")]
    pub rerun: Option<RerunSelector>,
    /// Number of times to retry a failed case, each time in another run of the judge; or with delays, such as
    /// count=3,backoff=exponential,delay=1s.
    #[arg(long, value_name = "N", value_parser = heeler_config::parse_retries, help_heading = "Running")]
    pub retries: Option<RetryPolicy>,
    /// Result of a flaky case (a case that passes on a retry).
    #[arg(long, value_name = "RESULT", value_parser = convert::flaky_result(), help_heading = "Running")]
    pub flaky_result: Option<FlakyResult>,
    /// Time limit of the whole run, such as 30m: the judge is then stopped, and cases without a verdict are
    /// reported as not run.
    #[arg(long, value_name = "TIME", value_parser = convert::time_limit, help_heading = "Running")]
    pub run_timeout: Option<TimeLimit>,
    /// Format of standard output: human prints nothing there (results go to standard error), json prints one
    /// JSON object per line for each event of the run.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Reporting")]
    pub format: RunFormat,
    #[command(flatten)]
    pub shown: ShownResultArguments,
    #[command(flatten)]
    pub report_files: ReportFileArguments,
    #[command(flatten)]
    pub client: ClientArguments,
}

/// Arguments of `heeler connect list`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ConnectListArguments {
    #[command(flatten)]
    pub judge: JudgeArguments,
    #[command(flatten)]
    pub selection: SelectionArguments,
    /// Output format: human, json, or names (one per line).
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
    pub format: ListFormat,
    #[command(flatten)]
    pub client: ClientArguments,
}

/// Arguments about the judge.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Judge")]
pub(crate) struct JudgeArguments {
    /// Program that judges the client: a path, or a name in PATH.
    #[arg(long, value_name = "PROGRAM", default_value = "connectconformance", value_hint = ValueHint::CommandName)]
    pub judge: String,
    /// YAML configuration of the judge: the features that the client supports. Default: all but a few.
    #[arg(long = "conf", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub conf: Option<PathBuf>,
    /// Cases that are expected to fail: a pattern, or @FILE with one pattern per line; may be repeated. Such
    /// a case is reported as skipped if it fails, and as failed if it passes.
    #[arg(long, value_name = "PATTERN")]
    pub known_failing: Vec<String>,
    /// Cases that are known to be flaky: a pattern, or @FILE; may be repeated. Such a case is reported as
    /// skipped if it fails.
    #[arg(long, value_name = "PATTERN")]
    pub known_flaky: Vec<String>,
    /// Cases to skip: a pattern, or @FILE; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub skip: Vec<String>,
}

/// Arguments of `heeler connect forward`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ForwardArguments {
    /// Socket of the Heeler process that started the judge.
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
    #[command(flatten)]
    pub general: GeneralArguments,
}

impl ConnectRunArguments {
    /// Returns the settings from the arguments of the run, except per-case settings.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLineSettings {
        let general = self.client.general.command_line();
        CommandLineSettings {
            run: RunLayer {
                reports: self.report_files.requests(),
                run_timeout: self.run_timeout,
                is_history_kept: general.run.is_history_kept,
                ..self.shown.layer_over(RunLayer::default())
            },
            ..self.selection.command_line(general)
        }
    }
}

impl ConnectListArguments {
    /// Returns the settings from the arguments of the listing.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLineSettings {
        self.selection.command_line(self.client.general.command_line())
    }
}

/// The client under test, and how it is run.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ClientArguments {
    /// Number of client processes to run in parallel, or num-cpus. Default: 16, because cases mostly wait.
    #[arg(short, long, value_name = "N", value_parser = convert::jobs)]
    pub jobs: Option<JobCount>,
    /// Time limit of a case. Default: 15s, because connectconformance gives up after 20 s without an answer.
    #[arg(long, value_name = "TIME", value_parser = convert::time_limit)]
    pub timeout: Option<TimeLimit>,
    /// Run each case in its own process.
    #[arg(long = "isolate")]
    pub is_isolated: bool,
    /// Memory limit of a client process and its descendants, such as 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = convert::memory_limit)]
    pub max_memory: Option<MemoryLimit>,
    #[command(flatten)]
    pub general: GeneralArguments,
    /// The client under test, with its arguments.
    #[arg(last = true, required = true, value_name = "CLIENT")]
    pub command: Vec<String>,
}
