//! What can happen next, and the model that the checker walks through.

use model::{
    WorkerId,
    finish::{Order, Went},
    run::{Event, Stage},
};
use stateright::{Model, Property};

use crate::{
    client::{Broken, Completion},
    system::{Scenario, System},
    worker::Deed,
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
pub(crate) enum Step {
    Worker(WorkerId, Deed),
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
    Deliver(Went),
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

impl Step {
    /// Whether it is one of the deaths.
    pub(crate) fn is_fault(self, system: &System) -> bool {
        match self {
            Self::Worker(_, deed) => deed.is_fault(),
            Self::KillCoordinator
            | Self::KillWatchdog
            | Self::ResetWatchdog
            | Self::FinishLate
            | Self::JournalLate(_)
            | Self::WorkerNotStarted => true,
            Self::Deliver(Went::Badly) => system.watchdog.as_ref().is_some_and(|watchdog| {
                watchdog.order().is_some_and(|order| order != Order::Close && !watchdog.must_fail(order))
            }),
            Self::Deliver(Went::Well)
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

impl System {
    fn steps(&self, scenario: &Scenario) -> Vec<Step> {
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

    fn worker_steps(&self, scenario: &Scenario, steps: &mut Vec<Step>) {
        let mut deeds = Vec::new();
        for (id, worker) in &self.workers {
            deeds.clear();
            worker.deeds(scenario, &mut deeds);
            deeds.push(Deed::Die);
            deeds.retain(|deed| *deed != Deed::Fail || self.faults.failures > 0);
            steps.extend(deeds.iter().map(|deed| Step::Worker(*id, *deed)));
        }
    }

    fn coordinator_steps(&self, steps: &mut Vec<Step>) {
        let Some(coordinator) = &self.coordinator else { return };
        for (id, queue) in &self.from_workers {
            if !queue.is_empty() {
                steps.push(Step::Hear(*id));
            } else if !self.workers.contains_key(id) {
                steps.push(Step::WorkerGone(*id));
            }
        }
        if !self.from_watchdog.is_empty() {
            steps.push(Step::HearWatchdog);
        } else if self.watchdog.is_none() {
            steps.push(Step::WatchdogGone);
        }
        if coordinator.starting > 0 && self.watchdog.is_some() {
            steps.extend([Step::WorkerStarts, Step::WorkerNotStarted]);
        }
        if self.faults.cancels > 0 && coordinator.run.stage() == Stage::Running {
            steps.push(Step::Cancel);
        }
        let is_finishing = coordinator.run.stage() == Stage::Finishing && self.watchdog.is_some();
        if is_finishing && !coordinator.run.is_finisher_given_up() {
            steps.push(Step::FinishLate);
        }
        steps.extend(coordinator.asked.keys().map(|worker| Step::JournalLate(*worker)));
        steps.push(Step::KillCoordinator);
    }

    fn watchdog_steps(&self, steps: &mut Vec<Step>) {
        let Some(watchdog) = &self.watchdog else { return };
        steps.extend(watchdog.asked.iter().map(|worker| Step::ReadJournal(*worker)));
        if self.coordinator.is_none() && !watchdog.is_alone {
            steps.push(Step::LeftAlone);
        }
        if watchdog.has_finished() {
            steps.push(Step::SayFinished);
        }
        if let Some(order) = watchdog.order() {
            if !watchdog.must_fail(order) {
                steps.push(Step::Deliver(Went::Well));
            }
            let may_fail = matches!(order, Order::Dial | Order::Prove | Order::Close);
            if may_fail || watchdog.must_fail(order) {
                steps.push(Step::Deliver(Went::Badly));
            }
        }
        if watchdog.line == model::finish::Line::Up && !watchdog.is_reset {
            steps.push(Step::ResetWatchdog);
        }
        steps.push(Step::KillWatchdog);
    }

    /// Lets a step happen.
    fn take(&mut self, scenario: &Scenario, step: Step) {
        self.steps += 1;
        self.faults.deaths -= u8::from(step.is_fault(self));
        match step {
            Step::Worker(worker, deed) => {
                self.faults.failures -= u8::from(deed == Deed::Fail);
                self.work(scenario, worker, deed);
            }
            Step::WorkerStarts => {
                let Some(coordinator) = &mut self.coordinator else { return };
                coordinator.starting -= 1;
                let worker = WorkerId(coordinator.last_worker);
                coordinator.last_worker += 1;
                self.add_worker(scenario, worker);
                self.feed(scenario, Event::WorkerReady(worker));
            }
            Step::WorkerNotStarted => {
                self.coordinator.iter_mut().for_each(|coordinator| coordinator.starting -= 1);
                self.feed(scenario, Event::WorkerNotStarted);
            }
            Step::Hear(worker) => self.hear(scenario, worker),
            Step::WorkerGone(worker) => self.worker_gone(scenario, worker),
            Step::HearWatchdog => self.hear_watchdog(scenario),
            Step::WatchdogGone => self.watchdog_gone(scenario),
            Step::ReadJournal(worker) => self.answer_journal(worker),
            Step::Deliver(went) => self.deliver(went),
            Step::SayFinished => self.say_finished(scenario),
            Step::LeftAlone => self.left_alone(scenario),
            Step::Cancel => {
                self.faults.cancels -= 1;
                self.feed(scenario, Event::Cancel);
            }
            Step::KillCoordinator => self.kill_coordinator(),
            Step::KillWatchdog => self.kill_watchdog(),
            Step::ResetWatchdog => {
                self.client.has_cut_watchdog = true;
                self.watchdog.iter_mut().for_each(|watchdog| {
                    watchdog.is_reset = true;
                    watchdog.unproven.clear();
                });
            }
            Step::FinishLate => self.finish_is_late(scenario),
            Step::JournalLate(worker) => self.worker_lost(scenario, worker),
        }
    }

    /// Whether nothing more is to be hoped for: the coordinator is dead, and so is the watchdog or its way to the client.
    fn is_beyond_promise(&self, scenario: &Scenario) -> bool {
        let has_watchdog_way = scenario.has_callback && !self.client.has_cut_watchdog;
        self.coordinator.is_none() && (self.watchdog.is_none() || !has_watchdog_way)
    }

    fn has_ended_well(&self, scenario: &Scenario) -> bool {
        let is_answered = self.client.has_response || self.coordinator.is_none();
        (self.client.completion == Completion::Here && is_answered) || self.is_beyond_promise(scenario)
    }
}

impl Model for Scenario {
    type State = System;
    type Action = Step;

    fn init_states(&self) -> Vec<System> {
        vec![System::new(self)]
    }

    fn actions(&self, system: &System, steps: &mut Vec<Step>) {
        steps.extend(system.steps(self));
    }

    fn next_state(&self, system: &System, step: Step) -> Option<System> {
        let mut next = system.clone();
        next.take(self, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_RESULT, |_, system: &System| {
                !matches!(system.client.broken, Some(Broken::TwoResults(_)))
            }),
            Property::always(COMPLETE, |_, system: &System| {
                !matches!(system.client.broken, Some(Broken::ResultMissing(_)))
            }),
            Property::always(NOTHING_AFTER, |_, system: &System| {
                system.client.broken != Some(Broken::UpdateAfterCompletion)
            }),
            Property::always(RESPONSE, |_, system: &System| {
                !matches!(system.client.broken, Some(Broken::ResponseBeforeCompletion | Broken::TwoResponses))
            }),
            Property::always(REACHED, |scenario: &Scenario, system: &System| {
                system.client.broken.is_some()
                    || system.has_ended_well(scenario)
                    || !system.steps(scenario).is_empty()
            }),
            Property::always(ENDS, |_, system: &System| system.steps <= LONGEST_PATH),
        ]
    }
}
