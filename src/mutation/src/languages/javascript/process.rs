//! The StrykerJS process and its guard. The guard ends StrykerJS with all its descendants, including escaped
//! or busy ones, on request or when this process is gone.

use std::{
    collections::BTreeSet,
    fs, io,
    num::NonZeroUsize,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use heeler_protocol::{
    control::{FromGuard, OsText, TestCommand, ToGuard},
    fork_server::CHANNEL_ARGUMENT,
    frame::{FrameDecoder, FrameError},
    mutation::BODY_LIMIT_BYTES,
};
use heeler_server::pool::ProcessExitWatch;
use heeler_sys::{
    io::{pipe, socket_pair},
    process::{Pid, Signal, descendants, exit_text, kill_group, shared_program_path, working_directory},
    spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn},
};
use heeler_transport::{
    Inbox, LinkError, LinkTask, Outbox,
    control::{ControlReceiver, ControlSender, ReceivedPacket, open_without_heartbeat},
};
use tokio::{
    io::AsyncReadExt as _,
    net::{
        UnixStream,
        unix::pipe::{Receiver, Sender},
    },
    task::{JoinSet, spawn_blocking},
    time::timeout,
};

use super::{error::StrykerError, package::StrykerPackage};

/// Hidden role of the guard.
const GUARD_ROLE: &str = "__guard";
/// Time for StrykerJS to remove its temporary files after SIGTERM. Short enough that everything is gone
/// within a second.
const GRACE_PERIOD: Duration = Duration::from_millis(500);
/// Time for the guard to end the remaining processes, which normally takes less than a second.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Number of bytes kept from the end of standard error: a screen or two.
const STDERR_BYTES: usize = 8 << 10;
/// Time to wait for the end of standard error, which an escaped process may hold open.
const STDERR_LIMIT: Duration = Duration::from_secs(1);

/// Name prefix of StrykerJS's sandboxes, the package copies where tests run.
const SANDBOX: &str = "sandbox-";

pub(super) enum ProcessEvent {
    Body(Bytes),
    /// The process has ended, with everything that it had started.
    Ended(String),
    Unreadable(LinkError<FrameError>),
}

/// Guards that were dropped before they exited. The next start reaps them.
static UNREAPED: Mutex<Vec<SpawnedChild>> = Mutex::new(Vec::new());

/// A guard that is reaped even if its owner is dropped.
struct GuardChild(Option<SpawnedChild>);

impl GuardChild {
    fn pid(&self) -> Pid {
        self.0.as_ref().map(SpawnedChild::pid).expect("a guard is taken only where it is dropped")
    }

    fn reap_earlier() {
        let mut unreaped = UNREAPED.lock().unwrap_or_else(PoisonError::into_inner);
        unreaped.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Drop for GuardChild {
    fn drop(&mut self) {
        let child = self.0.take();
        let is_running = |child: &mut SpawnedChild| matches!(child.try_wait(), Ok(None));
        if let Some(mut child) = child
            && is_running(&mut child)
        {
            UNREAPED.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        }
    }
}

pub(super) struct StrykerProcess {
    guard: GuardChild,
    guard_exit: ProcessExitWatch,
    control: ControlSender,
    from_guard: ControlReceiver,
    control_task: LinkTask,
    outbox: Outbox,
    inbox: Inbox<FrameDecoder>,
    /// Dropping the task would stop writing to standard input.
    _input_task: LinkTask,
    stderr: Arc<Mutex<Vec<u8>>>,
    stderr_task: JoinSet<()>,
    /// Process group of StrykerJS.
    group: Option<Pid>,
    package: PathBuf,
    started: SystemTime,
    /// Sandboxes of the running tests. StrykerJS leaves them behind when it is killed.
    sandboxes: BTreeSet<PathBuf>,
    is_output_over: bool,
    end: Option<String>,
}

/// Our ends of the process's standard streams.
struct StandardStreams {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl StrykerProcess {
    /// Starts StrykerJS as a server on its standard streams. `concurrency` is the number of test processes;
    /// `None` leaves it to the configuration.
    ///
    /// # Errors
    /// The system refuses a process or a pipe.
    ///
    /// Cancel safe: yes, because the guard ends when its connection closes.
    pub(super) async fn start(
        package: &StrykerPackage,
        concurrency: Option<NonZeroUsize>,
    ) -> Result<Self, StrykerError> {
        // Create the channel to the guard and the standard streams.
        GuardChild::reap_earlier();
        let (control, their_control) = socket_pair().map_err(StrykerError::Connect)?;
        let (their_stdin, stdin) = pipe().map_err(StrykerError::Connect)?;
        let (stdout, their_stdout) = pipe().map_err(StrykerError::Connect)?;
        let (stderr, their_stderr) = pipe().map_err(StrykerError::Connect)?;
        // Start the guard, which then starts StrykerJS.
        let guard = spawn(SpawnOptions {
            args: [GUARD_ROLE, CHANNEL_ARGUMENT].map(Into::into).to_vec(),
            stdin: ChildStdio::Fd(their_control),
            stdout: ChildStdio::Fd(their_stdout),
            stderr: ChildStdio::Fd(their_stderr),
            channel: Some(their_stdin),
            ..SpawnOptions::new(shared_program_path())
        });
        let guard = GuardChild(Some(guard.map_err(StrykerError::Guard)?));
        let streams = StandardStreams { stdin, stdout, stderr };
        let process = Self::connect(guard, control, streams, package.dir.clone());
        let process = process.map_err(StrykerError::Connect)?;
        // If the guard is gone already, its connection will report the end.
        let command = ToGuard::Exec(command(package, concurrency));
        let (Ok(()) | Err(_)) = process.control.send(&command).await;
        Ok(process)
    }

    fn connect(
        guard: GuardChild,
        control: OwnedFd,
        streams: StandardStreams,
        package: PathBuf,
    ) -> io::Result<Self> {
        let StandardStreams { stdin, stdout, stderr } = streams;
        let control = StdUnixStream::from(control);
        control.set_nonblocking(true)?;
        let (control, from_guard, control_task) = open_without_heartbeat(UnixStream::from_std(control)?);
        let streams = tokio::io::join(Receiver::from_owned_fd(stdout)?, Sender::from_owned_fd(stdin)?);
        let (outbox, inbox, input_task) =
            heeler_transport::open(streams, FrameDecoder::with_limit(BODY_LIMIT_BYTES));
        let kept = Arc::new(Mutex::new(Vec::new()));
        let mut stderr_task = JoinSet::new();
        stderr_task.spawn(keep_end(Receiver::from_owned_fd(stderr)?, Arc::clone(&kept)));
        Ok(Self {
            guard_exit: ProcessExitWatch::watch(guard.pid())?,
            guard,
            control,
            from_guard,
            control_task,
            outbox,
            inbox,
            _input_task: input_task,
            stderr: kept,
            stderr_task,
            group: None,
            package,
            started: SystemTime::now(),
            sandboxes: BTreeSet::new(),
            is_output_over: false,
            end: None,
        })
    }

    /// Sends a frame. Errors are ignored, because the end of the process is reported as an event.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub(super) async fn send(&mut self, frame: Bytes) {
        let (Ok(()) | Err(_)) = self.outbox.send(frame).await;
    }

    /// Waits for the next event. The end of the process is reported after all output, and again by every
    /// later call.
    ///
    /// Cancel safe: yes, because received data is kept.
    pub(super) async fn next_event(&mut self) -> ProcessEvent {
        loop {
            if self.is_output_over
                && let Some(end) = &self.end
            {
                return ProcessEvent::Ended(end.clone());
            }
            tokio::select! {
                body = self.inbox.next(), if !self.is_output_over => match body {
                    Ok(Some(body)) => return ProcessEvent::Body(body),
                    Ok(None) => self.is_output_over = true,
                    Err(error) => {
                        self.is_output_over = true;
                        return ProcessEvent::Unreadable(error);
                    }
                },
                message = self.from_guard.next(), if self.end.is_none() => {
                    self.on_guard(message.ok().flatten());
                }
            }
        }
    }

    fn on_guard(&mut self, message: Option<ReceivedPacket<FromGuard>>) {
        match message {
            Some(ReceivedPacket::Message(FromGuard::Started { pid, .. })) => {
                self.group = i32::try_from(pid).ok().map(Pid);
            }
            Some(ReceivedPacket::Message(FromGuard::StartFailed { error })) => self.end = Some(error),
            Some(ReceivedPacket::Message(FromGuard::Ended(exit))) => {
                self.end = Some(exit_text(exit.code, exit.signal))
            }
            // Heeler asks the guard for nothing else, so other messages have no meaning here.
            Some(ReceivedPacket::Message(_) | ReceivedPacket::Forward { .. }) => {}
            None => {
                // The guard's child died with it, and leads the group of the remaining processes. While one
                // of them lives, the group's number can't be reused, so killing the group is safe.
                if let Some(group) = self.group {
                    let _gone = kill_group(group, Signal::KILL);
                }
                self.end = Some("its guard process died".to_owned());
            }
        }
    }

    /// Stops the process and all its descendants, until [`Self::resume`].
    ///
    /// Cancel safe: no, because the process may stay stopped.
    pub(super) async fn pause(&mut self) {
        let (Ok(()) | Err(_)) = self.control.send(&ToGuard::Pause).await;
        while self.end.is_none() {
            let message = self.from_guard.next().await.ok().flatten();
            if matches!(message, Some(ReceivedPacket::Message(FromGuard::Paused))) {
                return;
            }
            self.on_guard(message);
        }
    }

    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub(super) async fn resume(&mut self) {
        let (Ok(()) | Err(_)) = self.control.send(&ToGuard::Resume).await;
    }

    /// Records the sandboxes of the running tests, to remove them if StrykerJS does not.
    pub(super) fn note_sandboxes(&mut self) {
        let directories = descendants(self.guard.pid()).into_iter().filter_map(working_directory);
        let copies = directories.filter_map(|directory| sandbox_of(&directory, &self.package));
        // An older directory belongs to the user, regardless of its name.
        let is_new = |copy: &PathBuf| {
            let made = fs::metadata(copy).and_then(|found| found.created());
            made.is_ok_and(|made| made >= self.started)
        };
        self.sandboxes.extend(copies.filter(is_new));
    }

    /// Asks the process to end; the guard kills it with all its descendants after the grace period.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub(super) async fn terminate(&mut self) {
        self.note_sandboxes();
        let grace_ms = u64::try_from(GRACE_PERIOD.as_millis()).unwrap_or(u64::MAX);
        let (Ok(()) | Err(_)) = self.control.send(&ToGuard::Terminate { grace_ms }).await;
    }

    /// Returns the end of standard error, for an error message.
    ///
    /// Cancel safe: yes, because received data is kept.
    pub(super) async fn stderr(&mut self) -> String {
        if self.end.is_some() {
            let read = async { while self.stderr_task.join_next().await.is_some() {} };
            // Later output would come from an escaped process.
            let (Ok(()) | Err(_)) = timeout(STDERR_LIMIT, read).await;
        }
        let kept = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let text = text.trim_end();
        if text.is_empty() { String::new() } else { format!("\n{text}") }
    }

    /// Ends the process with all its descendants. None of them runs when this returns.
    ///
    /// Cancel safe: yes, because the guard ends everything when its connection closes.
    pub(super) async fn end(mut self) {
        self.terminate().await;
        let ended = async {
            while self.end.is_none() {
                let message = self.from_guard.next().await.ok().flatten();
                self.on_guard(message);
            }
        };
        if timeout(END_LIMIT, ended).await.is_err() {
            tracing::warn!("StrykerJS did not end within {} s", END_LIMIT.as_secs());
        }
        let sandboxes = std::mem::take(&mut self.sandboxes);
        if !sandboxes.is_empty() {
            // A failing task has logged its error.
            let (Ok(()) | Err(_)) = spawn_blocking(move || remove_sandboxes(&sandboxes)).await;
        }
        self.control_task.cut().await;
        drop(self.from_guard);
        if timeout(END_LIMIT, self.guard_exit.wait()).await.is_err() {
            tracing::warn!(
                "the guard process of StrykerJS did not exit within {} s; killing it",
                END_LIMIT.as_secs()
            );
            let _gone = self.guard.0.as_ref().map(|guard| guard.signal(Signal::KILL));
            // Reaped later if it does not exit even now.
            let (Ok(()) | Err(_)) = timeout(END_LIMIT, self.guard_exit.wait()).await;
        }
    }
}

/// Returns the package copy that contains a working directory. Copies are in a separate directory inside the
/// package, and their names end with six random characters.
fn sandbox_of(directory: &Path, package: &Path) -> Option<PathBuf> {
    let is_sandbox = |dir: &&Path| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let is_random = |end: &str| end.len() == 6 && end.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_below = dir.parent().is_some_and(|parent| parent != package && parent.starts_with(package));
        is_below && name.strip_prefix(SANDBOX).is_some_and(is_random)
    };
    directory.ancestors().find(is_sandbox).map(Path::to_owned)
}

/// Removes package copies, and their parent directory if it is then empty.
fn remove_sandboxes(sandboxes: &BTreeSet<PathBuf>) {
    for sandbox in sandboxes.iter().filter(|sandbox| sandbox.exists()) {
        if let Err(error) = fs::remove_dir_all(sandbox) {
            tracing::warn!(%error, path = %sandbox.display(), "cannot remove a package copy left by StrykerJS");
        }
        let _has_others = sandbox.parent().map(fs::remove_dir);
    }
}

/// Returns the command that starts the server. `--cleanTempDir always` removes the package copies even after
/// an error.
fn command(package: &StrykerPackage, concurrency: Option<NonZeroUsize>) -> TestCommand {
    let text = |text: std::ffi::OsString| OsText::from(text.as_os_str());
    let env = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    let words = ["serve", "stdio", "--", "--cleanTempDir", "always"].map(OsText::from);
    let mut args = vec![OsText::from(package.script.as_path())];
    args.extend(words);
    if let Some(concurrency) = concurrency {
        args.extend([OsText::from("--concurrency"), OsText::from(concurrency.to_string())]);
    }
    TestCommand {
        program: OsText::from(package.node.as_path()),
        args,
        env: env.collect(),
        cwd: OsText::from(package.dir.as_path()),
        is_channel_standard_input: true,
        ..TestCommand::default()
    }
}

/// Reads until the end, and keeps the last bytes.
async fn keep_end(mut from: Receiver, kept: Arc<Mutex<Vec<u8>>>) {
    let mut bytes = [0; 4096];
    while let Ok(count) = from.read(&mut bytes).await
        && count > 0
    {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&bytes[..count]);
        let surplus = kept.len().saturating_sub(STDERR_BYTES);
        kept.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_copies_that_stryker_names_are_those_of_a_package() {
        let package = Path::new("/p");
        let sandbox = |directory: &str| sandbox_of(Path::new(directory), package);
        for inside in ["", "/test/deep"] {
            let found = sandbox(&format!("/p/.stryker-tmp/sandbox-aB3xYz{inside}"));
            assert_eq!(found, Some(PathBuf::from("/p/.stryker-tmp/sandbox-aB3xYz")));
        }
        for other in [
            "/p",
            "/p/sandbox-aB3xYz",
            "/p/.stryker-tmp/sandbox-data",
            "/p/.stryker-tmp/sandbox-more-data",
            "/p/.stryker-tmp/backup-aB3xYz",
            "/q/.stryker-tmp/sandbox-aB3xYz",
            "/p2/.stryker-tmp/sandbox-aB3xYz",
        ] {
            assert_eq!(sandbox(other), None, "{other}");
        }
    }
}
