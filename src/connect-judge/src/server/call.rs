//! One call: its request is read, its response written, as the definition in its first message says.

use std::time::Duration;

use hyper::{
    HeaderMap, Method, Response, StatusCode, Version,
    body::Frame,
    header::{CONTENT_TYPE, HeaderValue},
    http::request::Parts,
};
use prost::{Message as _, bytes::Bytes};
use tokio::sync::{mpsc, oneshot};

use crate::{
    axes::{Compression, Protocol},
    expected::info_as_detail,
    message::{
        Any, ConformancePayload, ConnectGetInfo, Header, RequestInfo, RpcError, StreamResponseDefinition,
        UnaryOutcome, UnaryResponseDefinition,
    },
    suite::RequestMessage,
    text::{
        encode_json, json_of_tree,
        message_types::{
            ANY_PREFIX, BIDI_STREAM_REQUEST, CLIENT_STREAM_REQUEST, IDEMPOTENT_UNARY_REQUEST, MessageType,
            SERVER_STREAM_REQUEST, UNARY_REQUEST, UNARY_RESPONSE,
        },
    },
    tree::MessageTree,
};

use super::{
    checks::{codec_name, compression_header_name, protocol_of},
    compression::{compression_of_name, negotiated},
    framing::{
        BodyReader, FLAG_CONNECT_END, FLAG_WEB_TRAILERS, INTERNAL, INVALID_ARGUMENT, ReadError,
        UNIMPLEMENTED, add_headers, any_base64, append_enveloped, connect_end, connect_error,
        decompressed_message, grpc_trailers, http_status, rpc_error, web_trailers,
    },
    query::QueryParameters,
};

/// The start of a response: without more to come, it has its whole body.
pub(super) struct Head {
    pub(super) response: Response<()>,
    pub(super) whole_body: Option<Bytes>,
}

/// A request before its body.
pub(super) struct ReceivedHead {
    pub(super) parts: Parts,
    pub(super) timeout: Option<Duration>,
    /// Why the call is refused, if it is.
    pub(super) refusal: Option<&'static str>,
}

/// How messages are written on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    ConnectUnary,
    ConnectStream,
    Grpc,
    GrpcWeb,
}

/// Why a call has no more response: the client is gone.
struct Gone;

/// A method of the service.
struct CallMethod {
    name: &'static str,
    request: &'static MessageType,
    is_stream: bool,
}

static METHODS: [CallMethod; 5] = [
    CallMethod { name: "Unary", request: &UNARY_REQUEST, is_stream: false },
    CallMethod { name: "IdempotentUnary", request: &IDEMPOTENT_UNARY_REQUEST, is_stream: false },
    CallMethod { name: "ClientStream", request: &CLIENT_STREAM_REQUEST, is_stream: true },
    CallMethod { name: "ServerStream", request: &SERVER_STREAM_REQUEST, is_stream: true },
    CallMethod { name: "BidiStream", request: &BIDI_STREAM_REQUEST, is_stream: true },
];

/// Answers a request that is none of a call: with a status alone.
fn only_status(head: oneshot::Sender<Head>, status: StatusCode) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    // The connection may be gone.
    let _gone = head.send(Head { response, whole_body: Some(Bytes::new()) });
}

/// A call whose response is being written.
pub(super) struct Call {
    parts: Parts,
    timeout: Option<Duration>,
    query: QueryParameters,
    wire: Wire,
    is_json: bool,
    request_compression: Compression,
    response_compression: Compression,
    head: Option<oneshot::Sender<Head>>,
    frames: mpsc::Sender<Frame<Bytes>>,
    /// Custom headers and trailers of the response.
    headers: Vec<Header>,
    trailers: Vec<Header>,
}

/// Serves a request until its response is written or the client is gone. Cancel safe: no, the response ends.
pub(super) async fn serve(
    ReceivedHead { parts, timeout, refusal }: ReceivedHead,
    body: &mut BodyReader,
    head: oneshot::Sender<Head>,
    frames: mpsc::Sender<Frame<Bytes>>,
) {
    let content_type = header(&parts.headers, "content-type").to_owned();
    let Some(protocol) = protocol_of(&parts.method, &content_type) else {
        return only_status(head, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    };
    let path = parts.uri.path().to_owned();
    let Some(name) = path.strip_prefix("/connectrpc.conformance.v1.ConformanceService/") else {
        return only_status(head, StatusCode::NOT_FOUND);
    };
    let wire = match protocol {
        Protocol::Grpc => Wire::Grpc,
        Protocol::GrpcWeb => Wire::GrpcWeb,
        Protocol::Connect if content_type.starts_with("application/connect+") => Wire::ConnectStream,
        Protocol::Connect => Wire::ConnectUnary,
    };
    let query = if parts.method == Method::GET {
        QueryParameters::of(&parts.uri)
    } else {
        QueryParameters(Vec::new())
    };
    let encoding = query.get("encoding").map(|name| String::from_utf8_lossy(name).into_owned());
    let codec = encoding.as_deref().or_else(|| codec_name(&content_type));
    let is_json = match codec {
        Some("json") => true,
        Some("proto") => false,
        _ => return only_status(head, StatusCode::UNSUPPORTED_MEDIA_TYPE),
    };
    let (encoding_header, accept_header) = match wire {
        Wire::ConnectUnary => ("content-encoding", "accept-encoding"),
        Wire::ConnectStream => ("connect-content-encoding", "connect-accept-encoding"),
        Wire::Grpc | Wire::GrpcWeb => ("grpc-encoding", "grpc-accept-encoding"),
    };
    let compression = query.get("compression").map(|name| String::from_utf8_lossy(name).into_owned());
    let compression = compression.unwrap_or_else(|| header(&parts.headers, encoding_header).to_owned());
    let known = compression_of_name(&compression);
    let request_compression = known.unwrap_or(Compression::Identity);
    let response_compression = negotiated(request_compression, header(&parts.headers, accept_header));
    let mut call = Call {
        parts,
        timeout,
        query,
        wire,
        is_json,
        request_compression,
        response_compression,
        head: Some(head),
        frames,
        headers: Vec::new(),
        trailers: Vec::new(),
    };
    let method = METHODS.iter().find(|method| method.name == name);
    let outcome = match (known, method) {
        _ if refusal.is_some() => Err(Failure::Rpc(rpc_error(INVALID_ARGUMENT, refusal.unwrap_or_default()))),
        (None, _) => Err(Failure::Rpc(rpc_error(UNIMPLEMENTED, format!("compression {compression:?}")))),
        (Some(_), None) => Err(Failure::Rpc(rpc_error(UNIMPLEMENTED, format!("method {name:?}")))),
        (Some(_), Some(method))
            if method.is_stream == (wire == Wire::ConnectUnary)
                && wire != Wire::Grpc
                && wire != Wire::GrpcWeb =>
        {
            return only_status(
                call.head.take().expect("nothing was written"),
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
            );
        }
        (Some(_), Some(method)) => call.run(method, body).await,
    };
    let error = match outcome {
        Ok(()) => None,
        Err(Failure::Rpc(error)) => {
            if call.parts.version < Version::HTTP_2 {
                body.drain().await;
            }
            Some(error)
        }
        Err(Failure::Gone) => return,
    };
    // A client that is gone needs no end.
    let _gone = call.finish(error.as_ref()).await;
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Why a call fails.
enum Failure {
    Rpc(RpcError),
    Gone,
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Gone => Self::Gone,
            ReadError::Rpc(error) => Self::Rpc(error),
        }
    }
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

fn request_message(any: &Any) -> Result<RequestMessage, Failure> {
    RequestMessage::of_any(any).map_err(|error| Failure::Rpc(rpc_error(INVALID_ARGUMENT, error.to_string())))
}

impl Call {
    async fn run(&mut self, method: &CallMethod, body: &mut BodyReader) -> Result<(), Failure> {
        if method.name == "BidiStream" {
            return self.bidi_stream(method, body).await;
        }
        let mut requests = Vec::new();
        while let Some(request) = self.request(method, body).await? {
            requests.push(request);
            if self.wire == Wire::ConnectUnary {
                break;
            }
        }
        let first = requests.first().map(request_message).transpose()?;
        if method.name != "ClientStream" && requests.len() != 1 {
            let problem = format!("{} request messages, expected one", requests.len());
            return Err(Failure::Rpc(rpc_error(UNIMPLEMENTED, problem)));
        }
        match first {
            Some(RequestMessage::ServerStream(request)) => {
                let Some(definition) = request.response_definition else { return Ok(()) };
                self.set_metadata(&definition.response_headers, &definition.response_trailers);
                self.remaining_responses(&definition, 0, requests).await
            }
            Some(RequestMessage::Unary(request)) => self.unary(request.response_definition, requests).await,
            None | Some(RequestMessage::BidiStream(_) | RequestMessage::Other) => {
                self.unary(None, requests).await
            }
        }
    }

    /// Reads the next request message, as an `Any`.
    async fn request(&self, method: &CallMethod, body: &mut BodyReader) -> Result<Option<Any>, Failure> {
        let bytes = if self.parts.method == Method::GET {
            let message = self.query.get("message").unwrap_or_default();
            let is_base64 = self.query.get("base64") == Some(&b"1"[..]);
            let decoded = if is_base64 { any_base64(message) } else { Some(message.to_vec()) };
            let invalid = || Failure::Rpc(rpc_error(INVALID_ARGUMENT, "a message that is not base64"));
            Some(self.decompressed(&decoded.ok_or_else(invalid)?)?)
        } else if self.wire == Wire::ConnectUnary {
            let body = body.all().await?;
            Some(self.decompressed(&body)?)
        } else {
            body.message(self.request_compression).await?
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let invalid = |problem: String| Failure::Rpc(rpc_error(INVALID_ARGUMENT, problem));
        let value = if self.is_json {
            encode_json(&bytes, method.request).map_err(|error| invalid(error.to_string()))?
        } else {
            MessageTree::decode_message(&bytes, method.request)
                .map_err(|error| invalid(error.to_string()))?;
            bytes
        };
        Ok(Some(Any { type_url: format!("{ANY_PREFIX}{}", method.request.name), value }))
    }

    fn decompressed(&self, body: &[u8]) -> Result<Vec<u8>, Failure> {
        // An empty body is an empty message, without compression.
        if body.is_empty() {
            return Ok(Vec::new());
        }
        decompressed_message(body, self.request_compression).map_err(Failure::Rpc)
    }

    fn set_metadata(&mut self, headers: &[Header], trailers: &[Header]) {
        self.headers = headers.to_vec();
        self.trailers = trailers.to_vec();
    }

    async fn unary(
        &mut self,
        definition: Option<UnaryResponseDefinition>,
        requests: Vec<Any>,
    ) -> Result<(), Failure> {
        let definition = definition.unwrap_or_default();
        self.set_metadata(&definition.response_headers, &definition.response_trailers);
        let info = self.request_info(requests);
        let data = match definition.response {
            Some(UnaryOutcome::Error(mut error)) => {
                error.details.push(info_as_detail(&info));
                return Err(Failure::Rpc(error));
            }
            Some(UnaryOutcome::ResponseData(data)) => data,
            None => Vec::new(),
        };
        delay(definition.response_delay_ms).await;
        self.respond(&ConformancePayload { data, request_info: Some(info) }).await?;
        Ok(())
    }

    async fn bidi_stream(&mut self, method: &CallMethod, body: &mut BodyReader) -> Result<(), Failure> {
        let mut definition: Option<StreamResponseDefinition> = None;
        let mut is_full_duplex = false;
        let (mut is_first, mut sent, mut requests) = (true, 0, Vec::new());
        while let Some(request) = self.request(method, body).await? {
            if std::mem::take(&mut is_first)
                && let RequestMessage::BidiStream(message) = request_message(&request)?
            {
                is_full_duplex = message.full_duplex;
                definition = message.response_definition;
                if let Some(definition) = &definition {
                    self.set_metadata(&definition.response_headers, &definition.response_trailers);
                    if is_full_duplex && !definition.response_data.is_empty() {
                        self.begin()?;
                    }
                }
            }
            requests.push(request);
            if is_full_duplex {
                let Some(definition) = &definition else { break };
                let Some(data) = definition.response_data.get(sent) else { break };
                let received = std::mem::take(&mut requests);
                let info = match sent {
                    0 => self.request_info(received),
                    _ => RequestInfo { requests: received, ..RequestInfo::default() },
                };
                delay(definition.response_delay_ms).await;
                self.respond(&ConformancePayload { data: data.clone(), request_info: Some(info) }).await?;
                sent += 1;
            }
        }
        match definition {
            None => Ok(()),
            Some(definition) => self.remaining_responses(&definition, sent, requests).await,
        }
    }

    /// Writes the responses of a stream from a place on, and its error.
    async fn remaining_responses(
        &mut self,
        definition: &StreamResponseDefinition,
        sent: usize,
        requests: Vec<Any>,
    ) -> Result<(), Failure> {
        if !definition.response_data.is_empty() {
            self.begin()?;
        }
        for (place, data) in definition.response_data.iter().enumerate().skip(sent) {
            let request_info = (place == 0).then(|| self.request_info(requests.clone()));
            delay(definition.response_delay_ms).await;
            self.respond(&ConformancePayload { data: data.clone(), request_info }).await?;
        }
        let Some(mut error) = definition.error.clone() else { return Ok(()) };
        if definition.response_data.is_empty() {
            error.details.push(info_as_detail(&self.request_info(requests)));
        }
        Err(Failure::Rpc(error))
    }

    fn request_info(&self, requests: Vec<Any>) -> RequestInfo {
        let mut request_headers = Vec::new();
        for name in self.parts.headers.keys() {
            let values = self.parts.headers.get_all(name).iter();
            let value = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
            request_headers.push(Header { name: name.to_string(), value });
        }
        let mut query_params: Vec<Header> = Vec::new();
        for (name, value) in &self.query.0 {
            let value = String::from_utf8_lossy(value).into_owned();
            match query_params.iter_mut().find(|known| known.name == *name) {
                Some(known) => known.value.push(value),
                None => query_params.push(Header::new(name, &value)),
            }
        }
        let connect_get_info = (!query_params.is_empty()).then_some(ConnectGetInfo { query_params });
        let timeout_ms = self.timeout.map(|timeout| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX));
        RequestInfo { request_headers, timeout_ms, requests, connect_get_info }
    }

    /// Returns the start of a response with its content type and compression.
    fn response(&self) -> Response<()> {
        let codec = if self.is_json { "json" } else { "proto" };
        let (content_type, encoding) = match self.wire {
            Wire::ConnectUnary => (format!("application/{codec}"), "content-encoding"),
            Wire::ConnectStream => (format!("application/connect+{codec}"), "connect-content-encoding"),
            Wire::Grpc => (format!("application/grpc+{codec}"), "grpc-encoding"),
            Wire::GrpcWeb => (format!("application/grpc-web+{codec}"), "grpc-encoding"),
        };
        let content_type = match (self.wire, header(&self.parts.headers, "content-type")) {
            // As the client has written it: with its codec or without.
            (Wire::Grpc | Wire::GrpcWeb, given) => given.to_owned(),
            (Wire::ConnectUnary | Wire::ConnectStream, _) => content_type,
        };
        let mut response = Response::new(());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::try_from(content_type).expect("it is printable"));
        if self.response_compression != Compression::Identity {
            let name = compression_header_name(self.response_compression);
            headers.insert(encoding, HeaderValue::from_static(name));
        }
        add_headers(headers, &self.headers, "");
        response
    }

    fn send_head(&mut self, response: Response<()>, whole_body: Option<Bytes>) -> Result<(), Gone> {
        let Some(head) = self.head.take() else { return Ok(()) };
        head.send(Head { response, whole_body }).map_err(|_| Gone)
    }

    /// Writes the start of a response whose messages follow, unless it is written.
    fn begin(&mut self) -> Result<(), Gone> {
        let response = self.response();
        self.send_head(response, None)
    }

    async fn send(&self, frame: Frame<Bytes>) -> Result<(), Gone> {
        self.frames.send(frame).await.map_err(|_| Gone)
    }

    /// Writes a response message.
    async fn respond(&mut self, payload: &ConformancePayload) -> Result<(), Failure> {
        let message = ResponseMessage { payload: Some(payload.clone()) }.encode_to_vec();
        let message = if self.is_json {
            let tree = MessageTree::decode_message(&message, &UNARY_RESPONSE);
            let tree = tree.map_err(|error| Failure::Rpc(rpc_error(INTERNAL, error.to_string())))?;
            json_of_tree(&tree, &UNARY_RESPONSE).to_string().into_bytes()
        } else {
            message
        };
        if self.wire == Wire::ConnectUnary {
            let mut response = self.response();
            add_headers(response.headers_mut(), &self.trailers, "trailer-");
            let body = super::compression::compressed(&message, self.response_compression);
            return Ok(self.send_head(response, Some(body.into()))?);
        }
        self.begin()?;
        let mut bytes = Vec::new();
        append_enveloped(&mut bytes, 0, &message, self.response_compression);
        Ok(self.send(Frame::data(bytes.into())).await?)
    }

    /// Writes the end of the response.
    async fn finish(&mut self, error: Option<&RpcError>) -> Result<(), Gone> {
        match self.wire {
            Wire::ConnectUnary => {
                let Some(error) = error else { return Ok(()) };
                let mut response = Response::new(());
                *response.status_mut() =
                    StatusCode::from_u16(http_status(error)).expect("the table has no others");
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                add_headers(headers, &self.headers, "");
                add_headers(headers, &self.trailers, "trailer-");
                self.send_head(response, Some(connect_error(error).to_string().into()))
            }
            Wire::ConnectStream => {
                self.begin()?;
                let end = connect_end(error, &self.trailers);
                let mut bytes = Vec::new();
                append_enveloped(&mut bytes, FLAG_CONNECT_END, &end, self.response_compression);
                self.send(Frame::data(bytes.into())).await
            }
            Wire::Grpc => {
                self.begin()?;
                self.send(Frame::trailers(grpc_trailers(error, &self.trailers))).await
            }
            Wire::GrpcWeb => {
                let trailers = grpc_trailers(error, &self.trailers);
                if self.head.is_some() && self.headers.is_empty() {
                    // Nothing was written: the trailers are the headers.
                    let mut response = self.response();
                    response.headers_mut().extend(trailers);
                    return self.send_head(response, Some(Bytes::new()));
                }
                self.begin()?;
                let mut bytes = Vec::new();
                let text = web_trailers(&trailers);
                append_enveloped(&mut bytes, FLAG_WEB_TRAILERS, &text, self.response_compression);
                self.send(Frame::data(bytes.into())).await
            }
        }
    }
}

/// Any response message: all have the same field.
#[derive(Clone, PartialEq, prost::Message)]
struct ResponseMessage {
    #[prost(message, optional, tag = "1")]
    payload: Option<ConformancePayload>,
}

async fn delay(milliseconds: u32) {
    if milliseconds > 0 {
        tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
    }
}
