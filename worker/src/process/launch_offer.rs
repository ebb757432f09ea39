//! A test process that a client's debugger launches. The offer is a directory with an unguessable name that
//! only this user can enter. The first process of this user that connects takes the offer. The worker then
//! controls it through a pidfd and a lifeline, since the process is not a child of this worker.

use std::{
    fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use heeler_adapters::InvocationChannel;
use heeler_core::ProcessFacts;
use heeler_protocol::control::{DebuggeeCommand, LeakedProcess, OsText, ProcessExit, TestCommand};
use heeler_sys::{
    dirs::{DirError, private_dir_in_existing},
    fd_passing,
    machine::ProcessTable,
    process::{self, Lifeline, Pid, Signal},
    spawn::ForkedChild,
};
use tokio::{
    net::{UnixListener, UnixStream},
    time::sleep,
};

use super::{
    debuggee::{COMMAND_FILE, DEBUGGEE_ROLE, READY_BYTE, SOCKET_FILE},
    guard_spawner::{create_channel, wait_readable},
    output_pipe::OutputPipe,
    process_outputs::ProcessOutputs,
};

/// Time for helper processes of a test to exit. Many notice the end of the test as the end of a pipe, and
/// exit by themselves.
const HELPER_EXIT_TIMEOUT: Duration = Duration::from_millis(100);
/// Polling period for helper processes.
const HELPER_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Delay after a failed connection. The system may be out of file descriptors only temporarily.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Why a test process cannot be offered to a debugger.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchOfferError {
    #[error("create the launch directory")]
    Directory(#[source] DirError),
    #[error("write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("listen at {}", path.display())]
    Listen { path: PathBuf, source: io::Error },
}

pub(crate) struct LaunchOffer {
    listener: UnixListener,
    directory: PathBuf,
    cwd: OsText,
    channel: InvocationChannel,
}

impl LaunchOffer {
    /// Creates an offer inside a private directory.
    pub(crate) fn create(
        scratch: &Path,
        command: &TestCommand,
        channel: InvocationChannel,
    ) -> Result<Self, LaunchOfferError> {
        let directory = scratch.join(format!("{:016x}", unguessable_number()));
        private_dir_in_existing(&directory).map_err(LaunchOfferError::Directory)?;
        let path = directory.join(COMMAND_FILE);
        let bytes = serde_json::to_vec(command).expect("a command is plain data");
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(&bytes))
            .map_err(|source| LaunchOfferError::File { path, source })?;
        let path = directory.join(SOCKET_FILE);
        let listener =
            UnixListener::bind(&path).map_err(|source| LaunchOfferError::Listen { path, source })?;
        Ok(Self { listener, directory, cwd: command.cwd.clone(), channel })
    }

    pub(crate) fn debuggee(&self) -> DebuggeeCommand {
        DebuggeeCommand {
            program: OsText::from(process::shared_program_path().as_path()),
            args: vec![DEBUGGEE_ROLE.into(), OsText::from(self.directory.as_path())],
            cwd: self.cwd.clone(),
        }
    }

    /// Waits until the offer is taken.
    ///
    /// Cancel safe: yes, because a connected process is served without waiting.
    pub(crate) async fn accept(&self) -> AcceptedLaunch {
        loop {
            let served = match self.listener.accept().await {
                Ok((stream, _)) => pass_outputs(&stream, self.channel),
                Err(error) => Err(error),
            };
            match served {
                Ok(taken) => return taken,
                Err(error) => {
                    tracing::warn!(%error, "could not hand a test process to its debugger");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
}

impl Drop for LaunchOffer {
    fn drop(&mut self) {
        // Ignore errors: the scratch directory is emptied before the next lease anyway.
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Returns an unguessable random number that does not repeat.
fn unguessable_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A launched test process, and the worker's ends of its outputs.
pub(crate) struct AcceptedLaunch {
    pub(crate) process: LaunchedProcess,
    pub(crate) outputs: ProcessOutputs,
}

/// Passes the outputs to a connected process.
fn pass_outputs(stream: &UnixStream, channel: InvocationChannel) -> io::Result<AcceptedLaunch> {
    let peer = stream.peer_cred()?;
    if peer.uid() != process::effective_uid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // A process of another PID namespace has no id here, so its end could not be observed.
    let pid = peer.pid().filter(|pid| *pid > 0).map(Pid).ok_or(io::ErrorKind::NotFound)?;
    // The process waits for the reply, so its id is still its own.
    let child = ForkedChild { pid, pidfd: process::pidfd_open(pid)? };
    let (stdout, stdout_end) = OutputPipe::new()?;
    let (stderr, stderr_end) = OutputPipe::new()?;
    let (lifeline, lifeline_end) = Lifeline::new()?;
    let (channel, channel_end) = create_channel(channel)?.unzip();
    let mut fds = vec![stdout_end.as_fd(), stderr_end.as_fd(), lifeline_end.as_fd()];
    fds.extend(channel_end.as_ref().map(|end| end.as_fd()));
    fd_passing::send(stream.as_fd(), &READY_BYTE, &fds)?;
    let outputs = ProcessOutputs { stdout, stderr, channel, connections: None };
    Ok(AcceptedLaunch { process: LaunchedProcess::new(child, lifeline), outputs })
}

/// A test process that is a child of its debugger. Dropping this kills the process.
pub(crate) struct LaunchedProcess {
    child: ForkedChild,
    lifeline: Lifeline,
    launched_at: Instant,
    kill_at: Option<Instant>,
    is_killed: bool,
    ended: Option<Instant>,
}

impl LaunchedProcess {
    fn new(child: ForkedChild, lifeline: Lifeline) -> Self {
        Self { child, lifeline, launched_at: Instant::now(), kill_at: None, is_killed: false, ended: None }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Sends SIGTERM, and kills the process after the grace period.
    pub(crate) fn terminate(&mut self, grace: Duration) {
        // Ignore errors: a process that has exited or changed its user is handled by the kill.
        drop(self.child.signal(Signal::TERM));
        self.kill_at = Some(Instant::now() + grace);
    }

    /// Kills the process and all processes it has started.
    pub(crate) fn kill(&mut self) {
        self.kill_at = None;
        self.is_killed = true;
        drop(self.child.signal(Signal::KILL));
        let _killed = self.lifeline.kill_holders();
    }

    /// Waits until the process and all processes it has started are gone, and kills those that do not exit.
    /// The exit status is unknown: only the debugger, as the parent, learns it.
    ///
    /// Cancel safe: yes, because all state stays in `self`.
    pub(crate) async fn wait_for_exit(&mut self) -> ProcessExit {
        loop {
            let kill_at = self.kill_at;
            tokio::select! {
                gone = wait_readable(self.child.pidfd.as_fd()) => {
                    if let Err(error) = gone {
                        // The end of the process cannot be observed, so kill it now.
                        tracing::warn!(%error, "could not wait for a debugger's test process");
                        self.kill();
                    }
                    break;
                }
                () = super::process_clock::sleep_until_deadline(kill_at.map(Into::into)) => self.kill(),
            }
        }
        // Wait briefly for helper processes to exit.
        let ended = *self.ended.get_or_insert_with(Instant::now);
        while !self.is_killed && !self.lifeline.holders().is_empty() && ended.elapsed() < HELPER_EXIT_TIMEOUT
        {
            sleep(HELPER_POLL_INTERVAL).await;
        }
        // Report the remaining processes as leaked, and kill them.
        let mut table = ProcessTable::new().ok();
        let describe = |pid: Pid| {
            let described = table.as_mut().and_then(|table| table.read(pid));
            let facts = described.map(|process| ProcessFacts {
                name: process.name,
                age_s: process.age.as_secs(),
                memory_kib: process.resident_bytes / 1024,
            });
            let started_ms =
                process::start_time_since_boot(pid).and_then(|time| u64::try_from(time.as_millis()).ok());
            LeakedProcess {
                pid: pid.as_u32(),
                command: process::command_line(pid),
                started_ms,
                facts,
                is_running: false,
            }
        };
        let mut leaked: Vec<_> = self.lifeline.holders().into_iter().map(describe).collect();
        if self.is_killed {
            leaked.clear();
        }
        let _killed = self.lifeline.kill_holders();
        let wall = ended.saturating_duration_since(self.launched_at);
        ProcessExit { leaked, wall_us: crate::batch::verdict::microseconds(wall), ..ProcessExit::default() }
    }
}
