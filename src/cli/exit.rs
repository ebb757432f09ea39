//! Errors that end a command, and the exit code of each.

use std::path::PathBuf;

use heeler_config::{ConfigError, UnknownProfileError};
use heeler_core::{error_chain, partition::SplitDigest};
use heeler_run_store::{
    RecordedRunError, ReportFileError, ResolveRunError,
    history::{ExportError, HistoryError},
};
#[cfg(feature = "connect")]
use heeler_server::connect::ListCasesError;
use heeler_server::{listen::ListenError, scheduler::SchedulerGone};

#[cfg(feature = "connect")]
use super::connect::JudgeError;
pub(super) use super::exit_code::CliExitCode;
#[cfg(feature = "mutation")]
use super::mutate;
use super::{mcp_filter::FilterRunError, sources::SourcesError, suites::SuiteChoiceError};

/// Error that ends a command. The messages are whole sentences.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// The configuration can't be read.
    #[error("failed to read the configuration")]
    Config(#[source] ConfigError),
    /// The client under test does not exist.
    #[cfg(feature = "connect")]
    #[error("client under test not found: {name}")]
    NoClient {
        /// Name or path of the program.
        name: String,
    },
    /// The judge of the conformance suite is not installed.
    #[cfg(feature = "connect")]
    #[error(
        "{name} not found; install it with Go 1.24 or later: go install \
         connectrpc.com/conformance/cmd/connectconformance@v1.0.7, and add \"$(go env GOPATH)/bin\" to PATH, \
         or give its path with --judge PATH"
    )]
    NoJudge { name: String },
    /// The judge reported no verdicts, or its report contradicts the answers it got.
    #[cfg(feature = "connect")]
    #[error(transparent)]
    Judge(JudgeError),
    /// The cases of the judge can't be listed.
    #[cfg(feature = "connect")]
    #[error("failed to list the conformance cases")]
    ListCases(#[source] ListCasesError),
    /// The process that the judge starts as its client can't reach the Heeler process that started the
    /// judge.
    #[cfg(feature = "connect")]
    #[error("failed to connect to the heeler process that started the judge")]
    Forward(#[source] heeler_transport::local::ConnectError),
    /// The run's directory for journals can't be created.
    #[error("failed to create the run directory")]
    RunDirectory(#[source] heeler_sys::dirs::DirError),
    /// The start of a run can't be recorded.
    #[cfg(feature = "connect")]
    #[error("failed to write the manifest of the run")]
    Manifest(#[source] std::io::Error),
    /// The profile does not exist.
    #[error(transparent)]
    Profile(UnknownProfileError),
    /// `--suite` names suites that can't be chosen.
    #[error(transparent)]
    Suites(SuiteChoiceError),
    /// A filter depends on the history, which is off.
    #[error("the filter \"{filter}\" needs the history, which is off (--no-history or history = false)")]
    NoHistory {
        /// The filter's text.
        filter: String,
    },
    /// The history file for splitting a partition does not exist.
    #[error("failed to open {} (--partition-history)", path.display())]
    NoPartitionHistory { path: PathBuf, source: std::io::Error },
    /// The history file for splitting a partition can't be read.
    #[error("failed to read {} (--partition-history)", path.display())]
    PartitionHistory { path: PathBuf, source: HistoryError },
    /// No run has recorded a history to export.
    #[error("no history to export: no run has recorded one in {}", path.display())]
    NothingToExport { path: PathBuf },
    /// A history file to import does not exist.
    #[error("failed to open the history {}", path.display())]
    NoImportedHistory { path: PathBuf, source: std::io::Error },
    /// The history can't be read or written.
    #[error("failed to {}", error_chain(.0))]
    History(HistoryError),
    /// The history can't be exported.
    #[error("failed to export the history")]
    Export(#[source] ExportError),
    /// The tests or durations of this partition differ from the other partitions.
    #[error(
        "the tests or durations to split have the digest {digest}, but --partition-digest is {wanted}; use the same \
         programs, filters and --partition-history for all partitions"
    )]
    OtherSplit { wanted: SplitDigest, digest: SplitDigest },
    /// The test programs can't be determined.
    #[error(transparent)]
    Sources(SourcesError),
    /// The earlier run can't be resolved.
    #[error(transparent)]
    ResolveRun(ResolveRunError),
    /// The files of an earlier run can't be read.
    #[error("failed to read the run")]
    ReadRun(#[source] RecordedRunError),
    /// The earlier run has no tests to rerun.
    #[error("nothing to rerun: {what}")]
    NothingToRerun {
        /// Reason why no test can be rerun.
        what: String,
    },
    /// The run to rerun was copied, so the programs it names are not started, and no other programs are
    /// given.
    #[error(
        "nothing to run: the programs of run {run} are not started, because the run was copied here, changed, or \
         recorded by an earlier version; name them: heeler run --rerun {run} PROGRAM… (or --cargo, --go, …)"
    )]
    CopiedRun { run: String },
    /// Neither the command line nor a configuration file names a program, and no project is found.
    #[error(
        "nothing to run: no heeler.toml here or above, and no tests of Cargo, CMake, pytest, Go or .NET in this directory \
         and its first two levels; name what to run, such as heeler run build/unit_tests"
    )]
    NothingToRun,
    /// `heeler init` does not overwrite a configuration.
    #[error("heeler.toml already exists; edit it, or delete it and run heeler init again")]
    ConfigExists,
    /// The configuration can't be written.
    #[error("failed to write heeler.toml")]
    WriteConfig { source: std::io::Error },
    /// The debugger is not installed.
    #[error("debugger not found in PATH: {name}")]
    NoDebugger { name: String },
    /// The adapter to check does not exist.
    #[error("adapter not found: {name}")]
    NoAdapter { name: String },
    /// The adapter can't be checked.
    #[error("failed to check the adapter")]
    CheckAdapter(#[source] heeler_worker::AdapterCheckError),
    /// The MCP server to run behind the filter does not exist.
    #[error("MCP server not found in PATH: {name}")]
    NoServer { name: String },
    /// The MCP server to run behind the filter can't be started.
    #[error("failed to run the MCP server")]
    RunServer(#[source] FilterRunError),
    /// The manual pages can't be written.
    #[error("failed to write the manual pages to {}", dir.display())]
    ManualPages { dir: PathBuf, source: std::io::Error },
    /// The scheduler has failed.
    #[error("failed to run tests")]
    Scheduler(#[source] SchedulerGone),
    /// No program can be listed, or the run could not start.
    #[error("failed to run tests: {reason}")]
    NoRun { reason: String },
    /// The server's transport failed.
    #[error("failed to serve clients")]
    Listen(#[source] ListenError),
    /// The mutation server can't listen.
    #[cfg(feature = "mutation")]
    #[error("failed to listen for clients of the Mutation Server Protocol")]
    BindMutationServer(#[source] std::io::Error),
    #[cfg(feature = "mutation")]
    #[error("failed to get the current directory")]
    CurrentDirectory(#[source] std::io::Error),
    /// A report file can't be written.
    #[error("failed to {}", error_chain(.0))]
    Report(ReportFileError),
    /// The mutants can't be found or tested.
    #[cfg(feature = "mutation")]
    #[error("failed to test mutants")]
    Mutate(#[source] heeler_mutation::MutateError),
    /// A minidump can't be read.
    #[cfg(feature = "minidump")]
    #[error("failed to {}", error_chain(.0))]
    Dump(heeler_crash::dump::DumpReadError),
    /// Signal handlers can't be installed.
    #[error("failed to install signal handlers")]
    Signals(#[source] std::io::Error),
}

impl CommandError {
    /// Returns the exit code for the error.
    #[must_use]
    pub(super) fn exit_code(&self) -> CliExitCode {
        match self {
            Self::Config(ConfigError::Read { source, .. }) if heeler_sys::io::is_exhausted(source) => {
                CliExitCode::Setup
            }
            #[cfg(feature = "mutation")]
            Self::Mutate(error) => mutate::exit_code(error),
            #[cfg(feature = "connect")]
            Self::Judge(error) if error.is_refusal() => CliExitCode::CommandLine,
            Self::Config(_) | Self::Profile(_) | Self::Suites(_) | Self::NoHistory { .. } => {
                CliExitCode::CommandLine
            }
            Self::ResolveRun(ResolveRunError::Unknown { .. } | ResolveRunError::Ambiguous { .. }) => {
                CliExitCode::CommandLine
            }
            Self::Sources(
                SourcesError::FrameworkWithoutPrograms { .. } | SourcesError::ArgumentsWithoutPrograms { .. },
            ) => CliExitCode::CommandLine,
            Self::NothingToRerun { .. } => CliExitCode::ZeroTests,
            Self::ResolveRun(ResolveRunError::None { .. } | ResolveRunError::OnlyCopies { .. })
            | Self::CopiedRun { .. }
            | Self::ReadRun(_)
            | Self::Sources(_)
            | Self::NoPartitionHistory { .. }
            | Self::PartitionHistory { .. }
            | Self::OtherSplit { .. }
            | Self::NothingToExport { .. }
            | Self::NoImportedHistory { .. }
            | Self::History(_)
            | Self::Export(_)
            | Self::NothingToRun
            | Self::ConfigExists
            | Self::WriteConfig { .. }
            | Self::ManualPages { .. }
            | Self::NoDebugger { .. }
            | Self::NoAdapter { .. }
            | Self::CheckAdapter(_)
            | Self::NoServer { .. }
            | Self::RunServer(_)
            | Self::Listen(_)
            | Self::RunDirectory(_)
            | Self::Report(_) => CliExitCode::Setup,
            #[cfg(feature = "connect")]
            Self::NoClient { .. }
            | Self::NoJudge { .. }
            | Self::Judge(_)
            | Self::ListCases(_)
            | Self::Forward(_)
            | Self::Manifest(_) => CliExitCode::Setup,
            #[cfg(feature = "minidump")]
            Self::Dump(_) => CliExitCode::Setup,
            #[cfg(feature = "mutation")]
            Self::BindMutationServer(_) | Self::CurrentDirectory(_) => CliExitCode::Setup,
            Self::Scheduler(_) | Self::NoRun { .. } | Self::Signals(_) => CliExitCode::Internal,
        }
    }
}
