//! Handles the messages of a client.

use heeler_protocol::{
    rpc::{self, RpcError, RpcMessage, code},
    rsp::{
        LaunchParams, NamedById, ServerNotification, ServerResult, StartResult, Status, StopParams, method,
        read_params,
    },
};
use serde_json::value::RawValue;

use super::{Continuation, RspSession};
use crate::{listen::SessionEnd, rsp::suites::answer_fixed, scheduler::SchedulerGone};

/// The answer to a request, and the notifications that follow it.
type Answer = (Result<ServerResult, RpcError>, Vec<ServerNotification>);

impl RspSession {
    pub(super) async fn on_message(&mut self, message: RpcMessage) -> Result<Continuation, SchedulerGone> {
        match message {
            RpcMessage::Request { id, method, params } => {
                let (result, notifications) = self.answer(&method, params.as_deref()).await?;
                self.link.output.queue(match result {
                    Ok(result) => rpc::encode_result(&id, &result),
                    Err(error) => rpc::encode_error(&id, &error),
                });
                self.queue(notifications);
                // A client that sent a shutdown as a request gets an answer before the end.
                return Ok(ending(&method).map_or(Continuation::Serve, Continuation::End));
            }
            RpcMessage::Notification { method, .. } => {
                if let Some(end) = ending(&method) {
                    return Ok(Continuation::End(end));
                }
                // Requests are answered at once, so a cancellation is always too late. Other notifications
                // are unknown.
            }
            // No requests are sent to clients.
            RpcMessage::Response { .. } => {}
        }
        Ok(Continuation::Serve)
    }

    async fn answer(&mut self, method: &str, params: Option<&RawValue>) -> Result<Answer, SchedulerGone> {
        if let Some(answer) = answer_fixed(method, params, || self.runs.handles()) {
            return Ok((answer, Vec::new()));
        }
        Ok(match method {
            method::SERVER_STATE => (
                read_params::<NamedById>(params)
                    .map(|server| ServerResult::ServerState(self.runs.state_of(&server.id))),
                Vec::new(),
            ),
            method::JOBS => (Ok(ServerResult::Jobs(self.runs.jobs())), Vec::new()),
            method::START => match read_params::<LaunchParams>(params) {
                Ok(launch) => self.start(&launch).await?,
                Err(error) => (Err(error), Vec::new()),
            },
            method::STOP => match read_params::<StopParams>(params) {
                Ok(stop) => {
                    let (status, notifications) =
                        self.runs.stop(&stop.id, stop.force.unwrap_or_default()).await?;
                    (Ok(ServerResult::Status(status)), notifications)
                }
                Err(error) => (Err(error), Vec::new()),
            },
            method::CANCEL_JOB => match read_params::<NamedById>(params) {
                Ok(job) => {
                    let (status, notifications) = self.runs.cancel_job(&job.id).await?;
                    (Ok(ServerResult::Status(status)), notifications)
                }
                Err(error) => (Err(error), Vec::new()),
            },
            method::SHUTDOWN | method::DISCONNECT => (Ok(ServerResult::Null), Vec::new()),
            _ => {
                let message = format!("the method {method:?} is not supported");
                (Err(RpcError::new(code::METHOD_NOT_FOUND, message)), Vec::new())
            }
        })
    }

    async fn start(&mut self, launch: &LaunchParams) -> Result<Answer, SchedulerGone> {
        let started = match self.link.is_ending() {
            true => Err("the server is shutting down".to_owned()),
            false => self.runs.start(launch).await?,
        };
        Ok(match started {
            Ok(notifications) => (Ok(start_result(Status::success())), notifications),
            Err(reason) => {
                // Some clients wait for a state change even after an error. A stopped suite is reported as
                // stopped again, and a running suite keeps its state.
                let state = self.runs.state_after_refusal(&launch.params.id);
                (Ok(start_result(Status::refusal(reason))), vec![ServerNotification::StateChanged(state)])
            }
        })
    }
}

fn start_result(status: Status) -> ServerResult {
    ServerResult::Start(StartResult { status, details: () })
}

/// Returns how a message ends the session; `None` if it does not.
fn ending(method: &str) -> Option<SessionEnd> {
    match method {
        method::SHUTDOWN => Some(SessionEnd::Shutdown),
        method::DISCONNECT => Some(SessionEnd::Exit),
        _ => None,
    }
}
