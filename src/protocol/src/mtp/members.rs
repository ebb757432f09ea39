//! Members of a node that have no field in `TestNode`.

use std::{borrow::Cow, fmt, ops::Index};

use serde_json::Value;

use super::node::key;

/// Maximum number of members that are read, ten times more than any node of Heeler's has. Further members are
/// dropped, because lookups would take too long.
const MEMBERS_LIMIT: usize = 1024;

/// Additional members of a node, with unique names. A node has a few members, and a run has a hundred
/// thousand nodes. So the members are stored in one small block and searched linearly, and Heeler's own names
/// are not copied.
#[derive(Clone, Default)]
pub struct NodeMembers(Vec<(Cow<'static, str>, Value)>);

impl NodeMembers {
    /// Sets a member; returns its previous value.
    pub fn insert(&mut self, name: String, value: Value) -> Option<Value> {
        self.set(Cow::Owned(name), value)
    }

    /// Sets one of Heeler's own members; returns its previous value.
    pub fn set_own(&mut self, name: &'static str, value: impl Into<Value>) -> Option<Value> {
        self.set(Cow::Borrowed(name), value.into())
    }

    /// Sets a member read from a message. Heeler's own names are not copied.
    pub(super) fn insert_read(&mut self, name: &str, value: Value) {
        if self.0.len() >= MEMBERS_LIMIT {
            return;
        }
        let known = key::ALL.into_iter().find(|known| *known == name);
        self.set(known.map_or_else(|| Cow::Owned(name.to_owned()), Cow::Borrowed), value);
    }

    fn set(&mut self, name: Cow<'static, str>, value: Value) -> Option<Value> {
        if let Some((_, known)) = self.0.iter_mut().find(|(known, _)| *known == name) {
            return Some(std::mem::replace(known, value));
        }
        self.0.push((name, value));
        None
    }

    /// Returns a member's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns whether a member with this name exists.
    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns whether the node has no such members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over names and values, ordered by when they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }
}

/// Compares without order, because the order of JSON members has no meaning.
impl PartialEq for NodeMembers {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

impl Index<&str> for NodeMembers {
    type Output = Value;

    /// Returns the member's value, or null if it does not exist, like `serde_json` for objects.
    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}

impl fmt::Debug for NodeMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_is_stored_once_with_latest_value() {
        let mut members = NodeMembers::default();
        assert!(members.is_empty());
        members.insert_read(key::SUITE, "a".into());
        members.insert_read("vendor", 1.into());
        assert_eq!(members.insert(key::SUITE.to_owned(), "b".into()), Some("a".into()));
        assert_eq!(members.set_own(key::WORKER, 2), None);
        let names: Vec<_> = members.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [key::SUITE, "vendor", key::WORKER]);
        assert_eq!((&members[key::SUITE], &members["none"]), (&"b".into(), &Value::Null));
        assert!(members.contains_key("vendor") && !members.contains_key("none"));
    }

    #[test]
    fn members_beyond_limit_are_dropped() {
        let mut members = NodeMembers::default();
        (0..3000).for_each(|number: u32| members.insert_read(&number.to_string(), number.into()));
        assert_eq!(members.iter().count(), MEMBERS_LIMIT);
        assert_eq!(members["7"], 7);
    }

    #[test]
    fn member_order_does_not_affect_equality() {
        let of = |names: &[&str]| {
            let mut members = NodeMembers::default();
            names.iter().for_each(|name| members.insert_read(name, (*name).into()));
            members
        };
        assert_eq!(of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(of(&["a"]), of(&["a", "b"]));
        assert_ne!(of(&["a", "c"]), of(&["a", "b"]));
    }
}
