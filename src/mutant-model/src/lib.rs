//! Mutants and results as values, for all who name them: no parser, no I/O, no clock.
//!
//! - `mutant`: mutants, where they are, and what they replace.
//! - `mutant_ids`: ids that stay when lines move.
//! - `result`: what became of a mutant, and scores.
//! - `foreign`: sources whose mutants another tool has found.
//! - `line_index`: positions as people count them.

mod foreign;
mod line_index;
mod mutant;
mod mutant_ids;
mod result;

pub use foreign::{ForeignMutant, ForeignSource, UnknownPlaceError};
pub use line_index::LineIndex;
pub use mutant::{
    ByteRange, Change, Description, Language, Mutant, MutantId, Mutator, OperatorLevel, ParseMutantIdError,
    Position, SourceText,
};
pub use mutant_ids::MutantIds;
pub use result::{MutantResult, MutantStatus, MutationCounts, TestSet};
