//! Where the answer to a message goes: alone, or with the others of its batch. Notifications go out at once.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use heeler_protocol::{
    mutation::{ServerNotification, ServerResult, batch_body, error_body},
    rpc::{RequestId, RpcError},
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// Maximum number of clients that get all notifications.
const MAX_WATCHERS: usize = 16;
/// Number of notifications that wait for such a client.
const WATCHER_QUEUE: usize = 1024;

/// What is sent for a message of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// A request was accepted whose notifications follow.
    Started,
    Notification(Bytes),
    /// The last one: the response, or the responses to a batch.
    Response(Bytes),
}

/// Clients that get all notifications. One that does not read loses its place, and slows nobody down.
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

/// How a client takes the results of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultDelivery {
    /// As the client's request says, by notifications where they are possible.
    Notifications,
    /// All of them in the response: no notification reaches the client on this way.
    InResponse,
}

/// A channel for replies. It is closed when the client can't be answered any more.
#[derive(Debug, Clone)]
pub(super) struct ReplyChannel {
    pub(super) sender: mpsc::Sender<Reply>,
    pub(super) delivery: ResultDelivery,
    /// Who else gets the notifications.
    pub(super) watchers: Option<Watchers>,
}

impl ReplyChannel {
    /// Sends a notification; returns whether the client is there.
    async fn notify(&self, body: Bytes) -> bool {
        if let Some(watchers) = &self.watchers {
            watchers.notify(&body);
        }
        self.delivery == ResultDelivery::InResponse
            || self.sender.send(Reply::Notification(body)).await.is_ok()
    }

    async fn respond(&self, body: Vec<u8>) {
        // To a client that is gone nothing can be said.
        let (Ok(()) | Err(_)) = self.sender.send(Reply::Response(body.into())).await;
    }
}

/// Answers one message, once.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) channel: ReplyChannel,
    batch: Option<(Arc<Batch>, usize)>,
}

/// The responses to a batch, in the order of its messages.
#[derive(Debug)]
struct Batch(Mutex<BatchState>);

#[derive(Debug)]
struct BatchState {
    responses: Vec<Option<Vec<u8>>>,
    /// Number of messages that have neither a response nor need one.
    open: usize,
}

impl Responder {
    pub(super) fn of_message(channel: ReplyChannel) -> Self {
        Self { channel, batch: None }
    }

    /// Returns the responders of a batch.
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

    /// Ends a message that needs no response.
    pub(super) async fn nothing(&self) {
        self.finish(None).await;
    }

    /// Says that notifications follow.
    pub(super) async fn started(&self) {
        if self.channel.delivery == ResultDelivery::Notifications {
            // A client that is gone is noticed elsewhere.
            let (Ok(()) | Err(_)) = self.channel.sender.send(Reply::Started).await;
        }
    }

    /// Sends a notification; returns whether the client is there.
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
    /// Ends a message; returns all responses if it was the last.
    fn close(&self, index: usize, response: Option<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
        // A list can't be half changed.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.responses[index] = response;
        state.open -= 1;
        (state.open == 0).then(|| std::mem::take(&mut state.responses).into_iter().flatten().collect())
    }
}

/// Parameters as they were received.
pub(super) type RawParams = Option<Box<RawValue>>;
