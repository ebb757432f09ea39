//! The argument that names suites of heeler.toml.

use clap::Args;

/// Argument that names suites of heeler.toml.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Programs")]
pub(crate) struct SuiteArguments {
    /// Build and run only this suite of heeler.toml; may be repeated.
    #[arg(long = "suite", value_name = "NAME")]
    pub names: Vec<String>,
}
