//! Mutation testing as values: no I/O, no clock, no process. Sources in, mutants and guarded sources out.
//!
//! - [`mutant`]: mutants, where they are, and what they replace.
//! - [`result`]: what became of a mutant, and scores.

pub mod mutant;
pub mod result;

pub use mutant::{Language, Mutant, MutantId, Mutator, ParseMutantIdError, Position, Span};
pub use result::{MutantResult, MutantStatus, MutationCounts};
