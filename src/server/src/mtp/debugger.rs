//! Debug runs: for each test, the client is asked to attach a debugger to the process or to launch the test
//! under one. The client's response decides how the test continues.
//!
//! ```text
//! waiting ──client/attachDebugger──► success ──► the process is handed over to the debugger
//!    │                           ├─► method not found ──► a launch is requested, now and for all later tests
//!    │                           └─► error, success: false, or no response in time ──► runs undebugged
//!    └──────client/launchDebugger──► the launched process has joined ──► it is handed over to the debugger
//!                                └─► error, success: false, or no process in time ──► runs undebugged
//! lease over, worker dead ──► $/cancelRequest
//! ```

use std::collections::BTreeMap;

use heeler_protocol::{
    control::{DebuggeeCommand, DebuggerDecision, OsText},
    mtp::{AttachDebuggerParams, CancelParams, DebuggerResult, LaunchDebuggerParams, LogLevel, method},
    rpc::{self, RequestId, RpcError, code},
};
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};

use super::requests::TestRequests;
use crate::scheduler::{ClientLogLine, DebuggeeLease, DebuggeeWaiting, SchedulerGone};

/// First id of requests sent by the server. Ids are numbers because `$/cancelRequest` accepts nothing else
/// according to the specification. They start high so that they never collide with client ids, in case a
/// client keeps both directions in one table.
const FIRST_REQUEST_ID: u64 = 1 << 30;

pub(super) struct DebuggerResponse {
    pub(super) id: RequestId,
    pub(super) outcome: Result<Option<Box<RawValue>>, RpcError>,
}

/// Debugging properties of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct DebugSession {
    /// Whether the client attaches and launches debuggers on request.
    pub(super) is_available: bool,
    /// Whether every run is a debug run.
    pub(super) is_debug_session: bool,
}

/// Debugger requests that the client has not responded to.
pub(super) struct DebuggerRequests {
    client_responses: mpsc::Receiver<DebuggerResponse>,
    is_available: bool,
    is_debug_session: bool,
    /// Whether the client lacks `client/attachDebugger` and is asked to launch instead.
    uses_launch: bool,
    next_id: u64,
    open: Vec<DebuggerRequest>,
}

/// A test that waits for the client's response, or for the process launched by the client.
struct DebuggerRequest {
    id: RequestId,
    debuggee: DebuggeeWaiting,
    kind: DebuggerRequestKind,
    deadline: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DebuggerRequestKind {
    Attach,
    Launch,
    /// The client has accepted a launch request.
    LaunchAccepted,
}

impl DebuggerRequests {
    pub(super) fn new(client_responses: mpsc::Receiver<DebuggerResponse>, session: DebugSession) -> Self {
        let DebugSession { is_available, is_debug_session } = session;
        Self {
            client_responses,
            is_available,
            is_debug_session,
            uses_launch: false,
            next_id: FIRST_REQUEST_ID,
            open: Vec::new(),
        }
    }

    /// Returns whether a run is a debug run, given its request's flag.
    pub(super) fn is_debug_run(&self, by_request: bool) -> bool {
        by_request || self.is_debug_session
    }

    /// Returns whether the client has declared that it provides debuggers.
    pub(super) fn is_available(&self) -> bool {
        self.is_available
    }

    /// Returns the client's next response. Waits forever once the session has closed the channel.
    ///
    /// Cancel safe: yes, because a response is either still in the channel or returned.
    pub(super) async fn next_response(&mut self) -> DebuggerResponse {
        match self.client_responses.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.deadline).min()
    }

    fn remove_where(&mut self, is_meant: impl Fn(&DebuggerRequest) -> bool) -> Vec<DebuggerRequest> {
        self.open.extract_if(.., |open| is_meant(open)).collect()
    }
}

impl TestRequests {
    /// Asks the client for a debugger for a waiting test.
    pub(super) fn request_debugger(&mut self, debuggee: DebuggeeWaiting) {
        let id = RequestId::number(self.debuggers.next_id);
        self.debuggers.next_id += 1;
        let launch = debuggee.command.as_ref().filter(|_| self.debuggers.uses_launch).and_then(launch_params);
        let (kind, frame) = match launch {
            Some(params) => {
                (DebuggerRequestKind::Launch, rpc::encode_request(&id, method::LAUNCH_DEBUGGER, &params))
            }
            None => {
                let params = AttachDebuggerParams { process_id: debuggee.pid };
                (DebuggerRequestKind::Attach, rpc::encode_request(&id, method::ATTACH_DEBUGGER, &params))
            }
        };
        let deadline = Instant::now() + self.settings().run.debugger_timeout;
        self.debuggers.open.push(DebuggerRequest { id, debuggee, kind, deadline });
        self.queue_frame(frame);
    }

    pub(super) async fn on_client_response(&mut self, answer: DebuggerResponse) -> Result<(), SchedulerGone> {
        let DebuggerResponse { id, outcome } = answer;
        // The list contains only requests that were sent and not withdrawn.
        for open in self
            .debuggers
            .remove_where(|open| open.id == id && open.kind != DebuggerRequestKind::LaunchAccepted)
        {
            match (open.kind, refusal_reason(&outcome)) {
                (DebuggerRequestKind::Attach, None) => {
                    let decision = DebuggerDecision::ReleaseToDebugger;
                    self.client().decide_debuggee(open.debuggee.lease, decision).await?;
                }
                (DebuggerRequestKind::Attach, Some(_))
                    if is_method_not_found(&outcome) && can_be_launched(&open.debuggee) =>
                {
                    self.debuggers.uses_launch = true;
                    self.request_debugger(open.debuggee);
                }
                // The launched process hands the test over to the debugger when it joins, before or after
                // this response.
                (DebuggerRequestKind::Launch | DebuggerRequestKind::LaunchAccepted, None) => {
                    self.debuggers
                        .open
                        .push(DebuggerRequest { kind: DebuggerRequestKind::LaunchAccepted, ..open });
                }
                (_, Some(reason)) => self.continue_without_debugger(&open, &reason).await?,
            }
        }
        Ok(())
    }

    /// Drops the request for a test whose process was launched by a debugger, because no response is needed
    /// any more.
    pub(super) fn drop_launched_request(&mut self, lease: DebuggeeLease) {
        drop(self.debuggers.remove_where(|open| open.debuggee.lease == lease));
    }

    pub(super) async fn on_debugger_deadline(&mut self, now: Instant) -> Result<(), SchedulerGone> {
        let limit = self.settings().run.debugger_timeout;
        for open in self.debuggers.remove_where(|open| open.deadline <= now) {
            self.cancel_debugger_request(&open);
            let what = match open.kind {
                DebuggerRequestKind::Attach => "the client did not respond",
                DebuggerRequestKind::Launch | DebuggerRequestKind::LaunchAccepted => {
                    "the process launched by the client did not connect"
                }
            };
            let reason = format!("{what} within {limit:?} (debugger-timeout)");
            self.continue_without_debugger(&open, &reason).await?;
        }
        Ok(())
    }

    /// Cancels the request for a test that no longer waits for a debugger.
    pub(super) fn cancel_debugger_request_of(&mut self, lease: DebuggeeLease) {
        for open in self.debuggers.remove_where(|open| open.debuggee.lease == lease) {
            self.cancel_debugger_request(&open);
        }
    }

    fn cancel_debugger_request(&mut self, open: &DebuggerRequest) {
        if open.kind == DebuggerRequestKind::LaunchAccepted {
            return;
        }
        self.queue_frame(rpc::encode_notification(method::CANCEL, &CancelParams { id: open.id.clone() }));
    }

    async fn continue_without_debugger(
        &mut self,
        open: &DebuggerRequest,
        reason: &str,
    ) -> Result<(), SchedulerGone> {
        let line = ClientLogLine {
            test_uid: open.debuggee.test_uid.clone(),
            level: LogLevel::Warning,
            message: format!("the test runs without a debugger: {reason}"),
        };
        self.queue_log(Some(&open.debuggee.run_id), vec![line]);
        let decision = DebuggerDecision::RunWithoutDebugger;
        self.client().decide_debuggee(open.debuggee.lease, decision).await
    }
}

fn is_method_not_found(outcome: &Result<Option<Box<RawValue>>, RpcError>) -> bool {
    matches!(outcome, Err(error) if error.code == code::METHOD_NOT_FOUND)
}

fn can_be_launched(debuggee: &DebuggeeWaiting) -> bool {
    debuggee.command.as_ref().and_then(launch_params).is_some()
}

/// Returns the parameters of a launch request; `None` if JSON can't represent them.
fn launch_params(debuggee: &DebuggeeCommand) -> Option<LaunchDebuggerParams> {
    let text = |bytes: &OsText| match bytes {
        OsText::Text(text) => Some(text.clone()),
        OsText::Bytes(_) => None,
    };
    let args: Vec<_> = debuggee.args.iter().map(text).collect::<Option<_>>()?;
    Some(LaunchDebuggerParams {
        program: text(&debuggee.program)?,
        args: shlex::try_join(args.iter().map(String::as_str)).ok()?,
        working_directory: text(&debuggee.cwd)?,
        // The process sets its own environment before it executes the test.
        environment_variables: BTreeMap::new(),
    })
}

/// Returns why no debugger is available, according to a response. A result that can't be parsed counts as
/// success.
fn refusal_reason(outcome: &Result<Option<Box<RawValue>>, RpcError>) -> Option<String> {
    match outcome {
        Err(error) => Some(format!("the client responded with an error: {error}")),
        Ok(None) => None,
        Ok(Some(result)) => match serde_json::from_str::<DebuggerResult>(result.get()) {
            Ok(DebuggerResult { success: false }) => {
                Some("the client responded with success: false".to_owned())
            }
            Ok(DebuggerResult { success: true }) | Err(_) => None,
        },
    }
}
