//! Front end of the Runtime Server Protocol.

use tokio::sync::mpsc;

use super::session;
use crate::listen::{
    ClientStream, ConnectionPolicy, FrontEnd, ServingSession, SessionCommand, SessionOptions,
};
use crate::scheduler::SchedulerHandle;

/// The Runtime Server Protocol.
#[derive(Debug)]
pub(crate) struct RspFrontEnd;

impl FrontEnd for RspFrontEnd {
    fn name(&self) -> &'static str {
        "rsp"
    }

    fn connection_policy(&self) -> ConnectionPolicy {
        // The protocol has no way to share a server between clients.
        ConnectionPolicy::OneAtATime
    }

    fn serve(
        &self,
        stream: ClientStream,
        options: SessionOptions,
        scheduler: SchedulerHandle,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> ServingSession {
        Box::pin(session::RspSession::new(stream, options, scheduler, commands).serve())
    }
}
