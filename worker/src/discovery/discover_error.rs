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
        "{program} is a script, which is not run to find out what it is; if it runs tests, name their framework \
         with --framework, or framework = in heeler.toml: {}",
        heeler_adapters::framework_names()
    )]
    Script { program: String },
    #[error("{program} is an empty file, not a test program")]
    Empty { program: String },
    #[error(
        "{program} has no mark of a test framework, and is not run to find out what it is; looked for: {}; if it runs \
         tests, name their framework with --framework, or framework = in heeler.toml: {}",
        heeler_adapters::recognized_frameworks(),
        heeler_adapters::framework_names()
    )]
    NoMark { program: String },
    #[error(
        "{program} has the marks of {}, as tools for tests have, and is not run to find out what it is; if it runs tests, \
         name their framework with --framework, or framework = in heeler.toml",
        marks.join(", ")
    )]
    Tool { program: String, marks: Vec<&'static str> },
    #[error("{source}\n{note}")]
    WrongFramework { source: Box<Self>, note: String },
    #[error("{program} is a symbolic link to {}, which does not exist", target.display())]
    DanglingLink { program: String, target: PathBuf },
    #[error("{program} is not executable")]
    NotExecutable { program: String },
    #[error("{program} can't be inspected: {source}")]
    Unreadable { program: String, source: std::io::Error },
    #[error("there is no framework {name:?}; there are {known}")]
    UnknownFramework { name: String, known: String },
    #[error("the listing of {program} can't be prepared: {}", error_chain(.source))]
    Prepare { program: String, source: PrepareError },
    #[error("failed to ask {program} for its tests: failed to {source}")]
    Capture { program: String, source: CaptureError },
    #[error("{program} died of {signal} while it listed its tests{said}{evidence}")]
    Crashed { program: String, signal: String, said: String, evidence: String },
    #[error("failed to ask {program} for its tests: {} in each of {losses} attempts", guard_loss_text(*.loss))]
    GuardLost { program: String, loss: GuardLoss, losses: u32 },
    #[error("failed to ask {program} for its tests: the exit status of its process is unknown")]
    Lost { program: String },
    #[error("{program} listed its tests, but failed to {source}")]
    ListingFailed { program: String, source: ListingError },
    #[error("failed to ask {program} for its tests: failed to {source}")]
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
