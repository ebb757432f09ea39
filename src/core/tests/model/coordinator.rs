//! The coordinator: it passes received messages to the run as events and carries out the run's actions. The
//! run makes every decision.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use heeler_core::{
    LeaseId, Outcome, ProgramId, Slots, TestId, WorkerId,
    delivery::LastRelayedFrame,
    run::{DueResults, FinisherTask, LostStream, RunAction, RunEvent, RunStage},
};

use crate::{
    rules::{ANSWERED, BrokenRule, CheckResult, check},
    scenario::{ModelScenario, PlantedMistake},
    search::hash,
    streams::{BarrierId, SimMessage, StreamOwner},
    world::{
        ModelWorld, SimCoordinator, SimFinish, SimFrame, SimProcess, SimWatchdog, SimWatchdogMessage,
        SimWorkerMessage,
    },
};

impl ModelWorld {
    /// Passes an event to the run, carries out its actions, and then grants the wanted idle workers.
    pub(crate) fn feed(&mut self, scenario: &ModelScenario, event: RunEvent) {
        self.handle(scenario, event);
        self.grant_idle_workers(scenario);
    }

    /// Returns the workers that the pool considers alive and idle.
    pub(crate) fn idle_workers(&self) -> Vec<WorkerId> {
        let is_idle = |worker: &WorkerId| {
            let coordinator = self.coordinator.as_ref();
            coordinator.is_some_and(|one| !one.lent.contains(worker) && !one.observer.has_lease(*worker))
        };
        self.from_workers.keys().copied().filter(is_idle).collect()
    }

    /// Grants idle workers while the run is below its share, wants more leases, and can begin one.
    pub(crate) fn grant_idle_workers(&mut self, scenario: &ModelScenario) {
        while self.client.broken.is_none()
            && let Some(coordinator) = &self.coordinator
            && let (taken, wanted) = (coordinator.run.slots_taken(), coordinator.run.wanted_slots())
            && taken < wanted.min(Slots(coordinator.observer.share))
            && coordinator.run.can_use_worker()
            && let Some(worker) = self.idle_workers().last().copied()
        {
            self.grant(scenario, worker);
            let run = self.coordinator.as_ref().map(|coordinator| &coordinator.run);
            let has_effect = run.is_none_or(|run| run.slots_taken() > taken || run.wanted_slots() < wanted);
            let released = || format!("{worker:?} is wanted, released, and wanted again");
            self.note_check(check(ANSWERED, has_effect, released));
        }
    }

    /// Grants a worker. A worker granted for the first time may already have listed the first program.
    pub(crate) fn grant(&mut self, scenario: &ModelScenario, worker: WorkerId) {
        let is_known = self.coordinator.as_ref().is_none_or(|one| one.observer.workers.contains_key(&worker));
        if scenario.has_waiting_processes && !is_known {
            self.handle(scenario, RunEvent::ProcessWaiting { worker, program: ProgramId(0) });
        }
        self.handle(scenario, RunEvent::WorkerGranted(worker));
    }

    fn handle(&mut self, scenario: &ModelScenario, event: RunEvent) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let observer = Arc::make_mut(&mut coordinator.observer);
        let before = observer.unproductive.clone();
        observer.on_event(&scenario.plan, &event);
        let actions = Arc::make_mut(&mut coordinator.run).handle(event);
        observer.learn(&scenario.plan, &coordinator.run);
        let checked = observer.check_given_up(&scenario.plan, &before);
        self.note_check(checked);
        self.execute(scenario, actions);
        if let Some(coordinator) = &self.coordinator {
            let checked = coordinator.observer.check_answered();
            self.note_check(checked);
        }
    }

    pub(crate) fn note_check(&mut self, checked: CheckResult) {
        if let Err(BrokenRule { rule, what }) = checked {
            self.client.fail(rule, what);
        }
    }

    /// Checks the run's actions and carries them out. In an abstract scenario, there is no client that could
    /// notice a planted mistake, so the mistake is made before the checks.
    pub(crate) fn execute(&mut self, scenario: &ModelScenario, mut actions: Vec<RunAction>) {
        if scenario.is_abstract() {
            self.make_mistake(scenario, &mut actions);
        }
        if let Some(coordinator) = &mut self.coordinator {
            let stop_reason = coordinator.run.stop_reason();
            let observer = Arc::make_mut(&mut coordinator.observer);
            let mut check = |action| observer.on_action(&scenario.plan, stop_reason, &self.journals, action);
            let checked = actions.iter().try_for_each(&mut check);
            coordinator.run_hash = hash(&(&coordinator.run, &coordinator.observer));
            self.note_check(checked);
        }
        if !scenario.is_abstract() {
            self.make_mistake(scenario, &mut actions);
        }
        for action in actions {
            self.execute_action(scenario, action);
        }
    }

    fn execute_action(&mut self, scenario: &ModelScenario, action: RunAction) {
        match action {
            RunAction::StartWorker
            | RunAction::ReleaseWorker(_)
            | RunAction::DelayRetry { .. }
            | RunAction::LimitSetUp { .. }
            | RunAction::ReturnTests { .. }
            | RunAction::DelayStarts { .. } => {}
            // A message to a dead worker is lost; its death will be noticed.
            RunAction::Lease(lease) => {
                if let Some(worker) = self.workers.get_mut(&lease.worker) {
                    worker.cancel_mode = None;
                    worker.process = Some((*lease).into());
                }
            }
            // An extension after the end of the process is too late.
            RunAction::ExtendLease(lease) => {
                if let Some(process) = self.process_of(lease.worker).filter(|one| one.is_of(lease.lease)) {
                    *process = (*lease).into();
                }
            }
            RunAction::EndLease { worker, lease } => {
                if let Some(process) = self.process_of(worker).filter(|one| one.is_of(lease)) {
                    process.is_ending = true;
                }
            }
            RunAction::CancelLease { worker, mode } => {
                if let Some(worker) = self.workers.get_mut(&worker) {
                    worker.cancel_mode = Some(mode);
                }
            }
            RunAction::Drain(worker) => {
                if let Some(worker) = self.workers.get_mut(&worker) {
                    worker.is_to_drain = true;
                }
            }
            RunAction::Finish(due) => self.order_finish(scenario, due),
            RunAction::KillFinisher => self.kill_watchdog(),
            RunAction::Complete if scenario.is_abstract() => {}
            RunAction::Complete => self.client.respond(),
        }
    }

    fn process_of(&mut self, worker: WorkerId) -> Option<&mut SimProcess> {
        self.workers.get_mut(&worker)?.process.as_mut()
    }

    fn make_mistake(&mut self, scenario: &ModelScenario, actions: &mut Vec<RunAction>) {
        let Some(SimCoordinator { run, has_ordered_finish, .. }) = &self.coordinator else { return };
        let ledger = run.ledger();
        let finish = || {
            let (resend, synthesized) = (ledger.unproven_streams(), ledger.synthesized_results());
            RunAction::Finish(DueResults { resend, synthesized })
        };
        match scenario.mistake {
            PlantedMistake::FinishOnEmptyQueue => {
                let is_empty = run.stage() == RunStage::Running && run.wanted_slots() == run.slots_taken();
                actions.extend((is_empty && !has_ordered_finish).then(finish));
            }
            PlantedMistake::FinishBeforeDrain => {
                let drains = actions.iter_mut().filter(|action| matches!(action, RunAction::Drain(_)));
                drains.for_each(|action| *action = finish());
            }
            PlantedMistake::NoResend => {
                for action in actions {
                    if let RunAction::Finish(due) = action {
                        due.resend.clear();
                    }
                }
            }
            PlantedMistake::IdleProcessForgotten => {
                actions.retain(|action| !matches!(action, RunAction::EndLease { .. }));
            }
            PlantedMistake::UnitsNotHeld => {
                for action in actions {
                    if let RunAction::Lease(lease) = action {
                        lease.portions.iter_mut().for_each(|held| held.unit = 0);
                    }
                }
            }
            PlantedMistake::WorkerKept => {
                actions.retain(|action| !matches!(action, RunAction::ReleaseWorker(_)));
            }
            _ => {}
        }
    }

    fn order_finish(&mut self, scenario: &ModelScenario, due: DueResults) {
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.has_ordered_finish = true;
        let is_relayed = coordinator.is_finish_relayed(scenario);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.relay_if(is_relayed);
            watchdog.take_finish(due.into());
        }
        if scenario.mistake == PlantedMistake::ResponseWithFinish {
            self.client.respond();
        }
    }

    /// Reads a worker's next message.
    pub(crate) fn hear(&mut self, scenario: &ModelScenario, worker: WorkerId) {
        let message = self.from_workers.get_mut(&worker).and_then(VecDeque::pop_front);
        match message {
            Some(SimWorkerMessage::Relayed { frame, position }) => {
                self.client.send_main(&frame);
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.relayed.insert(worker, position);
                    coordinator.has_relayed = scenario.has_queues();
                }
            }
            Some(SimWorkerMessage::RelayedBarrier) => {
                let barrier = SimMessage::Barrier(BarrierId::Relayed(worker));
                self.client.send_message(StreamOwner::Main, barrier);
            }
            Some(message) => {
                message.event(scenario, worker).into_iter().for_each(|event| self.feed(scenario, event))
            }
            None => {}
        }
    }

    /// Requests the journal of a dead worker after all its messages are read.
    pub(crate) fn worker_gone(&mut self, scenario: &ModelScenario, worker: WorkerId) {
        self.from_workers.remove(&worker);
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.lent.remove(&worker);
        let relayed = coordinator.relayed.remove(&worker).unwrap_or(0);
        if coordinator.run.involves(worker) && scenario.mistake != PlantedMistake::JournalNotRequested {
            if scenario.has_queues() {
                self.ask_of_worker(scenario, worker, relayed);
            } else {
                self.request_journal(worker, relayed);
            }
        }
    }

    /// Requests the journal of a dead worker that has this number of proven results.
    pub(crate) fn request_journal(&mut self, worker: WorkerId, proven: u64) {
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.journal_requests.insert(worker, proven);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.journal_requests.insert(worker);
        }
    }

    /// Records that a dead worker's journal is read.
    pub(crate) fn journal_read(&mut self, scenario: &ModelScenario, worker: WorkerId) {
        let Some(coordinator) = &mut self.coordinator else { return };
        if let Some(proven) = coordinator.journal_requests.remove(&worker) {
            self.lose_worker(scenario, worker, proven);
        }
    }

    /// Reports to the run that a worker is lost, with its results proven up to a position.
    pub(crate) fn lose_worker(&mut self, scenario: &ModelScenario, worker: WorkerId, proven: u64) {
        let settled = match scenario.mistake {
            PlantedMistake::JournalNotRead => Vec::new(),
            _ => self.results(scenario, worker),
        };
        let outbox = self.from_workers.remove(&worker).unwrap_or_default();
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.lent.remove(&worker);
        }
        self.feed(scenario, RunEvent::WorkerLost { worker, proven, settled });
        if let Some(coordinator) = &self.coordinator {
            let stale = outbox.into_iter().filter_map(|message| message.event(scenario, worker));
            let checked = coordinator.observer.check_stale(&coordinator.run, worker, stale);
            self.note_check(checked);
        }
    }

    /// Reads the watchdog's next message.
    pub(crate) fn hear_watchdog(&mut self, scenario: &ModelScenario) {
        let Some(message) = self.from_watchdog.pop_front() else { return };
        let Some(coordinator) = &mut self.coordinator else { return };
        match message {
            SimWatchdogMessage::Journal(worker) => self.journal_read(scenario, worker),
            SimWatchdogMessage::Relayed(frame) => {
                let is_held = scenario.mistake != PlantedMistake::CompletionNotHeld;
                let frame = if is_held { coordinator.held.hold(frame) } else { Some(frame) };
                // Frames forwarded by the watchdog are not sent again by another finisher.
                let is_counted = scenario.mistake != PlantedMistake::FinisherStreamAbandoned;
                let is_counted = scenario.has_queues() && frame.is_some() && is_counted;
                coordinator.finish_frames += usize::from(is_counted);
                frame.iter().for_each(|frame| self.client.send_main(frame));
            }
            SimWatchdogMessage::Completing => {
                if scenario.mistake != PlantedMistake::UnannouncedCompletion {
                    self.feed(scenario, RunEvent::Completing);
                }
            }
            SimWatchdogMessage::Finished => {
                let held = coordinator.held.release();
                held.iter().for_each(|frame| self.client.send_main(frame));
                self.feed(scenario, RunEvent::Finished);
            }
        }
    }

    /// Handles the death of the watchdog after all its messages are read.
    pub(crate) fn watchdog_gone(&mut self, scenario: &ModelScenario) {
        if self.ask_of_finisher(scenario) {
            return;
        }
        // Workers that the dead watchdog was starting will never join.
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.held = LastRelayedFrame::default();
        coordinator.watchdogs -= 1;
        let is_last = coordinator.watchdogs == 0;
        for _ in 0..coordinator.observer.starting {
            self.feed(scenario, RunEvent::WorkerNotStarted);
        }
        // Without another watchdog, the coordinator finishes the run itself.
        if is_last {
            return self.finish_ourselves(scenario);
        }
        // Start a new watchdog and pass it the open journal requests.
        let Some(coordinator) = &self.coordinator else { return };
        let journal_requests = coordinator.journal_requests.keys().copied().collect();
        let generation = coordinator.watchdogs;
        let mut watchdog =
            SimWatchdog { has_open_run: false, journal_requests, generation, ..SimWatchdog::new(scenario) };
        watchdog.relay_if(coordinator.has_ordered_finish && coordinator.is_finish_relayed(scenario));
        // Give the new watchdog the rest of the finish.
        let mut is_ours = false;
        let task = coordinator.run.finisher_task();
        if coordinator.is_completion_handled {
            self.watchdog = Some(watchdog);
            return self.feed(scenario, RunEvent::Finished);
        }
        let handled_frames = coordinator.finish_frames;
        match task {
            FinisherTask::Register => watchdog.has_open_run = true,
            FinisherTask::Finish(mut due) => {
                if scenario.mistake == PlantedMistake::NoResend {
                    due.resend.clear();
                }
                let finish = SimFinish::from(due);
                watchdog.take_finish(SimFinish { handled_frames, sent_frames: handled_frames, ..finish });
            }
            FinisherTask::Complete => {
                watchdog.take_finish(SimFinish { is_completion_only: true, ..SimFinish::default() })
            }
            FinisherTask::CoordinatorCompletes => is_ours = true,
            FinisherTask::None => {}
        }
        self.watchdog = Some(watchdog);
        if is_ours {
            self.finish_ourselves(scenario);
        }
    }

    /// The coordinator finishes the run on the main connection.
    fn finish_ourselves(&mut self, scenario: &ModelScenario) {
        let Some(mut coordinator) = self.coordinator.take() else { return };
        let proven = &coordinator.journal_requests;
        let is_mistaken = scenario.mistake == PlantedMistake::ResentFromZero;
        let stream = |worker| LostStream {
            proven: proven.get(&worker).copied().filter(|_| !is_mistaken).unwrap_or(0),
            settled: self.results(scenario, worker),
        };
        let frames = match Arc::make_mut(&mut coordinator.run).complete_without_finisher(stream) {
            FinisherTask::Finish(due) => {
                let handled_frames = coordinator.finish_frames;
                Some(self.due_frames(scenario, &SimFinish { handled_frames, ..due.into() }))
            }
            FinisherTask::Complete => Some(Vec::new()),
            FinisherTask::Register | FinisherTask::CoordinatorCompletes | FinisherTask::None => None,
        };
        coordinator.run_hash = hash(&(&coordinator.run, &coordinator.observer));
        let is_completion_handled = coordinator.is_completion_handled;
        self.coordinator = Some(coordinator);
        if let Some(frames) = frames {
            let completion = Some(&SimFrame::Completion).filter(|_| !is_completion_handled);
            frames.iter().chain(completion).for_each(|frame| self.client.send_main(frame));
            self.client.respond();
        }
    }

    /// Handles a finish that exceeds its deadline.
    pub(crate) fn finish_is_late(&mut self, scenario: &ModelScenario) {
        if scenario.mistake == PlantedMistake::CompletionByBoth {
            self.finish_ourselves(scenario);
        } else {
            self.feed(scenario, RunEvent::FinisherLate);
        }
    }

    fn results(&self, scenario: &ModelScenario, worker: WorkerId) -> Vec<(TestId, Outcome, Duration)> {
        let results = self.journals.get(&worker).into_iter().flat_map(|journal| &journal.results);
        results.map(|(test, outcome)| (*test, *outcome, scenario.test_duration)).collect()
    }
}

impl SimCoordinator {
    /// Returns whether the finish uses the main connection: a completion on another connection would overtake
    /// the frames forwarded there.
    fn is_finish_relayed(&self, scenario: &ModelScenario) -> bool {
        self.has_relayed && scenario.mistake != PlantedMistake::RelayOvertaken
    }
}

impl SimProcess {
    fn is_of(&self, lease: LeaseId) -> bool {
        self.lease.lease == lease
    }
}

impl SimWorkerMessage {
    /// Returns the message as an event of the run.
    fn event(self, scenario: &ModelScenario, worker: WorkerId) -> Option<RunEvent> {
        Some(match self {
            Self::Relayed { .. } | Self::RelayedBarrier => return None,
            Self::Started { lease, test } => RunEvent::Started { lease, test },
            Self::Settled { test, outcome, position } => {
                let duration = scenario.test_duration;
                RunEvent::Settled { worker, test, outcome, duration, position }
            }
            Self::Provisional { lease, test, by } => RunEvent::Provisional { lease, test, by },
            Self::LeaseIdle { lease } => RunEvent::LeaseIdle { worker, lease },
            Self::LeaseEnded { lease, end } => RunEvent::LeaseEnded { worker, lease, end, start: None },
            Self::Drained { proven } => RunEvent::Drained { worker, proven },
        })
    }
}

impl From<DueResults> for SimFinish {
    fn from(due: DueResults) -> Self {
        let synthesized = due.synthesized.into_iter().map(|(test, _)| test).collect();
        Self { resend: due.resend, synthesized, ..Self::default() }
    }
}
