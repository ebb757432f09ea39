//! Serves the connections of a port.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use heeler_http as http;
use heeler_protocol::mcp::http::LocalUrl;
use heeler_transport::accept::{StopSignal, TcpConnection};

use super::{
    endpoint::{self, McpEndpoint},
    relay::Relay,
};
use crate::listen::{ClientServer, PortFuture, PortService};

/// Returns the server's URL on a loopback port.
pub(in crate::mcp) fn port_url(bound: SocketAddr) -> io::Result<LocalUrl> {
    LocalUrl::parse(&format!("http://{bound}{}", endpoint::PATH)).map_err(|_| {
        let expected = "not a loopback address; use for example 127.0.0.1:3000";
        io::Error::new(io::ErrorKind::InvalidInput, expected)
    })
}

/// Starts the session shared by all clients of a port.
pub(in crate::mcp) fn port_service(server: &ClientServer) -> Arc<dyn PortService> {
    let (relay, session) = Relay::start(server);
    Arc::new(McpEndpoint::new(relay, session))
}

impl PortService for McpEndpoint {
    fn serve(self: Arc<Self>, connection: TcpConnection, stopped: StopSignal) -> PortFuture<'static> {
        Box::pin(http::serve_connection(connection.stream, self, stopped))
    }

    /// Unless the session is ended, it ends only with the scheduler.
    fn failed(&self) -> PortFuture<'_> {
        Box::pin(self.session().ended())
    }

    fn end(&self) -> PortFuture<'_> {
        Box::pin(self.session().end())
    }

    fn finish_limit(&self) -> Duration {
        http::FINISH_LIMIT
    }
}
