//! Survivors and uncovered code as annotations of GitHub Actions.

use std::path::Path;

use heeler_mutant_model::{Mutant, MutantResult, MutantStatus};

use super::{
    content::{change_text, survival_text},
    uncovered::{UncoveredFunction, uncovered_functions},
};
use crate::workflow_command::{escape_message, escape_property};

/// Maximum number of annotations that GitHub stores for a job.
pub(crate) const MAX_MUTANT_ANNOTATIONS: usize = 50;

/// Returns workflow commands: one for each covered survivor, in the order of the results, one for each
/// function with uncovered mutants, and one for the rest beyond the limit. Mutant paths are relative to
/// `directory`; `root` is the root of the repository.
#[must_use]
pub fn mutant_annotations(results: &[MutantResult], directory: &Path, root: &Path) -> Vec<String> {
    let survivors: Vec<_> = results.iter().filter(|result| result.status == MutantStatus::Survived).collect();
    let uncovered = uncovered_functions(results);
    let all = survivors.len() + uncovered.len();
    let most = if all > MAX_MUTANT_ANNOTATIONS { MAX_MUTANT_ANNOTATIONS - 1 } else { all };
    let commands = survivors.iter().map(|survivor| of_survivor(survivor, directory, root));
    let commands = commands.chain(uncovered.iter().map(|function| of_uncovered(function, directory, root)));
    let mut commands: Vec<_> = commands.take(most).collect();
    if all > most {
        let more_survivors = survivors.len().saturating_sub(most);
        let shown_functions = most.saturating_sub(survivors.len());
        let more_functions = uncovered.len() - shown_functions;
        let parts = [
            (more_survivors, "mutant survived", "mutants survived"),
            (more_functions, "function has uncovered mutants", "functions have uncovered mutants"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| format!("{count} more {}", if *count == 1 { one } else { many }))
            .collect();
        commands.push(format!("::warning title=Survived mutants::{}", parts.join("; ")));
    }
    commands
}

/// Returns the path of a mutant's source relative to the repository.
fn path_in(mutant: &Mutant, directory: &Path, root: &Path) -> String {
    let path = directory.join(&**mutant.path());
    escape_property(&path.strip_prefix(root).unwrap_or(&path).display().to_string())
}

fn of_uncovered(function: &UncoveredFunction<'_>, directory: &Path, root: &Path) -> String {
    let (first, last) = function.line_range();
    let path = path_in(function.first, directory, root);
    let item = function.item_text();
    let mutants =
        if function.mutants == 1 { "1 mutant".to_owned() } else { format!("{} mutants", function.mutants) };
    let lines = if first == last { "line" } else { "lines" };
    let message = format!("no test reaches {mutants} of {item}, in {lines} {}", function.lines_text());
    let title = escape_property("Not covered by tests");
    format!("::warning file={path},line={first},endLine={last},title={title}::{}", escape_message(&message))
}

fn of_survivor(survivor: &MutantResult, directory: &Path, root: &Path) -> String {
    let mutant = &survivor.mutant;
    let path = path_in(mutant, directory, root);
    let (start, end) = (mutant.start(), mutant.end());
    let mut properties = vec![format!("file={path}"), format!("line={}", start.line)];
    // GitHub rejects columns for a range of several lines.
    if start.line == end.line {
        properties.push(format!("col={},endColumn={}", start.column, end.column));
    } else {
        properties.push(format!("endLine={}", end.line));
    }
    properties.push(format!("title={}", escape_property(&format!("Survived: {}", mutant.mutator))));
    let message = format!("{}: {}", change_text(mutant), survival_text(survivor));
    format!("::warning {}::{}", properties.join(","), escape_message(&message))
}
