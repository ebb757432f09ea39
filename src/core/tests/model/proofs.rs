//! Proofs over the connections of dead processes, for a client with its own queues. The holder of a
//! duplicated socket completes the cut message, sends its own barrier, and treats everything that the dead
//! process published as handled once the client answers.

use heeler_core::{
    WorkerId,
    delivery::{DeliveryRoute, DeliveryStep, StepResult},
};

use crate::{
    client::CompletionState,
    scenario::{ModelScenario, PlantedMistake},
    streams::{BarrierId, SimMessage, StreamOwner},
    world::{ModelWorld, SimCoordinator, SimFrame, SimWatchdog},
};

impl ModelWorld {
    /// Returns whether the holder of a duplicated socket needs to ask for proof.
    pub(crate) fn is_provable(&self, scenario: &ModelScenario, owner: StreamOwner) -> bool {
        let queues = self.client.queues.as_ref();
        scenario.queues.has_answers && queues.is_some_and(|queues| queues.is_provable(owner))
    }

    fn published(&self, owner: StreamOwner) -> u64 {
        self.client.queues.as_ref().map_or(0, |queues| queues.published(owner))
    }

    /// Completes the cut message and sends a barrier, as the holder of a duplicated socket.
    fn ask(&mut self, scenario: &ModelScenario, owner: StreamOwner, holder: BarrierId) {
        self.complete_cut(scenario, owner);
        self.client.send_message(owner, SimMessage::Barrier(holder));
    }

    fn complete_cut(&mut self, scenario: &ModelScenario, owner: StreamOwner) {
        let Some(queues) = &mut self.client.queues else { return };
        let Some(cut) = queues.cut_message(owner) else { return };
        let is_mistaken = match scenario.mistake {
            PlantedMistake::WrittenBehindCut => cut.is_begun,
            PlantedMistake::BarrierNotPublished => cut.message == SimMessage::Barrier(BarrierId::Coordinator),
            _ => false,
        };
        if !is_mistaken {
            self.client.complete_cut(owner);
        }
    }

    /// Asks for proof over a dead worker's connection, before the coordinator does anything else about it.
    /// `relayed` is the number of its results that went over the main connection.
    pub(crate) fn ask_of_worker(&mut self, scenario: &ModelScenario, worker: WorkerId, relayed: u64) {
        let owner = StreamOwner::Worker(worker);
        if !self.is_provable(scenario, owner) {
            // For a client that never answers, data acknowledged by its kernel counts as received.
            self.complete_cut(scenario, owner);
            return self.request_journal(worker, relayed.max(self.published(owner)));
        }
        self.ask(scenario, owner, BarrierId::Coordinator);
        if scenario.mistake == PlantedMistake::LossNotAwaited {
            self.request_journal(worker, self.published(owner));
        } else if let Some(coordinator) = &mut self.coordinator {
            coordinator.asked.insert(owner);
        }
    }

    /// Kills the coordinator while it writes a barrier.
    pub(crate) fn die_in_barrier(&mut self, worker: WorkerId) {
        let owner = StreamOwner::Worker(worker);
        self.client.complete_cut(owner);
        let barrier = SimMessage::Barrier(BarrierId::Coordinator);
        self.client.queues.iter_mut().for_each(|queues| queues.cut(owner, barrier.clone(), true));
        self.kill_coordinator();
    }

    /// Returns whether the coordinator postpones the handling of a dead watchdog. It waits for proof of the
    /// watchdog's stream and, if it has to finish the run itself, of all streams.
    pub(crate) fn awaits_proof(&self, scenario: &ModelScenario, coordinator: &SimCoordinator) -> bool {
        let finisher = StreamOwner::Finisher(coordinator.watchdogs);
        let is_last = coordinator.watchdogs == 1 && scenario.has_queues();
        let is_awaiting =
            if is_last { !coordinator.asked.is_empty() } else { coordinator.asked.contains(&finisher) };
        is_awaiting || (is_last && !self.from_workers.is_empty())
    }

    /// Asks for proof over a dead watchdog's connection. Returns `false` if there is nothing to ask for, or
    /// the coordinator has the answer.
    pub(crate) fn ask_of_finisher(&mut self, scenario: &ModelScenario) -> bool {
        let Some(coordinator) = &mut self.coordinator else { return false };
        let owner = StreamOwner::Finisher(coordinator.watchdogs);
        if scenario.mistake == PlantedMistake::FinisherStreamAbandoned
            || !coordinator.proven_finishers.insert(owner)
        {
            return false;
        }
        if self.is_provable(scenario, owner) {
            self.ask(scenario, owner, BarrierId::Coordinator);
            self.coordinator.iter_mut().for_each(|coordinator| coordinator.asked.extend([owner]));
            return true;
        }
        self.complete_cut(scenario, owner);
        self.on_finisher_proven(scenario, owner);
        false
    }

    fn on_finisher_proven(&mut self, scenario: &ModelScenario, owner: StreamOwner) {
        let published = self.published(owner);
        let queues = self.client.queues.as_ref();
        let has_completion = queues.is_some_and(|queues| queues.has_published_completion(owner));
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.finish_frames += usize::try_from(published).expect("positions are small");
        if has_completion && scenario.mistake != PlantedMistake::CompletionForgotten {
            coordinator.is_completion_handled = true;
            self.client.completion = CompletionState::Here;
        }
    }

    /// Asks for proof over the connections of all workers, which are dead, as a watchdog without a
    /// coordinator. Returns `false` if there is nothing to ask for.
    pub(crate) fn ask_of_all_workers(&mut self, scenario: &ModelScenario) -> bool {
        let workers = self.journals.keys().map(|worker| StreamOwner::Worker(*worker));
        for owner in workers.collect::<Vec<_>>() {
            if self.is_provable(scenario, owner) {
                self.ask(scenario, owner, BarrierId::Watchdog);
                self.watchdog.iter_mut().for_each(|watchdog| watchdog.asked.extend([owner]));
            } else {
                self.complete_cut(scenario, owner);
            }
        }
        self.watchdog.as_ref().is_some_and(|watchdog| !watchdog.asked.is_empty())
    }

    /// Removes results that the client has handled from those to send again.
    pub(crate) fn skip_proven(&self, scenario: &ModelScenario, resend: &mut [(WorkerId, u64)]) {
        if scenario.has_queues() && scenario.mistake != PlantedMistake::ResentFromZero {
            resend.iter_mut().for_each(|(worker, from)| *from = self.published(StreamOwner::Worker(*worker)));
        }
    }

    /// Records the answer to a barrier on a stream.
    pub(crate) fn on_answer(&mut self, scenario: &ModelScenario, owner: StreamOwner, barrier: BarrierId) {
        match (barrier, owner) {
            (BarrierId::Owner(number), StreamOwner::Worker(worker)) => {
                let window = self.workers.get_mut(&worker).and_then(|worker| worker.window.as_mut());
                window.into_iter().for_each(|window| window.on_answer(number));
            }
            (BarrierId::Owner(number), StreamOwner::Finisher(generation)) => {
                let watchdog = self.watchdog.iter_mut().find(|watchdog| watchdog.generation == generation);
                watchdog.into_iter().for_each(|watchdog| watchdog.answered = number);
            }
            (BarrierId::Owner(_), StreamOwner::Main) => {}
            (BarrierId::Relayed(worker), _) => {
                let worker = self.workers.get_mut(&worker);
                worker.into_iter().for_each(|worker| worker.is_relay_asked = false);
            }
            (BarrierId::Coordinator, owner) => self.on_coordinator_answered(scenario, owner),
            (BarrierId::Watchdog, owner) => self.on_watchdog_answered(scenario, owner),
        }
    }

    fn on_coordinator_answered(&mut self, scenario: &ModelScenario, owner: StreamOwner) {
        let is_asked = |coordinator: &mut SimCoordinator| coordinator.asked.remove(&owner);
        if !self.coordinator.as_mut().is_some_and(is_asked) {
            return;
        }
        match owner {
            StreamOwner::Worker(worker) => {
                let is_mistaken = scenario.mistake == PlantedMistake::ResentFromZero;
                let proven = if is_mistaken { 0 } else { self.published(owner) };
                self.request_journal(worker, proven);
            }
            StreamOwner::Finisher(_) => self.on_finisher_proven(scenario, owner),
            StreamOwner::Main => {}
        }
    }

    fn on_watchdog_answered(&mut self, scenario: &ModelScenario, owner: StreamOwner) {
        let is_last = |watchdog: &mut SimWatchdog| watchdog.asked.remove(&owner) && watchdog.asked.is_empty();
        if self.watchdog.as_mut().is_some_and(is_last) {
            self.settle_orphaned(scenario);
        }
    }

    /// Stops waiting for an answer on a duplicated socket; the stream stays unproven.
    pub(crate) fn give_up_proof(&mut self, scenario: &ModelScenario, owner: StreamOwner) {
        self.client.reset_stream(owner);
        if self.coordinator.is_some() {
            self.on_coordinator_answered(scenario, owner);
        } else {
            self.on_watchdog_answered(scenario, owner);
        }
    }

    /// Returns whether a step of the finish can succeed now.
    pub(crate) fn may_succeed(
        &self,
        scenario: &ModelScenario,
        watchdog: &SimWatchdog,
        step: DeliveryStep,
    ) -> bool {
        if !scenario.has_queues() {
            return true;
        }
        match step {
            DeliveryStep::Prove | DeliveryStep::ProveCompletion => {
                watchdog.answered == watchdog.barriers
                    || !scenario.queues.has_answers
                    || (step == DeliveryStep::ProveCompletion
                        && scenario.mistake == PlantedMistake::ResponseBeforeProof)
            }
            DeliveryStep::Dial
            | DeliveryStep::GiveUp
            | DeliveryStep::SendDue(_)
            | DeliveryStep::Announce
            | DeliveryStep::SendCompletion(_) => true,
        }
    }

    pub(crate) fn send_finisher_barrier(&mut self, watchdog: &mut SimWatchdog) {
        watchdog.barriers += 1;
        let barrier = SimMessage::Barrier(BarrierId::Owner(watchdog.barriers));
        self.client.send_message(StreamOwner::Finisher(watchdog.generation), barrier);
    }

    /// Returns the next frame that the watchdog writes on its own connection.
    pub(crate) fn next_finish_frame(&self, scenario: &ModelScenario) -> Option<SimFrame> {
        let watchdog = self.watchdog.as_ref()?;
        let finish = watchdog.finish.as_ref()?;
        match watchdog.next_step()? {
            DeliveryStep::SendDue(DeliveryRoute::Direct) => {
                let sent = finish.sent_frames - finish.handled_frames;
                self.due_frames(scenario, finish).into_iter().nth(sent)
            }
            DeliveryStep::SendCompletion(DeliveryRoute::Direct) => Some(SimFrame::Completion),
            _ => None,
        }
    }

    /// Sends the next due frame if the watchdog is about to; returns whether it did.
    pub(crate) fn send_finish_frame(&mut self, scenario: &ModelScenario, went: StepResult) -> bool {
        let frame = self.next_finish_frame(scenario).filter(|frame| *frame != SimFrame::Completion);
        let (Some(frame), Some(watchdog), StepResult::Ok) = (frame, &mut self.watchdog, went) else {
            return false;
        };
        watchdog.finish.iter_mut().for_each(|finish| finish.sent_frames += 1);
        let owner = StreamOwner::Finisher(watchdog.generation);
        self.client.send_message(owner, SimMessage::Frame(frame));
        true
    }

    /// Kills the watchdog while it writes its next frame.
    pub(crate) fn kill_watchdog_writing(&mut self, scenario: &ModelScenario, is_begun: bool) {
        let (Some(frame), Some(watchdog)) = (self.next_finish_frame(scenario), &self.watchdog) else {
            return;
        };
        let (owner, message) = (StreamOwner::Finisher(watchdog.generation), SimMessage::Frame(frame));
        self.client.queues.iter_mut().for_each(|queues| queues.cut(owner, message.clone(), is_begun));
        self.kill_watchdog();
    }
}
