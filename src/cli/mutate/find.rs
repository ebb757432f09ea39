//! The mutants of sources that are built here, by Cargo or by a command of the user.

use std::path::{Path, PathBuf};

use heeler_mutant::FoundMutant;
use heeler_mutant_model::{Mutant, MutantResult, MutantStatus};
use heeler_mutate::{
    CargoProject, ChangedLines, MutatedProject, SourceSelection, find_c_sources, find_mutated_sources,
    find_python_sources,
};

use super::{
    cargo_options::CargoOptions, command_build::CommandProject, error::MutateError,
    pytest_build::PytestProject,
};
use heeler_cargo::{
    BuildSupervision, CargoError, ignored_files, read_cargo_metadata, read_rustc_configuration,
    read_tool_output,
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
    Cargo(Box<CargoProject>, CargoOptions),
    /// A command of the user.
    Command(CommandProject),
    /// Nothing is built: an interpreter runs the sources.
    Python(PytestProject),
}

/// How the user says that a project is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum NamedBuild {
    Command(CommandProject),
    /// Nothing is built, and pytest runs the tests.
    Pytest(PytestProject),
}

/// Which packages of a workspace are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchedPackages {
    /// Those that are tested in the directory, unless sources are named.
    Directory,
    /// All.
    Workspace,
}

impl FoundProject {
    /// Returns whether any mutant is selected.
    pub(super) fn has_selected(&self) -> bool {
        self.mutated.sources.iter().any(|source| !source.selected.is_empty())
    }

    /// Takes mutants out of the selection.
    pub(super) fn retain(&mut self, is_selected: impl Fn(&Mutant) -> bool) {
        for source in &mut self.mutated.sources {
            let mutants = source.source.mutants();
            source.selected.retain(|&index| is_selected(&mutants[index].mutant));
        }
    }
}

/// Returns whether sources of a directory are built here: by a command of the user, by Cargo, or not at all.
pub(super) fn has_build_tool(named: Option<&NamedBuild>, directory: &Path) -> bool {
    named.is_some()
        || python_of(directory).is_some()
        || directory.ancestors().any(|dir| dir.join("Cargo.toml").is_file())
}

/// Finds the selected mutants of the project around a directory that a tool builds.
///
/// # Errors
/// There is no package, or a source can't be read.
pub(super) fn find_built_sources(
    named: Option<NamedBuild>,
    options: CargoOptions,
    directory: PathBuf,
    selection: &SourceSelection,
    packages: SearchedPackages,
) -> Result<FoundProject, MutateError> {
    let has_named_sources = !selection.is_everything() || packages == SearchedPackages::Workspace;
    let (tool, mutated) = match named.or_else(|| python_of(&directory)) {
        Some(NamedBuild::Pytest(project)) => {
            let mutated = find_python(&directory, selection)?;
            (BuildTool::Python(project), mutated)
        }
        Some(NamedBuild::Command(project)) => {
            let mutated = find_c_sources(&directory, selection).map_err(MutateError::Source)?;
            (BuildTool::Command(project), mutated)
        }
        None => {
            let metadata = read_cargo_metadata(&directory).map_err(MutateError::Cargo)?;
            let cfg = read_rustc_configuration(&directory).map_err(MutateError::Cargo)?;
            let around = (!has_named_sources).then_some(&*directory);
            let CargoOptions { packages, features, .. } = &options;
            let cargo = CargoProject::read_selected(&metadata, &cfg, around, packages, features);
            let cargo = cargo.map_err(MutateError::Project)?;
            let mutated = find_mutated_sources(&cargo, selection).map_err(MutateError::Source)?;
            (BuildTool::Cargo(Box::new(cargo), options), mutated)
        }
    };
    Ok(FoundProject { tool, mutated, directory, has_named_sources })
}

fn python_of(directory: &Path) -> Option<NamedBuild> {
    PytestProject::of_directory(directory).map(NamedBuild::Pytest)
}

/// Returns the root of the project around a directory that a tool builds.
///
/// # Errors
/// There is no package.
pub(super) fn built_root(named: Option<&NamedBuild>, directory: &Path) -> Result<PathBuf, MutateError> {
    if named.is_some() || python_of(directory).is_some() {
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

/// Asks Git for the lines that differ from a commit, new files included.
pub(super) fn changed_lines(reference: &str, root: &Path) -> Result<ChangedLines, MutateError> {
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
pub(super) fn untested(found: &FoundMutant) -> MutantResult {
    let status = if found.ignored.is_some() { MutantStatus::Ignored } else { MutantStatus::Pending };
    MutantResult::new(found.mutant.clone(), status, found.ignored.clone())
}
