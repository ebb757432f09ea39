//! Front end of the Model Context Protocol.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::sync::mpsc;

use super::{http, session};
use crate::listen::{
    Announcement, ClientServer, ClientStream, DefaultTransport, FrontEnd, PortService, ServingSession,
    SessionCommand, SessionOptions,
};
use crate::scheduler::SchedulerHandle;

/// The Model Context Protocol.
#[derive(Debug)]
pub(crate) struct McpFrontEnd;

impl FrontEnd for McpFrontEnd {
    fn name(&self) -> &'static str {
        "mcp"
    }

    /// Standard streams, because agents start their servers.
    fn default_transport(&self) -> DefaultTransport {
        DefaultTransport::StandardStreams
    }

    /// On a port, clients speak HTTP and share a session.
    fn port_service(
        &self,
        server: &ClientServer,
        bound: SocketAddr,
    ) -> io::Result<Option<Arc<dyn PortService>>> {
        http::port_url(bound)?;
        Ok(Some(http::port_service(server)))
    }

    fn announcement(&self, bound: SocketAddr) -> Announcement {
        let url = http::port_url(bound).map(|url| url.to_string());
        Announcement::Diagnostic(url.unwrap_or_else(|_| bound.to_string()))
    }

    /// `list_tests` and `run_tests` find programs by themselves, because agents give up on a server that
    /// answers `initialize` slowly.
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
