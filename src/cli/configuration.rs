//! Loads the configuration for the directory where a command is called.

use std::path::Path;

use heeler_config::Config;

use super::exit::CommandError;

/// Reads the given configuration file, otherwise the nearest one. Returns the defaults if there is none.
pub(super) fn load_config(file: Option<&Path>) -> Result<Config, CommandError> {
    Config::load_nearest(file).map_err(CommandError::Config)
}
