//! Mutation testing as values: no I/O, no clock, no process. Sources in, mutants and guarded sources out.
//!
//! - [`Configuration`]: what `#[cfg]` is decided by.
//! - [`MutatedSource`]: a source with its mutants, and the guarded source in which each stands beside the
//!   original.
//! - [`compiler`]: errors of compilers; [`blame`](compiler::blame): the mutants that caused them.
//! - [`Rollback`]: which mutants are withdrawn until the rest compiles.

mod cfg;
pub mod compiler;
mod conditional;
mod emit;
mod guard;
mod rollback;
mod source;
mod syntax;
mod walk;

pub use cfg::Configuration;
pub use emit::{EmittedArm, EmittedSource};
pub use guard::{Function, ModuleDeclaration};
pub use rollback::{Rollback, RollbackStep};
pub use source::{FoundMutant, MutatedSource, SourceFile};
