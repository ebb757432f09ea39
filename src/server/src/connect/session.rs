//! The session of a conformance suite: reads cases, runs them, writes the answers, and reports both to an
//! optional observer.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use data_encoding::BASE64;
use heeler_core::{Outcome, TestResult};
use heeler_protocol::{
    connect::{MessageDecoder, REQUEST_LIMIT_BYTES, append_message, decode_request},
    control::{ListedTest, RunUpdates, TestUpdate},
    mtp::ClientMembers,
};
use heeler_transport::LinkError;
use tokio::sync::mpsc;

use super::{
    CaseEvent,
    answer::{answer_of_error, answer_to},
    cases::{Assignment, Cases, OpenCase},
    durations::CaseDurations,
    listing::{case_catalogue, listed_case},
};
use crate::{
    discovery::{Catalogue, TestRef, TestSelection},
    listen::{
        ClientStream, LinkEvent, LinkLimits, SessionCommand, SessionEnd, SessionLink, SessionOptions,
        await_end, wait_for_deadline,
    },
    run::{PlanContext, PreparedRun, RunPlan, discard_run, plan_tests, prepare_open_run, record_run},
    scheduler::{ClientEvent, RequestNumber, RunClient, SchedulerHandle, UpdateDelivery},
};

/// Time for the suite to read the last answers. The suite itself ends a client that is silent for this long.
const LAST_ANSWERS_LIMIT: Duration = Duration::from_secs(20);
/// Time limit for the session's processes to end, on top of the tests' grace period.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// Serves a conformance suite until it sends no more cases and all are answered. Without an observer,
/// warnings and the client's standard error go to standard error.
pub(super) async fn serve(
    stream: ClientStream,
    options: SessionOptions,
    scheduler: SchedulerHandle,
    commands: mpsc::Receiver<SessionCommand>,
) -> SessionEnd {
    let registration = options.registration(UpdateDelivery::Events);
    // The scheduler only ends together with this process.
    let Ok(client) = scheduler.register(registration).await else { return SessionEnd::Disconnected };
    let decoder = MessageDecoder::new(REQUEST_LIMIT_BYTES);
    let mut link = SessionLink::open(stream, decoder, commands, LinkLimits::default());
    link.watch_owner(&options);
    let session = ConnectSession {
        options,
        client,
        link,
        is_input_cut: false,
        cases: Cases::default(),
        durations: CaseDurations::default(),
        run_ids: HashMap::new(),
        started: Instant::now(),
    };
    session.serve().await
}

struct ConnectSession {
    options: SessionOptions,
    client: RunClient,
    /// While an answer waits to be sent, no further result is handled. A suite that reads slowly slows the
    /// run but loses nothing.
    link: SessionLink<MessageDecoder>,
    /// Whether the input ended in the middle of a request.
    is_input_cut: bool,
    cases: Cases,
    durations: CaseDurations,
    run_ids: HashMap<String, RequestNumber>,
    started: Instant,
}

/// An event that a session waits for.
enum ConnectEvent {
    Link(LinkEvent<MessageDecoder>),
    RunDue,
    Client(Option<ClientEvent>),
}

impl ConnectSession {
    async fn serve(mut self) -> SessionEnd {
        let end = loop {
            if self.cases.is_over() {
                break None;
            }
            let event = self.next_event().await;
            if let Some(end) = self.handle(event).await {
                break Some(end);
            }
        };
        let limit = LEAVE_LIMIT + self.options.settings.run.grace_period;
        let end = match end {
            Some(end) => end,
            None => {
                // Closing the output shows the suite that nothing follows.
                let is_answered = self.link.finish(LAST_ANSWERS_LIMIT).await;
                if is_answered && !self.is_input_cut { SessionEnd::Exit } else { SessionEnd::Disconnected }
            }
        };
        await_end("the runs of a session", limit, self.client.leave()).await;
        end
    }

    async fn next_event(&mut self) -> ConnectEvent {
        let due = self.cases.due_at().map(|due| tokio::time::Instant::from_std(self.started + due));
        let is_behind = self.link.output.has_unsent();
        tokio::select! {
            event = self.link.next_event(self.cases.has_room()) => ConnectEvent::Link(event),
            () = wait_for_deadline(due) => ConnectEvent::RunDue,
            event = self.client.next_event(), if !is_behind => ConnectEvent::Client(event),
        }
    }

    /// Handles an event. Returns how the session ends, if it does.
    async fn handle(&mut self, event: ConnectEvent) -> Option<SessionEnd> {
        match event {
            ConnectEvent::Link(event) => self.on_link_event(event).await,
            ConnectEvent::RunDue => {
                self.run_gathered().await;
                self.close_run_at_end().await;
                None
            }
            ConnectEvent::Client(event) => match event {
                Some(event) => {
                    self.on_client_event(event).await;
                    None
                }
                None => Some(SessionEnd::Disconnected),
            },
        }
    }

    async fn on_link_event(&mut self, event: LinkEvent<MessageDecoder>) -> Option<SessionEnd> {
        match event {
            LinkEvent::Command(SessionCommand::Exit) => Some(match self.cases.has_open() {
                true => SessionEnd::Disconnected,
                false => SessionEnd::Exit,
            }),
            LinkEvent::Command(SessionCommand::Pause(done)) => {
                self.client.pause(done).await.err().map(|_| SessionEnd::Disconnected)
            }
            LinkEvent::Command(SessionCommand::Resume) => {
                self.client.resume().await.err().map(|_| SessionEnd::Disconnected)
            }
            LinkEvent::Message(bytes) => self.on_request(bytes).await,
            LinkEvent::Unreadable(LinkError::Decode(error)) => self.refuse_input(&error.to_string()).await,
            LinkEvent::Unreadable(LinkError::CutOff { .. }) => {
                self.is_input_cut = true;
                self.warn("the conformance suite's output ends in the middle of a request".to_owned()).await;
                self.end_input().await;
                None
            }
            LinkEvent::InputEnded | LinkEvent::Unreadable(_) => {
                self.end_input().await;
                None
            }
            LinkEvent::Sent => None,
            // The suite reads no more answers or has exited, or the session's owner died. The session sets no
            // end limit, so `EndTimedOut` does not occur.
            LinkEvent::Unwritable | LinkEvent::Over(_) | LinkEvent::EndTimedOut => {
                Some(SessionEnd::Disconnected)
            }
        }
    }

    async fn end_input(&mut self) {
        self.cases.end();
        self.close_run_at_end().await;
    }

    async fn warn(&mut self, warning: String) {
        match &self.options.case_observer {
            Some(_) => self.observe(CaseEvent::Warning(warning)).await,
            None => eprintln!("heeler: {warning}"),
        }
    }

    async fn observe(&mut self, event: CaseEvent) {
        if let Some(observer) = &self.options.case_observer {
            // The observer may be gone; the session continues for the suite.
            let _gone = observer.send(event).await;
        }
    }

    async fn on_request(&mut self, bytes: Bytes) -> Option<SessionEnd> {
        match decode_request(&bytes) {
            Ok(request) if !request.test_name.is_empty() => {
                self.cases.add(OpenCase { request, bytes }, self.started.elapsed());
                None
            }
            Ok(_) => self.refuse_input("a request has no name").await,
            Err(error) => self.refuse_input(&format!("a request cannot be read: {error}")).await,
        }
    }

    /// Ends the session because the client sent something other than a sequence of requests.
    async fn refuse_input(&mut self, problem: &str) -> Option<SessionEnd> {
        let input = "standard input is not a sequence of conformance requests, as connectconformance sends them to \
                     its client";
        self.warn(format!("{input}: {problem}")).await;
        Some(SessionEnd::Disconnected)
    }

    /// Runs the collected cases.
    async fn run_gathered(&mut self) {
        let cases = self.cases.take_gathered();
        let catalogue = self.catalogue_of(&cases);
        let uids = (0..cases.len()).map(|test| {
            let place = TestRef { program: 0, test: Some(test) };
            catalogue.test(place).map(|test| test.uid().to_owned()).unwrap_or_default()
        });
        let Assignment { run, is_new, closed } = self.cases.assign(uids.zip(cases).collect());
        // If the scheduler is gone, the next event ends the session.
        if let Some(closed) = closed {
            let _gone = self.client.end_tests(closed).await;
        }
        let selection = TestSelection { uids: None, filter: None };
        let SessionOptions { settings, provenance, .. } = &self.options;
        let context = PlanContext { catalogue: &catalogue, settings, provenance };
        let mut planned = plan_tests(&selection, &context);
        planned.estimate_durations(|name| self.durations.estimate(name));
        if !is_new {
            let _gone = self.client.add_tests(run, planned).await;
            return;
        }
        let run_id = uuid::Uuid::new_v4().to_string();
        match prepare_open_run(&run_id, planned, &context) {
            Ok(PreparedRun { plan, warnings }) => {
                for warning in warnings {
                    self.warn(warning).await;
                }
                self.run_ids.insert(run_id, run);
                let _gone = self.client.start_run(run, Box::new(plan), ClientMembers::default()).await;
            }
            Err(error) => {
                let cases = self.cases.finish(run);
                self.refuse(cases, &heeler_core::error_chain(&error)).await;
            }
        }
    }

    /// Closes the open run if no more cases follow.
    async fn close_run_at_end(&mut self) {
        if let Some(run) = self.cases.close_run_at_end() {
            // If the scheduler is gone, the next event ends the session.
            let _gone = self.client.end_tests(run).await;
        }
    }

    /// Returns a catalogue that contains the client under test with these cases as its tests.
    fn catalogue_of(&self, cases: &[OpenCase]) -> Catalogue {
        let test = |case: &OpenCase| ListedTest {
            selector: Some(BASE64.encode(&case.bytes)),
            ..listed_case(&case.request)
        };
        case_catalogue(self.options.sources.clone(), cases.iter().map(test).collect())
    }

    async fn on_client_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Updates(updates) => self.on_updates(updates).await,
            ClientEvent::RunEnded { request, plan, outcome } => {
                let took = Duration::ZERO;
                if let Some(warning) = record_run(&self.options.settings, &plan, &outcome, took) {
                    self.warn(warning).await;
                }
                self.run_ids.remove(&plan.run_id);
                self.finish_run(request, &plan).await;
            }
            ClientEvent::RunRefused { request, plan, error } => {
                discard_run(&plan);
                self.run_ids.remove(&plan.run_id);
                let cases = self.cases.finish(request);
                self.refuse(cases, &error).await;
            }
            ClientEvent::Log { lines, .. } => {
                for line in lines {
                    tracing::info!(message = line.message, "log of a run");
                }
            }
            // Nothing is listed or debugged here, updates arrive as events, and cases have no needs.
            ClientEvent::Listed { .. }
            | ClientEvent::Waits { .. }
            | ClientEvent::FinishRun(_)
            | ClientEvent::MachineWait(_)
            | ClientEvent::DebuggeeWaiting(_)
            | ClientEvent::DebuggeeLaunched(_)
            | ClientEvent::DebuggeeGone(_) => {}
        }
    }

    async fn on_updates(&mut self, RunUpdates { run, updates }: RunUpdates) {
        let Some(run) = self.run_ids.get(&run).copied() else { return };
        for update in updates {
            match update {
                TestUpdate::Finished { uid, result } => {
                    let Some(case) = self.cases.answer(run, &uid) else { continue };
                    if let Some(duration) = result.duration_us {
                        self.durations.record(&case.request.test_name, Duration::from_micros(duration));
                    }
                    if self.options.case_observer.is_none() {
                        eprint!("{}", result.stderr);
                    }
                    self.answer(case.request.test_name, *result).await;
                }
                TestUpdate::ProgramFailed(failure) => {
                    self.warn(format!("{}: {}", failure.suite, failure.message)).await;
                }
                TestUpdate::Started { uid, worker, .. } => {
                    if let Some(case) = self.cases.open(run, &uid) {
                        let name = case.request.test_name.clone();
                        self.observe(CaseEvent::Started { name, worker }).await;
                    }
                }
                TestUpdate::Completed => {}
            }
        }
    }

    /// Answers a case with its result.
    async fn answer(&mut self, name: String, result: TestResult) {
        self.write_answer(&answer_to(&name, &result));
        // The suite already has the answer.
        let result = Box::new(TestResult { answer: None, ..result });
        self.observe(CaseEvent::Ended { name, result }).await;
    }

    /// Answers the open cases of a run that is over. Cases that the run no longer accepted go to another run.
    async fn finish_run(&mut self, run: RequestNumber, plan: &RunPlan) {
        let own: HashSet<_> = plan.tests.iter().map(|test| test.uid.as_str()).collect();
        let is_own = |(uid, _): &(String, OpenCase)| own.contains(uid.as_str());
        let (owed, late): (HashMap<_, _>, HashMap<_, _>) =
            self.cases.finish(run).into_iter().partition(is_own);
        for case in late.into_values() {
            self.cases.add(case, self.started.elapsed());
        }
        self.refuse(owed, "the run ended without a result for this case").await;
    }

    /// Answers cases with an error.
    async fn refuse(&mut self, cases: HashMap<String, OpenCase>, error: &str) {
        for case in cases.into_values() {
            let name = case.request.test_name;
            self.write_answer(&answer_of_error(&name, error));
            let result = Box::new(TestResult::with_reason(Outcome::Lost, error));
            self.observe(CaseEvent::Ended { name, result }).await;
        }
    }

    fn write_answer(&mut self, answer: &[u8]) {
        let mut message = Vec::new();
        append_message(&mut message, answer);
        self.link.output.send(message.into());
    }
}
