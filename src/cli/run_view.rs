//! Shows the events of a run to the user: updates and log lines are shown and counted, signals cancel or
//! pause, tests wait for debuggers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_protocol::{
    control::{DebuggerDecision, RunUpdates, TestUpdate},
    mtp::{LogLevel, NodeDescription},
};
use heeler_server::{
    discovery::Catalogue,
    run::{RunOutcome, RunWait, RunWaitCause, discard_run, record_run},
    scheduler::{ClientEvent, ClientLogLine, RequestNumber, SchedulerGone},
};
use tokio::time::{Interval, MissedTickBehavior};

use super::{
    arguments::GeneralArguments,
    command_user::UserEvent,
    debugger::{DebuggerAction, DebuggerCommand, DebuggerQueue},
    display::{self, DisplayStream, DisplayedWait, StartedTest, count_of},
    exit::CommandError,
    local_client::{LocalClient, LocalRun},
    run_output::RunOutput,
    signals::SignalRequest,
};
use heeler_config::{CaptureStrategy, ResolvedSettings};
use heeler_report::{TestReport, shown_name};

/// Interval of debugger checks. Also the longest delay before a test is handed to a debugger.
const DEBUGGER_TICK: Duration = Duration::from_millis(5);

/// How a request ended.
pub(super) enum Answer<T> {
    Ended(T),
    /// The user cancelled the request.
    Cancelled,
    /// The user requested an immediate exit; nothing more is awaited.
    Left,
}

/// The user's view of a client's requests.
pub(super) struct RunView<'a> {
    pub(super) output: RunOutput<'a>,
    local: LocalClient,
    /// Describes the tests of updates.
    catalogue: Arc<Catalogue>,
    /// Debugger checks, at fixed times regardless of the number of events.
    debugger_ticks: Interval,
    problems: Vec<String>,
    /// Whether the user has already requested the end once.
    is_cancel_requested: bool,
    /// Whether the run has announced that no update follows.
    is_completed: bool,
    debuggers: DebuggerQueue,
    /// Whether a debugger failed to attach to its test.
    pub(super) has_debugger_failed: bool,
}

/// Event that a request handles.
enum ViewEvent {
    Client(ClientEvent),
    /// The user cancels the request.
    Cancel,
    /// The user requests an immediate exit.
    Leave,
}

impl<'a> RunView<'a> {
    pub(super) fn new(local: LocalClient, output: RunOutput<'a>) -> Self {
        let mut debugger_ticks = tokio::time::interval(DEBUGGER_TICK);
        debugger_ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self {
            output,
            local,
            catalogue: Arc::default(),
            debugger_ticks,
            problems: Vec::new(),
            is_cancel_requested: false,
            is_completed: false,
            debuggers: DebuggerQueue::new(None),
            has_debugger_failed: false,
        }
    }

    /// Sets the debugger that is attached to waiting tests.
    pub(super) fn with_debugger(self, command: Option<DebuggerCommand>) -> Self {
        Self { debuggers: DebuggerQueue::new(command), ..self }
    }

    pub(super) fn take_problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    /// Ends the scheduler and all its processes.
    ///
    /// Cancel safe: yes, because [`LocalClient::shut_down`] is.
    pub(super) async fn shut_down(self) {
        self.local.shut_down().await;
    }

    /// Lists the tests of all programs.
    ///
    /// # Errors
    /// No program can be listed, or the scheduler has failed.
    ///
    /// Cancel safe: no, because the listing continues.
    pub(super) async fn discover(&mut self) -> Result<Answer<Arc<Catalogue>>, CommandError> {
        let own = self.local.list().await.map_err(CommandError::Scheduler)?;
        loop {
            match self.next_event().await.map_err(CommandError::Scheduler)? {
                ViewEvent::Leave => return Ok(Answer::Left),
                ViewEvent::Cancel => {
                    self.cancel(own).await;
                    return Ok(Answer::Cancelled);
                }
                ViewEvent::Client(ClientEvent::Listed { request, catalogue }) if request == own => {
                    self.catalogue = catalogue.map_err(|reason| CommandError::NoRun { reason })?;
                    return Ok(Answer::Ended(Arc::clone(&self.catalogue)));
                }
                ViewEvent::Client(event) => self.on_event(event),
            }
        }
    }

    /// Runs tests until the run has ended, also after cancelling, and records its end.
    ///
    /// # Errors
    /// The run can't start, or the scheduler has failed.
    ///
    /// Cancel safe: no, because the run continues.
    pub(super) async fn run(&mut self, run: LocalRun<'_>) -> Result<Answer<Box<RunOutcome>>, CommandError> {
        let began = Instant::now();
        let (own, warnings) = self.local.start_run(run).await?;
        for warning in warnings {
            self.output.log(LogLevel::Warning, warning);
        }
        loop {
            match self.next_event().await.map_err(CommandError::Scheduler)? {
                ViewEvent::Leave => return Ok(Answer::Left),
                ViewEvent::Cancel => self.cancel(own).await,
                ViewEvent::Client(ClientEvent::RunEnded { request, plan, outcome }) if request == own => {
                    let warning = record_run(self.local.settings(), &plan, &outcome, began.elapsed());
                    if let Some(warning) = warning {
                        self.output.log(LogLevel::Warning, warning);
                    }
                    self.await_debugger().await;
                    return Ok(Answer::Ended(outcome));
                }
                ViewEvent::Client(ClientEvent::RunRefused { request, plan, error }) if request == own => {
                    discard_run(&plan);
                    return Err(CommandError::NoRun { reason: error });
                }
                ViewEvent::Client(event) => self.on_event(event),
            }
        }
    }

    /// Waits for the next event of the request in progress; handles ticks, pauses and debuggers meanwhile.
    async fn next_event(&mut self) -> Result<ViewEvent, SchedulerGone> {
        loop {
            tokio::select! {
                biased;
                // User events are rare enough not to delay the other branches. They come first, because the
                // client's branch may always be ready.
                event = self.output.user.next_event() => match event {
                    UserEvent::Signal(SignalRequest::End) if self.is_cancel_requested => {
                        return Ok(ViewEvent::Leave);
                    }
                    UserEvent::Signal(SignalRequest::End) => return Ok(ViewEvent::Cancel),
                    UserEvent::Signal(SignalRequest::Pause) => self.pause().await,
                    UserEvent::Tick => self.output.tick(),
                },
                _ = self.debugger_ticks.tick(), if self.debuggers.is_busy() => self.step_debugger().await,
                event = self.local.client.next_event() => {
                    return event.map(ViewEvent::Client).ok_or(SchedulerGone);
                }
            }
        }
    }

    async fn cancel(&mut self, request: RequestNumber) {
        self.is_cancel_requested = true;
        self.output.log(LogLevel::Warning, "cancelling; press Ctrl-C again to exit at once".to_owned());
        // A failed send needs no handling: a failed scheduler sends no more events, which ends the request.
        let _gone = self.local.client.cancel(request).await;
    }

    /// Stops the tests, then this process; continues both when the user continues the process.
    async fn pause(&mut self) {
        self.local.pause().await;
        self.output.pause();
        self.local.resume().await;
    }

    /// Waits until the user has left the debugger.
    async fn await_debugger(&mut self) {
        while self.debuggers.is_busy() {
            self.debugger_ticks.tick().await;
            self.step_debugger().await;
        }
    }

    async fn step_debugger(&mut self) {
        let had_terminal = self.debuggers.has_terminal();
        if !had_terminal {
            self.output.lend_terminal();
        }
        let action = self.debuggers.step();
        if !self.debuggers.has_terminal() {
            self.output.take_terminal_back();
        }
        let (debuggee, decision) = match action {
            DebuggerAction::Nothing | DebuggerAction::TerminalReturned => return,
            DebuggerAction::Attached(debuggee) => (debuggee, DebuggerDecision::ReleaseToDebugger),
            DebuggerAction::Failed(debuggee, why) => {
                self.output.log(LogLevel::Error, why);
                let test = debuggee.test_uid.as_deref().unwrap_or("a test");
                self.output.log(LogLevel::Warning, format!("running {test} without a debugger"));
                self.has_debugger_failed = true;
                (debuggee, DebuggerDecision::RunWithoutDebugger)
            }
        };
        // A failed send needs no handling: a failed scheduler sends no more events, which ends the run.
        let _gone = self.local.client.decide_debuggee(debuggee.lease, decision).await;
    }

    fn on_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Updates(updates) => self.on_updates(updates),
            ClientEvent::Log { lines, .. } => {
                for ClientLogLine { test_uid, level, message } in lines {
                    let text = match test_uid {
                        Some(uid) => format!("{uid}: {message}"),
                        None => message,
                    };
                    self.output.log(level, text);
                }
            }
            ClientEvent::Waits { waits, .. } => {
                let waits = waits.into_iter().map(|wait| self.displayed_wait(wait)).collect();
                self.output.show_waits(waits);
            }
            ClientEvent::DebuggeeWaiting(debuggee) => self.debuggers.enqueue(debuggee),
            ClientEvent::DebuggeeGone(lease) => self.debuggers.withdraw(lease),
            ClientEvent::MachineWait(wait) => self.output.show_machine_wait(wait.as_ref()),
            // Never received here: no debugger launches tests, updates arrive as events, and this command
            // has only one active request.
            ClientEvent::DebuggeeLaunched(_)
            | ClientEvent::FinishRun(_)
            | ClientEvent::Listed { .. }
            | ClientEvent::RunEnded { .. }
            | ClientEvent::RunRefused { .. } => {}
        }
    }

    fn on_updates(&mut self, RunUpdates { updates, .. }: RunUpdates) {
        for update in updates {
            if self.is_completed && !matches!(update, TestUpdate::Completed) {
                let text = format!("bug in Heeler: an update arrived after the completion: {update:?}");
                self.output.log(LogLevel::Warning, text.clone());
                self.problems.push(text);
                continue;
            }
            match update {
                TestUpdate::Started { uid, worker, .. } => {
                    let started = self.describe(&uid, |test| StartedTest {
                        uid: test.uid.to_owned(),
                        suite: Some(test.suite).filter(|suite| !suite.is_empty()).map(str::to_owned),
                        name: shown_name(test),
                        worker: worker.0,
                    });
                    self.output.start_test(started);
                }
                TestUpdate::Finished { uid, result } => {
                    let report = self.describe(&uid, |test| TestReport::from_result(test, &result));
                    self.output.end_test(report);
                }
                TestUpdate::ProgramFailed(failure) => {
                    self.output.end_test(TestReport::from_program_failure(&failure));
                }
                TestUpdate::Completed => self.is_completed = true,
            }
        }
        self.output.flush_events();
    }

    fn displayed_wait(&self, RunWait { cause, tests }: RunWait) -> DisplayedWait {
        let thing = match cause {
            RunWaitCause::Slots(slots) => count_of(slots, "slot"),
            RunWaitCause::Resource(name) => name,
            RunWaitCause::Process { suite } => format!("a process of {suite}"),
            RunWaitCause::Turn => "their turn".to_owned(),
            RunWaitCause::Test { uid } => self.describe(&uid, shown_name),
        };
        DisplayedWait { tests, thing }
    }

    /// Calls `render` with the description of a test.
    fn describe<T>(&self, uid: &str, render: impl FnOnce(&NodeDescription<'_>) -> T) -> T {
        match self.catalogue.find(uid) {
            Some(test) => self.catalogue.with_description(test, render),
            None => render(&NodeDescription::unlisted(uid)),
        }
    }
}

/// Returns the display options for the current environment, settings and output stream.
pub(super) fn display_options(
    general: &GeneralArguments,
    settings: &ResolvedSettings,
    stream: DisplayStream,
) -> display::DisplayOptions {
    let variable = |name: &str| std::env::var(name).ok();
    let output = stream.target();
    let kind = match display::kind_for(output, variable) {
        // Raw test output would corrupt the live view.
        display::DisplayKind::Live if settings.run.capture == CaptureStrategy::Shown => {
            display::DisplayKind::Plain
        }
        kind => kind,
    };
    let mut options =
        display::DisplayOptions::new(kind, display::colour_for(general.color, output, variable));
    options.size = Box::new(move || stream.size());
    options.slow_after = settings.slow_after();
    options.status_level = settings.run.status_level;
    options.final_status_level = settings.run.final_status_level;
    options.success_output = settings.run.success_output;
    options.failure_output = settings.run.failure_output;
    options.log_level = if general.verbose > 0 { LogLevel::Information } else { LogLevel::Warning };
    options.root = std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default();
    options
}
