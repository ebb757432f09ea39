//! The arguments that name tests of pytest.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Arguments that name tests of pytest.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Programs")]
pub(crate) struct PytestArguments {
    /// Run the tests that pytest collects in directories or files, by default in this directory; may be
    /// repeated; arguments behind -- are pytest's.
    #[arg(id = "pytest", long = "pytest", value_name = "PATH", num_args = 0.., default_missing_value = ".",
          value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Python interpreter that runs pytest, instead of that of VIRTUAL_ENV, or python3.
    #[arg(long, value_name = "PROGRAM", requires = "pytest", value_hint = ValueHint::CommandName)]
    pub python: Option<String>,
}
