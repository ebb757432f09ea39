//! Connects a Model Context Protocol server that speaks HTTP to standard streams. Each line of standard input
//! is sent as a request; each message of the responses becomes a line of standard output. This way, a running
//! server is tested like a server that Heeler starts.
//!
//! A transport error becomes the answer to the request that failed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use heeler_core::error_chain;
use heeler_http::{HttpExchange, Request, StatusCode, bytes_body, header, send_request, single_header};
use heeler_protocol::{
    StreamDecoder as _,
    mcp::{
        self, CancelledParams, LINE_LIMIT_BYTES, LineDecoder, PeerLine,
        http::{EVENTS_TYPE, EventDecoder, JSON_TYPE, LocalUrl, header as mcp_header, mirrored_headers},
        method, read_params,
    },
    rpc::{self, RequestId, RpcError, RpcMessage, code},
};
use heeler_server::listen;
use serde_json::value::RawValue;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{Instant, timeout},
};

use super::exit::CommandError;

/// Time limit for connecting to a server on this machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for the response to a notification or response, and for the rest of a message that has begun.
const RESPONSE_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for ending the server's session and for the last output.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of lines waiting to be written. A reader that stalls slows the server.
const QUEUED_LINES: usize = 16;
/// Maximum bytes shown of a response that is not a message.
const SHOWN_BODY_BYTES: usize = 200;
/// Maximum bytes read of an error's body.
const ERROR_BODY_BYTES: usize = 1 << 20;

/// Forwards messages between standard streams and a server until standard input ends.
///
/// Cancel safe: no, because requests in progress would be cut off.
pub(super) async fn run_bridge(url: &LocalUrl) -> Result<(), CommandError> {
    let stream = listen::standard_streams().await.map_err(CommandError::Listen)?;
    let (outbox, mut inbox, mut link) = heeler_transport::open(stream, LineDecoder::default());
    let (lines, mut queue) = mpsc::channel(QUEUED_LINES);
    let server = Arc::new(HttpPeer { url: url.clone(), handshake: Mutex::default(), lines });
    let mut bridge = Bridge { server, requests: JoinSet::new(), open: HashMap::new() };
    loop {
        tokio::select! {
            line = inbox.next() => match line {
                Ok(Some(PeerLine::Message(line))) => bridge.on_line(line).await,
                Ok(Some(PeerLine::TooLong)) => tracing::error!("dropped a line that is too long"),
                Ok(None) | Err(_) => break,
            },
            // A failed send needs no handling: the reader that closed the output has closed the input too.
            Some(line) = queue.recv() => drop(outbox.send(line).await),
            Some(ended) = bridge.requests.join_next() => match ended {
                Ok(id) => drop(bridge.open.remove(&id)),
                Err(error) if error.is_cancelled() => {}
                Err(error) => tracing::error!(%error, "a request panicked"),
            },
        }
    }
    bridge.requests.shutdown().await;
    if timeout(LEAVE_LIMIT, bridge.server.end_handshake()).await.is_err() {
        tracing::warn!("the server did not answer the request to end the session");
    }
    outbox.close();
    // The last output stays unread if the reader is gone.
    let _unread = timeout(LEAVE_LIMIT, link.join()).await;
    Ok(())
}

struct Bridge {
    server: Arc<HttpPeer>,
    /// Requests without an answer; each task returns its request's id.
    requests: JoinSet<RequestId>,
    open: HashMap<RequestId, BridgedRequest>,
}

struct BridgedRequest {
    task: AbortHandle,
    /// Whether closing the connection cancels the request.
    is_modern: bool,
}

impl Bridge {
    async fn on_line(&mut self, line: Bytes) {
        let body = Bytes::copy_from_slice(line.trim_ascii());
        match rpc::parse(&body) {
            Ok(RpcMessage::Request { id, method, params }) => {
                let headers = mirrored_headers(&method, params.as_deref());
                let is_modern = !headers.is_empty();
                let request = PeerRequest { id: id.clone(), method, headers, body };
                let server = Arc::clone(&self.server);
                let task = self.requests.spawn(async move {
                    let id = request.id.clone();
                    server.request(request).await;
                    id
                });
                self.open.insert(id, BridgedRequest { task, is_modern });
            }
            Ok(RpcMessage::Notification { method, params }) => {
                if !self.cancel(&method, params.as_deref()) {
                    self.server.notify(&method, mirrored_headers(&method, params.as_deref()), body).await;
                }
            }
            Ok(RpcMessage::Response { .. }) => self.server.notify("a response", Vec::new(), body).await,
            Err(error) => tracing::error!(%error, "dropped a line that is not a JSON-RPC message"),
        }
    }

    /// Cancels a request by closing its connection, if the message is a cancellation and the request's
    /// protocol version cancels this way.
    fn cancel(&mut self, method: &str, params: Option<&RawValue>) -> bool {
        if method != method::CANCELLED {
            return false;
        }
        let Ok(cancelled) = read_params::<CancelledParams>(method, params) else { return false };
        let Some(open) = self.open.get(&cancelled.request_id).filter(|open| open.is_modern) else {
            return false;
        };
        open.task.abort();
        self.open.remove(&cancelled.request_id);
        true
    }
}

/// A request, and the headers that mirror its content.
struct PeerRequest {
    id: RequestId,
    method: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

/// The server's session and protocol version from a handshake.
#[derive(Debug, Default, Clone)]
struct Handshake {
    session: Option<String>,
    version: Option<String>,
}

/// Client side of the HTTP server.
struct HttpPeer {
    url: LocalUrl,
    handshake: Mutex<Handshake>,
    lines: mpsc::Sender<Bytes>,
}

/// Reason why a request got no answer from the server.
#[derive(Debug, thiserror::Error)]
enum BridgeError {
    #[error(transparent)]
    Http(#[from] heeler_http::HttpClientError),
    #[error(transparent)]
    Body(#[from] heeler_http::ReadBodyError),
    #[error("the event stream failed: {0}")]
    Stream(heeler_http::BodyError),
    #[error("the event stream ended before the answer")]
    StreamEnd,
    #[error(transparent)]
    Event(#[from] mcp::http::EventTooLong),
    #[error("expected status 200 OK, got {status}{}", shown(body))]
    Status { status: StatusCode, body: Bytes },
    #[error("expected {JSON_TYPE} or {EVENTS_TYPE}, got {media_type:?}")]
    MediaType { media_type: String },
    #[error("failed to build the request: {0}")]
    Build(String),
}

fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BODY_BYTES)]);
    if text.trim().is_empty() { String::new() } else { format!(": {}", text.trim()) }
}

impl HttpPeer {
    fn lock_handshake(&self) -> std::sync::MutexGuard<'_, Handshake> {
        // The handshake is always replaced as a whole, so it stays valid if a thread panics while holding the
        // lock.
        self.handshake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(
        &self,
        verb: &str,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<HttpExchange, BridgeError> {
        let mut request = Request::builder().method(verb).uri(self.url.path());
        request = request.header(header::ACCEPT, format!("{JSON_TYPE}, {EVENTS_TYPE}"));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, JSON_TYPE);
        }
        let Handshake { session, version } = self.lock_handshake().clone();
        if headers.is_empty() {
            if let Some(version) = &version {
                request = request.header(mcp_header::PROTOCOL_VERSION, version);
            }
            if let Some(session) = &session {
                request = request.header(mcp_header::SESSION_ID, session);
            }
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request =
            request.body(bytes_body(body)).map_err(|error| BridgeError::Build(error.to_string()))?;
        Ok(send_request(&self.url, request, Instant::now() + CONNECT_LIMIT).await?)
    }

    /// Sends a request and forwards its answer. No time limit: the client decides how long to wait.
    async fn request(&self, request: PeerRequest) {
        if let Err(error) = self.pass_answer(&request).await {
            let error = format!("{}: {}", self.url, error_chain(&error));
            let error = RpcError::new(code::INTERNAL_ERROR, mcp::shortened(&error));
            self.write(mcp::encode_error(&request.id, &error)).await;
        }
    }

    async fn pass_answer(&self, request: &PeerRequest) -> Result<(), BridgeError> {
        let mut exchange = self.send("POST", &request.headers, request.body.clone()).await?;
        let response = exchange.response();
        let status = response.status();
        let media_type = single_header(response.headers(), header::CONTENT_TYPE.as_str());
        let media_type = media_type.ok().flatten().unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        // Another status: forward the server's error message if the body is one.
        if status != StatusCode::OK {
            let body = exchange.read(ERROR_BODY_BYTES, Instant::now() + RESPONSE_LIMIT).await?;
            // The error message may be one of the protocol, with or without an id.
            return match rpc::parse(&body) {
                Ok(RpcMessage::Response { outcome: Err(error), .. }) if error.code != 0 => {
                    self.write(mcp::encode_error(&request.id, &error)).await;
                    Ok(())
                }
                Ok(_) | Err(_) => Err(BridgeError::Status { status, body }),
            };
        }
        // Forward an event stream message by message until the answer, or a single JSON message.
        let session = single_header(response.headers(), mcp_header::SESSION_ID).ok().flatten();
        let session = session.map(str::to_owned);
        match media_type.as_str() {
            EVENTS_TYPE => {
                let (mut decoder, mut buffer) = (EventDecoder::default(), BytesMut::new());
                loop {
                    while let Some(event) = decoder.decode(&mut buffer)? {
                        let Some(message) = event.data().filter(|data| !data.is_empty()) else { continue };
                        if self.pass(request, &message, session.as_deref()).await {
                            return Ok(());
                        }
                    }
                    match exchange.next_bytes().await.map_err(BridgeError::Stream)? {
                        Some(bytes) => buffer.extend_from_slice(&bytes),
                        None => return Err(BridgeError::StreamEnd),
                    }
                }
            }
            JSON_TYPE => {
                let body = exchange.read(LINE_LIMIT_BYTES, Instant::now() + RESPONSE_LIMIT).await?;
                self.pass(request, &body, session.as_deref()).await;
                Ok(())
            }
            _ => Err(BridgeError::MediaType { media_type }),
        }
    }

    /// Forwards a message; returns whether it is the answer.
    async fn pass(&self, request: &PeerRequest, message: &[u8], session: Option<&str>) -> bool {
        let parsed = rpc::parse(message);
        let is_answer = matches!(&parsed, Ok(RpcMessage::Response { id, .. }) if *id == request.id);
        if let Ok(RpcMessage::Response { outcome: Ok(Some(result)), .. }) = &parsed
            && is_answer
            && request.method == method::INITIALIZE
        {
            let result: serde_json::Value = serde_json::from_str(result.get()).unwrap_or_default();
            let version = result["protocolVersion"].as_str().map(str::to_owned);
            *self.lock_handshake() = Handshake { session: session.map(str::to_owned), version };
        }
        // A line end in a JSON message can only be white space.
        let mut line: Vec<u8> =
            message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        line.push(b'\n');
        self.write(line.into()).await;
        is_answer
    }

    async fn write(&self, line: Bytes) {
        // Fails only if the writer has ended.
        let _closed = self.lines.send(line).await;
    }

    /// Sends a message that has no answer, and waits until the server has accepted it, which keeps messages
    /// in order.
    async fn notify(&self, what: &str, headers: Vec<(&'static str, String)>, body: Bytes) {
        let sent = timeout(RESPONSE_LIMIT, self.send("POST", &headers, body)).await;
        let problem = match sent {
            Ok(Ok(exchange)) if exchange.response().status().is_success() => return,
            Ok(Ok(exchange)) => format!("status {}", exchange.response().status()),
            Ok(Err(error)) => error_chain(&error),
            Err(_elapsed) => format!("no response within {} s", RESPONSE_LIMIT.as_secs()),
        };
        tracing::error!("{} did not accept {what}: {problem}", self.url);
    }

    /// Ends the session that the handshake has opened.
    async fn end_handshake(&self) {
        if self.lock_handshake().session.is_some()
            && let Err(error) = self.send("DELETE", &[], Bytes::new()).await
        {
            tracing::debug!(error = error_chain(&error), "failed to end the session");
        }
    }
}
