//! The front end of Connect's conformance suite: between the suite, which writes cases and judges their
//! answers, and many processes of the client under test. To the suite it is one client that answers every
//! case exactly once, in any order.
//!
//! - `session`: the connection to the suite, and the runs.
//! - `cases`: which cases wait, run and are answered. Pure.
//! - `durations`: how long cases are expected to take. Pure.
//! - `answer`: the answer of a case that its client has not answered.

mod answer;
mod cases;
mod durations;
mod session;

use tokio::sync::mpsc;

use crate::listen::{ClientStream, FrontEnd, ServingSession, SessionCommand, SessionOptions};
use crate::scheduler::SchedulerHandle;

/// The name of the adapter that runs clients under test.
pub const FRAMEWORK: &str = "connect";

/// The front end of the conformance suite.
#[derive(Debug, Clone, Copy)]
pub struct ConnectFrontEnd;

impl FrontEnd for ConnectFrontEnd {
    fn name(&self) -> &'static str {
        "connect"
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
