//! Reports of mutation testing. They are beside the registry of report formats, whose reports are written
//! from the results of tests: these are written from mutants, and need their sources.
//!
//! - `content`: what a report is written from, and the short texts about a mutant.
//! - `uncovered`: mutants that no test reaches, by function.
//! - `elements`: the mutation testing report schema, which the viewers of other tools read.
//! - `page`: a page of HTML: sources with their mutants in place, survivors first.
//! - `sarif`: survivors for code scanning.
//! - `annotations`: survivors, and code that no test reaches, as annotations of GitHub Actions.

mod annotations;
mod content;
mod elements;
mod page;
mod sarif;
#[cfg(test)]
mod tests;
mod uncovered;

pub use annotations::mutant_annotations;
pub use content::{MutationPhases, MutationReport, ScoreBounds, TestPlace, change_text, survival_text};
pub use elements::{tested_mutant, write_elements};
pub use page::write_page;
pub use sarif::write_sarif;
pub use uncovered::{UncoveredFunction, uncovered_functions};
