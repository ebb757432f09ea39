//! What the coordinator does: it tells its run what it hears, and obeys. Every decision is the run's.

use std::{collections::VecDeque, time::Duration};

use heeler_core::{
    Outcome, TestId, WorkerId,
    delivery::{JournalMark, LastRelayedFrame},
    run::{DueResults, FinisherTask, RunAction, RunEvent, RunStage},
};

use crate::{
    mistakes::PlantedMistake,
    system::{
        ProtocolScenario, ProtocolSystem, SimFinish, SimFrame, SimWatchdog, SimWatchdogMessage,
        SimWorkerMessage,
    },
};

const SHORT: Duration = Duration::from_millis(1);

impl ProtocolSystem {
    /// Tells the run an event and does what it orders.
    pub(crate) fn feed(&mut self, scenario: &ProtocolScenario, event: RunEvent) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let actions = coordinator.run.handle(event);
        self.obey(scenario, actions);
    }

    /// Does what the run orders.
    pub(crate) fn obey(&mut self, scenario: &ProtocolScenario, actions: Vec<RunAction>) {
        for action in actions {
            match action {
                RunAction::StartWorker => {
                    self.coordinator.iter_mut().for_each(|coordinator| coordinator.starting += 1);
                }
                // What is told to the dead is lost; their death is on its way.
                RunAction::Lease(lease) => {
                    if let Some(worker) = self.workers.get_mut(&lease.worker) {
                        worker.is_cancelled = false;
                        worker.hand = Some((*lease).into());
                    }
                }
                RunAction::CancelLease { worker, .. } => {
                    self.workers.get_mut(&worker).into_iter().for_each(|worker| worker.is_cancelled = true);
                }
                RunAction::Drain(worker) => {
                    self.workers.get_mut(&worker).into_iter().for_each(|worker| worker.is_to_drain = true);
                }
                RunAction::Finish(due) => self.order_finish(scenario, due),
                RunAction::KillFinisher => self.kill_watchdog(),
                RunAction::Complete => self.client.answer(),
            }
        }
        if scenario.mistake == PlantedMistake::FinishOnEmptyQueue {
            self.finish_on_empty_queue(scenario);
        }
    }

    fn finish_on_empty_queue(&mut self, scenario: &ProtocolScenario) {
        let Some(coordinator) = &self.coordinator else { return };
        let run = &coordinator.run;
        let is_empty = run.stage() == RunStage::Running && run.wanted_leases() == run.active_leases();
        if is_empty && !coordinator.has_ordered_finish {
            let due = DueResults {
                resend: run.ledger().unproven_streams(),
                synthesized: run.ledger().synthesized_results(),
            };
            self.order_finish(scenario, due);
        }
    }

    fn order_finish(&mut self, scenario: &ProtocolScenario, due: DueResults) {
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.has_ordered_finish = true;
        let finish = finish_of(scenario, due);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.take_finish(finish);
        }
        if scenario.mistake == PlantedMistake::ResponseWithFinish {
            self.client.answer();
        }
    }

    /// Hears what a worker said.
    pub(crate) fn hear(&mut self, scenario: &ProtocolScenario, worker: WorkerId) {
        let Some(message) = self.from_workers.get_mut(&worker).and_then(VecDeque::pop_front) else { return };
        let event = match message {
            SimWorkerMessage::Relayed { frame, position } => {
                self.client.send(&frame, None);
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.relayed.insert(worker, position);
                }
                return;
            }
            SimWorkerMessage::Started { lease, test } => RunEvent::Started { lease, test },
            SimWorkerMessage::Settled { test, outcome, position } => {
                RunEvent::Settled { worker, test, outcome, duration: SHORT, position }
            }
            SimWorkerMessage::Held { lease, test, by } => RunEvent::Provisional { lease, test, by },
            SimWorkerMessage::Ended { lease, end } => {
                RunEvent::LeaseEnded { worker, lease, end, start: None }
            }
            SimWorkerMessage::Drained { proven } => RunEvent::Drained { worker, proven },
        };
        self.feed(scenario, event);
    }

    /// A worker is gone, and all that it said is heard: its journal is asked for.
    pub(crate) fn worker_gone(&mut self, scenario: &ProtocolScenario, worker: WorkerId) {
        self.from_workers.remove(&worker);
        let Some(coordinator) = &mut self.coordinator else { return };
        let relayed = coordinator.relayed.remove(&worker).unwrap_or(0);
        if coordinator.run.involves(worker) && scenario.mistake != PlantedMistake::JournalNotAsked {
            coordinator.asked.insert(worker, relayed);
            if let Some(watchdog) = &mut self.watchdog {
                watchdog.asked.insert(worker);
            }
        }
    }

    fn results(&self, worker: WorkerId) -> Vec<(TestId, Outcome, Duration)> {
        let records = self.journals.get(&worker).into_iter().flatten();
        let settled = records.filter(|(_, said)| *said == JournalMark::Settled);
        settled.map(|(test, _)| (*test, Outcome::Passed, SHORT)).collect()
    }

    /// A dead worker's journal is read.
    pub(crate) fn worker_lost(&mut self, scenario: &ProtocolScenario, worker: WorkerId) {
        let asked = self.coordinator.as_mut().and_then(|coordinator| coordinator.asked.remove(&worker));
        let Some(proven) = asked else { return };
        let mut settled = self.results(worker);
        if scenario.mistake == PlantedMistake::JournalNotRead {
            settled.clear();
        }
        self.feed(scenario, RunEvent::WorkerLost { worker, proven, settled });
    }

    /// Hears what the watchdog said.
    pub(crate) fn hear_watchdog(&mut self, scenario: &ProtocolScenario) {
        let Some(message) = self.from_watchdog.pop_front() else { return };
        match message {
            SimWatchdogMessage::Journal(worker) => self.worker_lost(scenario, worker),
            SimWatchdogMessage::Relayed(frame) => {
                let Some(coordinator) = &mut self.coordinator else { return };
                let is_held = scenario.mistake != PlantedMistake::CompletionNotHeld;
                let frame = if is_held { coordinator.held.hold(frame) } else { Some(frame) };
                frame.iter().for_each(|frame| self.client.send(frame, None));
            }
            SimWatchdogMessage::Completing => {
                if scenario.mistake != PlantedMistake::UnannouncedCompletion {
                    self.feed(scenario, RunEvent::Completing);
                }
            }
            SimWatchdogMessage::Finished => {
                let held = self.coordinator.as_mut().and_then(|coordinator| coordinator.held.release());
                held.iter().for_each(|frame| self.client.send(frame, None));
                self.feed(scenario, RunEvent::Finished);
            }
        }
    }

    /// The watchdog is dead, and all that it said is heard.
    pub(crate) fn watchdog_gone(&mut self, scenario: &ProtocolScenario) {
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.held = LastRelayedFrame::default();
        coordinator.watchdogs -= 1;
        let is_last = coordinator.watchdogs == 0;
        for _ in 0..std::mem::take(&mut coordinator.starting) {
            self.feed(scenario, RunEvent::WorkerNotStarted);
        }
        if is_last {
            self.finish_ourselves();
            return;
        }
        let Some(coordinator) = &self.coordinator else { return };
        let asked = coordinator.asked.keys().copied().collect();
        let mut watchdog = SimWatchdog { has_open_run: false, asked, ..SimWatchdog::new(scenario) };
        let mut is_ours = false;
        match coordinator.run.finisher_task() {
            FinisherTask::Register => watchdog.has_open_run = true,
            FinisherTask::Finish(due) => watchdog.take_finish(finish_of(scenario, due)),
            FinisherTask::Complete => {
                watchdog.take_finish(SimFinish {
                    resend: Vec::new(),
                    told: Vec::new(),
                    is_completion_only: true,
                });
            }
            FinisherTask::CoordinatorCompletes => is_ours = true,
            FinisherTask::None => {}
        }
        self.watchdog = Some(watchdog);
        if is_ours {
            self.finish_ourselves();
        }
    }

    /// The coordinator finishes the run on the main connection.
    pub(crate) fn finish_ourselves(&mut self) {
        let Some(mut coordinator) = self.coordinator.take() else { return };
        let finish = match coordinator.run.complete_without_finisher(|worker| self.results(worker)) {
            FinisherTask::Finish(due) => self.due_frames(&finish_of_due(due)),
            FinisherTask::Complete => Vec::new(),
            FinisherTask::Register | FinisherTask::CoordinatorCompletes | FinisherTask::None => {
                self.coordinator = Some(coordinator);
                return;
            }
        };
        finish.iter().chain([&SimFrame::Completion]).for_each(|frame| self.client.send(frame, None));
        self.client.answer();
        self.coordinator = Some(coordinator);
    }

    /// The finish takes longer than it may.
    pub(crate) fn finish_is_late(&mut self, scenario: &ProtocolScenario) {
        if scenario.mistake == PlantedMistake::CompletionByBoth {
            self.finish_ourselves();
        } else {
            self.feed(scenario, RunEvent::FinisherLate);
        }
    }
}

fn finish_of_due(due: DueResults) -> SimFinish {
    let told = due.synthesized.into_iter().map(|(test, _)| test).collect();
    SimFinish { resend: due.resend, told, is_completion_only: false }
}

fn finish_of(scenario: &ProtocolScenario, due: DueResults) -> SimFinish {
    let mut finish = finish_of_due(due);
    if scenario.mistake == PlantedMistake::NoResend {
        finish.resend.clear();
    }
    finish
}
