//! Messages as JSON, by the same rules and tables as YAML documents.

use data_encoding::BASE64;
use serde_json::{Map, Value};

use super::{
    encoding::encode_message,
    message_types::{EnumType, Kind, MessageType, Presence},
    yaml::{Content, Entry, Node, TextError},
};
use crate::tree::{AnyContents, AnyTree, MessageTree, ValueTree};

/// Returns the bytes of a message in JSON. Null fields are absent ones.
///
/// # Errors
/// The text is no such message.
pub(crate) fn encode_json(text: &[u8], message_type: &MessageType) -> Result<Vec<u8>, TextError> {
    let value =
        serde_json::from_slice(text).map_err(|error| TextError::new(error.line(), error.to_string()))?;
    encode_message(&node(value), message_type)
}

fn node(value: Value) -> Node {
    let scalar = |text: String, is_plain| Content::Scalar { text, is_plain };
    let content = match value {
        Value::Null => scalar(String::new(), true),
        Value::Bool(value) => scalar(value.to_string(), true),
        Value::Number(number) => scalar(number.to_string(), true),
        Value::String(text) => scalar(text, false),
        Value::Array(items) => Content::Sequence(items.into_iter().map(node).collect()),
        Value::Object(members) => Content::Mapping(
            members
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| Entry { key, line: 1, value: node(value) })
                .collect(),
        ),
    };
    Node { line: 1, content }
}

/// Returns a message as JSON, without fields that its type does not have.
pub(crate) fn json_of_tree(tree: &MessageTree, message_type: &MessageType) -> Value {
    let mut members = Map::new();
    for field in message_type.fields {
        let Some(values) = tree.values(field.number) else { continue };
        let mut values = values.iter().map(|value| json_of_value(value, field.kind));
        let value = match field.presence {
            Presence::Repeated => Value::Array(values.collect()),
            Presence::Implicit | Presence::Explicit | Presence::OneOf(_) => values.next().unwrap_or_default(),
        };
        members.insert(field.json_name(), value);
    }
    Value::Object(members)
}

fn json_of_value(value: &ValueTree, kind: Kind) -> Value {
    match (value, kind) {
        (ValueTree::Number(number), Kind::Bool) => Value::Bool(*number != 0),
        // 64 bits are more than the numbers of JSON can hold everywhere.
        (ValueTree::Number(number), Kind::Int64) => number.cast_signed().to_string().into(),
        (ValueTree::Number(number), Kind::Enum(enum_type)) => json_of_enum(*number, enum_type),
        (ValueTree::Number(number), _) => number.cast_signed().into(),
        (ValueTree::Bytes(bytes), Kind::Text) => String::from_utf8_lossy(bytes).into_owned().into(),
        (ValueTree::Bytes(bytes), _) => BASE64.encode(bytes).into(),
        (ValueTree::Message(tree), Kind::Message(message_type)) => json_of_tree(tree, message_type),
        (ValueTree::Message(_), _) => Value::Null,
        (ValueTree::Any(any), _) => json_of_any(any),
    }
}

fn json_of_enum(number: u64, enum_type: &EnumType) -> Value {
    let name = usize::try_from(number).ok().and_then(|number| enum_type.names.get(number));
    name.map_or_else(|| number.cast_signed().into(), |name| format!("{}{name}", enum_type.prefix).into())
}

fn json_of_any(any: &AnyTree) -> Value {
    let known = super::message_types::any_type(&any.type_url);
    let mut value = match (&any.contents, known) {
        (AnyContents::Known(tree), Some(message_type)) => json_of_tree(tree, message_type),
        (AnyContents::Known(_) | AnyContents::Opaque(_), _) => Value::Object(Map::new()),
    };
    if !any.type_url.is_empty() {
        value["@type"] = any.type_url.as_str().into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::{
        super::message_types::{BIDI_STREAM_REQUEST, PAYLOAD},
        *,
    };

    #[test]
    fn message_survives_a_round_trip() {
        let text = r#"{"data":"YQ==","requestInfo":{"requestHeaders":[{"name":"x","value":["1","2"]}],
            "timeoutMs":"200","requests":[{"@type":"type.googleapis.com/connectrpc.conformance.v1.UnaryRequest",
            "responseDefinition":{"error":{"code":"CODE_ABORTED","message":""}}}]}}"#;
        let bytes = encode_json(text.as_bytes(), &PAYLOAD).unwrap();
        let tree = MessageTree::decode_message(&bytes, &PAYLOAD).unwrap();
        assert_eq!(json_of_tree(&tree, &PAYLOAD), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn what_is_no_such_message_is_refused() {
        let encode = |text: &str| encode_json(text.as_bytes(), &BIDI_STREAM_REQUEST);
        assert_eq!(encode("{\"fullDuplex\":true,\"requestData\":null}").unwrap(), b"\x10\x01");
        for text in ["{", "[]", "{\"fullDuplex\":\"true\"}", "{\"other\":1}", "{\"requestData\":\"*\"}"] {
            assert!(encode(text).is_err(), "{text}");
        }
    }
}
