//! Requests of HTTP: messages by `POST`, all notifications by `GET`, and the begin of WebSocket connections.
//! All clients of plain HTTP are one session. A request ends when its client closes the connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use heeler_http::{
    HeaderMap, HeaderValue, HttpBody, HttpService, Incoming, KeepAlive, Method, PendingWebSocket,
    ReadBodyError, Request, Response, StatusCode, accept_websocket, bytes_body, header, is_websocket_request,
    queue_body, read_body, single_header,
};
use heeler_protocol::{
    mcp::http::{
        EVENTS_TYPE, HeaderField, JSON_TYPE, KEEP_ALIVE_COMMENT, check_local_request, is_media_type,
    },
    mutation::{BODY_LIMIT_BYTES, error_body},
    rpc::{RequestId, RpcError, code},
};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{
    responder::{Reply, ReplyChannel, ResultDelivery, Watchers},
    session::SessionInput,
    stream::REPLY_QUEUE,
};

/// Time limit for the body of a request.
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// Time without an event after which a comment is sent: clients take a silent connection for a broken one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Answers requests.
pub(super) struct Endpoint {
    /// The session of all clients of plain HTTP.
    pub(super) inputs: mpsc::Sender<SessionInput>,
    pub(super) watchers: Watchers,
    /// New WebSocket connections.
    pub(super) sockets: mpsc::Sender<PendingWebSocket>,
}

/// A refused request: the status, and why.
struct Refusal {
    status: StatusCode,
    message: String,
}

impl Refusal {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    fn into_response(self) -> Response<HttpBody> {
        let error = RpcError::new(code::INVALID_REQUEST, self.message);
        let mut response = json_response(self.status, error_body(&RequestId::Null, &error).into());
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST"));
        }
        response
    }
}

impl HttpService for Endpoint {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<HttpBody> {
        self.answer(request).await.unwrap_or_else(Refusal::into_response)
    }
}

impl Endpoint {
    async fn answer(&self, mut request: Request<Incoming>) -> Result<Response<HttpBody>, Refusal> {
        let headers = request.headers();
        check_local_request(
            HeaderField::from(single_header(headers, "host")),
            HeaderField::from(single_header(headers, "origin")),
        )
        .map_err(|foreign| Refusal::new(StatusCode::FORBIDDEN, foreign.to_string()))?;
        let accepts_events = accepts(headers, EVENTS_TYPE);
        match *request.method() {
            Method::GET if is_websocket_request(headers) => self.open_socket(&mut request),
            Method::GET if accepts_events => self.watch(),
            Method::POST => {
                let media_type = single_header(headers, "content-type").ok().flatten().unwrap_or_default();
                // A page of another site can't send this type unasked.
                if !is_media_type(media_type, JSON_TYPE) {
                    let expected = format!("expected a body of the type {JSON_TYPE}");
                    return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, expected));
                }
                let body =
                    read_body(request.into_body(), BODY_LIMIT_BYTES, Instant::now() + BODY_LIMIT).await;
                self.on_body(body.map_err(|error| refused_body(&error))?, accepts_events).await
            }
            _ => {
                let expected = "expected POST with a message, a WebSocket, or GET of events";
                Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, expected))
            }
        }
    }

    fn open_socket(&self, request: &mut Request<Incoming>) -> Result<Response<HttpBody>, Refusal> {
        let (response, pending) = accept_websocket(request, BODY_LIMIT_BYTES)
            .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        match self.sockets.try_send(pending) {
            Ok(()) => Ok(response),
            Err(_) => Err(unavailable()),
        }
    }

    /// Returns all notifications from now on.
    fn watch(&self) -> Result<Response<HttpBody>, Refusal> {
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

    async fn on_body(&self, body: Bytes, accepts_events: bool) -> Result<Response<HttpBody>, Refusal> {
        let (sender, mut replies) = mpsc::channel(REPLY_QUEUE);
        let delivery =
            if accepts_events { ResultDelivery::Notifications } else { ResultDelivery::InResponse };
        let channel = ReplyChannel { sender, delivery, watchers: Some(self.watchers.clone()) };
        if self.inputs.send(SessionInput { body, channel }).await.is_err() {
            return Err(unavailable());
        }
        match replies.recv().await {
            // A notification, or a batch of them.
            None => {
                let mut response = Response::new(bytes_body(Bytes::new()));
                *response.status_mut() = StatusCode::NO_CONTENT;
                Ok(response)
            }
            Some(Reply::Response(body)) => Ok(json_response(StatusCode::OK, body)),
            Some(first @ (Reply::Started | Reply::Notification(_))) => Ok(stream_replies(first, replies)),
        }
    }
}

/// Returns a response of events, the last of which is the message's own response.
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

/// Returns a response of events. What forwards them ends with the response.
fn events_response(events: mpsc::Receiver<Bytes>, forwarding: JoinSet<()>) -> Response<HttpBody> {
    let keep_alive = KeepAlive { interval: KEEP_ALIVE, bytes: KEEP_ALIVE_COMMENT };
    let mut response = Response::new(queue_body(events, keep_alive, forwarding));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Returns a message, which is one line, as an event.
fn event(body: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(body.len() + 8);
    event.put_slice(b"data: ");
    event.put_slice(body);
    event.put_slice(b"\n\n");
    event.freeze()
}

fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| is_media_type(range, media_type))
}

fn unavailable() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "expected fewer clients, or the server is about to end")
}

fn refused_body(error: &ReadBodyError) -> Refusal {
    let status = match error {
        ReadBodyError::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ReadBodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        ReadBodyError::Broken(_) => StatusCode::BAD_REQUEST,
    };
    Refusal::new(status, error.to_string())
}

fn json_response(status: StatusCode, message: Bytes) -> Response<HttpBody> {
    let mut response = Response::new(bytes_body(message));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON_TYPE));
    response
}
