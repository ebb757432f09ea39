//! Traits of languages whose mutants an external mutation server finds and tests.

use std::{
    fmt,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use heeler_config::Config;
use heeler_mutant_model::{Mutant, MutantResult, MutantStatus};
use heeler_mutate::SourceSelection;

use crate::{error::MutateError, observer::MutationObserver, unfinished::Unfinished};

/// A pending answer of a mutation server.
pub(crate) type ServedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A language whose mutants an external mutation server finds and tests.
pub(super) trait ServedLanguage: Sync {
    /// Returns the nearest project in a directory or its parents, up to `top`; `None` if there is none.
    fn project(
        &self,
        directory: &Path,
        top: Option<&Path>,
        config: &Config,
    ) -> Option<Result<Arc<dyn ServedProject>, MissingServer>>;
}

/// A project whose mutation server can't be started.
#[derive(Debug, Clone)]
pub(crate) struct MissingServer {
    /// The languages without mutants.
    pub(crate) languages: &'static str,
    /// Name of the missing program, and how to install it.
    pub(crate) reason: String,
    /// Whether the project names the server, so the user may expect its mutants.
    pub(crate) is_wanted: bool,
}

pub(crate) trait ServedProject: fmt::Debug + Send + Sync {
    /// Returns the absolute directory of the project.
    fn dir(&self) -> &Path;

    /// Returns the project's named sources, including those without mutants.
    fn named_sources(&self, selection: &SourceSelection) -> Vec<PathBuf>;

    /// Starts the server and finds mutants in the named paths, or all mutants if none are named. Named paths
    /// and mutant paths are relative to `root`. Returns `None` if the named paths can't contain mutants.
    ///
    /// # Errors
    /// The server can't be started, fails, or sends an invalid answer.
    ///
    /// Cancel safe: yes, because the server ends when the connection of its guard closes.
    fn find<'a>(
        &'a self,
        root: &'a Path,
        named: Option<&'a [String]>,
        concurrency: Option<NonZeroUsize>,
    ) -> ServedFuture<'a, Result<Option<Box<dyn ServedMutants>>, MutateError>>;
}

/// Mutants found by a running mutation server.
pub(crate) trait ServedMutants: Send {
    fn selected(&self) -> Vec<Arc<Mutant>>;

    fn has_selected(&self) -> bool {
        !self.selected().is_empty()
    }

    /// Removes mutants from the selection.
    fn retain(&mut self, is_selected: &dyn Fn(&Mutant) -> bool);

    /// Returns the source texts, by mutant path.
    fn sources(&self) -> Vec<(Arc<str>, Arc<str>)>;

    /// Tests the selected mutants and ends the server. Returns `None` if the observer will not wait for
    /// running processes, which then end with this process.
    ///
    /// Cancel safe: no, because verdicts would be lost; running processes are ended.
    fn test(self: Box<Self>, observer: &mut dyn MutationObserver) -> ServedFuture<'_, Option<ServedTests>>;

    /// Ends the server. None of its processes runs when this returns.
    ///
    /// Cancel safe: yes, because the server ends when the connection of its guard closes.
    fn end(self: Box<Self>) -> ServedFuture<'static, ()>;
}

/// The results of testing with a mutation server.
pub(crate) struct ServedTests {
    /// Results of all selected mutants, sorted by position.
    pub(crate) results: Vec<MutantResult>,
    /// Why some of the results are pending.
    pub(crate) error: Option<MutateError>,
    /// Why the observer ended the tests before all mutants had verdicts.
    pub(crate) unfinished: Option<Unfinished>,
}

impl ServedTests {
    /// Returns whether there are verdicts that an error must not discard.
    pub(crate) fn has_verdicts(&self) -> bool {
        self.results.iter().any(|result| result.status != MutantStatus::Pending)
    }
}
