//! The messages of `connectrpc.conformance.v1` that suites, clients and servers exchange, with all their
//! fields.

use prost::{Message, Oneof};

/// The only service.
pub const SERVICE: &str = "connectrpc.conformance.v1.ConformanceService";

/// A message of any type (`google.protobuf.Any`).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// A header, trailer or query parameter with all its values.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Header {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub value: Vec<String>,
}

impl Header {
    /// Returns a header of one value.
    #[must_use]
    pub fn new(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), value: vec![value.to_owned()] }
    }
}

/// An error of an RPC.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct RpcError {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// What a server has seen of a request (`ConformancePayload.RequestInfo`).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct RequestInfo {
    #[prost(message, repeated, tag = "1")]
    pub request_headers: Vec<Header>,
    #[prost(int64, optional, tag = "2")]
    pub timeout_ms: Option<i64>,
    #[prost(message, repeated, tag = "3")]
    pub requests: Vec<Any>,
    #[prost(message, optional, tag = "4")]
    pub connect_get_info: Option<ConnectGetInfo>,
}

/// The query parameters of a GET request.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ConnectGetInfo {
    #[prost(message, repeated, tag = "1")]
    pub query_params: Vec<Header>,
}

/// What every response message carries.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ConformancePayload {
    #[prost(bytes = "vec", tag = "1")]
    pub data: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    pub request_info: Option<RequestInfo>,
}

/// A message with its compression, as a raw HTTP body has it.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct MessageContents {
    #[prost(oneof = "MessageData", tags = "1, 2, 3")]
    pub data: Option<MessageData>,
    #[prost(int32, tag = "4")]
    pub compression: i32,
}

/// The bytes of [`MessageContents`].
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum MessageData {
    #[prost(bytes, tag = "1")]
    Binary(Vec<u8>),
    #[prost(string, tag = "2")]
    Text(String),
    #[prost(message, tag = "3")]
    BinaryMessage(Any),
}

/// The messages of a raw HTTP body.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct StreamContents {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<StreamItem>,
}

/// A message of [`StreamContents`].
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct StreamItem {
    #[prost(uint32, tag = "1")]
    pub flags: u32,
    #[prost(uint32, optional, tag = "2")]
    pub length: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub payload: Option<MessageContents>,
}

/// An HTTP response, given byte by byte.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct RawHttpResponse {
    #[prost(uint32, tag = "1")]
    pub status_code: u32,
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<Header>,
    #[prost(oneof = "RawBody", tags = "3, 4")]
    pub body: Option<RawBody>,
    #[prost(message, repeated, tag = "5")]
    pub trailers: Vec<Header>,
}

/// The body of [`RawHttpResponse`].
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum RawBody {
    #[prost(message, tag = "3")]
    Unary(MessageContents),
    #[prost(message, tag = "4")]
    Stream(StreamContents),
}

/// How a server answers a unary or client stream call.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct UnaryResponseDefinition {
    #[prost(message, repeated, tag = "1")]
    pub response_headers: Vec<Header>,
    #[prost(oneof = "UnaryOutcome", tags = "2, 3")]
    pub response: Option<UnaryOutcome>,
    #[prost(message, repeated, tag = "4")]
    pub response_trailers: Vec<Header>,
    #[prost(message, optional, tag = "5")]
    pub raw_response: Option<RawHttpResponse>,
    #[prost(uint32, tag = "6")]
    pub response_delay_ms: u32,
}

/// The message or the error of a unary answer.
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum UnaryOutcome {
    #[prost(bytes, tag = "2")]
    ResponseData(Vec<u8>),
    #[prost(message, tag = "3")]
    Error(RpcError),
}

/// How a server answers a server stream or bidi stream call.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct StreamResponseDefinition {
    #[prost(message, repeated, tag = "1")]
    pub response_headers: Vec<Header>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub response_data: Vec<Vec<u8>>,
    #[prost(uint32, tag = "3")]
    pub response_delay_ms: u32,
    #[prost(message, optional, tag = "4")]
    pub error: Option<RpcError>,
    #[prost(message, repeated, tag = "5")]
    pub response_trailers: Vec<Header>,
    #[prost(message, optional, tag = "6")]
    pub raw_response: Option<RawHttpResponse>,
}

/// `UnaryRequest`, `IdempotentUnaryRequest` or `ClientStreamRequest`, which have the same fields.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct UnaryRequest {
    #[prost(message, optional, tag = "1")]
    pub response_definition: Option<UnaryResponseDefinition>,
    #[prost(bytes = "vec", tag = "2")]
    pub request_data: Vec<u8>,
}

/// `ServerStreamRequest`.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ServerStreamRequest {
    #[prost(message, optional, tag = "1")]
    pub response_definition: Option<StreamResponseDefinition>,
    #[prost(bytes = "vec", tag = "2")]
    pub request_data: Vec<u8>,
}

/// `BidiStreamRequest`.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct BidiStreamRequest {
    #[prost(message, optional, tag = "1")]
    pub response_definition: Option<StreamResponseDefinition>,
    #[prost(bool, tag = "2")]
    pub full_duplex: bool,
    #[prost(bytes = "vec", tag = "3")]
    pub request_data: Vec<u8>,
}

/// A request message of a unary, client stream or server stream call, whose definition stays as it is.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct PaddedRequest {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) response_definition: Option<Vec<u8>>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) request_data: Vec<u8>,
}

/// A request message of a bidi stream call, whose definition stays as it is.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct PaddedBidiRequest {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) response_definition: Option<Vec<u8>>,
    #[prost(bool, tag = "2")]
    pub(crate) full_duplex: bool,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) request_data: Vec<u8>,
}

/// Certificate and key, in PEM.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct TlsCreds {
    #[prost(bytes = "vec", tag = "1")]
    pub cert: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
}

/// When the client cancels its call.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Cancel {
    #[prost(oneof = "CancelTiming", tags = "1, 2, 3")]
    pub cancel_timing: Option<CancelTiming>,
}

/// A message without fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Empty {}

/// The moment of a cancellation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Oneof)]
pub enum CancelTiming {
    #[prost(message, tag = "1")]
    BeforeCloseSend(Empty),
    #[prost(uint32, tag = "2")]
    AfterCloseSendMs(u32),
    #[prost(uint32, tag = "3")]
    AfterNumResponses(u32),
}

/// A request to a client under test, complete but for `raw_request`, which no such client gets
/// (`ClientCompatRequest`).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct CaseRequest {
    #[prost(string, tag = "1")]
    pub test_name: String,
    #[prost(int32, tag = "2")]
    pub http_version: i32,
    #[prost(int32, tag = "3")]
    pub protocol: i32,
    #[prost(int32, tag = "4")]
    pub codec: i32,
    #[prost(int32, tag = "5")]
    pub compression: i32,
    #[prost(string, tag = "6")]
    pub host: String,
    #[prost(uint32, tag = "7")]
    pub port: u32,
    #[prost(bytes = "vec", tag = "8")]
    pub server_tls_cert: Vec<u8>,
    #[prost(message, optional, tag = "9")]
    pub client_tls_creds: Option<TlsCreds>,
    #[prost(uint32, tag = "10")]
    pub message_receive_limit: u32,
    #[prost(string, optional, tag = "11")]
    pub service: Option<String>,
    #[prost(string, optional, tag = "12")]
    pub method: Option<String>,
    #[prost(int32, tag = "13")]
    pub stream_type: i32,
    #[prost(bool, tag = "14")]
    pub use_get_http_method: bool,
    #[prost(message, repeated, tag = "15")]
    pub request_headers: Vec<Header>,
    #[prost(message, repeated, tag = "16")]
    pub request_messages: Vec<Any>,
    #[prost(uint32, optional, tag = "17")]
    pub timeout_ms: Option<u32>,
    #[prost(uint32, tag = "18")]
    pub request_delay_ms: u32,
    #[prost(message, optional, tag = "19")]
    pub cancel: Option<Cancel>,
    #[prost(message, optional, tag = "20")]
    pub raw_request: Option<Empty>,
}

/// What a client has seen of a call, or should see (`ClientResponseResult`).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct CallResult {
    #[prost(message, repeated, tag = "1")]
    pub response_headers: Vec<Header>,
    #[prost(message, repeated, tag = "2")]
    pub payloads: Vec<ConformancePayload>,
    #[prost(message, optional, tag = "3")]
    pub error: Option<RpcError>,
    #[prost(message, repeated, tag = "4")]
    pub response_trailers: Vec<Header>,
    #[prost(int32, tag = "5")]
    pub num_unsent_requests: i32,
    #[prost(int32, optional, tag = "6")]
    pub http_status_code: Option<i32>,
    #[prost(string, repeated, tag = "7")]
    pub feedback: Vec<String>,
}

/// An answer of a client under test (`ClientCompatResponse`).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct CaseResponse {
    #[prost(string, tag = "1")]
    pub test_name: String,
    #[prost(oneof = "CaseAnswer", tags = "2, 3")]
    pub answer: Option<CaseAnswer>,
}

/// What became of a case.
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum CaseAnswer {
    #[prost(message, tag = "2")]
    Response(CallResult),
    /// No call could be made.
    #[prost(message, tag = "3")]
    Error(CaseError),
}

/// Why no call could be made (`ClientErrorResult`).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct CaseError {
    #[prost(string, tag = "1")]
    pub message: String,
}

/// A template of cases (`TestCase`).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct CaseTemplate {
    #[prost(message, optional, tag = "1")]
    pub request: Option<CaseRequest>,
    #[prost(message, repeated, tag = "2")]
    pub expand_requests: Vec<ExpandedSize>,
    #[prost(message, optional, tag = "3")]
    pub expected_response: Option<CallResult>,
    #[prost(int32, repeated, tag = "4")]
    pub other_allowed_error_codes: Vec<i32>,
}

/// The size that a request message is padded to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct ExpandedSize {
    #[prost(int32, optional, tag = "1")]
    pub size_relative_to_limit: Option<i32>,
}

/// A suite (`TestSuite`).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Suite {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int32, tag = "2")]
    pub mode: i32,
    #[prost(message, repeated, tag = "3")]
    pub test_cases: Vec<CaseTemplate>,
    #[prost(int32, repeated, tag = "4")]
    pub relevant_protocols: Vec<i32>,
    #[prost(int32, repeated, tag = "5")]
    pub relevant_http_versions: Vec<i32>,
    #[prost(int32, repeated, tag = "6")]
    pub relevant_codecs: Vec<i32>,
    #[prost(int32, repeated, tag = "7")]
    pub relevant_compressions: Vec<i32>,
    #[prost(int32, tag = "8")]
    pub connect_version_mode: i32,
    #[prost(bool, tag = "9")]
    pub relies_on_tls: bool,
    #[prost(bool, tag = "10")]
    pub relies_on_tls_client_certs: bool,
    #[prost(bool, tag = "11")]
    pub relies_on_connect_get: bool,
    #[prost(bool, tag = "12")]
    pub relies_on_message_receive_limit: bool,
}

/// A configuration file (`Config`).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Config {
    #[prost(message, optional, tag = "1")]
    pub features: Option<Features>,
    #[prost(message, repeated, tag = "2")]
    pub include_cases: Vec<ConfigCase>,
    #[prost(message, repeated, tag = "3")]
    pub exclude_cases: Vec<ConfigCase>,
}

/// What a client under test supports.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Features {
    #[prost(int32, repeated, tag = "1")]
    pub versions: Vec<i32>,
    #[prost(int32, repeated, tag = "2")]
    pub protocols: Vec<i32>,
    #[prost(int32, repeated, tag = "3")]
    pub codecs: Vec<i32>,
    #[prost(int32, repeated, tag = "4")]
    pub compressions: Vec<i32>,
    #[prost(int32, repeated, tag = "5")]
    pub stream_types: Vec<i32>,
    #[prost(bool, optional, tag = "6")]
    pub supports_h2c: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub supports_tls: Option<bool>,
    #[prost(bool, optional, tag = "8")]
    pub supports_tls_client_certs: Option<bool>,
    #[prost(bool, optional, tag = "9")]
    pub supports_trailers: Option<bool>,
    #[prost(bool, optional, tag = "10")]
    pub supports_half_duplex_bidi_over_http1: Option<bool>,
    #[prost(bool, optional, tag = "11")]
    pub supports_connect_get: Option<bool>,
    #[prost(bool, optional, tag = "12")]
    pub supports_message_receive_limit: Option<bool>,
}

/// Cases that a configuration adds or removes. Zero and absent values stand for all that is supported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct ConfigCase {
    #[prost(int32, tag = "1")]
    pub version: i32,
    #[prost(int32, tag = "2")]
    pub protocol: i32,
    #[prost(int32, tag = "3")]
    pub codec: i32,
    #[prost(int32, tag = "4")]
    pub compression: i32,
    #[prost(int32, tag = "5")]
    pub stream_type: i32,
    #[prost(bool, optional, tag = "6")]
    pub use_tls: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub use_tls_client_certs: Option<bool>,
    #[prost(bool, optional, tag = "8")]
    pub use_message_receive_limit: Option<bool>,
}
