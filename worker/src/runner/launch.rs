//! A test process that a client's debugger launches: offered in a directory with an unguessable name that
//! only this user can enter, taken by the first process of this user that connects, and then held by a pidfd
//! and a lifeline, since it is not a child of this worker.

use std::{
    fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use host::{
    dirs::{DirError, private_dir_inside},
    pass,
    process::{self, Pid, Signal, Tether},
    spawn::Twin,
};
use tokio::{
    net::{UnixListener, UnixStream},
    time::sleep,
};
use wire::control::{Command, Debuggee, Leaked, OsBytes, RawEnd};

use crate::{
    debuggee::{COMMAND, ROLE, SOCKET, WELCOME},
    guards::readable,
    pipe::Pipe,
};

/// How long helper processes of a test may take to exit: many notice its end as the end of a pipe, and exit
/// by themselves.
const LINGER: Duration = Duration::from_millis(100);
/// Polling period for helper processes.
const LOOK: Duration = Duration::from_millis(10);
/// Wait after a failed connection: a system that is out of file descriptors may have some later.
const REFUSED: Duration = Duration::from_millis(100);

/// Why a test process can't be offered to a debugger.
#[derive(Debug, thiserror::Error)]
pub(super) enum OfferError {
    #[error("create a directory for a debugger's test process")]
    Directory(#[source] DirError),
    #[error("write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("listen at {}", path.display())]
    Listen { path: PathBuf, source: io::Error },
}

/// A test process that waits to be launched.
pub(super) struct Offer {
    listener: UnixListener,
    directory: PathBuf,
    cwd: OsBytes,
}

impl Offer {
    /// Creates an offer below a private directory.
    pub(super) fn make(scratch: &Path, command: &Command) -> Result<Self, OfferError> {
        let directory = scratch.join(format!("{:016x}", secret()));
        private_dir_inside(&directory).map_err(OfferError::Directory)?;
        let path = directory.join(COMMAND);
        let bytes = serde_json::to_vec(command).expect("a command is plain data");
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(&bytes))
            .map_err(|source| OfferError::File { path, source })?;
        let path = directory.join(SOCKET);
        let listener = UnixListener::bind(&path).map_err(|source| OfferError::Listen { path, source })?;
        Ok(Self { listener, directory, cwd: command.cwd.clone() })
    }

    /// Returns the command that takes the offer.
    pub(super) fn debuggee(&self) -> Debuggee {
        Debuggee {
            program: OsBytes::from(process::named_image().as_path()),
            args: vec![ROLE.into(), OsBytes::from(self.directory.as_path())],
            cwd: self.cwd.clone(),
        }
    }

    /// Waits until the offer is taken.
    ///
    /// Cancel safe: yes, because a connected process is served without a wait.
    pub(super) async fn taken(&self) -> Taken {
        loop {
            let served = match self.listener.accept().await {
                Ok((stream, _)) => serve(&stream),
                Err(error) => Err(error),
            };
            match served {
                Ok(taken) => return taken,
                Err(error) => {
                    tracing::warn!(%error, "who came for a test process did not get it");
                    sleep(REFUSED).await;
                }
            }
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // The scratch directory, which contains it, is emptied before the next lease.
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Returns a random number that can't be guessed and does not repeat.
fn secret() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A test process that was launched, and the worker's ends of its outputs.
pub(super) struct Taken {
    pub(super) process: Launched,
    pub(super) stdout: Pipe,
    pub(super) stderr: Pipe,
}

/// Passes the outputs to a process that has connected.
fn serve(stream: &UnixStream) -> io::Result<Taken> {
    let peer = stream.peer_cred()?;
    if peer.uid() != process::effective_uid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // A process of another PID namespace has no number here, and its end could not be observed.
    let pid = peer.pid().filter(|pid| *pid > 0).map(Pid).ok_or(io::ErrorKind::NotFound)?;
    // It waits for the reply, so the number still belongs to it.
    let twin = Twin { pid, pidfd: process::pidfd_open(pid)? };
    let (stdout, stdout_end) = Pipe::new()?;
    let (stderr, stderr_end) = Pipe::new()?;
    let (tether, tether_end) = Tether::new()?;
    pass::send(stream.as_fd(), &WELCOME, &[stdout_end.as_fd(), stderr_end.as_fd(), tether_end.as_fd()])?;
    Ok(Taken { process: Launched::new(twin, tether), stdout, stderr })
}

/// A test process that is a child of its debugger. Dropping this kills the process.
pub(super) struct Launched {
    twin: Twin,
    tether: Tether,
    born: Instant,
    kill_at: Option<Instant>,
    is_killed: bool,
    ended: Option<Instant>,
}

impl Launched {
    fn new(twin: Twin, tether: Tether) -> Self {
        Self { twin, tether, born: Instant::now(), kill_at: None, is_killed: false, ended: None }
    }

    pub(super) fn pid(&self) -> Pid {
        self.twin.pid
    }

    /// Sends SIGTERM, and kills the process after the grace period.
    pub(super) fn terminate(&mut self, grace: Duration) {
        // A failure is ignored: a process that has exited or changed its user is handled by the kill.
        drop(self.twin.signal(Signal::TERM));
        self.kill_at = Some(Instant::now() + grace);
    }

    /// Kills the process and all processes that it has started.
    pub(super) fn kill(&mut self) {
        self.kill_at = None;
        self.is_killed = true;
        drop(self.twin.signal(Signal::KILL));
        let _struck = self.tether.strike();
    }

    /// Waits until the process and all processes that it has started are gone; those that do not exit are
    /// killed. Only the debugger, its parent, learns the exit status.
    ///
    /// Cancel safe: yes, because all state stays in `self`.
    pub(super) async fn ended(&mut self) -> RawEnd {
        loop {
            let kill_at = self.kill_at;
            tokio::select! {
                gone = readable(self.twin.pidfd.as_fd()) => {
                    if let Err(error) = gone {
                        // Its end could not be observed, so it is killed now.
                        tracing::warn!(%error, "could not wait for a debugger's test process");
                        self.kill();
                    }
                    break;
                }
                () = super::live::until(kill_at.map(Into::into)) => self.kill(),
            }
        }
        let ended = *self.ended.get_or_insert_with(Instant::now);
        while !self.is_killed && !self.tether.holders().is_empty() && ended.elapsed() < LINGER {
            sleep(LOOK).await;
        }
        let describe = |pid: Pid| {
            let started =
                process::started_after_boot(pid).and_then(|time| u64::try_from(time.as_millis()).ok());
            Leaked { pid: pid.as_u32(), command: process::command_line(pid), started_ms: started }
        };
        let mut leaked: Vec<_> = self.tether.holders().into_iter().map(describe).collect();
        if self.is_killed {
            leaked.clear();
        }
        let _struck = self.tether.strike();
        let wall = ended.saturating_duration_since(self.born);
        RawEnd { leaked, wall_us: crate::conclusion::microseconds(wall), ..RawEnd::default() }
    }
}
