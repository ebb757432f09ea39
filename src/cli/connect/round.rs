//! One run of the judge: its process, the session that runs its cases, and the user's signals. Only waits
//! and acts; `verdicts` decides the results of cases.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use heeler_core::TestResult;
use heeler_protocol::connect::JudgeReport;
use heeler_server::{
    connect::{CaseEvent, ConnectFrontEnd},
    listen::{ClientStream, FrontEnd as _, SessionCommand, SessionEnd, SessionOptions},
    scheduler::SchedulerHandle,
};
use heeler_transport::local::{AcceptError, LocalListener};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::judge::{Judge, JudgeCommand, JudgeError, JudgeEvent, JudgedCases};
use crate::cli::{
    command_user::UserEvent, display::StartedTest, run_output::RunOutput, signals::SignalRequest,
};

/// Capacity of the queue of case events. Events are handled faster than cases end.
const EVENT_QUEUE_CAPACITY: usize = 256;
/// Time for the session and its workers to end after the judge.
const SESSION_END_LIMIT: Duration = Duration::from_secs(10);

/// State that all runs of the judge share.
pub(super) struct RoundContext<'a> {
    pub(super) judge: &'a JudgeCommand,
    /// Options of the session that runs the cases.
    pub(super) session: SessionOptions,
    pub(super) scheduler: SchedulerHandle,
    /// Maps the name of each case to its uid.
    pub(super) uids: &'a HashMap<String, String>,
    pub(super) suite: &'a str,
    /// Timeout for a judge that sends nothing while no case runs.
    pub(super) silence_limit: Duration,
    /// Time limit of the whole run.
    pub(super) deadline: Option<Instant>,
}

/// Outcome of one run of the judge.
pub(super) struct Round {
    /// Heeler's result for each case that was answered, by name.
    pub(super) answered: HashMap<String, TestResult>,
    pub(super) end: Result<JudgeReport, RoundStop>,
}

/// Reason why a run of the judge has no verdicts.
pub(super) enum RoundStop {
    Judge(JudgeError),
    /// The user cancelled the run.
    Cancelled,
    /// The run reached its time limit.
    TimeLimit,
    /// The user requested an immediate exit, without waiting for cleanup.
    Left,
}

/// Runs the judge once.
///
/// Cancel safe: no, because the judge would then run until this process ends.
pub(super) async fn run_judge(
    context: &RoundContext<'_>,
    cases: &JudgedCases<'_>,
    output: &mut RunOutput<'_>,
) -> Round {
    let mut judge = match RunningJudge::start(context.judge, cases) {
        Ok(started) => started,
        Err(error) => return Round { answered: HashMap::new(), end: Err(RoundStop::Judge(error)) },
    };
    let mut driver = RoundDriver::new(context, judge.judge.pid());
    let stop = driver.drive(&mut judge, output).await;
    driver.end_session(output).await;
    let RoundDriver { answered, has_asked, .. } = driver;
    let end = match stop {
        None => judge.judge.report(has_asked).await.map_err(RoundStop::Judge),
        Some(RoundStop::Left) => Err(RoundStop::Left),
        Some(stop) => tokio::select! {
            () = judge.judge.end() => Err(stop),
            () = output.user.signals.end_requested() => Err(RoundStop::Left),
        },
    };
    Round { answered, end }
}

/// A running judge, and the socket for its client.
struct RunningJudge {
    judge: Judge,
    listener: LocalListener,
    is_connected: bool,
}

impl RunningJudge {
    fn start(command: &JudgeCommand, cases: &JudgedCases<'_>) -> Result<Self, JudgeError> {
        let (judge, listener) = Judge::start(command, cases)?;
        Ok(Self { judge, listener, is_connected: false })
    }

    /// Waits for the next event. Cancel safe: yes, because no event is lost.
    async fn next_event(&mut self) -> RoundEvent {
        let Self { judge, listener, is_connected } = self;
        tokio::select! {
            accepted = listener.accept(), if !*is_connected => {
                *is_connected = accepted.is_ok();
                RoundEvent::Connected(accepted.map(|stream| Box::new(stream) as ClientStream))
            }
            event = judge.next_event() => RoundEvent::Judge(event),
        }
    }
}

enum RoundEvent {
    User(UserEvent),
    Case(CaseEvent),
    Connected(Result<ClientStream, AcceptError>),
    Judge(Result<JudgeEvent, JudgeError>),
    SessionEnded,
}

struct RoundDriver<'a> {
    context: &'a RoundContext<'a>,
    judge_pid: u32,
    /// The session's ends of the channels, until the judge's client connects.
    unconnected: Option<(mpsc::Receiver<SessionCommand>, mpsc::Sender<CaseEvent>)>,
    commands: mpsc::Sender<SessionCommand>,
    events: mpsc::Receiver<CaseEvent>,
    session: JoinSet<SessionEnd>,
    answered: HashMap<String, TestResult>,
    running: HashSet<String>,
    has_asked: bool,
    /// Time of the judge's last output or of the last ended case.
    last_progress: Instant,
}

impl<'a> RoundDriver<'a> {
    fn new(context: &'a RoundContext<'a>, judge_pid: u32) -> Self {
        let (commands, receiver) = mpsc::channel(1);
        let (observer, events) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        Self {
            context,
            judge_pid,
            unconnected: Some((receiver, observer)),
            commands,
            events,
            session: JoinSet::new(),
            answered: HashMap::new(),
            running: HashSet::new(),
            has_asked: false,
            last_progress: Instant::now(),
        }
    }

    /// Runs until the judge has exited; returns the reason if the judge must be ended earlier.
    async fn drive(&mut self, judge: &mut RunningJudge, output: &mut RunOutput<'_>) -> Option<RoundStop> {
        loop {
            let event = tokio::select! {
                event = output.user.next_event() => RoundEvent::User(event),
                Some(event) = self.events.recv() => RoundEvent::Case(event),
                event = judge.next_event() => event,
                Some(_ended) = self.session.join_next() => RoundEvent::SessionEnded,
            };
            match event {
                RoundEvent::User(UserEvent::Signal(SignalRequest::End)) => {
                    output.warn("cancelling; press Ctrl-C again to exit at once");
                    return Some(RoundStop::Cancelled);
                }
                // Pausing is ignored, because the judge would give up on a stopped client.
                RoundEvent::User(UserEvent::Signal(SignalRequest::Pause)) => {}
                RoundEvent::Case(event) => self.on_case(event, output),
                RoundEvent::Connected(Ok(stream)) => self.start_session(stream),
                RoundEvent::Connected(Err(error)) => output.warn(&heeler_core::error_chain(&error)),
                RoundEvent::Judge(Ok(JudgeEvent::Exited)) => return None,
                RoundEvent::Judge(Ok(JudgeEvent::Lines(lines))) => {
                    self.last_progress = Instant::now();
                    lines.iter().for_each(|line| output.warn(line));
                }
                RoundEvent::Judge(Ok(JudgeEvent::Progress)) | RoundEvent::SessionEnded => {
                    self.last_progress = Instant::now();
                }
                RoundEvent::Judge(Err(error)) => return Some(RoundStop::Judge(error)),
                RoundEvent::User(UserEvent::Tick) => {
                    output.tick();
                    if let Some(stop) = self.overdue(Instant::now()) {
                        return Some(stop);
                    }
                }
            }
        }
    }

    /// Returns the reason if the judge must be ended now.
    fn overdue(&self, now: Instant) -> Option<RoundStop> {
        if self.context.deadline.is_some_and(|deadline| deadline <= now) {
            return Some(RoundStop::TimeLimit);
        }
        let limit = self.context.silence_limit;
        let is_silent = self.running.is_empty() && now.duration_since(self.last_progress) > limit;
        is_silent.then_some(RoundStop::Judge(JudgeError::Silent { limit }))
    }

    fn start_session(&mut self, stream: ClientStream) {
        let Some((commands, observer)) = self.unconnected.take() else { return };
        self.has_asked = true;
        self.last_progress = Instant::now();
        // If the judge dies, its remaining cases are not run.
        let options = SessionOptions {
            exit_with: Some(self.judge_pid),
            case_observer: Some(observer),
            ..self.context.session.clone()
        };
        let scheduler = self.context.scheduler.clone();
        self.session.spawn(ConnectFrontEnd.serve(stream, options, scheduler, commands));
    }

    fn on_case(&mut self, event: CaseEvent, output: &mut RunOutput<'_>) {
        self.last_progress = Instant::now();
        match event {
            CaseEvent::Started { name, worker } => {
                if let Some(uid) = self.context.uids.get(&name) {
                    output.start_test(StartedTest {
                        uid: uid.clone(),
                        suite: Some(self.context.suite.to_owned()),
                        name: name.clone(),
                        worker: worker.0,
                    });
                    output.flush_events();
                }
                self.running.insert(name);
            }
            CaseEvent::Ended { name, result } => {
                if let Some(uid) = self.context.uids.get(&name) {
                    output.await_verdict(uid);
                }
                self.running.remove(&name);
                self.answered.insert(name, *result);
            }
            CaseEvent::Warning(text) => output.warn(&text),
        }
    }

    /// Ends the session and handles its remaining events.
    async fn end_session(&mut self, output: &mut RunOutput<'_>) {
        self.unconnected = None;
        // A failed send needs no handling: the session has ended, or its queue already contains a command,
        // which ends the session.
        let _over = self.commands.try_send(SessionCommand::Exit);
        let ended = timeout(SESSION_END_LIMIT, async {
            while let Some(event) = self.events.recv().await {
                self.on_case(event, output);
            }
            while self.session.join_next().await.is_some() {}
        });
        if ended.await.is_err() {
            output.warn("some client processes are still running; their watchdog will kill them");
        }
    }
}
