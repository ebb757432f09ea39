//! WebSocket connections, which start as HTTP requests. Messages must be text; the library answers control
//! frames.

use bytes::Bytes;
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{HttpBody, bytes_body, single_header};

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Number of bytes buffered for sending, in addition to one message.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Error of a WebSocket handshake request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHandshake {
    #[error("Sec-WebSocket-Version must be 13")]
    Version,
    #[error("Sec-WebSocket-Key must be one Base64-encoded key of 16 bytes")]
    Key,
}

/// Error of a WebSocket connection. The connection is then over.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketError {
    #[error("open a WebSocket connection")]
    Upgrade(#[source] hyper::Error),
    #[error("read or write a WebSocket connection")]
    Broken(#[source] Box<tungstenite::Error>),
    #[error("read a WebSocket message: expected text, got binary data")]
    NotText,
    #[error("read a WebSocket message: too long")]
    TooLong,
}

impl From<tungstenite::Error> for WebSocketError {
    fn from(error: tungstenite::Error) -> Self {
        match error {
            tungstenite::Error::Capacity(_) => Self::TooLong,
            error => Self::Broken(Box::new(error)),
        }
    }
}

/// Why this end closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebSocketEnd {
    /// The server stops.
    GoingAway,
    /// A message was not text.
    NotText,
    /// A message was too long.
    TooLong,
    /// The client violated the protocol.
    Refused,
}

/// Returns whether a request asks for a WebSocket connection.
#[must_use]
pub fn is_websocket_request(headers: &HeaderMap) -> bool {
    headers.get_all(header::UPGRADE).iter().any(|value| {
        value
            .to_str()
            .is_ok_and(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case("websocket")))
    })
}

/// A WebSocket connection whose handshake response has not been sent yet.
#[derive(Debug)]
pub struct PendingWebSocket {
    upgrade: OnUpgrade,
    message_limit_bytes: usize,
}

/// Returns the handshake response and the connection that it opens.
///
/// # Errors
/// A header of the handshake is missing or invalid.
pub fn accept_websocket(
    request: &mut Request<Incoming>,
    message_limit_bytes: usize,
) -> Result<(Response<HttpBody>, PendingWebSocket), InvalidHandshake> {
    let accept = accept_key(request.headers())?;
    let pending = PendingWebSocket { upgrade: hyper::upgrade::on(request), message_limit_bytes };
    let mut response = Response::new(bytes_body(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok((response, pending))
}

fn accept_key(headers: &HeaderMap) -> Result<HeaderValue, InvalidHandshake> {
    let one = |name: &header::HeaderName| single_header(headers, name.as_str()).ok().flatten();
    if one(&header::SEC_WEBSOCKET_VERSION) != Some("13") {
        return Err(InvalidHandshake::Version);
    }
    // 16 bytes in base64.
    let key = one(&header::SEC_WEBSOCKET_KEY).filter(|key| key.len() == 24 && key.ends_with("=="));
    let key = key.ok_or(InvalidHandshake::Key)?;
    HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(|_| InvalidHandshake::Key)
}

impl PendingWebSocket {
    /// Waits until the response is sent, and returns both directions of the connection.
    ///
    /// Cancel safe: yes, because the connection is closed.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn open(self) -> Result<(WebSocketSender, WebSocketReceiver), WebSocketError> {
        let upgraded = self.upgrade.await.map_err(WebSocketError::Upgrade)?;
        let limit = Some(self.message_limit_bytes);
        let config = WebSocketConfig::default()
            .max_message_size(limit)
            .max_frame_size(limit)
            .max_write_buffer_size(WRITE_BUFFER_BYTES + self.message_limit_bytes);
        let stream = TokioIo::new(upgraded);
        let (sender, receiver) =
            WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await.split();
        Ok((WebSocketSender(sender), WebSocketReceiver(receiver)))
    }
}

/// The sending direction.
#[derive(Debug)]
pub struct WebSocketSender(SplitSink<Socket, Message>);

impl WebSocketSender {
    /// Sends a message, which must be UTF-8.
    ///
    /// Cancel safe: no, because a part of the message may be sent.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn send(&mut self, text: Bytes) -> Result<(), WebSocketError> {
        let text = Utf8Bytes::try_from(text).map_err(|_| WebSocketError::NotText)?;
        self.0.send(Message::Text(text)).await.map_err(WebSocketError::from)
    }

    /// Sends a ping, to find out whether the client is still there.
    ///
    /// Cancel safe: no, as for `send`.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn ping(&mut self) -> Result<(), WebSocketError> {
        self.0.send(Message::Ping(Bytes::new())).await.map_err(WebSocketError::from)
    }

    /// Closes the connection.
    ///
    /// Cancel safe: no, as for `send`.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn close(&mut self, end: WebSocketEnd) -> Result<(), WebSocketError> {
        let code = match end {
            WebSocketEnd::GoingAway => CloseCode::Away,
            WebSocketEnd::NotText => CloseCode::Unsupported,
            WebSocketEnd::TooLong => CloseCode::Size,
            WebSocketEnd::Refused => CloseCode::Policy,
        };
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static("") };
        self.0.send(Message::Close(Some(frame))).await.map_err(WebSocketError::from)
    }
}

/// Something received from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebSocketInput {
    Text(Bytes),
    /// A control frame, which shows that the client is still there.
    Control,
}

/// The receiving direction.
#[derive(Debug)]
pub struct WebSocketReceiver(SplitStream<Socket>);

impl WebSocketReceiver {
    /// Waits for the next message or control frame; `None` at the end of the connection.
    ///
    /// Cancel safe: yes, because a partly read message stays in `self`.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn next(&mut self) -> Result<Option<WebSocketInput>, WebSocketError> {
        match self.0.next().await {
            None | Some(Ok(Message::Close(_))) => Ok(None),
            Some(Ok(Message::Text(text))) => Ok(Some(WebSocketInput::Text(text.into()))),
            Some(Ok(Message::Binary(_))) => Err(WebSocketError::NotText),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                Ok(Some(WebSocketInput::Control))
            }
            Some(Err(tungstenite::Error::ConnectionClosed)) => Ok(None),
            Some(Err(error)) => Err(error.into()),
        }
    }
}
