//! The arguments of `heeler mcp`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueHint};

/// Arguments of `heeler mcp`.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct McpArguments {
    #[command(subcommand)]
    pub command: McpCommand,
}

/// Commands around servers of the Model Context Protocol.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum McpCommand {
    /// Run a server for production, without its mcp.test.* tools.
    ///
    /// They are neither listed nor called, everything else passes unchanged. Exits with the server's exit
    /// code.
    Filter {
        /// Command of the server, which speaks on standard input and output.
        #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
        command: Vec<OsString>,
    },
}
