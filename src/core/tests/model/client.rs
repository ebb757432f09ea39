//! The client: the frames sent to it, their connections, and frames that must never be sent.
//!
//! The client may read each connection at its own pace, so the rules are checked at sending: a frame on one
//! connection after the completion on another would be read too late. Frames on a connection other than the
//! main one count as read once proven, and as lost otherwise.
//!
//! For a client with its own queues (`streams`), the rules about handling are checked at handling.

use std::collections::BTreeSet;

use heeler_core::TestId;

use crate::{
    rules::{BrokenRule, COMPLETE, NOTHING_AFTER, ONE_RESULT, RESPONSE},
    scenario::ModelScenario,
    streams::{ClientQueues, SimMessage, StreamOwner},
    world::{ResultSource, SimFrame},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum CompletionState {
    None,
    Sent,
    /// The client has the completion, or will read it on its main connection before anything later.
    Here,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimClient {
    /// For each test, the only result ever sent to the client.
    results: Vec<Option<ResultSource>>,
    has: BTreeSet<TestId>,
    pub(crate) completion: CompletionState,
    pub(crate) has_response: bool,
    /// The client refused or reset the watchdog's connection.
    pub(crate) has_cut_watchdog: bool,
    /// The client's own queues, if modelled. Written messages then count as received, since a client without
    /// answers is promised no more.
    pub(crate) queues: Option<ClientQueues>,
    /// The first broken rule, regardless of the process that broke it.
    pub(crate) broken: Option<BrokenRule>,
}

impl SimClient {
    pub(crate) fn new(scenario: &ModelScenario) -> Self {
        Self {
            results: vec![None; scenario.plan.tests.len()],
            has: BTreeSet::new(),
            completion: CompletionState::None,
            has_response: false,
            has_cut_watchdog: false,
            queues: scenario.has_queues().then(|| ClientQueues::new(scenario)),
            broken: None,
        }
    }

    pub(crate) fn fail(&mut self, rule: &'static str, what: String) {
        self.broken.get_or_insert(BrokenRule { rule, what });
    }

    /// Sends a frame on the main connection.
    pub(crate) fn send_main(&mut self, frame: &SimFrame) {
        self.send(frame, StreamOwner::Main, None);
    }

    /// Sends a frame. `line` contains the unproven results of its connection; `None` is the main connection.
    pub(crate) fn send(&mut self, frame: &SimFrame, owner: StreamOwner, line: Option<&mut BTreeSet<TestId>>) {
        self.check_sent(frame, line);
        if let Some(queues) = &mut self.queues {
            queues.write(owner, SimMessage::Frame(frame.clone()));
        }
    }

    /// Sends a message on a connection other than the main one, to a client with its own queues.
    pub(crate) fn send_message(&mut self, owner: StreamOwner, message: SimMessage) {
        if let SimMessage::Frame(frame) = &message {
            self.check_sent(frame, Some(&mut BTreeSet::new()));
        }
        self.queues.iter_mut().for_each(|queues| queues.write(owner, message.clone()));
    }

    /// Resets a stream on behalf of the client.
    pub(crate) fn reset_stream(&mut self, owner: StreamOwner) {
        self.queues.iter_mut().for_each(|queues| queues.reset(owner));
    }

    /// Completes the cut message of a stream.
    pub(crate) fn complete_cut(&mut self, owner: StreamOwner) {
        let message = self.queues.as_mut().and_then(|queues| queues.complete_cut(owner));
        if let Some(SimMessage::Frame(frame)) = message {
            self.check_sent(&frame, Some(&mut BTreeSet::new()));
        }
    }

    fn check_sent(&mut self, frame: &SimFrame, line: Option<&mut BTreeSet<TestId>>) {
        match (frame, line) {
            (SimFrame::Started(test), _) => {
                if self.completion != CompletionState::None {
                    self.fail(NOTHING_AFTER, format!("the start of {test:?}"));
                }
            }
            (SimFrame::Results(results), line) => {
                if self.completion != CompletionState::None {
                    self.fail(NOTHING_AFTER, format!("{results:?}"));
                }
                for (test, source) in results {
                    if *self.results[test.index()].get_or_insert(*source) != *source {
                        self.fail(ONE_RESULT, format!("{test:?} gets a second result: {source:?}"));
                    }
                }
                let tests = results.iter().map(|(test, _)| *test);
                let is_received = line.is_none() || self.queues.is_some();
                let line = line.filter(|_| !is_received);
                line.unwrap_or(&mut self.has).extend(tests);
            }
            (SimFrame::Completion, line) => {
                let on_line = |test: &TestId| line.as_ref().is_some_and(|line| line.contains(test));
                let mut tests = (0..).map(TestId).take(self.results.len());
                if let Some(test) = tests.find(|test| !self.has.contains(test) && !on_line(test)) {
                    self.fail(COMPLETE, format!("{test:?} may be missing"));
                }
                let new = if line.is_some() { CompletionState::Sent } else { CompletionState::Here };
                self.completion = self.completion.max(new);
            }
        }
    }

    /// Records that the client provably read everything on a connection.
    pub(crate) fn read(&mut self, line: &mut BTreeSet<TestId>) {
        self.has.append(line);
    }

    /// Records the response to the client's request.
    pub(crate) fn respond(&mut self) {
        if self.completion != CompletionState::Here {
            self.fail(RESPONSE, "the response precedes the completion".to_owned());
        }
        if std::mem::replace(&mut self.has_response, true) {
            self.fail(RESPONSE, "there are two responses".to_owned());
        }
        self.queues.iter_mut().for_each(|queues| queues.write(StreamOwner::Main, SimMessage::Response));
    }
}
