//! The user's view of a session during a request: displays events, maintains the summary, handles signals and
//! debuggers.

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};

use heeler_protocol::mtp::{ExecutionState, LogLevel, NodeChange, TestNode};
use tokio::time::{Interval, MissedTickBehavior};

use super::{
    arguments::GeneralArguments,
    debugger::{DebuggerAction, DebuggerCommand, DebuggerQueue},
    display::{self, DisplayStream, RunHead},
    in_process_server::InProcessServer,
    run_output::RunOutput,
    signals::SignalRequest,
};
use heeler_client::{ClientEvent, EventStream};
use heeler_config::{CaptureStrategy, ResolvedSettings};
use heeler_report::RunSummary;

/// Interval between checks of the debugger: the longest delay before a test is handed over to it.
const DEBUGGER_TICK: Duration = Duration::from_millis(5);

/// The user's view of a session.
pub(super) struct RunView<'a> {
    pub(super) output: RunOutput<'a>,
    events: EventStream,
    /// When the debuggers are checked: at fixed times, regardless of the number of events.
    debugger_ticks: Interval,
    discovered: Vec<TestNode>,
    problems: Vec<String>,
    is_running: bool,
    /// Whether the user has already requested the end once.
    is_cancel_requested: bool,
    debuggers: DebuggerQueue,
    /// A debugger did not attach to its test.
    pub(super) has_debugger_failed: bool,
    /// Output held back until the debugger returns the terminal.
    pending_output: Vec<PendingOutput>,
}

/// Output that is held back while a debugger has the terminal.
enum PendingOutput {
    Changes(Vec<NodeChange>),
    Log(LogLevel, String),
}

impl<'a> RunView<'a> {
    pub(super) fn new(events: EventStream, output: RunOutput<'a>) -> Self {
        let mut debugger_ticks = tokio::time::interval(DEBUGGER_TICK);
        debugger_ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self {
            output,
            events,
            debugger_ticks,
            discovered: Vec::new(),
            problems: Vec::new(),
            is_running: false,
            is_cancel_requested: false,
            debuggers: DebuggerQueue::new(None),
            has_debugger_failed: false,
            pending_output: Vec::new(),
        }
    }

    /// Sets the debugger to attach to the tests that request one.
    pub(super) fn with_debugger(self, command: Option<DebuggerCommand>) -> Self {
        Self { debuggers: DebuggerQueue::new(command), ..self }
    }

    /// Begins a run: later changes are counted in this summary and displayed as its results.
    pub(super) fn begin(&mut self, head: &RunHead, summary: RunSummary) {
        self.is_running = true;
        self.output.begin(head, summary);
    }

    pub(super) fn take_discovered(&mut self) -> Vec<TestNode> {
        std::mem::take(&mut self.discovered)
    }

    pub(super) fn take_problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    pub(super) fn into_events(self) -> EventStream {
        self.events
    }

    /// Waits for a request's response and displays the events that arrive meanwhile. Returns `None` when the
    /// user forces an immediate exit.
    pub(super) async fn await_response<T>(
        &mut self,
        here: &InProcessServer,
        run_id: &str,
        request: impl Future<Output = T>,
    ) -> Option<T> {
        let mut request = pin!(request);
        loop {
            tokio::select! {
                biased;
                wish = self.output.signals.next() => match wish {
                    SignalRequest::End if self.is_cancel_requested => return None,
                    SignalRequest::End => self.cancel(here, run_id).await,
                    SignalRequest::Pause => self.pause(here).await,
                },
                // Infrequent enough not to delay the other branches, and placed before the branches that may
                // always be ready.
                _ = self.debugger_ticks.tick(), if self.debuggers.is_busy() => self.step_debugger(here).await,
                _ = self.output.ticks.tick() => {
                    if !self.debuggers.has_terminal() {
                        self.output.tick();
                    }
                }
                event = self.events.next() => if let Some(event) = event { self.on_event(event) },
                answer = &mut request => {
                    // All events before the completion are already in the queue.
                    while let Some(event) = self.events.try_next() {
                        self.on_event(event);
                    }
                    self.await_debugger(here).await;
                    return Some(answer);
                }
            }
        }
    }

    /// Waits until the user has left the debugger.
    async fn await_debugger(&mut self, here: &InProcessServer) {
        while self.debuggers.is_busy() {
            self.debugger_ticks.tick().await;
            self.step_debugger(here).await;
        }
    }

    async fn step_debugger(&mut self, here: &InProcessServer) {
        if !self.debuggers.has_terminal() {
            self.output.display.hide();
        }
        let (request, success) = match self.debuggers.step() {
            DebuggerAction::Nothing => return,
            DebuggerAction::TerminalReturned => return self.show_pending_output(),
            DebuggerAction::Reply(request, success) => (request, success),
            DebuggerAction::ReplyFailure(request, level, text) => {
                if !self.debuggers.has_terminal() {
                    self.show_pending_output();
                }
                self.log(level, text);
                self.has_debugger_failed = true;
                (request, false)
            }
        };
        // When the session has ended, the response to the run reports it.
        let _lost = here.client.respond_to_debugger(&request, success).await;
    }

    fn show_pending_output(&mut self) {
        for one in std::mem::take(&mut self.pending_output) {
            match one {
                PendingOutput::Changes(changes) => {
                    self.output.display.apply_changes(&changes, Instant::now())
                }
                PendingOutput::Log(level, text) => self.output.display.log(level, &text),
            }
        }
    }

    /// Displays a log line, or holds it back while a debugger has the terminal.
    fn log(&mut self, level: LogLevel, text: String) {
        if self.debuggers.has_terminal() {
            self.pending_output.push(PendingOutput::Log(level, text));
        } else {
            self.output.display.log(level, &text);
        }
    }

    async fn cancel(&mut self, here: &InProcessServer, run_id: &str) {
        self.is_cancel_requested = true;
        self.log(LogLevel::Warning, "cancelling; press again to exit at once".to_owned());
        // When the session has ended, the response to the request reports it.
        let _lost = here.client.cancel(run_id).await;
    }

    /// Stops the tests, then this process; continues both when the user resumes the process.
    async fn pause(&mut self, here: &InProcessServer) {
        here.pause().await;
        self.output.display.pause(Instant::now());
        if let Err(error) = heeler_sys::process::Signal::STOP.raise() {
            tracing::warn!(%error, "the process could not be stopped");
        }
        self.output.display.resume(Instant::now());
        here.resume().await;
    }

    fn on_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Changes { changes, .. } if self.is_running => {
                self.output.count(&changes);
                if self.debuggers.has_terminal() {
                    self.pending_output.push(PendingOutput::Changes(changes));
                } else {
                    self.output.display.apply_changes(&changes, Instant::now());
                }
            }
            ClientEvent::Changes { changes, .. } => {
                let nodes = changes.into_iter().map(|change| change.node);
                self.discovered.extend(nodes.filter(|node| {
                    matches!(node.state, Some(ExecutionState::Discovered | ExecutionState::Error))
                }));
            }
            ClientEvent::AttachDebugger { id, process_id } => self.debuggers.enqueue(id, process_id),
            ClientEvent::DebuggerWithdrawn { id } => self.debuggers.withdraw(&id),
            ClientEvent::Log { node_uid: Some(uid), level, message, .. } => {
                self.log(level, format!("{uid}: {message}"));
            }
            ClientEvent::Log { level, message, .. } => self.log(level, message),
            ClientEvent::UpdateAfterCompletion { late, .. } => {
                self.report_problem(format!(
                    "bug in Heeler: an update arrived after the completion: {late:?}"
                ));
            }
            ClientEvent::InvalidMessage { reason, .. } => {
                self.report_problem(format!("a message could not be read: {reason}"))
            }
            ClientEvent::CallbackRefused { reason } => {
                self.report_problem(format!("a connection to the callback port was refused: {reason}"));
            }
            ClientEvent::ConnectionLost { reason, .. } => tracing::debug!(reason, "a connection ended"),
            ClientEvent::Attachments { .. }
            | ClientEvent::AttachmentsEnded { .. }
            | ClientEvent::Completed { .. }
            | ClientEvent::Telemetry { .. } => {}
        }
    }

    fn report_problem(&mut self, text: String) {
        self.log(LogLevel::Warning, text.clone());
        self.problems.push(text);
    }
}

/// Returns the display options for the current environment and settings, and the output that is written to.
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
