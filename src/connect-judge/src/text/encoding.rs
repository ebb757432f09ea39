//! A tree of nodes becomes the bytes of a message, as JSON's rules for protobuf have it: bytes are base64,
//! enumerations are names, integers may be quoted, a null message is an empty one, and an `Any` has its type
//! beside its fields.

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD};
use prost::encoding::{WireType, encode_key, encode_varint};

use super::{
    message_types::{ANY_PREFIX, EnumType, Field, Kind, MessageType, Presence, any_type},
    yaml::{Content, Entry, Node, TextError, parse},
};

const TYPE_KEY: &str = "@type";

/// Returns the bytes of the message that a YAML document describes. Fields are in the order in which the
/// conformance suite writes them: by their numbers, but those of which only one may be set after all others.
///
/// # Errors
/// The text is no such document; the error names the line.
pub(crate) fn encode_document(text: &str, message_type: &MessageType) -> Result<Vec<u8>, TextError> {
    encode_message(&parse(text)?, message_type)
}

/// Returns the bytes of the message that a node describes.
pub(super) fn encode_message(node: &Node, message_type: &MessageType) -> Result<Vec<u8>, TextError> {
    match &node.content {
        Content::Mapping(entries) => encode_fields(entries, message_type, ""),
        _ if node.is_null() => Ok(Vec::new()),
        _ => Err(expected(node, &format!("the fields of {}", message_type.name))),
    }
}

/// Encodes the entries of a mapping but for `without`.
fn encode_fields(entries: &[Entry], message_type: &MessageType, without: &str) -> Result<Vec<u8>, TextError> {
    let mut values: Vec<Option<Vec<u8>>> = message_type.fields.iter().map(|_| None).collect();
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.key != without) {
        let Some(place) = message_type.fields.iter().position(|field| field.is_named(&entry.key)) else {
            let known: Vec<_> = message_type.fields.iter().map(Field::json_name).collect();
            let problem =
                format!("no field {:?} in {}, expected {}", entry.key, message_type.name, known.join(", "));
            return Err(TextError::new(entry.line, problem));
        };
        let field = &message_type.fields[place];
        if let Presence::OneOf(group) = field.presence {
            if let Some((_, other)) = groups.iter().find(|(known, _)| *known == group) {
                let problem = format!("{:?} beside {other:?}, expected one of them", field.name);
                return Err(TextError::new(entry.line, problem));
            }
            groups.push((group, field.name));
        }
        if values[place].is_some() {
            return Err(TextError::new(entry.line, format!("{:?} for a second time", field.name)));
        }
        values[place] = Some(encode_field(&entry.value, field)?);
    }
    let written = message_type.fields.iter().zip(values).filter_map(|(field, value)| Some((field, value?)));
    let (last, first): (Vec<_>, Vec<_>) =
        written.partition(|(field, _)| matches!(field.presence, Presence::OneOf(_)));
    Ok(first.into_iter().chain(last).flat_map(|(_, value)| value).collect())
}

/// Encodes a field with its key; a repeated one as often as it is there.
fn encode_field(node: &Node, field: &Field) -> Result<Vec<u8>, TextError> {
    let mut bytes = Vec::new();
    if field.presence != Presence::Repeated {
        encode_value(node, field, &mut bytes)?;
        return Ok(bytes);
    }
    let Content::Sequence(items) = &node.content else { return Err(expected(node, "a sequence")) };
    for item in items {
        encode_value(item, field, &mut bytes)?;
    }
    Ok(bytes)
}

fn encode_value(node: &Node, field: &Field, out: &mut Vec<u8>) -> Result<(), TextError> {
    let value = match field.kind {
        Kind::Bool => Value::Number(u64::from(boolean(node)?)),
        Kind::Int32 => Value::Number(signed(node, i64::from(i32::MIN), i64::from(i32::MAX))?),
        Kind::Int64 => Value::Number(signed(node, i64::MIN, i64::MAX)?),
        Kind::Uint32 => Value::Number(signed(node, 0, i64::from(u32::MAX))?),
        Kind::Enum(enum_type) => Value::Number(enum_value(node, enum_type)?),
        Kind::Text => Value::Bytes(scalar(node, "a string")?.as_bytes().to_vec()),
        Kind::Bytes => Value::Bytes(base64(node)?),
        Kind::Message(message_type) => Value::Bytes(encode_message(node, message_type)?),
        Kind::Any => Value::Bytes(any(node)?),
    };
    if field.presence == Presence::Implicit && value.is_zero() {
        return Ok(());
    }
    match value {
        Value::Number(number) => {
            encode_key(field.number, WireType::Varint, out);
            encode_varint(number, out);
        }
        Value::Bytes(bytes) => append_bytes(field.number, &bytes, out),
    }
    Ok(())
}

/// A value as it is written.
enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Value {
    fn is_zero(&self) -> bool {
        match self {
            Self::Number(number) => *number == 0,
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }
}

fn append_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn any(node: &Node) -> Result<Vec<u8>, TextError> {
    let entries = match &node.content {
        Content::Mapping(entries) => entries.as_slice(),
        _ if node.is_null() => &[],
        _ => return Err(expected(node, "a message with its \"@type\"")),
    };
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let Some(entry) = entries.iter().find(|entry| entry.key == TYPE_KEY) else {
        return Err(TextError::new(node.line, "a message without \"@type\""));
    };
    let address = scalar(&entry.value, "a type")?;
    let Some(message_type) = any_type(address) else {
        return Err(TextError::new(entry.line, format!("no known message type {address:?}")));
    };
    let value = encode_fields(entries, message_type, TYPE_KEY)?;
    let mut bytes = Vec::new();
    append_bytes(1, format!("{ANY_PREFIX}{}", message_type.name).as_bytes(), &mut bytes);
    if !value.is_empty() {
        append_bytes(2, &value, &mut bytes);
    }
    Ok(bytes)
}

fn scalar<'n>(node: &'n Node, what: &str) -> Result<&'n str, TextError> {
    match &node.content {
        Content::Scalar { text, .. } => Ok(text),
        Content::Sequence(_) | Content::Mapping(_) => Err(expected(node, what)),
    }
}

fn boolean(node: &Node) -> Result<bool, TextError> {
    match &node.content {
        Content::Scalar { text, is_plain: true } if text == "true" => Ok(true),
        Content::Scalar { text, is_plain: true } if text == "false" => Ok(false),
        _ => Err(expected(node, "true or false")),
    }
}

/// Reads an integer within limits, as it is written: negative ones in ten bytes.
fn signed(node: &Node, minimum: i64, maximum: i64) -> Result<u64, TextError> {
    let what = format!("an integer from {minimum} to {maximum}");
    let number = integer(scalar(node, &what)?).filter(|number| (minimum..=maximum).contains(number));
    number.map(i64::cast_unsigned).ok_or_else(|| expected(node, &what))
}

fn integer(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        _ => (10, digits),
    };
    // Not a second sign, which the conversion would take.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    let number = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if is_negative { -number } else { number }).ok()
}

fn enum_value(node: &Node, enum_type: &EnumType) -> Result<u64, TextError> {
    let what = format!("a name that begins with {}", enum_type.prefix);
    let text = scalar(node, &what)?;
    let number = enum_type.number(text).or_else(|| i32::try_from(integer(text)?).ok());
    number.map(|number| i64::from(number).cast_unsigned()).ok_or_else(|| expected(node, &what))
}

fn base64(node: &Node) -> Result<Vec<u8>, TextError> {
    let text = scalar(node, "base64")?;
    let is_for_addresses = text.contains(['-', '_']);
    let encoding = match (is_for_addresses, text.len().is_multiple_of(4)) {
        (false, true) => BASE64,
        (false, false) => BASE64_NOPAD,
        (true, true) => BASE64URL,
        (true, false) => BASE64URL_NOPAD,
    };
    encoding.decode(text.as_bytes()).map_err(|_| expected(node, "base64"))
}

fn expected(node: &Node, what: &str) -> TextError {
    let found = match &node.content {
        Content::Scalar { text, .. } if !node.is_null() => format!("{:?}", shortened(text)),
        _ => node.kind().to_owned(),
    };
    TextError::new(node.line, format!("{found}, expected {what}"))
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::message_types::{CLIENT_REQUEST, CLIENT_RESULT, CONFIG, MESSAGE_CONTENTS, TEST_CASE},
        *,
    };

    #[test]
    fn every_kind_of_value_is_written() {
        let text = "testName: a/b\nhttpVersion: HTTP_VERSION_2\nport: \"8080\"\nserverTlsCert: YWI=\n\
                    service: \"\"\nuse_get_http_method: true\n15:\n- name: x\n  value: [\"1\", 2]\ntimeoutMs: 0\n\
                    cancel:\n  beforeCloseSend:\n";
        let expected = [
            &b"\x0a\x03a/b\x10\x02\x38\x90\x3f\x42\x02ab\x5a\x00\x70\x01"[..],
            b"\x7a\x09\x0a\x01x\x12\x011\x12\x012\x88\x01\x00\x9a\x01\x02\x0a\x00",
        ];
        assert_eq!(encode_document(text, &CLIENT_REQUEST).unwrap(), expected.concat());
        let any =
            "requestMessages:\n- \"@type\": x/connectrpc.conformance.v1.UnaryRequest\n  requestData: YQ";
        let name = "type.googleapis.com/connectrpc.conformance.v1.UnaryRequest";
        let expected = [&b"\x82\x01\x41\x0a\x3a"[..], name.as_bytes(), b"\x12\x03\x12\x01a"].concat();
        assert_eq!(encode_document(any, &CLIENT_REQUEST).unwrap(), expected);
        let negative = encode_document("numUnsentRequests: -1", &CLIENT_RESULT).unwrap();
        assert_eq!(negative, b"\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    }

    #[test]
    fn field_of_which_only_one_may_be_set_is_written_last() {
        let text = "binary: YQ==\ncompression: 2";
        assert_eq!(encode_document(text, &MESSAGE_CONTENTS).unwrap(), b"\x20\x02\x0a\x01a");
    }

    #[test]
    fn null_message_is_there_and_empty() {
        assert_eq!(encode_document("expectedResponse:", &TEST_CASE).unwrap(), b"\x1a\x00");
        assert_eq!(encode_document("expectedResponse: {}", &TEST_CASE).unwrap(), b"\x1a\x00");
        assert_eq!(encode_document("{}", &TEST_CASE).unwrap(), b"");
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        for (text, expected) in [
            (
                "\nfeature: 1",
                "line 2: no field \"feature\" in connectrpc.conformance.v1.Config, expected features",
            ),
            ("features: 1", "line 1: \"1\", expected the fields of connectrpc.conformance.v1.Features"),
            ("features:\n  versions: HTTP_VERSION_1", "line 2: \"HTTP_VERSION_1\", expected a sequence"),
            ("features:\n  codecs: [JSON]", "line 2: \"JSON\", expected a name that begins with CODEC_"),
            ("features:\n  supportsTls: \"true\"", "line 2: \"true\", expected true or false"),
            ("features:\n  supportsTls: true\n  7: true", "line 3: \"supports_tls\" for a second time"),
        ] {
            let error = encode_document(text, &CONFIG).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        for (text, expected) in [
            ("port: -1", "line 1: \"-1\", expected an integer from 0 to 4294967295"),
            ("port: +-1", "line 1: \"+-1\", expected an integer"),
            ("serverTlsCert: \"*\"", "line 1: \"*\", expected base64"),
            ("requestMessages: [{a: 1}]", "line 1: a message without \"@type\""),
            ("requestMessages: [{\"@type\": a/b.C}]", "line 1: no known message type \"a/b.C\""),
            (
                "cancel: {afterCloseSendMs: 1, afterNumResponses: 1}",
                "line 1: \"after_num_responses\" beside \"after_close_send_ms\", expected one of them",
            ),
        ] {
            let error = encode_document(text, &CLIENT_REQUEST).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
