//! `heeler mcp filter`: runs a Model Context Protocol server as its client would, and passes all bytes
//! through [`ToolFilter`], which decides. This file only waits, reads and writes.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    time::Duration,
};

use heeler_protocol::mcp::{FilterError, FilterOutput, ToolFilter};
use heeler_server::{listen, pool::ProcessExitWatch};
use heeler_sys::{
    io::pipe,
    process::{Signal, kill_group},
    spawn::{ChildStdio, SpawnError, SpawnOptions, SpawnedChild, spawn},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::unix::pipe::{Receiver, Sender},
    time::{Instant, sleep_until},
};

use super::{exit::CommandError, signals::SignalForwarder};
use heeler_sys::program_search::search_path;

/// Size of one read, equal to a pipe's capacity.
const READ_BYTES: usize = 64 << 10;
/// Maximum bytes waiting to be written before reading pauses. A slow reader then slows its writer, as with a
/// pipe between them.
const QUEUE_BYTES: usize = 64 << 10;
/// Like [`QUEUE_BYTES`], for the filter's own answers. Larger, because a client may write a lot before it
/// reads.
const ANSWERS_QUEUE_BYTES: usize = 1 << 20;
/// Time for the server to exit after its standard input is closed, and again after SIGTERM.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Silence after the server's exit that counts as the end of its output. Only a process left behind by the
/// server keeps the output open.
const OUTPUT_END_LIMIT: Duration = Duration::from_secs(1);
/// Time for the client to read some of the remaining output after the server's exit.
const LAST_WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Total time for the output after the server's exit, because a process left behind may write without end.
const DRAIN_LIMIT: Duration = Duration::from_secs(300);

/// Error of running a server behind the filter.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterRunError {
    /// The server can't be started.
    #[error(transparent)]
    Start(SpawnError),
    /// The system refused a pipe, or the process can't be watched.
    #[error("connect to its process")]
    Connect(#[source] io::Error),
    /// The exit status can't be read.
    #[error("wait for its process")]
    Wait(#[source] io::Error),
    /// A line is too long to filter.
    #[error(transparent)]
    Filter(FilterError),
}

/// Runs a server behind the filter until either side ends. Returns the server's exit code, or 128 plus the
/// number of the signal that ended the server.
///
/// Cancel safe: no, because the server would then run until this process ends.
pub(super) async fn run_filtered(command: &[OsString]) -> Result<u8, CommandError> {
    let (name, args) = command.split_first().expect("the parser requires a command");
    let program = program_path(name)
        .ok_or_else(|| CommandError::NoServer { name: name.to_string_lossy().into_owned() })?;
    let client = listen::standard_streams().await.map_err(CommandError::Listen)?;
    let signals = SignalForwarder::listen().map_err(CommandError::Signals)?;
    let proxy = FilterProxy::start(program, args.to_vec(), signals);
    proxy.map_err(CommandError::RunServer)?.run(client).await.map_err(CommandError::RunServer)
}

/// Returns the path of a program; a name without a slash is searched for in `PATH`.
fn program_path(name: &OsStr) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    // Starting the program shows whether it can be executed.
    if name.as_bytes().contains(&b'/') { Some(name.into()) } else { search_path(name) }
}

/// Progress of the connection towards its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterPhase {
    Open,
    /// One side has ended; the server's standard input is closed once everything is written.
    Closing,
    /// The server received SIGTERM.
    Terminating,
    Killed,
    /// The server has exited; its output is read to the end.
    Draining,
}

#[derive(Debug)]
enum FilterEvent {
    /// Bytes read from the client; 0 is the end.
    Client(io::Result<usize>),
    Server(io::Result<usize>),
    WrittenToClient(io::Result<usize>),
    WrittenToServer(io::Result<usize>),
    ServerExited,
    Signal(Signal),
    Deadline,
}

/// A server, and the bytes in transit.
struct FilterProxy {
    child: SpawnedChild,
    exit: ProcessExitWatch,
    signals: SignalForwarder,
    filter: ToolFilter,
    queued: FilterOutput,
    /// `None` once closed.
    to_server: Option<Sender>,
    /// `None` after the end.
    from_server: Option<Receiver>,
    has_client_input: bool,
    /// Whether the client still reads.
    has_client_output: bool,
    phase: FilterPhase,
    deadline: Option<Instant>,
    /// When forwarding ends after the server has exited.
    drain_end: Option<Instant>,
}

impl FilterProxy {
    fn start(
        program: PathBuf,
        args: Vec<OsString>,
        signals: SignalForwarder,
    ) -> Result<Self, FilterRunError> {
        let (stdin, to_server) = pipe().map_err(FilterRunError::Connect)?;
        let (from_server, stdout) = pipe().map_err(FilterRunError::Connect)?;
        let options = SpawnOptions {
            args,
            stdin: ChildStdio::Fd(stdin),
            stdout: ChildStdio::Fd(stdout),
            ..SpawnOptions::new(program)
        };
        let child = spawn(options).map_err(FilterRunError::Start)?;
        let connect = |child: &SpawnedChild, to_server: OwnedFd, from_server: OwnedFd| {
            let exit = ProcessExitWatch::watch(child.pid())?;
            Ok((exit, Sender::from_owned_fd(to_server)?, Receiver::from_owned_fd(from_server)?))
        };
        let (exit, to_server, from_server) =
            connect(&child, to_server, from_server).map_err(FilterRunError::Connect)?;
        Ok(Self {
            child,
            exit,
            signals,
            filter: ToolFilter::default(),
            queued: FilterOutput::default(),
            to_server: Some(to_server),
            from_server: Some(from_server),
            has_client_input: true,
            has_client_output: true,
            phase: FilterPhase::Open,
            deadline: None,
            drain_end: None,
        })
    }

    async fn run(mut self, client: impl AsyncRead + AsyncWrite + Unpin) -> Result<u8, FilterRunError> {
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let mut client_bytes = vec![0; READ_BYTES];
        let mut server_bytes = vec![0; READ_BYTES];
        while !self.is_over() {
            let event = {
                let reads_client = self.has_client_input
                    && self.queued.to_server.len() < QUEUE_BYTES
                    && self.queued.to_client.len() < ANSWERS_QUEUE_BYTES;
                let reads_server = self.queued.to_client.len() < QUEUE_BYTES;
                tokio::select! {
                    signal = self.signals.next() => FilterEvent::Signal(signal),
                    () = self.exit.wait(), if self.phase != FilterPhase::Draining => FilterEvent::ServerExited,
                    () = wait_for_deadline(self.deadline) => FilterEvent::Deadline,
                    written = write_queued(self.to_server.as_mut(), &self.queued.to_server) => FilterEvent::WrittenToServer(written),
                    written = write_queued(self.has_client_output.then_some(&mut to_client), &self.queued.to_client) => FilterEvent::WrittenToClient(written),
                    read = from_client.read(&mut client_bytes), if reads_client => FilterEvent::Client(read),
                    read = read_some(self.from_server.as_mut(), &mut server_bytes), if reads_server => FilterEvent::Server(read),
                }
            };
            let bytes = match event {
                FilterEvent::Client(Ok(count)) => &client_bytes[..count],
                FilterEvent::Server(Ok(count)) => &server_bytes[..count],
                _ => &[],
            };
            if let Err(error) = self.on_event(&event, bytes) {
                self.kill();
                let _exit = self.child.wait();
                return Err(FilterRunError::Filter(error));
            }
        }
        if self.has_client_output {
            // The last write runs on a separate thread. A client that is gone does not need it.
            let _unread = tokio::time::timeout(LAST_WRITE_LIMIT, to_client.flush()).await;
        }
        // If the command is a wrapper, the real server may still be running.
        self.kill();
        let exit = self.child.wait().map_err(FilterRunError::Wait)?;
        Ok(exit_code(exit.code, exit.signal))
    }

    /// Returns whether nothing is left to do.
    fn is_over(&self) -> bool {
        let is_written = self.queued.to_client.is_empty() || !self.has_client_output;
        self.phase == FilterPhase::Draining && self.from_server.is_none() && is_written
    }

    fn on_event(&mut self, event: &FilterEvent, bytes: &[u8]) -> Result<(), FilterError> {
        match event {
            FilterEvent::Client(Ok(0) | Err(_)) => self.on_client_end(),
            FilterEvent::Client(Ok(_)) => self.filter.on_client_bytes(bytes, &mut self.queued)?,
            FilterEvent::Server(Ok(0) | Err(_)) => self.on_server_output_end(),
            FilterEvent::Server(Ok(_)) => self.filter.on_server_bytes(bytes, &mut self.queued)?,
            FilterEvent::WrittenToServer(Ok(count)) => drop(self.queued.to_server.split_to(*count)),
            // The server no longer reads but may still write, so the connection continues.
            FilterEvent::WrittenToServer(Err(_)) => self.to_server = None,
            FilterEvent::WrittenToClient(Ok(count)) => drop(self.queued.to_client.split_to(*count)),
            FilterEvent::WrittenToClient(Err(_)) => {
                self.has_client_output = false;
                self.begin_closing();
            }
            FilterEvent::ServerExited => {
                self.phase = FilterPhase::Draining;
                self.drain_end = Some(Instant::now() + DRAIN_LIMIT);
            }
            // Fails if the server has just exited.
            FilterEvent::Signal(signal) => drop(kill_group(self.child.pid(), *signal)),
            FilterEvent::Deadline => self.on_deadline(),
        }
        self.drop_unwritable();
        if self.phase == FilterPhase::Draining && !matches!(event, FilterEvent::Deadline) {
            let limit = drain_step_limit(self.from_server.is_some(), self.queued.to_client.len());
            self.deadline = self.drain_end.map(|end| end.min(Instant::now() + limit));
        }
        Ok(())
    }

    /// Drops bytes whose reader is gone, and closes the server's standard input once everything is written.
    fn drop_unwritable(&mut self) {
        if self.to_server.is_none() {
            self.queued.to_server.clear();
        }
        if !self.has_client_output {
            self.queued.to_client.clear();
        }
        if self.phase != FilterPhase::Open && !self.has_client_input && self.queued.to_server.is_empty() {
            self.to_server = None;
        }
    }

    fn on_client_end(&mut self) {
        self.has_client_input = false;
        self.filter.on_client_end(&mut self.queued);
        self.begin_closing();
    }

    fn on_server_output_end(&mut self) {
        self.from_server = None;
        self.filter.on_server_end(&mut self.queued);
        self.begin_closing();
    }

    fn begin_closing(&mut self) {
        if self.phase == FilterPhase::Open {
            self.phase = FilterPhase::Closing;
            self.deadline = Some(Instant::now() + GRACE_PERIOD);
            // The client can get no more answers, so its input is not read.
            if self.from_server.is_none() || !self.has_client_output {
                self.has_client_input = false;
            }
        }
    }

    fn on_deadline(&mut self) {
        match self.phase {
            FilterPhase::Open | FilterPhase::Killed => self.deadline = None,
            FilterPhase::Closing => {
                tracing::warn!(
                    "the server did not exit within {} s after its input was closed",
                    GRACE_PERIOD.as_secs()
                );
                let _gone = kill_group(self.child.pid(), Signal::TERM);
                self.phase = FilterPhase::Terminating;
                self.deadline = Some(Instant::now() + GRACE_PERIOD);
            }
            FilterPhase::Terminating => {
                self.kill();
                self.phase = FilterPhase::Killed;
                self.deadline = None;
            }
            FilterPhase::Draining
                if self.from_server.is_some() && self.queued.to_client.len() < QUEUE_BYTES =>
            {
                self.on_server_output_end();
                self.deadline = Some(Instant::now() + LAST_WRITE_LIMIT);
            }
            FilterPhase::Draining => {
                tracing::warn!("the client does not read the last output of the server");
                self.from_server = None;
                self.has_client_output = false;
            }
        }
    }

    fn kill(&self) {
        // Fails only if the whole group is gone.
        let _gone = kill_group(self.child.pid(), Signal::KILL);
    }
}

/// Returns the time limit for the next event after the server's exit: short for missing output, long for a
/// client that does not read.
fn drain_step_limit(has_output: bool, queued: usize) -> Duration {
    if has_output && queued < QUEUE_BYTES { OUTPUT_END_LIMIT } else { LAST_WRITE_LIMIT }
}

/// Returns a process's exit status as an exit code, as a shell does.
fn exit_code(code: Option<i32>, signal: Option<i32>) -> u8 {
    let code = code.unwrap_or_else(|| 128 + signal.unwrap_or(0));
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

/// Writes the beginning of a queue; waits forever if the queue is empty.
///
/// Cancel safe: yes, because a cancelled write has written nothing.
async fn write_queued(to: Option<&mut (impl AsyncWrite + Unpin)>, queue: &[u8]) -> io::Result<usize> {
    match to {
        Some(to) if !queue.is_empty() => to.write(queue).await,
        _ => std::future::pending().await,
    }
}

/// Reads some bytes; waits forever after the end.
///
/// Cancel safe: yes, because a cancelled read has read nothing.
async fn read_some(from: Option<&mut Receiver>, bytes: &mut [u8]) -> io::Result<usize> {
    match from {
        Some(from) => from.read(bytes).await,
        None => std::future::pending().await,
    }
}

async fn wait_for_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_is_that_of_the_server() {
        assert_eq!(
            [(Some(0), None), (Some(7), None), (None, Some(9)), (None, None)]
                .map(|(code, signal)| exit_code(code, signal)),
            [0, 7, 137, 128]
        );
    }

    #[test]
    fn slow_client_has_time_for_the_last_output() {
        assert_eq!(drain_step_limit(true, 0), OUTPUT_END_LIMIT);
        assert_eq!(drain_step_limit(true, QUEUE_BYTES), LAST_WRITE_LIMIT);
        assert_eq!(drain_step_limit(false, 1), LAST_WRITE_LIMIT);
    }

    #[test]
    fn only_names_without_slash_are_searched_for() {
        assert_eq!(program_path(OsStr::new("./none")), Some("./none".into()));
        assert!(program_path(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(program_path(OsStr::new("heeler-no-such-program")), None);
    }
}
