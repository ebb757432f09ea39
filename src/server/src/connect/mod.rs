//! The front end of Connect's conformance suite: between the suite, which writes cases and judges their
//! answers, and many processes of the client under test. To the suite it is one client that answers every
//! case exactly once, in any order.
//!
//! - `session`: the connection to the suite, and the runs.
//! - `cases`: which cases wait, run and are answered. Pure.
//! - `durations`: how long cases are expected to take. Pure.
//! - `listing`: the cases as tests, and listing them without a run.
//! - `answer`: the answer of a case that its client has not answered.

mod answer;
mod cases;
mod durations;
mod listing;
mod session;

use heeler_core::{TestResult, WorkerId};
use tokio::sync::mpsc;

use crate::listen::{ClientStream, FrontEnd, ServingSession, SessionCommand, SessionOptions};
use crate::scheduler::SchedulerHandle;

pub use listing::{ListCasesError, case_catalogue, list_cases};

/// The name of the adapter that runs clients under test.
pub const FRAMEWORK: &str = "connect";

/// The front end of the conformance suite.
#[derive(Debug, Clone, Copy)]
pub struct ConnectFrontEnd;

/// What an observer of a session is sent.
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
