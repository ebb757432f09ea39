//! Accepts connections and reads requests, within limits.

use std::{convert::Infallible, sync::Arc, time::Duration};

use hyper::{Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{HttpBody, bytes_body, stall_limit::StallLimited};
use heeler_transport::accept::{
    ConnectionTasks, StopSignal, TcpConnection, TrustedListener, accept_connections,
};

/// Maximum number of connections. Further clients wait until a connection is closed. Each request in
/// progress uses a connection.
pub const MAX_CONNECTIONS: usize = 64;
/// Time limit for receiving a request's headers, including further requests on an open connection.
const HEADER_LIMIT: Duration = Duration::from_secs(10);
/// Maximum size of a request's headers.
const HEADER_BYTES: usize = 32 << 10;
/// Maximum number of headers in a request.
const MAX_HEADERS: usize = 100;
/// Time limit for a client that does not read pending output.
pub const STALL_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for finishing responses once the server stops.
pub const FINISH_LIMIT: Duration = Duration::from_secs(1);

/// Answers requests.
pub trait HttpService: Send + Sync + 'static {
    /// Answers a request. If the client closes the connection, the future or the body it returned is dropped.
    fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<HttpBody>> + Send;
}

/// Serves clients on a loopback address until `stop` completes, then finishes the responses in progress. Only
/// processes of this user and of root are served.
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
        tracing::debug!("closing connections of HTTP clients");
    }
}

/// Returns whether the headers exceed the limit. Hyper only limits its buffer, which a single read may
/// exceed.
fn has_long_headers(request: &Request<Incoming>) -> bool {
    let line = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    line + headers.sum::<usize>() > HEADER_BYTES
}

fn too_long_headers() -> Response<HttpBody> {
    let text = format!("headers too large: the limit is {HEADER_BYTES} bytes\n");
    let mut response = Response::new(bytes_body(text));
    *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    response
}

/// Serves an accepted connection until it ends. Once the server stops, only the response in progress is
/// finished. After an upgrade, the connection belongs to the service.
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
        tracing::debug!(error = heeler_core::error_chain(&error), "lost the connection to an HTTP client");
    }
}
