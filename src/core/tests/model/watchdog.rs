//! The watchdog: reads journals, finishes the run as [`Delivery`] decides, and settles the run after the
//! coordinator's death.

use heeler_core::{
    TestId, WorkerId,
    delivery::{Delivery, DeliveryRoute, DeliveryStep, FinisherConnection, StepResult, settle_orphaned_run},
};

use crate::{
    client::CompletionState,
    scenario::{ModelScenario, PlantedMistake},
    streams::StreamOwner,
    world::{ModelWorld, ResultSource, SimFinish, SimFrame, SimWatchdog, SimWatchdogMessage},
};

impl SimWatchdog {
    /// Returns the next step of the watchdog's finish.
    pub(crate) fn next_step(&self) -> Option<DeliveryStep> {
        self.delivery.as_ref()?.next_step().ok()
    }

    /// Returns whether a finish is delivered or undeliverable, and not reported yet.
    pub(crate) fn has_finished(&self) -> bool {
        self.delivery.as_ref().is_some_and(|delivery| delivery.next_step().is_err())
    }

    /// Returns whether a step on the watchdog's own connection fails regardless of the client.
    pub(crate) fn must_fail(&self, step: DeliveryStep) -> bool {
        let is_own = matches!(
            step,
            DeliveryStep::Prove
                | DeliveryStep::ProveCompletion
                | DeliveryStep::SendDue(DeliveryRoute::Direct)
                | DeliveryStep::SendCompletion(DeliveryRoute::Direct)
        );
        // A client without answers opens no connection, but another route exists.
        let is_unopened = step == DeliveryStep::Dial && self.is_never_opened && !self.is_alone;
        (self.is_reset && is_own) || is_unopened
    }

    /// Skips the watchdog's own connection if `is_relayed`.
    pub(crate) fn relay_if(&mut self, is_relayed: bool) {
        if is_relayed {
            self.line = FinisherConnection::Relayed;
        }
    }

    pub(crate) fn take_finish(&mut self, finish: SimFinish) {
        self.has_open_run = false;
        self.delivery = Some(Delivery::new(self.line, !finish.is_completion_only));
        self.finish = Some(finish);
    }
}

impl ModelWorld {
    /// Returns the results of a journal after a position.
    fn results_after(&self, worker: WorkerId, proven: u64) -> Vec<(TestId, ResultSource)> {
        let results = self.journals.get(&worker).into_iter().flat_map(|journal| &journal.results);
        (1..)
            .zip(results)
            .map(|(position, (test, _))| (*test, ResultSource::Journal(worker, position)))
            .skip(usize::try_from(proven).expect("positions are small"))
            .collect()
    }

    /// Returns the frames before the completion that no other finisher has sent. For a client without queues,
    /// the last frame is included even if it is empty.
    pub(crate) fn due_frames(&self, scenario: &ModelScenario, finish: &SimFinish) -> Vec<SimFrame> {
        let resend = finish.resend.iter().map(|(worker, proven)| self.results_after(*worker, *proven));
        let synthesized = finish.synthesized.iter().map(|test| (*test, ResultSource::Finisher)).collect();
        let all = resend.filter(|results| !results.is_empty()).chain([synthesized]);
        let all = all.filter(|results| !scenario.has_queues() || !results.is_empty());
        let all = all.map(SimFrame::Results).skip(finish.handled_frames);
        if finish.is_completion_only { Vec::new() } else { all.collect() }
    }

    pub(crate) fn read_journal(&mut self, worker: WorkerId) {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.journal_requests.remove(&worker);
            self.from_watchdog.push_back(SimWatchdogMessage::Journal(worker));
        }
    }

    /// Carries out the next step of the finish. `went` is the result where the client decides.
    pub(crate) fn deliver(&mut self, scenario: &ModelScenario, went: StepResult) {
        if scenario.has_queues() && self.send_finish_frame(scenario, went) {
            return;
        }
        let Some(mut watchdog) = self.watchdog.take() else { return };
        if let (Some(step), Some(finish)) = (watchdog.next_step(), watchdog.finish.clone()) {
            let is_ok = self.carry_out(scenario, &mut watchdog, &finish, step, went == StepResult::Ok);
            let went = if is_ok { StepResult::Ok } else { StepResult::Failed };
            let delivery = watchdog.delivery.as_mut().expect("the step is part of it");
            if self.coordinator.is_none() {
                delivery.lose_relay();
            }
            delivery.on_step_result(went);
            watchdog.line = delivery.connection();
        }
        self.watchdog = Some(watchdog);
    }

    /// Reports that the watchdog has finished; this step is not part of the delivery.
    pub(crate) fn report_finished(&mut self, scenario: &ModelScenario) {
        let Some(mut watchdog) = self.watchdog.take() else { return };
        watchdog.delivery = None;
        let finish = watchdog.finish.take();
        if scenario.mistake == PlantedMistake::ResendAfterCompletion {
            let frames = finish.map_or_else(Vec::new, |finish| self.due_frames(scenario, &finish));
            let owner = StreamOwner::Finisher(watchdog.generation);
            for frame in frames {
                self.client.send(&frame, owner, Some(&mut watchdog.unproven));
            }
        }
        self.from_watchdog.extend(self.coordinator.as_ref().map(|_| SimWatchdogMessage::Finished));
        self.watchdog = Some(watchdog);
    }

    fn carry_out(
        &mut self,
        scenario: &ModelScenario,
        watchdog: &mut SimWatchdog,
        finish: &SimFinish,
        step: DeliveryStep,
        is_ok: bool,
    ) -> bool {
        match step {
            DeliveryStep::Dial => {
                watchdog.is_reset = false;
                self.client.has_cut_watchdog |= !is_ok;
                is_ok
            }
            DeliveryStep::SendDue(way) => {
                let mut frames = self.due_frames(scenario, finish);
                if scenario.has_queues() && way == DeliveryRoute::Direct {
                    // The frames are sent one by one.
                    frames.clear();
                    self.send_finisher_barrier(watchdog);
                }
                is_ok && frames.into_iter().all(|frame| self.send_by(watchdog, way, frame))
            }
            DeliveryStep::SendCompletion(way) => {
                let is_sent = is_ok && self.send_by(watchdog, way, SimFrame::Completion);
                if scenario.has_queues() && way == DeliveryRoute::Direct {
                    self.send_finisher_barrier(watchdog);
                }
                is_sent
            }
            DeliveryStep::Prove | DeliveryStep::ProveCompletion => {
                if is_ok {
                    self.proven(watchdog);
                }
                self.client.has_cut_watchdog |= !is_ok;
                if !is_ok && scenario.has_queues() {
                    // The connection counts as broken by the client, even if it handles some of the messages
                    // later.
                    self.client.reset_stream(StreamOwner::Finisher(watchdog.generation));
                }
                is_ok
            }
            DeliveryStep::GiveUp => {
                watchdog.unproven.clear();
                true
            }
            DeliveryStep::Announce => {
                self.from_watchdog.extend(self.coordinator.as_ref().map(|_| SimWatchdogMessage::Completing));
                is_ok
            }
        }
    }

    fn proven(&mut self, watchdog: &mut SimWatchdog) {
        self.client.read(&mut watchdog.unproven);
        if self.client.completion == CompletionState::Sent {
            self.client.completion = CompletionState::Here;
        }
    }

    fn send_by(&mut self, watchdog: &mut SimWatchdog, way: DeliveryRoute, frame: SimFrame) -> bool {
        match way {
            DeliveryRoute::Direct => {
                let owner = StreamOwner::Finisher(watchdog.generation);
                self.client.send(&frame, owner, Some(&mut watchdog.unproven));
            }
            DeliveryRoute::Relay if self.coordinator.is_none() => return false,
            DeliveryRoute::Relay => self.from_watchdog.push_back(SimWatchdogMessage::Relayed(frame)),
        }
        true
    }

    /// Handles the coordinator's death: ends all workers and finishes an open run.
    pub(crate) fn on_coordinator_lost(&mut self, scenario: &ModelScenario) {
        self.workers.clear();
        let Some(watchdog) = &mut self.watchdog else { return };
        watchdog.is_alone = true;
        watchdog.journal_requests.clear();
        if !watchdog.has_open_run || watchdog.line == FinisherConnection::Relayed {
            return;
        }
        if !self.ask_of_all_workers(scenario) {
            self.settle_orphaned(scenario);
        }
    }

    /// Finishes the run of a dead coordinator.
    pub(crate) fn settle_orphaned(&mut self, scenario: &ModelScenario) {
        let journals = self.journals.iter().map(|(worker, journal)| (*worker, journal.records.as_slice()));
        let mut due = settle_orphaned_run(scenario.plan.tests.len(), journals);
        self.skip_proven(scenario, &mut due.resend);
        let mut synthesized: Vec<_> = due.unfinished.into_iter().map(|(test, _)| test).collect();
        if scenario.mistake == PlantedMistake::NothingDueAlone {
            synthesized.clear();
        }
        let Some(watchdog) = &mut self.watchdog else { return };
        watchdog.take_finish(SimFinish { resend: due.resend, synthesized, ..SimFinish::default() });
    }
}
