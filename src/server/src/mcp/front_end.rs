//! The entry of the Model Context Protocol among the front ends.

use tokio::sync::mpsc;

use super::session;
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
