//! The front end of the Model Context Protocol, for agents: tools that list and run tests and read results.
//!
//! - `session`: one client, from the first line to the last; `session/dispatch`: its messages.
//! - `calls`: the calls of tools that are in progress.
//! - `selection`: the tests that a filter or an earlier run selects.
//! - `recorded`: answers about runs, from their files.
//! - `http`: clients that connect over HTTP.
//! - `self_test`: the tools that test this server.

mod calls;
mod http;
mod recorded;
mod selection;
mod self_test;
mod session;
mod tasks;

pub use http::serve_http;

use tokio::sync::mpsc;

use crate::listen::{
    ClientStream, DefaultTransport, FrontEnd, ServingSession, SessionCommand, SessionOptions, TcpTransport,
};
use crate::scheduler::SchedulerHandle;

/// The Model Context Protocol.
#[derive(Debug)]
pub struct McpFrontEnd;

impl FrontEnd for McpFrontEnd {
    fn name(&self) -> &'static str {
        "mcp"
    }

    /// An agent starts its servers.
    fn default_transport(&self) -> DefaultTransport {
        DefaultTransport::StandardStreams
    }

    fn tcp_transport(&self) -> TcpTransport {
        TcpTransport::Http
    }

    /// `list_tests` and `run_tests` do; agents give up a server that is slow to answer `initialize`.
    fn finds_programs_for_each_listing(&self) -> bool {
        true
    }

    fn serve(
        &self,
        stream: ClientStream,
        options: SessionOptions,
        scheduler: SchedulerHandle,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> ServingSession {
        Box::pin(session::serve(stream, options, scheduler, commands))
    }
}
