//! Uncovered mutants by function, because a function may have hundreds of them, with the same message.

use std::{collections::BTreeMap, fmt::Write as _};

use heeler_mutant_model::{Mutant, MutantResult, MutantStatus};

/// A function with uncovered mutants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncoveredFunction<'a> {
    /// The first uncovered mutant.
    pub first: &'a Mutant,
    /// Number of uncovered mutants.
    pub mutants: usize,
    /// First lines of the mutants.
    lines: Vec<u32>,
}

impl UncoveredFunction<'_> {
    /// Returns the first line of the first and of the last mutant.
    #[must_use]
    pub(crate) fn line_range(&self) -> (u32, u32) {
        let first = self.first.start().line;
        (first, self.lines.last().copied().unwrap_or(first))
    }

    /// Returns the function's name, or a text for code outside functions.
    #[must_use]
    pub fn item_text(&self) -> &str {
        if self.first.item.is_empty() { "code outside of functions" } else { &self.first.item }
    }

    /// Returns the lines of the mutants, such as `3, 7-9`.
    #[must_use]
    pub fn lines_text(&self) -> String {
        let mut text = String::new();
        for lines in self.lines.chunk_by(|one, next| *next == one + 1) {
            let separator = if text.is_empty() { "" } else { ", " };
            // Writing to a string never fails.
            let _written = match lines {
                [first, .., last] => write!(text, "{separator}{first}-{last}"),
                [only] => write!(text, "{separator}{only}"),
                [] => Ok(()),
            };
        }
        text
    }
}

/// Returns the functions with uncovered mutants, ordered by position in the sources.
#[must_use]
pub fn uncovered_functions(results: &[MutantResult]) -> Vec<UncoveredFunction<'_>> {
    let mut functions: BTreeMap<(&str, &str), Vec<&Mutant>> = BTreeMap::new();
    for result in results.iter().filter(|result| result.status == MutantStatus::NoCoverage) {
        let mutant = &*result.mutant;
        functions.entry((mutant.path(), &mutant.item)).or_default().push(mutant);
    }
    let mut found: Vec<UncoveredFunction<'_>> = functions
        .into_values()
        .filter_map(|mutants| {
            let first = mutants.iter().copied().min_by_key(|mutant| mutant.bytes().start)?;
            let mut lines: Vec<u32> = mutants.iter().map(|mutant| mutant.start().line).collect();
            lines.sort_unstable();
            lines.dedup();
            Some(UncoveredFunction { first, mutants: mutants.len(), lines })
        })
        .collect();
    found.sort_by_key(|one| (one.first.path(), one.first.bytes().start));
    found
}
