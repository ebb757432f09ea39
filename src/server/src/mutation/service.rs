//! What finds and tests mutants for the sessions, and what the sessions of a server share.

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

/// Which methods may begin a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstMethod {
    /// Only those that name a version: `initialize` or `configure`.
    Handshake,
    /// Also requests of 0.4, whose clients start the server themselves.
    AnyOfV04,
}

/// How partial results are written in 0.0.1-alpha.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgressForm {
    /// As the specification says.
    #[default]
    List,
    /// As a client expects that differs from it.
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

/// What all sessions of a process share.
#[derive(Clone)]
pub struct MutationServer {
    pub(super) service: Arc<dyn MutationService>,
    pub(super) options: MutationSessionOptions,
    /// Whoever tests mutants holds its one permit, since a run uses the whole machine. It is fair.
    pub(super) run_queue: Arc<Semaphore>,
}

impl MutationServer {
    /// Returns a server on whose service no run is in progress.
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
