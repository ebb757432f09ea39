//! The client: what came to it, by which way, and what must never come.
//!
//! It may read each connection at its own time, so the rules are held where frames are sent: what is on a connection
//! behind the completion of another one would be read too late, whoever reads. What is only on a connection of its own,
//! not on the main one, counts as read when that is proven, and as lost when it is not.

use std::collections::BTreeSet;

use heeler_core::TestId;

use crate::system::{ResultSource, SimFrame};

/// A rule that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum BrokenRule {
    /// A test got two results.
    TwoResults(TestId),
    /// The completion came before the client was sure to have the result of a test.
    ResultMissing(TestId),
    /// Updates were sent when the completion had been sent.
    UpdateAfterCompletion,
    /// The request was answered when the client could not have the completion.
    ResponseBeforeCompletion,
    /// The request was answered twice.
    TwoResponses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum CompletionState {
    None,
    Sent,
    /// The client has it, or has it on its main connection, before whatever comes there.
    Here,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimClient {
    /// For each test, the one result that was ever sent to it.
    results: Vec<Option<ResultSource>>,
    has: BTreeSet<TestId>,
    pub(crate) completion: CompletionState,
    pub(crate) has_response: bool,
    /// It has refused or reset the watchdog's connection.
    pub(crate) has_cut_watchdog: bool,
    pub(crate) broken: Option<BrokenRule>,
}

impl SimClient {
    pub(crate) fn new(tests: usize) -> Self {
        Self {
            results: vec![None; tests],
            has: BTreeSet::new(),
            completion: CompletionState::None,
            has_response: false,
            has_cut_watchdog: false,
            broken: None,
        }
    }

    pub(crate) fn fail(&mut self, broken: BrokenRule) {
        self.broken.get_or_insert(broken);
    }

    /// A frame goes out; `line` holds what is on the same connection and not proven. `None`: the main connection.
    pub(crate) fn send(&mut self, frame: &SimFrame, line: Option<&mut BTreeSet<TestId>>) {
        match (frame, line) {
            (SimFrame::Results(results), line) => {
                if self.completion != CompletionState::None {
                    self.fail(BrokenRule::UpdateAfterCompletion);
                }
                for (test, source) in results {
                    if *self.results[test.index()].get_or_insert(*source) != *source {
                        self.fail(BrokenRule::TwoResults(*test));
                    }
                }
                let tests = results.iter().map(|(test, _)| *test);
                line.unwrap_or(&mut self.has).extend(tests);
            }
            (SimFrame::Completion, line) => {
                let on_line = |test: &TestId| line.as_ref().is_some_and(|line| line.contains(test));
                let tests = (0..).map(TestId).take(self.results.len());
                if let Some(test) = tests.filter(|test| !self.has.contains(test)).find(|test| !on_line(test))
                {
                    self.fail(BrokenRule::ResultMissing(test));
                }
                let new = if line.is_some() { CompletionState::Sent } else { CompletionState::Here };
                self.completion = self.completion.max(new);
            }
        }
    }

    /// The client is proven to have read all that is on a connection.
    pub(crate) fn read(&mut self, line: &mut BTreeSet<TestId>) {
        self.has.append(line);
    }

    pub(crate) fn answer(&mut self) {
        if self.completion != CompletionState::Here {
            self.fail(BrokenRule::ResponseBeforeCompletion);
        }
        if std::mem::replace(&mut self.has_response, true) {
            self.fail(BrokenRule::TwoResponses);
        }
    }
}
