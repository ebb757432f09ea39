//! The mutants of sources that are built here, and the lines that have changed.

use std::path::Path;

use heeler_cargo::{BuildSupervision, CargoError, read_tool_output};
use heeler_mutant::FoundMutant;
use heeler_mutant_model::{Mutant, MutantResult, MutantStatus};
use heeler_mutate::{ChangedLines, MutatedProject};

use crate::{error::MutateError, languages::GuardedBuilder};

/// A project and its mutants.
pub(crate) struct FoundProject {
    pub(crate) builder: Box<dyn GuardedBuilder>,
    pub(crate) mutated: MutatedProject,
}

/// Which packages of a workspace are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchedPackages {
    /// Those that are tested in the directory, unless sources are named.
    Directory,
    /// All.
    Workspace,
}

impl FoundProject {
    /// Returns whether any mutant is selected.
    pub(crate) fn has_selected(&self) -> bool {
        self.mutated.sources.iter().any(|source| !source.selected.is_empty())
    }

    /// Takes mutants out of the selection.
    pub(crate) fn retain(&mut self, is_selected: impl Fn(&Mutant) -> bool) {
        for source in &mut self.mutated.sources {
            let mutants = source.source.mutants();
            source.selected.retain(|&index| is_selected(&mutants[index].mutant));
        }
    }
}

/// Asks Git for the lines that differ from a commit, new files included.
///
/// # Errors
/// Git fails.
pub fn changed_lines(reference: &str, root: &Path) -> Result<ChangedLines, MutateError> {
    let ask = |words: &[&str]| -> Result<String, CargoError> {
        let words = words.iter().map(std::ffi::OsString::from).collect();
        let output = read_tool_output("git", words, root, BuildSupervision::default())?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    };
    let failed = |source| MutateError::Diff { reference: reference.to_owned(), source };
    let diff = [
        "-c",
        "core.quotePath=false",
        "diff",
        "--relative",
        "--unified=0",
        "--no-prefix",
        "--no-color",
        "--no-ext-diff",
        "--no-renames",
        reference,
        "--",
        ".",
    ];
    let mut changed = ChangedLines::read(&ask(&diff).map_err(failed)?);
    let new = ["-c", "core.quotePath=false", "ls-files", "--others", "--exclude-standard"];
    changed.add_new_files(&ask(&new).map_err(failed)?);
    Ok(changed)
}

/// Returns what is known of a mutant that has not been tested.
pub(crate) fn untested(found: &FoundMutant) -> MutantResult {
    let status = if found.ignored.is_some() { MutantStatus::Ignored } else { MutantStatus::Pending };
    MutantResult::new(found.mutant.clone(), status, found.ignored.clone())
}
