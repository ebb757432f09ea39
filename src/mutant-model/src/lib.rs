//! Mutants and results as plain values: no parser, no I/O, no clock.
//!
//! - `mutant`: mutants, their positions, and their replacements.
//! - `mutant_ids`: ids that stay the same when lines move.
//! - `result`: results of mutants, and the mutation score.
//! - `foreign`: mutants found by other tools.
//! - `line_index`: line and column positions.

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
