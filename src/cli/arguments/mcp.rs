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
    /// Run an MCP server with its mcp.test.* tools hidden, for production.
    ///
    /// The test tools are not listed and can't be called; all other messages pass unchanged. Exits with the
    /// server's exit code. For a server over HTTP, give --port and the server's URL.
    #[command(
        override_usage = "heeler mcp filter -- <COMMAND>...\n       heeler mcp filter --port <N> <URL>"
    )]
    Filter {
        /// Listen on this port of 127.0.0.1 and forward to the server at URL; with port 0, a free port is
        /// chosen and printed.
        #[arg(long, value_name = "N", requires = "url", conflicts_with = "command")]
        port: Option<u16>,
        /// Address of a server on this machine, such as http://127.0.0.1:3000/mcp.
        #[arg(value_name = "URL", requires = "port", value_parser = LocalUrl::parse, value_hint = ValueHint::Url)]
        url: Option<LocalUrl>,
        /// Command that starts a server on standard input and output.
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
