//! Tests for debuggers: the client is asked to attach one to each, or to launch the test with one, and what follows says
//! what becomes of the test.
//!
//! ```text
//! standing ──client/attachDebugger──► success ──► it is the debugger's
//!     │                           ├─► unknown method ──► the client is asked to launch, now and from now on
//!     │                           └─► error, success: false, or nothing in time ──► it runs as any other
//!     └──────client/launchDebugger──► the launched process has come ──► that one is the debugger's
//!                                 └─► error, success: false, or no process in time ──► it runs as any other
//! lease over, worker gone ──► $/cancelRequest
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

/// Ids of requests of ours are numbers, because `$/cancelRequest` takes no others by the specification; so high that no
/// client has counted as far, should it keep both directions in one book.
const FIRST_ID: u64 = 1 << 30;

/// What the client says to a request of ours.
pub(in crate::front) struct Answer {
    pub(in crate::front) id: RequestId,
    pub(in crate::front) outcome: Result<Option<Box<RawValue>>, RpcError>,
}

/// Requests of ours that the client has not answered.
pub(in crate::front) struct Debuggers {
    answers: mpsc::Receiver<Answer>,
    has_any: bool,
    is_always: bool,
    /// The client does not know how to attach.
    launches: bool,
    next_id: u64,
    open: Vec<Open>,
}

/// A test that waits for the client's word, or for the process that it launches.
struct Open {
    id: RequestId,
    key: JobKey,
    standing: Standing,
    asked: Asked,
    until: Instant,
}

/// What the client was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Attach,
    Launch,
    /// It was asked to launch, and has said that it does.
    Promised,
}

impl Debuggers {
    pub(super) fn new(answers: mpsc::Receiver<Answer>, (has_any, is_always): (bool, bool)) -> Self {
        Self { answers, has_any, is_always, launches: false, next_id: FIRST_ID, open: Vec::new() }
    }

    /// Whether a run is to be for debuggers, by what its request says.
    pub(in crate::front) fn are_wanted(&self, by_request: bool) -> bool {
        by_request || self.is_always
    }

    /// Whether the client has said that it has debuggers.
    pub(in crate::front) fn are_there(&self) -> bool {
        self.has_any
    }

    /// Waits for the next answer; for ever when the session is going.
    ///
    /// Cancel safe: yes, because an answer is either still in the channel or returned.
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
    /// Asks the client for a debugger for each test that stands for one.
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
        // One that was withdrawn, or was never asked, is not there.
        for open in self.debuggers.take(|open| open.id == id && open.asked != Asked::Promised) {
            match (open.asked, refusal(&outcome)) {
                (Asked::Attach, None) => self.decide(&open, DebuggerDecision::HandOver).await,
                (Asked::Attach, Some(_)) if is_unknown(&outcome) && can_be_launched(&open.standing) => {
                    self.debuggers.launches = true;
                    self.ask(open.key, open.standing).await;
                }
                // It is the debugger's when it comes, which may be at any time before or after this.
                (Asked::Launch | Asked::Promised, None) => {
                    self.debuggers.open.push(Open { asked: Asked::Promised, ..open });
                }
                (_, Some(reason)) => self.without_debugger(&open, &reason).await,
            }
        }
    }

    /// Takes note of processes that debuggers have launched: the client need not answer any more.
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

    /// Takes back the requests for tests that don't wait any more.
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

/// Whether the client does not know the method.
fn is_unknown(outcome: &Result<Option<Box<RawValue>>, RpcError>) -> bool {
    matches!(outcome, Err(error) if error.code == code::METHOD_NOT_FOUND)
}

fn can_be_launched(standing: &Standing) -> bool {
    standing.debuggee.as_ref().and_then(launch).is_some()
}

/// Returns what the client is asked to launch; `None` for what JSON can't carry.
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
        // The process sets its own when it becomes the test.
        environment_variables: BTreeMap::new(),
    })
}

/// Returns why an answer is no debugger. A result that can't be read says no more than that there is one.
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
