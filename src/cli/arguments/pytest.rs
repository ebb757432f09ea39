//! The arguments that name tests of pytest.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Arguments that name tests of pytest.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Programs")]
pub(crate) struct PytestArguments {
    /// Run the tests that pytest collects in these directories or files (default: this directory); arguments
    /// after -- are passed to pytest; may be repeated.
    #[arg(id = "pytest", long = "pytest", value_name = "PATH", num_args = 0.., default_missing_value = ".",
          value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Python interpreter that runs pytest (default: the one of VIRTUAL_ENV, of .venv or venv in this
    /// directory or a parent, or python3); implies --pytest.
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
    pub python: Option<String>,
}
