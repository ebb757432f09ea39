//! The session of a conformance suite: reads its cases, runs them, writes the answers, and reports both to an
//! observer if there is one.

use std::{
    collections::{HashMap, HashSet},
    io,
    time::{Duration, Instant},
};

use bytes::{Buf as _, BytesMut};
use data_encoding::BASE64;
use heeler_core::{Outcome, TestResult};
use heeler_protocol::{
    StreamDecoder as _,
    connect::{MessageDecoder, REQUEST_LIMIT_BYTES, append_message, decode_request},
    control::{ListedTest, RunUpdates, TestUpdate},
    mtp::ClientMembers,
};
use heeler_sys::process::Pid;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf},
    sync::mpsc,
};

use super::{
    CaseEvent,
    answer::{answer_of_error, answer_to},
    cases::{Assignment, Cases, OpenCase},
    durations::CaseDurations,
    listing::{case_catalogue, listed_case},
};
use crate::{
    discovery::{Catalogue, ListingSettings, TestRef, TestSelection},
    listen::{ClientStream, SessionCommand, SessionEnd, SessionOptions, wait_for_deadline},
    pool::{ProcessExitWatch, wait_for_exit},
    run::{PlanContext, PreparedRun, RunPlan, discard_run, plan_tests, prepare_open_run, record_run},
    scheduler::{ClientEvent, ClientRegistration, RequestNumber, RunClient, SchedulerHandle, UpdateDelivery},
};

/// Bytes of answers that wait for the suite, from which no further result is taken: a suite that does not
/// read slows the run, and loses nothing.
const ANSWER_BACKLOG_BYTES: usize = 1 << 20;
/// Serves a conformance suite until all of its cases are answered and it has no more. Without an observer,
/// warnings and what clients write to standard error go to standard error.
pub(super) async fn serve(
    stream: ClientStream,
    options: SessionOptions,
    scheduler: SchedulerHandle,
    commands: mpsc::Receiver<SessionCommand>,
    observer: Option<mpsc::Sender<CaseEvent>>,
) -> SessionEnd {
    let registration = ClientRegistration {
        delivery: UpdateDelivery::Events,
        sources: options.sources.clone(),
        finder: None,
        listing: ListingSettings::of_session(&options.settings),
    };
    // The scheduler ends only with its process.
    let Ok(client) = scheduler.register(registration).await else { return SessionEnd::Disconnected };
    let (reader, writer) = tokio::io::split(stream);
    let mut session = ConnectSession {
        suite: options.exit_with.and_then(watched_process),
        options,
        client,
        reader,
        writer,
        input: BytesMut::new(),
        is_input_cut: false,
        decoder: MessageDecoder::new(REQUEST_LIMIT_BYTES),
        output: BytesMut::new(),
        cases: Cases::default(),
        durations: CaseDurations::default(),
        run_ids: HashMap::new(),
        started: Instant::now(),
        observer,
    };
    let end = session.run(commands).await;
    session.client.leave().await;
    end
}

fn watched_process(process: u32) -> Option<ProcessExitWatch> {
    let process = i32::try_from(process).ok().map(Pid)?;
    ProcessExitWatch::watch(process)
        .inspect_err(|error| tracing::warn!(%error, "the conformance suite is not watched"))
        .ok()
}

struct ConnectSession {
    options: SessionOptions,
    client: RunClient,
    reader: ReadHalf<ClientStream>,
    writer: WriteHalf<ClientStream>,
    /// What has been read and is no whole request yet.
    input: BytesMut,
    /// The input has ended within a request.
    is_input_cut: bool,
    decoder: MessageDecoder,
    /// Answers that are not written yet.
    output: BytesMut,
    cases: Cases,
    durations: CaseDurations,
    run_ids: HashMap<String, RequestNumber>,
    /// The process of the suite.
    suite: Option<ProcessExitWatch>,
    started: Instant,
    observer: Option<mpsc::Sender<CaseEvent>>,
}

/// What a session waits for.
enum SessionEvent {
    Command(SessionCommand),
    Read(io::Result<usize>),
    Written(io::Result<usize>),
    RunDue,
    Client(Option<ClientEvent>),
    SuiteExited,
}

impl ConnectSession {
    async fn run(&mut self, mut commands: mpsc::Receiver<SessionCommand>) -> SessionEnd {
        loop {
            if self.cases.is_over() && self.output.is_empty() {
                // The end of the output tells the suite that nothing follows.
                let _gone = self.writer.shutdown().await;
                return if self.is_input_cut { SessionEnd::Disconnected } else { SessionEnd::Exit };
            }
            let event = self.next_event(&mut commands).await;
            if let Some(end) = self.handle(event).await {
                return end;
            }
        }
    }

    async fn next_event(&mut self, commands: &mut mpsc::Receiver<SessionCommand>) -> SessionEvent {
        let due = self.cases.due_at().map(|due| tokio::time::Instant::from_std(self.started + due));
        let is_behind = self.output.len() >= ANSWER_BACKLOG_BYTES;
        tokio::select! {
            Some(command) = commands.recv() => SessionEvent::Command(command),
            read = self.reader.read_buf(&mut self.input), if self.cases.has_room() => SessionEvent::Read(read),
            written = self.writer.write(&self.output), if !self.output.is_empty() => {
                SessionEvent::Written(written)
            }
            () = wait_for_deadline(due) => SessionEvent::RunDue,
            event = self.client.next_event(), if !is_behind => SessionEvent::Client(event),
            () = wait_for_exit(self.suite.as_ref()) => SessionEvent::SuiteExited,
        }
    }

    /// Handles an event; returns how the session ends, if it does.
    async fn handle(&mut self, event: SessionEvent) -> Option<SessionEnd> {
        match event {
            SessionEvent::Command(SessionCommand::Exit) => Some(match self.cases.has_open() {
                true => SessionEnd::Disconnected,
                false => SessionEnd::Exit,
            }),
            SessionEvent::Command(SessionCommand::Pause(done)) => {
                self.client.pause(done).await.err().map(|_| SessionEnd::Disconnected)
            }
            SessionEvent::Command(SessionCommand::Resume) => {
                self.client.resume().await.err().map(|_| SessionEnd::Disconnected)
            }
            SessionEvent::Read(Ok(0) | Err(_)) => {
                self.end_of_input().await;
                None
            }
            SessionEvent::Read(Ok(_)) => (!self.read_requests().await).then_some(SessionEnd::Disconnected),
            SessionEvent::Written(Ok(count)) if count > 0 => {
                self.output.advance(count);
                // Standard output is written by a thread, and has been written only once it is flushed.
                let is_flushed = !self.output.is_empty() || self.writer.flush().await.is_ok();
                (!is_flushed).then_some(SessionEnd::Disconnected)
            }
            SessionEvent::Written(_) | SessionEvent::SuiteExited => Some(SessionEnd::Disconnected),
            SessionEvent::RunDue => {
                self.run_gathered().await;
                self.close_run_at_end().await;
                None
            }
            SessionEvent::Client(event) => match event {
                Some(event) => {
                    self.on_client_event(event).await;
                    None
                }
                None => Some(SessionEnd::Disconnected),
            },
        }
    }

    async fn end_of_input(&mut self) {
        if !self.input.is_empty() {
            self.is_input_cut = true;
            self.warn("the conformance suite's output ends in the middle of a request".to_owned()).await;
        }
        self.cases.end();
        self.close_run_at_end().await;
    }

    async fn warn(&mut self, warning: String) {
        match &self.observer {
            Some(_) => self.observe(CaseEvent::Warning(warning)).await,
            None => eprintln!("heeler: {warning}"),
        }
    }

    async fn observe(&mut self, event: CaseEvent) {
        if let Some(observer) = &self.observer {
            // An observer that is gone needs nothing more; the session goes on for the suite.
            let _gone = observer.send(event).await;
        }
    }

    /// Reads the requests that have arrived; returns whether the input is a sequence of requests so far.
    async fn read_requests(&mut self) -> bool {
        let problem = loop {
            let bytes = match self.decoder.decode(&mut self.input) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return true,
                Err(error) => break error.to_string(),
            };
            match decode_request(&bytes) {
                Ok(request) if !request.test_name.is_empty() => {
                    self.cases.add(OpenCase { request, bytes }, self.started.elapsed());
                }
                Ok(_) => break "a request has no name".to_owned(),
                Err(error) => break format!("a request cannot be read: {error}"),
            }
        };
        let input = "standard input is no sequence of conformance requests, as connectconformance writes them to its \
                     client";
        self.warn(format!("{input}: {problem}")).await;
        false
    }

    /// Has the gathered cases run.
    async fn run_gathered(&mut self) {
        let cases = self.cases.take_gathered();
        let catalogue = self.catalogue_of(&cases);
        let uids = (0..cases.len()).map(|test| {
            let place = TestRef { program: 0, test: Some(test) };
            catalogue.test(place).map(|test| test.uid().to_owned()).unwrap_or_default()
        });
        let Assignment { run, is_new, closed } = self.cases.assign(uids.zip(cases).collect());
        // Without a scheduler, the next event ends the session.
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

    /// Ends the run that takes further cases when none follows.
    async fn close_run_at_end(&mut self) {
        if let Some(run) = self.cases.close_run_at_end() {
            // Without a scheduler, the next event ends the session.
            let _gone = self.client.end_tests(run).await;
        }
    }

    /// Returns a catalogue of the client under test, with these cases as its tests.
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
            // Nothing is listed or debugged here, and updates are taken as events.
            ClientEvent::Listed { .. }
            | ClientEvent::FinishRun(_)
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
                    if self.observer.is_none() {
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

    /// Answers a case with what became of it.
    async fn answer(&mut self, name: String, result: TestResult) {
        self.write_answer(&answer_to(&name, &result));
        // The suite has the answer.
        let result = Box::new(TestResult { answer: None, ..result });
        self.observe(CaseEvent::Ended { name, result }).await;
    }

    /// Answers what is left of a run that is over. Cases that it did not take any more run in another.
    async fn finish_run(&mut self, run: RequestNumber, plan: &RunPlan) {
        let own: HashSet<_> = plan.tests.iter().map(|test| test.uid.as_str()).collect();
        let is_own = |(uid, _): &(String, OpenCase)| own.contains(uid.as_str());
        let (owed, late): (HashMap<_, _>, HashMap<_, _>) =
            self.cases.finish(run).into_iter().partition(is_own);
        for case in late.into_values() {
            self.cases.add(case, self.started.elapsed());
        }
        self.refuse(owed, "its run has ended without a result").await;
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
        self.output.extend_from_slice(&message);
    }
}
