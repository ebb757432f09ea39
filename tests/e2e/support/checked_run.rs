//! Checks the recorded messages of a run: every selected test has exactly one terminal state, and all
//! messages arrived in order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::recorder::{ClientConnection, RecordedEvent, RecordedEventKind, tail};

const UPDATES: &str = "testing/testUpdates/tests";
const ATTACHMENTS: &str = "testing/testUpdates/attachments";

#[derive(Debug, Clone)]
pub(crate) struct RequestedRun {
    pub(crate) run_id: String,
    pub(crate) request: u64,
}

/// How many times a result may arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedDelivery {
    /// Exactly once: no connection broke, so nothing was sent again.
    Once,
    /// Results that may have been lost are sent again, unchanged.
    AtLeastOnce,
    /// Like `AtLeastOnce`, but the coordinator is dead, so there is no response.
    Orphaned,
}

/// A client's view of a finished run.
#[derive(Debug)]
pub(crate) struct CheckedRun {
    /// The last node of each test, by uid.
    pub(crate) tests: BTreeMap<String, Value>,
    /// Nodes that are not tests: programs with a failure outside any test.
    pub(crate) programs: BTreeMap<String, Value>,
    /// Response to the request.
    pub(crate) response: Value,
    /// Connection that carried the completion.
    pub(crate) completion_on: ClientConnection,
    /// Connection that carried each test's result, by uid.
    pub(crate) results_on: BTreeMap<String, ClientConnection>,
    /// All log messages before the response.
    pub(crate) log: Vec<String>,
}

struct RecordChecker<'a> {
    events: &'a [RecordedEvent],
    run: &'a RequestedRun,
    selected: BTreeSet<&'a str>,
    delivery: ExpectedDelivery,
    /// Groups sent on each connection. Each connection must send the groups that its tests refer to.
    known: BTreeSet<(ClientConnection, String)>,
    completion: Option<ClientConnection>,
    attachments_end: Option<ClientConnection>,
    checked_run: CheckedRun,
}

impl CheckedRun {
    /// Checks the recorded events of a run that has been answered.
    #[track_caller]
    pub(crate) fn check(
        events: &[RecordedEvent],
        run: &RequestedRun,
        selected: &[String],
        delivery: ExpectedDelivery,
    ) -> Self {
        let checked_run = Self {
            tests: BTreeMap::new(),
            programs: BTreeMap::new(),
            response: Value::Null,
            completion_on: ClientConnection::Main,
            results_on: BTreeMap::new(),
            log: Vec::new(),
        };
        let reader = RecordChecker {
            events,
            run,
            selected: selected.iter().map(String::as_str).collect(),
            delivery,
            known: BTreeSet::new(),
            completion: None,
            attachments_end: None,
            checked_run,
        };
        reader.read()
    }

    /// Checks the recorded events of a client with slow handlers. The completion and the response use
    /// different connections, so the client may handle the response first. The specification allows this.
    #[track_caller]
    pub(crate) fn check_handled(
        events: &[RecordedEvent],
        run: &RequestedRun,
        selected: &[String],
        delivery: ExpectedDelivery,
    ) -> Self {
        let is_response = |event: &RecordedEvent| {
            let is_meant = |message: &Value| message.get("method").is_none() && message["id"] == run.request;
            event.message().is_some_and(is_meant)
        };
        let is_completion = |event: &RecordedEvent| {
            let params = event.params(UPDATES).filter(|params| params["runId"] == run.run_id.as_str());
            params.is_some_and(|params| params["changes"].is_null())
        };
        let mut ordered = events.to_vec();
        let places = (events.iter().position(is_response), events.iter().position(is_completion));
        if let (Some(response), Some(completion)) = places
            && response < completion
        {
            ordered[response..=completion].rotate_left(1);
        }
        Self::check(&ordered, run, selected, delivery)
    }

    #[track_caller]
    pub(crate) fn test(&self, uid: &str) -> &Value {
        self.tests.get(uid).unwrap_or_else(|| panic!("{uid} has no result: {:?}", self.tests.keys()))
    }

    #[track_caller]
    pub(crate) fn state(&self, uid: &str) -> &str {
        self.test(uid)["execution-state"].as_str().unwrap()
    }

    /// Returns a test's error message, or an empty string.
    #[track_caller]
    pub(crate) fn message(&self, uid: &str) -> &str {
        self.test(uid)["error.message"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn assert_all(&self, state: &str) -> &Self {
        let others: Vec<_> = self.tests.keys().filter(|uid| self.state(uid) != state).collect();
        assert!(others.is_empty(), "not {state}: {others:?}\n{:#?}", self.tests);
        self
    }

    #[track_caller]
    pub(crate) fn assert_no_program_failures(&self) -> &Self {
        assert!(self.programs.is_empty(), "{:#?}", self.programs);
        self
    }
}

impl RecordChecker<'_> {
    #[track_caller]
    fn read(mut self) -> CheckedRun {
        for (place, event) in self.events.iter().enumerate() {
            let Some(message) = event.message() else { continue };
            if message.get("method").is_none() && message["id"] == self.run.request {
                self.on_response(message);
            } else if let Some(params) = event.params(UPDATES)
                && params["runId"] == self.run.run_id.as_str()
            {
                self.check_members(params, &["runId", "changes"]);
                self.on_update(place, event, params);
            } else if let Some(params) = event.params(ATTACHMENTS)
                && params["runId"] == self.run.run_id.as_str()
            {
                self.check_members(params, &["runId", "attachments"]);
                self.on_attachments(place, event.on, params);
            } else if let Some(params) = event.params("client/log") {
                self.check_members(params, &["level", "message"]);
                assert!(params["level"].is_string(), "{params}");
                self.checked_run.log.push(params["message"].as_str().unwrap().to_owned());
            }
        }
        self.check_complete()
    }

    /// Panics unless `params` has exactly these members. A common client library drops notifications that
    /// have an unknown member.
    fn check_members(&self, params: &Value, members: &[&str]) {
        let found: BTreeSet<&str> = params.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, members.iter().copied().collect(), "{params}");
    }

    fn on_response(&mut self, message: &Value) {
        assert!(self.checked_run.response.is_null(), "a second answer: {message}");
        assert!(
            self.completion.is_some(),
            "answered before the completion: {message}\n{}",
            tail(self.events)
        );
        self.checked_run.response = message.clone();
    }

    /// Resets the checks after the connection of the completion was closed. If the client had not proven
    /// receipt, everything may be sent again on another connection.
    fn restart_after_close(&mut self, place: usize) {
        if !self.checked_run.response.is_null() {
            // The client itself is disconnecting.
            return;
        }
        let Some(on) = self.completion.or(self.attachments_end) else { return };
        let is_closed =
            |event: &RecordedEvent| event.on == on && matches!(event.what, RecordedEventKind::Closed);
        // The client's response to the end of the attachments was late, so the completion was sent on another
        // connection.
        let is_unproven = self.completion.is_none() && self.events[place].on != on;
        let is_again = is_unproven || self.events[..place].iter().any(is_closed);
        if self.delivery == ExpectedDelivery::AtLeastOnce && is_again {
            self.completion = None;
            self.attachments_end = None;
        } else if self.delivery == ExpectedDelivery::Orphaned && is_unproven && is_again {
            // The watchdog reconnects and resends everything that is not proven delivered, except the
            // completion.
            self.attachments_end = None;
        }
    }

    fn on_update(&mut self, place: usize, event: &RecordedEvent, params: &Value) {
        self.restart_after_close(place);
        if let Some(on) = self.completion {
            // A killed worker may have left data in the client's receive buffer, which no other process knows
            // about. This data can only repeat what the completion's connection has sent.
            let is_leftover = self.delivery != ExpectedDelivery::Once && event.on != on;
            assert!(
                is_leftover,
                "{params} came on {:?} after the completion on {on:?}\n{}",
                event.on,
                tail(self.events)
            );
        }
        let Some(changes) = params["changes"].as_array() else {
            assert!(params["changes"].is_null(), "{params}");
            self.completion = Some(event.on);
            return;
        };
        for change in changes {
            self.on_change(event.on, change);
        }
        let uids_in = |state: &str| -> BTreeSet<&str> {
            let nodes = changes.iter().map(|change| &change["node"]);
            nodes
                .filter(|node| node["execution-state"] == state)
                .filter_map(|node| node["uid"].as_str())
                .collect()
        };
        let started = uids_in("in-progress");
        let ended = ["passed", "failed", "timed-out", "error"].map(uids_in);
        let both: Vec<_> = ended.iter().flatten().filter(|uid| started.contains(*uid)).collect();
        assert!(both.is_empty(), "{both:?} begin and end in one notification");
    }

    fn on_change(&mut self, on: ClientConnection, change: &Value) {
        let node = &change["node"];
        let uid = node["uid"].as_str().unwrap_or_else(|| panic!("a node without uid: {node}"));
        let state = node["execution-state"].as_str().unwrap_or_default();
        assert!(node["display-name"].is_string() && node["node-type"].is_string(), "{node}");
        if let Some(parent) = change["parent"].as_str() {
            assert!(self.known.contains(&(on, parent.to_owned())), "{uid} came before its parent {parent}");
            assert!(uid.len() > parent.len() && uid.starts_with(parent), "{uid} is not below {parent}");
        }
        if node["node-type"] == "group" {
            assert!(node.get("execution-state").is_none() && !self.selected.contains(uid), "{node}");
            self.known.insert((on, uid.to_owned()));
            return;
        }
        let is_at_the_top = node["outcome-kind"] == "not-run" || node["outcome-kind"] == "program-failure";
        assert!(change["parent"].is_string() || is_at_the_top, "{uid} stands in no group: {change}");
        if !self.selected.contains(uid) {
            // If a program could not be listed, its node replaces the nodes of its tests.
            let is_unlisted = node["outcome-kind"] == "not-run" && node["heeler.suite"] == uid;
            assert!(
                is_unlisted || node["outcome-kind"] == "program-failure",
                "nobody asked for {uid}: {node}"
            );
            self.checked_run.programs.insert(uid.to_owned(), node.clone());
            return;
        }
        match state {
            "discovered" => {}
            "in-progress" => self.on_test_start(uid),
            "passed" | "skipped" | "failed" | "timed-out" | "error" | "cancelled" => {
                self.on_test_end(uid, on, node)
            }
            _ => panic!("{uid} has the state {state:?}"),
        }
    }

    fn on_test_start(&mut self, uid: &str) {
        let is_over = self.checked_run.tests.contains_key(uid) && self.delivery == ExpectedDelivery::Once;
        assert!(!is_over, "{uid} begins after its end\n{}", tail(self.events));
    }

    fn on_test_end(&mut self, uid: &str, on: ClientConnection, node: &Value) {
        if let Some(earlier) = self.checked_run.tests.insert(uid.to_owned(), node.clone()) {
            assert_ne!(self.delivery, ExpectedDelivery::Once, "{uid} ended twice: {earlier} and {node}");
            assert_eq!(earlier["execution-state"], node["execution-state"], "{uid} ended in two ways");
        }
        self.checked_run.results_on.insert(uid.to_owned(), on);
    }

    fn on_attachments(&mut self, place: usize, on: ClientConnection, params: &Value) {
        self.restart_after_close(place);
        if self.completion.is_some_and(|completed| self.delivery != ExpectedDelivery::Once && completed != on)
        {
            // As with updates, a dead worker may have left this message in the client's receive buffer.
            return;
        }
        assert!(self.completion.is_none(), "attachments after the completion: {params}");
        if self.delivery == ExpectedDelivery::AtLeastOnce
            && self.attachments_end == Some(ClientConnection::Main)
            && on == ClientConnection::Main
        {
            // If a watchdog dies before the completion, its successor sends everything again on this
            // connection.
            self.attachments_end = None;
        }
        assert!(self.attachments_end.is_none(), "attachments after their end: {params}");
        if params["attachments"].is_null() {
            self.attachments_end = Some(on);
        }
    }

    fn check_complete(mut self) -> CheckedRun {
        let on = self.completion.unwrap_or_else(|| panic!("no completion\n{}", tail(self.events)));
        let is_answered = !self.checked_run.response.is_null() || self.delivery == ExpectedDelivery::Orphaned;
        assert!(is_answered, "no answer\n{}", tail(self.events));
        let ended: BTreeSet<&str> = self.checked_run.tests.keys().map(String::as_str).collect();
        assert_eq!(ended, self.selected, "every selected test has one terminal state, and no other has one");
        self.checked_run.completion_on = on;
        self.checked_run
    }
}
