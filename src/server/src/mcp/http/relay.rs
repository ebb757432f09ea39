//! Passes requests to the session and messages back. A single task owns the other end of the session's
//! connection.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use heeler_protocol::{
    mcp::{
        self, CancelledParams, LineDecoder, PeerLine,
        http::{RelayedMessage, RelayedRequest, encode_event},
        method,
    },
    rpc::RequestId,
};
use heeler_transport::Inbox;
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

use crate::listen::{ClientServer, SessionCommand, SessionOutput};

/// Capacity of the connection to the session.
const CONNECTION_BYTES: usize = 64 << 10;
/// Capacity of the relay's command queue. Each client connection sends one command to open a request and one
/// to cancel it.
const QUEUED_COMMANDS: usize = 256;
/// Capacity of a client's message queue. The last slot is reserved for the answer, and progress that doesn't
/// fit is dropped.
const QUEUED_MESSAGES: usize = 16;

/// How a client receives the messages about its request.
#[derive(Debug)]
enum AnswerSink {
    /// Only the answer, as one JSON body.
    Message(oneshot::Sender<RelayedAnswer>),
    /// Progress and answer, as events.
    Events(mpsc::Sender<Bytes>),
}

/// The session's answer.
#[derive(Debug)]
pub(super) struct RelayedAnswer {
    /// The code, if the answer is an error.
    pub(super) error_code: Option<i64>,
    pub(super) message: Bytes,
}

/// A client's request.
#[derive(Debug)]
pub(super) struct RelayedCall {
    pub(super) id: RequestId,
    pub(super) method: String,
    pub(super) params: Option<Box<serde_json::value::RawValue>>,
    /// The client's handshake, in the legacy era.
    pub(super) handshake: Option<String>,
}

#[derive(Debug)]
enum RelayCommand {
    Open {
        number: u64,
        request: Box<RelayedCall>,
        sink: AnswerSink,
    },
    /// The client has stopped waiting for the answer.
    Cancel {
        number: u64,
    },
    /// The client cancelled a request by id, or ended its handshake and thereby cancelled all of its
    /// requests.
    CancelOf {
        handshake: String,
        id: Option<RequestId>,
    },
}

/// Passes requests to the session.
#[derive(Debug, Clone)]
pub(super) struct Relay {
    commands: mpsc::Sender<RelayCommand>,
    next_number: Arc<AtomicU64>,
}

/// The session shared by all clients.
#[derive(Debug)]
pub(super) struct SharedSession {
    commands: mpsc::Sender<SessionCommand>,
    ended: watch::Receiver<bool>,
    _relaying: JoinSet<()>,
}

impl SharedSession {
    /// Ends the session. Its runs are cancelled and their calls answered.
    pub(super) async fn end(&self) {
        // A session that has ended receives no commands.
        let _gone = self.commands.send(SessionCommand::Exit).await;
        self.ended().await;
    }

    /// Waits for the session to end.
    pub(super) async fn ended(&self) {
        // An error means that the session has failed, so it is gone as well.
        let (Ok(_) | Err(_)) = self.ended.clone().wait_for(|has_ended| *has_ended).await;
    }
}

/// A request in progress. Dropping the guard cancels it.
#[derive(Debug)]
pub(super) struct OpenCallGuard {
    number: u64,
    commands: mpsc::Sender<RelayCommand>,
}

impl Drop for OpenCallGuard {
    fn drop(&mut self) {
        if self.commands.try_send(RelayCommand::Cancel { number: self.number }).is_err() {
            tracing::debug!("the relay of HTTP clients has ended");
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SessionGone;

impl Relay {
    /// Starts the session, and the relaying task that ends with it.
    pub(super) fn start(server: &ClientServer) -> (Self, SharedSession) {
        let (ours, theirs) = tokio::io::duplex(CONNECTION_BYTES);
        let (owner, owned) = mpsc::channel(1);
        let (ending, ended) = watch::channel(false);
        let ClientServer { front_end, options, scheduler } = server;
        let session = front_end.serve(Box::new(theirs), options.clone(), scheduler.clone(), owned);
        let (commands, receiver) = mpsc::channel(QUEUED_COMMANDS);
        let (outbox, inbox, link) = heeler_transport::open(ours, LineDecoder::default());
        let relaying = Relaying {
            commands: receiver,
            output: SessionOutput::new(outbox, link),
            inbox,
            open: HashMap::new(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (end, ()) = tokio::join!(session, relaying.run());
            tracing::debug!(?end, "the session of the HTTP clients ended");
            ending.send_replace(true);
        });
        let relay = Self { commands, next_number: Arc::new(AtomicU64::new(1)) };
        (relay, SharedSession { commands: owner, ended, _relaying: tasks })
    }

    /// Passes a request to the session. Only the answer is returned.
    pub(super) async fn request(
        &self,
        request: RelayedCall,
    ) -> Result<(OpenCallGuard, oneshot::Receiver<RelayedAnswer>), SessionGone> {
        let (sender, answer) = oneshot::channel();
        Ok((self.open(request, AnswerSink::Message(sender)).await?, answer))
    }

    /// Passes a request to the session. Progress and answer are returned as events.
    pub(super) async fn request_events(
        &self,
        request: RelayedCall,
    ) -> Result<(OpenCallGuard, mpsc::Receiver<Bytes>), SessionGone> {
        let (sender, events) = mpsc::channel(QUEUED_MESSAGES);
        Ok((self.open(request, AnswerSink::Events(sender)).await?, events))
    }

    async fn open(&self, request: RelayedCall, sink: AnswerSink) -> Result<OpenCallGuard, SessionGone> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let open = RelayCommand::Open { number, request: Box::new(request), sink };
        self.commands.send(open).await.map_err(|_| SessionGone)?;
        Ok(OpenCallGuard { number, commands: self.commands.clone() })
    }

    /// Cancels a client's request by its id, or all of its requests.
    pub(super) async fn cancel(&self, handshake: String, id: Option<RequestId>) {
        // If the session is gone, there is nothing to cancel.
        let _gone = self.commands.send(RelayCommand::CancelOf { handshake, id }).await;
    }
}

/// A request that has not been answered.
struct OpenSink {
    id: RequestId,
    progress_token: Option<Value>,
    handshake: Option<String>,
    sink: AnswerSink,
}

struct Relaying {
    commands: mpsc::Receiver<RelayCommand>,
    /// No command is handled while output waits to be sent.
    output: SessionOutput,
    inbox: Inbox<LineDecoder>,
    open: HashMap<u64, OpenSink>,
}

impl Relaying {
    /// Relays until the session ends.
    async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                line = self.inbox.next() => match line {
                    Ok(Some(PeerLine::Message(line))) => self.on_line(&line),
                    // Cannot occur: the session's answers are shorter than the limit of a line.
                    Ok(Some(PeerLine::TooLong)) => {}
                    Ok(None) | Err(_) => break,
                },
                // If the session is gone, the next read ends the loop.
                _ = self.output.send_first(), if self.output.has_unsent() => {}
                Some(command) = self.commands.recv(), if !self.output.has_unsent() => self.on_command(command),
            }
        }
    }

    fn on_command(&mut self, command: RelayCommand) {
        match command {
            RelayCommand::Open { number, request, sink } => {
                let RelayedCall { id, method, params, handshake } = *request;
                let RelayedRequest { line, progress_token } =
                    RelayedRequest::new(number, &method, params.as_deref());
                self.open.insert(number, OpenSink { id, progress_token, handshake, sink });
                self.output.queue(line);
            }
            RelayCommand::Cancel { number } => self.cancel(number),
            RelayCommand::CancelOf { handshake, id } => {
                let is_meant = |open: &OpenSink| {
                    open.handshake.as_deref() == Some(&handshake)
                        && id.as_ref().is_none_or(|id| open.id == *id)
                };
                let meant: Vec<u64> =
                    self.open.iter().filter(|(_, open)| is_meant(open)).map(|(number, _)| *number).collect();
                meant.into_iter().for_each(|number| self.cancel(number));
            }
        }
    }

    /// Cancels a request that has not been answered. No answer will follow.
    fn cancel(&mut self, number: u64) {
        if self.open.remove(&number).is_some() {
            let params = CancelledParams { request_id: RequestId::number(number), reason: None };
            self.output.queue(mcp::encode_notification(method::CANCELLED, &params));
        }
    }

    fn on_line(&mut self, line: &[u8]) {
        let Some(message) = RelayedMessage::read(line) else { return };
        let number = message.number();
        let error_code = match &message {
            RelayedMessage::Progress { .. } => {
                if let Some(open) = self.open.get(&number)
                    && let AnswerSink::Events(events) = &open.sink
                    && events.capacity() > 1
                {
                    let event = encode_event(&message.for_client(&open.id, open.progress_token.as_ref()));
                    // A client that is gone has cancelled its request.
                    let _gone = events.try_send(event);
                }
                return;
            }
            RelayedMessage::Response { outcome, .. } => outcome.as_ref().err().map(|error| error.code),
        };
        let Some(OpenSink { id, progress_token, sink, .. }) = self.open.remove(&number) else { return };
        let message = message.for_client(&id, progress_token.as_ref());
        match sink {
            AnswerSink::Message(answer) => drop(answer.send(RelayedAnswer { error_code, message })),
            // The last slot is reserved for the answer, so sending only fails if the client is gone.
            AnswerSink::Events(events) => drop(events.try_send(encode_event(&message))),
        }
    }
}
