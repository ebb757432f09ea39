//! The possible next steps, their cost to the adversary, and their effects.

use heeler_core::{
    Outcome, ProgramId, Slots, TestId, WorkerId,
    delivery::{DeliveryStep, FinisherConnection, StepResult},
    run::{RunEvent, RunStage},
};

use crate::{
    client::CompletionState,
    observer::ObservedPlace,
    scenario::{ModelFaults, ModelScenario, UNLIMITED},
    streams::StreamOwner,
    worker::WorkerStep,
    world::{ModelWorld, SimCoordinator, SimWorker},
};

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ModelStep {
    Worker(WorkerId, WorkerStep),
    /// A requested worker has started and is granted to the run.
    WorkerStarts,
    WorkerNotStarted,
    /// A test's retry delay is over.
    RetryDue(TestId),
    /// Further processes of a program may start.
    StartsDue(ProgramId),
    /// The coordinator reads a worker's next message.
    Hear(WorkerId),
    /// The coordinator sees the end of a dead worker's connection.
    WorkerGone(WorkerId),
    /// Abstract scenarios only: a worker dies with this number of results proven; its messages are lost.
    WorkerLost(WorkerId, usize),
    /// Abstract scenarios only: a worker has drained with this number of results proven.
    Drained(WorkerId, usize),
    HearWatchdog,
    WatchdogGone,
    /// The watchdog reads a journal.
    ReadJournal(WorkerId),
    /// The watchdog carries out the next step of its finish.
    Deliver(StepResult),
    /// The watchdog reports that it has finished.
    ReportFinished,
    /// Without a watchdog: the run is finished.
    Finished,
    /// The watchdog sees the coordinator's death.
    CoordinatorGone,
    Cancel,
    /// An idle worker is lent to another run.
    Lend(WorkerId),
    /// A lent worker returns.
    GiveBack(WorkerId),
    /// The run's share changes to this number of leases at once.
    Share(usize),
    /// This number of slots becomes unusable by any run.
    Spare(usize),
    /// A test is added to the open run.
    AddTest,
    /// No further test will be added.
    NoMoreTests,
    KillCoordinator,
    KillWatchdog,
    ResetWatchdog,
    /// The deadline of the finish passes.
    FinishLate,
    /// The deadline for reading a journal passes, so the coordinator reads it itself.
    JournalLate(WorkerId),
    /// The client reads the next message of a stream into its queue.
    Read(StreamOwner),
    /// The client handles the next message of a queue.
    Handle(StreamOwner),
    /// The client drops its unhandled messages of a stream that it reset.
    Forget(StreamOwner),
    /// The client leaves a dead process's connection unanswered for too long: the connection counts as reset.
    GiveUpProof(StreamOwner),
    /// The coordinator dies while writing a barrier on a dead worker's connection.
    DieInBarrier(WorkerId),
    /// The watchdog dies while writing the next frame of its finish, which is written in part or not at all.
    KillWatchdogWriting(bool),
}

impl ModelFaults {
    /// Returns the budget that pays for a step; `None` if the step is not a fault.
    fn budget(&mut self, world: &ModelWorld, step: ModelStep) -> Option<&mut u8> {
        match step {
            ModelStep::Worker(id, step) => match step {
                WorkerStep::End(Outcome::Failed) => Some(&mut self.failures),
                WorkerStep::End(Outcome::TimedOut) => Some(&mut self.deaths),
                WorkerStep::LoseGuard => Some(&mut self.guards),
                WorkerStep::DieInTest
                | WorkerStep::Refused
                | WorkerStep::OpenedLate
                | WorkerStep::Unanswered
                | WorkerStep::Reset
                | WorkerStep::Die => Some(&mut self.deaths),
                // The watchdog kills the workers once the coordinator is dead.
                WorkerStep::DieWriting(..) => world.coordinator.as_ref().map(|_| &mut self.deaths),
                _ => world.workers[&id].is_process_fault(step).then_some(&mut self.deaths),
            },
            ModelStep::Deliver(StepResult::Failed) => {
                let watchdog = world.watchdog.as_ref();
                let may_succeed = watchdog.is_some_and(|watchdog| {
                    let is_choice = |step| !watchdog.must_fail(step);
                    watchdog.next_step().is_some_and(is_choice)
                });
                may_succeed.then_some(&mut self.deaths)
            }
            ModelStep::WorkerNotStarted
            | ModelStep::WorkerLost(..)
            | ModelStep::KillCoordinator
            | ModelStep::KillWatchdog
            | ModelStep::ResetWatchdog
            | ModelStep::FinishLate
            | ModelStep::DieInBarrier(_)
            | ModelStep::GiveUpProof(_)
            | ModelStep::KillWatchdogWriting(_)
            | ModelStep::JournalLate(_) => Some(&mut self.deaths),
            ModelStep::Cancel => Some(&mut self.cancels),
            ModelStep::Lend(_) | ModelStep::Spare(_) => Some(&mut self.loans),
            // No run stays without a share forever.
            ModelStep::Share(share) => {
                let observer = &world.coordinator.as_ref()?.observer;
                (observer.share > 0 || share < observer.slots).then_some(&mut self.loans)
            }
            ModelStep::Deliver(StepResult::Ok)
            | ModelStep::WorkerStarts
            | ModelStep::RetryDue(_)
            | ModelStep::StartsDue(_)
            | ModelStep::Hear(_)
            | ModelStep::WorkerGone(_)
            | ModelStep::Drained(..)
            | ModelStep::HearWatchdog
            | ModelStep::WatchdogGone
            | ModelStep::ReadJournal(_)
            | ModelStep::ReportFinished
            | ModelStep::Finished
            | ModelStep::AddTest
            | ModelStep::NoMoreTests
            | ModelStep::CoordinatorGone
            | ModelStep::Read(_)
            | ModelStep::Handle(_)
            | ModelStep::Forget(_)
            | ModelStep::GiveBack(_) => None,
        }
    }
}

impl ModelWorld {
    /// Returns whether a step is a fault that a budget pays for.
    pub(crate) fn is_fault(&self, step: ModelStep) -> bool {
        { self.faults }.budget(self, step).is_some()
    }

    /// Returns whether the coordinator has a message to read, which is always a possible step.
    pub(crate) fn can_hear(&self) -> bool {
        let is_over = self.client.broken.is_some() || self.client.has_response;
        self.coordinator.is_some() && !is_over && self.from_workers.values().any(|outbox| !outbox.is_empty())
    }

    /// Lists all steps possible now.
    pub(crate) fn steps(&self, scenario: &ModelScenario, steps: &mut Vec<ModelStep>) {
        if self.client.broken.is_some() {
            return;
        }
        self.client_steps(steps);
        let is_cut_off = self.coordinator.is_none() && !scenario.has_callback();
        let is_completed = scenario.is_abstract() && self.has_ended_well(scenario);
        if self.client.has_response || is_cut_off || is_completed {
            return;
        }
        for (id, worker) in &self.workers {
            self.worker_steps(scenario, *id, worker, steps);
        }
        if let Some(coordinator) = &self.coordinator {
            self.run_steps(scenario, coordinator, steps);
            if !scenario.is_abstract() {
                self.connection_steps(scenario, coordinator, steps);
            }
        }
        self.watchdog_steps(scenario, steps);
        let mut faults = self.faults;
        steps.retain(|step| faults.budget(self, *step).is_none_or(|left| *left > 0));
    }

    fn worker_steps(
        &self,
        scenario: &ModelScenario,
        id: WorkerId,
        worker: &SimWorker,
        steps: &mut Vec<ModelStep>,
    ) {
        let mut own = Vec::new();
        let under_way = self.from_workers.get(&id).map_or(0, |outbox| outbox.len());
        if under_way < scenario.outbox {
            worker.process_steps(scenario, &mut own);
        }
        if !scenario.is_abstract() {
            worker.connection_steps(scenario, &mut own);
            own.push(WorkerStep::Die);
            let update = self.next_update(scenario, id);
            own.extend(update.into_iter().flat_map(|update| worker.writing_deaths(update)));
            return steps.extend(own.into_iter().map(|step| ModelStep::Worker(id, step)));
        }
        steps.extend(own.into_iter().map(|step| ModelStep::Worker(id, step)));
        let count = self.journals.get(&id).map_or(0, |journal| journal.results.len());
        // If processes may die at any time, fewer cases are enough.
        let is_endless = self.faults.deaths == UNLIMITED;
        let mut proofs = vec![0, count.min(1), count].split_off(usize::from(is_endless));
        proofs.dedup();
        if worker.is_to_drain && under_way == 0 {
            steps.extend(proofs.iter().map(|proven| ModelStep::Drained(id, *proven)));
        }
        steps.extend(proofs.iter().map(|proven| ModelStep::WorkerLost(id, *proven)));
    }

    fn run_steps(&self, scenario: &ModelScenario, coordinator: &SimCoordinator, steps: &mut Vec<ModelStep>) {
        let observer = &coordinator.observer;
        let heard = self.from_workers.iter().filter(|(_, outbox)| !outbox.is_empty());
        steps.extend(heard.map(|(id, _)| ModelStep::Hear(*id)));
        if observer.starting > 0 && (self.watchdog.is_some() || scenario.is_abstract()) {
            steps.extend([ModelStep::WorkerStarts, ModelStep::WorkerNotStarted]);
        }
        let delayed = observer.tests.iter().enumerate();
        let delayed = delayed.filter(|(_, observed)| observed.place == ObservedPlace::Delayed);
        steps.extend(delayed.map(|(place, _)| ModelStep::RetryDue(TestId(place as u32))));
        steps.extend(observer.held.iter().map(|program| ModelStep::StartsDue(*program)));
        if observer.is_finishing && scenario.is_abstract() {
            steps.push(ModelStep::Finished);
        }
        if coordinator.run.stage() == RunStage::Running || scenario.is_abstract() {
            steps.push(ModelStep::Cancel);
        }
        steps.extend(coordinator.lent.iter().map(|id| ModelStep::GiveBack(*id)));
        steps.extend(self.idle_workers().into_iter().map(ModelStep::Lend));
        let shares = (0..=scenario.plan.slots).filter(|share| *share != observer.share);
        steps.extend(shares.map(ModelStep::Share));
        if observer.is_open {
            let is_left = observer.tests.len() < scenario.plan.tests.len();
            steps.push(if is_left { ModelStep::AddTest } else { ModelStep::NoMoreTests });
        }
        let takes_back = scenario.plan.programs.iter().any(|costs| costs.process.ends_between_tests);
        let spares = [0, 1].into_iter().filter(|spare| takes_back && *spare != observer.spare_slots);
        steps.extend(spares.map(ModelStep::Spare));
    }

    fn connection_steps(
        &self,
        scenario: &ModelScenario,
        coordinator: &SimCoordinator,
        steps: &mut Vec<ModelStep>,
    ) {
        let gone = |(id, outbox): &(&WorkerId, &std::collections::VecDeque<_>)| {
            outbox.is_empty() && !self.workers.contains_key(id)
        };
        let gone = self.from_workers.iter().filter(gone);
        for (id, _) in gone {
            steps.push(ModelStep::WorkerGone(*id));
            let has_barrier = self.is_provable(scenario, StreamOwner::Worker(*id));
            steps.extend(has_barrier.then_some(ModelStep::DieInBarrier(*id)));
        }
        if !self.from_watchdog.is_empty() {
            steps.push(ModelStep::HearWatchdog);
        } else if self.watchdog.is_none() && !self.awaits_proof(scenario, coordinator) {
            steps.push(ModelStep::WatchdogGone);
        }
        if scenario.may_break() {
            steps.extend(coordinator.asked.iter().map(|owner| ModelStep::GiveUpProof(*owner)));
        }
        let run = &coordinator.run;
        let is_finishing = run.stage() == RunStage::Finishing && self.watchdog.is_some();
        if is_finishing && !run.is_finisher_given_up() {
            steps.push(ModelStep::FinishLate);
        }
        steps.extend(coordinator.journal_requests.keys().map(|worker| ModelStep::JournalLate(*worker)));
        steps.push(ModelStep::KillCoordinator);
    }

    fn watchdog_steps(&self, scenario: &ModelScenario, steps: &mut Vec<ModelStep>) {
        let Some(watchdog) = &self.watchdog else { return };
        steps.extend(watchdog.journal_requests.iter().map(|worker| ModelStep::ReadJournal(*worker)));
        if scenario.may_break() {
            steps.extend(watchdog.asked.iter().map(|owner| ModelStep::GiveUpProof(*owner)));
        }
        if self.coordinator.is_none() && !watchdog.is_alone {
            steps.push(ModelStep::CoordinatorGone);
        }
        if watchdog.has_finished() {
            steps.push(ModelStep::ReportFinished);
        }
        if let Some(step) = watchdog.next_step() {
            let must_fail = watchdog.must_fail(step);
            let may_fail =
                matches!(step, DeliveryStep::Dial | DeliveryStep::Prove | DeliveryStep::ProveCompletion);
            let may_fail = may_fail && scenario.may_break();
            let may_succeed = !must_fail && self.may_succeed(scenario, watchdog, step);
            steps.extend(may_succeed.then_some(ModelStep::Deliver(StepResult::Ok)));
            steps.extend((may_fail || must_fail).then_some(ModelStep::Deliver(StepResult::Failed)));
            let writes =
                scenario.has_queues() && !watchdog.is_reset && self.next_finish_frame(scenario).is_some();
            steps.extend([false, true].map(ModelStep::KillWatchdogWriting).into_iter().filter(|_| writes));
        }
        if watchdog.line == FinisherConnection::Open && !watchdog.is_reset && scenario.may_break() {
            steps.push(ModelStep::ResetWatchdog);
        }
        steps.push(ModelStep::KillWatchdog);
    }

    /// Carries out a step.
    pub(crate) fn take(&mut self, scenario: &ModelScenario, step: ModelStep) {
        let mut faults = self.faults;
        if let Some(left) = faults.budget(self, step).filter(|left| **left != UNLIMITED) {
            *left -= 1;
        }
        self.faults = faults;
        match step {
            ModelStep::Worker(worker, step) => self.work(scenario, worker, step),
            ModelStep::WorkerStarts => {
                let Some(coordinator) = &mut self.coordinator else { return };
                let worker = WorkerId(coordinator.next_worker);
                coordinator.next_worker += 1;
                self.add_worker(scenario, worker);
                self.grant(scenario, worker);
                self.grant_idle_workers(scenario);
            }
            ModelStep::WorkerNotStarted => self.feed(scenario, RunEvent::WorkerNotStarted),
            ModelStep::RetryDue(test) => self.feed(scenario, RunEvent::RetryDue(test)),
            ModelStep::StartsDue(program) => self.feed(scenario, RunEvent::StartsDue(program)),
            ModelStep::Hear(worker) => self.hear(scenario, worker),
            ModelStep::WorkerGone(worker) => self.worker_gone(scenario, worker),
            ModelStep::WorkerLost(worker, proven) => {
                self.workers.remove(&worker);
                self.lose_worker(scenario, worker, proven as u64);
            }
            ModelStep::Drained(worker, proven) => {
                self.workers.get_mut(&worker).into_iter().for_each(|worker| worker.is_to_drain = false);
                self.feed(scenario, RunEvent::Drained { worker, proven: proven as u64 });
            }
            ModelStep::HearWatchdog => self.hear_watchdog(scenario),
            ModelStep::WatchdogGone => self.watchdog_gone(scenario),
            ModelStep::ReadJournal(worker) => self.read_journal(worker),
            ModelStep::Deliver(result) => self.deliver(scenario, result),
            ModelStep::ReportFinished => self.report_finished(scenario),
            ModelStep::Finished => self.feed(scenario, RunEvent::Finished),
            ModelStep::CoordinatorGone => self.on_coordinator_lost(scenario),
            ModelStep::Cancel => self.feed(scenario, RunEvent::Cancel),
            ModelStep::Lend(worker) => {
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.lent.insert(worker);
                }
            }
            ModelStep::GiveBack(worker) => {
                if let Some(coordinator) = &mut self.coordinator {
                    coordinator.lent.remove(&worker);
                }
                self.grant_idle_workers(scenario);
            }
            ModelStep::Share(share) => self.feed(scenario, RunEvent::SlotShare(Slots(share))),
            ModelStep::Spare(spare) => self.feed(scenario, RunEvent::SpareSlots(Slots(spare))),
            ModelStep::AddTest => {
                let Some(coordinator) = &self.coordinator else { return };
                let next = scenario.plan.tests[coordinator.observer.tests.len()].clone();
                self.feed(scenario, RunEvent::TestsAdded(vec![next]));
            }
            ModelStep::NoMoreTests => self.feed(scenario, RunEvent::NoMoreTests),
            ModelStep::KillCoordinator => self.kill_coordinator_of(scenario),
            ModelStep::KillWatchdog => self.kill_watchdog(),
            ModelStep::ResetWatchdog => {
                self.client.has_cut_watchdog = true;
                self.watchdog.iter_mut().for_each(|watchdog| {
                    watchdog.is_reset = true;
                    watchdog.unproven.clear();
                });
                if let Some(watchdog) = &self.watchdog {
                    self.client.reset_stream(StreamOwner::Finisher(watchdog.generation));
                }
            }
            ModelStep::FinishLate => self.finish_is_late(scenario),
            ModelStep::JournalLate(worker) => self.journal_read(scenario, worker),
            ModelStep::Read(owner) => self.read_next(scenario, owner),
            ModelStep::Handle(owner) => self.handle_next(scenario, owner),
            ModelStep::Forget(owner) => self.forget(owner),
            ModelStep::GiveUpProof(owner) => self.give_up_proof(scenario, owner),
            ModelStep::DieInBarrier(worker) => self.die_in_barrier(worker),
            ModelStep::KillWatchdogWriting(is_begun) => self.kill_watchdog_writing(scenario, is_begun),
        }
    }

    /// Returns whether the completion has become unreachable: the coordinator is dead, and so is the watchdog
    /// or its connection to the client.
    fn is_beyond_promise(&self, scenario: &ModelScenario) -> bool {
        let has_watchdog_way = scenario.has_callback() && !self.client.has_cut_watchdog;
        self.coordinator.is_none() && (self.watchdog.is_none() || !has_watchdog_way)
    }

    /// Returns whether a path may end in this state.
    pub(crate) fn has_ended_well(&self, scenario: &ModelScenario) -> bool {
        if scenario.is_abstract() {
            return self.coordinator.as_ref().is_some_and(|coordinator| coordinator.observer.is_completed);
        }
        let is_answered = self.client.has_response || self.coordinator.is_none();
        let is_handled = self.client.queues.as_ref().is_none_or(|queues| queues.has_handled_completion);
        let is_completed = self.client.completion == CompletionState::Here && is_handled;
        (is_completed && is_answered) || self.is_beyond_promise(scenario)
    }
}
