//! `--debugger`: the user's own debugger has the terminal, for one test after the other.
//!
//! ```text
//! asked ──start──► it attaches ──► answered, the test goes on ──► it ends ──► the next
//!                     └─ ends before that, or takes too long ──► answered: none
//! ```

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::IsTerminal as _,
    os::fd::AsFd as _,
    str::FromStr,
    time::{Duration, Instant},
};

use host::{
    process::{Pid, Signal, stat},
    spawn::{Child, Spawn, Stream, spawn},
    terminal::{self, Modes},
    trace,
};
use wire::{mtp::LogLevel, rpc::RequestId};

/// A debugger reads the symbols of what it attaches to afterwards; before, it has little to do.
const ATTACH: Duration = Duration::from_secs(60);
/// Where the number of the process stands in a command; else it comes last, behind `-p`.
const PLACE: &str = "{pid}";

/// A command that attaches a debugger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebuggerCommand(Vec<String>);

/// Why words are no such command.
#[derive(Debug, thiserror::Error)]
pub enum NoCommand {
    /// There is no word.
    #[error("there is no command in it")]
    Empty,
    /// A quote that does not end.
    #[error("a quotation mark is not closed, or nothing follows a backslash")]
    Quotes,
}

impl FromStr for DebuggerCommand {
    type Err = NoCommand;

    fn from_str(text: &str) -> Result<Self, NoCommand> {
        let words = shlex::split(text).ok_or(NoCommand::Quotes)?;
        if words.is_empty() { Err(NoCommand::Empty) } else { Ok(Self(words)) }
    }
}

impl DebuggerCommand {
    /// Returns the words for a process.
    fn words(&self, process: u32) -> Vec<OsString> {
        let pid = process.to_string();
        let mut words: Vec<_> = self.0.iter().map(|word| word.replace(PLACE, &pid)).collect();
        if !self.0.iter().any(|word| word.contains(PLACE)) {
            words.extend(["-p".to_owned(), pid]);
        }
        words.into_iter().map(OsString::from).collect()
    }
}

/// What the session is to be told, or the user.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// Whether a debugger has attached.
    Answer(RequestId, bool),
    /// It has none, and why.
    None(RequestId, LogLevel, String),
    /// The terminal is ours again.
    Ended,
}

/// The user's debuggers, one at a time.
pub(super) struct Debuggers {
    command: Option<DebuggerCommand>,
    waiting: VecDeque<(RequestId, u32)>,
    running: Option<Running>,
}

struct Running {
    child: Child,
    test: Pid,
    /// Until it is answered.
    request: Option<RequestId>,
    until: Instant,
    /// How the terminal was before; `None` where there is none, or it is ours again.
    before: Option<Before>,
}

/// A terminal before a debugger had it.
struct Before {
    foreground: Pid,
    modes: Option<Modes>,
}

impl Debuggers {
    pub(super) fn new(command: Option<DebuggerCommand>) -> Self {
        Self { command, waiting: VecDeque::new(), running: None }
    }

    /// Takes note of a test that wants a debugger.
    pub(super) fn ask(&mut self, request: RequestId, process: u32) {
        self.waiting.push_back((request, process));
    }

    /// Takes note that a request is withdrawn: its test is no more.
    pub(super) fn withdraw(&mut self, request: &RequestId) {
        self.waiting.retain(|(waiting, _)| waiting != request);
        if let Some(running) = self.running.as_mut().filter(|one| one.request.as_ref() == Some(request)) {
            running.request = None;
            running.end();
        }
    }

    /// Whether a debugger has the terminal.
    pub(super) fn has_terminal(&self) -> bool {
        self.running.is_some()
    }

    /// Whether there is anything to look at.
    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty()
    }

    /// Looks at what there is, and does what follows.
    pub(super) fn step(&mut self) -> Step {
        let Some(running) = &mut self.running else {
            return self.start_next();
        };
        if !matches!(running.child.try_wait(), Ok(None)) {
            running.take_back_terminal();
            let request = running.request.take();
            self.running = None;
            let text = "the debugger ended before it had attached to the test".to_owned();
            return request.map_or(Step::Ended, |request| Step::None(request, LogLevel::Error, text));
        }
        // Nobody would continue one that the user has stopped: the shell does not know it.
        if stat(running.child.pid()).is_some_and(|stat| stat.state == 'T') {
            drop(running.child.signal(Signal::CONT));
        }
        if running.request.is_some() && trace::tracer_of(running.test).is_some() {
            return running.request.take().map_or(Step::Nothing, |request| Step::Answer(request, true));
        }
        if running.request.is_some() && Instant::now() >= running.until {
            running.end();
            let text = format!("the debugger has not attached to the test within {} s", ATTACH.as_secs());
            return running
                .request
                .take()
                .map_or(Step::Nothing, |request| Step::None(request, LogLevel::Error, text));
        }
        Step::Nothing
    }

    fn start_next(&mut self) -> Step {
        let Some((request, process)) = self.waiting.pop_front() else { return Step::Nothing };
        let Some(command) = &self.command else { return Step::Answer(request, false) };
        match Running::start(command, process) {
            Ok(mut running) => {
                running.request = Some(request);
                self.running = Some(running);
                Step::Nothing
            }
            Err(error) => {
                let text = format!("the debugger could not be started: failed to {error}");
                Step::None(request, LogLevel::Error, text)
            }
        }
    }
}

impl Running {
    fn start(command: &DebuggerCommand, process: u32) -> Result<Self, String> {
        let stdin = std::io::stdin();
        let is_terminal = stdin.is_terminal();
        let before = is_terminal.then(|| terminal::foreground(stdin.as_fd()).ok()).flatten();
        let before =
            before.map(|foreground| Before { foreground, modes: terminal::modes(stdin.as_fd()).ok() });
        // The shell looks the program up, and leaves a debugger in its place.
        let mut args: Vec<OsString> = vec!["-c".into(), "exec \"$0\" \"$@\"".into()];
        args.extend(command.words(process));
        let start = Spawn { args, stdin: Stream::Inherit, ..Spawn::new("/bin/sh") };
        let child = spawn(start).map_err(|error| crate::error_chain(&error))?;
        if before.is_some()
            && let Err(error) = terminal::set_foreground(stdin.as_fd(), child.pid())
        {
            tracing::warn!(%error, "the debugger does not get the terminal");
        }
        // One that was faster than the line above stands still for it.
        drop(child.signal(Signal::CONT));
        let pid = Pid(i32::try_from(process).unwrap_or_default());
        Ok(Self { child, test: pid, request: None, until: Instant::now() + ATTACH, before })
    }

    fn end(&self) {
        // One that is gone is seen by the next look.
        drop(self.child.signal(Signal::KILL));
    }

    /// Takes the terminal back, as it was: a debugger that was killed has tidied nothing up.
    fn take_back_terminal(&mut self) {
        let Some(before) = self.before.take() else { return };
        let stdin = std::io::stdin();
        if let Err(error) = terminal::set_foreground(stdin.as_fd(), before.foreground) {
            tracing::warn!(%error, "the terminal does not come back from the debugger");
            // Behind it, whoever sets its modes is stopped.
            return;
        }
        if let Some(modes) = before.modes
            && let Err(error) = terminal::set_modes(stdin.as_fd(), &modes)
        {
            tracing::warn!(%error, "the terminal does not get its modes back");
        }
    }
}

impl Drop for Running {
    /// When the user wants out at once, the debugger's end is waited for by nobody.
    fn drop(&mut self) {
        if self.before.is_some() {
            self.end();
            self.take_back_terminal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_stands_where_the_command_wants_it_or_last() {
        let words = |text: &str| text.parse::<DebuggerCommand>().unwrap().words(7);
        assert_eq!(words("gdb"), ["gdb", "-p", "7"]);
        assert_eq!(words("gdb -q -ex 'break main'"), ["gdb", "-q", "-ex", "break main", "-p", "7"]);
        assert_eq!(words("lldb --attach-pid={pid} -b"), ["lldb", "--attach-pid=7", "-b"]);
    }

    #[test]
    fn what_is_no_command_is_said_so() {
        for (text, error) in [("", "no command"), ("  ", "no command"), ("gdb 'x", "not closed")] {
            assert!(text.parse::<DebuggerCommand>().unwrap_err().to_string().contains(error), "{text}");
        }
    }
}
