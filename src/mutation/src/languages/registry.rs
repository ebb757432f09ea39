//! All languages. To add one, create a folder and add a line here. A [`GuardedLanguage`] provides the
//! language-specific parts of the engine, a [`ServedLanguage`] a complete mutation server.

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

/// Languages whose guarded sources are built here. The first with a project in the directory is used.
static GUARDED: &[&dyn GuardedLanguage] = &[&CommandLanguage, &Python, &Rust];
/// Languages with their own mutation server. The first with a project is used, in addition to a built
/// language.
static SERVED: &[&dyn ServedLanguage] = &[&JavaScript];

/// Returns the project to build in a directory, if any.
pub(crate) fn project_of(options: &BuildOptions, directory: &Path) -> Option<Arc<dyn LanguageProject>> {
    GUARDED.iter().find_map(|language| language.project(options, directory))
}

/// Returns the served project nearest to a directory, not above `top`.
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
/// A language is missing something that the user may expect.
pub(crate) fn explain_absence(directory: &Path) -> Result<(), MutateError> {
    GUARDED.iter().try_for_each(|language| language.explain_absence(directory))
}
