//! Front end of the MSTest Runner Protocol.

use tokio::sync::mpsc;

use super::session;
use crate::listen::{ClientStream, FrontEnd, ServingSession, SessionCommand, SessionOptions};
use crate::scheduler::SchedulerHandle;

/// The MSTest Runner Protocol.
#[derive(Debug)]
pub struct MtpFrontEnd;

impl FrontEnd for MtpFrontEnd {
    fn name(&self) -> &'static str {
        "mtp"
    }

    fn serve(
        &self,
        stream: ClientStream,
        options: SessionOptions,
        scheduler: SchedulerHandle,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> ServingSession {
        Box::pin(session::ServerSession::new(stream, options, scheduler, commands).serve())
    }
}
