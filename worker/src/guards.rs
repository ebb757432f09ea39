//! Starts guards: forked by a fork server, which the worker starts with the first guard it needs, or, where
//! that fails, each executed as a new program.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use host::{
    pass,
    process::{Pid, Signal},
    spawn::{Child, Spawn, SpawnError, Stream, Twin, spawn},
};
use tokio::{
    io::Interest,
    net::{UnixDatagram, unix::pipe},
    time::timeout,
};
use wire::nursery::{BIRTH_BYTES, Birth, REQUEST};

use crate::{chain::chain, pipe::Pipe};

/// The role argument of a guard.
const GUARD: &str = "__guard";
/// The role argument of a fork server.
const NURSERY: &str = "__nursery";

/// How long a fork request may take. It normally takes less than a millisecond; where it takes longer than
/// this, executing guards is better.
const BIRTH: Duration = Duration::from_secs(5);
/// How long a killed fork server may take to exit; after that it is stuck in the kernel.
const LEAVE: Duration = Duration::from_secs(1);
/// After this number of consecutive failures, guards are executed for the rest of the worker's lifetime.
const PATIENCE: u32 = 3;

/// Why a guard could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("make the connection and the pipes of a guard")]
    Ends(#[source] io::Error),
    #[error("start a guard")]
    Spawn(#[source] SpawnError),
}

/// Why the fork server returned no guard. The caller falls back to executing one.
#[derive(Debug, thiserror::Error)]
enum BirthError {
    #[error("start a nursery")]
    Spawn(#[source] SpawnError),
    #[error("speak with the nursery")]
    Socket(#[source] io::Error),
    #[error("hear of a birth within {} s", BIRTH.as_secs())]
    Silence,
    #[error("understand the nursery")]
    Unknown,
    #[error("copy the nursery")]
    Copy(#[source] io::Error),
    #[error("make the connection and the pipes of a guard")]
    Ends(#[source] io::Error),
}

/// The worker's ends of a guard's connection and pipes.
pub(crate) struct Cradle {
    pub(crate) control: OwnedFd,
    pub(crate) stdout: Pipe,
    pub(crate) stderr: Pipe,
}

/// The guard's ends of the same connection and pipes.
struct Gifts {
    control: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// The process of a guard.
#[derive(Debug)]
pub(crate) enum Process {
    /// Executed by this worker, which reaps it.
    Own(Child),
    /// Forked by the fork server, which reaps it.
    Nursed(Twin),
}

/// The source of all guards of a worker.
#[derive(Debug)]
pub(crate) struct Guards {
    /// The executable that becomes a guard or a fork server, depending on its role argument.
    image: PathBuf,
    /// Never locked across an await: a caller that talks to the fork server has taken it out.
    nursery: Mutex<Place>,
}

#[derive(Debug, Default)]
struct Place {
    nursery: Option<Nursery>,
    /// The number of consecutive failures to get a guard from a fork server.
    failures: u32,
}

/// The fork server of this worker. After it is dropped, it exits once its guards have exited.
#[derive(Debug)]
struct Nursery {
    child: Child,
    socket: UnixDatagram,
}

impl Guards {
    /// Returns a source of guards that run this executable.
    pub(crate) fn of(image: PathBuf) -> Self {
        Self { image, nursery: Mutex::default() }
    }

    /// Starts a guard, which waits for its command.
    ///
    /// Cancel safe: yes, because guards and fork servers exit when their connections are closed.
    pub(crate) async fn start(&self) -> Result<(Process, Cradle), StartError> {
        while let Some(nursery) = self.take() {
            // Created again for each attempt: descriptors passed to a fork server that then died may still be
            // read by its guard.
            match birth(nursery).await {
                Ok((twin, cradle, nursery)) => {
                    self.give_back(nursery);
                    return Ok((Process::Nursed(twin), cradle));
                }
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "a nursery gave no guard");
                    self.count_failure();
                }
            }
        }
        let (cradle, gifts) = ends().map_err(StartError::Ends)?;
        let child = spawn(Spawn {
            args: vec![GUARD.into()],
            stdin: Stream::Fd(gifts.control),
            stdout: Stream::Fd(gifts.stdout),
            stderr: Stream::Fd(gifts.stderr),
            ..Spawn::new(&self.image)
        })
        .map_err(StartError::Spawn)?;
        Ok((Process::Own(child), cradle))
    }

    /// Returns the idle fork server, or a new one; `None` after too many failures.
    fn take(&self) -> Option<Nursery> {
        loop {
            let mut place = self.place();
            if place.failures >= PATIENCE {
                return None;
            }
            if let Some(nursery) = place.nursery.take() {
                return Some(nursery);
            }
            drop(place);
            match Nursery::start(&self.image) {
                Ok(nursery) => return Some(nursery),
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "there is no nursery");
                    self.count_failure();
                }
            }
        }
    }

    fn give_back(&self, nursery: Nursery) {
        *self.place() = Place { nursery: Some(nursery), failures: 0 };
    }

    fn count_failure(&self) {
        self.place().failures += 1;
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Place> {
        // The state is consistent whenever the lock is released, so poisoning is ignored.
        self.nursery.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests a guard. A fork server that returns none is killed, because a late reply would reach no reader.
async fn birth(mut nursery: Nursery) -> Result<(Twin, Cradle, Nursery), BirthError> {
    let (cradle, gifts) = ends().map_err(BirthError::Ends)?;
    let fds = [gifts.control.as_fd(), gifts.stdout.as_fd(), gifts.stderr.as_fd()];
    let born = timeout(BIRTH, nursery.ask(&fds)).await.unwrap_or(Err(BirthError::Silence));
    match born {
        Ok(twin) => Ok((twin, cradle, nursery)),
        Err(error) => {
            nursery.end().await;
            Err(error)
        }
    }
}

fn ends() -> io::Result<(Cradle, Gifts)> {
    let (ours, theirs) = host::io::socket_pair()?;
    let (stdout, stdout_end) = Pipe::new()?;
    let (stderr, stderr_end) = Pipe::new()?;
    let cradle = Cradle { control: ours, stdout, stderr };
    Ok((cradle, Gifts { control: theirs, stdout: stdout_end, stderr: stderr_end }))
}

impl Nursery {
    /// Executes a fork server. Requests wait until it runs.
    fn start(image: &std::path::Path) -> Result<Self, BirthError> {
        host::fail::at("worker.nursery").map_err(BirthError::Socket)?;
        let (ours, theirs) = pass::packet_pair().map_err(BirthError::Socket)?;
        host::io::set_nonblocking(ours.as_fd()).map_err(BirthError::Socket)?;
        let socket = UnixDatagram::from_std(ours.into()).map_err(BirthError::Socket)?;
        let child = spawn(Spawn {
            args: vec![NURSERY.into()],
            stdin: Stream::Fd(theirs),
            stdout: Stream::Null,
            stderr: Stream::Null,
            ..Spawn::new(image)
        })
        .map_err(BirthError::Spawn)?;
        Ok(Self { child, socket })
    }

    async fn ask(&mut self, gifts: &[BorrowedFd<'_>]) -> Result<Twin, BirthError> {
        pass::send(self.socket.as_fd(), &REQUEST, gifts).map_err(BirthError::Socket)?;
        let mut bytes = [0; BIRTH_BYTES];
        let (count, fds) = self
            .socket
            .async_io(Interest::READABLE, || pass::receive(self.socket.as_fd(), &mut bytes))
            .await
            .map_err(BirthError::Socket)?;
        match (Birth::from_bytes(&bytes[..count]), fds) {
            (Some(Birth::Pid(pid)), [Some(pidfd), ..]) => Ok(Twin { pid: Pid(pid), pidfd }),
            (Some(Birth::Errno(errno)), _) => Err(BirthError::Copy(io::Error::from_raw_os_error(errno))),
            // Includes the end of the connection.
            (Some(Birth::Pid(_)) | None, _) => Err(BirthError::Unknown),
        }
    }

    /// Kills and reaps it. The watchdog then becomes the parent of its guards, and ends them.
    async fn end(self) {
        let mut process = Process::Own(self.child);
        if let Err(error) = process.signal(Signal::KILL) {
            tracing::debug!(%error, "could not kill a nursery");
        }
        // A process that SIGKILL does not end is stuck in the kernel, and remains as a zombie child.
        drop(timeout(LEAVE, process.gone()).await);
    }
}

impl Process {
    /// Sends a signal to the guard process only.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match self {
            Self::Own(child) => child.signal(signal),
            Self::Nursed(twin) => twin.signal(signal),
        }
    }

    /// Waits until the process has ended, and reaps it if it is this worker's child.
    ///
    /// Cancel safe: yes, because it changes nothing before the end is there.
    pub(crate) async fn gone(&mut self) {
        let pidfd = match self {
            Self::Own(child) => child.pidfd(),
            Self::Nursed(twin) => twin.pidfd.as_fd(),
        };
        if let Err(error) = readable(pidfd).await {
            tracing::debug!(%error, "could not wait for a process");
            return;
        }
        if let Self::Own(child) = self
            && let Err(error) = child.try_wait()
        {
            tracing::debug!(%error, "could not reap a process");
        }
    }
}

/// Waits until a descriptor that is not a pipe is readable. The runtime has no safe type for such
/// descriptors, but its pipe type waits for readability in the same way.
pub(crate) async fn readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    pipe::Receiver::from_owned_fd_unchecked(fd.try_clone_to_owned()?)?.readable().await
}
