//! `heeler init`: writes a `heeler.toml` with the projects found here.

use std::{io::Write as _, path::Path};

use super::{
    exit::{CliExitCode, CommandError},
    sources::{configuration_text, find_projects},
};

const FILE: &str = "heeler.toml";

/// Writes the configuration into the working directory, and prints what it contains.
///
/// # Errors
/// There is a configuration already, nothing is found, or the file can't be written.
pub(super) fn init() -> Result<CliExitCode, CommandError> {
    let failed = |source| CommandError::WriteConfig { source };
    let here = std::env::current_dir().map_err(failed)?;
    let found = find_projects(&here);
    for line in &found.unusable {
        eprintln!("skipped {line}");
    }
    if found.projects.is_empty() {
        return Err(CommandError::NothingToRun);
    }
    write_new(&here.join(FILE), &configuration_text(&found))?;
    for project in &found.projects {
        eprintln!("added   suite \"{}\": {} ({})", project.suite, project.title, project.reason);
    }
    eprintln!("wrote   {FILE}; run the tests with: heeler run");
    Ok(CliExitCode::Success)
}

/// Writes a file that must not exist, because it may hold what a user wrote.
fn write_new(path: &Path, text: &str) -> Result<(), CommandError> {
    let file = std::fs::File::options().write(true).create_new(true).open(path);
    let mut file = file.map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => CommandError::ConfigExists,
        _ => CommandError::WriteConfig { source },
    })?;
    file.write_all(text.as_bytes()).map_err(|source| CommandError::WriteConfig { source })
}
