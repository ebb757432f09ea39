//! Checks a program that reports test results as JSON lines against the specification: starts the program,
//! writes requests and reads reports. `AdapterCheck` decides what to send and judges the reports.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use heeler_adapters::{
    AdapterInvocation,
    check::{
        AdapterCheck, CheckConversation, CheckMoment, CheckReader, CheckScript, CheckStep, ExpectedReply,
    },
};
use heeler_sys::{
    io::{pipe, set_nonblocking, shrink_pipe, shrink_send_buffer, socket_pair, unread_bytes, wait_readable},
    process::{Signal, kill_group},
    spawn::{ChildStdio, SpawnError, SpawnOptions, SpawnedChild, spawn},
};

/// Number of bytes kept of each output.
const KEPT_BYTES: usize = 1 << 20;
/// Size of one read, the capacity of a pipe.
const READ_BYTES: usize = 64 << 10;
/// Polling interval for changes that the system does not report.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Number of consecutive polls without a change after which the process counts as blocked.
const EQUAL_LOOKS: usize = 6;
/// Size of the pieces of a split request.
const PIECE_BYTES: usize = 7;
/// Time to wait for the outputs to close after the process has exited. Another process may hold them open.
const OUTPUT_END_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct CheckedProgram {
    /// Absolute path.
    pub path: PathBuf,
    /// Command line arguments.
    pub args: Vec<OsString>,
    /// Time limit for each answer.
    pub limit: Duration,
}

/// Why a program could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum AdapterCheckError {
    /// The program could not be started.
    #[error(transparent)]
    Start(SpawnError),
    /// The system refused the pipes or sockets that connect us to the program.
    #[error("communicate with {}", path.display())]
    Talk {
        /// Path of the program.
        path: PathBuf,
        source: io::Error,
    },
}

/// Runs all conversations of a check.
///
/// # Errors
/// If the program cannot be started, or the system refuses pipes or sockets.
pub fn check_adapter(program: &CheckedProgram, check: &mut AdapterCheck) -> Result<(), AdapterCheckError> {
    let invocation = check.invocation();
    while let Some(scripts) = check.next_scripts() {
        let readers: Vec<CheckReader> = scripts.iter().map(|_| check.reader()).collect();
        let meeting = Meeting::of(scripts.len());
        let conversations = std::thread::scope(|scope| {
            let started: Vec<_> = scripts
                .iter()
                .zip(readers)
                .map(|(script, reader)| {
                    scope.spawn(|| converse(program, &invocation, script, reader, meeting.attend()))
                })
                .collect();
            let joined = started
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            joined.collect::<Result<Vec<_>, _>>()
        })?;
        check.on_conversations(&conversations);
    }
    Ok(())
}

/// Runs one conversation with a new process, then kills the process.
fn converse(
    program: &CheckedProgram,
    invocation: &AdapterInvocation,
    script: &CheckScript,
    reader: CheckReader,
    attendance: Attendance<'_>,
) -> Result<CheckConversation, AdapterCheckError> {
    let talk = |source| AdapterCheckError::Talk { path: program.path.clone(), source };
    let (mut peer, start) = CheckedProcess::connect(program, invocation, script, reader).map_err(talk)?;
    let mut child = spawn(start).map_err(AdapterCheckError::Start)?;
    let held = peer.hold(&mut child, script, attendance);
    // Fails only if the whole group is gone.
    let _gone = kill_group(child.pid(), Signal::KILL);
    let status = child.wait().map_err(talk)?;
    held.map_err(talk)?;
    if peer.has_exited {
        (peer.found.code, peer.found.signal) = (status.code, status.signal);
    }
    Ok(peer.found)
}

/// Barrier that concurrent conversations wait at.
struct Meeting {
    expected: usize,
    /// Number of conversations that have arrived or ended.
    arrived: Mutex<usize>,
    changed: Condvar,
}

/// One conversation's part in a [`Meeting`]. Dropping it counts as arriving, so a conversation that ends
/// early does not block the others.
struct Attendance<'a> {
    meeting: &'a Meeting,
    has_arrived: bool,
}

impl Meeting {
    fn of(expected: usize) -> Self {
        Self { expected, arrived: Mutex::new(0), changed: Condvar::new() }
    }

    fn attend(&self) -> Attendance<'_> {
        Attendance { meeting: self, has_arrived: false }
    }
}

impl Attendance<'_> {
    fn arrive(&mut self) -> MutexGuard<'_, usize> {
        let mut arrived = self.meeting.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        *arrived += usize::from(!std::mem::replace(&mut self.has_arrived, true));
        self.meeting.changed.notify_all();
        arrived
    }

    /// Waits until every other conversation has arrived here or has ended. Its own time limits ensure that it
    /// does.
    fn meet(&mut self) {
        let (expected, changed) = (self.meeting.expected, &self.meeting.changed);
        let arrived = self.arrive();
        let all = changed.wait_while(arrived, |arrived| *arrived < expected);
        drop(all.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        drop(self.arrive());
    }
}

/// Our ends of one process's pipes and sockets, and its output so far.
struct CheckedProcess {
    /// Destination of requests. `None` after the last request.
    requests: Option<File>,
    /// Report channel. `None` if reports come on standard output, or after the channel has closed.
    channel: Option<File>,
    stdout: Option<File>,
    stderr: Option<File>,
    is_stdout_read_for_reports: bool,
    reader: CheckReader,
    found: CheckConversation,
    has_exited: bool,
    limit: Duration,
}

/// How waiting for a report ended.
enum WaitEnd {
    Found,
    TimedOut,
    /// No more reports can come.
    Ended,
}

impl CheckedProcess {
    /// Creates the pipes and sockets: our ends, and the spawn options with the process's ends.
    fn connect(
        program: &CheckedProgram,
        invocation: &AdapterInvocation,
        script: &CheckScript,
        reader: CheckReader,
    ) -> io::Result<(Self, SpawnOptions)> {
        let is_stdio = invocation.channel.is_on_standard_streams();
        let (stdout, their_stdout) = pipe()?;
        let (stderr, their_stderr) = pipe()?;
        let (requests, channel, theirs) = if is_stdio {
            let (theirs, ours) = pipe()?;
            set_nonblocking(ours.as_fd())?;
            (ours, None, theirs)
        } else {
            let (ours, theirs) = socket_pair()?;
            set_nonblocking(ours.as_fd())?;
            (ours.try_clone()?, Some(ours), theirs)
        };
        // Small buffers make the process block early.
        if script.has_small_buffers {
            if is_stdio { shrink_pipe(stdout.as_fd())? } else { shrink_send_buffer(theirs.as_fd())? }
        }
        for output in [&stdout, &stderr] {
            set_nonblocking(output.as_fd())?;
        }
        // Compose the environment.
        let own = [("HEELER", "1"), ("HEELER_WORKER", "1")].map(|(name, value)| (name.into(), value.into()));
        let variables: Vec<(OsString, OsString)> = invocation
            .env
            .iter()
            .filter_map(|(name, value)| {
                Some((name.as_os_str().to_owned(), value.as_ref()?.as_os_str().to_owned()))
            })
            .chain(own)
            .collect();
        let is_set = |name: &OsString| variables.iter().any(|(own, _)| own == name);
        let inherited = std::env::vars_os().filter(|(name, _)| !is_set(name));
        // Compose the spawn options and our side.
        let start = SpawnOptions {
            args: program.args.clone(),
            env: Some(inherited.chain(variables.iter().cloned()).collect()),
            stdout: ChildStdio::Fd(their_stdout),
            stderr: ChildStdio::Fd(their_stderr),
            ..SpawnOptions::new(&program.path)
        };
        let file = |fd: OwnedFd| Some(File::from(fd));
        let peer = Self {
            requests: file(requests),
            channel: channel.and_then(file),
            stdout: file(stdout),
            stderr: file(stderr),
            is_stdout_read_for_reports: is_stdio,
            reader,
            found: CheckConversation {
                limit: format!("{} s", program.limit.as_secs_f64()),
                ..CheckConversation::default()
            },
            has_exited: false,
            limit: program.limit,
        };
        Ok((peer, start.with_channel(Some(theirs), is_stdio)))
    }

    fn hold(
        &mut self,
        child: &mut SpawnedChild,
        script: &CheckScript,
        mut attendance: Attendance<'_>,
    ) -> io::Result<()> {
        for step in &script.steps {
            match step {
                CheckStep::Send(bytes) => self.send(bytes, child)?,
                CheckStep::SendInPieces(bytes) => self.send_in_pieces(bytes, child)?,
                CheckStep::ReadNothing => self.wait_for_full_buffer(child)?,
                CheckStep::Meet => attendance.meet(),
                CheckStep::EndRequests => self.end_requests(),
                CheckStep::AwaitExit => {
                    if !self.await_exit(child)? {
                        self.found.moments.push(CheckMoment::NoExit);
                        return Ok(());
                    }
                }
                CheckStep::Await(reply) => match self.await_reply(*reply, child)? {
                    WaitEnd::Found => {}
                    WaitEnd::Ended => {
                        self.found.moments.push(CheckMoment::EndedBefore(*reply));
                        self.await_exit(child)?;
                        return Ok(());
                    }
                    WaitEnd::TimedOut => {
                        self.found.moments.push(CheckMoment::NoReply(*reply));
                        if script.reads_on {
                            self.end_requests();
                            self.await_exit(child)?;
                        }
                        return Ok(());
                    }
                },
            }
        }
        Ok(())
    }

    /// Writes a request. While the process does not read, reads its output, since the process may be blocked
    /// on writing.
    fn send(&mut self, mut bytes: &[u8], child: &mut SpawnedChild) -> io::Result<()> {
        self.found.moments.push(CheckMoment::Sent(bytes.to_vec()));
        let deadline = Instant::now() + self.limit;
        while !bytes.is_empty() && Instant::now() < deadline {
            let Some(requests) = &mut self.requests else { return Ok(()) };
            match requests.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.read_available(Some(Instant::now() + LOOK_INTERVAL), child)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The process has stopped reading, so its reply will be missing.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn send_in_pieces(&mut self, bytes: &[u8], child: &mut SpawnedChild) -> io::Result<()> {
        let sent = self.found.moments.len();
        for piece in bytes.chunks(PIECE_BYTES) {
            self.send(piece, child)?;
            let deadline = Instant::now() + self.limit;
            while Instant::now() < deadline && self.has_unread_request() {
                let [has_exited] =
                    wait_readable([Some(child.pidfd())], Some(Instant::now() + LOOK_INTERVAL / 50))?;
                if has_exited {
                    break;
                }
            }
        }
        self.found.moments.truncate(sent);
        self.found.moments.push(CheckMoment::Sent(bytes.to_vec()));
        Ok(())
    }

    fn has_unread_request(&self) -> bool {
        let Some(requests) = &self.requests else { return false };
        let unread = match &self.channel {
            Some(channel) => heeler_sys::io::unacknowledged_bytes(channel.as_fd()).unwrap_or_default() as u64,
            None => unread_bytes(requests.as_fd()).unwrap_or_default(),
        };
        unread > 0
    }

    fn end_requests(&mut self) {
        self.found.moments.push(CheckMoment::RequestsEnded);
        self.requests = None;
        if let Some(channel) = &self.channel
            && let Ok(duplicate) = channel.try_clone()
        {
            let socket = std::os::unix::net::UnixStream::from(OwnedFd::from(duplicate));
            // Fails if the process has already closed its end.
            let _closed = socket.shutdown(std::net::Shutdown::Write);
        }
    }

    /// Waits until the process is blocked because its output is not read, or has exited.
    fn wait_for_full_buffer(&mut self, child: &mut SpawnedChild) -> io::Result<()> {
        let reports = if self.is_stdout_read_for_reports { &self.stdout } else { &self.channel };
        let Some(reports) = reports.as_ref().map(File::try_clone).transpose()? else { return Ok(()) };
        let deadline = Instant::now() + self.limit;
        let (mut last, mut equal) = (0, 0);
        while equal < EQUAL_LOOKS && Instant::now() < deadline {
            let [has_exited] = wait_readable([Some(child.pidfd())], Some(Instant::now() + LOOK_INTERVAL))?;
            let unread = unread_bytes(reports.as_fd())?;
            equal = if unread == last && unread > 0 { equal + 1 } else { 0 };
            last = unread;
            if has_exited {
                break;
            }
        }
        // These bytes were written before anything was read. If they lack the reply, the process was blocked
        // on writing.
        let mut bytes = vec![0; usize::try_from(last).unwrap_or(READ_BYTES)];
        let count = (&reports).read(&mut bytes).unwrap_or_default();
        self.on_reports(&bytes[..count]);
        let is_answered = self.has_seen(0, ExpectedReply::Listed);
        self.found.had_to_wait = !is_answered;
        Ok(())
    }

    fn has_seen(&self, from: usize, reply: ExpectedReply) -> bool {
        let seen = self.found.moments.iter().skip(from);
        seen.into_iter().any(|moment| match moment {
            CheckMoment::Reported(report) => report.kind() == reply.kind(),
            _ => false,
        })
    }

    /// Reads until a reply to the last request arrives. Each report restarts the time limit.
    fn await_reply(&mut self, reply: ExpectedReply, child: &mut SpawnedChild) -> io::Result<WaitEnd> {
        let is_request = |moment: &CheckMoment| matches!(moment, CheckMoment::Sent(_));
        let mut checked = self.found.moments.iter().rposition(is_request).unwrap_or(0);
        let mut deadline = Instant::now() + self.limit;
        loop {
            if self.has_seen(checked, reply) {
                return Ok(WaitEnd::Found);
            }
            if self.found.moments.len() > checked {
                checked = self.found.moments.len();
                deadline = Instant::now() + self.limit;
            }
            if self.has_exited {
                self.read_to_ends(child)?;
                return Ok(if self.has_seen(checked, reply) { WaitEnd::Found } else { WaitEnd::Ended });
            }
            if self.are_reports_over() {
                return Ok(WaitEnd::Ended);
            }
            if Instant::now() >= deadline {
                return Ok(WaitEnd::TimedOut);
            }
            self.read_available(Some(deadline), child)?;
        }
    }

    fn are_reports_over(&self) -> bool {
        let reports = if self.is_stdout_read_for_reports { &self.stdout } else { &self.channel };
        reports.is_none()
    }

    /// Reads until the process has exited, then reads its outputs to their ends. Returns whether it has
    /// exited.
    fn await_exit(&mut self, child: &mut SpawnedChild) -> io::Result<bool> {
        let deadline = Instant::now() + self.limit;
        while !self.has_exited && Instant::now() < deadline {
            self.read_available(Some(deadline), child)?;
        }
        if self.has_exited {
            self.read_to_ends(child)?;
        }
        Ok(self.has_exited)
    }

    /// Reads the outputs of an exited process to their ends.
    fn read_to_ends(&mut self, child: &mut SpawnedChild) -> io::Result<()> {
        let deadline = Instant::now() + OUTPUT_END_LIMIT;
        let has_output =
            |peer: &Self| peer.channel.is_some() || peer.stdout.is_some() || peer.stderr.is_some();
        while has_output(self) && Instant::now() < deadline {
            self.read_available(Some(deadline), child)?;
        }
        if let Some(rest) = self.reader.finish() {
            self.found.moments.push(CheckMoment::Reported(rest));
        }
        Ok(())
    }

    /// Waits for output or the exit, and reads the available output.
    fn read_available(&mut self, deadline: Option<Instant>, child: &mut SpawnedChild) -> io::Result<()> {
        let outputs =
            [&self.channel, &self.stdout, &self.stderr].map(|one| one.as_ref().map(|file| file.as_fd()));
        let [channel, stdout, stderr] = outputs;
        let exit = (!self.has_exited).then(|| child.pidfd());
        let [has_channel, has_stdout, has_stderr, has_exited] =
            wait_readable([channel, stdout, stderr, exit], deadline)?;
        if has_channel || has_exited {
            let bytes = read_some(&mut self.channel);
            self.on_reports(&bytes);
        }
        if has_stdout || has_exited {
            let bytes = read_some(&mut self.stdout);
            keep(&mut self.found.stdout, &bytes);
            if self.is_stdout_read_for_reports {
                self.on_reports(&bytes);
            }
        }
        if has_stderr || has_exited {
            let bytes = read_some(&mut self.stderr);
            keep(&mut self.found.stderr, &bytes);
        }
        self.has_exited |= has_exited;
        Ok(())
    }

    fn on_reports(&mut self, bytes: &[u8]) {
        let seen = self.reader.push(bytes);
        self.found.moments.extend(seen.into_iter().map(CheckMoment::Reported));
    }
}

/// Reads available bytes, up to a limit. Drops the file at its end.
fn read_some(file: &mut Option<File>) -> Vec<u8> {
    let mut bytes = vec![0; READ_BYTES];
    let Some(open) = file else { return Vec::new() };
    match open.read(&mut bytes) {
        Ok(count) if count > 0 => bytes.truncate(count),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            bytes.clear();
        }
        Ok(_) | Err(_) => {
            bytes.clear();
            *file = None;
        }
    }
    bytes
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = KEPT_BYTES.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
