//! Mutation testing as values: no I/O, no clock, no process. Sources in, mutants and guarded sources out.
//!
//! - [`mutant`]: mutants, where they are, and what they replace.
//! - [`result`]: what became of a mutant, and scores.
//! - [`Configuration`]: what `#[cfg]` is decided by.
//! - [`MutatedSource`]: a source with its mutants, and the guarded source in which each stands beside the
//!   original.
//! - [`ForeignSource`]: a source whose mutants another tool has found.
//! - [`compiler`]: errors of compilers; [`blame`](compiler::blame): the mutants that caused them.
//! - [`Rollback`]: which mutants are withdrawn until the rest compiles.

mod cfg;
pub mod compiler;
mod conditional;
mod emit;
mod foreign;
mod guard;
mod line_index;
pub mod mutant;
pub mod result;
mod rollback;
mod source;
mod syntax;
mod walk;

pub use cfg::Configuration;
pub use emit::{EmittedArm, EmittedSource};
pub use foreign::{ForeignMutant, ForeignSource, UnknownPlaceError};
pub use guard::{Function, ModuleDeclaration};
pub use mutant::{
    Language, Mutant, MutantId, Mutator, OperatorLevel, ParseMutantIdError, Position, SourceText,
};
pub use result::{MutantResult, MutantStatus, MutationCounts, TestSet};
pub use rollback::{Rollback, RollbackStep};
pub use source::{FoundMutant, MutatedSource, SourceFile};
