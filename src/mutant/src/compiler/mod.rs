//! Errors of compilers, and the mutants that caused them.
//!
//! - [`error`]: errors with their places.
//! - [`rustc`], [`gcc`], [`gnu`]: how compilers write them.
//! - [`blame`]: the mutants behind errors. A mutant is blamed only if an error points at it.

mod blame;
mod error;
pub mod gcc;
pub mod gnu;
pub mod rustc;

pub use blame::{Blame, CompiledSource, MutantKey, UnexplainedError, blame};
pub use error::{CompilerError, ErrorPlace, ErrorSpan};
