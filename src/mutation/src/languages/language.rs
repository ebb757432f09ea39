//! Traits of languages that Heeler builds: how projects are found, guarded, compiled and tested.

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
    /// Returns the project of a directory, if the options or the directory's files indicate one.
    fn project(&self, options: &BuildOptions, directory: &Path) -> Option<Arc<dyn LanguageProject>>;

    /// Explains why a directory without any project has none of this language.
    ///
    /// # Errors
    /// The user may expect a project of this language.
    fn explain_absence(&self, _directory: &Path) -> Result<(), MutateError> {
        Ok(())
    }
}

pub(crate) trait LanguageProject: fmt::Debug + Send + Sync {
    /// Returns the directory that mutant paths are relative to.
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

/// Which packages of a workspace to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchedPackages {
    /// The packages that are tested in the directory, unless the user names sources.
    Directory,
    Workspace,
}

pub(crate) struct FoundProject {
    pub(crate) builder: Box<dyn GuardedBuilder>,
    pub(crate) mutated: MutatedProject,
}

impl FoundProject {
    pub(crate) fn has_selected(&self) -> bool {
        self.mutated.sources.iter().any(|source| !source.selected.is_empty())
    }

    /// Removes mutants from the selection.
    pub(crate) fn retain(&mut self, is_selected: impl Fn(&Mutant) -> bool) {
        for source in &mut self.mutated.sources {
            let mutants = source.source.mutants();
            source.selected.retain(|&index| is_selected(&mutants[index].mutant));
        }
    }
}

/// Where and how to build a project.
pub(crate) struct GuardContext<'a> {
    pub(crate) place: &'a WorkPlace,
    pub(crate) supervision: BuildSupervision<'a>,
    pub(crate) finder: &'a dyn TestFinder,
    /// Shows the current step to the user.
    pub(crate) show_phase: &'a mut dyn FnMut(&str, &str),
}

/// Builds a project whose mutants were found.
pub(crate) trait GuardedBuilder: Send {
    /// Copies the project with guarded sources. May leave out some mutants.
    ///
    /// # Errors
    /// The project can't be copied, or a tool is missing.
    fn guard(
        self: Box<Self>,
        guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<(Box<dyn GuardedCopy>, GuardedProject), MutateError>;
}

/// The result of compiling all tests once.
pub(crate) struct CompileRound {
    /// Compiler errors; empty if the tests were built.
    pub(crate) errors: Vec<CompilerError>,
    /// Sources were left out for reasons other than compiler errors, so everything must be compiled once
    /// more.
    pub(crate) is_repeated: bool,
}

pub(crate) trait GuardedCopy {
    /// Shows that another compiler round begins.
    fn show_round(&self, guarded: &GuardedProject, context: &mut GuardContext<'_>) {
        (context.show_phase)("Building", &format!("the tests with mutants, round {}", guarded.rounds() + 1));
    }

    /// Compiles the tests once.
    ///
    /// # Errors
    /// The build fails without a compiler error, or was cancelled.
    fn compile(
        &mut self,
        guarded: &mut GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<CompileRound, MutateError>;

    /// Compiles optional tests after all others; tests that do not compile are left out. Returns whether the
    /// build is complete. Otherwise mutants were withdrawn, and everything must be compiled once more.
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
    /// The tests can't be found.
    fn tests(
        self: Box<Self>,
        guarded: GuardedProject,
        context: &mut GuardContext<'_>,
    ) -> Result<GuardedBuild, MutateError>;
}

/// The test programs of a guarded project.
#[derive(Debug)]
pub(crate) struct GuardedBuild {
    pub(crate) guarded: BuiltProject,
    pub(crate) programs: Vec<TestProgram>,
    /// Indices of documentation test programs, whose failing tests are left out.
    pub(crate) doctests: Range<usize>,
    /// Notes about the tests for the user.
    pub(crate) notes: Vec<String>,
    /// A hash of everything except the code of functions with mutants.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) counting: TestCounting,
}

impl GuardedBuild {
    /// Returns a build without documentation tests and notes.
    pub(crate) fn new(
        guarded: BuiltProject,
        programs: Vec<TestProgram>,
        fingerprint: Fingerprint,
        counting: TestCounting,
    ) -> Self {
        Self { guarded, programs, doctests: 0..0, notes: Vec::new(), fingerprint, counting }
    }
}

/// How to count what each test reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestCounting {
    /// Each test runs in its own process.
    Alone,
    /// Each test runs in a forked child of a process that has loaded everything the tests need.
    Forked,
}
