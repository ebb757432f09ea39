//! The worker's side of the control connection to one guard.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    time::Duration,
};

use heeler_core::{
    GuardLoss,
    silence::{SilenceStep, SilenceWatch},
};
use heeler_protocol::control::{CrashReport, FromGuard, HangReport, ProcessExit, ToGuard, TreeSample};
use heeler_sys::process::{self, Pid, ProcessStat, Signal};
use heeler_transport::{
    LinkTask,
    control::{ControlReceiver, ControlSender, ReceivedPacket},
};
use tokio::{
    net::UnixStream,
    time::{Instant, timeout, timeout_at},
};

use super::guard_spawner::{GuardProcess, GuardSpawner};

/// Time for a guard to exit after its connection has ended, before it is killed. A guard normally exits at
/// once.
const GUARD_EXIT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct GuardConnection {
    process: GuardProcess,
    sender: ControlSender,
    receiver: ControlReceiver,
    task: LinkTask,
    start: Instant,
    stops: SilenceWatch,
}

#[derive(Debug)]
pub(crate) enum GuardEvent {
    /// The program was started. The flag is set if the system enforces its memory limit.
    Started(Pid, bool),
    /// The program could not be started.
    NotStarted(String),
    Paused,
    /// The process is stopped for a debugger: before its first instruction (`true`), or before it executes
    /// its program (`false`).
    StoppedForDebugger(bool),
    /// The debugger exited and left the process stopped, so the guard resumed it.
    DebuggerLost,
    /// The process is not traced for crashes, for this reason.
    Untraced(String),
    /// The process, or another process of its tree, has crashed.
    Crashed(Box<CrashReport>),
    /// Stack trace of the process, which exited by itself in the middle of its tests, or after it had
    /// children.
    ExitedInRun(String),
    /// States of the processes in the tree.
    Sampled(TreeSample),
    /// Stack traces and dumps of the processes in the tree.
    Dumped(Box<HangReport>),
    Ended(ProcessExit),
    /// The guard ended without reporting the end of its process. The process ends with its guard.
    Lost,
}

impl GuardConnection {
    pub(crate) fn guard_pid(&self) -> Pid {
        self.process.pid()
    }

    /// Opens the connection to a guard over this socket.
    pub(crate) fn open(process: GuardProcess, control: OwnedFd) -> io::Result<Self> {
        let (sender, receiver, task) =
            heeler_transport::control::open_without_heartbeat(tokio_stream(control)?);
        Ok(Self {
            process,
            sender,
            receiver,
            task,
            start: Instant::now(),
            stops: SilenceWatch::new(Duration::ZERO),
        })
    }

    /// Sends a message to the guard. A message to a guard that has exited is lost, and
    /// [`GuardConnection::next_event`] reports the guard's end.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub(crate) async fn send(&mut self, message: ToGuard) {
        // A closed connection is reported as the guard's end.
        drop(self.sender.send(&message).await);
    }

    /// Waits for the guard's next message, or its end without a final message. No event follows
    /// [`GuardEvent::Ended`], [`GuardEvent::NotStarted`] or [`GuardEvent::Lost`].
    ///
    /// Cancel safe: yes, because a partial message stays in `self`.
    pub(crate) async fn next_event(&mut self) -> GuardEvent {
        let message = loop {
            match timeout_at(self.start + self.stops.check_at(), self.receiver.next::<FromGuard>()).await {
                Ok(message) => break message,
                Err(_elapsed) => self.check_stop(),
            }
        };
        match message {
            Ok(Some(ReceivedPacket::Message(message))) => match message {
                FromGuard::Started { pid, is_limited } => {
                    GuardEvent::Started(Pid(i32::try_from(pid).unwrap_or_default()), is_limited)
                }
                FromGuard::StartFailed { error } => GuardEvent::NotStarted(error),
                FromGuard::Paused => GuardEvent::Paused,
                FromGuard::StoppedAtStart { is_program } => GuardEvent::StoppedForDebugger(is_program),
                FromGuard::DebuggerExited => GuardEvent::DebuggerLost,
                FromGuard::Untraced { reason } => GuardEvent::Untraced(reason),
                FromGuard::Crashed(report) => GuardEvent::Crashed(Box::new(report)),
                FromGuard::ExitedInRun { stack } => GuardEvent::ExitedInRun(stack),
                FromGuard::Sampled(sample) => GuardEvent::Sampled(sample),
                FromGuard::Dumped(report) => GuardEvent::Dumped(Box::new(report)),
                FromGuard::Ended(end) => GuardEvent::Ended(end),
            },
            Ok(Some(ReceivedPacket::Forward { .. }) | None) | Err(_) => GuardEvent::Lost,
        }
    }

    /// Resumes a stopped guard, since any test can stop its parent. Kills a guard that is stopped again.
    fn check_stop(&mut self) {
        let is_stopped = || process::stat(self.process.pid()).is_some_and(ProcessStat::is_stopped);
        let signal = match self.stops.on_check(self.start.elapsed(), is_stopped) {
            None => return,
            Some(SilenceStep::Continue) => Signal::CONT,
            Some(SilenceStep::Replace) => Signal::KILL,
        };
        tracing::warn!(%signal, "a guard is stopped; sending a signal");
        if let Err(error) = self.process.signal(signal) {
            tracing::debug!(%error, "the guard has already exited");
        }
    }

    /// Returns how the guard was lost, after [`GuardEvent::Lost`].
    ///
    /// Cancel safe: no, because [`GuardSpawner::guard_loss`] is not.
    pub(crate) async fn loss(&mut self, guards: &GuardSpawner) -> GuardLoss {
        guards.guard_loss(&mut self.process).await
    }

    /// Kills the guard, and thereby its test process.
    pub(crate) fn kill(&self) {
        if let Err(error) = self.process.signal(Signal::KILL) {
            tracing::debug!(%error, "could not kill a guard");
        }
    }

    /// Ends the connection and waits until the guard has exited.
    ///
    /// Cancel safe: no, because the guard is abandoned.
    pub(crate) async fn reap(mut self) {
        self.task.cut().await;
        drop(self.receiver);
        if timeout(GUARD_EXIT_TIMEOUT, self.process.wait_for_exit()).await.is_ok() {
            return;
        }
        tracing::warn!("a guard did not exit; killing it");
        if let Err(error) = self.process.signal(Signal::KILL) {
            tracing::debug!(%error, "could not kill a guard");
        }
        // A process that survives SIGKILL is stuck in the kernel, and remains as a zombie child.
        drop(timeout(GUARD_EXIT_TIMEOUT, self.process.wait_for_exit()).await);
    }
}

fn tokio_stream(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
