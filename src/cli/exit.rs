//! Exit codes, and the errors that lead to them.

use heeler_client::ClientError;
use heeler_config::{ConfigError, UnknownProfileError};
use heeler_run_store::{RecordedRunError, ReportFileError, ResolveRunError};
use heeler_server::listen::ListenError;

use super::sources::SourcesError;

/// Exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CliExitCode {
    /// The command succeeded.
    Success = 0,
    TestsFailed = 2,
    /// The user aborted the command.
    Aborted = 3,
    /// Something required before any test can run is missing.
    Setup = 4,
    /// The command line or the configuration is invalid.
    CommandLine = 5,
    /// There was no test to run.
    ZeroTests = 8,
    /// An internal error of Heeler.
    Internal = 10,
    /// The process given by `--exit-on-process-exit` has exited.
    ParentExited = 11,
    /// The run stopped at its limit of failures.
    MaxFailures = 13,
}

/// Error that ends a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// The configuration can't be read.
    #[error("read the configuration")]
    Config(#[source] ConfigError),
    /// The profile does not exist.
    #[error("find the profile")]
    Profile(#[source] UnknownProfileError),
    /// A filter depends on the history, which is off.
    #[error("evaluate the filter \"{filter}\": it needs the history, which is off")]
    NoHistory {
        /// The filter's text.
        filter: String,
    },
    /// The test programs can't be determined.
    #[error("find the test programs")]
    Sources(#[source] SourcesError),
    /// The earlier run can't be resolved.
    #[error("choose the run")]
    ResolveRun(#[source] ResolveRunError),
    /// The files of an earlier run can't be read.
    #[error("read the run")]
    ReadRun(#[source] RecordedRunError),
    /// The earlier run has no tests to rerun.
    #[error("find tests to rerun: {what}")]
    NothingToRerun {
        /// Reason for which there are none.
        what: String,
    },
    /// Neither the command line nor a configuration names a program.
    #[error(
        "find tests to run: name test programs, use --cargo, or write a heeler.toml with [[suite]] sections here or above"
    )]
    NothingToRun,
    /// The session with the coordinator failed.
    #[error("communicate with the coordinator")]
    Client(#[source] ClientError),
    /// The server's transport failed.
    #[error("serve clients")]
    Listen(#[source] ListenError),
    /// A report file can't be written.
    #[error(transparent)]
    Report(ReportFileError),
    /// A minidump can't be read.
    #[error(transparent)]
    Dump(heeler_crash::dump::DumpReadError),
    /// Signal handlers can't be installed.
    #[error("install signal handlers")]
    Signals(#[source] std::io::Error),
}

impl CommandError {
    /// Returns the exit code for the error.
    #[must_use]
    pub(super) fn exit_code(&self) -> CliExitCode {
        match self {
            Self::Config(_) | Self::Profile(_) | Self::NoHistory { .. } => CliExitCode::CommandLine,
            Self::ResolveRun(ResolveRunError::Unknown { .. } | ResolveRunError::Ambiguous { .. }) => {
                CliExitCode::CommandLine
            }
            Self::NothingToRerun { .. } => CliExitCode::ZeroTests,
            Self::ResolveRun(ResolveRunError::None { .. })
            | Self::ReadRun(_)
            | Self::Sources(_)
            | Self::NothingToRun
            | Self::Listen(_)
            | Self::Dump(_)
            | Self::Report(_) => CliExitCode::Setup,
            Self::Client(_) | Self::Signals(_) => CliExitCode::Internal,
        }
    }
}
