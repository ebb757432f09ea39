//! How a language is mutated whose mutants an external mutation server finds and tests.

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

/// An answer of a mutation server, which may take time.
pub(crate) type ServedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A language whose mutants an external mutation server finds and tests.
pub(super) trait ServedLanguage: Sync {
    /// Returns the nearest project, in a directory or above it up to `top`; `None` if there is none.
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
    /// The languages that are left out.
    pub(crate) languages: &'static str,
    /// Why, as it reads after "failed to".
    pub(crate) reason: String,
    /// The project names the server, so that the user may expect its mutants.
    pub(crate) is_wanted: bool,
}

/// A project with a mutation server.
pub(crate) trait ServedProject: fmt::Debug + Send + Sync {
    /// Returns the absolute directory of the project.
    fn dir(&self) -> &Path;

    /// Returns the named sources of the project, also those without mutants.
    fn named_sources(&self, selection: &SourceSelection) -> Vec<PathBuf>;

    /// Starts the server and finds mutants, with paths relative to the directory `root`; `None` if the named
    /// paths can have none. Paths are named relative to `root`; without any, all mutants are found.
    ///
    /// # Errors
    /// The server can't be started, fails, or answers in another form.
    ///
    /// Cancel safe: yes, because the server ends with its guard's connection.
    fn find<'a>(
        &'a self,
        root: &'a Path,
        named: Option<&'a [String]>,
        concurrency: Option<NonZeroUsize>,
    ) -> ServedFuture<'a, Result<Option<Box<dyn ServedMutants>>, MutateError>>;
}

/// Mutants that a running mutation server has found.
pub(crate) trait ServedMutants: Send {
    /// Returns the selected mutants.
    fn selected(&self) -> Vec<Arc<Mutant>>;

    /// Returns whether any mutant is selected.
    fn has_selected(&self) -> bool {
        !self.selected().is_empty()
    }

    /// Takes mutants out of the selection.
    fn retain(&mut self, is_selected: &dyn Fn(&Mutant) -> bool);

    /// Returns the texts of the sources, by the paths of their mutants.
    fn sources(&self) -> Vec<(Arc<str>, Arc<str>)>;

    /// Tests the selected mutants, and ends the server; `None` if the observer does not wait for the end of
    /// what runs, which ends with this process.
    ///
    /// Cancel safe: no, because verdicts would be lost; what runs ends.
    fn test(self: Box<Self>, observer: &mut dyn MutationObserver) -> ServedFuture<'_, Option<ServedTests>>;

    /// Ends the server. Nothing of it runs when this returns.
    ///
    /// Cancel safe: yes, because the server ends with its guard's connection.
    fn end(self: Box<Self>) -> ServedFuture<'static, ()>;
}

/// What the tests of a mutation server have shown.
pub(crate) struct ServedTests {
    /// Results of all selected mutants, in the order of their places.
    pub(crate) results: Vec<MutantResult>,
    /// Why some of them are pending.
    pub(crate) error: Option<MutateError>,
    /// Why the observer has ended the tests before all mutants had verdicts.
    pub(crate) unfinished: Option<Unfinished>,
}

impl ServedTests {
    /// Returns whether anything is known that would be lost with an error.
    pub(crate) fn has_verdicts(&self) -> bool {
        self.results.iter().any(|result| result.status != MutantStatus::Pending)
    }
}
