//! One guard and its test process, as the worker holds them: the control connection and the two pipes. What is said
//! and read is decided elsewhere.

use std::{
    fs::File,
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
    path::Path,
    time::Duration,
};

use host::{
    process::Signal,
    spawn::{Child, Spawn, SpawnError, Stream, spawn},
};
use link::{
    LinkTask,
    control::{ControlReceiver, ControlSender, Received},
};
use tokio::{
    net::{UnixStream, unix::pipe},
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use wire::control::{Command, FromGuard, RawEnd, ToGuard};

/// How a process of ours becomes a guard.
const ROLE: &str = "__guard";

/// A guard leaves at once when its connection ends; one that does not is killed after this.
const LEAVE: Duration = Duration::from_secs(1);

/// Why there is no guard.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("make pipes for a test process")]
    Pipes(#[source] io::Error),
    #[error("start a guard")]
    Spawn(#[source] SpawnError),
}

/// A guard and the outputs of its test process.
pub(crate) struct Guard {
    pub(crate) control: GuardControl,
    pub(crate) stdout: Pipe,
    pub(crate) stderr: Pipe,
}

/// The connection to a guard.
pub(crate) struct GuardControl {
    child: Child,
    sender: ControlSender,
    receiver: ControlReceiver,
    task: LinkTask,
}

/// What a guard says.
#[derive(Debug)]
pub(crate) enum News {
    /// The program runs.
    Started,
    /// The program could not be started.
    NotStarted(String),
    /// It stands still.
    Paused,
    /// It is gone.
    Ended(RawEnd),
}

impl Guard {
    /// Starts a guard and tells it what to run.
    pub(crate) async fn start(image: &Path, command: Command) -> Result<Self, StartError> {
        let (ours, theirs) = host::io::socket_pair().map_err(StartError::Pipes)?;
        let (stdout, stdout_end) = pipe().map_err(StartError::Pipes)?;
        let (stderr, stderr_end) = pipe().map_err(StartError::Pipes)?;
        let stream = stream(ours).map_err(StartError::Pipes)?;
        let child = spawn(Spawn {
            args: vec![ROLE.into()],
            stdin: Stream::Fd(theirs),
            stdout: Stream::Fd(stdout_end),
            stderr: Stream::Fd(stderr_end),
            ..Spawn::new(image)
        })
        .map_err(StartError::Spawn)?;
        let (sender, receiver, task) = link::control::open(stream);
        let mut control = GuardControl { child, sender, receiver, task };
        control.tell(ToGuard::Exec(command)).await;
        Ok(Self { control, stdout, stderr })
    }
}

impl GuardControl {
    /// Tells the guard something. A guard that is gone hears nothing: the end of its connection tells.
    ///
    /// Cancel safe: yes, because a cancelled call has told nothing.
    pub(crate) async fn tell(&mut self, message: ToGuard) {
        // A closed connection is seen as the guard's end.
        drop(self.sender.send(&message).await);
    }

    /// Waits for the guard's next words. A guard that is gone without its last word has lost its process.
    ///
    /// Cancel safe: yes, because half a message stays in `self`.
    pub(crate) async fn next(&mut self) -> News {
        loop {
            return match self.receiver.next::<FromGuard>().await {
                Ok(Some(Received::Message(message))) => match message {
                    FromGuard::Started { .. } => News::Started,
                    FromGuard::Failed { error } => News::NotStarted(error),
                    FromGuard::Paused => News::Paused,
                    FromGuard::Ended(end) => News::Ended(end),
                    // Nothing is traced yet, and nothing asked for.
                    FromGuard::Untraced { .. }
                    | FromGuard::Crashed(_)
                    | FromGuard::Sampled(_)
                    | FromGuard::Dumped(_)
                    | FromGuard::LetGone => continue,
                },
                Ok(Some(Received::Relay { .. }) | None) | Err(_) => News::Ended(RawEnd::default()),
            };
        }
    }

    /// Kills the guard, and with it its test process.
    pub(crate) fn kill(&self) {
        if let Err(error) = self.child.signal(Signal::KILL) {
            tracing::debug!(%error, "could not kill a guard");
        }
    }

    /// Ends the connection and waits until the guard's process is gone.
    ///
    /// Cancel safe: no, because the guard is given up with the call.
    pub(crate) async fn reap(mut self) {
        self.task.cut().await;
        drop(self.receiver);
        if timeout(LEAVE, reaped(&mut self.child)).await.is_ok() {
            return;
        }
        tracing::warn!("a guard did not leave and is killed");
        if let Err(error) = self.child.signal(Signal::KILL) {
            tracing::debug!(%error, "could not kill a guard");
        }
        // What SIGKILL does not end is stuck in the kernel, and stays behind as a zombie of ours.
        drop(timeout(LEAVE, reaped(&mut self.child)).await);
    }
}

/// Waits until a process has ended and is reaped.
async fn reaped(child: &mut Child) {
    // Listens before it looks, so that no end falls in between.
    let mut ends = signal(SignalKind::child());
    while let Ok(None) = child.try_wait() {
        match &mut ends {
            Ok(ends) => drop(ends.recv().await),
            Err(error) => {
                tracing::debug!(%error, "could not wait for a guard");
                return;
            }
        }
    }
}

fn stream(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

fn pipe() -> io::Result<(Pipe, OwnedFd)> {
    let (reader, writer) = host::io::pipe()?;
    host::io::set_nonblocking(reader.as_fd())?;
    let file = File::from(reader.try_clone()?);
    Ok((Pipe(Some(Ends { watched: pipe::Receiver::from_owned_fd(reader)?, file })), writer))
}

/// The reading end of one output.
///
/// Unlike the runtime's own pipes it really reads when it is asked to, whether or not the runtime has yet heard that
/// there is something: what a test wrote to one pipe before it wrote to the other must not be overlooked.
pub(crate) struct Pipe(Option<Ends>);

/// The same end twice: once for the runtime to watch, once to be read without asking it.
struct Ends {
    watched: pipe::Receiver,
    file: File,
}

/// What a read that does not wait brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// So many bytes.
    Some(usize),
    /// Nothing yet.
    Nothing,
    /// Nothing ever more.
    End,
}

impl Pipe {
    /// Waits until there is something to read, or the end; for ever behind the end.
    ///
    /// Cancel safe: yes, because it only watches.
    pub(crate) async fn readable(&self) {
        match &self.0 {
            // An error is met again by the read.
            Some(ends) => drop(ends.watched.readable().await),
            None => std::future::pending().await,
        }
    }

    /// Reads what is there.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> Read {
        let Some(ends) = &mut self.0 else { return Read::End };
        let read = match ends.file.read(buffer) {
            // Only the runtime's own read takes back that it holds the pipe for readable.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ends.watched.try_read(buffer),
            read => read,
        };
        match read {
            Ok(count) if count > 0 => Read::Some(count),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Read::Nothing
            }
            Ok(_) | Err(_) => {
                self.0 = None;
                Read::End
            }
        }
    }

    /// Returns whether the end was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn a_pipe_is_really_read_and_waits_only_when_it_is_empty() {
        let (mut reader, writer) = pipe().unwrap();
        let mut writer = File::from(writer);
        let mut buffer = [0; 4];
        for round in 0..100 {
            // No turn of the runtime lies between the write and the read.
            writer.write_all(b"abcdef").unwrap();
            assert_eq!(reader.try_read(&mut buffer), Read::Some(4), "round {round}");
            assert_eq!(reader.try_read(&mut buffer), Read::Some(2), "round {round}");
            assert_eq!(reader.try_read(&mut buffer), Read::Nothing, "round {round}");
            if round % 2 == 0 {
                writer.write_all(b"x").unwrap();
                reader.readable().await;
                assert_eq!(reader.try_read(&mut buffer), Read::Some(1), "round {round}");
                let wait = timeout(Duration::from_millis(1), reader.readable()).await;
                assert!(wait.is_ok() || reader.try_read(&mut buffer) == Read::Nothing);
            }
        }
        drop(writer);
        reader.readable().await;
        assert_eq!(reader.try_read(&mut buffer), Read::End);
        assert!(reader.is_at_end());
        assert_eq!(reader.try_read(&mut buffer), Read::End);
    }
}
