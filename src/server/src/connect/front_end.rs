//! Connect's conformance suite as a client of a front end, also with an observer.

use heeler_core::{TestResult, WorkerId};
use tokio::sync::mpsc;

use super::session;
use crate::listen::{ClientStream, FrontEnd, ServingSession, SessionCommand, SessionOptions};
use crate::scheduler::SchedulerHandle;

/// The front end of the conformance suite.
#[derive(Debug, Clone, Copy)]
pub struct ConnectFrontEnd;

/// Event for the observer of a session.
#[derive(Debug)]
pub enum CaseEvent {
    /// A process of the client has been asked the case.
    Started { name: String, worker: WorkerId },
    /// The case is answered: by the client, which is its outcome `Passed` until the suite has judged the
    /// answer, or with an error, because the client gave none.
    Ended { name: String, result: Box<TestResult> },
    /// A text for the user.
    Warning(String),
}

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
        Box::pin(session::serve(stream, options, scheduler, commands, None))
    }
}

/// Serves a suite as [`ConnectFrontEnd`] does, with an observer, which slows the session while it does not
/// take the events.
#[must_use]
pub fn serve_observed(
    stream: ClientStream,
    options: SessionOptions,
    scheduler: SchedulerHandle,
    commands: mpsc::Receiver<SessionCommand>,
    observer: mpsc::Sender<CaseEvent>,
) -> ServingSession {
    Box::pin(session::serve(stream, options, scheduler, commands, Some(observer)))
}
