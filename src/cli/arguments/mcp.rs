//! The arguments of `heeler mcp`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueHint};
use heeler_protocol::mcp::http::LocalUrl;

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
    /// code. A server that is reached over HTTP is served on another port instead.
    #[command(
        override_usage = "heeler mcp filter -- <COMMAND>...\n       heeler mcp filter --port <N> <URL>"
    )]
    Filter {
        /// Serve on this port of 127.0.0.1, in front of the server at URL; with port 0, a free port is chosen
        /// and printed.
        #[arg(long, value_name = "N", requires = "url", conflicts_with = "command")]
        port: Option<u16>,
        /// Address of a server on this machine, such as http://127.0.0.1:3000/mcp.
        #[arg(value_name = "URL", requires = "port", value_parser = LocalUrl::parse, value_hint = ValueHint::Url)]
        url: Option<LocalUrl>,
        /// Command of the server, which speaks on standard input and output.
        #[arg(last = true, required_unless_present = "url", conflicts_with = "url", value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
        command: Vec<OsString>,
    },
}

/// Arguments of the hidden command that reaches a server over HTTP.
#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct McpBridgeArguments {
    #[arg(value_parser = LocalUrl::parse)]
    pub url: LocalUrl,
}
