//! A test process that a client's debugger launches: offered in a directory that nobody else can know or enter, taken by
//! the first process of this user that comes, and then held by a descriptor and a tether, since it is no child of ours.

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

/// Helpers of a test often see its end as the end of a pipe, and leave by themselves.
const LINGER: Duration = Duration::from_millis(100);
/// Between two looks at them.
const LOOK: Duration = Duration::from_millis(10);
/// A system that has no descriptors to give may have some later.
const REFUSED: Duration = Duration::from_millis(100);

/// Why a test process can't be launched by others.
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
    /// Makes an offer below a private directory.
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
    /// Cancel safe: yes, because who has connected is served at once.
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
        // It is inside the scratch directory, which is emptied before the next lease.
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Returns what nobody can guess, and is not met again.
fn secret() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A test process that was launched, and the worker's ends of its outputs.
pub(super) struct Taken {
    pub(super) process: Launched,
    pub(super) stdout: Pipe,
    pub(super) stderr: Pipe,
}

/// Hands the outputs over to a process that has connected.
fn serve(stream: &UnixStream) -> io::Result<Taken> {
    let peer = stream.peer_cred()?;
    if peer.uid() != process::effective_uid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // One of another namespace has no number here, and nothing could be known of its end.
    let pid = peer.pid().filter(|pid| *pid > 0).map(Pid).ok_or(io::ErrorKind::NotFound)?;
    // It waits for the answer, so the number is still its own.
    let twin = Twin { pid, pidfd: process::pidfd_open(pid)? };
    let (stdout, stdout_end) = Pipe::new()?;
    let (stderr, stderr_end) = Pipe::new()?;
    let (tether, tether_end) = Tether::new()?;
    pass::send(stream.as_fd(), &WELCOME, &[stdout_end.as_fd(), stderr_end.as_fd(), tether_end.as_fd()])?;
    Ok(Taken { process: Launched::new(twin, tether), stdout, stderr })
}

/// A test process that is its debugger's child. Dropping it kills the process.
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

    /// Asks it to end, and kills it after the grace.
    pub(super) fn terminate(&mut self, grace: Duration) {
        // One that is gone, or has another user's rights now, is met by the kill.
        drop(self.twin.signal(Signal::TERM));
        self.kill_at = Some(Instant::now() + grace);
    }

    /// Kills it, and what it has started.
    pub(super) fn kill(&mut self) {
        self.kill_at = None;
        self.is_killed = true;
        drop(self.twin.signal(Signal::KILL));
        let _struck = self.tether.strike();
    }

    /// Waits until the process and all that it has started are gone; what does not leave is killed. How it ended, its
    /// debugger alone is told.
    ///
    /// Cancel safe: yes, because what is known stays in `self`.
    pub(super) async fn ended(&mut self) -> RawEnd {
        loop {
            let kill_at = self.kill_at;
            tokio::select! {
                gone = readable(self.twin.pidfd.as_fd()) => {
                    if let Err(error) = gone {
                        // Nobody would hear of its end: it must be now.
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
