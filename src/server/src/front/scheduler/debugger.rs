//! Debug runs: the client is requested to attach a debugger to each test's process, or to launch the test
//! under one; its response decides how the test continues.
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
    control::{DebuggeeCommand, DebuggerDecision, OsText, ToWorker},
    mtp::{AttachDebuggerParams, CancelParams, DebuggerResult, LaunchDebuggerParams, LogLevel, method},
    rpc::{self, RequestId, RpcError, code},
};
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};

use super::{
    Scheduler,
    jobs::{JobKey, JobProgress},
};
use crate::run::WaitingDebuggee;

/// First id of requests that the server sends. The ids are numbers because `$/cancelRequest` accepts no
/// others by the specification, and so high that no client has counted as far, in case it keeps the ids of
/// both directions in one table.
const FIRST_REQUEST_ID: u64 = 1 << 30;

/// A client's response to a request of the server.
pub(in crate::front) struct ClientResponse {
    pub(in crate::front) id: RequestId,
    pub(in crate::front) outcome: Result<Option<Box<RawValue>>, RpcError>,
}

/// Debugger requests that the client has not responded to.
pub(in crate::front) struct DebuggerRequests {
    client_responses: mpsc::Receiver<ClientResponse>,
    is_available: bool,
    is_debug_session: bool,
    /// The client does not implement `client/attachDebugger`, so it is requested to launch.
    uses_launch: bool,
    next_id: u64,
    open: Vec<DebuggerRequest>,
}

/// A test that waits for the client's response, or for the process that the client launches.
struct DebuggerRequest {
    id: RequestId,
    key: JobKey,
    debuggee: WaitingDebuggee,
    kind: DebuggerRequestKind,
    deadline: Instant,
}

/// The request that was sent to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DebuggerRequestKind {
    Attach,
    Launch,
    /// The client has accepted a launch request.
    LaunchAccepted,
}

impl DebuggerRequests {
    pub(super) fn new(
        client_responses: mpsc::Receiver<ClientResponse>,
        (is_available, is_debug_session): (bool, bool),
    ) -> Self {
        Self {
            client_responses,
            is_available,
            is_debug_session,
            uses_launch: false,
            next_id: FIRST_REQUEST_ID,
            open: Vec::new(),
        }
    }

    /// Returns whether a run is a debug run, given the flag of its request.
    pub(in crate::front) fn is_debug_run(&self, by_request: bool) -> bool {
        by_request || self.is_debug_session
    }

    /// Returns whether the client has declared that it provides debuggers.
    pub(in crate::front) fn is_available(&self) -> bool {
        self.is_available
    }

    /// Returns the client's next response; waits forever after the session has closed the channel.
    ///
    /// Cancel safe: yes, because a response is either still in the channel or returned.
    pub(super) async fn next_response(&mut self) -> ClientResponse {
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

impl Scheduler {
    /// Requests a debugger from the client for each test that waits for one.
    pub(super) async fn request_debuggers(&mut self) {
        let mut standing = Vec::new();
        for (key, work) in &mut self.jobs {
            if let Some(driver) = work.driver() {
                standing.extend(driver.take_waiting_debuggees().into_iter().map(|one| (*key, one)));
            }
        }
        for (key, standing) in standing {
            self.request_debugger(key, standing).await;
        }
    }

    async fn request_debugger(&mut self, key: JobKey, standing: WaitingDebuggee) {
        let id = RequestId::number(self.debuggers.next_id);
        self.debuggers.next_id += 1;
        let launch =
            standing.debuggee.as_ref().filter(|_| self.debuggers.uses_launch).and_then(launch_params);
        let (asked, frame) = match launch {
            Some(params) => {
                (DebuggerRequestKind::Launch, rpc::encode_request(&id, method::LAUNCH_DEBUGGER, &params))
            }
            None => {
                let params = AttachDebuggerParams { process_id: standing.pid };
                (DebuggerRequestKind::Attach, rpc::encode_request(&id, method::ATTACH_DEBUGGER, &params))
            }
        };
        let until = Instant::now() + self.settings.run.debugger_timeout;
        self.debuggers.open.push(DebuggerRequest {
            id,
            key,
            debuggee: standing,
            kind: asked,
            deadline: until,
        });
        self.send(frame).await;
    }

    pub(super) async fn on_client_response(&mut self, answer: ClientResponse) {
        let ClientResponse { id, outcome } = answer;
        // A request that was withdrawn or never sent is not in the list.
        for open in self
            .debuggers
            .remove_where(|open| open.id == id && open.kind != DebuggerRequestKind::LaunchAccepted)
        {
            match (open.kind, refusal_reason(&outcome)) {
                (DebuggerRequestKind::Attach, None) => {
                    self.send_debugger_decision(&open, DebuggerDecision::ReleaseToDebugger).await
                }
                (DebuggerRequestKind::Attach, Some(_))
                    if is_method_not_found(&outcome) && can_be_launched(&open.debuggee) =>
                {
                    self.debuggers.uses_launch = true;
                    self.request_debugger(open.key, open.debuggee).await;
                }
                // The launched process hands the test over to the debugger when it joins, which may be before
                // or after this response.
                (DebuggerRequestKind::Launch | DebuggerRequestKind::LaunchAccepted, None) => {
                    self.debuggers
                        .open
                        .push(DebuggerRequest { kind: DebuggerRequestKind::LaunchAccepted, ..open });
                }
                (_, Some(reason)) => self.continue_without_debugger(&open, &reason).await,
            }
        }
    }

    /// Drops the requests whose process a debugger has launched: they need no response any more.
    pub(super) fn drop_launched_requests(&mut self) {
        for (key, work) in &mut self.jobs {
            for (worker, lease) in work.driver().into_iter().flat_map(|driver| driver.take_launched_leases())
            {
                let is_it = |open: &DebuggerRequest| {
                    (open.key, open.debuggee.worker, open.debuggee.lease) == (*key, worker, lease)
                };
                drop(self.debuggers.remove_where(is_it));
            }
        }
    }

    pub(super) async fn on_debugger_deadline(&mut self, now: Instant) {
        let limit = self.settings.run.debugger_timeout;
        for open in self.debuggers.remove_where(|open| open.deadline <= now) {
            self.cancel_debugger_request(&open).await;
            let what = match open.kind {
                DebuggerRequestKind::Attach => "the client has not answered",
                DebuggerRequestKind::Launch | DebuggerRequestKind::LaunchAccepted => {
                    "what the client was to launch has not come"
                }
            };
            let reason = format!("{what} within {limit:?} (debugger-timeout)");
            self.continue_without_debugger(&open, &reason).await;
        }
    }

    /// Cancels the requests of tests that no longer wait for a debugger.
    pub(super) async fn cancel_stale_debugger_requests(&mut self) {
        let jobs = &mut self.jobs;
        let mut is_over = |open: &DebuggerRequest| {
            let driver = jobs.get_mut(&open.key).and_then(JobProgress::driver);
            driver.is_none_or(|driver| !driver.is_leased(open.debuggee.worker, open.debuggee.lease))
        };
        let over: Vec<_> = self.debuggers.open.extract_if(.., |open| is_over(open)).collect();
        for open in over {
            self.cancel_debugger_request(&open).await;
        }
    }

    async fn cancel_debugger_request(&self, open: &DebuggerRequest) {
        if open.kind == DebuggerRequestKind::LaunchAccepted {
            return;
        }
        self.send(rpc::encode_notification(method::CANCEL, &CancelParams { id: open.id.clone() })).await;
    }

    async fn continue_without_debugger(&mut self, open: &DebuggerRequest, reason: &str) {
        if let Some(driver) = self.jobs.get_mut(&open.key).and_then(JobProgress::driver) {
            let text = format!("the test runs without a debugger: {reason}");
            driver.log_test(open.debuggee.test, LogLevel::Warning, text).await;
        }
        self.send_debugger_decision(open, DebuggerDecision::RunWithoutDebugger).await;
    }

    async fn send_debugger_decision(&mut self, open: &DebuggerRequest, decision: DebuggerDecision) {
        let WaitingDebuggee { worker, lease, .. } = open.debuggee;
        if let Some(pool) = &mut self.pool {
            pool.send_to_worker(worker, &ToWorker::Debugger { lease, decision }).await;
        }
    }
}

/// Returns whether the client does not implement the method.
fn is_method_not_found(outcome: &Result<Option<Box<RawValue>>, RpcError>) -> bool {
    matches!(outcome, Err(error) if error.code == code::METHOD_NOT_FOUND)
}

fn can_be_launched(standing: &WaitingDebuggee) -> bool {
    standing.debuggee.as_ref().and_then(launch_params).is_some()
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

/// Returns why a response means that there is no debugger. A result that can't be parsed counts as success.
fn refusal_reason(outcome: &Result<Option<Box<RawValue>>, RpcError>) -> Option<String> {
    match outcome {
        Err(error) => Some(format!("the client answered with the error {error}")),
        Ok(None) => None,
        Ok(Some(result)) => match serde_json::from_str::<DebuggerResult>(result.get()) {
            Ok(DebuggerResult { success: false }) => Some("the client answered success: false".to_owned()),
            Ok(DebuggerResult { success: true }) | Err(_) => None,
        },
    }
}
