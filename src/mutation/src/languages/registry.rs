//! All languages. A new language is a folder, and a line here: a [`GuardedLanguage`] gives the parts of the
//! engine, a [`ServedLanguage`] a whole mutation server.

use std::{path::Path, sync::Arc};

use heeler_config::Config;

use super::{
    build_options::BuildOptions,
    c::CommandLanguage,
    javascript::JavaScript,
    language::{GuardedLanguage, LanguageProject},
    python::Python,
    rust::Rust,
    served_language::{MissingServer, ServedLanguage, ServedProject},
};
use crate::error::MutateError;

/// Languages whose guarded sources are built here. The first that has a project in a directory mutates it.
static GUARDED: &[&dyn GuardedLanguage] = &[&CommandLanguage, &Python, &Rust];
/// Languages with mutation servers of their own. The first that has a project mutates it as well.
static SERVED: &[&dyn ServedLanguage] = &[&JavaScript];

/// Returns the project of a directory; `None` if nothing is built here.
pub(crate) fn project_of(options: &BuildOptions, directory: &Path) -> Option<Arc<dyn LanguageProject>> {
    GUARDED.iter().find_map(|language| language.project(options, directory))
}

/// Returns the project with a mutation server that is nearest to a directory, not above `top`.
pub(crate) fn served_project_of(
    directory: &Path,
    top: Option<&Path>,
    config: &Config,
) -> Option<Result<Arc<dyn ServedProject>, MissingServer>> {
    SERVED.iter().find_map(|language| language.project(directory, top, config))
}

/// Explains why a directory has no project.
///
/// # Errors
/// A language says what it misses.
pub(crate) fn explain_absence(directory: &Path) -> Result<(), MutateError> {
    GUARDED.iter().try_for_each(|language| language.explain_absence(directory))
}
