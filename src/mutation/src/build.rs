//! Builds the guarded copy of a project until all mutants in it compile. Only reads the project itself.

use std::{collections::BTreeSet, path::Path};

use heeler_mutant::RollbackStep;
use heeler_mutant_model::MutantId;
use heeler_mutate::{GuardedProject, TreeCopy};

use crate::{
    error::MutateError,
    languages::{CompileRound, FoundProject, GuardContext, GuardedBuild},
};

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
        copy.show_round(&guarded, context);
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

/// Updates the guarded sources in the project's copy.
fn write_guarded(guarded: &GuardedProject, tree: &Path) -> Result<(), MutateError> {
    let replaced = guarded.texts();
    let copy = TreeCopy::new(&guarded.project().root, tree, &replaced);
    copy.update_replaced().map(|_written| ()).map_err(MutateError::Copy)
}
