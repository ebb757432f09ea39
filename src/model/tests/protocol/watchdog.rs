//! What the watchdog does: it reads journals, finishes the run as [`model::finish`] says, and settles it when it is left
//! alone.

use model::{
    WorkerId,
    finish::{Delivery, Line, Order, Said, Way, Went, settle_alone},
};

use crate::{
    client::Completion,
    mistakes::Mistake,
    system::{Finish, Frame, FromWatchdog, Scenario, Source, System, Watchdog},
};

impl Watchdog {
    /// Returns what the finish in hand wants done.
    pub(crate) fn order(&self) -> Option<Order> {
        self.delivery.as_ref()?.order().ok()
    }

    /// Whether a finish is delivered, or can't be, and nobody was told.
    pub(crate) fn has_finished(&self) -> bool {
        self.delivery.as_ref().is_some_and(|delivery| delivery.order().is_err())
    }

    /// Whether an order on the own connection fails whatever the client does now.
    pub(crate) fn must_fail(&self, order: Order) -> bool {
        let is_own = matches!(
            order,
            Order::Prove | Order::Close | Order::SendDue(Way::Own) | Order::SendCompletion(Way::Own)
        );
        self.is_reset && is_own
    }

    pub(crate) fn take_finish(&mut self, finish: Finish) {
        self.has_open_run = false;
        self.delivery = Some(Delivery::new(self.line, !finish.is_completion_only));
        self.finish = Some(finish);
    }
}

impl System {
    /// Results of a journal behind a position.
    fn settled_from(&self, worker: WorkerId, proven: u64) -> Vec<(model::TestId, Source)> {
        let records = self.journals.get(&worker).into_iter().flatten();
        let settled = records.filter(|(_, said)| *said == Said::Settled);
        (1..)
            .zip(settled)
            .map(|(position, (test, _))| (*test, Source::Journal(worker, position)))
            .skip(usize::try_from(proven).expect("positions are small"))
            .collect()
    }

    /// Returns what stands before the completion; the last frame is the attachments' end, too.
    pub(crate) fn due_frames(&self, finish: &Finish) -> Vec<Frame> {
        let resend = finish.resend.iter().map(|(worker, proven)| self.settled_from(*worker, *proven));
        let told = finish.told.iter().map(|test| (*test, Source::Finisher)).collect();
        let all = resend.filter(|results| !results.is_empty()).chain([told]);
        if finish.is_completion_only { Vec::new() } else { all.map(Frame::Results).collect() }
    }

    pub(crate) fn answer_journal(&mut self, worker: WorkerId) {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.asked.remove(&worker);
            self.from_watchdog.push_back(FromWatchdog::Journal(worker));
        }
    }

    /// Obeys the next order of the finish in hand.
    pub(crate) fn deliver(&mut self, went: Went) {
        let Some(mut watchdog) = self.watchdog.take() else { return };
        if let (Some(order), Some(finish)) = (watchdog.order(), watchdog.finish.clone()) {
            let went =
                if self.carry_out(&mut watchdog, &finish, (order, went)) { Went::Well } else { Went::Badly };
            let delivery = watchdog.delivery.as_mut().expect("it gave the order");
            if self.coordinator.is_none() {
                delivery.lose_relay();
            }
            delivery.went(went);
            watchdog.line = delivery.line();
        }
        self.watchdog = Some(watchdog);
    }

    /// The watchdog says that it has finished, which is no longer part of the delivery.
    pub(crate) fn say_finished(&mut self, scenario: &Scenario) {
        let Some(mut watchdog) = self.watchdog.take() else { return };
        watchdog.delivery = None;
        let finish = watchdog.finish.take();
        if scenario.mistake == Mistake::ResendAfterCompletion {
            let frames = finish.map_or_else(Vec::new, |finish| self.due_frames(&finish));
            for frame in frames {
                self.client.send(&frame, Some(&mut watchdog.unproven));
            }
        }
        self.from_watchdog.extend(self.coordinator.as_ref().map(|_| FromWatchdog::Finished));
        self.watchdog = Some(watchdog);
    }

    fn carry_out(&mut self, watchdog: &mut Watchdog, finish: &Finish, (order, went): (Order, Went)) -> bool {
        let is_well = went == Went::Well;
        match order {
            Order::Dial => {
                watchdog.is_reset = false;
                self.client.has_cut_watchdog |= !is_well;
                is_well
            }
            Order::SendDue(way) => {
                let frames = self.due_frames(finish);
                is_well && frames.into_iter().all(|frame| self.send_by(watchdog, way, frame))
            }
            Order::SendCompletion(way) => is_well && self.send_by(watchdog, way, Frame::Completion),
            Order::Prove => {
                if is_well {
                    self.proven(watchdog);
                }
                self.client.has_cut_watchdog |= !is_well;
                is_well
            }
            Order::Close => {
                if is_well {
                    self.proven(watchdog);
                }
                watchdog.unproven.clear();
                is_well
            }
            Order::Announce => {
                self.from_watchdog.extend(self.coordinator.as_ref().map(|_| FromWatchdog::Completing));
                is_well
            }
        }
    }

    fn proven(&mut self, watchdog: &mut Watchdog) {
        self.client.read(&mut watchdog.unproven);
        if self.client.completion == Completion::Sent {
            self.client.completion = Completion::Here;
        }
    }

    fn send_by(&mut self, watchdog: &mut Watchdog, way: Way, frame: Frame) -> bool {
        match way {
            Way::Own => self.client.send(&frame, Some(&mut watchdog.unproven)),
            Way::Relay if self.coordinator.is_none() => return false,
            Way::Relay => self.from_watchdog.push_back(FromWatchdog::Relayed(frame)),
        }
        true
    }

    /// The watchdog sees that its coordinator is dead: it ends all workers, and finishes what it owes.
    pub(crate) fn left_alone(&mut self, scenario: &Scenario) {
        self.workers.clear();
        let Some(watchdog) = &mut self.watchdog else { return };
        watchdog.is_alone = true;
        watchdog.asked.clear();
        if !watchdog.has_open_run || watchdog.line == Line::Relayed {
            return;
        }
        let journals = self.journals.iter().map(|(worker, records)| (*worker, records.as_slice()));
        let due = settle_alone(scenario.plan.tests.len(), journals);
        let mut told: Vec<_> = due.told.into_iter().map(|(test, _)| test).collect();
        if scenario.mistake == Mistake::NothingDueAlone {
            told.clear();
        }
        watchdog.take_finish(Finish { resend: due.resend, told, is_completion_only: false });
    }
}
