//! A build tool as a child process: its standard output is read line by line, its standard error is shown,
//! and it can be cancelled. A process that the tool leaves behind with open outputs does not delay its end.

use std::{
    cell::RefCell,
    collections::VecDeque,
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal as _, Read as _, Write as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use heeler_sys::{
    io::{pipe, wait_readable},
    process::{ExitStatus, Signal, exit_text, kill_group},
    spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn},
};

use crate::{error::CargoError, tool_guard::ToolGuard};

/// Time for the outputs to end after the tool's exit. Only a process left behind keeps them open, and such a
/// process is not part of the build.
const OUTPUT_END_LIMIT: Duration = Duration::from_secs(1);
/// Bytes kept of a build's final output: one or two screens.
const TAIL_BYTES: usize = 8 << 10;
/// Size of one read, equal to a pipe's capacity.
const READ_BYTES: usize = 64 << 10;

/// How a build is supervised. The default suits a build at the start of a command: its output is only shown,
/// and it is cancelled together with the command.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuildSupervision<'a> {
    /// Becomes readable when the build is no longer needed.
    pub cancelled: Option<BorrowedFd<'a>>,
    /// Keeps the end of the output.
    pub tail: Option<&'a OutputTail>,
    /// Which processes end with the build.
    pub scope: BuildScope,
    /// Time at which the build is ended, if it is still running.
    pub limit: Option<Instant>,
}

/// Which processes of a build end when it is cancelled or this process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BuildScope {
    /// The tool and, when cancelled, its process group. Processes left behind at the tool's end continue.
    #[default]
    Tool,
    /// Everything that the tool has started, whatever its process group and parent.
    Tree,
}

/// Final part of a build's output.
#[derive(Debug, Default)]
pub struct OutputTail(RefCell<VecDeque<u8>>);

impl OutputTail {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.borrow_mut();
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(TAIL_BYTES);
        kept.drain(..surplus);
    }

    /// Returns the kept output as text.
    pub fn text(&self) -> String {
        let kept: Vec<u8> = self.0.borrow().iter().copied().collect();
        String::from_utf8_lossy(&kept).trim_end().to_owned()
    }
}

/// Destination of a tool's standard error.
pub(crate) enum StderrTarget {
    Shown,
    /// Shows nothing; the supervision keeps the final part.
    Kept,
    Dropped,
}

/// A running tool with its standard output connected to a pipe.
#[derive(Debug)]
pub(crate) struct ToolProcess<'a> {
    pub(crate) child: SpawnedChild,
    stdout: OwnedFd,
    /// A pipe if standard error must be read here.
    stderr: Option<OwnedFd>,
    pub(crate) command_line: String,
    pub(crate) dir: PathBuf,
    is_stderr_shown: bool,
    supervision: BuildSupervision<'a>,
    /// Guard of the tool; the child is then the guard's process.
    guard: Option<ToolGuard>,
}

impl<'a> ToolProcess<'a> {
    pub(crate) fn start(
        program: &Path,
        args: Vec<OsString>,
        dir: &Path,
        errors: StderrTarget,
        supervision: BuildSupervision<'a>,
    ) -> Result<Self, CargoError> {
        Self::start_with(program, args, &[], dir, errors, supervision)
    }

    /// Starts a tool with these variables in addition to this process's environment.
    pub(crate) fn start_with(
        program: &Path,
        args: Vec<OsString>,
        variables: &[(OsString, OsString)],
        dir: &Path,
        errors: StderrTarget,
        supervision: BuildSupervision<'a>,
    ) -> Result<Self, CargoError> {
        // Create the output pipes.
        let words = args.iter().map(|word| word.to_string_lossy());
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let line = [name].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        let no_pipe = |source| CargoError::Read { command: line.clone(), source };
        let (stdout, their_stdout) = pipe().map_err(no_pipe)?;
        let is_stderr_shown = matches!(errors, StderrTarget::Shown);
        let (stderr, their_stderr) = match (errors, supervision.tail) {
            (StderrTarget::Dropped, _) | (StderrTarget::Kept, None) => (None, ChildStdio::Null),
            // The tool inherits the terminal, whose reader does not wait for the end of the output.
            (StderrTarget::Shown, None) if io::stderr().is_terminal() => (None, ChildStdio::Inherit),
            // Otherwise use a pipe: a process left behind would keep an inherited output open, although its
            // reader waits for its end.
            (StderrTarget::Shown, None) | (StderrTarget::Shown | StderrTarget::Kept, Some(_)) => {
                let (ours, theirs) = pipe().map_err(no_pipe)?;
                (Some(ours), ChildStdio::Fd(theirs))
            }
        };
        // Start the tool, or a guard that starts it.
        let cwd = Some(dir.to_owned()).filter(|dir| !dir.as_os_str().is_empty());
        let is_set = |name: &OsString| variables.iter().any(|(own, _)| own == name);
        let inherited = std::env::vars_os().filter(|(name, _)| !is_set(name));
        let env = (!variables.is_empty()).then(|| inherited.chain(variables.iter().cloned()).collect());
        let outputs = (ChildStdio::Fd(their_stdout), their_stderr);
        let not_started = |source| CargoError::Start { command: line.clone(), source };
        let (child, guard) = match supervision.scope {
            BuildScope::Tool => {
                let (stdout, stderr) = outputs;
                let tool = SpawnOptions { args, env, cwd, stdout, stderr, ..SpawnOptions::new(program) };
                (spawn(tool).map_err(not_started)?, None)
            }
            BuildScope::Tree => {
                let (mut guard, options, control) = ToolGuard::connect().map_err(no_pipe)?;
                let (stdout, stderr) = outputs;
                let stdin = ChildStdio::Fd(control);
                let child = spawn(SpawnOptions { stdin, stdout, stderr, ..options }).map_err(not_started)?;
                guard.start(program, &args, env, cwd).map_err(no_pipe)?;
                (child, Some(guard))
            }
        };
        let dir = dir.to_owned();
        Ok(Self { child, stdout, stderr, command_line: line, dir, is_stderr_shown, supervision, guard })
    }

    /// Passes each line of the output to `take`, without its line end; then reaps the process.
    pub(crate) fn finish(self, take: impl FnMut(&[u8])) -> Result<(), CargoError> {
        let Self {
            mut child,
            stdout,
            stderr,
            command_line: command,
            dir,
            is_stderr_shown,
            supervision,
            guard,
        } = self;
        let mut guard = guard;
        // Read the outputs to their end.
        let mut outputs = ToolOutputs {
            stdout: Some(stdout.into()),
            stderr: stderr.map(File::from),
            is_stderr_shown,
            is_stdout_kept: is_stderr_shown,
            tail: supervision.tail,
            lines: LineSplitter { take, rest: Vec::new() },
        };
        let read = outputs.read_to_end(&child, supervision);
        outputs.lines.end();
        match read {
            Ok(OutputsEnd::Complete) => {}
            Ok(OutputsEnd::HeldOpen) => tracing::warn!(
                command,
                "a leaked process of the build keeps its output open; its further output is ignored"
            ),
            Ok(OutputsEnd::Cancelled | OutputsEnd::TimedOut) | Err(_) if guard.is_some() => guard = None,
            Ok(OutputsEnd::Cancelled | OutputsEnd::TimedOut) | Err(_) => {
                // Fails only if the whole group is gone.
                let _gone = kill_group(child.pid(), Signal::KILL);
            }
        }
        // Wait for the exit.
        let ended = guard.as_mut().map(ToolGuard::wait);
        drop(guard);
        let exit = child.wait();
        let exit = ended.unwrap_or(exit);
        match (read, exit) {
            (Ok(OutputsEnd::Cancelled), _) => Err(CargoError::Cancelled { command }),
            (Ok(OutputsEnd::TimedOut), _) => Err(CargoError::TimedOut { command }),
            (Ok(_), Ok(ExitStatus { code: Some(0), .. })) => Ok(()),
            (Ok(_), Ok(exit)) => {
                Err(CargoError::Failed { command, dir, end: exit_text(exit.code, exit.signal) })
            }
            (Err(source), _) | (_, Err(source)) => Err(CargoError::Read { command, source }),
        }
    }
}

/// Reason why reading has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputsEnd {
    /// The tool has exited, and its outputs have ended.
    Complete,
    /// The tool has exited, but another process keeps its outputs open.
    HeldOpen,
    Cancelled,
    /// The time limit has passed before the tool's exit.
    TimedOut,
}

struct ToolOutputs<'a, F> {
    /// `None` after the end.
    stdout: Option<File>,
    stderr: Option<File>,
    is_stderr_shown: bool,
    /// Whether the tail also keeps the standard output.
    is_stdout_kept: bool,
    tail: Option<&'a OutputTail>,
    lines: LineSplitter<F>,
}

impl<F: FnMut(&[u8])> ToolOutputs<'_, F> {
    /// Reads until the tool has exited and its outputs have ended.
    fn read_to_end(
        &mut self,
        child: &SpawnedChild,
        BuildSupervision { cancelled, limit, .. }: BuildSupervision<'_>,
    ) -> io::Result<OutputsEnd> {
        // Deadline of the outputs, after the tool's exit.
        let mut deadline = None;
        while self.stdout.is_some() || self.stderr.is_some() || deadline.is_none() {
            let fds = [
                cancelled,
                self.stdout.as_ref().map(|file| file.as_fd()),
                self.stderr.as_ref().map(|file| file.as_fd()),
                deadline.is_none().then(|| child.pidfd()),
            ];
            let [is_cancelled, has_stdout, has_stderr, has_exited] = wait_readable(fds, deadline.or(limit))?;
            if is_cancelled {
                return Ok(OutputsEnd::Cancelled);
            }
            if deadline.is_none() && !has_exited && limit.is_some_and(|limit| limit <= Instant::now()) {
                return Ok(OutputsEnd::TimedOut);
            }
            if has_stdout {
                self.read_stdout()?;
            }
            if has_stderr {
                self.read_stderr()?;
            }
            if has_exited {
                deadline = Some(Instant::now() + OUTPUT_END_LIMIT);
            }
            let has_output = self.stdout.is_some() || self.stderr.is_some();
            if has_output && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(OutputsEnd::HeldOpen);
            }
        }
        Ok(OutputsEnd::Complete)
    }

    fn read_stdout(&mut self) -> io::Result<()> {
        let bytes = read_some(&mut self.stdout)?;
        self.lines.push(&bytes);
        if let Some(tail) = self.tail.filter(|_| self.is_stdout_kept) {
            tail.push(&bytes);
        }
        Ok(())
    }

    fn read_stderr(&mut self) -> io::Result<()> {
        let bytes = read_some(&mut self.stderr)?;
        if self.is_stderr_shown {
            // The reader of standard error may be gone; the build continues.
            let _closed = io::stderr().write_all(&bytes);
        }
        if let Some(tail) = self.tail {
            tail.push(&bytes);
        }
        Ok(())
    }
}

/// Reads available bytes, and drops the file at its end.
fn read_some(file: &mut Option<File>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; READ_BYTES];
    let count = match file {
        Some(file) => file.read(&mut bytes)?,
        None => 0,
    };
    bytes.truncate(count);
    if bytes.is_empty() {
        *file = None;
    }
    Ok(bytes)
}

struct LineSplitter<F> {
    take: F,
    rest: Vec<u8>,
}

impl<F: FnMut(&[u8])> LineSplitter<F> {
    fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if let Some(line) = self.rest.strip_suffix(b"\n") {
                (self.take)(line);
                self.rest.clear();
            }
        }
    }

    /// Passes on a final line that has no line end.
    fn end(&mut self) {
        if !self.rest.is_empty() {
            (self.take)(&std::mem::take(&mut self.rest));
        }
    }
}
