//! `heeler mcp filter --port`: a reverse proxy in front of an HTTP server. [`ToolFilter`] decides about each
//! message. Every body that could be a message is parsed, regardless of its type and request, because a
//! server may answer one request in the response to another. A body that the filter and the server could read
//! differently is rejected.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use heeler_core::error_chain;
use heeler_http::{
    self as http, BodyError, BodyTransform, HeaderMap, HeaderName, HeaderValue, HttpBody, HttpExchange,
    HttpService, Incoming, Method, Request, Response, StatusCode, bytes_body, header, read_body,
    send_request, single_header,
};
use heeler_protocol::{
    StreamDecoder as _,
    mcp::{
        self, FilterOutput, LINE_LIMIT_BYTES, ToolFilter,
        http::{
            EVENTS_TYPE, EventDecoder, HeaderField, JSON_TYPE, LocalUrl, UnreadableContent,
            check_content_headers, check_local_request, decode_header_value, header as mcp_header,
            is_media_type,
        },
        is_readable_message, is_test_tool, plain_text,
    },
    rpc::{self, InvalidMessage, RequestId, RpcError, RpcMessage, code},
};
use heeler_server::listen::ListenError;
use heeler_transport::accept::TrustedListener;
use tokio::time::Instant;

use super::{exit::CommandError, signals::SignalListener};

/// Time limit for connecting to the server.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for the body of a client's request.
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// Headers that concern one connection, or the length of a body that may change.
const CONNECTION_HEADERS: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Request headers that would make the server answer in another encoding or with a partial body.
const REPLACED_HEADERS: [HeaderName; 4] =
    [header::ACCEPT_CHARSET, header::CONTENT_ENCODING, header::IF_RANGE, header::RANGE];

/// Listens on a port of 127.0.0.1 in front of a server until a signal arrives.
///
/// Cancel safe: yes, because the connections are closed.
pub(super) async fn serve_filtered(port: u16, server: &LocalUrl) -> Result<(), CommandError> {
    let address = format!("127.0.0.1:{port}");
    let failed = |source| CommandError::Listen(ListenError::Tcp { address: address.clone(), source });
    let listener = TrustedListener::bind(&address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let mut signals = SignalListener::listen().map_err(CommandError::Signals)?;
    eprintln!("heeler: listening on http://{bound}{}", server.path());
    let filter = Arc::new(HttpFilter { server: server.clone() });
    http::serve(listener, filter, signals.end_requested()).await;
    Ok(())
}

struct HttpFilter {
    server: LocalUrl,
}

impl HttpService for HttpFilter {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<HttpBody> {
        self.pass(request).await.unwrap_or_else(FilterRefusal::into_response)
    }
}

/// A response by the filter instead of the server.
struct FilterRefusal {
    status: StatusCode,
    /// An error message; may be empty.
    message: Bytes,
}

impl FilterRefusal {
    fn new(status: StatusCode, id: &RequestId, code: i64, text: impl Into<String>) -> Self {
        Self { status, message: mcp::encode_error(id, &RpcError::new(code, text)) }
    }

    /// Rejects a request whose message was not read.
    fn of_request(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, &RequestId::Null, code::INVALID_REQUEST, text)
    }

    fn into_response(self) -> Response<HttpBody> {
        let mut response = Response::new(bytes_body(self.message));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON_TYPE));
        response
    }
}

impl HttpFilter {
    async fn pass(&self, request: Request<Incoming>) -> Result<Response<HttpBody>, FilterRefusal> {
        let (mut parts, body) = request.into_parts();
        check_request_head(&parts.method, &parts.headers)?;
        let read = read_body(body, LINE_LIMIT_BYTES, Instant::now() + BODY_LIMIT).await;
        let body =
            read.map_err(|error| FilterRefusal::of_request(StatusCode::BAD_REQUEST, error.to_string()))?;
        // Filter the client's message, and send it to the server.
        let mut filter = ToolFilter::for_any_list();
        let body = filtered_body(&mut filter, &body, &parts.headers)?;
        for name in &REPLACED_HEADERS {
            parts.headers.remove(name);
        }
        remove_connection_headers(&mut parts.headers);
        // Without this header, a server may compress, and only plain bytes can be filtered.
        parts.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let id = request_id(&body);
        let has_no_body = parts.method == Method::HEAD;
        let request = Request::from_parts(parts, bytes_body(body));
        let exchange = send_request(&self.server, request, Instant::now() + CONNECT_LIMIT).await;
        let exchange = exchange.map_err(|error| {
            let text = format!("the server {} does not answer: {}", self.server, error_chain(&error));
            FilterRefusal::new(StatusCode::BAD_GATEWAY, &id, code::INTERNAL_ERROR, text)
        })?;
        let headers = exchange.response().headers();
        if has_no_body {
            let length = headers.get(header::CONTENT_LENGTH).cloned();
            let mut response = self.forwarded(exchange, Unchanged);
            response.headers_mut().extend(length.map(|length| (header::CONTENT_LENGTH, length)));
            return Ok(response);
        }
        check_content(headers).map_err(|error| {
            let text = format!("the response of the server can't be filtered: {error}");
            FilterRefusal::new(StatusCode::BAD_GATEWAY, &id, code::INTERNAL_ERROR, text)
        })?;
        Ok(if has_media_type(headers, EVENTS_TYPE) {
            let server = self.server.clone();
            let events =
                EventFilter { server, filter, decoder: EventDecoder::default(), buffer: BytesMut::new() };
            self.forwarded(exchange, events)
        } else {
            self.forwarded(exchange, MessageFilter { filter, message: BytesMut::new(), is_passed: false })
        })
    }

    /// Returns the server's response for the client. A redirect to the server's own address is made relative,
    /// so the client keeps using the filter.
    fn forwarded(&self, exchange: HttpExchange, transform: impl BodyTransform) -> Response<HttpBody> {
        let mut response = exchange.forward(transform);
        let headers = response.headers_mut();
        remove_connection_headers(headers);
        let location = headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
        let path = location.and_then(|location| self.server.path_of(location));
        if let Some(Ok(path)) = path.map(HeaderValue::from_str) {
            headers.insert(header::LOCATION, path);
        }
        response
    }
}

fn check_content(headers: &HeaderMap) -> Result<(), UnreadableContent> {
    check_content_headers(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// Rejects requests from other sites, and requests whose body another parser may read differently.
fn check_request_head(method: &Method, headers: &HeaderMap) -> Result<(), FilterRefusal> {
    let host = HeaderField::from(single_header(headers, "host"));
    let origin = HeaderField::from(single_header(headers, "origin"));
    check_local_request(host, origin)
        .map_err(|foreign| FilterRefusal::of_request(StatusCode::FORBIDDEN, foreign.to_string()))?;
    if *method == Method::CONNECT {
        return Err(FilterRefusal::of_request(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not supported"));
    }
    check_content(headers)
        .map_err(|error| FilterRefusal::of_request(StatusCode::UNSUPPORTED_MEDIA_TYPE, error.to_string()))
}

/// Returns the part of a client's message that is passed to the server.
fn filtered_body(filter: &mut ToolFilter, body: &Bytes, headers: &HeaderMap) -> Result<Bytes, FilterRefusal> {
    // A lenient server may trust the header instead of the body.
    let names = headers.iter().filter(|(name, _)| name.as_str().replace('_', "-") == mcp_header::NAME);
    for (_, value) in names {
        let Some(name) = value.to_str().ok().and_then(decode_header_value) else {
            let text = format!("invalid header {}: expected text or base64", mcp_header::NAME);
            return Err(FilterRefusal::new(
                StatusCode::BAD_REQUEST,
                &request_id(body),
                mcp::error_code::HEADER_MISMATCH,
                text,
            ));
        };
        // Some servers join a repeated header into a list of names.
        if name.split(',').any(|name| is_test_tool(name.trim())) {
            let text = format!("Unknown tool: {}", mcp::shortened(&name));
            return Err(FilterRefusal::new(StatusCode::OK, &request_id(body), code::INVALID_PARAMS, text));
        }
    }
    if plain_text(body).is_none() {
        let error = UnreadableContent::Text.to_string();
        return Err(FilterRefusal::of_request(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
    }
    let is_json = !headers.contains_key(header::CONTENT_TYPE) || has_media_type(headers, JSON_TYPE);
    if is_json && !is_readable_message(body) {
        let message = "expected a JSON message";
        return Err(FilterRefusal::new(
            StatusCode::BAD_REQUEST,
            &RequestId::Null,
            code::PARSE_ERROR,
            message,
        ));
    }
    let mut out = FilterOutput::default();
    filter.on_client_message(body, &mut out);
    if !out.to_client.is_empty() {
        // If the filter answered any message itself, forward none of them: the client would need two HTTP
        // responses, one from the filter and one from the server.
        return Err(FilterRefusal { status: StatusCode::OK, message: out.to_client.freeze() });
    }
    if out.to_server.is_empty() && !body.is_empty() {
        return Err(FilterRefusal { status: StatusCode::ACCEPTED, message: Bytes::new() });
    }
    Ok(out.to_server.freeze())
}

fn request_id(body: &[u8]) -> RequestId {
    match rpc::parse(body) {
        Ok(RpcMessage::Request { id, .. }) | Err(InvalidMessage { id, .. }) => id,
        Ok(RpcMessage::Notification { .. } | RpcMessage::Response { .. }) => RequestId::Null,
    }
}

fn remove_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_owned()))
        .collect();
    for name in named {
        headers.remove(name.as_str());
    }
    for name in &CONNECTION_HEADERS {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

fn has_media_type(headers: &HeaderMap, wanted: &str) -> bool {
    let stated = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    is_media_type(stated, wanted)
}

/// Forwards a body unchanged.
struct Unchanged;

impl BodyTransform for Unchanged {
    fn on_bytes(&mut self, bytes: Bytes) -> Result<Bytes, BodyError> {
        Ok(bytes)
    }

    fn on_end(&mut self) -> Result<Bytes, BodyError> {
        Ok(Bytes::new())
    }
}

/// Filters each event of a stream as soon as it is complete.
struct EventFilter {
    server: LocalUrl,
    filter: ToolFilter,
    decoder: EventDecoder,
    buffer: BytesMut,
}

impl EventFilter {
    /// Returns the data of an event for the client.
    fn filtered<'d>(&mut self, data: &'d [u8]) -> Result<Cow<'d, [u8]>, UnreadableContent> {
        let text = plain_text(data).ok_or(UnreadableContent::Text)?;
        // The oldest HTTP transport begins with the address for messages.
        if let Some(path) = self.server.path_of(text.trim()) {
            return Ok(Cow::Borrowed(path.as_bytes()));
        }
        Ok(self.filter.filtered_server_message(data))
    }
}

impl BodyTransform for EventFilter {
    fn on_bytes(&mut self, bytes: Bytes) -> Result<Bytes, BodyError> {
        self.buffer.extend_from_slice(&bytes);
        let mut passed = BytesMut::new();
        while let Some(event) = self.decoder.decode(&mut self.buffer)? {
            let data = event.data();
            let filtered = data.as_deref().map(|data| self.filtered(data)).transpose()?;
            match filtered.filter(|filtered| data.as_deref() != Some(filtered)) {
                Some(filtered) => passed.extend_from_slice(&event.with_data(&filtered)),
                None => passed.extend_from_slice(event.bytes()),
            }
        }
        Ok(passed.freeze())
    }

    fn on_end(&mut self) -> Result<Bytes, BodyError> {
        // Readers drop an event without its final blank line, but this one could be a list, so drop it here.
        Ok(Bytes::new())
    }
}

/// Filters a complete body, unless its first bytes show that the body is not a message.
struct MessageFilter {
    filter: ToolFilter,
    message: BytesMut,
    /// Whether the body is not a message, so its bytes are forwarded as they arrive.
    is_passed: bool,
}

/// Returns the first significant byte of a text: skips white space, a byte order mark, and the zero bytes of
/// wider characters.
fn first_character(text: &[u8]) -> Option<u8> {
    let is_skipped = |byte: &u8| byte.is_ascii_whitespace() || b"\0\xef\xbb\xbf\xfe\xff".contains(byte);
    text.iter().copied().find(|byte| !is_skipped(byte))
}

impl BodyTransform for MessageFilter {
    fn on_bytes(&mut self, bytes: Bytes) -> Result<Bytes, BodyError> {
        if self.is_passed {
            return Ok(bytes);
        }
        if self.message.len() + bytes.len() > LINE_LIMIT_BYTES {
            return Err(format!("the message has more than {LINE_LIMIT_BYTES} bytes").into());
        }
        self.message.extend_from_slice(&bytes);
        self.is_passed = first_character(&self.message).is_some_and(|first| !matches!(first, b'{' | b'['));
        Ok(if self.is_passed { self.message.split().freeze() } else { Bytes::new() })
    }

    fn on_end(&mut self) -> Result<Bytes, BodyError> {
        let message = self.message.split().freeze();
        if plain_text(&message).is_none() {
            return Err(UnreadableContent::Text.into());
        }
        let filtered = self.filter.filtered_server_message(&message);
        Ok(if *filtered == *message { message.clone() } else { filtered.into_owned().into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the filtered body when it arrives in pieces of `size` bytes.
    fn passed(body: &[u8], size: usize) -> Result<Vec<u8>, BodyError> {
        let filter = ToolFilter::for_any_list();
        let mut transform = MessageFilter { filter, message: BytesMut::new(), is_passed: false };
        let mut passed = Vec::new();
        for piece in body.chunks(size) {
            passed.extend_from_slice(&transform.on_bytes(Bytes::copy_from_slice(piece))?);
        }
        passed.extend_from_slice(&transform.on_end()?);
        Ok(passed)
    }

    #[test]
    fn whatever_could_be_a_message_is_filtered() {
        let list = b" \n{\"id\":1,\"result\":{\"tools\":[{\"name\":\"mcp.test.a\"}]}}".as_slice();
        for size in [1, 7, list.len()] {
            assert_eq!(passed(list, size).unwrap(), b" \n{\"id\":1,\"result\":{\"tools\":[]}}");
            for other in [b"<p>mcp.test.a</p>".as_slice(), b"\xff\xd8\xff\0{", b"", b"data: {\0"] {
                assert_eq!(passed(other, size).unwrap(), other);
            }
            let wide: Vec<u8> =
                str::from_utf8(list).unwrap().encode_utf16().flat_map(u16::to_be_bytes).collect();
            for unreadable in [wide, [b"\xff\xfe".as_slice(), list].concat(), [list, b"\xc0\xae"].concat()] {
                assert!(passed(&unreadable, size).is_err());
            }
        }
    }
}
