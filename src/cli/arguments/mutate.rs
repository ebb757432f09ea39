//! The arguments of `heeler mutate`.

use clap::Args;

use super::GeneralArguments;
use crate::cli::display::mutants::MutantFormat;

const EXAMPLES: &str = "\
Examples:
  heeler mutate --list                      list the mutants of a cargo package
  heeler mutate --list src/parse.rs         those of a file
  heeler mutate --list src/net/ '!src/net/tls*.rs'
  heeler mutate --list src/lib.rs:10:1-80:1
  heeler mutate --list --format json        as the report schema of mutation testing tools

Suppression:
  // heeler: no-mutate                      before a statement or item, or behind code in its line
  #[mutants::skip]                          on an item";

/// Arguments of `heeler mutate`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MutateArguments {
    /// Sources of the cargo package or workspace: files, directories and globs, relative to this directory;
    /// FILE:LINE, FILE:LINE-LINE or FILE:LINE:COLUMN-LINE:COLUMN for the mutants that lie inside; a ! before
    /// one leaves it out. Without any, those of the packages that cargo test tests here.
    #[arg(value_name = "SOURCE")]
    pub sources: Vec<String>,
    /// List the mutants, and test none.
    #[arg(long = "list", required = true, help_heading = "Output")]
    pub is_list: bool,
    /// Output format: for people, or the JSON of mutation testing reports.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
    pub format: MutantFormat,
    #[command(flatten)]
    pub general: GeneralArguments,
}
