//! `--debugger`: hands the terminal to the user's debugger, for one test at a time.
//!
//! ```text
//! a test waits ──start──► it attaches ──► the test runs ──► it exits ──► the next test
//!                             └─ exits before that, or times out ──► the test runs without it
//! ```

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::IsTerminal as _,
    os::fd::AsFd as _,
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};

use heeler_server::scheduler::{DebuggeeLease, DebuggeeWaiting};
use heeler_sys::program_search::find_program;
use heeler_sys::{
    process::{self, Pid, ProcessStat, Signal, stat},
    spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn},
    terminal::{self, TerminalModes},
    trace,
};

/// Timeout for attaching. A debugger reads symbols only after attaching, so attaching is fast.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(60);
/// Placeholder for the process id in a command; `-p PID` is appended to a command without it.
const PID_PLACEHOLDER: &str = "{pid}";

/// Command line of a debugger that attaches to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DebuggerCommand(Vec<String>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum DebuggerCommandError {
    /// The command is empty.
    #[error("the command is empty")]
    Empty,
    /// A quotation mark is not closed, or nothing follows a backslash.
    #[error("unclosed quote, or a backslash at the end")]
    UnclosedQuote,
}

impl FromStr for DebuggerCommand {
    type Err = DebuggerCommandError;

    fn from_str(text: &str) -> Result<Self, DebuggerCommandError> {
        let words = shlex::split(text).ok_or(DebuggerCommandError::UnclosedQuote)?;
        if words.is_empty() { Err(DebuggerCommandError::Empty) } else { Ok(Self(words)) }
    }
}

impl DebuggerCommand {
    /// Returns the debugger's name if a search in `PATH`, like a shell's, does not find it.
    pub(super) fn missing_program(&self) -> Option<&str> {
        let name = self.0.first()?.as_str();
        find_program(name, Path::new("")).is_none().then_some(name)
    }

    /// Returns the command's words with the process id inserted.
    fn arguments_for(&self, process: u32) -> Vec<OsString> {
        let pid = process.to_string();
        let mut words: Vec<_> = self.0.iter().map(|word| word.replace(PID_PLACEHOLDER, &pid)).collect();
        if !self.0.iter().any(|word| word.contains(PID_PLACEHOLDER)) {
            words.extend(["-p".to_owned(), pid]);
        }
        words.into_iter().map(OsString::from).collect()
    }
}

/// Change of a test that waits for a debugger.
#[derive(Debug)]
pub(super) enum DebuggerAction {
    Nothing,
    /// A debugger has attached to the test.
    Attached(DebuggeeWaiting),
    /// No debugger has attached to the test, for this reason.
    Failed(DebuggeeWaiting, String),
    /// The debugger has exited, and Heeler controls the terminal again.
    TerminalReturned,
}

/// Queue of debugger requests; at most one debugger runs at a time.
pub(super) struct DebuggerQueue {
    command: Option<DebuggerCommand>,
    waiting: VecDeque<DebuggeeWaiting>,
    running: Option<RunningDebugger>,
}

struct RunningDebugger {
    child: SpawnedChild,
    test: Pid,
    /// Test that waits for the debugger; `None` once the debugger has attached or failed, or the test is
    /// gone.
    debuggee: Option<DebuggeeWaiting>,
    attach_deadline: Instant,
    /// The terminal's state before the debugger started; `None` without a terminal or after restoring.
    saved_terminal: Option<SavedTerminal>,
}

/// State of a terminal before a debugger took it.
struct SavedTerminal {
    foreground: Pid,
    modes: Option<TerminalModes>,
}

impl DebuggerQueue {
    pub(super) fn new(command: Option<DebuggerCommand>) -> Self {
        Self { command, waiting: VecDeque::new(), running: None }
    }

    pub(super) fn enqueue(&mut self, debuggee: DebuggeeWaiting) {
        self.waiting.push_back(debuggee);
    }

    /// Removes a test that no longer waits, because its process is gone.
    pub(super) fn withdraw(&mut self, lease: DebuggeeLease) {
        self.waiting.retain(|waiting| waiting.lease != lease);
        let is_meant = |running: &&mut RunningDebugger| {
            running.debuggee.as_ref().is_some_and(|waiting| waiting.lease == lease)
        };
        if let Some(running) = self.running.as_mut().filter(is_meant) {
            running.debuggee = None;
            running.kill();
        }
    }

    pub(super) fn has_terminal(&self) -> bool {
        self.running.is_some()
    }

    /// Returns whether a debugger runs or a test waits for one.
    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty()
    }

    /// Checks the running debugger or starts the next one; returns the resulting action.
    pub(super) fn step(&mut self) -> DebuggerAction {
        let Some(running) = &mut self.running else {
            return self.start_next();
        };
        if !matches!(running.child.try_wait(), Ok(None)) {
            running.restore_terminal();
            let debuggee = running.debuggee.take();
            self.running = None;
            let why = "the debugger exited before it attached to the test";
            return debuggee.map_or(DebuggerAction::TerminalReturned, |debuggee| {
                DebuggerAction::Failed(debuggee, why.to_owned())
            });
        }
        // Continue a debugger that the user has stopped (Ctrl-Z). The shell has no job for it, so the user
        // could not continue it.
        if stat(running.child.pid()).is_some_and(ProcessStat::is_stopped) {
            drop(running.child.signal(Signal::CONT));
        }
        if trace::tracer_of(running.test).is_some()
            && let Some(debuggee) = running.debuggee.take()
        {
            return DebuggerAction::Attached(debuggee);
        }
        if Instant::now() >= running.attach_deadline
            && let Some(debuggee) = running.debuggee.take()
        {
            running.kill();
            let limit = ATTACH_TIMEOUT.as_secs();
            let why = format!("the debugger did not attach to the test within {limit} s");
            return DebuggerAction::Failed(debuggee, why);
        }
        DebuggerAction::Nothing
    }

    fn start_next(&mut self) -> DebuggerAction {
        let (Some(debuggee), Some(command)) = (self.waiting.pop_front(), &self.command) else {
            return DebuggerAction::Nothing;
        };
        match RunningDebugger::start(command, debuggee.pid) {
            Ok(mut running) => {
                running.debuggee = Some(debuggee);
                self.running = Some(running);
                DebuggerAction::Nothing
            }
            Err(error) => {
                let why = format!("failed to start the debugger: {error}");
                DebuggerAction::Failed(debuggee, why)
            }
        }
    }
}

impl RunningDebugger {
    fn start(command: &DebuggerCommand, process: u32) -> Result<Self, String> {
        let stdin = std::io::stdin();
        let is_terminal = stdin.is_terminal();
        let before = is_terminal.then(|| terminal::foreground_group(stdin.as_fd()).ok()).flatten();
        let before =
            before.map(|foreground| SavedTerminal { foreground, modes: terminal::modes(stdin.as_fd()).ok() });
        // The shell looks the program up in `PATH`, and is replaced by the debugger.
        let mut args: Vec<OsString> = vec!["-c".into(), "exec \"$0\" \"$@\"".into()];
        args.extend(command.arguments_for(process));
        let start = SpawnOptions { args, stdin: ChildStdio::Inherit, ..SpawnOptions::new("/bin/sh") };
        let child = spawn(start).map_err(|error| heeler_core::error_chain(&error))?;
        if before.is_some()
            && let Err(error) = terminal::set_foreground_group(stdin.as_fd(), child.pid())
        {
            tracing::warn!(%error, "failed to give the terminal to the debugger");
        }
        // The kernel stops a debugger that uses the terminal before becoming the foreground group, together
        // with the programs it has started. Continue them all.
        drop(process::kill_group(child.pid(), Signal::CONT));
        let pid = Pid(i32::try_from(process).unwrap_or_default());
        Ok(Self {
            child,
            test: pid,
            debuggee: None,
            attach_deadline: Instant::now() + ATTACH_TIMEOUT,
            saved_terminal: before,
        })
    }

    fn kill(&self) {
        // A failure means that the debugger has already exited. The next step detects that.
        drop(self.child.signal(Signal::KILL));
    }

    /// Restores the terminal's foreground group and modes, since a killed debugger has not restored them.
    fn restore_terminal(&mut self) {
        let Some(before) = self.saved_terminal.take() else { return };
        let stdin = std::io::stdin();
        if let Err(error) = terminal::set_foreground_group(stdin.as_fd(), before.foreground) {
            tracing::warn!(%error, "failed to take the terminal back from the debugger");
            // The kernel stops a background process that sets the terminal's modes.
            return;
        }
        if let Some(modes) = before.modes
            && let Err(error) = terminal::set_modes(stdin.as_fd(), &modes)
        {
            tracing::warn!(%error, "failed to restore the terminal modes");
        }
    }
}

impl Drop for RunningDebugger {
    /// Restores the terminal when the user forces an immediate exit, because nothing waits for the debugger
    /// then.
    fn drop(&mut self) {
        if self.saved_terminal.is_some() {
            self.kill();
            self.restore_terminal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_id_replaces_placeholder_or_is_appended() {
        let words = |text: &str| text.parse::<DebuggerCommand>().unwrap().arguments_for(7);
        assert_eq!(words("gdb"), ["gdb", "-p", "7"]);
        assert_eq!(words("gdb -q -ex 'break main'"), ["gdb", "-q", "-ex", "break main", "-p", "7"]);
        assert_eq!(words("lldb --attach-pid={pid} -b"), ["lldb", "--attach-pid=7", "-b"]);
    }

    #[test]
    fn invalid_command_is_rejected_with_a_reason() {
        for (text, error) in [("", "is empty"), ("  ", "is empty"), ("gdb 'x", "unclosed")] {
            assert!(text.parse::<DebuggerCommand>().unwrap_err().to_string().contains(error), "{text}");
        }
    }
}
