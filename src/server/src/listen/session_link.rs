//! A session's connection, for all front ends. This module reads and writes the connection, and detects
//! everything outside the session that ends it. A front end sets the limits and handles the messages.

use std::{future::pending, io, time::Duration};

use heeler_protocol::StreamDecoder;
use heeler_sys::process::Pid;
use heeler_transport::{Inbox, LinkError};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{SessionCommand, SessionEnd, SessionOptions, SessionOutput, StallWatch, wait_for_deadline};
use crate::pool::{ProcessExitWatch, wait_for_exit};

/// Limits of a session's connection. The default has none.
#[derive(Debug, Clone, Copy)]
pub struct LinkLimits {
    /// Time limit for a message's head, which is a few dozen bytes and usually written at once. Between
    /// messages, and within a long body, a client has unlimited time.
    pub head: Option<Duration>,
    /// Time limit for a client to read something while output is waiting.
    pub stall: Option<Duration>,
    /// Time limit for beginning the session. Set only for clients that connect to the server.
    pub begin: Option<Duration>,
    /// Log text for a client that has not begun the session in time.
    pub not_begun: &'static str,
    /// Reading from the client pauses while this many frames are unsent.
    pub unsent_frames: usize,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self { head: None, stall: None, begin: None, not_begun: "sent nothing", unsent_frames: usize::MAX }
    }
}

/// An event on a session's connection.
#[derive(Debug)]
pub enum LinkEvent<D: StreamDecoder> {
    /// The session's owner sent a command.
    Command(SessionCommand),
    /// The client sent a message.
    Message(D::Item),
    /// The client closed its end.
    InputEnded,
    /// The client's stream can't be read any further.
    Unreadable(LinkError<D::Error>),
    /// A queued frame was sent.
    Sent,
    /// Nothing more can be sent to the client, and queued frames are dropped. Its messages are still read.
    Unwritable,
    /// The session has not ended within the limit of `SessionLink::end_within`.
    EndTimedOut,
    /// The session ends at once.
    Over(SessionEnd),
}

/// The connection of a session.
#[derive(Debug)]
pub struct SessionLink<D: StreamDecoder> {
    inbox: Inbox<D>,
    has_input_ended: bool,
    has_output_ended: bool,
    /// Frames sent to the client.
    pub output: SessionOutput,
    commands: mpsc::Receiver<SessionCommand>,
    limits: LinkLimits,
    stall_watch: Option<StallWatch>,
    begin_deadline: Option<Instant>,
    end_deadline: Option<Instant>,
    /// Processes whose death ends the session: the owner's choice and the client's own process.
    watched_processes: Vec<ProcessExitWatch>,
}

impl<D: StreamDecoder> SessionLink<D> {
    /// Opens the connection of a session.
    pub fn open(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        decoder: D,
        commands: mpsc::Receiver<SessionCommand>,
        limits: LinkLimits,
    ) -> Self {
        let (outbox, mut inbox, link) = heeler_transport::open(stream, decoder);
        if let Some(limit) = limits.head {
            inbox.limit_heads(limit);
        }
        Self {
            inbox,
            has_input_ended: false,
            has_output_ended: false,
            output: SessionOutput::new(outbox, link),
            commands,
            limits,
            stall_watch: limits.stall.map(StallWatch::new),
            begin_deadline: limits.begin.map(|limit| Instant::now() + limit),
            end_deadline: None,
            watched_processes: Vec::new(),
        }
    }

    /// Ends the session when this process dies.
    ///
    /// # Errors
    /// No process has this id, or the system can't open a descriptor for it.
    pub(crate) fn watch_process(&mut self, process: u32) -> io::Result<()> {
        let pid = i32::try_from(process).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.watched_processes.push(ProcessExitWatch::watch(Pid(pid))?);
        Ok(())
    }

    /// Ends the session when the process named by its options dies.
    pub(crate) fn watch_owner(&mut self, options: &SessionOptions) {
        if let Some(process) = options.exit_with
            && let Err(error) = self.watch_process(process)
        {
            tracing::warn!(process, %error, "cannot watch the owner of a session; the session will not end with it");
        }
    }

    /// Removes the time limit for beginning the session.
    pub(crate) fn mark_begun(&mut self) {
        self.begin_deadline = None;
    }

    /// Returns whether the client still has to begin the session within a limit.
    pub(crate) fn awaits_beginning(&self) -> bool {
        self.begin_deadline.is_some()
    }

    /// Limits the time until the session ends, unless a limit is already set.
    pub(crate) fn end_within(&mut self, limit: Duration) {
        self.end_deadline.get_or_insert_with(|| Instant::now() + limit);
    }

    /// Returns whether the session is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.end_deadline.is_some()
    }

    /// Waits for the next event. Messages are read only if `is_reading`.
    ///
    /// Cancel safe: yes, because nothing that was received is lost, and a frame is queued until it is sent.
    pub async fn next_event(&mut self, is_reading: bool) -> LinkEvent<D> {
        let is_reading =
            is_reading && !self.has_input_ended && self.output.unsent() < self.limits.unsent_frames;
        if self.output.is_closed() && !self.has_output_ended {
            self.has_output_ended = true;
            return LinkEvent::Unwritable;
        }
        loop {
            let Self { inbox, output, commands, limits, stall_watch, watched_processes, .. } = self;
            let (first, second) = (watched_processes.first(), watched_processes.get(1));
            tokio::select! {
                // Rare and urgent events come before events that may always be ready.
                biased;
                Some(command) = commands.recv() => return LinkEvent::Command(command),
                () = wait_for_exit(first) => return LinkEvent::Over(SessionEnd::ParentDied),
                () = wait_for_exit(second) => return LinkEvent::Over(SessionEnd::ParentDied),
                () = wait_for_deadline(self.end_deadline) => return LinkEvent::EndTimedOut,
                () = wait_for_deadline(self.begin_deadline) => {
                    tracing::warn!("connection closed: the client {} in time", limits.not_begun);
                    return LinkEvent::Over(SessionEnd::Disconnected);
                }
                () = next_check(stall_watch) => {}
                event = transfer(output, inbox, is_reading) => {
                    self.has_input_ended |=
                        matches!(event, LinkEvent::InputEnded | LinkEvent::Unreadable(_));
                    self.has_output_ended |= matches!(event, LinkEvent::Unwritable);
                    return event;
                }
            }
            if let Some(watch) = &mut self.stall_watch
                && self.output.is_stalled(watch)
            {
                tracing::warn!("connection closed: the client has stopped reading");
                return LinkEvent::Over(SessionEnd::Disconnected);
            }
        }
    }

    /// Refuses further commands, which shows the owner that the session is about to end.
    pub(crate) fn refuse_commands(&mut self) {
        self.commands.close();
    }

    /// Sends queued frames and closes the connection, within a limit. Returns whether everything was sent.
    ///
    /// Cancel safe: yes, because dropping the connection closes it as well.
    pub async fn finish(self, limit: Duration) -> bool {
        let sent = timeout(limit, self.output.finish()).await;
        if sent.is_err() {
            tracing::warn!(
                "the client did not read the last messages of its session within {} s",
                limit.as_secs()
            );
        }
        sent.unwrap_or(false)
    }
}

async fn next_check(watch: &mut Option<StallWatch>) {
    match watch {
        Some(watch) => watch.next_check().await,
        None => pending().await,
    }
}

/// Sends or reads, polled in random order so that a flood in one direction does not block the other.
async fn transfer<D: StreamDecoder>(
    output: &mut SessionOutput,
    inbox: &mut Inbox<D>,
    is_reading: bool,
) -> LinkEvent<D> {
    tokio::select! {
        is_open = output.send_first(), if output.has_unsent() => {
            if is_open {
                return LinkEvent::Sent;
            }
            output.clear();
            LinkEvent::Unwritable
        }
        item = inbox.next(), if is_reading => match item {
            Ok(Some(item)) => LinkEvent::Message(item),
            Ok(None) => LinkEvent::InputEnded,
            Err(error) => LinkEvent::Unreadable(error),
        },
        else => pending().await,
    }
}
