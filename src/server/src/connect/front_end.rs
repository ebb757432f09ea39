//! Front end of Connect's conformance suite.

use tokio::sync::mpsc;

use super::session;
use crate::listen::{ClientStream, FrontEnd, ServingSession, SessionCommand, SessionOptions};
use crate::scheduler::SchedulerHandle;

/// The front end of the conformance suite.
#[derive(Debug, Clone, Copy)]
pub struct ConnectFrontEnd;

impl FrontEnd for ConnectFrontEnd {
    fn name(&self) -> &'static str {
        "connect"
    }

    fn serves_programs(&self) -> bool {
        false
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
