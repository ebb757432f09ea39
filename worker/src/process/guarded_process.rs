//! A process below its guard, as one stream of events: orders, messages from the guard, output. Handles what
//! all processes need: pauses, termination within the grace period, and reading outputs to their ends. The
//! callers decide which orders to follow and what the output means.

use std::{io, os::fd::BorrowedFd, time::Duration};

use heeler_adapters::{ConnectionInput, InvocationChannel, PORT_ARGUMENT, ReportWriter};
use heeler_core::GuardLoss;
use heeler_protocol::control::{OsText, TestCommand, ToGuard};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    connections::ProcessConnections,
    guard_connection::{GuardConnection, GuardEvent},
    guard_spawner::{GuardPipes, GuardProcess, GuardSpawner, GuardStartError},
    job_order::JobOrder,
    launch_offer::AcceptedLaunch,
    output_drain::OutputDrain,
    output_pipe::{OutputPiece, PipeRead},
    process_clock::sleep_until_deadline,
    process_handle::ProcessHandle,
    process_outputs::ProcessOutputs,
    report_channel::ReportChannel,
};

/// Capacity of a pipe, so that one read empties it.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Minimum time between two reads. Programs write each line separately, and waking up for every line would
/// cost more than the tests. A read does not wait if the pipe is filling up, or if the process writes to
/// standard error.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(1);

/// A larger read means that the pipe is filling up.
const PIPE_FILLING_BYTES: usize = READ_BUFFER_BYTES / 8;

/// Time after the grace period for a guard to end its process, before the guard itself is killed.
const GUARD_KILL_DELAY: Duration = Duration::from_secs(5);

/// Maximum time for a process to exit by itself after it was asked to stop, in milliseconds. Part of the
/// grace period.
const MAX_STOP_MS: u64 = 1000;

/// One process, the worker's ends of its outputs, and the orders for it.
pub(crate) struct GuardedProcess<'a> {
    guards: &'a GuardSpawner,
    handle: ProcessHandle,
    outputs: ProcessOutputs,
    orders: &'a mut mpsc::Receiver<JobOrder>,
    is_paused: bool,
    /// Notified when the process is paused.
    pause_confirmation: Option<oneshot::Sender<()>>,
    /// When to terminate a process that was asked to exit, and the grace period from then on.
    terminate_at: Option<(Instant, u64)>,
    /// When to kill an overdue guard.
    guard_kill_at: Option<Instant>,
    /// Earliest time of the next read, unless there is a reason to read sooner.
    next_read_at: Instant,
    /// Limits reading after the end of the process. Set when the process ends.
    drain: Option<OutputDrain>,
    buffers: ReadBuffers,
}

struct ReadBuffers {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    channel: Vec<u8>,
}

impl ReadBuffers {
    fn new() -> Self {
        Self {
            stdout: vec![0; READ_BUFFER_BYTES],
            stderr: vec![0; READ_BUFFER_BYTES],
            channel: vec![0; READ_BUFFER_BYTES],
        }
    }
}

/// A running process between two jobs. Nothing reads its outputs. If this is dropped, the guard ends the
/// process.
pub(crate) struct DetachedProcess {
    handle: ProcessHandle,
    outputs: ProcessOutputs,
}

impl DetachedProcess {
    /// Sends the command to execute to a guard.
    ///
    /// # Errors
    /// If the connection cannot be registered with the runtime.
    ///
    /// Cancel safe: yes, because a guard exits with its process when its connection ends.
    pub(crate) async fn open(
        process: GuardProcess,
        pipes: GuardPipes,
        command: TestCommand,
    ) -> io::Result<Self> {
        let GuardPipes { control, outputs } = pipes;
        let mut guard = GuardConnection::open(process, control)?;
        guard.send(ToGuard::Exec(command)).await;
        Ok(Self { handle: ProcessHandle::Guard(guard), outputs })
    }

    /// Returns whether the process is unchanged: the guard has sent no report.
    pub(crate) async fn is_unchanged(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.handle.next_event() => false,
            () = std::future::ready(()) => true,
        }
    }

    /// Asks the process to exit, and ends it if it does not exit within the limit. Discards its output.
    ///
    /// Cancel safe: no, because the process is abandoned; its guard then ends it.
    pub(crate) async fn end(self, guards: &GuardSpawner, request: Vec<u8>, limit: Duration, grace_ms: u64) {
        let (_no_orders, mut orders) = mpsc::channel(1);
        let mut process = GuardedProcess::attach(guards, self, &mut orders);
        process.send_request(request);
        process.finish_requests();
        let deadline = Instant::now() + limit;
        loop {
            let awaited = (!process.is_terminating()).then_some(deadline);
            let event = process.next_event(awaited, true).await;
            match process.apply(event).await {
                Some(ProcessEvent::Guard(GuardEvent::Ended(_) | GuardEvent::Lost)) => break,
                Some(ProcessEvent::Deadline) => process.terminate(grace_ms).await,
                Some(ProcessEvent::Output) => drop(process.read_outputs(|_, _| Vec::new())),
                Some(
                    ProcessEvent::Order(_)
                    | ProcessEvent::Guard(_)
                    | ProcessEvent::GuardOverdue
                    | ProcessEvent::TerminationDue,
                )
                | None => {}
            }
        }
        process.into_handle().reap().await;
    }
}

#[derive(Debug)]
pub(crate) enum ProcessEvent {
    Order(JobOrder),
    Guard(GuardEvent),
    /// The caller's deadline has passed.
    Deadline,
    /// There is output to read.
    Output,
    /// A process that was asked to exit has not done so in time.
    TerminationDue,
    /// The guard did not end its process in time.
    GuardOverdue,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadOutputs<'a> {
    pub(crate) stdout: &'a [u8],
    /// Writers of standard output. Empty for a pipe.
    pub(crate) stdout_pieces: &'a [OutputPiece],
    pub(crate) stderr: &'a [u8],
}

impl<'a> GuardedProcess<'a> {
    /// Starts a guard and sends it the command to execute.
    ///
    /// Cancel safe: yes, because a guard exits with its process when its connection ends.
    pub(crate) async fn start(
        guards: &'a GuardSpawner,
        command: TestCommand,
        channel: InvocationChannel,
        orders: &'a mut mpsc::Receiver<JobOrder>,
    ) -> Result<Self, GuardStartError> {
        let mut command = command;
        let (process, GuardPipes { control, mut outputs }) = guards.start_guard(channel).await?;
        if channel == InvocationChannel::Connections {
            let connections = ProcessConnections::listen().map_err(GuardStartError::Listen)?;
            let port = connections.port().to_string();
            let is_port = |argument: &&mut OsText| argument.as_bytes() == PORT_ARGUMENT.as_bytes();
            command.args.iter_mut().filter(is_port).for_each(|argument| *argument = port.as_str().into());
            outputs.connections = Some(connections);
        }
        let opened = DetachedProcess::open(process, GuardPipes { control, outputs }, command).await;
        Ok(Self::attach(guards, opened.map_err(GuardStartError::Pipes)?, orders))
    }

    /// Continues with a running process.
    pub(crate) fn attach(
        guards: &'a GuardSpawner,
        process: DetachedProcess,
        orders: &'a mut mpsc::Receiver<JobOrder>,
    ) -> Self {
        let DetachedProcess { handle, outputs } = process;
        Self {
            guards,
            handle,
            outputs,
            orders,
            is_paused: false,
            pause_confirmation: None,
            terminate_at: None,
            guard_kill_at: None,
            next_read_at: Instant::now(),
            drain: None,
            buffers: ReadBuffers::new(),
        }
    }

    /// Detaches a running process, for another job.
    pub(crate) fn detach(self) -> DetachedProcess {
        DetachedProcess { handle: self.handle, outputs: self.outputs }
    }

    /// Waits for the next event. Orders come first and output last, so that a process that never stops
    /// writing can still be ended. Without `accepts_output`, output stays in the pipes, and a process that
    /// fills them blocks. The caller must pass each event to [`GuardedProcess::apply`].
    ///
    /// Cancel safe: yes, because it only receives and waits for readiness.
    pub(crate) async fn next_event(
        &mut self,
        deadline: Option<Instant>,
        accepts_output: bool,
    ) -> ProcessEvent {
        tokio::select! {
            biased;
            order = self.orders.recv() => ProcessEvent::Order(order.unwrap_or(JobOrder::Kill)),
            event = self.handle.next_event() => ProcessEvent::Guard(event),
            () = sleep_until_deadline(self.guard_kill_at) => ProcessEvent::GuardOverdue,
            () = sleep_until_deadline(self.terminate_at.map(|(at, _)| at)) => ProcessEvent::TerminationDue,
            () = sleep_until_deadline(deadline) => ProcessEvent::Deadline,
            () = self.outputs.wait_readable_after(self.next_read_at), if accepts_output => ProcessEvent::Output,
        }
    }

    /// Handles the events that are the same for every process: pauses, the end of a process that was asked to
    /// exit, and killing an overdue guard. Returns every other event.
    ///
    /// Cancel safe: no, because an order may be lost.
    pub(crate) async fn apply(&mut self, event: ProcessEvent) -> Option<ProcessEvent> {
        match event {
            ProcessEvent::Order(JobOrder::Pause { paused }) => {
                self.is_paused = true;
                self.pause_confirmation = Some(paused);
                self.send(ToGuard::Pause).await;
            }
            ProcessEvent::Order(JobOrder::Resume) => {
                self.is_paused = false;
                self.send(ToGuard::Resume).await;
            }
            ProcessEvent::Guard(GuardEvent::Paused) => {
                if let Some(paused) = self.pause_confirmation.take() {
                    // Ignore errors: the requester may be gone.
                    paused.send(()).ok();
                }
            }
            ProcessEvent::TerminationDue => {
                if let Some((_, grace_ms)) = self.terminate_at {
                    self.terminate(grace_ms).await;
                }
            }
            ProcessEvent::GuardOverdue => {
                self.guard_kill_at = None;
                self.handle.kill();
            }
            other => return Some(other),
        }
        None
    }

    /// Sends a message to the guard.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub(crate) async fn send(&mut self, message: ToGuard) {
        self.handle.send(message).await;
    }

    /// Ends the process with SIGTERM and a grace period, or at once if the period is zero. A guard that fails
    /// to do so is killed.
    ///
    /// Cancel safe: no, because the process may stay paused.
    pub(crate) async fn terminate(&mut self, grace_ms: u64) {
        self.terminate_at = None;
        if std::mem::take(&mut self.is_paused) {
            self.send(ToGuard::Resume).await;
        }
        self.send(if grace_ms == 0 { ToGuard::Kill } else { ToGuard::Terminate { grace_ms } }).await;
        self.guard_kill_at = Some(Instant::now() + Duration::from_millis(grace_ms) + GUARD_KILL_DELAY);
    }

    /// Sends a last request that asks the process to stop, and ends its requests. If the process does not
    /// exit in the first part of the grace period, it is terminated within the rest of the period.
    ///
    /// Cancel safe: no, because the process may stay paused.
    pub(crate) async fn ask_to_exit(&mut self, request: Vec<u8>, grace_ms: u64) {
        if std::mem::take(&mut self.is_paused) {
            self.send(ToGuard::Resume).await;
        }
        self.send_request(request);
        self.finish_requests();
        let first_ms = (grace_ms / 2).min(MAX_STOP_MS);
        self.terminate_at = Some((Instant::now() + Duration::from_millis(first_ms), grace_ms - first_ms));
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns whether the process was asked to end and its guard is not overdue.
    pub(crate) fn is_terminating(&self) -> bool {
        self.guard_kill_at.is_some() || self.terminate_at.is_some()
    }

    /// Returns the channel for the process's reports and requests.
    pub(crate) fn channel(&self) -> InvocationChannel {
        match &self.outputs.channel {
            None if self.outputs.connections.is_some() => InvocationChannel::Connections,
            None if self.outputs.stdout.names_writers() => InvocationChannel::OutputSocket,
            None => InvocationChannel::StandardOutput,
            Some(channel) if channel.is_for_requests_only() && self.outputs.stdout.names_writers() => {
                InvocationChannel::SocketStreams
            }
            Some(channel) if channel.is_for_requests_only() => InvocationChannel::StandardStreams,
            Some(_) => InvocationChannel::Descriptor,
        }
    }

    /// Sends a request, if the process receives requests.
    pub(crate) fn send_request(&mut self, request: Vec<u8>) {
        if let Some(channel) = &mut self.outputs.channel {
            channel.send(request);
        } else if let Some(connections) = &mut self.outputs.connections {
            connections.send(&request);
        }
    }

    /// Sends a request together with descriptors.
    ///
    /// # Errors
    /// If the process receives no requests, has not read earlier ones, or has ended.
    pub(crate) fn send_with_descriptors(
        &mut self,
        request: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let channel = self.outputs.channel.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        channel.send_with_descriptors(request, descriptors)
    }

    /// Closes the request stream after the requests already sent.
    pub(crate) fn finish_requests(&mut self) {
        if let Some(channel) = &mut self.outputs.channel {
            channel.finish();
        }
    }

    /// Closes the request stream after the requests already sent, even if several processes wait for
    /// requests.
    pub(crate) fn shut_down_requests(&mut self) {
        if let Some(channel) = &mut self.outputs.channel {
            channel.shut_down_requests();
        }
    }

    /// Returns whether the process has not read all of its requests.
    pub(crate) fn has_unread_request(&self) -> bool {
        self.outputs.channel.as_ref().is_some_and(ReportChannel::has_unsent)
            || self.outputs.connections.as_ref().is_some_and(ProcessConnections::has_unsent)
    }

    /// Returns whether the last request is completely unread.
    pub(crate) fn is_last_request_unread(&self) -> bool {
        self.outputs.channel.as_ref().is_some_and(ReportChannel::is_last_request_unread)
    }

    /// Returns whether a process that receives requests has closed its report channel.
    pub(crate) fn has_closed_dialogue(&self) -> bool {
        match self.channel() {
            InvocationChannel::StandardOutput
            | InvocationChannel::OutputSocket
            | InvocationChannel::CombinedOutput
            | InvocationChannel::CombinedSocket => false,
            InvocationChannel::StandardStreams | InvocationChannel::SocketStreams => {
                self.outputs.stdout.is_at_end()
            }
            InvocationChannel::Connections => {
                self.outputs.connections.as_ref().is_some_and(ProcessConnections::are_closed)
            }
            InvocationChannel::Descriptor => {
                self.outputs.channel.as_ref().is_some_and(ReportChannel::is_at_end)
            }
        }
    }

    /// Reads the available output, reports first. Output that a test wrote to another stream before its end
    /// marker is then already there. `on_reports` receives the reports of a process that receives requests,
    /// and returns the next request.
    pub(crate) fn read_outputs(
        &mut self,
        mut on_reports: impl FnMut(usize, ConnectionInput<'_>) -> Vec<u8>,
    ) -> ReadOutputs<'_> {
        let ProcessOutputs { stdout, stderr, channel, connections } = &mut self.outputs;
        let buffers = &mut self.buffers;
        if let Some(connections) = connections {
            read_connections(connections, &mut buffers.channel, &mut on_reports);
        }
        let reported = channel.as_mut().map_or(0, |one| byte_count(one.try_read(&mut buffers.channel)));
        let count = byte_count(stdout.try_read(&mut buffers.stdout));
        if let ProcessHandle::Guard(guard) = &self.handle {
            stdout.remove_writer(guard.guard_pid());
        }
        let errors = byte_count(stderr.try_read(&mut buffers.stderr));
        // Read the reply to a request at once, because the process waits for the next request.
        let mut is_urgent = count.max(reported) > PIPE_FILLING_BYTES;
        if let Some(channel) = channel {
            let request = if channel.is_for_requests_only() {
                pass_on_reports(&buffers.stdout[..count], stdout.pieces(), &mut on_reports)
            } else {
                pass_on_reports(&buffers.channel[..reported], channel.pieces(), &mut on_reports)
            };
            is_urgent |= !request.is_empty();
            channel.send(request);
        }
        self.next_read_at = Instant::now() + if is_urgent { Duration::ZERO } else { MIN_READ_INTERVAL };
        ReadOutputs {
            stdout: &buffers.stdout[..count],
            stdout_pieces: stdout.pieces(),
            stderr: &buffers.stderr[..errors],
        }
    }

    /// Waits, after the end of the process, until there is more output to read. Returns `false` when all
    /// outputs are at their ends, or when everything the process left has been read but an output stays open.
    /// A process that escaped its guard may hold an output open forever, and even write to it.
    ///
    /// Cancel safe: yes, because it only waits for readiness.
    pub(crate) async fn wait_for_remaining_output(&mut self) -> bool {
        let outputs = &self.outputs;
        let drain = self.drain.get_or_insert_with(|| {
            OutputDrain::begin(outputs.unread_bytes(), READ_BUFFER_BYTES, Instant::now())
        });
        drain.on_read();
        while !outputs.are_at_end() {
            let Some(wait) = drain.next_wait(Instant::now()) else {
                tracing::warn!("the output of an exited process is still held open by another process");
                return false;
            };
            if timeout(wait, outputs.wait_readable()).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Returns how the guard was lost, after [`GuardEvent::Lost`].
    ///
    /// Cancel safe: no, because [`GuardSpawner::guard_loss`] is not.
    pub(crate) async fn guard_loss(&mut self) -> GuardLoss {
        match &mut self.handle {
            ProcessHandle::Guard(guard) => guard.loss(self.guards).await,
            ProcessHandle::Debugger { .. } => GuardLoss::Unknown,
        }
    }

    /// Switches to a process launched by a debugger. Returns the handle of the replaced process.
    pub(crate) fn replace(&mut self, launched: AcceptedLaunch) -> ProcessHandle {
        let AcceptedLaunch { process, outputs } = launched;
        self.outputs = outputs;
        let has_unconfirmed_pause = self.pause_confirmation.is_some();
        std::mem::replace(&mut self.handle, ProcessHandle::Debugger { process, has_unconfirmed_pause })
    }

    /// Returns the handle, whose guard may need a moment to exit. Further orders are not handled.
    pub(crate) fn into_handle(self) -> ProcessHandle {
        self.handle
    }
}

/// Accepts waiting connections, and reads once from each connection.
fn read_connections(
    connections: &mut ProcessConnections,
    buffer: &mut [u8],
    on_reports: &mut impl FnMut(usize, ConnectionInput<'_>) -> Vec<u8>,
) {
    connections.send_rest();
    while connections.try_accept() {
        let opened = connections.count() - 1;
        let request = on_reports(opened, ConnectionInput::Opened);
        connections.send_on(opened, &request);
    }
    for connection in 0..connections.count() {
        let count = byte_count(connections.try_read(connection, buffer));
        if count > 0 {
            let request = on_reports(connection, ConnectionInput::Bytes(&buffer[..count]));
            connections.answer(connection, &request);
        }
    }
}

/// Passes on reports, separately for each writing process. Returns the next requests.
fn pass_on_reports(
    reports: &[u8],
    pieces: &[OutputPiece],
    on_reports: &mut impl FnMut(usize, ConnectionInput<'_>) -> Vec<u8>,
) -> Vec<u8> {
    if pieces.is_empty() {
        return on_reports(0, ConnectionInput::Bytes(reports));
    }
    let (mut request, mut rest) = (Vec::new(), reports);
    for piece in pieces {
        let (bytes, behind) = rest.split_at(piece.bytes);
        rest = behind;
        let input = match piece.writer {
            Some(writer) => ConnectionInput::BytesOf(ReportWriter(writer.as_u32()), bytes),
            None => ConnectionInput::Bytes(bytes),
        };
        request.append(&mut on_reports(0, input));
    }
    request
}

fn byte_count(read: PipeRead) -> usize {
    match read {
        PipeRead::Bytes(count) => count,
        PipeRead::WouldBlock | PipeRead::End => 0,
    }
}
