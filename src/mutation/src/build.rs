//! The guarded copy of a project, and its test programs. The project itself is only read.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
};

use heeler_cargo::BuildSupervision;
use heeler_mutant::RollbackStep;
use heeler_mutant_model::MutantId;
use heeler_mutate::{BuiltProject, Fingerprint, GuardedProject, TreeCopy};
use heeler_protocol::control::TestProgram;

use crate::{
    error::MutateError,
    languages::{CompileRound, FoundProject},
    test_finder::TestFinder,
    work_place::WorkPlace,
};

/// The test programs of a guarded workspace.
#[derive(Debug)]
pub(crate) struct GuardedBuild {
    pub(crate) guarded: BuiltProject,
    pub(crate) programs: Vec<TestProgram>,
    /// The places of programs with a `main` of their own.
    pub(crate) own_harness: Vec<usize>,
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
        Self {
            guarded,
            programs,
            own_harness: Vec::new(),
            doctests: 0..0,
            notes: Vec::new(),
            fingerprint,
            counting,
        }
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

/// Where and how a project is built.
pub(crate) struct GuardContext<'a> {
    pub(crate) place: &'a WorkPlace,
    pub(crate) supervision: BuildSupervision<'a>,
    pub(crate) finder: &'a dyn TestFinder,
    /// Shows what is being done.
    pub(crate) show_phase: &'a mut dyn FnMut(&str, &str),
}

impl GuardContext<'_> {
    /// Shows that the tests are built once more.
    pub(crate) fn show_round(&mut self, guarded: &GuardedProject) {
        (self.show_phase)("Building", &format!("the tests with mutants, round {}", guarded.rounds() + 1));
    }
}

/// Builds the tests with guards for all mutants that compile.
///
/// # Errors
/// The project can't be copied or built, or has no tests.
pub(crate) fn build_guarded(
    found: FoundProject,
    context: &mut GuardContext<'_>,
) -> Result<GuardedBuild, MutateError> {
    let guarded = GuardedProject::new(found.mutated, &BTreeSet::<MutantId>::new());
    let (mut copy, mut guarded) = found.builder.guard(guarded, context)?;
    loop {
        let CompileRound { errors, is_repeated } = copy.compile(&mut guarded, context)?;
        let is_built = match guarded.next_round(&errors) {
            RollbackStep::Broken(errors) => return Err(MutateError::NotCompiled { errors }),
            RollbackStep::Check => false,
            RollbackStep::Done => !is_repeated && copy.compile_optional(&mut guarded, context)?,
        };
        if is_built {
            return copy.tests(guarded, context);
        }
        write_guarded(&guarded, &context.place.tree())?;
    }
}

/// Writes the guarded sources of a project to its copy.
pub(crate) fn write_guarded(guarded: &GuardedProject, tree: &Path) -> Result<(), MutateError> {
    let replaced = guarded.texts();
    let copy = tree_copy(&guarded.project().root, tree, &replaced);
    copy.update_replaced().map(|_written| ()).map_err(MutateError::Copy)
}

/// Returns the copy of a tree, of which nothing is left out and nothing else is kept.
pub(crate) fn tree_copy<'a>(
    original: &'a Path,
    copy: &'a Path,
    replaced: &'a BTreeMap<PathBuf, &'a str>,
) -> TreeCopy<'a> {
    TreeCopy { original, copy, left_out: &[], left_out_files: &[], kept: &[], copied_before: None, replaced }
}
