//! The front end of the Runtime Server Protocol: each suite is a server that its client starts and stops, a
//! run of a suite is a job and a process, output and states are notifications.
//!
//! - `session`: one client, from the first byte to the last; `session/dispatch`: its messages;
//!   `session/runs`: the runs of its suites.
//! - `suites`: the suites as servers, and requests about them; pure.
//! - `suite_run`: the notifications of one run; pure.
//! - `progress`: how often progress is reported; pure.
//! - `output`: the texts about tests and runs; pure.
//! - `launch`: the attributes of a start; pure.
//! - `selection`: the tests of a start.

mod launch;
mod output;
mod progress;
mod selection;
mod session;
mod suite_run;
mod suites;

use tokio::sync::mpsc;

use crate::listen::{
    ClientStream, ConnectionPolicy, FrontEnd, ServingSession, SessionCommand, SessionOptions,
};
use crate::scheduler::SchedulerHandle;

/// The Runtime Server Protocol.
#[derive(Debug)]
pub struct RspFrontEnd;

impl FrontEnd for RspFrontEnd {
    fn name(&self) -> &'static str {
        "rsp"
    }

    fn connection_policy(&self) -> ConnectionPolicy {
        // The protocol has no means to share a server between tools.
        ConnectionPolicy::OneAtATime
    }

    fn serve(
        &self,
        stream: ClientStream,
        options: SessionOptions,
        scheduler: SchedulerHandle,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> ServingSession {
        Box::pin(session::RspSession::new(stream, options, scheduler).serve(commands))
    }
}
