//! All languages whose guarded sources are built here. A new one is a folder with a [`GuardedLanguage`], and
//! a line here.

use std::{path::Path, sync::Arc};

use super::{
    build_options::BuildOptions,
    c::CommandLanguage,
    language::{GuardedLanguage, LanguageProject},
    python::Python,
    rust::Rust,
};
use crate::error::MutateError;

/// The first that has a project in a directory mutates it.
static LANGUAGES: &[&dyn GuardedLanguage] = &[&CommandLanguage, &Python, &Rust];

/// Returns the project of a directory; `None` if nothing is built here.
pub(crate) fn project_of(options: &BuildOptions, directory: &Path) -> Option<Arc<dyn LanguageProject>> {
    LANGUAGES.iter().find_map(|language| language.project(options, directory))
}

/// Explains why a directory has no project.
///
/// # Errors
/// A language says what it misses.
pub(crate) fn explain_absence(directory: &Path) -> Result<(), MutateError> {
    LANGUAGES.iter().try_for_each(|language| language.explain_absence(directory))
}
