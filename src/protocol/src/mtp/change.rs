//! Nodes of a request with the client's own members, and groups of tests.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{NodeChange, TestNode, key};
use crate::rpc::BorrowedText;

/// Maximum size of the client's own members of one test. Frameworks' keys take a few hundred bytes; larger
/// data belongs in a file.
pub(crate) const CLIENT_MEMBERS_LIMIT_BYTES: usize = 8 << 10;
/// Maximum number of the client's own members of one test.
const CLIENT_MEMBERS_LIMIT: usize = 64;
/// Maximum nesting depth of such a member. Readers have their own limits, and the node is already nested in
/// other values.
const CLIENT_MEMBERS_DEPTH_LIMIT: usize = 64;

/// Returns the name of a group within its suite, without separators at either end. For the suite itself,
/// returns the suite's name.
#[must_use]
pub(crate) fn group_path<'a>(uid: &'a str, suite: &str) -> &'a str {
    let path = uid.strip_prefix(suite).and_then(|rest| rest.strip_prefix("::")).unwrap_or(uid);
    let path = if path.is_empty() { uid } else { path };
    path.strip_suffix("::").or_else(|| path.strip_suffix('.')).unwrap_or(path)
}

/// Encodes a top-level change of a node that Heeler did not render, for benchmarks and tests of clients.
#[must_use]
pub fn encode_change(node: &TestNode) -> Vec<u8> {
    let change = NodeChange { parent: None, node: node.clone() };
    serde_json::to_vec(&change).expect("a node is a struct with text keys")
}

/// Test selector of a request: a uid, and the client's own members, which are returned unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestedNode {
    /// Uid of a test, or of a group to select all its tests.
    pub uid: String,
    /// Client's own members as `"name":value,…`, with the values exactly as the client wrote them; `None` if
    /// there are none. The last of repeated names counts.
    pub client_members: Option<String>,
}

/// Client's own members of tests and groups, by uid: `"name":value,…`. The members belong to the client's
/// session. They are sent separately from the tests to the processes that report to the client directly, and
/// are never stored in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientMembers(BTreeMap<String, String>);

impl ClientMembers {
    /// Sets the members of a test or a group.
    pub fn insert(&mut self, uid: String, members: String) {
        self.0.insert(uid, members);
    }

    /// Adds the members of other tests and groups.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Returns the members of a test or a group.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&str> {
        self.0.get(uid).map(String::as_str)
    }

    /// Returns whether the client added no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns only the members of these tests and groups.
    #[must_use]
    pub fn subset<'a>(&self, uids: impl Iterator<Item = &'a str>) -> Self {
        if self.is_empty() {
            return Self::default();
        }
        let members = uids.filter_map(|uid| self.0.get_key_value(uid));
        Self(members.map(|(uid, members)| (uid.clone(), members.clone())).collect())
    }
}

impl<'de> Deserialize<'de> for RequestedNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RequestedNodeVisitor)
    }
}

impl Serialize for RequestedNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = format!("{{\"uid\":{}", serde_json::Value::from(self.uid.as_str()));
        if let Some(members) = &self.client_members {
            text.push(',');
            text.push_str(members);
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
        let mut members: Vec<(String, &'de RawValue)> = Vec::new();
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
                    members.retain(|(known, _)| *known != name);
                    members.push((name.into_owned(), value));
                }
            }
        }
        let uid = uid.ok_or_else(|| A::Error::missing_field("uid"))?;
        if bytes > CLIENT_MEMBERS_LIMIT_BYTES {
            return Err(A::Error::custom(format_args!(
                "the client's own members of the test {uid:?} have {bytes} bytes (limit: {CLIENT_MEMBERS_LIMIT_BYTES})"
            )));
        }
        if count > CLIENT_MEMBERS_LIMIT {
            return Err(A::Error::custom(format_args!(
                "the test {uid:?} has {count} members of the client's own (limit: {CLIENT_MEMBERS_LIMIT})"
            )));
        }
        if members.iter().any(|(_, value)| nesting_depth(value.get()) > CLIENT_MEMBERS_DEPTH_LIMIT) {
            return Err(A::Error::custom(format_args!(
                "a member of the test {uid:?} is nested more than {CLIENT_MEMBERS_DEPTH_LIMIT} levels deep"
            )));
        }
        Ok(RequestedNode { uid, client_members: join_members(&members) })
    }
}

fn join_members(members: &[(String, &RawValue)]) -> Option<String> {
    let member = |(name, value): &(String, &RawValue)| {
        format!("{}:{}", serde_json::Value::from(name.as_str()), value.get())
    };
    let all: Vec<_> = members.iter().map(member).collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// Returns whether a member name belongs to the protocol or to Heeler. Such members of the client are
/// dropped.
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
    use crate::mtp::{NodeDescription, render_discovered};

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
        let test = NodeDescription {
            uid: "s::t",
            parent: Some("s::"),
            client_members: asked.client_members.as_deref(),
            ..NodeDescription::default()
        };
        let mut json = Vec::new();
        render_discovered(&mut json, &test);
        let json = String::from_utf8(json).unwrap();
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
        assert!(read(&deep(65)).unwrap_err().contains("more than 64 levels deep"));
        assert!(read(r#"{"x":1}"#).unwrap_err().contains("uid"));
    }

    #[test]
    fn subset_has_only_the_named_tests() {
        let mut members = ClientMembers::default();
        for uid in ["a", "b", "c"] {
            members.insert(uid.to_owned(), format!("\"x\":\"{uid}\""));
        }
        let some = members.subset(["b", "unknown"].into_iter());
        assert_eq!((some.get("b"), some.get("a")), (Some(r#""x":"b""#), None));
        let text = serde_json::to_string(&some).unwrap();
        assert_eq!(serde_json::from_str::<ClientMembers>(&text).unwrap(), some);
        assert!(members.subset(std::iter::empty()).is_empty());
    }
}
