//! One guard and its test process, as the worker holds them: the control connection and the two pipes. What is said
//! and read is decided elsewhere.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    time::Duration,
};

use host::process::{Pid, Signal};
use link::{
    LinkTask,
    control::{ControlReceiver, ControlSender, Received},
};
use tokio::{net::UnixStream, time::timeout};
use wire::control::{Command, CrashReport, FromGuard, HangReport, RawEnd, ToGuard, TreeSample};

use crate::{
    guards::{Cradle, Guards, Process, StartError},
    pipe::Pipe,
};

/// A guard leaves at once when its connection ends; one that does not is killed after this.
const LEAVE: Duration = Duration::from_secs(1);

/// A guard and the outputs of its test process.
pub(crate) struct Guard {
    pub(crate) control: GuardControl,
    pub(crate) stdout: Pipe,
    pub(crate) stderr: Pipe,
}

/// The connection to a guard.
pub(crate) struct GuardControl {
    process: Process,
    sender: ControlSender,
    receiver: ControlReceiver,
    task: LinkTask,
}

/// What a guard says.
#[derive(Debug)]
pub(crate) enum News {
    /// The program runs, and whether the system holds its memory limit.
    Started(Pid, bool),
    /// The program could not be started.
    NotStarted(String),
    /// It stands still.
    Paused,
    /// It is traced no more.
    LetGone,
    /// It stands before its first instruction, or (`false`) before it becomes its program.
    Standing(bool),
    /// Its debugger was gone and had left it standing; it goes on.
    Deserted,
    /// It is not watched for crashes, and why.
    Untraced(String),
    /// It has crashed, or a process of its tree.
    Crashed(Box<CrashReport>),
    /// What its tree does.
    Sampled(TreeSample),
    /// Its tree's stacks and dumps.
    Dumped(Box<HangReport>),
    /// It is gone.
    Ended(RawEnd),
}

impl Guard {
    /// Starts a guard and tells it what to run.
    ///
    /// Cancel safe: yes, because a guard that hears nothing of its worker any more leaves, with its test.
    pub(crate) async fn start(guards: &Guards, command: Command) -> Result<Self, StartError> {
        let (process, Cradle { control, stdout, stderr }) = guards.start().await?;
        let stream = stream(control).map_err(StartError::Ends)?;
        let (sender, receiver, task) = link::control::open(stream);
        let mut control = GuardControl { process, sender, receiver, task };
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
        match self.receiver.next::<FromGuard>().await {
            Ok(Some(Received::Message(message))) => match message {
                FromGuard::Started { pid, is_limited } => {
                    News::Started(Pid(i32::try_from(pid).unwrap_or_default()), is_limited)
                }
                FromGuard::Failed { error } => News::NotStarted(error),
                FromGuard::Paused => News::Paused,
                FromGuard::LetGone => News::LetGone,
                FromGuard::Standing { is_program } => News::Standing(is_program),
                FromGuard::Deserted => News::Deserted,
                FromGuard::Untraced { reason } => News::Untraced(reason),
                FromGuard::Crashed(report) => News::Crashed(Box::new(report)),
                FromGuard::Sampled(sample) => News::Sampled(sample),
                FromGuard::Dumped(report) => News::Dumped(Box::new(report)),
                FromGuard::Ended(end) => News::Ended(end),
            },
            Ok(Some(Received::Relay { .. }) | None) | Err(_) => News::Ended(RawEnd::default()),
        }
    }

    /// Kills the guard, and with it its test process.
    pub(crate) fn kill(&self) {
        if let Err(error) = self.process.signal(Signal::KILL) {
            tracing::debug!(%error, "could not kill a guard");
        }
    }

    /// Ends the connection and waits until the guard's process is gone.
    ///
    /// Cancel safe: no, because the guard is given up with the call.
    pub(crate) async fn reap(mut self) {
        self.task.cut().await;
        drop(self.receiver);
        if timeout(LEAVE, self.process.gone()).await.is_ok() {
            return;
        }
        tracing::warn!("a guard did not leave and is killed");
        if let Err(error) = self.process.signal(Signal::KILL) {
            tracing::debug!(%error, "could not kill a guard");
        }
        // What SIGKILL does not end is stuck in the kernel, and stays behind as a zombie of ours.
        drop(timeout(LEAVE, self.process.gone()).await);
    }
}

fn stream(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
