//! The mutants that the arguments select.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_mutant::{FoundMutant, MutantResult, MutantStatus};
use heeler_mutate::{
    CargoProject, CargoProjectError, ChangedLines, MutatedProject, SourceSelection, find_c_sources,
    find_mutated_sources, find_python_sources,
};
use heeler_report::{
    ReportError,
    mutation::{MutationReport, ScoreBounds, write_elements},
};

use super::{
    command_build::{BuiltTests, CommandProject},
    error::MutateError,
    pytest_build::PytestProject,
};
use crate::cli::{
    arguments::MutateArguments,
    cargo::{
        BuildSupervision, CargoError, ignored_files, read_cargo_metadata, read_rustc_configuration,
        read_tool_output,
    },
};

/// A workspace and its mutants.
pub(super) struct FoundProject {
    pub(super) tool: BuildTool,
    pub(super) mutated: MutatedProject,
    /// The directory of this process.
    pub(super) directory: PathBuf,
    /// Whether the arguments name sources, and not the packages of the directory.
    pub(super) has_named_sources: bool,
}

/// What builds a project.
pub(super) enum BuildTool {
    Cargo(Box<CargoProject>),
    /// A command of the user.
    Command(CommandProject),
    /// Nothing is built: an interpreter runs the sources.
    Python(PytestProject),
}

/// Finds the selected mutants.
///
/// # Errors
/// There is no package, or the arguments select none of its sources.
pub(super) fn find(arguments: &MutateArguments) -> Result<FoundProject, MutateError> {
    let directory = std::env::current_dir().map_err(MutateError::Directory)?;
    let selection = SourceSelection::read(&arguments.sources, &directory).map_err(MutateError::Selection)?;
    let python = arguments.pytest_project().or_else(|| PytestProject::of_directory(&directory));
    let (tool, mut mutated) = match (arguments.command_project(), python) {
        (Some(project), _) => {
            if !arguments.is_list && project.tests == BuiltTests::Programs(Vec::new()) {
                return Err(MutateError::NoTests);
            }
            let mutated = find_c_sources(&directory, &selection).map_err(MutateError::Source)?;
            (BuildTool::Command(project), mutated)
        }
        (None, Some(project)) => {
            let mutated = find_python(&directory, &selection)?;
            (BuildTool::Python(project), mutated)
        }
        (None, None) => {
            let metadata = read_cargo_metadata(&directory).map_err(MutateError::Cargo)?;
            let cfg = read_rustc_configuration(&directory).map_err(MutateError::Cargo)?;
            let cargo =
                read_project(&metadata, &cfg, &directory, &selection).map_err(MutateError::Project)?;
            let mutated = find_mutated_sources(&cargo, &selection).map_err(MutateError::Source)?;
            (BuildTool::Cargo(Box::new(cargo)), mutated)
        }
    };
    if let Some(word) = mutated.unmatched.first() {
        return Err(MutateError::Unmatched { word: word.clone() });
    }
    let changed = arguments.in_diff.as_deref().map(|reference| changed_lines(reference, &mutated.root));
    let changed = changed.transpose()?;
    for source in &mut mutated.sources {
        let mutants = source.source.mutants();
        source.selected.retain(|&index| {
            let mutant = &mutants[index].mutant;
            arguments.shard.is_none_or(|shard| shard.contains(mutant.id))
                && changed.as_ref().is_none_or(|changed| changed.touch(mutant))
        });
    }
    let has_named_sources = !selection.is_everything();
    Ok(FoundProject { tool, mutated, directory, has_named_sources })
}

/// Finds all mutants of the workspace around a directory.
///
/// # Errors
/// There is no package, or a source can't be read.
pub(super) fn find_in(directory: &Path) -> Result<FoundProject, MutateError> {
    if let Some(project) = PytestProject::of_directory(directory) {
        let mutated = find_python(directory, &SourceSelection::default())?;
        let (tool, directory) = (BuildTool::Python(project), directory.to_owned());
        return Ok(FoundProject { tool, mutated, directory, has_named_sources: false });
    }
    let metadata = read_cargo_metadata(directory).map_err(MutateError::Cargo)?;
    let cfg = read_rustc_configuration(directory).map_err(MutateError::Cargo)?;
    let cargo = CargoProject::read_workspace(&metadata, &cfg).map_err(MutateError::Project)?;
    let mutated = find_mutated_sources(&cargo, &SourceSelection::default()).map_err(MutateError::Source)?;
    let tool = BuildTool::Cargo(Box::new(cargo));
    Ok(FoundProject { tool, mutated, directory: directory.to_owned(), has_named_sources: true })
}

/// Returns the root of the workspace around a directory.
///
/// # Errors
/// There is no package.
pub(super) fn workspace_root(directory: &Path) -> Result<PathBuf, MutateError> {
    if PytestProject::of_directory(directory).is_some() {
        return Ok(directory.to_owned());
    }
    let metadata = read_cargo_metadata(directory).map_err(MutateError::Cargo)?;
    let cargo = CargoProject::read_workspace(&metadata, "").map_err(MutateError::Project)?;
    Ok(cargo.root().to_owned())
}

fn find_python(directory: &Path, selection: &SourceSelection) -> Result<MutatedProject, MutateError> {
    let ignored = ignored_files(directory).map_err(MutateError::Cargo)?;
    find_python_sources(directory, selection, &ignored).map_err(MutateError::Source)
}

fn read_project(
    metadata: &str,
    cfg: &str,
    directory: &Path,
    selection: &SourceSelection,
) -> Result<CargoProject, CargoProjectError> {
    if selection.is_everything() {
        CargoProject::read(metadata, cfg, directory)
    } else {
        CargoProject::read_workspace(metadata, cfg)
    }
}

/// Asks Git for the lines that differ from a commit, new files included.
fn changed_lines(reference: &str, root: &Path) -> Result<ChangedLines, MutateError> {
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

/// Returns the texts of the sources of a project, by path.
pub(super) fn texts_of(project: &MutatedProject) -> BTreeMap<Arc<str>, String> {
    let text = |found: &heeler_mutate::ProjectSource| {
        let file = found.source.file();
        (Arc::from(file.path.as_ref()), file.text.to_string())
    };
    project.sources.iter().map(text).collect()
}

/// Returns what is known of a mutant that has not been tested.
pub(super) fn untested(found: &FoundMutant) -> MutantResult {
    let status = if found.ignored.is_some() { MutantStatus::Ignored } else { MutantStatus::Pending };
    let reason = found.ignored.as_ref().map(ToString::to_string);
    MutantResult::new(found.mutant.clone(), status, reason)
}

/// Returns the mutants as a report.
///
/// # Errors
/// They can't be rendered.
pub(super) fn json(project: &MutatedProject) -> Result<String, ReportError> {
    let results: Vec<MutantResult> =
        project.sources.iter().flat_map(|source| source.mutants().map(untested)).collect();
    let report = MutationReport {
        results: &results,
        sources: &texts_of(project),
        directory: project.root.as_path(),
        bounds: ScoreBounds::default(),
        tests: &BTreeMap::new(),
        phases: None,
    };
    let mut text = Vec::new();
    write_elements(&report, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
