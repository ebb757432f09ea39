//! Errors in the communication with StrykerJS.

use std::{io, path::PathBuf, time::Duration};

use heeler_mutant_model::UnknownPlaceError;
use heeler_protocol::frame::FrameError;
use heeler_sys::spawn::SpawnError;
use heeler_transport::LinkError;

use crate::error::MutateError;

/// Why StrykerJS failed to find or test mutants.
#[derive(Debug, thiserror::Error)]
pub(super) enum StrykerError {
    #[error("cannot connect to StrykerJS")]
    Connect(#[source] io::Error),
    #[error("cannot start the guard process of StrykerJS")]
    Guard(#[source] SpawnError),
    #[error("StrykerJS printed something other than protocol messages to its standard output")]
    Stream { stderr: String, source: LinkError<FrameError> },
    #[error("invalid message from StrykerJS: {problem}")]
    Message { problem: String },
    /// The answer does not match the protocol.
    #[error("invalid answer from StrykerJS to {method}")]
    Answer { method: &'static str, source: serde_json::Error },
    #[error("unsupported StrykerJS: expected version 0.4 of the Mutation Server Protocol, got {version:?}")]
    Version { version: String },
    /// `message` is StrykerJS's own error message.
    #[error("StrykerJS answered {method} with an error: {message}")]
    Refused { method: &'static str, message: String, stderr: String },
    #[error("StrykerJS ended before it answered {method}: {end}")]
    Ended { method: &'static str, end: String, stderr: String },
    #[error("no message from StrykerJS for {} s during {method}", limit.as_secs())]
    Silent { method: &'static str, limit: Duration },
    #[error("invalid mutant from StrykerJS")]
    Place(#[source] UnknownPlaceError),
    #[error("invalid mutant from StrykerJS: expected a source in its package, got {path:?}")]
    Outside { path: String },
    #[error("cannot read the source {}", path.display())]
    Source { path: PathBuf, source: io::Error },
}

/// StrykerJS's message if the tests fail without a mutant. Its errors have no codes.
const RED_TESTS: &str = "failed tests in the initial test run";

impl StrykerError {
    /// Returns the error chain followed by the end of StrykerJS's standard error. Too long to repeat for
    /// every mutant.
    fn text_with_output(&self) -> String {
        let text = heeler_core::error_chain(self);
        match self {
            Self::Stream { stderr, .. } | Self::Refused { stderr, .. } | Self::Ended { stderr, .. } => {
                text + stderr
            }
            Self::Connect(_)
            | Self::Guard(_)
            | Self::Message { .. }
            | Self::Answer { .. }
            | Self::Version { .. }
            | Self::Silent { .. }
            | Self::Place(_)
            | Self::Outside { .. }
            | Self::Source { .. } => text,
        }
    }

    /// Returns whether the tests fail without a mutant.
    fn is_red(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains(RED_TESTS))
    }
}

impl From<StrykerError> for MutateError {
    fn from(error: StrykerError) -> Self {
        Self::MutationServer { text: error.text_with_output(), is_red: error.is_red() }
    }
}
