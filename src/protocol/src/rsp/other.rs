//! Results of requests that Heeler rejects or answers with an empty list. If a result has a status, the
//! status contains the rejection, because clients do not expect an error there.

use serde::{Deserialize, Serialize};

use super::{Attributes, NamedById, ServerHandle, Status};

/// Result of `listDownloadableRuntimes`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Runtimes {
    pub runtimes: [(); 0],
}

/// Result of `getDeployables`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Deployables {
    pub states: [(); 0],
    pub status: Status,
}

/// Result of `listServerActions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerActions {
    pub workflows: [(); 0],
    pub status: Status,
}

/// Result of `createServer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerCreation {
    pub status: Status,
    pub invalid_keys: [(); 0],
}

/// The part of a workflow's parameters that the result returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkflowParams {
    #[serde(default)]
    pub request_id: Option<i64>,
}

/// Result of the requests that are workflows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Workflow {
    pub status: Status,
    pub request_id: i64,
    pub job_id: String,
    pub items: [(); 0],
    pub invalid_fields: [(); 0],
}

/// Result of `getServerAsJson`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerAsJson {
    pub status: Status,
    pub server_json: String,
    pub server_handle: ServerHandle,
}

/// Parameters of `updateServer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpdateParams {
    pub handle: NamedById,
}

/// Result of `updateServer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerUpdate {
    pub handle: ServerHandle,
    pub validation: ServerCreation,
    pub server_json: ServerAsJson,
}

/// Result of `listDeploymentOptions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentOptions {
    pub attributes: Attributes,
    pub status: Status,
}
