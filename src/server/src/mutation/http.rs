//! HTTP requests: messages by `POST`, a stream of all notifications by `GET`, and WebSocket upgrades. All
//! clients of plain HTTP share one session. A request is cancelled when its client closes the connection.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::{BufMut as _, Bytes, BytesMut};
use heeler_http::{
    HttpBody, Incoming, Method, PendingWebSocket, Request, Response, StatusCode, accept_websocket,
    is_websocket_request,
};
use heeler_protocol::{
    mcp::http::EVENTS_TYPE,
    mutation::{BODY_LIMIT_BYTES, error_body},
};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    responder::{Reply, ReplyChannel, ResultDelivery, Watchers},
    session::SessionInput,
    stream::REPLY_QUEUE,
};
use crate::listen::loopback_http::{
    HttpRefusal, accepts, check_json, check_local, empty_response, events_response, json_response,
    read_message_body,
};

/// Time limit for the body of a request.
const BODY_LIMIT: Duration = Duration::from_secs(30);
pub(super) struct MutationEndpoint {
    /// Input of the session shared by clients of plain HTTP, until the server stops.
    inputs: Mutex<Option<mpsc::Sender<SessionInput>>>,
    watchers: Watchers,
}

impl MutationEndpoint {
    pub(super) fn new(inputs: mpsc::Sender<SessionInput>) -> Self {
        Self { inputs: Mutex::new(Some(inputs)), watchers: Watchers::default() }
    }

    /// Ends the session shared by clients of plain HTTP.
    pub(super) fn refuse_messages(&self) {
        *self.inputs.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Answers a request. If it opens a WebSocket, the socket is stored in `socket`.
    pub(super) async fn respond(
        &self,
        request: Request<Incoming>,
        socket: &Mutex<Option<PendingWebSocket>>,
    ) -> Response<HttpBody> {
        let refused = |refusal: HttpRefusal| {
            refusal.into_response("GET, POST", |id, error| error_body(id, error).into())
        };
        self.answer(request, socket).await.unwrap_or_else(refused)
    }

    async fn answer(
        &self,
        mut request: Request<Incoming>,
        socket: &Mutex<Option<PendingWebSocket>>,
    ) -> Result<Response<HttpBody>, HttpRefusal> {
        let headers = request.headers();
        check_local(headers)?;
        let accepts_events = accepts(headers, EVENTS_TYPE);
        match *request.method() {
            Method::GET if is_websocket_request(headers) => {
                let (response, pending) = accept_websocket(&mut request, BODY_LIMIT_BYTES)
                    .map_err(|error| HttpRefusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
                *socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending);
                Ok(response)
            }
            Method::GET if accepts_events => self.watch(),
            Method::POST => {
                check_json(headers)?;
                let body = read_message_body(request.into_body(), BODY_LIMIT_BYTES, BODY_LIMIT).await?;
                self.on_body(body, accepts_events).await
            }
            _ => {
                let expected = "method not allowed: use POST for a message, GET for events, or a WebSocket";
                Err(HttpRefusal::new(StatusCode::METHOD_NOT_ALLOWED, expected))
            }
        }
    }

    /// Returns a stream of all notifications from now on.
    fn watch(&self) -> Result<Response<HttpBody>, HttpRefusal> {
        let mut notifications = self.watchers.watch().ok_or_else(unavailable)?;
        let (sender, events) = mpsc::channel(1);
        let mut forwarding = JoinSet::new();
        forwarding.spawn(async move {
            while let Some(body) = notifications.recv().await {
                if sender.send(event(&body)).await.is_err() {
                    return;
                }
            }
        });
        Ok(events_response(events, forwarding))
    }

    async fn on_body(&self, body: Bytes, accepts_events: bool) -> Result<Response<HttpBody>, HttpRefusal> {
        let (sender, mut replies) = mpsc::channel(REPLY_QUEUE);
        let delivery =
            if accepts_events { ResultDelivery::Notifications } else { ResultDelivery::InResponse };
        let channel = ReplyChannel { sender, delivery, watchers: Some(self.watchers.clone()) };
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let inputs = inputs.ok_or_else(unavailable)?;
        inputs.send(SessionInput { body, channel }).await.map_err(|_| unavailable())?;
        drop(inputs);
        match replies.recv().await {
            // The body was a notification, or a batch of notifications.
            None => Ok(empty_response(StatusCode::NO_CONTENT)),
            Some(Reply::Response(body)) => Ok(json_response(StatusCode::OK, body)),
            Some(first @ (Reply::Started | Reply::Notification(_))) => Ok(stream_replies(first, replies)),
        }
    }
}

/// Returns a stream of events that ends with the response to the message.
fn stream_replies(first: Reply, mut replies: mpsc::Receiver<Reply>) -> Response<HttpBody> {
    let (sender, events) = mpsc::channel(1);
    let mut forwarding = JoinSet::new();
    forwarding.spawn(async move {
        let mut next = Some(first);
        while let Some(reply) = next {
            if let Reply::Notification(body) | Reply::Response(body) = reply
                && sender.send(event(&body)).await.is_err()
            {
                return;
            }
            next = replies.recv().await;
        }
    });
    events_response(events, forwarding)
}

/// Returns a one-line message as an event.
fn event(body: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(body.len() + 8);
    event.put_slice(b"data: ");
    event.put_slice(body);
    event.put_slice(b"\n\n");
    event.freeze()
}

fn unavailable() -> HttpRefusal {
    HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many clients, or the server is shutting down")
}
