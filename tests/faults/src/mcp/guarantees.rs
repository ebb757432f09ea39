//! Guarantees for every call, whatever faults were injected: exactly one answer, or at most one if the call
//! was cancelled; progress that increases and ends before the answer; counts of a run that add up to its
//! tests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::plan::McpPlan;
use crate::{
    suites::uids_of_filter,
    test_results::{PermittedLosses, ReceivedRun},
    traffic_record::Traffic,
};

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// The client received all answers.
    Answered,
    /// Open calls were answered because the server received SIGTERM.
    Terminated,
    /// Calls are unanswered because the client disconnected or the server died.
    Early,
}

/// Observations from a session.
#[derive(Debug, Default)]
pub(super) struct CheckedSession {
    pub(super) runs: Vec<ReceivedRun>,
    /// Number of tests whose results differ from a run without faults.
    pub(super) lost: usize,
}

/// A request that has not been answered.
#[derive(Debug)]
struct OpenRequest {
    message: Value,
    is_cancelled: bool,
    progress: Option<f64>,
}

struct SessionReplay<'a> {
    plan: &'a McpPlan,
    losses: &'a PermittedLosses,
    /// Open requests, by their serialized ids.
    open: BTreeMap<String, OpenRequest>,
    /// Number of lines that are not messages and have not been answered.
    garbage: usize,
    /// A run was cancelled, so runs may end in the state `cancelled`.
    has_cancelled_run: bool,
    /// Failures on the pages read so far, by run.
    pages: BTreeMap<String, BTreeSet<String>>,
    checked: CheckedSession,
}

/// Checks a session; panics at the first violation.
pub(super) fn check(
    plan: &McpPlan,
    traffic: &[Traffic<Value>],
    end: SessionEnd,
    losses: &PermittedLosses,
) -> CheckedSession {
    let mut replay = SessionReplay {
        plan,
        losses,
        open: BTreeMap::new(),
        garbage: 0,
        has_cancelled_run: end != SessionEnd::Answered,
        pages: BTreeMap::new(),
        checked: CheckedSession::default(),
    };
    for one in traffic {
        match one {
            Traffic::Sent(message) => replay.on_sent(message),
            Traffic::Received(message) => replay.on_received(message),
            Traffic::Closed => {}
        }
    }
    let unanswered: Vec<_> = replay.open.values().filter(|request| !request.is_cancelled).collect();
    assert!(unanswered.is_empty() || end == SessionEnd::Early, "requests without an answer: {unanswered:?}");
    replay.checked
}

/// Returns a tool's answer; null if the message has no text or the text is not JSON.
pub(super) fn answer_of(message: &Value) -> Value {
    let text = message["result"]["content"][0]["text"].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

impl SessionReplay<'_> {
    fn on_sent(&mut self, message: &Value) {
        if message.is_string() {
            self.garbage += 1;
        } else if message["method"] == "notifications/cancelled" {
            let id = message["params"]["requestId"].to_string();
            if let Some(request) = self.open.get_mut(&id) {
                request.is_cancelled = true;
            }
        } else if message.get("id").is_some() {
            self.has_cancelled_run |= message["params"]["name"] == "cancel_run";
            let request = OpenRequest { message: message.clone(), is_cancelled: false, progress: None };
            self.open.insert(message["id"].to_string(), request);
        }
    }

    fn on_received(&mut self, message: &Value) {
        assert_eq!(message["jsonrpc"], "2.0", "a line is no message: {message}");
        if message["method"] == "notifications/progress" {
            return self.on_progress(&message["params"]);
        }
        assert!(message.get("method").is_none(), "the server asks for nothing: {message}");
        if message["id"].is_null() {
            assert!(self.garbage > 0 && message["error"]["code"] == -32700, "{message}");
            self.garbage -= 1;
            return;
        }
        let request = self.open.remove(&message["id"].to_string());
        let request = request.unwrap_or_else(|| panic!("answered twice, or not asked: {message}"));
        let name = request.message["params"]["name"].as_str();
        if name == Some("no_such_tool") {
            assert_eq!(message["error"]["code"], -32602, "{message}");
            return;
        }
        assert!(message.get("error").is_none(), "{}: {message}", request.message);
        let answer = answer_of(message);
        // An answer sent before the cancellation may still arrive. The cancellation itself is not answered.
        let is_of_cancellation = answer["state"] == "cancelled" && !self.has_cancelled_run;
        assert!(!request.is_cancelled || !is_of_cancellation, "a cancelled call is answered: {message}");
        let is_modern =
            request.message["params"]["_meta"].get("io.modelcontextprotocol/protocolVersion").is_some();
        let has_type = message["result"]["resultType"] == "complete";
        assert_eq!(has_type, is_modern, "the era of an answer: {message}");
        let is_error = message["result"]["isError"] == true;
        match name {
            Some("run_tests") => self.on_run(&request.message, message, &answer),
            Some("get_failures") if !is_error => self.on_failures(&answer),
            Some("list_tests") if !is_error => {
                let count = self.plan.expected(None).len();
                let total = answer["total"].as_u64().unwrap() as usize;
                assert!(total >= count || self.losses.may_hide_a_program(), "{total} of {count} are listed");
            }
            Some("mcp.test.protocol") => {
                let is_excused = self.losses.is_stopped || self.losses.tests + self.losses.replaced > 0;
                assert!(answer["success"] == true || is_excused || self.has_cancelled_run, "{message}");
            }
            _ => {}
        }
    }

    fn on_progress(&mut self, params: &Value) {
        let has_token = |request: &&mut OpenRequest| {
            request.message["params"]["_meta"]["progressToken"] == params["progressToken"]
        };
        let request = self.open.values_mut().find(has_token);
        let request = request.unwrap_or_else(|| panic!("progress of no open call: {params}"));
        let progress = params["progress"].as_f64().unwrap();
        assert!(request.progress.is_none_or(|earlier| progress > earlier), "{params}: {request:?}");
        let is_within = params["total"].as_f64().is_none_or(|total| progress <= total);
        assert!(is_within, "{params}");
        request.progress = Some(progress);
    }

    /// Checks the answer to `run_tests`.
    fn on_run(&mut self, request: &Value, message: &Value, answer: &Value) {
        let arguments = &request["params"]["arguments"];
        let is_rerun = arguments.get("rerun").is_some();
        let tests = arguments["filter"].as_str().map(uids_of_filter);
        let expected = self.plan.expected(tests.as_deref());
        if message["result"]["isError"] == true {
            let is_explained =
                expected.is_empty() || is_rerun || self.has_cancelled_run || self.losses.may_hide_a_program();
            assert!(is_explained, "{request}: {message}");
            return;
        }
        let counts = answer["counts"].as_object().unwrap_or_else(|| panic!("{message}"));
        let count = |name: &str| counts.get(name).and_then(Value::as_u64).unwrap_or(0) as usize;
        let counted: usize = counts.keys().filter(|name| *name != "selected").map(|name| count(name)).sum();
        assert_eq!(counted, count("selected"), "the counts add up: {answer}");
        let state = answer["state"].as_str().unwrap();
        let is_cancelled = state == "cancelled" && self.has_cancelled_run;
        assert!(state == "completed" || is_cancelled, "{answer}");
        let failures = answer["failures"].as_array().unwrap();
        let total = answer["totalFailures"].as_u64().unwrap() as usize;
        let is_paged = !answer["nextCursor"].is_null();
        assert!(failures.len() == total || (failures.len() < total && is_paged), "{answer}");
        let mut labels = labels_of(failures);
        assert_eq!(labels.len(), failures.len(), "a test fails twice: {answer}");
        // A program that could not be listed is reported instead of its tests. A program that died outside
        // its tests is an additional failure.
        let of_programs: Vec<_> =
            self.plan.suites.iter().filter_map(|suite| labels.remove(&suite.name)).collect();
        let has_hidden = of_programs.iter().any(|label| label == "not run");
        assert!(!has_hidden || self.losses.may_hide_a_program(), "a program could not be listed: {answer}");
        assert!(of_programs.is_empty() || self.losses.may_fail_a_program(), "a program failed: {answer}");
        let received = ReceivedRun {
            run_id: answer["run"].as_str().unwrap().to_owned(),
            labels: labels.clone(),
            is_over: true,
        };
        if !has_hidden {
            let lost = self.losses.check(&expected, &labels);
            self.checked.lost += if is_cancelled { 0 } else { lost };
            self.checked.runs.push(received);
        }
        if has_hidden || is_rerun {
            return;
        }
        assert!(
            count("selected") == expected.len() || self.losses.may_hide_a_program(),
            "{} tests are selected of {}",
            count("selected"),
            expected.len()
        );
        let bad = expected.values().filter(|state| !["passed", "skipped"].contains(state)).count();
        let unfinished = count("cancelled") + count("not run");
        assert!(is_cancelled || total + unfinished >= bad, "{bad} tests are bad: {answer}");
        assert!(is_cancelled || unfinished == 0 || self.losses.tests > 0, "{answer}");
    }

    /// Records a page of failures.
    fn on_failures(&mut self, answer: &Value) {
        if answer["state"] == "running" {
            return;
        }
        let run = answer["run"].as_str().unwrap().to_owned();
        let pages = self.pages.entry(run).or_default();
        pages.extend(labels_of(answer["failures"].as_array().unwrap()).into_keys());
        let total = answer["totalFailures"].as_u64().unwrap() as usize;
        let is_last = answer["nextCursor"].is_null();
        assert!(pages.len() <= total && (!is_last || pages.len() == total), "{pages:?}: {answer}");
    }
}

fn labels_of(failures: &[Value]) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    failures.iter().map(|failure| (text(&failure["test"]), text(&failure["outcome"]))).collect()
}
