//! Workers and their test processes: they run their leases and pass each result to the journal, then the
//! client, then the coordinator.

use heeler_core::{
    GuardLoss, LeaseOutcome, Outcome, ProvisionalReason, TestId, WorkerId, delivery::JournalMark,
};

use crate::{
    scenario::{ModelScenario, PlantedMistake, ProcessModel},
    streams::StreamOwner,
    world::{
        ModelWorld, ProcessPhase, ResultSource, SimFrame, SimProcess, SimRoute, SimWorker, SimWorkerMessage,
    },
};

/// A step of a worker or its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WorkerStep {
    /// The test at this index of the batch begins.
    Begin(usize),
    /// The test ends by itself or, with `TimedOut`, together with its process.
    End(Outcome),
    /// The process dies during its test.
    DieInTest,
    /// The result is written to the journal, sent or reported.
    Settle,
    /// The worker dials the client and asks it to open the connection.
    Dial,
    /// The client refuses the connection for the result.
    Refused,
    /// All tests of the process have ended, and it can take others.
    ReportIdle,
    /// The process exits outside any test.
    Leave(LeaseOutcome),
    /// The process ends with its guard.
    LoseGuard,
    /// The process is ended because its lease is cancelled.
    EndCancelled,
    /// The stream is proven as far as possible.
    Drain,
    /// The client does not confirm the barrier.
    Unanswered,
    /// The client resets the connection.
    Reset,
    /// The worker dies.
    Die,
    /// A provisional result is reported after the client has handled everything before it.
    ReportProvisional,
    /// The client opens the connection too late.
    OpenedLate,
    /// The client answers nothing until the timeout for opening the connection.
    NeverOpened,
    /// The worker dies while writing this message of its next write, which is written in part or not at all.
    DieWriting(usize, bool),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SettlingStep {
    Journal,
    Send,
    Report,
}

/// How guards are lost.
const LOST_GUARD: GuardLoss = GuardLoss::Killed { signal: 9 };

const STEPS: [SettlingStep; 3] = [SettlingStep::Journal, SettlingStep::Send, SettlingStep::Report];
const STEPS_MISTAKEN: [SettlingStep; 3] = [SettlingStep::Send, SettlingStep::Journal, SettlingStep::Report];

/// Returns whether the settling step with this number sends a result.
pub(crate) fn is_sending(scenario: &ModelScenario, step: usize) -> bool {
    settling(scenario, step) == SettlingStep::Send
}

fn settling(scenario: &ModelScenario, step: usize) -> SettlingStep {
    let is_mistaken = scenario.mistake == PlantedMistake::JournalAfterSend;
    if is_mistaken { STEPS_MISTAKEN[step] } else { STEPS[step] }
}

impl SimWorker {
    /// Lists a worker's possible steps on connections, other than running its process and dying.
    pub(crate) fn connection_steps(&self, scenario: &ModelScenario, steps: &mut Vec<WorkerStep>) {
        if self.route == SimRoute::Open && scenario.may_break() {
            steps.push(WorkerStep::Reset);
        }
        if scenario.has_queues() && self.awaits_opening() {
            steps.extend((!scenario.queues.has_answers).then_some(WorkerStep::NeverOpened));
            steps.extend(scenario.queues.may_refuse.then_some(WorkerStep::OpenedLate));
        }
        if self.process.is_none() && self.is_to_drain {
            let is_awaited = scenario.has_queues() && self.is_draining && !self.is_all_handled();
            // With this mistake, the worker counts the client's close as proof.
            let is_closed = scenario.mistake == PlantedMistake::CloseAsProof;
            steps.extend((!is_awaited || is_closed).then_some(WorkerStep::Drain));
            let may_be_unanswered = self.route == SimRoute::Open && !scenario.has_queues();
            steps.extend(may_be_unanswered.then_some(WorkerStep::Unanswered));
        }
    }

    /// Lists the messages of the next write during which a worker may die.
    pub(crate) fn writing_deaths(&self, update: SimFrame) -> impl Iterator<Item = WorkerStep> {
        let messages = if self.has_room() { self.clone().write_update(update).len() } else { 0 };
        let is_begun = [false, true];
        (0..messages).flat_map(move |place| is_begun.map(|is_begun| WorkerStep::DieWriting(place, is_begun)))
    }

    /// Lists the possible steps of the process.
    pub(crate) fn process_steps(&self, scenario: &ModelScenario, steps: &mut Vec<WorkerStep>) {
        let Some(process) = &self.process else { return };
        let is_arbitrary = scenario.processes == ProcessModel::Arbitrary;
        let writes = match process.phase {
            ProcessPhase::Idle => process.next < process.lease.batch.tests.len(),
            ProcessPhase::Settling { step, .. } => settling(scenario, step) == SettlingStep::Send,
            ProcessPhase::Running(_) | ProcessPhase::AwaitingHandling { .. } => false,
        };
        if writes && scenario.has_queues() && self.route == SimRoute::NotDialled {
            steps.push(WorkerStep::Dial);
            steps.extend(scenario.queues.may_refuse.then_some(WorkerStep::Refused));
            return;
        }
        if writes && !self.has_room() {
            return;
        }
        let count = process.lease.batch.tests.len();
        let is_guarded = matches!(process.phase, ProcessPhase::Idle | ProcessPhase::Running(_));
        steps.extend((is_guarded && !scenario.has_queues()).then_some(WorkerStep::LoseGuard));
        let takes_more = scenario.takes_more_tests(process.lease.batch.program);
        let is_extensible = takes_more && !process.lease.batch.is_isolated && self.cancel_mode.is_none();
        let has_ended = process.next == count && process.phase == ProcessPhase::Idle;
        let may_report = is_extensible && has_ended && !process.is_waiting;
        steps.extend(may_report.then_some(WorkerStep::ReportIdle));
        match process.phase {
            ProcessPhase::Idle if is_arbitrary => {
                steps.extend((process.next..count).take(2).map(WorkerStep::Begin));
                let end =
                    if process.next == count { LeaseOutcome::BadExit } else { LeaseOutcome::DiedOutside };
                steps.extend([WorkerStep::Leave(LeaseOutcome::Complete), WorkerStep::Leave(end)]);
                steps.extend((process.next == 0).then_some(WorkerStep::Leave(LeaseOutcome::NotStarted)));
            }
            ProcessPhase::Idle if process.next == count => {
                let is_over = !is_extensible || process.is_ending;
                steps.extend(is_over.then_some(WorkerStep::Leave(LeaseOutcome::Complete)))
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
                return steps.extend((is_dialling && !scenario.has_queues()).then_some(WorkerStep::Refused));
            }
            ProcessPhase::AwaitingHandling { .. } => {
                return steps.extend(self.is_all_handled().then_some(WorkerStep::ReportProvisional));
            }
        }
        steps.extend((is_arbitrary && self.cancel_mode.is_some()).then_some(WorkerStep::EndCancelled));
    }

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
    /// Carries out a worker's step.
    pub(crate) fn work(&mut self, scenario: &ModelScenario, id: WorkerId, step: WorkerStep) {
        match step {
            WorkerStep::Begin(place) => {
                let process = self.process(id);
                (process.phase, process.next) = (ProcessPhase::Running(place), place + 1);
                let (lease, test) = (process.lease.lease, process.lease.batch.tests[place]);
                self.journal(scenario, id, test, JournalMark::Started);
                self.send_to_coordinator(id, SimWorkerMessage::Started { lease, test });
                if scenario.has_queues() {
                    self.write_update(id, SimFrame::Started(test));
                }
            }
            WorkerStep::End(outcome) => {
                let end = (outcome == Outcome::TimedOut).then_some(LeaseOutcome::DiedInTest);
                self.end_test(scenario, id, outcome, end);
            }
            WorkerStep::DieInTest if self.process(id).lease.batch.is_isolated => {
                self.end_test(scenario, id, Outcome::Crashed, Some(LeaseOutcome::DiedInTest));
            }
            WorkerStep::DieInTest => {
                let end = Some(LeaseOutcome::DiedInTest);
                self.end_provisionally(scenario, id, ProvisionalReason::AwaitsIsolatedRun, end);
            }
            WorkerStep::ReportProvisional => self.report_provisional(id),
            WorkerStep::Dial => self.dial(scenario, id),
            WorkerStep::OpenedLate | WorkerStep::NeverOpened => {
                self.give_opening_up(id);
                self.client.has_cut_watchdog = true;
            }
            WorkerStep::Settle => self.settle(scenario, id),
            WorkerStep::Refused if scenario.has_queues() => {
                self.worker(id).route = SimRoute::Relay;
                self.client.has_cut_watchdog = true;
            }
            WorkerStep::Refused => {
                self.worker(id).route = SimRoute::Broken;
                self.settle(scenario, id);
            }
            WorkerStep::ReportIdle => {
                let process = self.process(id);
                process.is_waiting = true;
                let lease = process.lease.lease;
                self.send_to_coordinator(id, SimWorkerMessage::LeaseIdle { lease });
            }
            WorkerStep::Leave(end) => self.leave(id, end),
            WorkerStep::LoseGuard if scenario.mistake == PlantedMistake::GuardLossBlamed => {
                let end = Some(LeaseOutcome::DiedInTest);
                self.end_provisionally(scenario, id, ProvisionalReason::AwaitsIsolatedRun, end);
            }
            WorkerStep::LoseGuard => self.leave(id, LeaseOutcome::GuardLost(LOST_GUARD)),
            WorkerStep::EndCancelled => match self.process(id).phase {
                ProcessPhase::Running(place) => self.begin_settling(
                    scenario,
                    id,
                    place,
                    Outcome::Cancelled,
                    Some(LeaseOutcome::Cancelled),
                ),
                ProcessPhase::Idle
                | ProcessPhase::Settling { .. }
                | ProcessPhase::AwaitingHandling { .. } => {
                    self.leave(id, LeaseOutcome::Cancelled);
                }
            },
            WorkerStep::Drain => self.drain(scenario, id),
            WorkerStep::Unanswered => {
                self.break_route(id, SimRoute::Broken);
                self.drain(scenario, id);
            }
            WorkerStep::Reset => self.break_route(id, SimRoute::Reset),
            WorkerStep::Die => drop(self.workers.remove(&id)),
            WorkerStep::DieWriting(place, is_begun) => {
                let Some(frame) = self.next_update(scenario, id) else { return };
                if let SimFrame::Started(test) = frame {
                    let lease = self.process(id).lease.lease;
                    self.journal(scenario, id, test, JournalMark::Started);
                    self.send_to_coordinator(id, SimWorkerMessage::Started { lease, test });
                }
                self.die_writing(id, frame, place, is_begun);
            }
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

    pub(crate) fn send_to_coordinator(&mut self, id: WorkerId, message: SimWorkerMessage) {
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
        self.end_provisionally(scenario, id, ProvisionalReason::AwaitsRetry, end);
    }

    fn end_provisionally(
        &mut self,
        scenario: &ModelScenario,
        id: WorkerId,
        by: ProvisionalReason,
        end: Option<LeaseOutcome>,
    ) {
        let process = self.process(id);
        let ProcessPhase::Running(place) = process.phase else { return };
        (process.phase, process.end) = (ProcessPhase::AwaitingHandling { place, by }, end);
        let test = process.lease.batch.tests[place];
        self.journal(scenario, id, test, JournalMark::Provisional);
        if !self.awaits_handling(scenario, id) {
            self.report_provisional(id);
        }
    }

    fn report_provisional(&mut self, id: WorkerId) {
        let process = self.process(id);
        let ProcessPhase::AwaitingHandling { place, by } = process.phase else { return };
        process.phase = ProcessPhase::Idle;
        let (lease, test, end) = (process.lease.lease, process.lease.batch.tests[place], process.end);
        self.send_to_coordinator(id, SimWorkerMessage::Provisional { lease, test, by });
        if let Some(end) = end {
            self.leave(id, end);
        }
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
            SettlingStep::Send if scenario.has_queues() => {
                self.write_update(id, SimFrame::Results(vec![(test, ResultSource::Journal(id, position))]));
            }
            SettlingStep::Send => self.send_result(id, (test, ResultSource::Journal(id, position))),
            SettlingStep::Report => {
                process.phase = ProcessPhase::Idle;
                let end = process.end;
                self.send_to_coordinator(id, SimWorkerMessage::Settled { test, outcome, position });
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
                self.send_to_coordinator(id, SimWorkerMessage::Relayed { frame, position });
            }
            SimRoute::NotDialled | SimRoute::Open => {
                worker.route = SimRoute::Open;
                self.client.send(&frame, StreamOwner::Worker(id), Some(&mut worker.unproven));
            }
            SimRoute::Reset | SimRoute::Broken => worker.route = SimRoute::Broken,
        }
    }

    fn leave(&mut self, id: WorkerId, end: LeaseOutcome) {
        let lease = self.process(id).lease.lease;
        self.worker(id).process = None;
        self.send_to_coordinator(id, SimWorkerMessage::LeaseEnded { lease, end });
    }

    fn break_route(&mut self, id: WorkerId, route: SimRoute) {
        let worker = self.worker(id);
        worker.route = route;
        worker.unproven.clear();
        self.client.reset_stream(StreamOwner::Worker(id));
    }

    fn drain(&mut self, scenario: &ModelScenario, id: WorkerId) {
        if scenario.has_queues() && !self.worker(id).is_draining {
            self.worker(id).is_draining = true;
            if scenario.mistake != PlantedMistake::CompletionBeforeProof {
                self.write_final_barrier(id);
                // A client that reads everything and closes proves nothing about handling.
                let is_close_proof = scenario.mistake == PlantedMistake::CloseAsProof;
                if !self.worker(id).is_all_handled() && !is_close_proof {
                    return;
                }
            }
        }
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
        self.send_to_coordinator(id, SimWorkerMessage::Drained { proven });
    }
}

impl SimWorker {
    fn is_settling(&self) -> bool {
        let is_settling = |process: &SimProcess| matches!(process.phase, ProcessPhase::Settling { .. });
        self.process.as_ref().is_some_and(is_settling)
    }
}
