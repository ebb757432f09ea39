//! Mutation testing without I/O, clock or processes: sources in, mutants and guarded sources out.
//!
//! - [`Configuration`]: decides `#[cfg]` conditions.
//! - [`MutatedSource`]: a source with its mutants, and the guarded source that contains them all.
//! - [`compiler`]: compiler errors; [`blame`](compiler::blame): finds the mutants that caused them.
//! - [`Rollback`]: withdraws mutants until the rest compiles.

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
