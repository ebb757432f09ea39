//! `heeler history`: exports the history of earlier runs to a file for other machines, and imports such
//! files.

use std::path::Path;

use super::{
    arguments::{HistoryArguments, HistoryCommand},
    exit::{CliExitCode, CommandError},
};
use heeler_config::ResolvedSettings;
use heeler_run_store::history::{FILE_NAME, HistoryStore};

pub(super) fn history(arguments: &HistoryArguments) -> Result<CliExitCode, CommandError> {
    let general = arguments.general();
    let config = super::configuration::load_config(general.config_file.as_deref())?;
    let settings =
        ResolvedSettings::resolve(&config, general.command_line()).map_err(CommandError::Profile)?;
    let own = settings.state_dir.join(FILE_NAME);
    match &arguments.command {
        HistoryCommand::Export { file, .. } => export(&own, file),
        HistoryCommand::Import { files, .. } => import(&own, files),
    }
}

fn export(own: &Path, file: &Path) -> Result<CliExitCode, CommandError> {
    if !own.exists() {
        return Err(CommandError::NothingToExport { path: own.to_owned() });
    }
    let history = HistoryStore::open(own).map_err(CommandError::History)?;
    let tests = history.export(file).map_err(CommandError::Export)?;
    eprintln!("heeler: wrote the history of {} to {}", count_of_tests(tests), file.display());
    Ok(CliExitCode::Success)
}

fn import(own: &Path, files: &[std::path::PathBuf]) -> Result<CliExitCode, CommandError> {
    let mut history = HistoryStore::open(own).map_err(CommandError::History)?;
    for file in files {
        // Check here, because SQLite's error does not say why the file can't be opened.
        std::fs::metadata(file)
            .map_err(|source| CommandError::NoImportedHistory { path: file.clone(), source })?;
        let (tests, taken) = history.import(file).map_err(CommandError::History)?;
        eprintln!(
            "heeler: imported {taken} of {} from {} (only tests that are new or newer there)",
            count_of_tests(tests),
            file.display()
        );
    }
    Ok(CliExitCode::Success)
}

fn count_of_tests(tests: u64) -> String {
    if tests == 1 { "1 test".to_owned() } else { format!("{tests} tests") }
}
