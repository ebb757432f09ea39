//! Starts guards. A fork server forks them; the worker starts it with the first guard it needs. If that
//! fails, each guard is executed as a new program.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use heeler_adapters::InvocationChannel;
use heeler_protocol::fork_server::{
    CHANNEL_ARGUMENT, ExitReply, FORK_REPLY_BYTES, FORK_REQUEST, ForkReply, exit_request,
};
use heeler_sys::{
    fd_passing,
    process::{ExitStatus, Pid, Signal},
    spawn::{ChildStdio, ForkedChild, SpawnError, SpawnOptions, SpawnedChild, spawn},
};
use tokio::{
    io::Interest,
    net::{UnixDatagram, unix::pipe},
    time::timeout,
};

use super::{output_pipe::OutputPipe, process_outputs::ProcessOutputs, report_channel::ReportChannel};
use heeler_core::{GuardLoss, error_chain};

/// Role argument of a guard.
pub(crate) const GUARD_ROLE: &str = "__guard";
/// Role argument of a fork server.
const FORK_SERVER_ROLE: &str = "__fork-server";

/// Time limit for a fork request, which normally takes less than a millisecond. If it takes longer, executing
/// guards is better.
const FORK_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a killed fork server to exit. After that it is stuck in the kernel.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for the fork server to report how a guard ended.
const EXIT_REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of consecutive failures before guards are executed for the rest of the worker's lifetime.
const MAX_FORK_FAILURES: u32 = 3;

/// Why a guard could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuardStartError {
    #[error("create the socket and pipes of a guard")]
    Pipes(#[source] io::Error),
    #[error("listen for the connections of a process")]
    Listen(#[source] io::Error),
    #[error("start a guard")]
    Spawn(#[source] SpawnError),
}

/// Why the fork server returned no guard. The caller then executes one.
#[derive(Debug, thiserror::Error)]
enum ForkRequestError {
    #[error("start the fork server")]
    Spawn(#[source] SpawnError),
    #[error("exchange messages with the fork server")]
    Socket(#[source] io::Error),
    #[error("receive the fork reply within {} s", FORK_TIMEOUT.as_secs())]
    TimedOut,
    #[error("decode the reply of the fork server")]
    InvalidReply,
    #[error("fork the guard")]
    Fork(#[source] io::Error),
    #[error("create the socket and pipes of a guard")]
    Pipes(#[source] io::Error),
}

/// The worker's ends of a guard's connection and pipes.
pub(crate) struct GuardPipes {
    pub(crate) control: OwnedFd,
    pub(crate) outputs: ProcessOutputs,
}

/// The guard's ends of its connection and pipes.
pub(crate) struct GuardEndpoints {
    control: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    channel: Option<OwnedFd>,
}

impl GuardEndpoints {
    /// Returns the descriptors in the order of the protocol: connection, standard output, standard error, and
    /// the report channel or standard input, if any.
    pub(crate) fn as_fds(&self) -> Vec<BorrowedFd<'_>> {
        let own = [&self.control, &self.stdout, &self.stderr].into_iter();
        own.chain(&self.channel).map(|fd| fd.as_fd()).collect()
    }
}

#[derive(Debug)]
pub(crate) enum GuardProcess {
    /// Executed by this worker, which reaps it.
    Executed(SpawnedChild),
    /// Forked and reaped by the fork server or by a warm process.
    Forked(ForkedChild),
}

/// Starts all guards of a worker.
#[derive(Debug)]
pub(crate) struct GuardSpawner {
    /// Executable that acts as a guard or fork server, depending on its role argument.
    executable: PathBuf,
    /// Never locked across an await: a caller takes the fork server out while talking to it.
    fork_server: Mutex<ForkServerSlot>,
}

#[derive(Debug, Default)]
struct ForkServerSlot {
    fork_server: Option<ForkServerHandle>,
    /// Number of consecutive failures to get a guard from a fork server.
    failures: u32,
}

/// Fork server of this worker. After this is dropped, the fork server exits once its guards have exited.
#[derive(Debug)]
struct ForkServerHandle {
    child: SpawnedChild,
    socket: UnixDatagram,
}

impl GuardSpawner {
    /// Creates a spawner of guards that run this executable.
    pub(crate) fn for_executable(executable: PathBuf) -> Self {
        Self { executable, fork_server: Mutex::default() }
    }

    /// Starts the fork server in advance, so that the first guard need not wait for it. If that fails, the
    /// first guard tries again.
    pub(crate) fn start_fork_server(&self) {
        if let Some(fork_server) = self.acquire_fork_server() {
            self.lock_slot().fork_server = Some(fork_server);
        }
    }

    /// Starts a guard, which then waits for its command.
    ///
    /// Cancel safe: yes, because guards and fork servers exit when their connections are closed.
    pub(crate) async fn start_guard(
        &self,
        channel: InvocationChannel,
    ) -> Result<(GuardProcess, GuardPipes), GuardStartError> {
        while let Some(fork_server) = self.acquire_fork_server() {
            // New pipes for each attempt: if the fork server died, its guard may still be reading the old
            // ones.
            match request_fork(fork_server, channel).await {
                Ok((forked_child, guard_pipes, fork_server)) => {
                    self.release_fork_server(fork_server);
                    return Ok((GuardProcess::Forked(forked_child), guard_pipes));
                }
                Err(error) => {
                    tracing::debug!(error = %error_chain(&error), "the fork server returned no guard");
                    self.count_failure();
                }
            }
        }
        // No fork server: execute the guard.
        let (guard_pipes, guard_endpoints) = create_guard_pipes(channel).map_err(GuardStartError::Pipes)?;
        let child = spawn(SpawnOptions {
            args: [GUARD_ROLE]
                .into_iter()
                .chain(guard_endpoints.channel.as_ref().map(|_| CHANNEL_ARGUMENT))
                .map(Into::into)
                .collect(),
            stdin: ChildStdio::Fd(guard_endpoints.control),
            stdout: ChildStdio::Fd(guard_endpoints.stdout),
            stderr: ChildStdio::Fd(guard_endpoints.stderr),
            channel: guard_endpoints.channel,
            ..SpawnOptions::new(&self.executable)
        })
        .map_err(GuardStartError::Spawn)?;
        Ok((GuardProcess::Executed(child), guard_pipes))
    }

    /// Returns how a guard was lost. Its connection has ended without a final report.
    ///
    /// Cancel safe: no, because the fork server may be lost. It is then replaced.
    pub(crate) async fn guard_loss(&self, process: &mut GuardProcess) -> GuardLoss {
        if timeout(EXIT_TIMEOUT, process.wait_for_exit()).await.is_err() {
            return GuardLoss::Unknown;
        }
        match process {
            GuardProcess::Executed(child) => match child.try_wait() {
                Ok(Some(ExitStatus { signal: Some(signal), .. })) => GuardLoss::Killed { signal },
                Ok(Some(ExitStatus { code: Some(code), .. })) => GuardLoss::Exited { code },
                Ok(_) | Err(_) => GuardLoss::Unknown,
            },
            GuardProcess::Forked(child) => self.forked_guard_loss(child.pid).await,
        }
    }

    async fn forked_guard_loss(&self, guard: Pid) -> GuardLoss {
        let Some(mut fork_server) = self.lock_slot().fork_server.take() else { return GuardLoss::Unknown };
        match timeout(EXIT_REPLY_TIMEOUT, fork_server.request_exit(guard)).await {
            Ok(Ok(reply)) => {
                self.release_fork_server(fork_server);
                match reply {
                    ExitReply::Killed(signal) => GuardLoss::Killed { signal },
                    ExitReply::Exited(code) => GuardLoss::Exited { code },
                    ExitReply::Unknown => GuardLoss::Unknown,
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(error = %error_chain(&error), "the fork server was lost with its guard");
                self.count_failure();
                fork_server.loss().await
            }
            Err(_) => {
                self.count_failure();
                fork_server.kill_and_reap().await;
                GuardLoss::Unknown
            }
        }
    }

    /// Returns the idle fork server or a new one. `None` after too many failures.
    fn acquire_fork_server(&self) -> Option<ForkServerHandle> {
        loop {
            let mut slot = self.lock_slot();
            if slot.failures >= MAX_FORK_FAILURES {
                return None;
            }
            if let Some(fork_server) = slot.fork_server.take() {
                return Some(fork_server);
            }
            drop(slot);
            match ForkServerHandle::start(&self.executable) {
                Ok(fork_server) => return Some(fork_server),
                Err(error) => {
                    tracing::debug!(error = %error_chain(&error), "could not start the fork server");
                    self.count_failure();
                }
            }
        }
    }

    fn release_fork_server(&self, fork_server: ForkServerHandle) {
        *self.lock_slot() = ForkServerSlot { fork_server: Some(fork_server), failures: 0 };
    }

    fn count_failure(&self) {
        self.lock_slot().failures += 1;
    }

    fn lock_slot(&self) -> std::sync::MutexGuard<'_, ForkServerSlot> {
        // The state is consistent whenever the lock is released, so poisoning is ignored.
        self.fork_server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests a guard. A fork server that returns none is killed, because a late reply would have no reader.
async fn request_fork(
    mut fork_server: ForkServerHandle,
    channel: InvocationChannel,
) -> Result<(ForkedChild, GuardPipes, ForkServerHandle), ForkRequestError> {
    let (guard_pipes, guard_endpoints) = create_guard_pipes(channel).map_err(ForkRequestError::Pipes)?;
    let fork_result = timeout(FORK_TIMEOUT, fork_server.send_fork_request(&guard_endpoints.as_fds()))
        .await
        .unwrap_or(Err(ForkRequestError::TimedOut));
    match fork_result {
        Ok(forked_child) => Ok((forked_child, guard_pipes, fork_server)),
        Err(error) => {
            fork_server.kill_and_reap().await;
            Err(error)
        }
    }
}

/// Creates the connection and the pipes of a guard.
pub(crate) fn create_guard_pipes(channel: InvocationChannel) -> io::Result<(GuardPipes, GuardEndpoints)> {
    let (ours, theirs) = heeler_sys::io::socket_pair()?;
    let (stdout, stdout_end) =
        if channel.names_writers() { OutputPipe::socket()? } else { OutputPipe::new()? };
    let (stderr, mut stderr_end) = OutputPipe::new()?;
    if channel.is_combined() {
        stderr_end = stdout_end.try_clone()?;
    }
    let (channel, channel_end) = create_channel(channel)?.unzip();
    let outputs = ProcessOutputs { stdout, stderr, channel, connections: None };
    let guard_pipes = GuardPipes { control: ours, outputs };
    let endpoints =
        GuardEndpoints { control: theirs, stdout: stdout_end, stderr: stderr_end, channel: channel_end };
    Ok((guard_pipes, endpoints))
}

/// Creates the report channel or standard input that a command needs, if any.
pub(crate) fn create_channel(channel: InvocationChannel) -> io::Result<Option<(ReportChannel, OwnedFd)>> {
    match channel {
        InvocationChannel::StandardOutput
        | InvocationChannel::OutputSocket
        | InvocationChannel::CombinedOutput
        | InvocationChannel::CombinedSocket
        | InvocationChannel::Connections => Ok(None),
        InvocationChannel::Descriptor => ReportChannel::new().map(Some),
        InvocationChannel::StandardStreams | InvocationChannel::SocketStreams => {
            ReportChannel::for_requests().map(Some)
        }
    }
}

impl ForkServerHandle {
    /// Executes a fork server. Requests wait until it is ready.
    fn start(image: &std::path::Path) -> Result<Self, ForkRequestError> {
        heeler_sys::fail::at("worker.fork-server").map_err(ForkRequestError::Socket)?;
        let (ours, theirs) = fd_passing::seqpacket_pair().map_err(ForkRequestError::Socket)?;
        heeler_sys::io::set_nonblocking(ours.as_fd()).map_err(ForkRequestError::Socket)?;
        let socket = UnixDatagram::from_std(ours.into()).map_err(ForkRequestError::Socket)?;
        let child = spawn(SpawnOptions {
            args: vec![FORK_SERVER_ROLE.into()],
            stdin: ChildStdio::Fd(theirs),
            stdout: ChildStdio::Null,
            stderr: ChildStdio::Null,
            ..SpawnOptions::new(image)
        })
        .map_err(ForkRequestError::Spawn)?;
        Ok(Self { child, socket })
    }

    async fn send_fork_request(&mut self, fds: &[BorrowedFd<'_>]) -> Result<ForkedChild, ForkRequestError> {
        fd_passing::send(self.socket.as_fd(), &FORK_REQUEST, fds).map_err(ForkRequestError::Socket)?;
        let mut bytes = [0; FORK_REPLY_BYTES];
        let (count, received_fds) = self
            .socket
            .async_io(Interest::READABLE, || fd_passing::receive(self.socket.as_fd(), &mut bytes))
            .await
            .map_err(ForkRequestError::Socket)?;
        match (ForkReply::from_bytes(&bytes[..count]), received_fds) {
            (Some(ForkReply::Pid(pid)), [Some(pidfd), ..]) => Ok(ForkedChild { pid: Pid(pid), pidfd }),
            (Some(ForkReply::Errno(errno)), _) => {
                Err(ForkRequestError::Fork(io::Error::from_raw_os_error(errno)))
            }
            // Includes the end of the connection.
            (Some(ForkReply::Pid(_)) | None, _) => Err(ForkRequestError::InvalidReply),
        }
    }

    /// Asks how a guard ended. An error means that the fork server has ended.
    async fn request_exit(&mut self, guard: Pid) -> Result<ExitReply, ForkRequestError> {
        fd_passing::send(self.socket.as_fd(), &exit_request(guard.0), &[])
            .map_err(ForkRequestError::Socket)?;
        let mut bytes = [0; FORK_REPLY_BYTES];
        let (count, _no_fds) = self
            .socket
            .async_io(Interest::READABLE, || fd_passing::receive(self.socket.as_fd(), &mut bytes))
            .await
            .map_err(ForkRequestError::Socket)?;
        ExitReply::from_bytes(&bytes[..count]).ok_or(ForkRequestError::InvalidReply)
    }

    /// Reaps the fork server after the end of its connection, and returns how it ended. Kills it if it does
    /// not end.
    async fn loss(self) -> GuardLoss {
        let Self { child, socket } = self;
        let mut process = GuardProcess::Executed(child);
        let is_ended = timeout(EXIT_TIMEOUT, process.wait_for_exit()).await.is_ok();
        if let (true, GuardProcess::Executed(child)) = (is_ended, &mut process) {
            return match child.try_wait() {
                Ok(Some(ExitStatus { signal: Some(signal), .. })) => GuardLoss::ForkServerKilled { signal },
                Ok(Some(ExitStatus { code: Some(code), .. })) => GuardLoss::ForkServerExited { code },
                Ok(_) | Err(_) => GuardLoss::Unknown,
            };
        }
        if let GuardProcess::Executed(child) = process {
            Self { child, socket }.kill_and_reap().await;
        }
        GuardLoss::Unknown
    }

    /// Kills and reaps the fork server. The watchdog then becomes the parent of its guards, and ends them.
    async fn kill_and_reap(self) {
        let mut process = GuardProcess::Executed(self.child);
        if let Err(error) = process.signal(Signal::KILL) {
            tracing::debug!(%error, "could not kill the fork server");
        }
        // A process that survives SIGKILL is stuck in the kernel, and remains as a zombie child.
        drop(timeout(EXIT_TIMEOUT, process.wait_for_exit()).await);
    }
}

impl GuardProcess {
    pub(crate) fn pid(&self) -> Pid {
        match self {
            Self::Executed(child) => child.pid(),
            Self::Forked(child) => child.pid,
        }
    }

    /// Sends a signal to the guard process only.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match self {
            Self::Executed(child) => child.signal(signal),
            Self::Forked(child) => child.signal(signal),
        }
    }

    /// Waits until the process has ended, and reaps it if it is this worker's child.
    ///
    /// Cancel safe: yes, because nothing changes before the process has ended.
    pub(crate) async fn wait_for_exit(&mut self) {
        let pidfd = match self {
            Self::Executed(child) => child.pidfd(),
            Self::Forked(child) => child.pidfd.as_fd(),
        };
        if let Err(error) = wait_readable(pidfd).await {
            tracing::debug!(%error, "could not wait for a process");
            return;
        }
        if let Self::Executed(child) = self
            && let Err(error) = child.try_wait()
        {
            tracing::debug!(%error, "could not reap a process");
        }
    }
}

/// Waits until a descriptor other than a pipe is readable. The runtime has no safe type for such descriptors,
/// but its pipe type waits for readability in the same way.
pub(crate) async fn wait_readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    pipe::Receiver::from_owned_fd_unchecked(fd.try_clone_to_owned()?)?.readable().await
}
