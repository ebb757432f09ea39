//! Workers and their test processes: they run their leases, and bring each result into the journal, to the client
//! and to the coordinator, in this order.

use heeler_core::{LeaseOutcome, Outcome, ProvisionalReason, TestId, WorkerId, delivery::JournalMark};

use crate::{
    scenario::{ModelScenario, PlantedMistake, ProcessModel},
    world::{
        ModelWorld, ProcessPhase, ResultSource, SimFrame, SimProcess, SimRoute, SimWorker, SimWorkerMessage,
    },
};

/// What a worker or its process does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WorkerStep {
    /// The test at this place of the batch begins.
    Begin(usize),
    /// The test ends by itself or, with `TimedOut`, together with its process.
    End(Outcome),
    /// The process dies during its test.
    DieInTest,
    /// The result is journalled, sent or reported.
    Settle,
    /// The client refuses the connection for the result.
    Refused,
    /// The process exits outside any test.
    Leave(LeaseOutcome),
    /// The process is ended because its lease is cancelled.
    EndCancelled,
    /// The stream is proven, as far as it can be.
    Drain,
    /// The client does not confirm the barrier.
    Unanswered,
    /// The client resets the connection.
    Reset,
    /// The worker dies.
    Die,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SettlingStep {
    Journal,
    Send,
    Report,
}

const STEPS: [SettlingStep; 3] = [SettlingStep::Journal, SettlingStep::Send, SettlingStep::Report];
const STEPS_MISTAKEN: [SettlingStep; 3] = [SettlingStep::Send, SettlingStep::Journal, SettlingStep::Report];

fn settling(scenario: &ModelScenario, step: usize) -> SettlingStep {
    let is_mistaken = scenario.mistake == PlantedMistake::JournalAfterSend;
    if is_mistaken { STEPS_MISTAKEN[step] } else { STEPS[step] }
}

impl SimWorker {
    /// Lists what a worker on connections may do besides running its process and dying.
    pub(crate) fn connection_steps(&self, steps: &mut Vec<WorkerStep>) {
        if self.route == SimRoute::Open {
            steps.push(WorkerStep::Reset);
        }
        if self.process.is_none() && self.is_to_drain {
            steps.push(WorkerStep::Drain);
            steps.extend((self.route == SimRoute::Open).then_some(WorkerStep::Unanswered));
        }
    }

    /// Lists what the process may do.
    pub(crate) fn process_steps(&self, scenario: &ModelScenario, steps: &mut Vec<WorkerStep>) {
        let Some(process) = &self.process else { return };
        let is_arbitrary = scenario.processes == ProcessModel::Arbitrary;
        let count = process.lease.batch.tests.len();
        match process.phase {
            ProcessPhase::Idle if is_arbitrary => {
                steps.extend((process.next..count).take(2).map(WorkerStep::Begin));
                let end =
                    if process.next == count { LeaseOutcome::BadExit } else { LeaseOutcome::DiedOutside };
                steps.extend([WorkerStep::Leave(LeaseOutcome::Complete), WorkerStep::Leave(end)]);
                steps.extend((process.next == 0).then_some(WorkerStep::Leave(LeaseOutcome::NotStarted)));
            }
            ProcessPhase::Idle if process.next == count => {
                steps.push(WorkerStep::Leave(LeaseOutcome::Complete))
            }
            ProcessPhase::Idle if self.cancel_mode.is_some() => {
                steps.push(WorkerStep::Leave(LeaseOutcome::Cancelled))
            }
            ProcessPhase::Idle => steps.push(WorkerStep::Begin(process.next)),
            ProcessPhase::Running(_) => {
                let ends = [WorkerStep::End(Outcome::Passed), WorkerStep::End(Outcome::Failed)];
                steps.extend(ends.into_iter().chain([WorkerStep::DieInTest]));
                steps.extend(is_arbitrary.then_some(WorkerStep::End(Outcome::TimedOut)));
            }
            ProcessPhase::Settling { step, .. } => {
                steps.push(WorkerStep::Settle);
                let is_dialling =
                    self.route == SimRoute::NotDialled && settling(scenario, step) == SettlingStep::Send;
                return steps.extend(is_dialling.then_some(WorkerStep::Refused));
            }
        }
        steps.extend((is_arbitrary && self.cancel_mode.is_some()).then_some(WorkerStep::EndCancelled));
    }

    /// Returns whether the process needs a fault to do this.
    pub(crate) fn is_process_fault(&self, step: WorkerStep) -> bool {
        let Some(process) = &self.process else { return false };
        match step {
            WorkerStep::Begin(place) => place != process.next,
            WorkerStep::Leave(LeaseOutcome::Complete) => process.next < process.lease.batch.tests.len(),
            WorkerStep::Leave(end) => end != LeaseOutcome::Cancelled,
            _ => false,
        }
    }
}

impl ModelWorld {
    /// Lets a worker do something.
    pub(crate) fn work(&mut self, scenario: &ModelScenario, id: WorkerId, step: WorkerStep) {
        match step {
            WorkerStep::Begin(place) => {
                let process = self.process(id);
                (process.phase, process.next) = (ProcessPhase::Running(place), place + 1);
                let (lease, test) = (process.lease.lease, process.lease.batch.tests[place]);
                self.journal(scenario, id, test, JournalMark::Started);
                self.send_message(id, SimWorkerMessage::Started { lease, test });
            }
            WorkerStep::End(outcome) => {
                let end = (outcome == Outcome::TimedOut).then_some(LeaseOutcome::DiedInTest);
                self.end_test(scenario, id, outcome, end);
            }
            WorkerStep::DieInTest if self.process(id).lease.batch.is_isolated => {
                self.end_test(scenario, id, Outcome::Crashed, Some(LeaseOutcome::DiedInTest));
            }
            WorkerStep::DieInTest => {
                self.report_provisional(scenario, id, ProvisionalReason::AwaitsIsolatedRun);
                self.leave(id, LeaseOutcome::DiedInTest);
            }
            WorkerStep::Settle => self.settle(scenario, id),
            WorkerStep::Refused => {
                self.worker(id).route = SimRoute::Broken;
                self.settle(scenario, id);
            }
            WorkerStep::Leave(end) => self.leave(id, end),
            WorkerStep::EndCancelled => match self.process(id).phase {
                ProcessPhase::Running(place) => self.begin_settling(
                    scenario,
                    id,
                    place,
                    Outcome::Cancelled,
                    Some(LeaseOutcome::Cancelled),
                ),
                ProcessPhase::Idle | ProcessPhase::Settling { .. } => self.leave(id, LeaseOutcome::Cancelled),
            },
            WorkerStep::Drain => self.drain(id),
            WorkerStep::Unanswered => {
                self.break_route(id, SimRoute::Broken);
                self.drain(id);
            }
            WorkerStep::Reset => self.break_route(id, SimRoute::Reset),
            WorkerStep::Die => drop(self.workers.remove(&id)),
        }
    }

    fn worker(&mut self, id: WorkerId) -> &mut SimWorker {
        self.workers.get_mut(&id).expect("only the living do something")
    }

    fn process(&mut self, id: WorkerId) -> &mut SimProcess {
        self.worker(id).process.as_mut().expect("only workers with a lease do this")
    }

    fn journal(&mut self, scenario: &ModelScenario, id: WorkerId, test: TestId, mark: JournalMark) {
        // Only a watchdog reads the marks.
        if !scenario.is_abstract() {
            self.journals.entry(id).or_default().records.push((test, mark));
        }
    }

    fn send_message(&mut self, id: WorkerId, message: SimWorkerMessage) {
        if self.coordinator.is_some() {
            self.from_workers.entry(id).or_default().push_back(message);
        }
    }

    fn end_test(
        &mut self,
        scenario: &ModelScenario,
        id: WorkerId,
        outcome: Outcome,
        end: Option<LeaseOutcome>,
    ) {
        let process = self.process(id);
        let ProcessPhase::Running(place) = process.phase else { return };
        if !outcome.is_failure() || !process.lease.is_failure_provisional[place] {
            return self.begin_settling(scenario, id, place, outcome, end);
        }
        self.report_provisional(scenario, id, ProvisionalReason::AwaitsRetry);
        if let Some(end) = end {
            self.leave(id, end);
        }
    }

    fn report_provisional(&mut self, scenario: &ModelScenario, id: WorkerId, by: ProvisionalReason) {
        let process = self.process(id);
        let ProcessPhase::Running(place) = process.phase else { return };
        process.phase = ProcessPhase::Idle;
        let (lease, test) = (process.lease.lease, process.lease.batch.tests[place]);
        self.journal(scenario, id, test, JournalMark::Provisional);
        self.send_message(id, SimWorkerMessage::Provisional { lease, test, by });
    }

    fn begin_settling(
        &mut self,
        scenario: &ModelScenario,
        id: WorkerId,
        place: usize,
        outcome: Outcome,
        end: Option<LeaseOutcome>,
    ) {
        let process = self.process(id);
        (process.phase, process.end) = (ProcessPhase::Settling { place, outcome, step: 0 }, end);
        self.worker(id).position += 1;
        self.settle(scenario, id);
        while scenario.is_abstract() && self.workers[&id].is_settling() {
            self.settle(scenario, id);
        }
    }

    fn settle(&mut self, scenario: &ModelScenario, id: WorkerId) {
        let position = self.worker(id).position;
        let process = self.process(id);
        let ProcessPhase::Settling { place, outcome, step } = process.phase else { return };
        let test = process.lease.batch.tests[place];
        process.phase = ProcessPhase::Settling { place, outcome, step: step + 1 };
        match settling(scenario, step) {
            SettlingStep::Journal => {
                self.journal(scenario, id, test, JournalMark::Settled);
                self.journals.entry(id).or_default().results.push((test, outcome));
            }
            SettlingStep::Send if scenario.is_abstract() => {}
            SettlingStep::Send => self.send_result(id, (test, ResultSource::Journal(id, position))),
            SettlingStep::Report => {
                process.phase = ProcessPhase::Idle;
                let end = process.end;
                self.send_message(id, SimWorkerMessage::Settled { test, outcome, position });
                if let Some(end) = end {
                    self.leave(id, end);
                }
            }
        }
    }

    fn send_result(&mut self, id: WorkerId, result: (TestId, ResultSource)) {
        let frame = SimFrame::Results(vec![result]);
        let worker = self.workers.get_mut(&id).expect("only the living do something");
        match worker.route {
            SimRoute::Relay => {
                let position = worker.position;
                self.send_message(id, SimWorkerMessage::Relayed { frame, position });
            }
            SimRoute::NotDialled | SimRoute::Open => {
                worker.route = SimRoute::Open;
                self.client.send(&frame, Some(&mut worker.unproven));
            }
            SimRoute::Reset | SimRoute::Broken => worker.route = SimRoute::Broken,
        }
    }

    fn leave(&mut self, id: WorkerId, end: LeaseOutcome) {
        let lease = self.process(id).lease.lease;
        self.worker(id).process = None;
        self.send_message(id, SimWorkerMessage::LeaseEnded { lease, end });
    }

    fn break_route(&mut self, id: WorkerId, route: SimRoute) {
        let worker = self.worker(id);
        worker.route = route;
        worker.unproven.clear();
    }

    fn drain(&mut self, id: WorkerId) {
        let worker = self.workers.get_mut(&id).expect("only the living do something");
        worker.is_to_drain = false;
        let proven = match worker.route {
            SimRoute::Relay | SimRoute::NotDialled => worker.position,
            SimRoute::Open => {
                self.client.read(&mut worker.unproven);
                worker.position
            }
            SimRoute::Reset | SimRoute::Broken => 0,
        };
        self.send_message(id, SimWorkerMessage::Drained { proven });
    }
}

impl SimWorker {
    fn is_settling(&self) -> bool {
        let is_settling = |process: &SimProcess| matches!(process.phase, ProcessPhase::Settling { .. });
        self.process.as_ref().is_some_and(is_settling)
    }
}
