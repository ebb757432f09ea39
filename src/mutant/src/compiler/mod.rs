//! Errors of compilers, and the mutants that caused them.
//!
//! - `error`: errors with their places.
//! - [`rustc`], [`gcc`], [`gnu`]: how compilers write them.
//! - `constant`: functions that the compiler must be able to run.
//! - [`blame`]: the mutants behind errors. A mutant is blamed only if an error points at it.

mod blame;
mod constant;
mod error;
pub mod gcc;
pub mod gnu;
pub mod rustc;

pub use blame::{Blame, CompiledSource, MutantKey, UnexplainedError, blame};
pub use constant::FunctionKey;
pub use error::{CompilerError, ErrorPlace, ErrorSpan};
