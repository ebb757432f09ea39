//! Mutation testing of projects: finds mutants in product sources, chooses the tests for each, and
//! interprets their results. Callers run Cargo, rustc and the tests, and pass in the output. The only
//! processes started here are the wrapped compilers, and multi-test documentation test programs to list
//! their tests.
//!
//! - [`CargoProject`]: the crates of a workspace, as `cargo metadata` describes them.
//! - [`SourceSelection`], [`ChangedLines`], [`MutantShard`]: the user's selection of sources, lines and
//!   mutants.
//! - [`find_mutated_sources`], [`find_c_sources`], [`find_python_sources`]: the selected sources with their
//!   mutants.
//! - [`GuardedProject`]: sources with guards, and which mutants compile; [`BuiltProject`]: the mutants in
//!   the compiled programs.
//! - [`TreeCopy`]: the copy of a workspace, where guarded sources are built.
//! - [`GuardRuntime`], [`CompilerShims`]: the guard runtime, and the compiler wrappers that link it;
//!   [`PythonRuntime`]: the runtime that Python interpreters load.
//! - [`DoctestDirectory`]: documentation tests, compiled by rustdoc and kept as programs.
//! - [`Baseline`]: durations and coverage of tests without a mutant, and the test plan of each mutant.
//! - [`MutationRun`]: the state machine from the first process to the verdict of each mutant.
//! - [`SharedTexts`]: interned messages that many mutants share.
//! - [`VerdictCache`], [`KeptBaseline`]: verdicts and coverage of earlier runs that are still valid;
//!   [`names_for_later_runs`]: test names that stay stable between runs.

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
