//! `heeler mutate`: finds mutants of the sources of a cargo package, and lists them.

use std::{collections::BTreeMap, io::Write as _, path::Path, sync::Arc};

use heeler_config::ResolvedSettings;
use heeler_mutant::{MutantResult, MutantStatus};
use heeler_mutate::{
    CargoProject, CargoProjectError, MutatedProject, ReadSourceError, SelectionError, SourceSelection,
    find_mutated_sources,
};
use heeler_report::{
    ReportError,
    mutation::{MutationReport, ScoreBounds, write_elements},
};

use super::{
    arguments::MutateArguments,
    cargo::{CargoError, read_cargo_metadata, read_rustc_configuration},
    display::{
        OutputStream,
        mutants::{MutantFormat, render_mutants},
    },
    exit::{CliExitCode, CommandError},
    run_view::display_options,
};

/// Error while finding mutants.
#[derive(Debug, thiserror::Error)]
pub(super) enum MutateError {
    #[error("find the directory of this process")]
    Directory(#[source] std::io::Error),
    #[error(transparent)]
    Cargo(CargoError),
    #[error(transparent)]
    Project(CargoProjectError),
    #[error(transparent)]
    Selection(SelectionError),
    #[error(transparent)]
    Source(ReadSourceError),
    /// A word that names nothing is a mistake.
    #[error("find \"{word}\": no source of the workspace's libraries and programs has this path")]
    Unmatched { word: String },
    #[error("write the mutants as JSON")]
    Json(#[source] ReportError),
}

impl MutateError {
    /// Returns whether the command line is wrong, and not what it names.
    pub(super) fn is_command_line(&self) -> bool {
        matches!(self, Self::Selection(_) | Self::Unmatched { .. })
    }
}

/// Prints the mutants to standard output.
pub(super) fn mutate(arguments: &MutateArguments) -> Result<CliExitCode, CommandError> {
    let config = super::load_config(arguments.general.config_file.as_deref())?;
    let settings = ResolvedSettings::resolve(&config, arguments.general.command_line())
        .map_err(CommandError::Profile)?;
    let options = display_options(&arguments.general, &settings, OutputStream::StandardOutput);
    let project = find(arguments).map_err(CommandError::Mutate)?;
    let text = match arguments.format {
        MutantFormat::Human => render_mutants(&project, options.colour),
        MutantFormat::Json => {
            json(&project).map_err(|error| CommandError::Mutate(MutateError::Json(error)))?
        }
    };
    // A closed pipe (`heeler mutate --list | head`) is no error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    let has_mutants = project.sources.iter().any(|source| !source.selected.is_empty());
    Ok(if has_mutants { CliExitCode::Success } else { CliExitCode::ZeroTests })
}

fn find(arguments: &MutateArguments) -> Result<MutatedProject, MutateError> {
    let directory = std::env::current_dir().map_err(MutateError::Directory)?;
    let selection = SourceSelection::read(&arguments.sources, &directory).map_err(MutateError::Selection)?;
    let metadata = read_cargo_metadata(&directory).map_err(MutateError::Cargo)?;
    let cfg = read_rustc_configuration(&directory).map_err(MutateError::Cargo)?;
    let project = read_project(&metadata, &cfg, &directory, &selection).map_err(MutateError::Project)?;
    let project = find_mutated_sources(&project, &selection).map_err(MutateError::Source)?;
    match project.unmatched.first() {
        Some(word) => Err(MutateError::Unmatched { word: word.clone() }),
        None => Ok(project),
    }
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

fn json(project: &MutatedProject) -> Result<String, ReportError> {
    let result = |found: &heeler_mutant::FoundMutant| {
        let status = if found.ignored.is_some() { MutantStatus::Ignored } else { MutantStatus::Pending };
        let reason = found.ignored.as_ref().map(ToString::to_string);
        MutantResult::new(found.mutant.clone(), status, reason)
    };
    let results: Vec<MutantResult> =
        project.sources.iter().flat_map(|source| source.mutants().map(result)).collect();
    let source = |found: &heeler_mutate::ProjectSource| {
        let file = found.source.file();
        (Arc::from(file.path.as_ref()), file.text.to_string())
    };
    let report = MutationReport {
        results: &results,
        sources: &project.sources.iter().map(source).collect(),
        directory: project.root.as_path(),
        bounds: ScoreBounds::default(),
        tests: &BTreeMap::new(),
        phases: None,
    };
    let mut text = Vec::new();
    write_elements(&report, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
