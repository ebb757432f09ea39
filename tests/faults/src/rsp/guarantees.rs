//! Guarantees for each connection, whatever faults were injected: every started run passes through the states
//! in order and ends once; nothing follows its end; percentages never decrease; every test has one output
//! line.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::plan::RspPlan;
use crate::{
    suites::uids_of_filter,
    support::schema::rsp_server_schema_violation,
    test_results::{PermittedLosses, ReceivedRun},
    traffic_record::Traffic,
};

const STARTING: u64 = 1;
const STARTED: u64 = 2;
const STOPPING: u64 = 3;
const STOPPED: u64 = 4;
const OK: u64 = 0;
const CANCEL: u64 = 8;

/// Event that closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEnder {
    /// The client, which receives nothing more about its runs.
    Client,
    /// The server, after it ended all runs.
    Server,
    /// A fault that killed the server, possibly while it was ending its runs.
    Killer { is_terminated: bool },
}

/// Observations from a connection.
#[derive(Debug, Default)]
pub(super) struct CheckedConnection {
    pub(super) runs: Vec<ReceivedRun>,
    /// Number of tests whose results differ from a run without faults.
    pub(super) lost: usize,
}

/// A run in progress.
#[derive(Debug, Default)]
struct SuiteRun {
    /// The selected tests with the states that they have without faults.
    expected: BTreeMap<String, &'static str>,
    job: Option<Value>,
    /// Last received state; 0 before the first.
    state: u64,
    has_process: bool,
    /// Status of the job, set when the job is removed.
    status: Option<Value>,
    is_terminated: bool,
    percent: u64,
    labels: BTreeMap<String, String>,
}

struct ConnectionReplay<'a> {
    plan: &'a RspPlan,
    losses: &'a PermittedLosses,
    /// Requests without a response.
    open: VecDeque<Value>,
    runs: BTreeMap<String, SuiteRun>,
    /// Number of repeated states still expected, by suite: refused starts and stops of idle suites cause
    /// them.
    repeated_states: BTreeMap<String, usize>,
    /// A fault or a step has requested that runs end.
    has_asked_for_end: bool,
    checked: CheckedConnection,
}

/// Checks a connection; panics at the first violation.
pub(super) fn check(
    plan: &RspPlan,
    traffic: &[Traffic<Value>],
    end: ConnectionEnder,
    losses: &PermittedLosses,
) -> CheckedConnection {
    let mut replay = ConnectionReplay {
        plan,
        losses,
        open: VecDeque::new(),
        runs: BTreeMap::new(),
        repeated_states: BTreeMap::new(),
        has_asked_for_end: matches!(
            end,
            ConnectionEnder::Server | ConnectionEnder::Killer { is_terminated: true }
        ),
        checked: CheckedConnection::default(),
    };
    for one in traffic {
        match one {
            Traffic::Sent(message) => replay.on_sent(message),
            Traffic::Received(message) => replay.on_received(message),
            Traffic::Closed => {}
        }
    }
    if end == ConnectionEnder::Server {
        assert!(replay.runs.is_empty(), "runs have no end: {:?}", replay.runs);
        // Requests read before SIGTERM are answered; unread requests are not.
    }
    for run in std::mem::take(&mut replay.runs).into_values() {
        replay.add(run);
    }
    replay.checked
}

impl ConnectionReplay<'_> {
    fn on_sent(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap();
        self.has_asked_for_end |= ["server/stopServerAsync", "server/cancelJob"].contains(&method);
        if message.get("id").is_some() {
            self.open.push_back(message.clone());
        }
    }

    fn on_received(&mut self, message: &Value) {
        assert_eq!(rsp_server_schema_violation(message), None, "{message}");
        if message.get("method").is_none() {
            return self.on_response(message);
        }
        let params = &message["params"];
        let method = message["method"].as_str().unwrap();
        let suite = match method {
            "client/jobAdded" | "client/jobChanged" | "client/jobRemoved" => {
                let handle = if method == "client/jobAdded" { params } else { &params["handle"] };
                handle["name"].as_str().unwrap().strip_prefix("Tests of ").unwrap()
            }
            _ => params["server"]["id"].as_str().unwrap(),
        };
        if method == "client/serverStateChanged" {
            return self.on_state(suite, params["state"].as_u64().unwrap());
        }
        let Some(run) = self.runs.get_mut(suite) else {
            panic!("outside any run of {suite}: {message}");
        };
        run.on_notification(method, params);
    }

    fn on_response(&mut self, response: &Value) {
        let request = self.open.pop_front();
        let request = request.unwrap_or_else(|| panic!("nothing was asked: {response}"));
        assert_eq!(response["id"], request["id"], "requests are answered in order: {response}");
        assert!(response.get("error").is_none(), "{request}: {response}");
        let result = &response["result"];
        match request["method"].as_str().unwrap() {
            "server/startServerAsync" => self.on_start(&request["params"]["params"], &result["status"]),
            // Stopping an idle suite sends its state again, because the client may wait for it.
            "server/stopServerAsync" => {
                let suite = request["params"]["id"].as_str().unwrap();
                if !self.runs.contains_key(suite) {
                    self.repeat_state(suite);
                }
            }
            "server/getJobs" => {
                let jobs = result.as_array().unwrap();
                assert_eq!(jobs.len(), self.runs.len(), "{jobs:?} and {:?}", self.runs.keys());
                for job in jobs {
                    let run = self.runs.values_mut().find(|run| run.job.as_ref() == Some(&job["handle"]));
                    let run = run.unwrap_or_else(|| panic!("an unknown job: {job}"));
                    run.on_percent(job);
                }
            }
            "server/getServerState" => {
                let suite = request["params"]["id"].as_str().unwrap();
                let state = self.runs.get(suite).map_or(STOPPED, |run| run.state);
                assert_eq!(result["state"], state, "{suite}: {result}");
            }
            _ => {}
        }
    }

    fn on_start(&mut self, params: &Value, status: &Value) {
        let suite = params["id"].as_str().unwrap();
        if status["severity"] != OK {
            return self.repeat_state(suite);
        }
        assert!(!self.runs.contains_key(suite), "{suite} is started twice");
        let filter = params["attributes"]["filter"].as_str();
        let expected = self.plan.expected(suite, filter.map(uids_of_filter).as_deref());
        self.runs.insert(suite.to_owned(), SuiteRun { expected, ..SuiteRun::default() });
    }

    /// Expects the suite's current state to be sent again.
    fn repeat_state(&mut self, suite: &str) {
        *self.repeated_states.entry(suite.to_owned()).or_default() += 1;
    }

    fn on_state(&mut self, suite: &str, state: u64) {
        if let Some(repeated) = self.repeated_states.get_mut(suite).filter(|count| **count > 0) {
            *repeated -= 1;
            let now = self.runs.get(suite).map_or(STOPPED, |run| run.state);
            assert_eq!(state, now, "{suite} is sent another state than it has");
            return;
        }
        let Some(run) = self.runs.get_mut(suite) else { panic!("{suite} has state {state} without a run") };
        let is_next = match state {
            STARTING => run.state == 0,
            STARTED => run.state == STARTING && run.job.is_some(),
            STOPPING => run.state == STARTED && run.status.is_none() && self.has_asked_for_end,
            STOPPED => [STARTED, STOPPING].contains(&run.state) && run.is_terminated,
            _ => false,
        };
        assert!(is_next, "{suite} has state {state} after {run:?}");
        run.state = state;
        if state == STOPPED {
            let run = self.runs.remove(suite).expect("it was just found");
            self.check_end(suite, &run);
            self.add(run);
        }
    }

    /// Checks a run that has ended.
    fn check_end(&self, suite: &str, run: &SuiteRun) {
        let status = run.status.as_ref().expect("it is terminated");
        let severity = status["severity"].as_u64().unwrap();
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{suite}: ")), "the message names its suite: {message}");
        let is_cancelled = severity == CANCEL || run.state == STOPPING || self.has_asked_for_end;
        assert!(severity != CANCEL || self.has_asked_for_end, "nobody cancelled {suite}: {status}");
        let is_bad = run.expected.values().any(|state| !["passed", "skipped"].contains(state));
        assert!(severity != OK || !is_bad, "{suite} has bad tests and passes: {status}");
        let Some((total, selected, counted)) = counts_of(message) else {
            let is_explained = is_cancelled || run.expected.is_empty() || self.losses.may_hide_a_program();
            assert!(is_explained && run.labels.is_empty(), "{suite} ran nothing: {message}");
            return;
        };
        assert_eq!(total, counted, "{message}");
        if self.losses.may_hide_a_program() && run.labels.len() <= 1 {
            return;
        }
        assert_eq!(total, run.labels.len(), "{suite}: {message}: {:?}", run.labels);
        assert_eq!((total, selected), (run.expected.len(), run.expected.len()), "{suite}: {message}");
    }

    fn add(&mut self, run: SuiteRun) {
        let Some(job) = &run.job else { return };
        let is_over = run.status.as_ref().is_some_and(|status| {
            status["message"].as_str().is_some_and(|message| counts_of(message).is_some())
        });
        let is_program = |uid: &String| self.plan.suites.iter().any(|suite| suite.name == *uid);
        let mut labels = run.labels;
        // A program that could not be listed is reported instead of its tests.
        let hidden = labels.keys().filter(|uid| is_program(uid)).count();
        assert!(hidden == 0 || self.losses.may_hide_a_program(), "a program could not be listed: {labels:?}");
        labels.retain(|uid, _| !is_program(uid));
        let lost = self.losses.check(&run.expected, &labels);
        let is_cancelled = run.status.is_none() || self.has_asked_for_end;
        self.checked.lost += if is_cancelled { 0 } else { lost };
        let run_id = job["id"].as_str().unwrap().to_owned();
        self.checked.runs.push(ReceivedRun { run_id, labels, is_over });
    }
}

impl SuiteRun {
    fn on_notification(&mut self, method: &str, params: &Value) {
        assert!(!self.is_terminated, "{params} follows the end of the process");
        match method {
            "client/serverProcessCreated" => {
                assert!(self.state == STARTING && !self.has_process && self.job.is_none());
                self.has_process = true;
            }
            "client/jobAdded" => {
                assert!(self.state == STARTING && self.has_process && self.job.is_none());
                self.job = Some(params.clone());
            }
            "client/jobChanged" => {
                assert!(self.job.as_ref() == Some(&params["handle"]), "{params}");
                assert!(self.status.is_none() && self.state > STARTING, "{params} of {self:?}");
                self.on_percent(params);
            }
            "client/jobRemoved" => {
                assert!(self.job.as_ref() == Some(&params["handle"]), "{params}");
                assert!(self.status.is_none(), "the job ends twice: {params}");
                self.status = Some(params["status"].clone());
            }
            "client/serverProcessTerminated" => {
                assert!(self.status.is_some(), "the process ends before its job");
                self.is_terminated = true;
            }
            "client/serverProcessOutputAppended" => {
                assert!(self.status.is_none(), "{params} follows the end of the job");
                self.on_output(params);
            }
            _ => panic!("an unknown notification {method}"),
        }
    }

    fn on_percent(&mut self, progress: &Value) {
        let percent = progress["percent"].as_u64().unwrap();
        assert!(percent >= self.percent && percent <= 100, "{percent} % after {} %", self.percent);
        self.percent = percent;
    }

    /// Records a test's output line: a separate message that starts with the outcome, at most one per test.
    fn on_output(&mut self, params: &Value) {
        let text = params["text"].as_str().unwrap();
        let suite = params["server"]["id"].as_str().unwrap();
        let line = text.strip_suffix('\n').filter(|line| params["streamType"] == 2 && !line.contains('\n'));
        let Some((label, rest)) = line.and_then(|line| line.split_at_checked(13)) else { return };
        let Some((_time, name)) = rest.split_at_checked(12).filter(|(time, _)| time.ends_with("  ")) else {
            return;
        };
        let uid = name.split_once("  (").map_or(name, |(uid, _)| uid);
        let is_test = uid == suite || uid.starts_with(&format!("{suite}::"));
        if LABELS.contains(&label.trim_end()) && is_test {
            assert!(self.state > STARTING, "{text} before state 2");
            let earlier = self.labels.insert(uid.to_owned(), label.trim_end().to_owned());
            assert_eq!(earlier, None, "{uid} has two lines");
        }
    }
}

const LABELS: [&str; 13] = [
    "passed",
    "flaky",
    "skipped",
    "failed",
    "timed out",
    "idle",
    "crashed",
    "exited early",
    "out of memory",
    "lost",
    "interrupted",
    "cancelled",
    "not run",
];

/// Parses a run's summary: the number of results, the number of selected tests that the summary states, and
/// the sum of its counts. Returns `None` if no test ran.
fn counts_of(message: &str) -> Option<(usize, usize, usize)> {
    let (_suite, message) = message.split_once(": ")?;
    let (head, rest) = message.split_once(": ")?;
    let head = head.strip_suffix(" tests").or_else(|| head.strip_suffix(" test"))?;
    let (total, selected) = head.split_once(" of ").unwrap_or((head, head));
    let (total, selected) = (total.parse().ok()?, selected.parse().ok()?);
    let counts = rest.split(';').next().unwrap_or_default().split(", ");
    let counted = counts.filter_map(|count| count.split(' ').next()?.parse::<usize>().ok()).sum();
    Some((total, selected, counted))
}
