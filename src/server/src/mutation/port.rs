//! Serves the connections of a port. A connection's first bytes show whether it uses HTTP or a stream with
//! `Content-Length`.

use std::{
    fmt,
    future::pending,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use heeler_http::{self as http, HttpBody, HttpService, Incoming, PendingWebSocket, Request, Response};
use heeler_transport::{
    accept::{StopSignal, TcpConnection},
    tcp::PromptTcpStream,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

use super::{
    MutationServer, MutationSessionOptions,
    http::MutationEndpoint,
    session::{INPUT_QUEUE, Session},
    stream::serve_framed,
    websocket::serve_websocket,
};
use crate::listen::{PortFuture, PortService, SessionCommand};

/// Time limit for the first bytes of a connection.
const FIRST_BYTES_LIMIT: Duration = Duration::from_secs(10);
/// Pause before peeking again at undecided first bytes.
const FIRST_BYTES_RETRY: Duration = Duration::from_millis(5);
/// Time for all sessions to end once the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(15);

pub(super) struct MutationPort {
    server: MutationServer,
    endpoint: MutationEndpoint,
    /// The session shared by clients of plain HTTP, until the server stops.
    http_session: Mutex<JoinSet<()>>,
}

impl fmt::Debug for MutationPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutationPort").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Transport of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speech {
    Http,
    Framed,
    /// Too few bytes to decide.
    Undecided,
}

impl MutationPort {
    /// Starts the session shared by clients of plain HTTP.
    pub(super) fn start(server: MutationServer) -> Self {
        let (inputs, http_inputs) = mpsc::channel(INPUT_QUEUE);
        let options = MutationSessionOptions { begin_within: None, ..server.options };
        let session = Session::new(MutationServer { options, ..server.clone() });
        let mut http_session = JoinSet::new();
        http_session.spawn(session.serve(http_inputs));
        Self { server, endpoint: MutationEndpoint::new(inputs), http_session: Mutex::new(http_session) }
    }

    async fn serve_http(self: Arc<Self>, stream: PromptTcpStream, stopped: StopSignal) {
        let server = self.server.clone();
        let connection = Arc::new(HttpConnection { port: self, socket: Mutex::default() });
        http::serve_connection(stream, Arc::clone(&connection), stopped.clone()).await;
        let socket = connection.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(socket) = socket {
            serve_websocket(socket, server, stopped).await;
        }
    }

    async fn serve_stream(&self, stream: PromptTcpStream, mut stopped: StopSignal) {
        let (owner, commands) = mpsc::channel(1);
        let stopping = async {
            stopped.stopped().await;
            // A session that has ended receives no commands.
            let (Ok(()) | Err(_)) = owner.send(SessionCommand::Exit).await;
            pending::<()>().await;
        };
        tokio::select! {
            _end = serve_framed(stream, self.server.clone(), commands) => {}
            () = stopping => {}
        }
    }
}

impl PortService for MutationPort {
    fn serve(self: Arc<Self>, connection: TcpConnection, mut stopped: StopSignal) -> PortFuture<'static> {
        let TcpConnection { stream, .. } = connection;
        Box::pin(async move {
            let speech = tokio::select! {
                speech = first_speech(&stream) => speech,
                () = stopped.stopped() => return,
            };
            match speech {
                Some(Speech::Http) => self.serve_http(stream, stopped).await,
                Some(Speech::Framed) => self.serve_stream(stream, stopped).await,
                Some(Speech::Undecided) | None => {
                    tracing::debug!("connection closed: the client sent nothing")
                }
            }
        })
    }

    fn end(&self) -> PortFuture<'_> {
        self.endpoint.refuse_messages();
        let mut session = mem::take(&mut *self.http_session.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(async move { while session.join_next().await.is_some() {} })
    }

    fn finish_limit(&self) -> Duration {
        STOP_LIMIT
    }
}

/// A connection that uses HTTP and may become a WebSocket.
struct HttpConnection {
    port: Arc<MutationPort>,
    socket: Mutex<Option<PendingWebSocket>>,
}

impl HttpService for HttpConnection {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<HttpBody> {
        self.port.endpoint.respond(request, &self.socket).await
    }
}

/// Detects the transport by peeking at the first bytes; `None` if none arrive in time.
async fn first_speech(stream: &PromptTcpStream) -> Option<Speech> {
    let deadline = Instant::now() + FIRST_BYTES_LIMIT;
    let mut bytes = [0; 8];
    loop {
        let count = timeout_at(deadline, stream.peek(&mut bytes)).await.ok()?.ok()?;
        match speech(&bytes[..count]) {
            Speech::Undecided if count == 0 || Instant::now() >= deadline => return None,
            Speech::Undecided => sleep(FIRST_BYTES_RETRY).await,
            decided => return Some(decided),
        }
    }
}

/// Detects the transport from the first bytes. Streams begin with a `Content-` header, or with a line break
/// or byte order mark. Anything else is an HTTP method.
fn speech(bytes: &[u8]) -> Speech {
    const HEADER: &[u8] = b"content-";
    let known = bytes.len().min(HEADER.len());
    match bytes.first() {
        None => Speech::Undecided,
        Some(b'\r' | b'\n' | 0xef) => Speech::Framed,
        Some(_) if !bytes[..known].eq_ignore_ascii_case(&HEADER[..known]) => Speech::Http,
        Some(_) if known < HEADER.len() => Speech::Undecided,
        Some(_) => Speech::Framed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_decide() {
        for (bytes, expected) in [
            ("GET / HT", Speech::Http),
            ("POST / H", Speech::Http),
            ("CONNECT ", Speech::Http),
            ("{\"jsonrp", Speech::Http),
            ("Content-", Speech::Framed),
            ("content-", Speech::Framed),
            ("\r\nConten", Speech::Framed),
            ("", Speech::Undecided),
            ("C", Speech::Undecided),
            ("Conten", Speech::Undecided),
            ("CO", Speech::Undecided),
        ] {
            assert_eq!(speech(bytes.as_bytes()), expected, "{bytes:?}");
        }
        assert_eq!(speech(b"\xef\xbb\xbfC"), Speech::Framed);
    }
}
