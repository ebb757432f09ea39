//! Exit codes, and the errors that lead to them.

use crate::{
    client::ClientError,
    config::{ConfigError, UnknownProfile},
    front::ListenError,
    report::junit::JunitError,
    runs::{ChooseError, StoryError},
};

use super::sources::SourcesError;

/// The code that the process leaves with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Success = 0,
    /// Tests failed.
    TestsFailed = 2,
    /// The user ended it.
    Aborted = 3,
    /// Something that was needed before any test is not there.
    Setup = 4,
    /// The words on the command line, or the configuration.
    CommandLine = 5,
    /// The client went away.
    HostDied = 7,
    /// No test was there to run.
    ZeroTests = 8,
    /// Heeler failed inside.
    Internal = 10,
    /// The process that was to be watched is gone.
    ParentGone = 11,
    /// The run stopped at its limit of failures.
    MaxFailures = 13,
}

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration.
    #[error("read the configuration")]
    Config(#[source] ConfigError),
    /// The profile.
    #[error("find the profile")]
    Profile(#[source] UnknownProfile),
    /// A filter asks what nobody may tell.
    #[error("answer the filter \"{filter}\": it asks how tests ended earlier, and the history is off")]
    NoHistory {
        /// As written.
        filter: String,
    },
    /// The programs.
    #[error("find the test programs")]
    Sources(#[source] SourcesError),
    /// An earlier run.
    #[error("choose the run")]
    Choose(#[source] ChooseError),
    /// What became of an earlier run.
    #[error("read what became of the run")]
    Story(#[source] StoryError),
    /// Nothing is left of an earlier run.
    #[error("find anything to run again: {what}")]
    NothingLeft {
        /// What is the matter with it.
        what: String,
    },
    /// There is nothing to do.
    #[error(
        "find anything to run: name test programs, use --cargo, or write a heeler.toml with [[suite]] sections here or above"
    )]
    NothingToRun,
    /// The session with the coordinator.
    #[error("talk to the coordinator")]
    Client(#[source] ClientError),
    /// The transport.
    #[error("serve clients")]
    Listen(#[source] ListenError),
    /// A report.
    #[error("write the JUnit report {path}")]
    Junit {
        /// Where.
        path: String,
        /// Why.
        source: JunitError,
    },
    /// A file.
    #[error("write {path}")]
    Write {
        /// Where.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A minidump.
    #[error(transparent)]
    Dump(watchdog::dump::ReadError),
    /// The operating system.
    #[error("watch for signals")]
    Signals(#[source] std::io::Error),
}

impl CommandError {
    /// Returns the code to leave with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_) | Self::Profile(_) | Self::NoHistory { .. } => Exit::CommandLine,
            Self::Choose(ChooseError::Unknown { .. } | ChooseError::Ambiguous { .. }) => Exit::CommandLine,
            Self::NothingLeft { .. } => Exit::ZeroTests,
            Self::Choose(ChooseError::None { .. })
            | Self::Story(_)
            | Self::Sources(_)
            | Self::NothingToRun
            | Self::Listen(_)
            | Self::Dump(_)
            | Self::Junit { .. }
            | Self::Write { .. } => Exit::Setup,
            Self::Client(_) | Self::Signals(_) => Exit::Internal,
        }
    }
}
