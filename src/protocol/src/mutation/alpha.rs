//! Messages of version 0.0.1-alpha.1.

use serde::{Deserialize, Deserializer, Serialize, de};

use super::TestedMutant;
use crate::rpc::RequestId;

/// Protocol version in the response to `initialize`.
pub const PROTOCOL_VERSION: &str = "0.0.1-alpha.1";

/// Parameters of `initialize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InitializeParams {
    pub client_info: PeerVersion,
    /// URI or path of the configuration file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_uri: Option<String>,
}

/// Protocol version of the client or the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerVersion {
    pub version: String,
}

/// Result of `initialize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InitializeResult {
    pub server_info: PeerVersion,
    pub capabilities: ServerCapabilities,
}

/// Capabilities of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerCapabilities {
    pub instrumentation_provider: PartialResultOptions,
    pub mutation_test_provider: PartialResultOptions,
}

/// Whether results are also sent one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartialResultOptions {
    pub partial_results: bool,
}

impl InitializeResult {
    /// Returns Heeler's result.
    #[must_use]
    pub fn of_heeler() -> Self {
        Self {
            server_info: PeerVersion { version: PROTOCOL_VERSION.to_owned() },
            capabilities: ServerCapabilities {
                instrumentation_provider: PartialResultOptions { partial_results: false },
                mutation_test_provider: PartialResultOptions { partial_results: true },
            },
        }
    }
}

/// Parameters of `instrument`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InstrumentParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob_patterns: Option<Vec<String>>,
}

/// Parameters of `mutate`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MutateParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob_patterns: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_result_token: Option<ProgressToken>,
}

/// Token that connects partial results with their request: a number or a string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgressToken(RequestId);

impl<'de> Deserialize<'de> for ProgressToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "the token must be a number or a string";
        match RequestId::deserialize(deserializer) {
            Ok(RequestId::Null) | Err(_) => Err(de::Error::custom(expected)),
            Ok(token) => Ok(Self(token)),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ProgressToken {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ProgressToken".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"description": "Number or string, echoed with its type.", "type": ["number", "string"]})
    }
}

/// A mutant, its file, and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MutantInFile {
    /// Absolute path.
    pub file_name: String,
    #[serde(flatten)]
    pub mutant: TestedMutant,
}

/// Parameters of `progress`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgressParams {
    pub token: ProgressToken,
    pub value: ProgressValue,
}

/// Partial results, in the specification's form or in the form of a client that deviates from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ProgressValue {
    List(Vec<MutantInFile>),
    Object { mutants: Vec<MutantInFile> },
}

/// Parameters of `$/cancelRequest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelParams {
    pub id: RequestId,
}
