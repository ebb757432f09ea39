//! Parses compiler errors and finds the mutants that caused them.
//!
//! - `error`: errors with their places.
//! - [`rustc`], [`gcc`], [`gnu`]: parsers of compiler output.
//! - `constant`: finds functions that must stay `const`.
//! - [`blame`]: finds the mutants that caused errors. A mutant is blamed only if an error points at it.

mod blame;
mod constant;
mod error;
pub mod gcc;
pub mod gnu;
pub mod rustc;

pub use blame::{Blame, CompiledSource, MutantKey, UnexplainedError, blame};
pub use constant::FunctionKey;
pub use error::{CompilerError, ErrorPlace, ErrorSpan};
