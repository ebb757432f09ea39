//! Sends the answer to a message, alone or together with the others of its batch. Notifications are sent at
//! once.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use heeler_protocol::{
    mutation::{ServerNotification, ServerResult, batch_body, error_body},
    rpc::{RequestId, RpcError},
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// Maximum number of clients that receive all notifications.
const MAX_WATCHERS: usize = 16;
/// Capacity of such a client's notification queue.
const WATCHER_QUEUE: usize = 1024;

/// A reply to a client's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// A request was accepted, and its notifications follow.
    Started,
    Notification(Bytes),
    /// The final reply: a response, or all responses to a batch.
    Response(Bytes),
}

/// Clients that receive all notifications. A client that does not read is dropped, so it does not delay
/// others.
#[derive(Debug, Clone, Default)]
pub(super) struct Watchers(Arc<Mutex<Vec<mpsc::Sender<Bytes>>>>);

impl Watchers {
    /// Returns the notifications from now on; `None` if there are too many watchers.
    pub(super) fn watch(&self) -> Option<mpsc::Receiver<Bytes>> {
        let mut watchers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| !watcher.is_closed());
        if watchers.len() >= MAX_WATCHERS {
            return None;
        }
        let (sender, receiver) = mpsc::channel(WATCHER_QUEUE);
        watchers.push(sender);
        Some(receiver)
    }

    fn notify(&self, body: &Bytes) {
        let mut watchers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| watcher.try_send(body.clone()).is_ok());
    }
}

/// How a client receives the results of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultDelivery {
    /// By notifications where the client's request allows them.
    Notifications,
    /// All in the response, because no notifications reach the client over this transport.
    InResponse,
}

/// A channel for replies. Closed when the client can't be answered any more.
#[derive(Debug, Clone)]
pub(super) struct ReplyChannel {
    pub(super) sender: mpsc::Sender<Reply>,
    pub(super) delivery: ResultDelivery,
    /// Other clients that receive the notifications.
    pub(super) watchers: Option<Watchers>,
}

impl ReplyChannel {
    /// Sends a notification. Returns whether the client is still there.
    async fn notify(&self, body: Bytes) -> bool {
        if let Some(watchers) = &self.watchers {
            watchers.notify(&body);
        }
        self.delivery == ResultDelivery::InResponse
            || self.sender.send(Reply::Notification(body)).await.is_ok()
    }

    async fn respond(&self, body: Vec<u8>) {
        // The client may be gone.
        let (Ok(()) | Err(_)) = self.sender.send(Reply::Response(body.into())).await;
    }
}

/// Answers one message once.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) channel: ReplyChannel,
    batch: Option<(Arc<Batch>, usize)>,
}

/// Responses to a batch, in the order of its messages.
#[derive(Debug)]
struct Batch(Mutex<BatchState>);

#[derive(Debug)]
struct BatchState {
    responses: Vec<Option<Vec<u8>>>,
    /// Number of messages that have not been handled.
    open: usize,
}

impl Responder {
    pub(super) fn of_message(channel: ReplyChannel) -> Self {
        Self { channel, batch: None }
    }

    /// Returns one responder for each message of a batch.
    pub(super) fn of_batch(channel: &ReplyChannel, count: usize) -> Vec<Self> {
        let state = BatchState { responses: vec![None; count], open: count };
        let batch = Arc::new(Batch(Mutex::new(state)));
        let one = |index| Self { channel: channel.clone(), batch: Some((Arc::clone(&batch), index)) };
        (0..count).map(one).collect()
    }

    pub(super) async fn result(&self, id: &RequestId, result: &ServerResult) {
        self.finish(Some(result.body(id))).await;
    }

    pub(super) async fn error(&self, id: &RequestId, error: &RpcError) {
        self.finish(Some(error_body(id, error))).await;
    }

    /// Records that a message that needs no response has been handled.
    pub(super) async fn nothing(&self) {
        self.finish(None).await;
    }

    /// Announces that notifications of this request follow, if the client receives any.
    pub(super) async fn started(&self) {
        if self.channel.delivery == ResultDelivery::Notifications {
            // The session detects a client that is gone.
            let (Ok(()) | Err(_)) = self.channel.sender.send(Reply::Started).await;
        }
    }

    /// Sends a notification. Returns whether the client is still there.
    pub(super) async fn notify(&self, notification: &ServerNotification) -> bool {
        self.channel.notify(notification.body().into()).await
    }

    async fn finish(&self, response: Option<Vec<u8>>) {
        let Self { channel, batch } = self;
        match (batch.as_ref(), response) {
            (None, None) => {}
            (None, Some(body)) => channel.respond(body).await,
            (Some((batch, index)), response) => {
                if let Some(responses) = batch.close(*index, response)
                    && !responses.is_empty()
                {
                    channel.respond(batch_body(&responses)).await;
                }
            }
        }
    }
}

impl Batch {
    /// Records that a message has been handled, with its response if it has one. After the last message,
    /// returns all responses.
    fn close(&self, index: usize, response: Option<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
        // A panic can't leave the list inconsistent.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.responses[index] = response;
        state.open -= 1;
        (state.open == 0).then(|| std::mem::take(&mut state.responses).into_iter().flatten().collect())
    }
}

pub(super) type RawParams = Option<Box<RawValue>>;
