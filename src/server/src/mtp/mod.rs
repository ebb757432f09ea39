//! The front end of the MSTest Runner Protocol.
//!
//! - `session`: one client, from the first byte to the last; `session/dispatch`: its messages.
//! - `ending`: the phases of a session's end.
//! - `requests`: the requests in progress of a session, and the events of their runs.
//! - `debugger`: requests to the client's debugger.
//! - `metrics`: metrics of a run, for telemetry.
//! - `initialize`, `discover`, `run`, `params`: one file for each request, and their parameters.

mod debugger;
mod discover;
mod ending;
mod initialize;
mod metrics;
mod params;
mod requests;
mod run;
mod session;

use tokio::sync::mpsc;

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
        Box::pin(session::ServerSession::new(stream, options, scheduler).serve(commands))
    }
}
