//! Reports of mutation testing. Not part of the registry of report formats, because those formats are written
//! from test results.
//!
//! - `content`: input of a report, and short texts about a mutant.
//! - `uncovered`: mutants that no test reaches, by function.
//! - `elements`: the mutation testing report schema, which other tools' viewers read.
//! - `page`: an HTML page: sources with their mutants in place, survivors first.
//! - `sarif`: survivors for code scanning.
//! - `annotations`: survivors and uncovered code as annotations of GitHub Actions.

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
