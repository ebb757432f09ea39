//! The configuration that applies where a command is called.

use std::path::Path;

use heeler_config::{Config, ConfigError};

use super::exit::CommandError;

/// Reads the given configuration file, otherwise the nearest, otherwise returns the defaults.
pub(super) fn load_config(file: Option<&Path>) -> Result<Config, CommandError> {
    let here = || {
        std::env::current_dir().map_err(|source| {
            CommandError::Config(ConfigError::Read { path: Path::new(".").to_owned(), source })
        })
    };
    let found = match file {
        Some(file) => Some(file.to_owned()),
        None => Config::find_trusted(&here()?).map_err(CommandError::Config)?,
    };
    match found {
        Some(file) => Config::load(&file).map_err(CommandError::Config),
        None => {
            let here = here()?;
            let home = std::env::home_dir();
            let root = heeler_config::workspace_root(&here, home.as_deref());
            Ok(Config::without_file(&here).with_state_below(root.as_deref().unwrap_or(&here)))
        }
    }
}
