//! Accepts connections and reads requests, within limits.

use std::{convert::Infallible, sync::Arc, time::Duration};

use hyper::{Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{HttpBody, bytes_body, stall_limit::StallLimited};
use heeler_transport::accept::{
    ConnectionTasks, StopSignal, TcpConnection, TrustedListener, accept_connections,
};

/// Maximum number of connections. Further ones wait until one is closed; a client with a request in progress
/// uses one.
pub const MAX_CONNECTIONS: usize = 64;
/// Time limit for the headers of a request, also of the next one on an open connection.
const HEADER_LIMIT: Duration = Duration::from_secs(10);
/// Maximum size of the headers of a request.
const HEADER_BYTES: usize = 32 << 10;
/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 100;
/// Time in which a client has to read something of what is sent.
pub const STALL_LIMIT: Duration = Duration::from_secs(30);
/// Time for the last responses, once the server stops.
pub const FINISH_LIMIT: Duration = Duration::from_secs(1);

/// What answers requests.
pub trait HttpService: Send + Sync + 'static {
    /// Answers a request. The future, or the body that it returned, is dropped when the client closes the
    /// connection.
    fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<HttpBody>> + Send;
}

/// Serves the clients of a loopback address, of this user and of root, until `stop` is over; then it finishes
/// the responses that are in progress.
///
/// Cancel safe: yes, because the connections are closed.
pub async fn serve<S: HttpService>(
    mut listener: TrustedListener,
    service: Arc<S>,
    stop: impl Future<Output = ()>,
) {
    let mut connections = ConnectionTasks::new(MAX_CONNECTIONS, |connection: TcpConnection, stopped| {
        serve_connection(connection.stream, Arc::clone(&service), stopped)
    });
    accept_connections(&mut listener, &mut connections, stop).await;
    drop(listener);
    connections.stop();
    if !connections.finish(FINISH_LIMIT).await {
        tracing::debug!("connections of HTTP clients are closed");
    }
}

/// Returns whether the headers are longer than allowed. The library limits only its buffer, and one read may
/// exceed that.
fn has_long_headers(request: &Request<Incoming>) -> bool {
    let line = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    line + headers.sum::<usize>() > HEADER_BYTES
}

fn too_long_headers() -> Response<HttpBody> {
    let text = format!("expected headers of at most {HEADER_BYTES} bytes\n");
    let mut response = Response::new(bytes_body(text));
    *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    response
}

/// Serves a connection that was accepted, until it ends; once the server stops, the response in progress is
/// its last. The connection may be upgraded, after which it belongs to the service.
///
/// Cancel safe: yes, because the connection is closed.
pub async fn serve_connection<T, S>(stream: T, service: Arc<S>, mut stopped: StopSignal)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    let stream = TokioIo::new(StallLimited::new(stream, STALL_LIMIT));
    let service = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move {
            Ok::<_, Infallible>(match has_long_headers(&request) {
                true => too_long_headers(),
                false => service.respond(request).await,
            })
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
    builder.max_buf_size(HEADER_BYTES).max_headers(MAX_HEADERS);
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service).with_upgrades());
    let served = tokio::select! {
        served = &mut connection => served,
        () = stopped.stopped() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(error = heeler_core::error_chain(&error), "a connection of an HTTP client ended");
    }
}
