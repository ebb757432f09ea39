//! The arguments of `heeler connect`.

use clap::{Args, Subcommand};

use super::{GeneralArguments, convert};
use heeler_config::{JobCount, MemoryLimit, TimeLimit};

/// Arguments of `heeler connect`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ConnectArguments {
    #[command(subcommand)]
    pub command: ConnectCommand,
}

impl ConnectArguments {
    /// Returns the arguments common to all commands.
    pub(crate) fn general(&self) -> &GeneralArguments {
        match &self.command {
            ConnectCommand::Relay(client) => &client.general,
        }
    }
}

/// What is done for a client under test.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum ConnectCommand {
    /// Stand between connectconformance and many processes of a client under test.
    ///
    /// It is started as the client: connectconformance --mode client -- heeler connect relay -- CLIENT. A
    /// process that dies, hangs or writes garbage costs its one case.
    Relay(Box<ClientArguments>),
}

/// The client under test, and how it is run.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ClientArguments {
    /// Number of processes of the client at the same time, or num-cpus. Without it 16: cases mostly wait.
    #[arg(short, long, value_name = "N", value_parser = convert::jobs)]
    pub jobs: Option<JobCount>,
    /// Time limit of a case. Without it 15s, because connectconformance gives up when nothing is answered
    /// for 20 s.
    #[arg(long, value_name = "TIME", value_parser = convert::time_limit)]
    pub timeout: Option<TimeLimit>,
    /// Run each case in a process of its own.
    #[arg(long = "isolate")]
    pub is_isolated: bool,
    /// Memory limit of a process of the client and all its descendants, such as 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = convert::memory_limit)]
    pub max_memory: Option<MemoryLimit>,
    #[command(flatten)]
    pub general: GeneralArguments,
    /// The client under test, with its arguments.
    #[arg(last = true, required = true, value_name = "CLIENT")]
    pub command: Vec<String>,
}
