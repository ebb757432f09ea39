//! What the watchdog does: it reads journals, finishes the run as [`heeler_core::finish`] says, and settles it when it is left
//! alone.

use heeler_core::{
    WorkerId,
    delivery::{
        Delivery, DeliveryRoute, DeliveryStep, FinisherConnection, JournalMark, StepResult,
        settle_orphaned_run,
    },
};

use crate::{
    client::CompletionState,
    mistakes::PlantedMistake,
    system::{
        ProtocolScenario, ProtocolSystem, ResultSource, SimFinish, SimFrame, SimWatchdog, SimWatchdogMessage,
    },
};

impl SimWatchdog {
    /// Returns what the finish in hand wants done.
    pub(crate) fn order(&self) -> Option<DeliveryStep> {
        self.delivery.as_ref()?.next_step().ok()
    }

    /// Whether a finish is delivered, or can't be, and nobody was told.
    pub(crate) fn has_finished(&self) -> bool {
        self.delivery.as_ref().is_some_and(|delivery| delivery.next_step().is_err())
    }

    /// Whether an order on the own connection fails whatever the client does now.
    pub(crate) fn must_fail(&self, order: DeliveryStep) -> bool {
        let is_own = matches!(
            order,
            DeliveryStep::Prove
                | DeliveryStep::Close
                | DeliveryStep::SendDue(DeliveryRoute::Direct)
                | DeliveryStep::SendCompletion(DeliveryRoute::Direct)
        );
        self.is_reset && is_own
    }

    pub(crate) fn take_finish(&mut self, finish: SimFinish) {
        self.has_open_run = false;
        self.delivery = Some(Delivery::new(self.line, !finish.is_completion_only));
        self.finish = Some(finish);
    }
}

impl ProtocolSystem {
    /// Results of a journal behind a position.
    fn settled_from(&self, worker: WorkerId, proven: u64) -> Vec<(heeler_core::TestId, ResultSource)> {
        let records = self.journals.get(&worker).into_iter().flatten();
        let settled = records.filter(|(_, said)| *said == JournalMark::Settled);
        (1..)
            .zip(settled)
            .map(|(position, (test, _))| (*test, ResultSource::Journal(worker, position)))
            .skip(usize::try_from(proven).expect("positions are small"))
            .collect()
    }

    /// Returns what stands before the completion; the last frame is the attachments' end, too.
    pub(crate) fn due_frames(&self, finish: &SimFinish) -> Vec<SimFrame> {
        let resend = finish.resend.iter().map(|(worker, proven)| self.settled_from(*worker, *proven));
        let told = finish.told.iter().map(|test| (*test, ResultSource::Finisher)).collect();
        let all = resend.filter(|results| !results.is_empty()).chain([told]);
        if finish.is_completion_only { Vec::new() } else { all.map(SimFrame::Results).collect() }
    }

    pub(crate) fn answer_journal(&mut self, worker: WorkerId) {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.asked.remove(&worker);
            self.from_watchdog.push_back(SimWatchdogMessage::Journal(worker));
        }
    }

    /// Obeys the next order of the finish in hand.
    pub(crate) fn deliver(&mut self, went: StepResult) {
        let Some(mut watchdog) = self.watchdog.take() else { return };
        if let (Some(order), Some(finish)) = (watchdog.order(), watchdog.finish.clone()) {
            let went = if self.carry_out(&mut watchdog, &finish, (order, went)) {
                StepResult::Ok
            } else {
                StepResult::Failed
            };
            let delivery = watchdog.delivery.as_mut().expect("it gave the order");
            if self.coordinator.is_none() {
                delivery.lose_relay();
            }
            delivery.on_step_result(went);
            watchdog.line = delivery.connection();
        }
        self.watchdog = Some(watchdog);
    }

    /// The watchdog says that it has finished, which is no longer part of the delivery.
    pub(crate) fn say_finished(&mut self, scenario: &ProtocolScenario) {
        let Some(mut watchdog) = self.watchdog.take() else { return };
        watchdog.delivery = None;
        let finish = watchdog.finish.take();
        if scenario.mistake == PlantedMistake::ResendAfterCompletion {
            let frames = finish.map_or_else(Vec::new, |finish| self.due_frames(&finish));
            for frame in frames {
                self.client.send(&frame, Some(&mut watchdog.unproven));
            }
        }
        self.from_watchdog.extend(self.coordinator.as_ref().map(|_| SimWatchdogMessage::Finished));
        self.watchdog = Some(watchdog);
    }

    fn carry_out(
        &mut self,
        watchdog: &mut SimWatchdog,
        finish: &SimFinish,
        (order, went): (DeliveryStep, StepResult),
    ) -> bool {
        let is_well = went == StepResult::Ok;
        match order {
            DeliveryStep::Dial => {
                watchdog.is_reset = false;
                self.client.has_cut_watchdog |= !is_well;
                is_well
            }
            DeliveryStep::SendDue(way) => {
                let frames = self.due_frames(finish);
                is_well && frames.into_iter().all(|frame| self.send_by(watchdog, way, frame))
            }
            DeliveryStep::SendCompletion(way) => is_well && self.send_by(watchdog, way, SimFrame::Completion),
            DeliveryStep::Prove => {
                if is_well {
                    self.proven(watchdog);
                }
                self.client.has_cut_watchdog |= !is_well;
                is_well
            }
            DeliveryStep::Close => {
                if is_well {
                    self.proven(watchdog);
                }
                watchdog.unproven.clear();
                is_well
            }
            DeliveryStep::Announce => {
                self.from_watchdog.extend(self.coordinator.as_ref().map(|_| SimWatchdogMessage::Completing));
                is_well
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
            DeliveryRoute::Direct => self.client.send(&frame, Some(&mut watchdog.unproven)),
            DeliveryRoute::Relay if self.coordinator.is_none() => return false,
            DeliveryRoute::Relay => self.from_watchdog.push_back(SimWatchdogMessage::Relayed(frame)),
        }
        true
    }

    /// The watchdog sees that its coordinator is dead: it ends all workers, and finishes what it owes.
    pub(crate) fn left_alone(&mut self, scenario: &ProtocolScenario) {
        self.workers.clear();
        let Some(watchdog) = &mut self.watchdog else { return };
        watchdog.is_alone = true;
        watchdog.asked.clear();
        if !watchdog.has_open_run || watchdog.line == FinisherConnection::Relayed {
            return;
        }
        let journals = self.journals.iter().map(|(worker, records)| (*worker, records.as_slice()));
        let due = settle_orphaned_run(scenario.plan.tests.len(), journals);
        let mut told: Vec<_> = due.unfinished.into_iter().map(|(test, _)| test).collect();
        if scenario.mistake == PlantedMistake::NothingDueAlone {
            told.clear();
        }
        watchdog.take_finish(SimFinish { resend: due.resend, told, is_completion_only: false });
    }
}
