//! Methods, parameters and results of both eras.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::version::{Era, MODERN_VERSIONS, legacy_version};
use crate::rpc::{RequestId, RpcError, code};

/// Method names.
pub mod method {
    pub const INITIALIZE: &str = "initialize";
    pub const DISCOVER: &str = "server/discover";
    pub const PING: &str = "ping";
    pub const TOOLS_LIST: &str = "tools/list";
    pub const TOOLS_CALL: &str = "tools/call";
    pub const CANCELLED: &str = "notifications/cancelled";
    pub const PROGRESS: &str = "notifications/progress";
    pub const TASKS_GET: &str = "tasks/get";
    pub const TASKS_UPDATE: &str = "tasks/update";
    pub const TASKS_CANCEL: &str = "tasks/cancel";
}

/// Error codes beyond JSON-RPC.
pub mod error_code {
    /// A header of an HTTP request contradicts the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The version of a request is not supported.
    pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
}

/// How long clients may cache lists: the tools never change.
const CACHE_TTL_MS: u64 = 3_600_000;

/// Name and version of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Implementation {
    pub name: String,
    pub version: String,
}

impl Implementation {
    /// Returns the description of this program.
    #[must_use]
    pub fn heeler() -> Self {
        Self { name: "heeler".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// Capabilities of a server: tools, whose list does not change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerCapabilities {
    pub tools: EmptyObject,
}

/// Capabilities for clients of the newer era, which include the extension for tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExtendedCapabilities {
    #[serde(flatten)]
    pub server: ServerCapabilities,
    pub extensions: ServerExtensions,
}

/// Extensions of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerExtensions {
    #[serde(rename = "io.modelcontextprotocol/tasks")]
    pub tasks: EmptyObject,
}

/// An object without members.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EmptyObject {}

/// Parameters of `initialize` that Heeler uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct InitializeParams {
    #[serde(rename = "protocolVersion")]
    pub protocol_version: String,
}

/// Result of `initialize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    pub protocol_version: String,
    pub capabilities: ServerCapabilities,
    pub server_info: Implementation,
    pub instructions: String,
}

/// Result of `server/discover`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoverResult {
    pub supported_versions: Vec<String>,
    pub capabilities: ExtendedCapabilities,
    pub instructions: String,
}

impl InitializeResult {
    /// Returns the result for the version that a client requested.
    #[must_use]
    pub fn new(requested: &str, instructions: &str) -> Self {
        Self {
            protocol_version: legacy_version(requested).to_owned(),
            capabilities: ServerCapabilities::default(),
            server_info: Implementation::heeler(),
            instructions: instructions.to_owned(),
        }
    }
}

impl DiscoverResult {
    /// Returns the result with all versions without a handshake.
    #[must_use]
    pub fn new(instructions: &str) -> Self {
        Self {
            supported_versions: MODERN_VERSIONS.map(str::to_owned).to_vec(),
            capabilities: ExtendedCapabilities::default(),
            instructions: instructions.to_owned(),
        }
    }
}

/// Result of `tools/list`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListToolsResult {
    /// A JSON array.
    pub tools: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Parameters of `tools/call`.
#[derive(Debug, Clone, Deserialize)]
pub struct CallToolParams {
    pub name: String,
    #[serde(default)]
    pub arguments: Option<Box<RawValue>>,
}

/// Result of `tools/call`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallToolResult {
    pub content: Vec<TextContent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

/// A block of text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextContent {
    #[serde(rename = "type")]
    pub kind: String,
    pub text: String,
}

impl CallToolResult {
    /// Returns a result with a text.
    #[must_use]
    pub fn text(text: String) -> Self {
        let content = vec![TextContent { kind: "text".to_owned(), text }];
        Self { content, structured_content: None, is_error: None }
    }

    /// Returns an error that the caller can correct.
    #[must_use]
    pub fn error(text: String) -> Self {
        Self { is_error: Some(true), ..Self::text(text) }
    }

    /// Returns a result with an object, and its text for older clients.
    ///
    /// # Panics
    /// The value is not an object with text keys.
    #[must_use]
    pub fn object(value: &impl Serialize) -> Self {
        let object = serde_json::to_value(value).expect("an object with text keys");
        Self { structured_content: Some(object), ..Self::text(object_text(value)) }
    }
}

/// Parameters of `notifications/cancelled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelledParams {
    pub request_id: RequestId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Returns an object as JSON, with its members in the order of the fields.
fn object_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("an object with text keys")
}

/// Writes whole numbers without a fraction.
fn write_number<S: serde::Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    #[expect(clippy::cast_possible_truncation, reason = "a fraction is written as it is")]
    let whole = *number as i64;
    #[expect(clippy::cast_precision_loss, reason = "a number of tests is far below 2^53")]
    let is_whole = whole as f64 == *number;
    if is_whole { serializer.serialize_i64(whole) } else { serializer.serialize_f64(*number) }
}

/// Parameters of `tools/list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ListToolsParams {
    #[serde(default)]
    pub cursor: Option<String>,
}

/// Parameters of `notifications/progress`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressParams {
    pub progress_token: RequestId,
    /// Increases with each notification of a request; fractional if only time has passed.
    #[serde(serialize_with = "write_number")]
    pub progress: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Whether a client may cache a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultCaching {
    /// The result describes this moment.
    Volatile,
    /// The result is the same while the server runs.
    Stable,
}

/// A result with the members required by its era.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EraResult<R> {
    #[serde(flatten)]
    pub result: R,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_scope: Option<&'static str>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<ResultMeta>,
}

#[derive(Debug, Clone, Serialize)]
struct ResultMeta {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    server_info: Implementation,
}

impl<R> EraResult<R> {
    /// Returns a result for a request of this era.
    #[must_use]
    pub fn new(result: R, era: Era, caching: ResultCaching) -> Self {
        let is_modern = era == Era::Modern;
        let is_stable = is_modern && caching == ResultCaching::Stable;
        Self {
            result,
            result_type: is_modern.then_some("complete"),
            ttl_ms: is_stable.then_some(CACHE_TTL_MS),
            cache_scope: is_stable.then_some("private"),
            meta: is_stable.then(|| ResultMeta { server_info: Implementation::heeler() }),
        }
    }
}

/// Reads the parameters of a message.
///
/// # Errors
/// The parameters do not fit the method. The error is the response.
pub fn read_params<P: DeserializeOwned>(method: &str, params: Option<&RawValue>) -> Result<P, RpcError> {
    let invalid = |text: &dyn std::fmt::Display| {
        RpcError::new(code::INVALID_PARAMS, format!("invalid params of {method}: {text}"))
    };
    let text = params.map_or("{}", RawValue::get);
    if !text.starts_with('{') {
        return Err(invalid(&"expected an object"));
    }
    serde_json::from_str(text).map_err(|error| invalid(&error))
}
