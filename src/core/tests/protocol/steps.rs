//! What can happen next, and the model that the checker walks through.

use heeler_core::{
    WorkerId,
    delivery::{DeliveryStep, StepResult},
    run::{RunEvent, RunStage},
};
use stateright::{Model, Property};

use crate::{
    client::{BrokenRule, CompletionState},
    system::{ProtocolScenario, ProtocolSystem},
    worker::SimWorkerStep,
};

/// The properties.
pub(crate) const ONE_RESULT: &str = "a test has one result";
pub(crate) const COMPLETE: &str = "at the completion the client has a result of every test";
pub(crate) const NOTHING_AFTER: &str = "nothing but a completion follows a completion";
pub(crate) const RESPONSE: &str = "there is one response, behind the completion";
pub(crate) const REACHED: &str = "a path that ends, ends with the completion";
pub(crate) const ENDS: &str = "every path ends";

/// No path is longer, whatever happens on it.
const LONGEST_PATH: u16 = 400;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProtocolStep {
    Worker(WorkerId, SimWorkerStep),
    /// A worker that was asked for is there.
    WorkerStarts,
    WorkerNotStarted,
    /// The coordinator hears a worker's next message.
    Hear(WorkerId),
    /// It hears the end of a dead worker.
    WorkerGone(WorkerId),
    HearWatchdog,
    WatchdogGone,
    /// The watchdog reads a journal.
    ReadJournal(WorkerId),
    /// The watchdog obeys the next order of its finish.
    Deliver(StepResult),
    /// It says that it has finished.
    SayFinished,
    /// The watchdog sees the coordinator's death.
    LeftAlone,
    Cancel,
    // Faults.
    KillCoordinator,
    KillWatchdog,
    ResetWatchdog,
    /// The deadline of the finish passes.
    FinishLate,
    /// The deadline of reading a journal passes: the coordinator reads it itself.
    JournalLate(WorkerId),
}

impl ProtocolStep {
    /// Whether it is one of the deaths.
    pub(crate) fn is_fault(self, system: &ProtocolSystem) -> bool {
        match self {
            Self::Worker(_, deed) => deed.is_fault(),
            Self::KillCoordinator
            | Self::KillWatchdog
            | Self::ResetWatchdog
            | Self::FinishLate
            | Self::JournalLate(_)
            | Self::WorkerNotStarted => true,
            Self::Deliver(StepResult::Failed) => system.watchdog.as_ref().is_some_and(|watchdog| {
                watchdog
                    .order()
                    .is_some_and(|order| order != DeliveryStep::Close && !watchdog.must_fail(order))
            }),
            Self::Deliver(StepResult::Ok)
            | Self::SayFinished
            | Self::WorkerStarts
            | Self::Hear(_)
            | Self::WorkerGone(_)
            | Self::HearWatchdog
            | Self::WatchdogGone
            | Self::ReadJournal(_)
            | Self::LeftAlone
            | Self::Cancel => false,
        }
    }
}

impl ProtocolSystem {
    fn steps(&self, scenario: &ProtocolScenario) -> Vec<ProtocolStep> {
        let mut steps = Vec::new();
        let is_client_cut_off = self.coordinator.is_none() && !scenario.has_callback;
        if self.client.broken.is_some() || self.client.has_response || is_client_cut_off {
            return steps;
        }
        self.worker_steps(scenario, &mut steps);
        if self.coordinator.is_some() {
            self.coordinator_steps(&mut steps);
        }
        self.watchdog_steps(&mut steps);
        if self.faults.deaths == 0 {
            steps.retain(|step| !step.is_fault(self));
        }
        steps
    }

    fn worker_steps(&self, scenario: &ProtocolScenario, steps: &mut Vec<ProtocolStep>) {
        let mut deeds = Vec::new();
        for (id, worker) in &self.workers {
            deeds.clear();
            worker.deeds(scenario, &mut deeds);
            deeds.push(SimWorkerStep::Die);
            deeds.retain(|deed| *deed != SimWorkerStep::Fail || self.faults.failures > 0);
            steps.extend(deeds.iter().map(|deed| ProtocolStep::Worker(*id, *deed)));
        }
    }

    fn coordinator_steps(&self, steps: &mut Vec<ProtocolStep>) {
        let Some(coordinator) = &self.coordinator else { return };
        for (id, queue) in &self.from_workers {
            if !queue.is_empty() {
                steps.push(ProtocolStep::Hear(*id));
            } else if !self.workers.contains_key(id) {
                steps.push(ProtocolStep::WorkerGone(*id));
            }
        }
        if !self.from_watchdog.is_empty() {
            steps.push(ProtocolStep::HearWatchdog);
        } else if self.watchdog.is_none() {
            steps.push(ProtocolStep::WatchdogGone);
        }
        if coordinator.starting > 0 && self.watchdog.is_some() {
            steps.extend([ProtocolStep::WorkerStarts, ProtocolStep::WorkerNotStarted]);
        }
        if self.faults.cancels > 0 && coordinator.run.stage() == RunStage::Running {
            steps.push(ProtocolStep::Cancel);
        }
        let is_finishing = coordinator.run.stage() == RunStage::Finishing && self.watchdog.is_some();
        if is_finishing && !coordinator.run.is_finisher_given_up() {
            steps.push(ProtocolStep::FinishLate);
        }
        steps.extend(coordinator.asked.keys().map(|worker| ProtocolStep::JournalLate(*worker)));
        steps.push(ProtocolStep::KillCoordinator);
    }

    fn watchdog_steps(&self, steps: &mut Vec<ProtocolStep>) {
        let Some(watchdog) = &self.watchdog else { return };
        steps.extend(watchdog.asked.iter().map(|worker| ProtocolStep::ReadJournal(*worker)));
        if self.coordinator.is_none() && !watchdog.is_alone {
            steps.push(ProtocolStep::LeftAlone);
        }
        if watchdog.has_finished() {
            steps.push(ProtocolStep::SayFinished);
        }
        if let Some(order) = watchdog.order() {
            if !watchdog.must_fail(order) {
                steps.push(ProtocolStep::Deliver(StepResult::Ok));
            }
            let may_fail = matches!(order, DeliveryStep::Dial | DeliveryStep::Prove | DeliveryStep::Close);
            if may_fail || watchdog.must_fail(order) {
                steps.push(ProtocolStep::Deliver(StepResult::Failed));
            }
        }
        if watchdog.line == heeler_core::delivery::FinisherConnection::Open && !watchdog.is_reset {
            steps.push(ProtocolStep::ResetWatchdog);
        }
        steps.push(ProtocolStep::KillWatchdog);
    }

    /// Lets a step happen.
    fn take(&mut self, scenario: &ProtocolScenario, step: ProtocolStep) {
        self.steps += 1;
        self.faults.deaths -= u8::from(step.is_fault(self));
        match step {
            ProtocolStep::Worker(worker, deed) => {
                self.faults.failures -= u8::from(deed == SimWorkerStep::Fail);
                self.work(scenario, worker, deed);
            }
            ProtocolStep::WorkerStarts => {
                let Some(coordinator) = &mut self.coordinator else { return };
                coordinator.starting -= 1;
                let worker = WorkerId(coordinator.last_worker);
                coordinator.last_worker += 1;
                self.add_worker(scenario, worker);
                self.feed(scenario, RunEvent::WorkerReady(worker));
            }
            ProtocolStep::WorkerNotStarted => {
                self.coordinator.iter_mut().for_each(|coordinator| coordinator.starting -= 1);
                self.feed(scenario, RunEvent::WorkerNotStarted);
            }
            ProtocolStep::Hear(worker) => self.hear(scenario, worker),
            ProtocolStep::WorkerGone(worker) => self.worker_gone(scenario, worker),
            ProtocolStep::HearWatchdog => self.hear_watchdog(scenario),
            ProtocolStep::WatchdogGone => self.watchdog_gone(scenario),
            ProtocolStep::ReadJournal(worker) => self.answer_journal(worker),
            ProtocolStep::Deliver(went) => self.deliver(went),
            ProtocolStep::SayFinished => self.say_finished(scenario),
            ProtocolStep::LeftAlone => self.left_alone(scenario),
            ProtocolStep::Cancel => {
                self.faults.cancels -= 1;
                self.feed(scenario, RunEvent::Cancel);
            }
            ProtocolStep::KillCoordinator => self.kill_coordinator(),
            ProtocolStep::KillWatchdog => self.kill_watchdog(),
            ProtocolStep::ResetWatchdog => {
                self.client.has_cut_watchdog = true;
                self.watchdog.iter_mut().for_each(|watchdog| {
                    watchdog.is_reset = true;
                    watchdog.unproven.clear();
                });
            }
            ProtocolStep::FinishLate => self.finish_is_late(scenario),
            ProtocolStep::JournalLate(worker) => self.worker_lost(scenario, worker),
        }
    }

    /// Whether nothing more is to be hoped for: the coordinator is dead, and so is the watchdog or its way to the client.
    fn is_beyond_promise(&self, scenario: &ProtocolScenario) -> bool {
        let has_watchdog_way = scenario.has_callback && !self.client.has_cut_watchdog;
        self.coordinator.is_none() && (self.watchdog.is_none() || !has_watchdog_way)
    }

    fn has_ended_well(&self, scenario: &ProtocolScenario) -> bool {
        let is_answered = self.client.has_response || self.coordinator.is_none();
        (self.client.completion == CompletionState::Here && is_answered) || self.is_beyond_promise(scenario)
    }
}

impl Model for ProtocolScenario {
    type State = ProtocolSystem;
    type Action = ProtocolStep;

    fn init_states(&self) -> Vec<ProtocolSystem> {
        vec![ProtocolSystem::new(self)]
    }

    fn actions(&self, system: &ProtocolSystem, steps: &mut Vec<ProtocolStep>) {
        steps.extend(system.steps(self));
    }

    fn next_state(&self, system: &ProtocolSystem, step: ProtocolStep) -> Option<ProtocolSystem> {
        let mut next = system.clone();
        next.take(self, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_RESULT, |_, system: &ProtocolSystem| {
                !matches!(system.client.broken, Some(BrokenRule::TwoResults(_)))
            }),
            Property::always(COMPLETE, |_, system: &ProtocolSystem| {
                !matches!(system.client.broken, Some(BrokenRule::ResultMissing(_)))
            }),
            Property::always(NOTHING_AFTER, |_, system: &ProtocolSystem| {
                system.client.broken != Some(BrokenRule::UpdateAfterCompletion)
            }),
            Property::always(RESPONSE, |_, system: &ProtocolSystem| {
                !matches!(
                    system.client.broken,
                    Some(BrokenRule::ResponseBeforeCompletion | BrokenRule::TwoResponses)
                )
            }),
            Property::always(REACHED, |scenario: &ProtocolScenario, system: &ProtocolSystem| {
                system.client.broken.is_some()
                    || system.has_ended_well(scenario)
                    || !system.steps(scenario).is_empty()
            }),
            Property::always(ENDS, |_, system: &ProtocolSystem| system.steps <= LONGEST_PATH),
        ]
    }
}
