//! The client's own queues. The client reads written messages at some time, and handles them at a later time,
//! one message of any stream after the other. The guarantees are about handling.
//!
//! ```text
//! written ──► read ──► handled ──► a barrier is answered
//! ```
//!
//! If the sender dies while writing a message, the rest is written over a duplicate of its socket, or nothing
//! more is readable.
//!
//! The receiver of an answer has it once the client handles the barrier. A later arrival would only delay the
//! waiting process, and every step may be delayed anyway.

use std::collections::{BTreeMap, VecDeque};

use heeler_core::WorkerId;

use crate::{
    rules::{
        CheckResult, HANDLED_COMPLETE, HANDLED_COMPLETION, HANDLED_LAST, HANDLED_ONCE, HANDLED_ORDER,
        RESPONSE, check,
    },
    scenario::{ModelScenario, PlantedMistake},
    steps::ModelStep,
    world::{ModelWorld, SimFrame},
};

/// A connection of the client, by the process that opened it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StreamOwner {
    /// The main connection.
    Main,
    Worker(WorkerId),
    /// A watchdog, by the number of watchdogs that could still be started when it started.
    Finisher(u8),
}

/// A barrier, by its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BarrierId {
    /// The process that opened the connection.
    Owner(u64),
    /// The coordinator, for a worker whose updates it forwards on the main connection.
    Relayed(WorkerId),
    /// The coordinator, on a duplicate of a dead process's socket.
    Coordinator,
    /// The watchdog, on a duplicate after the coordinator's death.
    Watchdog,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SimMessage {
    Frame(SimFrame),
    Barrier(BarrierId),
    Response,
}

/// A message that its sender published but did not write completely before it died.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CutMessage {
    pub(crate) message: SimMessage,
    /// Part of the message is written; otherwise nothing is.
    pub(crate) is_begun: bool,
}

/// A connection, from its sender to the client's handlers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct SimStream {
    /// Messages written and not yet handled, oldest first.
    queue: VecDeque<SimMessage>,
    /// Number of queued messages that the client has read.
    read: usize,
    cut: Option<CutMessage>,
    /// Number of frames with results that the sender has published.
    published: u64,
    has_completion: bool,
    /// Something follows a partial message, so nothing more can be read.
    is_garbled: bool,
    /// The client has reset the stream: it may still handle messages already read, and receives nothing more.
    is_reset: bool,
}

/// All connections of the client, and the results that it has handled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientQueues {
    streams: BTreeMap<StreamOwner, SimStream>,
    /// For each test, the stream that carried its first handled result.
    handled: Vec<Option<StreamOwner>>,
    pub(crate) has_handled_completion: bool,
    /// The stream that carried the handled completion.
    completion_on: Option<StreamOwner>,
    has_handled_response: bool,
    is_read_at_once: bool,
}

impl ClientQueues {
    pub(crate) fn new(scenario: &ModelScenario) -> Self {
        Self {
            streams: BTreeMap::new(),
            handled: vec![None; scenario.plan.tests.len()],
            has_handled_completion: false,
            completion_on: None,
            has_handled_response: false,
            is_read_at_once: scenario.queues.is_read_at_once,
        }
    }

    /// Writes a complete message.
    pub(crate) fn write(&mut self, owner: StreamOwner, message: SimMessage) {
        let stream = self.streams.entry(owner).or_default();
        stream.publish(&message);
        stream.is_garbled |= stream.cut.take().is_some_and(|cut| cut.is_begun);
        self.receive(owner, message);
    }

    fn receive(&mut self, owner: StreamOwner, message: SimMessage) {
        let stream = self.streams.entry(owner).or_default();
        if !stream.is_garbled && !stream.is_reset {
            stream.queue.push_back(message);
            stream.read += usize::from(self.is_read_at_once);
        }
    }

    /// Records that the sender died before it had written the complete message.
    pub(crate) fn cut(&mut self, owner: StreamOwner, message: SimMessage, is_begun: bool) {
        let stream = self.streams.entry(owner).or_default();
        stream.publish(&message);
        stream.cut = (!stream.is_reset).then_some(CutMessage { message, is_begun });
    }

    /// Completes the cut message, as a holder of a duplicated socket; returns the message.
    pub(crate) fn complete_cut(&mut self, owner: StreamOwner) -> Option<SimMessage> {
        let message = self.streams.get_mut(&owner)?.cut.take()?.message;
        self.receive(owner, message.clone());
        Some(message)
    }

    pub(crate) fn cut_message(&self, owner: StreamOwner) -> Option<&CutMessage> {
        self.streams.get(&owner)?.cut.as_ref()
    }

    /// Returns whether the stream exists and its holder can ask for proof.
    pub(crate) fn is_provable(&self, owner: StreamOwner) -> bool {
        self.streams.get(&owner).is_some_and(|stream| !stream.is_reset)
    }

    /// Returns the sender's published position: the number of its frames with results. Nothing is known about
    /// a stream that the client has reset.
    pub(crate) fn published(&self, owner: StreamOwner) -> u64 {
        self.streams.get(&owner).filter(|stream| !stream.is_reset).map_or(0, |stream| stream.published)
    }

    pub(crate) fn has_published_completion(&self, owner: StreamOwner) -> bool {
        self.streams.get(&owner).is_some_and(|stream| stream.has_completion && !stream.is_reset)
    }

    pub(crate) fn reset(&mut self, owner: StreamOwner) {
        let stream = self.streams.entry(owner).or_default();
        stream.is_reset = true;
        stream.cut = None;
        stream.queue.truncate(stream.read);
    }

    fn is_reset(&self, owner: StreamOwner) -> bool {
        self.streams.get(&owner).is_some_and(|stream| stream.is_reset)
    }

    /// Lists the client's possible steps.
    fn steps(&self, steps: &mut Vec<ModelStep>) {
        for (owner, stream) in &self.streams {
            steps.extend((stream.read < stream.queue.len()).then_some(ModelStep::Read(*owner)));
            steps.extend((stream.read > 0).then_some(ModelStep::Handle(*owner)));
            let may_forget = stream.is_reset && !stream.queue.is_empty();
            steps.extend(may_forget.then_some(ModelStep::Forget(*owner)));
        }
    }

    /// Reads and returns the next message.
    fn read(&mut self, owner: StreamOwner) -> Option<&SimMessage> {
        let stream = self.streams.get_mut(&owner)?;
        stream.read += 1;
        stream.queue.get(stream.read - 1)
    }

    /// Takes the next message already read.
    fn take(&mut self, owner: StreamOwner) -> Option<SimMessage> {
        let stream = self.streams.get_mut(&owner).filter(|stream| stream.read > 0)?;
        stream.read -= 1;
        stream.queue.pop_front()
    }

    /// Handles a frame. No rule applies to frames of a stream that the client has reset.
    fn handle(&mut self, owner: StreamOwner, message: &SimMessage) -> CheckResult {
        if self.is_reset(owner) {
            if let SimMessage::Frame(SimFrame::Results(results)) = message {
                results.iter().for_each(|(test, _)| {
                    self.handled[test.index()].get_or_insert(owner);
                });
            }
            return Ok(());
        }
        let is_over = self.has_handled_completion;
        match message {
            SimMessage::Frame(SimFrame::Started(test)) => {
                check(HANDLED_LAST, !is_over, || format!("the start of {test:?}, on {owner:?}"))?;
                let result = self.handled[test.index()];
                check(HANDLED_ORDER, result.is_none(), || {
                    format!("the start of {test:?}, on {owner:?}, behind its result on {result:?}")
                })?;
            }
            SimMessage::Frame(SimFrame::Results(results)) => {
                check(HANDLED_LAST, !is_over, || format!("{results:?}, on {owner:?}"))?;
                for (test, _) in results {
                    let first = self.handled[test.index()].filter(|first| !self.is_reset(*first));
                    check(HANDLED_ONCE, first.is_none(), || format!("{test:?}: on {first:?} and {owner:?}"))?;
                    self.handled[test.index()] = Some(owner);
                }
            }
            SimMessage::Frame(SimFrame::Completion) => {
                check(RESPONSE, !self.has_handled_response, || "a completion is handled last".to_owned())?;
                let first = self.completion_on.filter(|first| !self.is_reset(*first));
                check(HANDLED_COMPLETION, first.is_none(), || format!("on {first:?} and {owner:?}"))?;
                let missing = self.handled.iter().position(Option::is_none);
                check(HANDLED_COMPLETE, missing.is_none(), || {
                    format!("the result of test {missing:?} is not")
                })?;
                self.has_handled_completion = true;
                self.completion_on = Some(owner);
            }
            SimMessage::Response => {
                check(RESPONSE, is_over, || "it is handled before the completion".to_owned())?;
                self.has_handled_response = true;
            }
            SimMessage::Barrier(_) => {}
        }
        Ok(())
    }
}

impl SimStream {
    fn publish(&mut self, message: &SimMessage) {
        match message {
            SimMessage::Frame(SimFrame::Results(_)) => self.published += 1,
            SimMessage::Frame(SimFrame::Completion) => self.has_completion = true,
            SimMessage::Frame(SimFrame::Started(_)) | SimMessage::Barrier(_) | SimMessage::Response => {}
        }
    }
}

impl ModelWorld {
    /// Lists the client's possible steps.
    pub(crate) fn client_steps(&self, steps: &mut Vec<ModelStep>) {
        self.client.queues.iter().for_each(|queues| queues.steps(steps));
    }

    /// Reads the next message of a stream.
    pub(crate) fn read_next(&mut self, scenario: &ModelScenario, owner: StreamOwner) {
        let message = self.client.queues.as_mut().and_then(|queues| queues.read(owner));
        let barrier = match message {
            Some(SimMessage::Barrier(barrier)) => Some(*barrier),
            _ => None,
        };
        if scenario.mistake == PlantedMistake::BarrierAnsweredWhenRead {
            barrier.into_iter().for_each(|barrier| self.on_answer(scenario, owner, barrier));
        }
    }

    /// Handles the next message of a stream.
    pub(crate) fn handle_next(&mut self, scenario: &ModelScenario, owner: StreamOwner) {
        let Some(queues) = &mut self.client.queues else { return };
        let Some(message) = queues.take(owner) else { return };
        let checked = queues.handle(owner, &message);
        self.note_check(checked);
        let is_answered =
            scenario.queues.has_answers && scenario.mistake != PlantedMistake::BarrierAnsweredWhenRead;
        if let (SimMessage::Barrier(barrier), true) = (message, is_answered) {
            self.on_answer(scenario, owner, barrier);
        }
    }

    /// Drops the client's unhandled messages of a stream that it reset.
    pub(crate) fn forget(&mut self, owner: StreamOwner) {
        let stream = self.client.queues.as_mut().and_then(|queues| queues.streams.get_mut(&owner));
        if let Some(stream) = stream {
            stream.queue.clear();
            stream.read = 0;
        }
    }
}
