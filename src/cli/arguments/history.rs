//! The arguments of `heeler history`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::GeneralArguments;

/// Arguments of `heeler history`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct HistoryArguments {
    #[command(subcommand)]
    pub command: HistoryCommand,
}

impl HistoryArguments {
    /// Returns the arguments common to all commands.
    pub(crate) fn general(&self) -> &GeneralArguments {
        match &self.command {
            HistoryCommand::Export { general, .. } | HistoryCommand::Import { general, .. } => general,
        }
    }
}

/// What is done with the history.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum HistoryCommand {
    /// Write the history to a file, for other machines or as a CI artifact.
    Export {
        /// File to write; an existing file is replaced.
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        general: GeneralArguments,
    },
    /// Merge exported history files into the local history; the newer entry of a test wins.
    Import {
        /// Files written by heeler history export, such as one for each partition of a run.
        #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        general: GeneralArguments,
    },
}
