//! Messages as trees of their fields, for comparisons: two messages are equal if their trees are, however
//! they are encoded.

use std::collections::BTreeMap;

use prost::{
    DecodeError, Message as _,
    bytes::Buf,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};

use crate::{
    message::Any,
    text::message_types::{Field, Kind, MessageType, Presence, any_type},
};

/// Maximum depth of a message, as protobuf's libraries have it.
const MAX_DEPTH: usize = 100;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MessageTree {
    fields: BTreeMap<u32, Vec<ValueTree>>,
    /// Bytes of fields that the type does not have, by their numbers.
    unknown: BTreeMap<u32, Vec<u8>>,
}

/// A value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueTree {
    Number(u64),
    Bytes(Vec<u8>),
    Message(MessageTree),
    Any(AnyTree),
}

/// A message of any type. Addresses are compared whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnyTree {
    pub(crate) type_url: String,
    pub(crate) contents: AnyContents,
}

/// The contents of [`AnyTree`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnyContents {
    Known(MessageTree),
    /// Of a type that is not known, or no message of its type.
    Opaque(Vec<u8>),
}

/// A message that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("unknown message type {type_url:?}")]
    UnknownType { type_url: String },
    #[error("{0}")]
    Decode(#[from] DecodeError),
    #[error("a field that is longer than its message")]
    Truncated,
    #[error("text that is not UTF-8")]
    NotText,
    #[error("messages more than {MAX_DEPTH} levels deep")]
    TooDeep,
}

/// Returns the tree of the message in an `Any`.
///
/// # Errors
/// Its type is not known, or its bytes are no message of it.
pub(crate) fn tree_of_contents(any: &Any) -> Result<MessageTree, TreeError> {
    let message_type =
        any_type(&any.type_url).ok_or_else(|| TreeError::UnknownType { type_url: any.type_url.clone() })?;
    MessageTree::decode(&any.value, message_type, 0)
}

/// Returns the tree of an `Any` itself.
pub(crate) fn tree_of_any(any: &Any) -> AnyTree {
    any_tree(any, 0)
}

fn any_tree(any: &Any, depth: usize) -> AnyTree {
    let known = any_type(&any.type_url);
    let tree = known.and_then(|message_type| MessageTree::decode(&any.value, message_type, depth + 1).ok());
    let contents = tree.map_or_else(|| AnyContents::Opaque(any.value.clone()), AnyContents::Known);
    AnyTree { type_url: any.type_url.clone(), contents }
}

impl MessageTree {
    /// Returns the tree of a message.
    ///
    /// # Errors
    /// The bytes are no message of that type.
    pub(crate) fn decode_message(bytes: &[u8], message_type: &MessageType) -> Result<Self, TreeError> {
        Self::decode(bytes, message_type, 0)
    }

    /// Returns the values of a field, if it is set.
    pub(crate) fn values(&self, number: u32) -> Option<&[ValueTree]> {
        self.fields.get(&number).map(Vec::as_slice)
    }

    fn decode(bytes: &[u8], message_type: &MessageType, depth: usize) -> Result<Self, TreeError> {
        if depth == MAX_DEPTH {
            return Err(TreeError::TooDeep);
        }
        let mut raw: BTreeMap<u32, Vec<RawValue<'_>>> = BTreeMap::new();
        let mut tree = Self::default();
        let mut rest = bytes;
        while rest.has_remaining() {
            let start = rest;
            let (number, wire_type) = decode_key(&mut rest)?;
            let field = message_type.fields.iter().find(|field| field.number == number);
            match (field, wire_type) {
                (Some(field), WireType::Varint) if field.kind.is_number() => {
                    let value = RawValue::Number(field.kind.truncated(decode_varint(&mut rest)?));
                    add(&mut raw, message_type, field, value);
                }
                (Some(field), WireType::LengthDelimited) if !field.kind.is_number() => {
                    add(&mut raw, message_type, field, RawValue::Bytes(delimited(&mut rest)?));
                }
                (Some(field), WireType::LengthDelimited) if field.presence == Presence::Repeated => {
                    let mut packed = delimited(&mut rest)?;
                    while packed.has_remaining() {
                        let value = RawValue::Number(field.kind.truncated(decode_varint(&mut packed)?));
                        add(&mut raw, message_type, field, value);
                    }
                }
                _ => {
                    skip_field(wire_type, number, &mut rest, DecodeContext::default())?;
                    let skipped = &start[..start.len() - rest.len()];
                    tree.unknown.entry(number).or_default().extend_from_slice(skipped);
                }
            }
        }
        for (number, values) in raw {
            let field = message_type.fields.iter().find(|field| field.number == number);
            let field = field.expect("only fields of the type were added");
            let values = value_trees(values, field, depth)?;
            if !values.is_empty() {
                tree.fields.insert(number, values);
            }
        }
        Ok(tree)
    }
}

/// A value as it is written.
#[derive(Debug, Clone, Copy)]
enum RawValue<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// Adds a value, and forgets those that it replaces.
fn add<'b>(
    raw: &mut BTreeMap<u32, Vec<RawValue<'b>>>,
    message_type: &MessageType,
    field: &Field,
    value: RawValue<'b>,
) {
    if let Presence::OneOf(_) = field.presence {
        let others = message_type.fields.iter().filter(|other| other.presence == field.presence);
        for other in others.filter(|other| other.number != field.number) {
            raw.remove(&other.number);
        }
    }
    raw.entry(field.number).or_default().push(value);
}

fn delimited<'b>(rest: &mut &'b [u8]) -> Result<&'b [u8], TreeError> {
    let length = decode_varint(rest)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= rest.len());
    let (value, after) = rest.split_at(length.ok_or(TreeError::Truncated)?);
    *rest = after;
    Ok(value)
}

fn value_trees(
    mut values: Vec<RawValue<'_>>,
    field: &Field,
    depth: usize,
) -> Result<Vec<ValueTree>, TreeError> {
    if field.presence != Presence::Repeated
        && let Kind::Message(message_type) = field.kind
    {
        // Parts of one message are merged as if they had been written in one.
        let parts = values.iter().map(|value| match value {
            RawValue::Bytes(bytes) => *bytes,
            RawValue::Number(_) => &[],
        });
        let whole = parts.collect::<Vec<_>>().concat();
        return Ok(vec![ValueTree::Message(MessageTree::decode(&whole, message_type, depth + 1)?)]);
    }
    if field.presence != Presence::Repeated {
        values.drain(..values.len() - 1);
    }
    let mut trees = Vec::new();
    for value in values {
        let tree = match (value, field.kind) {
            (RawValue::Number(number), _) => ValueTree::Number(number),
            (RawValue::Bytes(bytes), Kind::Message(message_type)) => {
                ValueTree::Message(MessageTree::decode(bytes, message_type, depth + 1)?)
            }
            (RawValue::Bytes(bytes), Kind::Any) => ValueTree::Any(any_tree(&Any::decode(bytes)?, depth)),
            (RawValue::Bytes(bytes), Kind::Text) if std::str::from_utf8(bytes).is_err() => {
                return Err(TreeError::NotText);
            }
            (RawValue::Bytes(bytes), _) => ValueTree::Bytes(bytes.to_vec()),
        };
        let is_zero = match &tree {
            ValueTree::Number(number) => *number == 0,
            ValueTree::Bytes(bytes) => bytes.is_empty(),
            ValueTree::Message(_) | ValueTree::Any(_) => false,
        };
        if !(is_zero && field.presence == Presence::Implicit) {
            trees.push(tree);
        }
    }
    Ok(trees)
}

impl Kind {
    fn is_number(self) -> bool {
        match self {
            Self::Bool | Self::Int32 | Self::Int64 | Self::Uint32 | Self::Enum(_) => true,
            Self::Text | Self::Bytes | Self::Message(_) | Self::Any => false,
        }
    }

    /// Returns what is left of a number in a field of this kind.
    fn truncated(self, number: u64) -> u64 {
        match self {
            Self::Bool => u64::from(number != 0),
            Self::Int32 | Self::Enum(_) => i64::from(number as i32).cast_unsigned(),
            Self::Uint32 => u64::from(number as u32),
            Self::Int64 | Self::Text | Self::Bytes | Self::Message(_) | Self::Any => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::text::message_types::{BIDI_STREAM_REQUEST, UNARY_REQUEST},
        *,
    };

    fn contents(message_type: &MessageType, value: &[u8]) -> Result<MessageTree, TreeError> {
        tree_of_contents(&Any { type_url: format!("x/{}", message_type.name), value: value.to_vec() })
    }

    #[test]
    fn encoding_makes_no_difference() {
        for (one, other) in [
            // The order of fields, a zero that is written, and a value that another replaces.
            (&b"\x10\x01\x1a\x01a"[..], &b"\x1a\x01a\x10\x01"[..]),
            (b"\x10\x00", b""),
            (b"\x10\x01\x10\x00", b""),
            // Two parts of a message: each has a header.
            (b"\x0a\x07\x0a\x05\x0a\x03abc\x0a\x02\x18\x05", b"\x0a\x09\x0a\x05\x0a\x03abc\x18\x05"),
        ] {
            assert_eq!(contents(&BIDI_STREAM_REQUEST, one), contents(&BIDI_STREAM_REQUEST, other));
            assert!(contents(&BIDI_STREAM_REQUEST, one).is_ok());
        }
        // An error replaces data: one of them may be set.
        let both = contents(&UNARY_REQUEST, b"\x0a\x05\x12\x01a\x1a\x00");
        assert_eq!(both, contents(&UNARY_REQUEST, b"\x0a\x02\x1a\x00"));
    }

    #[test]
    fn values_make_a_difference() {
        let empty = contents(&UNARY_REQUEST, b"").unwrap();
        for value in [&b"\x0a\x00"[..], b"\x12\x01a", b"\x1a\x01a", b"\x0a\x02\x12\x00", b"\x10\x01"] {
            assert_ne!(contents(&UNARY_REQUEST, value).unwrap(), empty, "{value:?}");
        }
    }

    #[test]
    fn damaged_messages_are_refused() {
        for value in [&b"\x0a"[..], b"\x0a\x05", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x07"] {
            assert!(contents(&UNARY_REQUEST, value).is_err(), "{value:?}");
        }
        assert_eq!(contents(&UNARY_REQUEST, b"\x0a\x05\x0a\x03\x0a\x01\xff"), Err(TreeError::NotText));
        let unknown = tree_of_contents(&Any { type_url: "x/y".to_owned(), value: Vec::new() });
        assert!(unknown.is_err());
    }
}
