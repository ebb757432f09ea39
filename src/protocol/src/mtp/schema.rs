//! JSON Schema of the messages that the server sends and accepts, generated from the types.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

use super::{
    AttachDebuggerParams, AttachmentParams, BarrierParams, CancelParams, CancelRunParams, DiscoveryMetrics,
    ExecutionState, HelloParams, InitializeParams, InitializeResult, LaunchDebuggerParams, LogBatchParams,
    LogParams, ProgramsChangedParams, RequestedNode, RunMetrics, RunResult, TelemetryParams, TestNode,
    TestTrait, TestsParams, UpdateParams, method,
};
use crate::schema::{close_objects, envelope_schema, subschema};

/// Returns the schema of every message that Heeler sends to a client. Never add a member to these messages:
/// some clients drop a notification with an unknown parameter.
#[must_use]
pub fn server_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let log = json!({"oneOf": [subschema::<LogParams>(&mut generator), subschema::<LogBatchParams>(&mut generator)]});
    let telemetry = json!({"oneOf": [
        subschema::<TelemetryParams<RunMetrics>>(&mut generator),
        subschema::<TelemetryParams<DiscoveryMetrics>>(&mut generator),
    ]});
    let methods = [
        (method::UPDATES, subschema::<UpdateParams>(&mut generator)),
        (method::ATTACHMENTS, subschema::<AttachmentParams>(&mut generator)),
        (method::LOG, log),
        (method::TELEMETRY, telemetry),
        (method::CANCEL, subschema::<CancelParams>(&mut generator)),
        (method::HELLO, subschema::<HelloParams>(&mut generator)),
        (method::BARRIER, subschema::<BarrierParams>(&mut generator)),
        (method::ATTACH_DEBUGGER, subschema::<AttachDebuggerParams>(&mut generator)),
        (method::LAUNCH_DEBUGGER, subschema::<LaunchDebuggerParams>(&mut generator)),
        (method::PROGRAMS_CHANGED, subschema::<ProgramsChangedParams>(&mut generator)),
    ];
    let results = vec![
        subschema::<InitializeResult>(&mut generator),
        subschema::<RunResult>(&mut generator),
        json!({"type": "object", "additionalProperties": false}),
    ];
    let mut schema = envelope_schema(&mut generator, "Messages from Heeler to a client", &methods, results);
    close_objects(&mut schema);
    schema
}

/// Returns the schema of every message that Heeler accepts from a client. Unknown members are ignored.
#[must_use]
pub fn client_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let tests = subschema::<TestsParams<RequestedNode>>(&mut generator);
    let nothing = json!({"type": ["object", "null"]});
    let methods = [
        (method::INITIALIZE, subschema::<InitializeParams>(&mut generator)),
        ("initialized", nothing.clone()),
        (method::DISCOVER, tests.clone()),
        (method::RUN, tests),
        (method::CANCEL, subschema::<CancelParams>(&mut generator)),
        (method::CANCEL_RUN, subschema::<CancelRunParams>(&mut generator)),
        (method::EXIT, nothing),
    ];
    envelope_schema(&mut generator, "Messages from a client to Heeler", &methods, vec![json!({})])
}

impl JsonSchema for ExecutionState {
    fn schema_name() -> Cow<'static, str> {
        "ExecutionState".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let states = [
            Self::Discovered,
            Self::InProgress,
            Self::Passed,
            Self::Skipped,
            Self::Failed,
            Self::TimedOut,
            Self::Error,
            Self::Cancelled,
        ];
        json_schema!({"enum": states.map(Self::as_str)})
    }
}

impl JsonSchema for TestTrait {
    fn schema_name() -> Cow<'static, str> {
        "TestTrait".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "A name and its value.", "type": "object", "minProperties": 1, "maxProperties": 1,
            "additionalProperties": {"type": "string"}})
    }
}

impl JsonSchema for TestNode {
    fn schema_name() -> Cow<'static, str> {
        "TestNode".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = Map::new();
        for name in super::node::text_names() {
            properties.insert(name.to_owned(), json!({"type": "string"}));
        }
        let line = json!({"type": "integer", "minimum": 0});
        let named = [
            ("uid", json!({"type": "string"})),
            ("display-name", json!({"type": "string"})),
            ("node-type", json!({"enum": ["action", "group"]})),
            ("execution-state", subschema::<ExecutionState>(generator)),
            ("traits", json!({"type": "array", "minItems": 1, "items": subschema::<TestTrait>(generator)})),
            ("location.line-start", line.clone()),
            ("location.line-end", line),
            ("time.duration-ms", json!({"type": "number", "minimum": 0})),
        ];
        properties.extend(named.map(|(name, schema)| (name.to_owned(), schema)));
        json_schema!({
            "description": "A test with its state, or a group. Other members belong to a framework or a client.",
            "type": "object",
            "required": ["uid", "display-name", "node-type"],
            "properties": properties,
            "additionalProperties": true,
            "if": {"properties": {"node-type": {"const": "action"}}},
            "then": {"required": ["execution-state"]},
            "else": {"not": {"required": ["execution-state"]}},
        })
    }
}

impl JsonSchema for RequestedNode {
    fn schema_name() -> Cow<'static, str> {
        "SelectedNode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "Requested test or group. Unknown members are returned unchanged.",
            "type": "object", "required": ["uid"], "properties": {"uid": {"type": "string"}}})
    }
}
