//! Test changes encoded as JSON for the journal and the client, including the members that the client added.

use std::{collections::HashMap, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{NodeType, TestNode, key};
use crate::rpc::BorrowedText;

/// Initial buffer size; a change without output is seldom larger.
const CHANGE_CAPACITY_BYTES: usize = 512;
/// Maximum size of the client's own members of one test. Frameworks' keys take a few hundred bytes; larger
/// data belongs in a file.
pub const CLIENT_MEMBERS_LIMIT_BYTES: usize = 8 << 10;
/// Maximum number of the client's own members of one test.
const CLIENT_MEMBERS_LIMIT: usize = 64;
/// Maximum nesting depth of such a member: readers have limits of their own, and the node is already nested
/// inside other values.
const CLIENT_MEMBERS_DEPTH_LIMIT: usize = 64;

/// Change encoded as JSON: `{"parent":…,"node":{…}}`.
#[derive(Debug, Clone)]
pub struct EncodedChange(Box<RawValue>);

impl EncodedChange {
    /// Returns the change of a node below a group, with the members that a client added to the test.
    #[must_use]
    pub fn new(parent: Option<&str>, node: &TestNode, foreign: Option<&str>) -> Self {
        let text = String::from_utf8(encode_change_in_group(parent, node, foreign)).expect("JSON is text");
        Self(RawValue::from_string(text).expect("it was just encoded"))
    }

    /// Returns the change of a group.
    #[must_use]
    pub fn group(parent: Option<&str>, uid: &str, name: &str) -> Self {
        Self::new(parent, &group_node(uid, name), None)
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.get().as_bytes()
    }
}

impl PartialEq for EncodedChange {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Serialize for EncodedChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EncodedChange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

/// Returns the node of a group: a suite, a class, a module.
#[must_use]
pub fn group_node(uid: &str, name: &str) -> TestNode {
    TestNode {
        uid: uid.to_owned(),
        display_name: name.to_owned(),
        node_type: NodeType::Group,
        ..TestNode::default()
    }
}

/// Returns the name of a group within its suite, without the separators at either end; for the suite itself,
/// the suite's own name.
#[must_use]
pub fn group_path<'a>(uid: &'a str, suite: &str) -> &'a str {
    let path = uid.strip_prefix(suite).and_then(|rest| rest.strip_prefix("::")).unwrap_or(uid);
    let path = if path.is_empty() { uid } else { path };
    path.strip_suffix("::").or_else(|| path.strip_suffix('.')).unwrap_or(path)
}

/// Encodes one top-level change as JSON for the journal and the client.
#[must_use]
pub fn encode_change(node: &TestNode) -> Vec<u8> {
    encode_change_in_group(None, node, None)
}

/// Encodes one change as JSON; `format_error` are members as [`RequestedNode`] reads them.
#[must_use]
pub fn encode_change_in_group(parent: Option<&str>, node: &TestNode, foreign: Option<&str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct BorrowedChange<'a> {
        parent: Option<&'a str>,
        node: &'a TestNode,
    }
    let mut out = Vec::with_capacity(CHANGE_CAPACITY_BYTES);
    serde_json::to_writer(&mut out, &BorrowedChange { parent, node })
        .expect("a node is a struct with text keys");
    if let Some(foreign) = foreign {
        let end = out.split_off(out.len() - "}}".len());
        out.push(b',');
        out.extend_from_slice(foreign.as_bytes());
        out.extend_from_slice(&end);
    }
    out
}

/// Test selector of a request: a uid, and the members that are not Heeler's, to be returned unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestedNode {
    /// Uid of a test, or of a group to select all tests below it.
    pub uid: String,
    /// Client's own members, `"name":value,…`, with the values as the client wrote them; `None` if there are
    /// none. If a name occurs twice, the last one counts.
    pub client_members: Option<Arc<str>>,
}

/// Members that the client added to the tests of a request, by uid.
pub type ClientMembers = HashMap<String, Arc<str>>;

impl<'de> Deserialize<'de> for RequestedNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RequestedNodeVisitor)
    }
}

impl Serialize for RequestedNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = format!("{{\"uid\":{}", serde_json::Value::from(self.uid.as_str()));
        if let Some(foreign) = &self.client_members {
            text.push(',');
            text.push_str(foreign);
        }
        text.push('}');
        RawValue::from_string(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

struct RequestedNodeVisitor;

impl<'de> Visitor<'de> for RequestedNodeVisitor {
    type Value = RequestedNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a test node with a member \"uid\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RequestedNode, A::Error> {
        let mut uid: Option<String> = None;
        let mut foreign: Vec<(String, &'de RawValue)> = Vec::new();
        let (mut bytes, mut count) = (0, 0);
        while let Some(BorrowedText(name)) = map.next_key()? {
            if name == "uid" {
                uid = Some(map.next_value()?);
            } else if is_reserved_member(&name) {
                map.next_value::<IgnoredAny>()?;
            } else {
                let value: &'de RawValue = map.next_value()?;
                (bytes, count) = (bytes + name.len() + value.get().len(), count + 1);
                if bytes <= CLIENT_MEMBERS_LIMIT_BYTES && count <= CLIENT_MEMBERS_LIMIT {
                    foreign.retain(|(known, _)| *known != name);
                    foreign.push((name.into_owned(), value));
                }
            }
        }
        let uid = uid.ok_or_else(|| A::Error::missing_field("uid"))?;
        if bytes > CLIENT_MEMBERS_LIMIT_BYTES {
            return Err(A::Error::custom(format_args!(
                "the client's own members of the test {uid:?} take {bytes} bytes, more than {CLIENT_MEMBERS_LIMIT_BYTES}"
            )));
        }
        if count > CLIENT_MEMBERS_LIMIT {
            return Err(A::Error::custom(format_args!(
                "the test {uid:?} has {count} members of the client's own, more than {CLIENT_MEMBERS_LIMIT}"
            )));
        }
        if foreign.iter().any(|(_, value)| nesting_depth(value.get()) > CLIENT_MEMBERS_DEPTH_LIMIT) {
            return Err(A::Error::custom(format_args!(
                "a member of the test {uid:?} nests deeper than {CLIENT_MEMBERS_DEPTH_LIMIT} levels"
            )));
        }
        Ok(RequestedNode { uid, client_members: join_members(&foreign) })
    }
}

fn join_members(members: &[(String, &RawValue)]) -> Option<Arc<str>> {
    let member = |(name, value): &(String, &RawValue)| {
        format!("{}:{}", serde_json::Value::from(name.as_str()), value.get())
    };
    let all: Vec<_> = members.iter().map(member).collect();
    (!all.is_empty()).then(|| all.join(",").into())
}

/// Returns whether a member of this name belongs to the protocol or to Heeler, so that the client's is not
/// kept.
fn is_reserved_member(name: &str) -> bool {
    const PREFIXES: [&str; 3] = [key::OWN_PREFIX, "attachments.", "retry."];
    super::node::is_field(name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the nesting depth of valid JSON.
fn nesting_depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut is_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !is_text => depth -= 1,
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mtp::{ExecutionState, NodeChange};

    fn read(text: &str) -> Result<RequestedNode, String> {
        serde_json::from_str(text).map_err(|error: serde_json::Error| error.to_string())
    }

    #[test]
    fn unknown_members_are_returned_unchanged() {
        let asked = read(
            r#"{"x.big":12345678901234567890123,"uid":"s::t","display-name":"no","x.b":{ "a" : [1.0,"]\"}"]},"heeler.worker":9,"attachments.0.uri":"u","traits":[],"x.\"q":null,"x.b":1e2}"#,
        )
        .unwrap();
        assert_eq!(
            asked.client_members.as_deref(),
            Some(r#""x.big":12345678901234567890123,"x.\"q":null,"x.b":1e2"#)
        );
        let node = TestNode::test("s::t", "t", ExecutionState::Passed);
        let json =
            String::from_utf8(encode_change_in_group(Some("s::"), &node, asked.client_members.as_deref()))
                .unwrap();
        assert!(json.starts_with(r#"{"parent":"s::","node":{"uid":"s::t","#), "{json}");
        assert!(json.ends_with(r#","x.big":12345678901234567890123,"x.\"q":null,"x.b":1e2}}"#), "{json}");
        let change: NodeChange = serde_json::from_str(&json).unwrap();
        assert_eq!(change.node.members["x.b"], 100.0);
        let again: RequestedNode = serde_json::from_str(&serde_json::to_string(&asked).unwrap()).unwrap();
        assert_eq!(again, asked);
        assert_eq!(read(r#"{"uid":"u"}"#), Ok(RequestedNode { uid: "u".into(), client_members: None }));
    }

    #[test]
    fn client_members_beyond_limits_are_refused() {
        let text = |bytes: usize| format!(r#"{{"uid":"s::t","x":"{}"}}"#, "y".repeat(bytes));
        assert!(read(&text(CLIENT_MEMBERS_LIMIT_BYTES - 3)).is_ok());
        let error = read(&text(CLIENT_MEMBERS_LIMIT_BYTES)).unwrap_err();
        assert!(error.contains("\"s::t\"") && error.contains("8192"), "{error}");
        let deep = |levels| format!(r#"{{"uid":"u","x":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
        assert!(read(&deep(64)).is_ok());
        assert!(read(&deep(65)).unwrap_err().contains("deeper than 64"));
        assert!(read(r#"{"x":1}"#).unwrap_err().contains("uid"));
    }

    #[test]
    fn encoded_change_round_trips_in_other_messages() {
        let change = EncodedChange::group(None, "s::", "s");
        let text = serde_json::to_string(&[&change]).unwrap();
        assert_eq!(text, r#"[{"parent":null,"node":{"uid":"s::","display-name":"s","node-type":"group"}}]"#);
        assert_eq!(serde_json::from_str::<Vec<EncodedChange>>(&text).unwrap(), [change]);
    }
}
