//! JSON Schema of JSON-RPC envelopes, shared by the schemas of all protocols.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::rpc::{RequestId, RpcError};

/// Returns the schema of a type. The generator defines each type once.
pub(crate) fn subschema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// Returns the schema of a message: one of these methods with its parameters, or a response.
pub(crate) fn envelope_schema(
    generator: &mut SchemaGenerator,
    title: &str,
    methods: &[(&str, Value)],
    results: Vec<Value>,
) -> Value {
    // Each method determines the schema of its parameters.
    let names: Vec<_> = methods.iter().map(|(name, _)| *name).collect();
    let rules: Vec<_> = methods
        .iter()
        .map(|(name, params)| {
            json!({
                "if": {"required": ["method"], "properties": {"method": {"const": name}}},
                "then": {"properties": {"params": params}},
            })
        })
        .collect();
    let id = subschema::<RequestId>(generator);
    let error = subschema::<RpcError>(generator);
    let definitions = generator.take_definitions(true);
    // A message has a method, a result or an error, but never two of them.
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "required": ["jsonrpc"],
        "additionalProperties": false,
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": id,
            "method": {"enum": names},
            "params": {},
            "result": {"anyOf": results},
            "error": error,
        },
        "oneOf": [
            {"required": ["method"], "not": {"anyOf": [{"required": ["result"]}, {"required": ["error"]}]}},
            {"required": ["id", "result"], "not": {"required": ["error"]}},
            {"required": ["id", "error"]},
        ],
        "allOf": rules,
        "$defs": definitions,
    })
}

/// Forbids members that an object's definition does not name, unless the definition allows them.
pub(crate) fn close_objects(schema: &mut Value) {
    let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) else { return };
    for definition in definitions.values_mut().filter_map(Value::as_object_mut) {
        if definition.contains_key("properties") {
            definition.entry("additionalProperties").or_insert(Value::Bool(false));
        }
    }
}

impl JsonSchema for RequestId {
    fn schema_name() -> Cow<'static, str> {
        "RequestId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "Number or string, echoed with its type; null in the response to a request that could not be read.",
            "type": ["number", "string", "null"]})
    }
}
