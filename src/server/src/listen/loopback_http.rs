//! HTTP on loopback, shared by several front ends. Messages are JSON bodies; answers may be event streams.

use std::{any::Any, time::Duration};

use bytes::Bytes;
use heeler_http::{
    HeaderMap, HeaderValue, HttpBody, Incoming, KeepAlive, ReadBodyError, Response, StatusCode, bytes_body,
    header, queue_body, read_body, single_header,
};
use heeler_protocol::{
    mcp::http::{
        EVENTS_TYPE, HeaderField, JSON_TYPE, KEEP_ALIVE_COMMENT, check_local_request, is_media_type,
    },
    rpc::{RequestId, RpcError, code},
};
use tokio::{sync::mpsc, time::Instant};

/// Time without an event after which a comment is sent. Clients may consider a silent connection broken.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A refused request: status and error.
#[derive(Debug, PartialEq)]
pub(crate) struct HttpRefusal {
    pub(crate) status: StatusCode,
    id: RequestId,
    error: RpcError,
}

impl HttpRefusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, id: RequestId::Null, error: RpcError::new(code::INVALID_REQUEST, message) }
    }

    /// Returns the refusal of a message.
    pub(crate) fn of_message(id: &RequestId, error: RpcError) -> Self {
        Self { status: StatusCode::BAD_REQUEST, id: id.clone(), error }
    }

    /// Returns the response. Lists the `allowed` methods if the request used another one.
    pub(crate) fn into_response(
        self,
        allowed: &'static str,
        encode: impl FnOnce(&RequestId, &RpcError) -> Bytes,
    ) -> Response<HttpBody> {
        let mut response = json_response(self.status, encode(&self.id, &self.error));
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        response
    }
}

/// Refuses requests that may come from a web page of another site.
pub(crate) fn check_local(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    check_local_request(
        HeaderField::from(single_header(headers, "host")),
        HeaderField::from(single_header(headers, "origin")),
    )
    .map_err(|foreign| HttpRefusal::new(StatusCode::FORBIDDEN, foreign.to_string()))
}

/// Refuses bodies other than JSON. A page of another site can't send this type without asking first (CORS).
pub(crate) fn check_json(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    let media_type = single_header(headers, "content-type").ok().flatten().unwrap_or_default();
    if is_media_type(media_type, JSON_TYPE) {
        return Ok(());
    }
    let expected = format!("the Content-Type must be {JSON_TYPE}");
    Err(HttpRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, expected))
}

/// Returns whether the client accepts a media type by name.
pub(crate) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| is_media_type(range, media_type))
}

/// Reads a request body within limits.
///
/// Cancel safe: no, because what was read is lost.
pub(crate) async fn read_message_body(
    body: Incoming,
    limit_bytes: usize,
    within: Duration,
) -> Result<Bytes, HttpRefusal> {
    read_body(body, limit_bytes, Instant::now() + within).await.map_err(|error| {
        let status = match error {
            ReadBodyError::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ReadBodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
            ReadBodyError::Broken(_) => StatusCode::BAD_REQUEST,
        };
        HttpRefusal::new(status, format!("failed to {error}"))
    })
}

/// Returns a response that streams events. `guard` is dropped with it.
pub(crate) fn events_response(events: mpsc::Receiver<Bytes>, guard: impl Any + Send) -> Response<HttpBody> {
    let keep_alive = KeepAlive { interval: KEEP_ALIVE, bytes: KEEP_ALIVE_COMMENT };
    let mut response = Response::new(queue_body(events, keep_alive, guard));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

pub(crate) fn json_response(status: StatusCode, message: Bytes) -> Response<HttpBody> {
    let mut response = Response::new(bytes_body(message));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON_TYPE));
    response
}

pub(crate) fn empty_response(status: StatusCode) -> Response<HttpBody> {
    let mut response = Response::new(bytes_body(Bytes::new()));
    *response.status_mut() = status;
    response
}
