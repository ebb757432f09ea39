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
    /// Write the history into a file, for other machines or as an artifact of a CI job.
    Export {
        /// File; an existing one is replaced.
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        general: GeneralArguments,
    },
    /// Take over what files of heeler history export have, where it is newer than the history here.
    Import {
        /// Files, such as those of all partitions of a run.
        #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        general: GeneralArguments,
    },
}
