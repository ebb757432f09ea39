//! How projects of a language are found, guarded, compiled and tested.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_cargo::BuildSupervision;
use heeler_mutant::compiler::CompilerError;
use heeler_mutant_model::Mutant;
use heeler_mutate::{BuiltProject, Fingerprint, GuardedProject, MutatedProject, SourceSelection};
use heeler_protocol::control::TestProgram;

use super::build_options::BuildOptions;
use crate::{error::MutateError, test_finder::TestFinder, work_place::WorkPlace};

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

/// Where and how a project is built.
pub(crate) struct GuardContext<'a> {
    pub(crate) place: &'a WorkPlace,
    pub(crate) supervision: BuildSupervision<'a>,
    pub(crate) finder: &'a dyn TestFinder,
    /// Shows what is being done.
    pub(crate) show_phase: &'a mut dyn FnMut(&str, &str),
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
    /// Shows that the tests are compiled once more.
    fn show_round(&self, guarded: &GuardedProject, context: &mut GuardContext<'_>) {
        (context.show_phase)("Building", &format!("the tests with mutants, round {}", guarded.rounds() + 1));
    }

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

/// The test programs of a guarded workspace.
#[derive(Debug)]
pub(crate) struct GuardedBuild {
    pub(crate) guarded: BuiltProject,
    pub(crate) programs: Vec<TestProgram>,
    /// The places of programs with documentation tests, which are left out where they fail.
    pub(crate) doctests: Range<usize>,
    /// What the user should know of the tests.
    pub(crate) notes: Vec<String>,
    /// A hash of everything but the code of functions with mutants.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) counting: TestCounting,
}

impl GuardedBuild {
    /// Returns a build without what only Cargo has.
    pub(crate) fn new(
        guarded: BuiltProject,
        programs: Vec<TestProgram>,
        fingerprint: Fingerprint,
        counting: TestCounting,
    ) -> Self {
        Self { guarded, programs, doctests: 0..0, notes: Vec::new(), fingerprint, counting }
    }
}

/// How it is counted what each test reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestCounting {
    /// Each test in a process of its own.
    Alone,
    /// Each in a child that is forked by a process of several tests, which has loaded all they need.
    Forked,
}
