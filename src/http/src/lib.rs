//! HTTP/1.1 on loopback, without TLS: a server that slow or hostile clients can't disturb, and a client that
//! uses one connection per request.
//!
//! - `server`: accepts connections and reads requests, within limits.
//! - `body`: bodies to send and received bodies.
//! - `client`: a request and its response.
//! - `websocket`: WebSocket connections, which start as requests.
//! - `stall_limit`: ends connections whose peer does not read.

mod body;
mod client;
mod server;
mod stall_limit;
#[cfg(test)]
mod tests;
#[cfg(feature = "websocket")]
mod websocket;

pub use body::{
    BodyError, BodyTransform, HttpBody, KeepAlive, ReadBodyError, bytes_body, queue_body, read_body,
};
pub use client::{HttpClientError, HttpExchange, send_request};
pub use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
};
pub use server::{FINISH_LIMIT, HttpService, MAX_CONNECTIONS, STALL_LIMIT, serve, serve_connection};
#[cfg(feature = "websocket")]
pub use websocket::{
    InvalidHandshake, PendingWebSocket, WebSocketEnd, WebSocketError, WebSocketInput, WebSocketReceiver,
    WebSocketSender, accept_websocket, is_websocket_request,
};

/// Returns the value of a header that occurs at most once and is ASCII.
///
/// # Errors
/// The header is repeated or is not ASCII.
pub fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, InvalidHeader> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| InvalidHeader),
        (Some(_), Some(_)) => Err(InvalidHeader),
    }
}

/// A header is repeated or is not ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the header must occur once, in ASCII")]
pub struct InvalidHeader;
