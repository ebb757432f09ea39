//! Parameters and results of requests, as the base protocol carries them.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    Attributes, Deployables, DeploymentOptions, JobProgress, LaunchMode, Registration, Runtimes,
    ServerActions, ServerAsJson, ServerCreation, ServerHandle, ServerState, ServerType, ServerUpdate,
    StartResult, Status, Workflow,
};
use crate::rpc::{RpcError, code};

/// Result of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ServerResult {
    Registration(Registration),
    ServerTypes([ServerType; 1]),
    ServerHandles(Vec<ServerHandle>),
    ServerState(ServerState),
    LaunchModes(Vec<LaunchMode>),
    Attributes(Attributes),
    Start(StartResult),
    Status(Status),
    Jobs(Vec<JobProgress>),
    Runtimes(Runtimes),
    Deployables(Deployables),
    ServerActions(ServerActions),
    Creation(ServerCreation),
    Workflow(Workflow),
    AsJson(ServerAsJson),
    Update(Box<ServerUpdate>),
    DeploymentOptions(DeploymentOptions),
    /// A list of a kind of which Heeler has nothing.
    EmptyList([(); 0]),
    Null,
}

/// Reads the parameters of a request; none count as null.
///
/// # Errors
/// They are not of this kind.
pub fn read_params<P: DeserializeOwned>(params: Option<&RawValue>) -> Result<P, RpcError> {
    serde_json::from_str(params.map_or("null", RawValue::get))
        .map_err(|error| RpcError::new(code::INVALID_PARAMS, format!("expected other params: {error}")))
}
