//! The user's view of a session during a request: displays events, maintains the summary, handles signals and
//! debuggers.

use std::{
    future::Future,
    io::IsTerminal,
    pin::pin,
    time::{Duration, Instant},
};

use tokio::time::{Interval, MissedTickBehavior};
use wire::mtp::{Change, ExecutionState, LogLevel, TestNode};

use super::{
    arguments::GeneralArguments,
    debugger::{DebuggerCommand, Debuggers, Step},
    display::{self, Display, Output, RunHead, Size},
    here::Here,
    signals::{Signals, Wish},
};
use crate::{
    client::{Event, Events},
    config::{Capture, Settings},
    report::Summary,
};

/// Interval between display ticks.
const TICK: Duration = Duration::from_millis(100);

/// Interval between checks of the debugger: the longest delay before a test is handed over to it.
const DEBUGGER_TICK: Duration = Duration::from_millis(5);

/// The user's view of a session.
pub(super) struct Watch {
    pub(super) display: Display,
    pub(super) summary: Summary,
    events: Events,
    signals: Signals,
    ticks: Interval,
    /// When the debuggers are checked: at fixed times, regardless of the number of events.
    looks: Interval,
    discovered: Vec<TestNode>,
    troubles: Vec<String>,
    is_running: bool,
    /// Whether the user has already requested the end once.
    has_asked: bool,
    debuggers: Debuggers,
    /// Output held back until the debugger returns the terminal.
    unshown: Vec<Unshown>,
}

/// Output that is held back while a debugger has the terminal.
enum Unshown {
    Changes(Vec<Change>),
    Log(LogLevel, String),
}

impl Watch {
    pub(super) fn new(events: Events, display: Display, signals: Signals) -> Self {
        let interval = |period| {
            let mut interval = tokio::time::interval(period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
            interval
        };
        Self {
            display,
            summary: Summary::new(None),
            events,
            signals,
            ticks: interval(TICK),
            looks: interval(DEBUGGER_TICK),
            discovered: Vec::new(),
            troubles: Vec::new(),
            is_running: false,
            has_asked: false,
            debuggers: Debuggers::new(None),
            unshown: Vec::new(),
        }
    }

    /// Sets the debugger to attach to the tests that request one.
    pub(super) fn with_debugger(self, command: Option<DebuggerCommand>) -> Self {
        Self { debuggers: Debuggers::new(command), ..self }
    }

    /// Begins a run: later changes are counted and displayed as its results.
    pub(super) fn begin(&mut self, head: &RunHead, selected: usize) {
        self.is_running = true;
        self.summary = Summary::new(Some(selected));
        self.display.begin(head, Instant::now());
    }

    pub(super) fn take_discovered(&mut self) -> Vec<TestNode> {
        std::mem::take(&mut self.discovered)
    }

    pub(super) fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    pub(super) fn into_events(self) -> Events {
        self.events
    }

    /// Waits for a request's response and displays the events that arrive meanwhile. Returns `None` when the
    /// user forces an immediate exit.
    pub(super) async fn until<T>(
        &mut self,
        here: &Here,
        run_id: &str,
        request: impl Future<Output = T>,
    ) -> Option<T> {
        let mut request = pin!(request);
        loop {
            tokio::select! {
                biased;
                wish = self.signals.next() => match wish {
                    Wish::End if self.has_asked => return None,
                    Wish::End => self.cancel(here, run_id).await,
                    Wish::Pause => self.pause(here).await,
                },
                // Infrequent enough not to delay the other branches, and placed before the branches that may
                // always be ready.
                _ = self.looks.tick(), if self.debuggers.is_busy() => self.step_debugger(here).await,
                _ = self.ticks.tick() => {
                    if !self.debuggers.has_terminal() {
                        self.display.tick(Instant::now());
                    }
                }
                event = self.events.next() => if let Some(event) = event { self.event(event) },
                answer = &mut request => {
                    // All events before the completion are already in the queue.
                    while let Some(event) = self.events.try_next() {
                        self.event(event);
                    }
                    self.await_debugger(here).await;
                    return Some(answer);
                }
            }
        }
    }

    /// Waits until the user has left the debugger.
    async fn await_debugger(&mut self, here: &Here) {
        while self.debuggers.is_busy() {
            self.looks.tick().await;
            self.step_debugger(here).await;
        }
    }

    async fn step_debugger(&mut self, here: &Here) {
        if !self.debuggers.has_terminal() {
            self.display.hide();
        }
        let (request, success) = match self.debuggers.step() {
            Step::Nothing => return,
            Step::Ended => return self.show_unshown(),
            Step::Answer(request, success) => (request, success),
            Step::None(request, level, text) => {
                if !self.debuggers.has_terminal() {
                    self.show_unshown();
                }
                self.log(level, text);
                (request, false)
            }
        };
        // When the session has ended, the response to the run reports it.
        let _lost = here.client.answer_debugger(&request, success).await;
    }

    fn show_unshown(&mut self) {
        for one in std::mem::take(&mut self.unshown) {
            match one {
                Unshown::Changes(changes) => self.display.changes(&changes, Instant::now()),
                Unshown::Log(level, text) => self.display.log(level, &text),
            }
        }
    }

    /// Displays a log line, or holds it back while a debugger has the terminal.
    fn log(&mut self, level: LogLevel, text: String) {
        if self.debuggers.has_terminal() {
            self.unshown.push(Unshown::Log(level, text));
        } else {
            self.display.log(level, &text);
        }
    }

    async fn cancel(&mut self, here: &Here, run_id: &str) {
        self.has_asked = true;
        self.log(LogLevel::Warning, "cancelling; once more ends at once".to_owned());
        // When the session has ended, the response to the request reports it.
        let _lost = here.client.cancel(run_id).await;
    }

    /// Stops the tests, then this process; continues both when the user resumes the process.
    async fn pause(&mut self, here: &Here) {
        here.pause().await;
        self.display.pause(Instant::now());
        if let Err(error) = host::process::Signal::STOP.raise() {
            tracing::warn!(%error, "the process could not be stopped");
        }
        self.display.resume(Instant::now());
        here.resume().await;
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Changes { changes, .. } if self.is_running => {
                self.summary.apply(&changes);
                if self.debuggers.has_terminal() {
                    self.unshown.push(Unshown::Changes(changes));
                } else {
                    self.display.changes(&changes, Instant::now());
                }
            }
            Event::Changes { changes, .. } => {
                let nodes = changes.into_iter().map(|change| change.node);
                self.discovered.extend(nodes.filter(|node| {
                    matches!(node.state, Some(ExecutionState::Discovered | ExecutionState::Error))
                }));
            }
            Event::AttachDebugger { id, process_id } => self.debuggers.ask(id, process_id),
            Event::DebuggerWithdrawn { id } => self.debuggers.withdraw(&id),
            Event::Log { node_uid: Some(uid), level, message, .. } => {
                self.log(level, format!("{uid}: {message}"));
            }
            Event::Log { level, message, .. } => self.log(level, message),
            Event::UpdateAfterCompletion { late, .. } => {
                self.trouble(format!(
                    "Heeler broke its promise: an update came after the completion: {late:?}"
                ));
            }
            Event::Unreadable { reason, .. } => {
                self.trouble(format!("a message could not be read: {reason}"))
            }
            Event::CallbackRefused { reason } => {
                self.trouble(format!("a connection to the callback port was turned away: {reason}"));
            }
            Event::ConnectionLost { reason, .. } => tracing::debug!(reason, "a connection ended"),
            Event::Attachments { .. }
            | Event::AttachmentsEnded { .. }
            | Event::Completed { .. }
            | Event::Telemetry { .. } => {}
        }
    }

    fn trouble(&mut self, text: String) {
        self.log(LogLevel::Warning, text.clone());
        self.troubles.push(text);
    }
}

/// Returns the display options for the current environment and settings.
pub(super) fn display_options(general: &GeneralArguments, settings: &Settings) -> display::Options {
    let variable = |name: &str| std::env::var(name).ok();
    let output = if std::io::stdout().is_terminal() { Output::Terminal } else { Output::Stream };
    let kind = match display::kind_for(output, variable) {
        // Raw test output would corrupt the live view.
        display::Kind::Live if settings.run.capture == Capture::Shown => display::Kind::Plain,
        kind => kind,
    };
    let mut options = display::Options::new(kind, display::colour_for(general.color, output, variable));
    options.size = Box::new(|| {
        let (rows, columns) = console::Term::stdout().size();
        Size { columns: usize::from(columns), rows: usize::from(rows) }
    });
    options.slow_after = settings.slow_after();
    options.status_level = settings.run.status_level;
    options.log_level = if general.verbose > 0 { LogLevel::Information } else { LogLevel::Warning };
    options.root = std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default();
    options
}
