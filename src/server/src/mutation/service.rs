//! The service that finds and tests mutants, and state shared by all sessions of a server.

use std::{
    fmt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use heeler_mutant_model::MutantResult;
use tokio::sync::{Semaphore, mpsc, watch};

use super::MutantSelection;

/// An operation of the service. Dropping it ends everything that it started.
pub type ServiceFuture<T> = Pin<Box<dyn Future<Output = Result<T, MutationServiceError>> + Send>>;

/// Opens projects for sessions.
pub trait MutationService: Send + Sync + 'static {
    /// Opens the project in the server's directory, with this configuration file or the default one. A
    /// relative path is relative to the server's directory.
    fn open(&self, config_file: Option<PathBuf>) -> ServiceFuture<Arc<dyn MutationProject>>;
}

/// A project with mutants. Several sessions may use it at a time, but the front end lets only one of them
/// test mutants.
pub trait MutationProject: Send + Sync + 'static {
    /// Returns the absolute directory that mutant paths are relative to.
    fn directory(&self) -> &Path;

    /// Finds the selected mutants without a build. Each mutant is pending, or ignored if its source requests
    /// that. Finding no mutant is not an error.
    fn discover(
        &self,
        selection: Arc<MutantSelection>,
        cancellation: Cancellation,
    ) -> ServiceFuture<Vec<MutantResult>>;

    /// Tests the selected mutants and sends each result once, as soon as it is known. The queue is bounded,
    /// so a client that reads slowly slows the run. Returns when all work has ended, also after a
    /// cancellation, and sends no result after that.
    fn test(
        &self,
        selection: Arc<MutantSelection>,
        results: mpsc::Sender<MutantResult>,
        cancellation: Cancellation,
    ) -> ServiceFuture<()>;
}

/// The methods that may begin a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstMethod {
    /// Only methods that select a version: `initialize` or `configure`.
    Handshake,
    /// Also any request of version 0.4, for clients that start the server themselves.
    AnyOfV04,
}

/// Format of partial results in version 0.0.1-alpha.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgressForm {
    /// A list of results, as specified.
    #[default]
    List,
    /// An object, for a client that deviates from the specification.
    Object,
}

/// Parameters of a session.
#[derive(Debug, Clone, Copy)]
pub struct MutationSessionOptions {
    pub first_method: FirstMethod,
    pub progress_form: ProgressForm,
    /// Time limit for the first method; `None` for a client that started the server.
    pub begin_within: Option<Duration>,
}

/// State shared by all sessions of a process.
#[derive(Clone)]
pub struct MutationServer {
    pub(super) service: Arc<dyn MutationService>,
    pub(super) options: MutationSessionOptions,
    /// A single permit for testing mutants, because a run uses the whole machine. The semaphore is fair.
    pub(super) run_queue: Arc<Semaphore>,
}

impl MutationServer {
    /// Returns a server without a run in progress.
    #[must_use]
    pub fn new(service: Arc<dyn MutationService>, options: MutationSessionOptions) -> Self {
        Self { service, options, run_queue: Arc::new(Semaphore::new(1)) }
    }
}

impl fmt::Debug for MutationServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutationServer").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Why an operation of the service failed. The text is shown to users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MutationServiceError {
    /// The configuration can't be used.
    #[error("use the configuration: {0}")]
    Config(String),
    /// The mutants can't be found or tested, for example because the build or the unmutated tests fail.
    #[error("{0}")]
    Failed(String),
    #[error("complete the operation: it was cancelled")]
    Cancelled,
}

/// Cancels an operation, also when dropped.
#[derive(Debug)]
pub struct Canceller(watch::Sender<bool>);

/// Shows whether an operation is cancelled.
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
        // The sender is dropped when nothing waits for the operation any more.
        let (Ok(_) | Err(_)) = self.0.wait_for(|is_cancelled| *is_cancelled).await;
    }
}
