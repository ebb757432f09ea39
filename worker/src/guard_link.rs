//! The worker's side of one guard and its test process: the control connection and the two output pipes. The
//! callers decide what is sent and what the output means.

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

/// How long a guard may take to exit after its connection ends; it normally exits at once, and is killed
/// after this.
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

/// A message from a guard.
#[derive(Debug)]
pub(crate) enum News {
    /// The program was started. The flag says whether the system enforces its memory limit.
    Started(Pid, bool),
    /// The program could not be started.
    NotStarted(String),
    /// The process is paused.
    Paused,
    /// The process is no longer traced.
    LetGone,
    /// The process is stopped for a debugger: before its first instruction, or (`false`) before it executes
    /// its program.
    Standing(bool),
    /// The debugger exited and left the process stopped; the guard has continued it.
    Deserted,
    /// Crash capture is off for the process, with the reason.
    Untraced(String),
    /// The process, or another of its tree, has crashed.
    Crashed(Box<CrashReport>),
    /// States of the processes in its tree.
    Sampled(TreeSample),
    /// Stacks and dumps of the processes in its tree.
    Dumped(Box<HangReport>),
    /// The process has ended.
    Ended(RawEnd),
}

impl Guard {
    /// Starts a guard and sends it the command to execute.
    ///
    /// Cancel safe: yes, because a guard whose connection ends exits, with its test.
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
    /// Sends a message to the guard. For a guard that has exited, the message is lost: [`GuardControl::next`]
    /// reports its end.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub(crate) async fn tell(&mut self, message: ToGuard) {
        // A closed connection is reported as the guard's end.
        drop(self.sender.send(&message).await);
    }

    /// Waits for the guard's next message. A guard that exits without its final message has lost its process.
    ///
    /// Cancel safe: yes, because a partial message stays in `self`.
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

    /// Ends the connection and waits until the guard's process has ended.
    ///
    /// Cancel safe: no, because the guard is abandoned with the call.
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
        // A process that SIGKILL does not end is stuck in the kernel, and remains as a zombie child.
        drop(timeout(LEAVE, self.process.gone()).await);
    }
}

fn stream(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
