//! A single request and its response, on its own connection.

use bytes::Bytes;
use heeler_protocol::mcp::http::LocalUrl;
use http_body_util::BodyExt as _;
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1,
    header::{CONNECTION, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    BodyTransform, HttpBody, ReadBodyError,
    body::{BodyError, TransformedBody},
    read_body,
};
use heeler_transport::tcp::{self, DialError, PromptTcpStream};

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    #[error(transparent)]
    Connect(#[from] DialError),
    #[error("send the request to {url}")]
    Send { url: LocalUrl, source: hyper::Error },
    #[error("read the response of {url}")]
    Response { url: LocalUrl, source: hyper::Error },
}

/// A response whose body has not been read yet. Dropping it closes the connection.
#[derive(Debug)]
pub struct HttpExchange {
    response: Response<Incoming>,
    connection: JoinSet<()>,
}

/// Sends a request to a server on this machine. Connecting must succeed before `connected_by`. The
/// caller decides how long to wait for the response.
///
/// # Errors
/// See [`HttpClientError`].
///
/// Cancel safe: yes, because the connection is closed.
pub async fn send_request(
    url: &LocalUrl,
    mut request: Request<HttpBody>,
    connected_by: Instant,
) -> Result<HttpExchange, HttpClientError> {
    let failed = |source| HttpClientError::Send { url: url.clone(), source };
    let stream = tcp::dial(url.host(), url.port(), connected_by).await?;
    let stream = TokioIo::new(PromptTcpStream::new(stream));
    let handshake = timeout_at(connected_by, http1::handshake(stream)).await;
    let (mut sender, driver) = handshake
        .map_err(|_| DialError::TimedOut { host: url.host().to_owned(), port: url.port() })?
        .map_err(failed)?;
    let mut connection = JoinSet::new();
    connection.spawn(async {
        if let Err(error) = driver.await {
            tracing::debug!(
                error = heeler_core::error_chain(&error),
                "lost the connection to an HTTP server"
            );
        }
    });
    let host = HeaderValue::try_from(url.authority()).expect("an authority has no control characters");
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let sent = sender.send_request(request).await;
    let response = sent.map_err(|source| HttpClientError::Response { url: url.clone(), source })?;
    Ok(HttpExchange { response, connection })
}

impl HttpExchange {
    /// Returns the response's head. The other methods return its body.
    #[must_use]
    pub fn response(&self) -> &Response<Incoming> {
        &self.response
    }

    /// Reads the body to its end.
    ///
    /// # Errors
    /// See [`ReadBodyError`].
    ///
    /// Cancel safe: no, because bytes already read are lost.
    pub async fn read(self, limit: usize, deadline: Instant) -> Result<Bytes, ReadBodyError> {
        let Self { response, connection: _connection } = self;
        read_body(response.into_body(), limit, deadline).await
    }

    /// Returns the next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection broke.
    ///
    /// Cancel safe: yes, because a piece is either returned or still in the connection.
    pub async fn next_bytes(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            match self.response.body_mut().frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// Returns the response for another client, with a transformed body.
    #[must_use]
    pub fn forward(self, transform: impl BodyTransform) -> Response<HttpBody> {
        let Self { response, connection } = self;
        response.map(|body| {
            TransformedBody { body, transform: Some(transform), _connection: connection }.boxed_unsync()
        })
    }
}
