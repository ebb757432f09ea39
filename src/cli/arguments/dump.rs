//! The arguments of `heeler dump`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Arguments of `heeler dump`, which prints the crash reason, the crashing thread and the stacks of all
/// threads.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct DumpArguments {
    /// The minidump file.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}
