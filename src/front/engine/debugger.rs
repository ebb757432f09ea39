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

use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};
use wire::{
    control::{Debuggee, DebuggerDecision, OsBytes, ToWorker},
    mtp::{AttachDebuggerParams, CancelParams, DebuggerResult, LaunchDebuggerParams, LogLevel, method},
    rpc::{self, RequestId, RpcError, code},
};

use super::{
    Engine,
    jobs::{JobKey, Work},
};
use crate::run::Standing;

/// First id of requests that the server sends. The ids are numbers because `$/cancelRequest` accepts no
/// others by the specification, and so high that no client has counted as far, in case it keeps the ids of
/// both directions in one table.
const FIRST_ID: u64 = 1 << 30;

/// A client's response to a request of the server.
pub(in crate::front) struct Answer {
    pub(in crate::front) id: RequestId,
    pub(in crate::front) outcome: Result<Option<Box<RawValue>>, RpcError>,
}

/// Debugger requests that the client has not responded to.
pub(in crate::front) struct Debuggers {
    answers: mpsc::Receiver<Answer>,
    has_any: bool,
    is_always: bool,
    /// The client does not implement `client/attachDebugger`, so it is requested to launch.
    launches: bool,
    next_id: u64,
    open: Vec<Open>,
}

/// A test that waits for the client's response, or for the process that the client launches.
struct Open {
    id: RequestId,
    key: JobKey,
    standing: Standing,
    asked: Asked,
    until: Instant,
}

/// The request that was sent to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Attach,
    Launch,
    /// The client has accepted a launch request.
    Promised,
}

impl Debuggers {
    pub(super) fn new(answers: mpsc::Receiver<Answer>, (has_any, is_always): (bool, bool)) -> Self {
        Self { answers, has_any, is_always, launches: false, next_id: FIRST_ID, open: Vec::new() }
    }

    /// Returns whether a run is a debug run, given the flag of its request.
    pub(in crate::front) fn are_wanted(&self, by_request: bool) -> bool {
        by_request || self.is_always
    }

    /// Returns whether the client has declared that it provides debuggers.
    pub(in crate::front) fn are_there(&self) -> bool {
        self.has_any
    }

    /// Returns the client's next response; waits forever after the session has closed the channel.
    ///
    /// Cancel safe: yes, because a response is either still in the channel or returned.
    pub(super) async fn answered(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.until).min()
    }

    fn take(&mut self, is_meant: impl Fn(&Open) -> bool) -> Vec<Open> {
        self.open.extract_if(.., |open| is_meant(open)).collect()
    }
}

impl Engine {
    /// Requests a debugger from the client for each test that waits for one.
    pub(super) async fn ask_for_debuggers(&mut self) {
        let mut standing = Vec::new();
        for (key, work) in &mut self.jobs {
            if let Some(driver) = work.driver() {
                standing.extend(driver.take_standing().into_iter().map(|one| (*key, one)));
            }
        }
        for (key, standing) in standing {
            self.ask(key, standing).await;
        }
    }

    async fn ask(&mut self, key: JobKey, standing: Standing) {
        let id = RequestId::number(self.debuggers.next_id);
        self.debuggers.next_id += 1;
        let launch = standing.debuggee.as_ref().filter(|_| self.debuggers.launches).and_then(launch);
        let (asked, frame) = match launch {
            Some(params) => (Asked::Launch, rpc::request(&id, method::LAUNCH_DEBUGGER, &params)),
            None => {
                let params = AttachDebuggerParams { process_id: standing.pid };
                (Asked::Attach, rpc::request(&id, method::ATTACH_DEBUGGER, &params))
            }
        };
        let until = Instant::now() + self.settings.run.debugger_timeout;
        self.debuggers.open.push(Open { id, key, standing, asked, until });
        self.send(frame).await;
    }

    pub(super) async fn client_answered(&mut self, answer: Answer) {
        let Answer { id, outcome } = answer;
        // A request that was withdrawn or never sent is not in the list.
        for open in self.debuggers.take(|open| open.id == id && open.asked != Asked::Promised) {
            match (open.asked, refusal(&outcome)) {
                (Asked::Attach, None) => self.decide(&open, DebuggerDecision::HandOver).await,
                (Asked::Attach, Some(_)) if is_unknown(&outcome) && can_be_launched(&open.standing) => {
                    self.debuggers.launches = true;
                    self.ask(open.key, open.standing).await;
                }
                // The launched process hands the test over to the debugger when it joins, which may be before
                // or after this response.
                (Asked::Launch | Asked::Promised, None) => {
                    self.debuggers.open.push(Open { asked: Asked::Promised, ..open });
                }
                (_, Some(reason)) => self.without_debugger(&open, &reason).await,
            }
        }
    }

    /// Drops the requests whose process a debugger has launched: they need no response any more.
    pub(super) fn note_launched(&mut self) {
        for (key, work) in &mut self.jobs {
            for (worker, lease) in work.driver().into_iter().flat_map(|driver| driver.take_launched()) {
                let is_it = |open: &Open| {
                    (open.key, open.standing.worker, open.standing.lease) == (*key, worker, lease)
                };
                drop(self.debuggers.take(is_it));
            }
        }
    }

    pub(super) async fn debuggers_expired(&mut self, now: Instant) {
        let limit = self.settings.run.debugger_timeout;
        for open in self.debuggers.take(|open| open.until <= now) {
            self.withdraw(&open).await;
            let what = match open.asked {
                Asked::Attach => "the client has not answered",
                Asked::Launch | Asked::Promised => "what the client was to launch has not come",
            };
            let reason = format!("{what} within {limit:?} (debugger-timeout)");
            self.without_debugger(&open, &reason).await;
        }
    }

    /// Cancels the requests of tests that no longer wait for a debugger.
    pub(super) async fn withdraw_requests(&mut self) {
        let jobs = &mut self.jobs;
        let mut is_over = |open: &Open| {
            let driver = jobs.get_mut(&open.key).and_then(Work::driver);
            driver.is_none_or(|driver| !driver.is_leased(open.standing.worker, open.standing.lease))
        };
        let over: Vec<_> = self.debuggers.open.extract_if(.., |open| is_over(open)).collect();
        for open in over {
            self.withdraw(&open).await;
        }
    }

    async fn withdraw(&self, open: &Open) {
        if open.asked == Asked::Promised {
            return;
        }
        self.send(rpc::notification(method::CANCEL, &CancelParams { id: open.id.clone() })).await;
    }

    async fn without_debugger(&mut self, open: &Open, reason: &str) {
        if let Some(driver) = self.jobs.get_mut(&open.key).and_then(Work::driver) {
            let text = format!("the test runs without a debugger: {reason}");
            driver.log_of(open.standing.test, LogLevel::Warning, text).await;
        }
        self.decide(open, DebuggerDecision::TakeBack).await;
    }

    async fn decide(&mut self, open: &Open, decision: DebuggerDecision) {
        let Standing { worker, lease, .. } = open.standing;
        if let Some(pool) = &mut self.pool {
            pool.tell(worker, &ToWorker::Debugger { lease, decision }).await;
        }
    }
}

/// Returns whether the client does not implement the method.
fn is_unknown(outcome: &Result<Option<Box<RawValue>>, RpcError>) -> bool {
    matches!(outcome, Err(error) if error.code == code::METHOD_NOT_FOUND)
}

fn can_be_launched(standing: &Standing) -> bool {
    standing.debuggee.as_ref().and_then(launch).is_some()
}

/// Returns the parameters of a launch request; `None` if JSON can't represent them.
fn launch(debuggee: &Debuggee) -> Option<LaunchDebuggerParams> {
    let text = |bytes: &OsBytes| match bytes {
        OsBytes::Text(text) => Some(text.clone()),
        OsBytes::Bytes(_) => None,
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
fn refusal(outcome: &Result<Option<Box<RawValue>>, RpcError>) -> Option<String> {
    match outcome {
        Err(error) => Some(format!("the client answered with the error {error}")),
        Ok(None) => None,
        Ok(Some(result)) => match serde_json::from_str::<DebuggerResult>(result.get()) {
            Ok(DebuggerResult { success: false }) => Some("the client answered success: false".to_owned()),
            Ok(DebuggerResult { success: true }) | Err(_) => None,
        },
    }
}
