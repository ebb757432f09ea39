//! How projects of a language are found, guarded, compiled and tested.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_mutant::compiler::CompilerError;
use heeler_mutant_model::Mutant;
use heeler_mutate::{GuardedProject, MutatedProject, SourceSelection};

use super::build_options::BuildOptions;
use crate::{
    build::{GuardContext, GuardedBuild},
    error::MutateError,
};

/// A language whose guarded sources are built here.
pub(super) trait GuardedLanguage: Sync {
    /// Returns the project of a directory, if the options name one or its files show that there is one.
    fn project(&self, options: &BuildOptions, directory: &Path) -> Option<Arc<dyn LanguageProject>>;

    /// Explains why a directory without any project has none of this language.
    ///
    /// # Errors
    /// The user may expect one.
    fn explain_absence(&self, _directory: &Path) -> Result<(), MutateError> {
        Ok(())
    }
}

/// A project of a language.
pub(crate) trait LanguageProject: fmt::Debug + Send + Sync {
    /// Returns the directory to which the paths of mutants are relative.
    ///
    /// # Errors
    /// There is no package.
    fn root(&self) -> Result<PathBuf, MutateError>;

    /// Finds the selected mutants. Blocks.
    ///
    /// # Errors
    /// There is no package, or a source can't be read.
    fn find(
        &self,
        selection: &SourceSelection,
        packages: SearchedPackages,
    ) -> Result<FoundProject, MutateError>;
}

/// Which packages of a workspace are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchedPackages {
    /// The packages that are tested in the directory, unless the user names sources.
    Directory,
    /// All packages of the workspace.
    Workspace,
}

/// A project and its mutants.
pub(crate) struct FoundProject {
    pub(crate) builder: Box<dyn GuardedBuilder>,
    pub(crate) mutated: MutatedProject,
}

impl FoundProject {
    /// Returns whether any mutant is selected.
    pub(crate) fn has_selected(&self) -> bool {
        self.mutated.sources.iter().any(|source| !source.selected.is_empty())
    }

    /// Takes mutants out of the selection.
    pub(crate) fn retain(&mut self, is_selected: impl Fn(&Mutant) -> bool) {
        for source in &mut self.mutated.sources {
            let mutants = source.source.mutants();
            source.selected.retain(|&index| is_selected(&mutants[index].mutant));
        }
    }
}

/// Builds a project whose mutants were found.
pub(crate) trait GuardedBuilder: Send {
    /// Copies the project with guarded sources, of which mutants may be taken out.
    ///
    /// # Errors
    /// It can't be copied, or a tool is missing.
    fn guard(
        self: Box<Self>,
        guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<(Box<dyn GuardedCopy>, GuardedProject), MutateError>;
}

/// Result of compiling all tests once.
pub(crate) struct CompileRound {
    /// Errors of the compiler; empty if the tests were built.
    pub(crate) errors: Vec<CompilerError>,
    /// Sources were taken out for other reasons, so that all is compiled once more.
    pub(crate) is_repeated: bool,
}

/// The guarded copy of a project.
pub(crate) trait GuardedCopy {
    /// Compiles the tests once.
    ///
    /// # Errors
    /// The build fails without an error of the compiler, or was cancelled.
    fn compile(
        &mut self,
        guarded: &mut GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<CompileRound, MutateError>;

    /// Compiles further tests, after all others: they are left out where they do not compile. Returns whether
    /// all is built; otherwise mutants were withdrawn, and all is compiled once more.
    ///
    /// # Errors
    /// The build was cancelled.
    fn compile_optional(
        &mut self,
        _guarded: &mut GuardedProject,
        _context: &mut GuardContext<'_>,
    ) -> Result<bool, MutateError> {
        Ok(true)
    }

    /// Returns the tests of the last build.
    ///
    /// # Errors
    /// They can't be found.
    fn tests(
        self: Box<Self>,
        guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<GuardedBuild, MutateError>;
}
