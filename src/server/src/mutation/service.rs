//! What finds and tests mutants for the sessions.

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use heeler_mutant_model::MutantResult;
use tokio::sync::{mpsc, watch};

use super::MutantSelection;

/// An operation of the service. Dropping it ends everything that it started.
pub type ServiceFuture<T> = Pin<Box<dyn Future<Output = Result<T, MutationServiceError>> + Send>>;

/// Opens projects for the sessions.
pub trait MutationService: Send + Sync + 'static {
    /// Opens the project of the server's directory with a configuration file, or with the one that is found.
    /// A relative path is relative to the server's directory.
    fn open(&self, config_file: Option<PathBuf>) -> ServiceFuture<Arc<dyn MutationProject>>;
}

/// A project whose mutants are found and tested. Several sessions may use it at the same time; the front end
/// lets one of them test mutants at a time.
pub trait MutationProject: Send + Sync + 'static {
    /// Returns the absolute directory to which the paths of its mutants are relative.
    fn directory(&self) -> &Path;

    /// Finds the selected mutants, without a build: each is pending, or ignored where the source says so. No
    /// match is no error.
    fn discover(
        &self,
        selection: Arc<MutantSelection>,
        cancellation: Cancellation,
    ) -> ServiceFuture<Vec<MutantResult>>;

    /// Tests the selected mutants, and sends each result as soon as it is known, once. The queue is bounded:
    /// a client that reads slowly slows the run. Returns when nothing runs any more, after a cancellation as
    /// well; then no further result is sent.
    fn test(
        &self,
        selection: Arc<MutantSelection>,
        results: mpsc::Sender<MutantResult>,
        cancellation: Cancellation,
    ) -> ServiceFuture<()>;
}

/// Why an operation of the service failed. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MutationServiceError {
    /// The configuration can't be used.
    #[error("use the configuration: {0}")]
    Config(String),
    /// The mutants can't be found or tested: no build, tests that fail without a mutant.
    #[error("{0}")]
    Failed(String),
    #[error("go on: the operation was cancelled")]
    Cancelled,
}

/// Cancels an operation; so does dropping this.
#[derive(Debug)]
pub struct Canceller(watch::Sender<bool>);

/// Says whether an operation is cancelled.
#[derive(Debug, Clone)]
pub struct Cancellation(watch::Receiver<bool>);

impl Canceller {
    #[must_use]
    pub fn new() -> (Self, Cancellation) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Cancellation(receiver))
    }

    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

impl Cancellation {
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the operation is cancelled.
    ///
    /// Cancel safe: yes, because it only waits.
    pub async fn cancelled(&mut self) {
        // The sender is dropped where nobody waits for the operation any more.
        let (Ok(_) | Err(_)) = self.0.wait_for(|is_cancelled| *is_cancelled).await;
    }
}
