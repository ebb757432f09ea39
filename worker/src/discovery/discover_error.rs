//! Errors when listing the tests of a program, worded for the user.

use std::path::PathBuf;

use heeler_adapters::ListingError;
use heeler_core::{GuardLoss, describe::guard_loss_text, error_chain};

use super::listing_process::CaptureError;
use crate::process::worker_context::PrepareError;

/// Why the tests of a program could not be listed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoverError {
    #[error("{program} could not be built:\n{words}")]
    Unbuilt { program: String, words: String },
    #[error("{program} does not exist")]
    Missing { program: String },
    #[error("{program} is a directory, not a test program")]
    Directory { program: String },
    #[error("{program} is a {kind}, not a test program")]
    Special { program: String, kind: &'static str },
    #[error(
        "{program} is a script and is not run to detect its framework; if it runs tests, set --framework, or \
         framework in heeler.toml: {}",
        heeler_adapters::framework_names()
    )]
    Script { program: String },
    #[error("{program} is an empty file, not a test program")]
    Empty { program: String },
    #[error(
        "{program} contains no known test framework and is not run to detect one (looked for: {}); if it runs tests, \
         set --framework, or framework in heeler.toml: {}",
        heeler_adapters::recognized_frameworks(),
        heeler_adapters::framework_names()
    )]
    NoMark { program: String },
    #[error(
        "{program} mentions several test frameworks ({}), as test tools do, and is not run to detect its own; if it \
         runs tests, set --framework, or framework in heeler.toml",
        marks.join(", ")
    )]
    Tool { program: String, marks: Vec<&'static str> },
    #[error("{source}\n{note}")]
    WrongFramework { source: Box<Self>, note: String },
    #[error("{program} is a symbolic link to {}, which does not exist", target.display())]
    DanglingLink { program: String, target: PathBuf },
    #[error("{program} is not executable")]
    NotExecutable { program: String },
    #[error("cannot inspect {program}: {source}")]
    Unreadable { program: String, source: std::io::Error },
    #[error("unknown framework {name:?} (available: {known})")]
    UnknownFramework { name: String, known: String },
    #[error("failed to list the tests of {program}: cannot {}", error_chain(.source))]
    Prepare { program: String, source: PrepareError },
    #[error("failed to list the tests of {program}: {source}")]
    Capture { program: String, source: CaptureError },
    #[error("{program} was killed by {signal} while listing its tests{said}{evidence}")]
    Crashed { program: String, signal: String, said: String, evidence: String },
    #[error("failed to list the tests of {program}: {} in each of {losses} attempts", guard_loss_text(*.loss))]
    GuardLost { program: String, loss: GuardLoss, losses: u32 },
    #[error("failed to list the tests of {program}: its exit status is unknown")]
    Lost { program: String },
    #[error("{program} listed its tests, but {source}")]
    ListingFailed { program: String, source: ListingError },
    #[error("failed to list the tests of {program}: {source}")]
    Listing { program: String, source: ListingError },
}

impl DiscoverError {
    /// Returns whether a second attempt can succeed.
    pub(super) fn may_succeed_on_retry(&self) -> bool {
        let not_started = |source: &CaptureError| matches!(source, CaptureError::NotStarted(_));
        matches!(self, Self::Crashed { .. } | Self::Lost { .. })
            || matches!(self, Self::Capture { source, .. } if not_started(source))
    }

    /// Returns whether the program did something other than list its tests, such as run them.
    pub(super) fn is_without_listing(&self) -> bool {
        matches!(
            self,
            Self::Listing { .. }
                | Self::Crashed { .. }
                | Self::Capture { source: CaptureError::TimedOut { .. }, .. }
        )
    }

    /// Returns whether trying another framework is pointless or harmful: it would fail in the same way, or
    /// run the tests.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Listing { source, .. } => source.is_of_framework(),
            _ => true,
        }
    }
}
