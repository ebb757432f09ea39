//! Front end of the Mutation Server Protocol.

use std::{io, net::SocketAddr, sync::Arc};

use tokio::sync::mpsc;

use super::{port::MutationPort, stream::serve_framed};
use crate::listen::{
    Announcement, ClientServer, ClientStream, FrontEnd, PortService, ServingSession, SessionCommand,
    SessionEnd, SessionOptions,
};
use crate::scheduler::SchedulerHandle;

/// The Mutation Server Protocol.
#[derive(Debug)]
pub struct MutationFrontEnd;

impl FrontEnd for MutationFrontEnd {
    fn name(&self) -> &'static str {
        "mutation"
    }

    fn serves_programs(&self) -> bool {
        false
    }

    /// One port serves all transports: a connection's first bytes select its transport.
    fn port_service(
        &self,
        server: &ClientServer,
        _bound: SocketAddr,
    ) -> io::Result<Option<Arc<dyn PortService>>> {
        let server = server.options.mutation.clone().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Some(Arc::new(MutationPort::start(server))))
    }

    fn announcement(&self, bound: SocketAddr) -> Announcement {
        Announcement::Output(format!("Server is listening on port: {}", bound.port()))
    }

    fn serve(
        &self,
        stream: ClientStream,
        options: SessionOptions,
        _scheduler: SchedulerHandle,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> ServingSession {
        Box::pin(async move {
            match options.mutation {
                Some(server) => serve_framed(stream, server, commands).await,
                None => SessionEnd::Disconnected,
            }
        })
    }
}
