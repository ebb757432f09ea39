//! What the coordinator does: it tells its run what it hears, and obeys. Every decision is the run's.

use std::{collections::VecDeque, time::Duration};

use model::{
    Outcome, TestId, WorkerId,
    finish::{HeldFrame, Said},
    run::{Action, Due, Event, Stage, Succession},
};

use crate::{
    mistakes::Mistake,
    system::{Finish, Frame, FromWatchdog, FromWorker, Scenario, System, Watchdog},
};

const SHORT: Duration = Duration::from_millis(1);

impl System {
    /// Tells the run an event and does what it orders.
    pub(crate) fn feed(&mut self, scenario: &Scenario, event: Event) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let actions = coordinator.run.handle(event);
        self.obey(scenario, actions);
    }

    /// Does what the run orders.
    pub(crate) fn obey(&mut self, scenario: &Scenario, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::StartWorker => {
                    self.coordinator.iter_mut().for_each(|coordinator| coordinator.starting += 1);
                }
                // What is told to the dead is lost; their death is on its way.
                Action::Lease(lease) => {
                    if let Some(worker) = self.workers.get_mut(&lease.worker) {
                        worker.is_cancelled = false;
                        worker.hand = Some((*lease).into());
                    }
                }
                Action::CancelLease(worker) => {
                    self.workers.get_mut(&worker).into_iter().for_each(|worker| worker.is_cancelled = true);
                }
                Action::Drain(worker) => {
                    self.workers.get_mut(&worker).into_iter().for_each(|worker| worker.is_to_drain = true);
                }
                Action::Finish(due) => self.order_finish(scenario, due),
                Action::KillFinisher => self.kill_watchdog(),
                Action::Complete => self.client.answer(),
            }
        }
        if scenario.mistake == Mistake::FinishOnEmptyQueue {
            self.finish_on_empty_queue(scenario);
        }
    }

    fn finish_on_empty_queue(&mut self, scenario: &Scenario) {
        let Some(coordinator) = &self.coordinator else { return };
        let run = &coordinator.run;
        let is_empty = run.stage() == Stage::Running && run.wanted_leases() == run.leases_in_hand();
        if is_empty && !coordinator.has_ordered_finish {
            let due = Due { resend: run.ledger().unproven(), told: run.ledger().told() };
            self.order_finish(scenario, due);
        }
    }

    fn order_finish(&mut self, scenario: &Scenario, due: Due) {
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.has_ordered_finish = true;
        let finish = finish_of(scenario, due);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.take_finish(finish);
        }
        if scenario.mistake == Mistake::ResponseWithFinish {
            self.client.answer();
        }
    }

    /// Hears what a worker said.
    pub(crate) fn hear(&mut self, scenario: &Scenario, worker: WorkerId) {
        let Some(message) = self.from_workers.get_mut(&worker).and_then(VecDeque::pop_front) else { return };
        let event = match message {
            FromWorker::Relayed { frame, position } => {
                self.client.send(&frame, None);
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.relayed.insert(worker, position);
                }
                return;
            }
            FromWorker::Started { lease, test } => Event::Started { lease, test },
            FromWorker::Settled { test, outcome, position } => {
                Event::Settled { worker, test, outcome, duration: SHORT, position }
            }
            FromWorker::Held { lease, test, by } => Event::Held { lease, test, by },
            FromWorker::Ended { lease, end } => Event::LeaseEnded { worker, lease, end, start: None },
            FromWorker::Drained { proven } => Event::Drained { worker, proven },
        };
        self.feed(scenario, event);
    }

    /// A worker is gone, and all that it said is heard: its journal is asked for.
    pub(crate) fn worker_gone(&mut self, scenario: &Scenario, worker: WorkerId) {
        self.from_workers.remove(&worker);
        let Some(coordinator) = &mut self.coordinator else { return };
        let relayed = coordinator.relayed.remove(&worker).unwrap_or(0);
        if coordinator.run.has_to_do_with(worker) && scenario.mistake != Mistake::JournalNotAsked {
            coordinator.asked.insert(worker, relayed);
            if let Some(watchdog) = &mut self.watchdog {
                watchdog.asked.insert(worker);
            }
        }
    }

    fn results(&self, worker: WorkerId) -> Vec<(TestId, Outcome, Duration)> {
        let records = self.journals.get(&worker).into_iter().flatten();
        let settled = records.filter(|(_, said)| *said == Said::Settled);
        settled.map(|(test, _)| (*test, Outcome::Passed, SHORT)).collect()
    }

    /// A dead worker's journal is read.
    pub(crate) fn worker_lost(&mut self, scenario: &Scenario, worker: WorkerId) {
        let asked = self.coordinator.as_mut().and_then(|coordinator| coordinator.asked.remove(&worker));
        let Some(proven) = asked else { return };
        let mut settled = self.results(worker);
        if scenario.mistake == Mistake::JournalNotRead {
            settled.clear();
        }
        self.feed(scenario, Event::WorkerLost { worker, proven, settled });
    }

    /// Hears what the watchdog said.
    pub(crate) fn hear_watchdog(&mut self, scenario: &Scenario) {
        let Some(message) = self.from_watchdog.pop_front() else { return };
        match message {
            FromWatchdog::Journal(worker) => self.worker_lost(scenario, worker),
            FromWatchdog::Relayed(frame) => {
                let Some(coordinator) = &mut self.coordinator else { return };
                let is_held = scenario.mistake != Mistake::CompletionNotHeld;
                let frame = if is_held { coordinator.held.relayed(frame) } else { Some(frame) };
                frame.iter().for_each(|frame| self.client.send(frame, None));
            }
            FromWatchdog::Completing => {
                if scenario.mistake != Mistake::UnannouncedCompletion {
                    self.feed(scenario, Event::Completing);
                }
            }
            FromWatchdog::Finished => {
                let held = self.coordinator.as_mut().and_then(|coordinator| coordinator.held.finished());
                held.iter().for_each(|frame| self.client.send(frame, None));
                self.feed(scenario, Event::Finished);
            }
        }
    }

    /// The watchdog is dead, and all that it said is heard.
    pub(crate) fn watchdog_gone(&mut self, scenario: &Scenario) {
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.held = HeldFrame::default();
        coordinator.watchdogs -= 1;
        let is_last = coordinator.watchdogs == 0;
        for _ in 0..std::mem::take(&mut coordinator.starting) {
            self.feed(scenario, Event::WorkerNotStarted);
        }
        if is_last {
            self.finish_ourselves();
            return;
        }
        let Some(coordinator) = &self.coordinator else { return };
        let asked = coordinator.asked.keys().copied().collect();
        let mut watchdog = Watchdog { has_open_run: false, asked, ..Watchdog::new(scenario) };
        let mut is_ours = false;
        match coordinator.run.succession() {
            Succession::Begin => watchdog.has_open_run = true,
            Succession::Finish(due) => watchdog.take_finish(finish_of(scenario, due)),
            Succession::Complete => {
                watchdog.take_finish(Finish {
                    resend: Vec::new(),
                    told: Vec::new(),
                    is_completion_only: true,
                });
            }
            Succession::Alone => is_ours = true,
            Succession::Nothing => {}
        }
        self.watchdog = Some(watchdog);
        if is_ours {
            self.finish_ourselves();
        }
    }

    /// The coordinator finishes the run on the main connection.
    pub(crate) fn finish_ourselves(&mut self) {
        let Some(mut coordinator) = self.coordinator.take() else { return };
        let finish = match coordinator.run.end_alone(|worker| self.results(worker)) {
            Succession::Finish(due) => self.due_frames(&finish_of_due(due)),
            Succession::Complete => Vec::new(),
            Succession::Begin | Succession::Alone | Succession::Nothing => {
                self.coordinator = Some(coordinator);
                return;
            }
        };
        finish.iter().chain([&Frame::Completion]).for_each(|frame| self.client.send(frame, None));
        self.client.answer();
        self.coordinator = Some(coordinator);
    }

    /// The finish takes longer than it may.
    pub(crate) fn finish_is_late(&mut self, scenario: &Scenario) {
        if scenario.mistake == Mistake::CompletionByBoth {
            self.finish_ourselves();
        } else {
            self.feed(scenario, Event::FinisherLate);
        }
    }
}

fn finish_of_due(due: Due) -> Finish {
    let told = due.told.into_iter().map(|(test, _)| test).collect();
    Finish { resend: due.resend, told, is_completion_only: false }
}

fn finish_of(scenario: &Scenario, due: Due) -> Finish {
    let mut finish = finish_of_due(due);
    if scenario.mistake == Mistake::NoResend {
        finish.resend.clear();
    }
    finish
}
