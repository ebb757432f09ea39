//! JSON Schema of the messages that Heeler sends and accepts, generated from the types.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use super::{
    Attributes, ClientCapabilities, Deployables, DeploymentOptions, JobEnd, JobHandle, JobProgress,
    LaunchAttributesParams, LaunchMode, LaunchParams, NamedById, ProcessOutput, Registration, Runtimes,
    ServerActions, ServerAsJson, ServerCreation, ServerHandle, ServerProcess, ServerState, ServerType,
    ServerUpdate, StartResult, Status, StopParams, UpdateParams, Workflow, WorkflowParams, method,
};
use crate::schema::{close_objects, envelope_schema, subschema};

/// Returns the schema of every message that Heeler sends to a client.
#[must_use]
pub fn server_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let methods = [
        (method::STATE_CHANGED, subschema::<ServerState>(&mut generator)),
        (method::PROCESS_CREATED, subschema::<ServerProcess>(&mut generator)),
        (method::PROCESS_TERMINATED, subschema::<ServerProcess>(&mut generator)),
        (method::OUTPUT_APPENDED, subschema::<ProcessOutput>(&mut generator)),
        (method::JOB_ADDED, subschema::<JobHandle>(&mut generator)),
        (method::JOB_CHANGED, subschema::<JobProgress>(&mut generator)),
        (method::JOB_REMOVED, subschema::<JobEnd>(&mut generator)),
    ];
    let results = results(&mut generator);
    let mut schema = envelope_schema(&mut generator, "Messages from Heeler to a client", &methods, results);
    close_objects(&mut schema);
    schema
}

fn results(generator: &mut SchemaGenerator) -> Vec<Value> {
    let empty_list = json!({"type": "array", "maxItems": 0});
    vec![
        subschema::<Registration>(generator),
        subschema::<Vec<ServerType>>(generator),
        subschema::<Vec<ServerHandle>>(generator),
        subschema::<ServerState>(generator),
        subschema::<Vec<LaunchMode>>(generator),
        subschema::<Attributes>(generator),
        subschema::<StartResult>(generator),
        subschema::<Status>(generator),
        subschema::<Vec<JobProgress>>(generator),
        subschema::<Runtimes>(generator),
        subschema::<Deployables>(generator),
        subschema::<ServerActions>(generator),
        subschema::<ServerCreation>(generator),
        subschema::<Workflow>(generator),
        subschema::<ServerAsJson>(generator),
        subschema::<ServerUpdate>(generator),
        subschema::<DeploymentOptions>(generator),
        empty_list,
        json!({"type": "null"}),
    ]
}

/// Returns the schema of the messages that Heeler accepts from a client. Unknown members are ignored.
#[must_use]
pub fn client_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let nothing = json!({"type": ["object", "array", "null"]});
    let by_id = subschema::<NamedById>(&mut generator);
    let launch_attributes = subschema::<LaunchAttributesParams>(&mut generator);
    let workflow = subschema::<WorkflowParams>(&mut generator);
    let mut methods = vec![
        // Methods whose parameters Heeler reads.
        (method::REGISTER, subschema::<ClientCapabilities>(&mut generator)),
        (method::SERVER_STATE, by_id.clone()),
        (method::LAUNCH_MODES, by_id.clone()),
        (method::OPTIONAL_LAUNCH_ATTRIBUTES, launch_attributes.clone()),
        (method::REQUIRED_LAUNCH_ATTRIBUTES, launch_attributes),
        (method::START, subschema::<LaunchParams>(&mut generator)),
        (method::STOP, subschema::<StopParams>(&mut generator)),
        (method::CANCEL_JOB, by_id.clone()),
        (method::SERVER_AS_JSON, by_id),
        (method::CREATE_SERVER_WORKFLOW, workflow.clone()),
        (method::DOWNLOAD_RUNTIME, workflow.clone()),
        (method::EXECUTE_ACTION, workflow),
        (method::UPDATE_SERVER, subschema::<UpdateParams>(&mut generator)),
    ];
    let without_params = [
        // Methods without parameters, and methods whose parameters are ignored.
        method::SERVER_TYPES,
        method::SERVER_HANDLES,
        method::OPTIONAL_ATTRIBUTES,
        method::REQUIRED_ATTRIBUTES,
        method::JOBS,
        method::DOWNLOADABLE_RUNTIMES,
        method::DEPLOYABLES,
        method::SERVER_ACTIONS,
        method::DISCOVERY_PATHS,
        method::FIND_SERVER_BEANS,
        method::CREATE_SERVER,
        method::LAUNCH_COMMAND,
        method::DEPLOYMENT_OPTIONS,
        method::SHUTDOWN,
        method::DISCONNECT,
        method::CANCEL,
    ];
    let unread = without_params.into_iter().chain(method::REFUSED_WITH_STATUS);
    methods.extend(unread.map(|name| (name, nothing.clone())));
    envelope_schema(&mut generator, "Messages from a client to Heeler", &methods, vec![json!({})])
}
