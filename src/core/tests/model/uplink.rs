//! How a worker writes to a client with its own queues: windows, barriers, and waiting for answers.

use std::cmp::Ordering;

use heeler_core::{
    WorkerId,
    ack_window::{AckWindow, AnswerState},
};

use crate::{
    scenario::{ModelScenario, PlantedMistake},
    streams::{BarrierId, SimMessage, StreamOwner},
    worker::is_sending,
    world::{ModelWorld, ProcessPhase, ResultSource, SimFrame, SimRoute, SimWorker, SimWorkerMessage},
};

impl SimWorker {
    fn has_stream(&self) -> bool {
        matches!(self.route, SimRoute::NotDialled | SimRoute::Open)
    }

    /// Returns whether the worker may write its next update.
    pub(crate) fn has_room(&self) -> bool {
        !self.has_stream() || self.window.as_ref().is_none_or(|window| window.has_room())
    }

    /// Returns whether the client has handled the whole stream, or will not confirm it.
    pub(crate) fn is_all_handled(&self) -> bool {
        let is_handled =
            |window: &AckWindow| window.is_all_handled() || window.answers() == AnswerState::Silent;
        match self.route {
            SimRoute::Open => self.window.as_ref().is_none_or(is_handled),
            SimRoute::Relay => !self.is_relay_asked,
            SimRoute::NotDialled | SimRoute::Reset | SimRoute::Broken => true,
        }
    }

    /// Returns whether the connection still has to be opened by the answer to a barrier.
    pub(crate) fn awaits_opening(&self) -> bool {
        let is_unknown = |window: &AckWindow| window.answers() == AnswerState::Unknown;
        self.route == SimRoute::Open && self.window.as_ref().is_some_and(is_unknown)
    }

    /// Returns the messages for writing a frame: the frame, and any barrier after it.
    pub(crate) fn write_update(&mut self, frame: SimFrame) -> Vec<SimMessage> {
        let frame = SimMessage::Frame(frame);
        let Some(window) = &mut self.window else { return vec![frame] };
        let behind = window.on_frame(1, 1).map(|number| SimMessage::Barrier(BarrierId::Owner(number)));
        [frame].into_iter().chain(behind).collect()
    }
}

impl ModelWorld {
    /// Dials the client and asks it to open the connection.
    pub(crate) fn dial(&mut self, scenario: &ModelScenario, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.route = SimRoute::Open;
        let Some(window) = &mut worker.window else { return };
        let opening = window.opening_barrier().map(BarrierId::Owner).map(SimMessage::Barrier);
        if scenario.mistake == PlantedMistake::OpeningNotAwaited {
            window.send_unopened();
        }
        opening.into_iter().for_each(|barrier| self.client.send_message(StreamOwner::Worker(id), barrier));
    }

    /// Gives up a connection that the client opens too late. The worker's updates then use the main
    /// connection.
    pub(crate) fn give_opening_up(&mut self, id: WorkerId) {
        self.client.reset_stream(StreamOwner::Worker(id));
        self.workers.get_mut(&id).into_iter().for_each(|worker| worker.route = SimRoute::Relay);
    }

    /// Writes a frame to a worker's stream, with its barriers.
    pub(crate) fn write_update(&mut self, id: WorkerId, frame: SimFrame) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.route == SimRoute::Relay {
            let position = worker.position;
            return self.send_to_coordinator(id, SimWorkerMessage::Relayed { frame, position });
        }
        if !worker.has_stream() {
            worker.route = SimRoute::Broken;
            return;
        }
        for message in worker.write_update(frame) {
            self.client.send_message(StreamOwner::Worker(id), message);
        }
    }

    /// Kills a worker while it writes a message of the next update. Earlier messages are written; this one is
    /// written in part or not at all.
    pub(crate) fn die_writing(&mut self, id: WorkerId, frame: SimFrame, place: usize, is_begun: bool) {
        let Some(mut worker) = self.workers.remove(&id) else { return };
        let owner = StreamOwner::Worker(id);
        for (at, message) in worker.write_update(frame).into_iter().enumerate() {
            match at.cmp(&place) {
                Ordering::Less => self.client.send_message(owner, message),
                Ordering::Equal => {
                    self.client
                        .queues
                        .iter_mut()
                        .for_each(|queues| queues.cut(owner, message.clone(), is_begun));
                }
                Ordering::Greater => {}
            }
        }
    }

    /// Writes the barrier that proves everything, unless an open barrier already does.
    pub(crate) fn write_final_barrier(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.route != SimRoute::Open {
            return;
        }
        if let Some(number) = worker.window.as_mut().and_then(|window| window.final_barrier()) {
            let barrier = SimMessage::Barrier(BarrierId::Owner(number));
            self.client.send_message(StreamOwner::Worker(id), barrier);
        }
    }

    /// Makes a provisional result wait until everything before it is handled, because the test will run again
    /// elsewhere. Returns whether it waits.
    pub(crate) fn awaits_handling(&mut self, scenario: &ModelScenario, id: WorkerId) -> bool {
        if !scenario.has_queues() || scenario.mistake == PlantedMistake::RerunNotAwaited {
            return false;
        }
        self.write_final_barrier(id);
        // Other workers may have their own connections, which overtake the main one. A client without answers
        // receives all updates on the main connection.
        let is_mixed = scenario.has_callback()
            && scenario.queues.has_answers
            && scenario.mistake != PlantedMistake::RelayNotAwaited;
        if is_mixed && let Some(worker) = self.workers.get_mut(&id).filter(|one| one.route == SimRoute::Relay)
        {
            worker.is_relay_asked = true;
            self.send_to_coordinator(id, SimWorkerMessage::RelayedBarrier);
        }
        !self.workers[&id].is_all_handled()
    }

    /// Returns the frame that a worker's process writes in its next step, if the worker has a stream.
    pub(crate) fn next_update(&self, scenario: &ModelScenario, id: WorkerId) -> Option<SimFrame> {
        let worker = self.workers.get(&id).filter(|worker| scenario.has_queues() && worker.has_stream())?;
        let process = worker.process.as_ref()?;
        let tests = &process.lease.batch.tests;
        match process.phase {
            ProcessPhase::Idle => tests.get(process.next).map(|test| SimFrame::Started(*test)),
            ProcessPhase::Settling { place, step, .. } if is_sending(scenario, step) => {
                Some(SimFrame::Results(vec![(tests[place], ResultSource::Journal(id, worker.position))]))
            }
            ProcessPhase::Running(_)
            | ProcessPhase::Settling { .. }
            | ProcessPhase::AwaitingHandling { .. } => None,
        }
    }
}
