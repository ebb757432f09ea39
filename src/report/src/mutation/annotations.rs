//! Survivors as annotations of GitHub Actions.

use std::path::Path;

use heeler_mutant::{MutantResult, MutantStatus};

use super::content::{change_text, survival_text};
use crate::workflow_command::{escape_message, escape_property};

/// GitHub stores at most this many annotations for a job.
pub const MAX_SURVIVOR_ANNOTATIONS: usize = 50;

/// Returns a workflow command for each mutant that tests ran through and did not notice, in the order of the
/// results, and one for those that are too many. `directory` is that of the mutants' paths, `root` that of
/// the repository.
#[must_use]
pub fn survivor_annotations(results: &[MutantResult], directory: &Path, root: &Path) -> Vec<String> {
    let mut survivors = results.iter().filter(|result| result.status == MutantStatus::Survived);
    let shown = survivors.by_ref().take(MAX_SURVIVOR_ANNOTATIONS - 1);
    let mut commands: Vec<_> = shown.map(|survivor| annotation(survivor, directory, root)).collect();
    match (survivors.next(), survivors.count()) {
        (None, _) => {}
        (Some(last), 0) => commands.push(annotation(last, directory, root)),
        (Some(_), others) => {
            commands
                .push(format!("::warning title=Survived mutants::{} further mutants survived", others + 1));
        }
    }
    commands
}

fn annotation(survivor: &MutantResult, directory: &Path, root: &Path) -> String {
    let mutant = &survivor.mutant;
    let path = directory.join(&**mutant.path());
    let path = path.strip_prefix(root).unwrap_or(&path).display().to_string();
    let (start, end) = (mutant.start(), mutant.end());
    let mut properties = vec![format!("file={}", escape_property(&path)), format!("line={}", start.line)];
    // Columns of a place of several lines are refused.
    if start.line == end.line {
        properties.push(format!("col={},endColumn={}", start.column, end.column));
    } else {
        properties.push(format!("endLine={}", end.line));
    }
    properties.push(format!("title={}", escape_property(&format!("Survived: {}", mutant.mutator))));
    let message = format!("{}: {}", change_text(mutant), survival_text(survivor));
    format!("::warning {}::{}", properties.join(","), escape_message(&message))
}
