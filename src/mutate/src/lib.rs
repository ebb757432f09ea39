//! Mutation testing of projects: reads the sources that belong to the product and searches them for mutants,
//! and decides which tests run for each and what their results mean. No process is started here but the
//! compilers for which this program stands in, and programs of several documentation tests, which list them:
//! what Cargo and rustc say is handed in, and so are the results of tests.
//!
//! - [`CargoProject`]: the crates of a workspace, as `cargo metadata` describes them.
//! - [`SourceSelection`], [`ChangedLines`], [`MutantShard`]: the sources, places and mutants that a user
//!   names.
//! - [`find_mutated_sources`], [`find_c_sources`], [`find_python_sources`]: the selected sources with their
//!   mutants.
//! - [`GuardedProject`]: the same with guards, and which mutants compile; [`BuiltProject`]: what of it is in
//!   the programs that are tested.
//! - [`TreeCopy`]: the copy of a workspace in which they are built.
//! - [`GuardRuntime`], [`CompilerShims`]: what guarded programs are linked to, and how compilers are told so;
//!   [`PythonRuntime`]: what interpreters load.
//! - [`DoctestDirectory`]: documentation tests as programs, which rustdoc compiles and does not run.
//! - [`Baseline`]: what the tests take and reach without a mutant, and with that the plan of each mutant.
//! - [`MutationRun`]: the mutants of a run, from the first process to the verdict of each.
//! - [`SharedTexts`]: messages that are the same for many mutants.
//! - [`VerdictCache`], [`KeptBaseline`]: verdicts, and what tests reach, of earlier runs that still hold;
//!   [`names_for_later_runs`]: what tests are called there.

mod built_project;
mod c;
mod cargo_project;
mod changed_lines;
mod doctests;
mod documented_constants;
mod fingerprint;
mod guarded_project;
mod kept_baseline;
mod kept_names;
mod module_tree;
mod mutation_run;
mod plan;
mod python;
mod runtime;
mod selection;
mod shard;
mod shared_texts;
mod source_tree;
mod step_outcome;
#[cfg(test)]
mod tests;
mod tree_copy;
mod verdict_cache;

pub use built_project::{BuiltProject, FunctionId, MutantNumber, NumberedMutant};
pub use c::{
    CompiledGuards, CompilerShims, add_built_files, find_build_inputs, find_c_sources, is_compiler_shim,
    run_compiler_shim,
};
pub use cargo_project::{CargoProject, CargoProjectError, FeatureSelection, OutsideDependency};
pub use changed_lines::ChangedLines;
pub use doctests::{
    DoctestDirectory, KeptDoctest, KeptDoctests, UncompiledDoctest, is_doctest_keeper, run_doctest_keeper,
};
pub use fingerprint::Fingerprint;
pub use guarded_project::GuardedProject;
pub use kept_baseline::{KeptBaseline, KeptTest, ProgramUids};
pub use kept_names::names_for_later_runs;
pub use module_tree::{MutatedProject, ProjectSource, ReadSourceError, find_mutated_sources};
pub use mutation_run::{
    CONFIRMED_FAILURES, MAX_UNKNOWN, MutantVerdict, MutationRun, OrderLimit, OrderedStep,
};
pub use plan::{Baseline, BaselineProgram, Coverage, KnownKillers, MutantPlan, PlanStep, TestIndex};
pub use python::{
    ForeignModule, PythonCompilation, PythonLayout, PythonRuntime, find_python_sources, foreign_modules,
    is_python_project, python_left_out,
};
pub use runtime::{
    GuardMode, GuardRuntime, LIMIT_EXIT_CODES, coverage_file_bytes, guard_environment, is_rustc_wrapper,
    run_rustc_wrapper,
};
pub use selection::{SelectionError, SourceSelection};
pub use shard::{MutantShard, ParseShardError};
pub use shared_texts::SharedTexts;
pub use step_outcome::StepOutcome;
pub use tree_copy::{CopiedTree, TreeCopy, TreeCopyError};
pub use verdict_cache::{KeptVerdict, VerdictBasis, VerdictCache};
