//! `heeler mcp filter --port`: a reverse proxy in front of a server that speaks HTTP. [`ToolFilter`] decides
//! about each message; responses pass while they are received, and only those that may have a list of tools
//! are read as messages.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use heeler_core::error_chain;
use heeler_http::{
    self as http, BodyError, BodyTransform, HeaderMap, HeaderName, HeaderValue, HttpBody, HttpService,
    Incoming, Method, Request, Response, StatusCode, bytes_body, header, read_body, send_request,
    single_header,
};
use heeler_protocol::{
    StreamDecoder as _,
    mcp::{
        self, FilterOutput, LINE_LIMIT_BYTES, ToolFilter,
        http::{
            EVENTS_TYPE, EventDecoder, HeaderField, JSON_TYPE, LocalUrl, check_local_request,
            decode_header_value, header as mcp_header, is_media_type,
        },
        is_test_tool,
    },
    rpc::{self, InvalidMessage, RequestId, RpcError, RpcMessage, code},
};
use heeler_server::listen::ListenError;
use tokio::{net::TcpListener, time::Instant};

use super::{
    exit::CommandError,
    signals::{SignalListener, SignalRequest},
};

/// Time limit for connecting to the server.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for the body of a client's request.
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// Headers that are about one connection, or about the length of a body that may change.
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

/// Serves clients on a port of 127.0.0.1 in front of a server, until a signal ends it.
///
/// Cancel safe: yes, because the connections are closed.
pub(super) async fn serve_filtered(port: u16, server: &LocalUrl) -> Result<(), CommandError> {
    let address = format!("127.0.0.1:{port}");
    let failed = |source| CommandError::Listen(ListenError::Tcp { address: address.clone(), source });
    let listener = TcpListener::bind(&address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let mut signals = SignalListener::listen().map_err(CommandError::Signals)?;
    eprintln!("heeler: listening on http://{bound}{}", server.path());
    let stop = async { while signals.next().await != SignalRequest::End {} };
    http::serve(listener, Arc::new(HttpFilter { server: server.clone() }), stop).await;
    Ok(())
}

struct HttpFilter {
    server: LocalUrl,
}

impl HttpService for HttpFilter {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<HttpBody> {
        self.pass(request).await.unwrap_or_else(Refusal::into_response)
    }
}

/// A response of the filter in place of the server's.
struct Refusal {
    status: StatusCode,
    /// A message, unless nothing is to be said.
    message: Bytes,
}

impl Refusal {
    fn new(status: StatusCode, id: &RequestId, code: i64, text: impl Into<String>) -> Self {
        Self { status, message: mcp::encode_error(id, &RpcError::new(code, text)) }
    }

    fn into_response(self) -> Response<HttpBody> {
        let mut response = Response::new(bytes_body(self.message));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON_TYPE));
        response
    }
}

impl HttpFilter {
    async fn pass(&self, request: Request<Incoming>) -> Result<Response<HttpBody>, Refusal> {
        let null = RequestId::Null;
        let (mut parts, body) = request.into_parts();
        check_local_request(
            HeaderField::from(single_header(&parts.headers, "host")),
            HeaderField::from(single_header(&parts.headers, "origin")),
        )
        .map_err(|foreign| {
            Refusal::new(StatusCode::FORBIDDEN, &null, code::INVALID_REQUEST, foreign.to_string())
        })?;
        let read = read_body(body, LINE_LIMIT_BYTES, Instant::now() + BODY_LIMIT).await;
        let body = read.map_err(|error| {
            Refusal::new(StatusCode::BAD_REQUEST, &null, code::INVALID_REQUEST, error.to_string())
        })?;
        let (body, filter) = match parts.method {
            Method::POST => {
                let mut filter = ToolFilter::default();
                (filtered_body(&mut filter, &body, &parts.headers)?, filter)
            }
            // Its answers may be to any request.
            _ => (body, ToolFilter::for_any_list()),
        };
        remove_connection_headers(&mut parts.headers);
        if filter.may_get_list() {
            // Only plain bytes can be filtered.
            parts.headers.remove(header::ACCEPT_ENCODING);
        }
        let id = request_id(&body);
        let request = Request::from_parts(parts, bytes_body(body));
        let exchange = send_request(&self.server, request, Instant::now() + CONNECT_LIMIT).await;
        let exchange = exchange.map_err(|error| {
            let text = format!("the server {} does not answer: {}", self.server, error_chain(&error));
            Refusal::new(StatusCode::BAD_GATEWAY, &id, code::INTERNAL_ERROR, text)
        })?;
        let headers = exchange.response().headers();
        let is_list_possible = filter.may_get_list() && is_message(headers);
        if is_list_possible && headers.contains_key(header::CONTENT_ENCODING) {
            let text = "the server compresses its list of tools, which can't be filtered then";
            return Err(Refusal::new(StatusCode::BAD_GATEWAY, &id, code::INTERNAL_ERROR, text));
        }
        let mut response = match is_list_possible {
            true if has_media_type(headers, EVENTS_TYPE) => exchange.forward(EventFilter::new(filter)),
            true => exchange.forward(MessageFilter { filter, message: BytesMut::new() }),
            false => {
                let length = headers.get(header::CONTENT_LENGTH).cloned();
                let mut response = exchange.forward(Unchanged);
                remove_connection_headers(response.headers_mut());
                if let Some(length) = length {
                    response.headers_mut().insert(header::CONTENT_LENGTH, length);
                }
                return Ok(response);
            }
        };
        remove_connection_headers(response.headers_mut());
        Ok(response)
    }
}

/// Returns what is passed to the server of a client's message.
fn filtered_body(filter: &mut ToolFilter, body: &Bytes, headers: &HeaderMap) -> Result<Bytes, Refusal> {
    // A lenient server may believe the header.
    let named = single_header(headers, mcp_header::NAME).map(|name| name.and_then(decode_header_value));
    if let Ok(Some(name)) = named
        && is_test_tool(&name)
    {
        let text = format!("Unknown tool: {}", mcp::shortened(&name));
        return Err(Refusal::new(StatusCode::OK, &request_id(body), code::INVALID_PARAMS, text));
    }
    let mut out = FilterOutput::default();
    filter.on_client_message(body, &mut out);
    if !out.to_client.is_empty() {
        // Of a batch nothing is passed on: its answers would come in two responses.
        return Err(Refusal { status: StatusCode::OK, message: out.to_client.freeze() });
    }
    if out.to_server.is_empty() && !body.is_empty() {
        return Err(Refusal { status: StatusCode::ACCEPTED, message: Bytes::new() });
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

/// Returns whether a response has a message, or events.
fn is_message(headers: &HeaderMap) -> bool {
    has_media_type(headers, EVENTS_TYPE) || has_media_type(headers, JSON_TYPE)
}

fn has_media_type(headers: &HeaderMap, wanted: &str) -> bool {
    let stated = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    is_media_type(stated, wanted)
}

/// Passes a body as it is.
struct Unchanged;

impl BodyTransform for Unchanged {
    fn on_bytes(&mut self, bytes: Bytes) -> Result<Bytes, BodyError> {
        Ok(bytes)
    }

    fn on_end(&mut self) -> Result<Bytes, BodyError> {
        Ok(Bytes::new())
    }
}

/// Filters the events of a stream, each as soon as it is whole.
struct EventFilter {
    filter: ToolFilter,
    decoder: EventDecoder,
    buffer: BytesMut,
}

impl EventFilter {
    fn new(filter: ToolFilter) -> Self {
        Self { filter, decoder: EventDecoder::default(), buffer: BytesMut::new() }
    }
}

impl BodyTransform for EventFilter {
    fn on_bytes(&mut self, bytes: Bytes) -> Result<Bytes, BodyError> {
        self.buffer.extend_from_slice(&bytes);
        let mut passed = BytesMut::new();
        while let Some(event) = self.decoder.decode(&mut self.buffer)? {
            let filtered = event.data().and_then(|data| {
                let filtered = self.filter.filtered_server_message(&data);
                (*filtered != *data).then(|| event.with_data(&filtered))
            });
            passed.extend_from_slice(filtered.as_ref().unwrap_or_else(|| event.bytes()));
        }
        Ok(passed.freeze())
    }

    fn on_end(&mut self) -> Result<Bytes, BodyError> {
        // Readers drop an event without its blank line; but this one might be a list.
        Ok(Bytes::new())
    }
}

/// Filters a message, once it is whole.
struct MessageFilter {
    filter: ToolFilter,
    message: BytesMut,
}

impl BodyTransform for MessageFilter {
    fn on_bytes(&mut self, bytes: Bytes) -> Result<Bytes, BodyError> {
        if self.message.len() + bytes.len() > LINE_LIMIT_BYTES {
            return Err(format!("the list of tools has more than {LINE_LIMIT_BYTES} bytes").into());
        }
        self.message.extend_from_slice(&bytes);
        Ok(Bytes::new())
    }

    fn on_end(&mut self) -> Result<Bytes, BodyError> {
        let message = self.message.split().freeze();
        let filtered = self.filter.filtered_server_message(&message);
        Ok(if *filtered == *message { message.clone() } else { filtered.into_owned().into() })
    }
}
