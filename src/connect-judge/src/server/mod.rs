//! Reference servers: they answer calls as their requests say, over HTTP/1.1 or HTTP/2, with TLS or without,
//! and check that the requests are as their cases say.

mod call;
mod checks;
mod compression;
mod framing;
mod query;
mod tls;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use hyper::{
    Request, Response, StatusCode, Version,
    body::{Body, Frame, Incoming},
    http::request::Parts,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use crate::{
    axes::{HttpVersion, Protocol},
    expansion::{Endpoint, ServerImplementation, ServerKind},
};

use call::{Head, ReceivedHead, serve};
use checks::TransportFacts;
pub(crate) use compression::SUPPORTED as SUPPORTED_COMPRESSIONS;
use framing::BodyReader;
use tls::{AcceptedTls, ServerTls};

/// Frames of a response that wait for the connection: a slow client slows its own call.
const FRAMES: usize = 4;
/// Number of connections of a server at a time; more wait to be accepted. Each process of a client has a few,
/// and clients that never close theirs leave file descriptors to the other servers.
const CONNECTIONS: usize = 256;

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct ReferenceServer {
    address: SocketAddr,
    seen: Arc<SeenCalls>,
    tls: Option<Arc<ServerTls>>,
    /// The accepting of connections; aborted with the server.
    _acceptor: JoinSet<()>,
}

/// What a server has seen.
#[derive(Debug)]
struct SeenCalls {
    kind: ServerKind,
    /// For each case: number of calls, and what was wrong with them.
    calls: Mutex<BTreeMap<String, (usize, Vec<String>)>>,
}

impl SeenCalls {
    fn add(&self, case: &str, mut feedback: Vec<String>, is_new_call: bool) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, known) = calls.entry(case.to_owned()).or_default();
        *count += usize::from(is_new_call);
        if is_new_call && *count > 1 {
            known.push(format!("call {count} for this case, expected one"));
        }
        known.append(&mut feedback);
    }
}

impl ServerKind {
    /// Returns whether the server knows the protocol and the codec of a request. The reference knows all.
    fn speaks(&self, parts: &Parts) -> bool {
        if self.implementation == ServerImplementation::Reference {
            return true;
        }
        let content_type = parts.headers.get("content-type").and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default();
        let is_known = match checks::protocol_of(&parts.method, content_type) {
            Some(Protocol::Grpc) => true,
            Some(Protocol::GrpcWeb) => self.protocol == Protocol::GrpcWeb,
            Some(Protocol::Connect) | None => false,
        };
        is_known && checks::codec_name(content_type) == Some("proto")
    }
}

impl ReferenceServer {
    /// Starts a server on a free port of the loopback interface. Cancel safe: yes, nothing is left listening.
    ///
    /// # Errors
    /// No port can be listened on, or no certificate can be made.
    pub async fn start(kind: ServerKind) -> io::Result<Self> {
        let tls = if kind.uses_tls { Some(Arc::new(ServerTls::generate(kind)?)) } else { None };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(SeenCalls { kind, calls: Mutex::default() });
        let mut acceptor = JoinSet::new();
        acceptor.spawn(accept(listener, Arc::clone(&seen), tls.clone()));
        Ok(Self { address, seen, tls, _acceptor: acceptor })
    }

    /// Returns where the server listens.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            host: self.address.ip().to_string(),
            port: self.address.port().into(),
            server_cert: self.tls.as_ref().map_or_else(Vec::new, |tls| tls.cert_pem.clone()),
            client_creds: self.tls.as_ref().and_then(|tls| tls.client_creds.clone()),
        }
    }

    /// Returns what was wrong with the calls of a case.
    #[must_use]
    pub fn feedback(&self, case: &str) -> Vec<String> {
        let calls = self.seen.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get(case).map(|(_, feedback)| feedback.clone()).unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, seen: Arc<SeenCalls>, tls: Option<Arc<ServerTls>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => {
                // A connection that fails before it is accepted is the client's matter.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve_connection(stream, Arc::clone(&seen), tls.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(stream: TcpStream, seen: Arc<SeenCalls>, tls: Option<Arc<ServerTls>>) {
    let Some(tls) = tls else {
        let is_http2 = match (seen.kind.http_version, seen.kind.implementation, seen.kind.protocol) {
            (HttpVersion::Http1, ServerImplementation::Reference, _) => false,
            (_, ServerImplementation::Grpc, Protocol::Connect | Protocol::Grpc) => true,
            // Such servers speak both, and the version is checked or not.
            _ => begins_as_http2(&stream).await,
        };
        return serve_calls(stream, is_http2, TransportFacts::default(), seen).await;
    };
    // A client that is not accepted has the problem, and reports it.
    if let Ok(AcceptedTls { stream, is_http2, has_client_cert }) = tls.accept(stream).await {
        let facts = TransportFacts { uses_tls: true, has_client_cert };
        serve_calls(stream, is_http2, facts, seen).await;
    }
}

async fn serve_calls(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    is_http2: bool,
    facts: TransportFacts,
    seen: Arc<SeenCalls>,
) {
    let service = service_fn(move |request| respond(request, facts, Arc::clone(&seen)));
    let stream = TokioIo::new(stream);
    // How a connection ends is the client's matter; its calls were noted.
    let _ended = if is_http2 {
        http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
    } else {
        http1::Builder::new().serve_connection(stream, service).await
    };
}

/// Returns whether a client begins with HTTP/2, whose first word is no method of HTTP/1.1.
async fn begins_as_http2(stream: &TcpStream) -> bool {
    let mut start = [0; 3];
    matches!(stream.peek(&mut start).await, Ok(3)) && start == *b"PRI"
}

/// Starts to answer a request; returns once the head of the response is known.
async fn respond(
    request: Request<Incoming>,
    facts: TransportFacts,
    seen: Arc<SeenCalls>,
) -> Result<Response<ResponseBody>, Infallible> {
    let (mut parts, body) = request.into_parts();
    let case = parts.headers.get("x-test-case-name").and_then(|name| name.to_str().ok()).map(str::to_owned);
    // The case whose request is checked, if the server does that.
    let (checked_case, timeout) = match (seen.kind.implementation, case) {
        (ServerImplementation::Grpc, _) => (None, checks::take_grpc_timeout(&mut parts.headers)),
        (ServerImplementation::Reference, Some(case)) => {
            let mut feedback = Vec::new();
            let timeout = checks::check_request(&mut parts, facts, &mut feedback);
            seen.add(&case, feedback, true);
            (Some(case), timeout)
        }
        (ServerImplementation::Reference, None) => (None, None),
    };
    let refusal = match seen.kind.implementation {
        ServerImplementation::Reference if checked_case.is_none() => Some("no header x-test-case-name"),
        ServerImplementation::Reference | ServerImplementation::Grpc => None,
    };
    let mut body = BodyReader::new(body);
    let is_http1 = parts.version < Version::HTTP_2;
    if !seen.kind.speaks(&parts) {
        if is_http1 {
            body.drain().await;
        }
        let mut response = Response::new(ResponseBody::whole(Bytes::new()));
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Ok(response);
    }
    let (head_tx, mut head_rx) = oneshot::channel();
    let (frame_tx, frames) = mpsc::channel(FRAMES);
    let mut call: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        serve(ReceivedHead { parts, timeout, refusal }, &mut body, head_tx, frame_tx).await;
        if let (Some(case), true) = (checked_case, body.has_trailers) {
            seen.add(&case, vec!["the request has HTTP trailers".to_owned()], false);
        }
    });
    let mut is_served = false;
    let head = loop {
        tokio::select! {
            biased;
            head = &mut head_rx => break head,
            () = &mut call, if !is_served => is_served = true,
        }
    };
    Ok(match head {
        Ok(Head { response, whole_body: Some(body) }) => response.map(|()| ResponseBody::whole(body)),
        Ok(Head { response, whole_body: None }) => {
            let call = (!is_served).then_some(call);
            response.map(|()| ResponseBody { call, frames: Some(frames), whole: None })
        }
        // The client was gone before anything could be said.
        Err(_) => Response::new(ResponseBody::whole(Bytes::new())),
    })
}

/// The body of a response: it runs the call that writes it.
struct ResponseBody {
    call: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    frames: Option<mpsc::Receiver<Frame<Bytes>>>,
    whole: Option<Bytes>,
}

impl ResponseBody {
    fn whole(body: Bytes) -> Self {
        Self { call: None, frames: None, whole: Some(body).filter(|body| !body.is_empty()) }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(call) = &mut self.call
            && call.as_mut().poll(context).is_ready()
        {
            self.call = None;
        }
        match &mut self.frames {
            Some(frames) => frames.poll_recv(context).map(|frame| frame.map(Ok)),
            None => Poll::Ready(self.whole.take().map(|body| Ok(Frame::data(body)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_none() && self.whole.is_none()
    }
}
