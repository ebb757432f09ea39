//! A minimal line-based protocol. It proves that a front end needs only a module and a line in the registry.
//! The front end receives typed results and creates no messages of the test protocol.
//!
//! ```text
//! client: run RUN [UID…]     starts a run of these tests, or of all
//!         cancel RUN         cancels it
//! server: begin RUN UID      the test has started
//!         end RUN UID OUTCOME [actual ACTUAL expected EXPECTED]
//!         log TEXT
//!         over RUN TESTS     the run is complete; the last line of this run
//!         error RUN TEXT     the run could not start; the last line of this run
//! ```

use std::{collections::BTreeMap, fmt::Write as _, str::from_utf8, sync::Arc, time::Duration};

use heeler_protocol::{
    control::{RunUpdates, TestUpdate},
    mcp::{LineDecoder, PeerLine},
    mtp::ClientMembers,
};
use heeler_server::{
    discovery::{Catalogue, TestSelection},
    listen::{
        ClientStream, FrontEnd, LinkEvent, LinkLimits, ServingSession, SessionCommand, SessionEnd,
        SessionLink, SessionOptions,
    },
    run::{PlanContext, PreparedRun, RunRequest, discard_run, prepare_run, record_run},
    scheduler::{
        BuildRequest, ClientEvent, RequestNumber, RunClient, SchedulerGone, SchedulerHandle, UpdateDelivery,
    },
};
use tokio::sync::mpsc;

use crate::PATIENCE;

/// The line protocol's front end.
#[derive(Debug)]
pub(crate) struct LineFrontEnd;

impl FrontEnd for LineFrontEnd {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn serve(
        &self,
        stream: ClientStream,
        options: SessionOptions,
        scheduler: SchedulerHandle,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> ServingSession {
        Box::pin(async move {
            serve(stream, options, scheduler, commands).await.unwrap_or(SessionEnd::Disconnected)
        })
    }
}

async fn serve(
    stream: ClientStream,
    options: SessionOptions,
    scheduler: SchedulerHandle,
    commands: mpsc::Receiver<SessionCommand>,
) -> Result<SessionEnd, SchedulerGone> {
    let client = scheduler.register(options.registration(UpdateDelivery::Events)).await?;
    let link = SessionLink::open(stream, LineDecoder::default(), commands, LinkLimits::default());
    let mut session = LineSession { options, client, link, runs: BTreeMap::new(), next: 0 };
    let end = loop {
        tokio::select! {
            event = session.link.next_event(true) => match event {
                LinkEvent::Command(SessionCommand::Exit) => break SessionEnd::Exit,
                LinkEvent::Command(SessionCommand::Pause(done)) => session.client.pause(done).await?,
                LinkEvent::Command(SessionCommand::Resume) => session.client.resume().await?,
                LinkEvent::Message(PeerLine::Message(line)) => {
                    session.on_line(from_utf8(&line).unwrap()).await?;
                }
                LinkEvent::Over(end) => break end,
                LinkEvent::Sent | LinkEvent::Unwritable => {}
                _ => break SessionEnd::Disconnected,
            },
            event = session.client.next_event() => {
                session.on_event(event.ok_or(SchedulerGone)?).await?;
            }
        }
    };
    session.client.leave().await;
    session.link.finish(PATIENCE).await;
    Ok(end)
}

/// A requested run.
struct LineRun {
    id: String,
    uids: Option<Vec<String>>,
    finished: usize,
}

struct LineSession {
    options: SessionOptions,
    client: RunClient,
    link: SessionLink<LineDecoder>,
    runs: BTreeMap<RequestNumber, LineRun>,
    next: u64,
}

impl LineSession {
    async fn on_line(&mut self, line: &str) -> Result<(), SchedulerGone> {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["run", id, uids @ ..] => {
                let request = RequestNumber(self.next);
                self.next += 1;
                let uids = (!uids.is_empty()).then(|| uids.iter().map(|uid| (*uid).to_owned()).collect());
                self.runs.insert(request, LineRun { id: (*id).to_owned(), uids, finished: 0 });
                self.client.list(request, BuildRequest::None).await
            }
            ["cancel", id] => match self.runs.iter().find(|(_, run)| run.id == *id) {
                Some((request, _)) => self.client.cancel(*request).await,
                None => Ok(()),
            },
            _ => {
                self.write(&format!("log what is {line:?}?"));
                Ok(())
            }
        }
    }

    async fn on_event(&mut self, event: ClientEvent) -> Result<(), SchedulerGone> {
        match event {
            ClientEvent::Listed { request, catalogue: Ok(catalogue) } => {
                self.start_run(request, &catalogue).await?;
            }
            ClientEvent::Listed { request, catalogue: Err(error) } => self.fail(request, &error),
            ClientEvent::Log { lines, .. } => {
                for line in lines {
                    self.write(&format!("log {}", line.message));
                }
            }
            ClientEvent::RunRefused { request, plan, error } => {
                discard_run(&plan);
                self.fail(request, &error);
            }
            ClientEvent::Updates(updates) => self.on_updates(updates),
            ClientEvent::RunEnded { request, plan, outcome } => {
                let _warning = record_run(&self.options.settings, &plan, &outcome, Duration::ZERO);
                if let Some(run) = self.runs.remove(&request) {
                    self.write(&format!("over {} {}", run.id, run.finished));
                }
            }
            ClientEvent::FinishRun(_) => self.write("log frames for a client that takes typed updates"),
            ClientEvent::MachineWait(_)
            | ClientEvent::Waits { .. }
            | ClientEvent::DebuggeeWaiting(_)
            | ClientEvent::DebuggeeLaunched(_)
            | ClientEvent::DebuggeeGone(_) => {}
        }
        Ok(())
    }

    async fn start_run(
        &mut self,
        request: RequestNumber,
        catalogue: &Arc<Catalogue>,
    ) -> Result<(), SchedulerGone> {
        let Some(run) = self.runs.get(&request) else { return Ok(()) };
        let selection = TestSelection { uids: run.uids.clone(), filter: None };
        let wanted = RunRequest {
            run_id: &run.id,
            selection: &selection,
            is_debugged: false,
            has_attachments_stream: false,
        };
        let SessionOptions { settings, provenance, .. } = &self.options;
        match prepare_run(&wanted, &PlanContext { catalogue, settings, provenance }) {
            Ok(PreparedRun { plan, .. }) => {
                self.client.start_run(request, Box::new(plan), ClientMembers::default()).await
            }
            Err(error) => {
                self.fail(request, &error.to_string());
                Ok(())
            }
        }
    }

    fn on_updates(&mut self, RunUpdates { run, updates }: RunUpdates) {
        for update in updates {
            match update {
                TestUpdate::Started { uid, .. } => self.write(&format!("begin {run} {uid}")),
                TestUpdate::Finished { uid, result } => {
                    let of_run = self.runs.values_mut().find(|one| one.id == run);
                    of_run.into_iter().for_each(|run| run.finished += 1);
                    let mut line = format!("end {run} {uid} {}", result.outcome.label());
                    for failure in &result.failures {
                        if let (Some(actual), Some(expected)) = (&failure.actual, &failure.expected) {
                            write!(line, " actual {actual} expected {expected}").unwrap();
                        }
                    }
                    self.write(&line);
                }
                TestUpdate::ProgramFailed(failure) => {
                    self.write(&format!("log {}: {}", failure.suite, failure.message));
                }
                TestUpdate::Completed => {}
            }
        }
    }

    fn fail(&mut self, request: RequestNumber, error: &str) {
        if let Some(run) = self.runs.remove(&request) {
            self.write(&format!("error {} {error}", run.id));
        }
    }

    fn write(&mut self, line: &str) {
        self.link.output.send(format!("{}\n", line.replace('\n', " ")).into());
    }
}
