//! Test names and selectors. A uid is valid only for one build at one path, so names are made of type,
//! method, display name, and the position among equal names.

use std::collections::HashMap;

use heeler_protocol::mtp::TestNode;
use serde_json::{Value, json};

/// How one build of an application identifies a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) uid: String,
    pub(super) display_name: String,
    /// Type and method without parameters, as in stack traces.
    pub(super) function: Option<String>,
}

impl Selector {
    pub(super) fn of(node: &TestNode) -> Self {
        let function = node.location_type.as_ref().zip(node.location_method.as_ref());
        Self {
            uid: node.uid.clone(),
            display_name: node.display_name.clone(),
            function: function.map(|(kind, method)| format!("{kind}.{}", bare(method))),
        }
    }

    /// Returns the selector in the text form that the coordinator keeps.
    pub(super) fn to_text(&self) -> String {
        json!([self.uid, self.display_name, self.function]).to_string()
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let part = |index: usize| value[index].as_str().map(str::to_owned);
        Some(Self { uid: part(0)?, display_name: part(1)?, function: part(2) })
    }

    /// Returns the test node to send in a run request. The application ignores members other than these, and
    /// rejects an incomplete location.
    pub(super) fn to_node(&self) -> Value {
        json!({"uid": self.uid, "display-name": self.display_name})
    }
}

/// Returns a method name without its parameters.
fn bare(method: &str) -> &str {
    method.split(['(', '`', '<']).next().unwrap_or(method)
}

/// Returns the test names in order: type and method (or row), then a number for repeated names.
pub(super) fn names(nodes: &[TestNode]) -> Vec<String> {
    let plain: Vec<String> = nodes.iter().map(|node| name(node, false)).collect();
    let mut methods: HashMap<&str, Vec<Option<&str>>> = HashMap::new();
    for (name, node) in plain.iter().zip(nodes) {
        methods.entry(name).or_default().push(node.location_method.as_deref());
    }
    let is_overloaded = |name: &str| methods[name].iter().any(|method| *method != methods[name][0]);
    let named: Vec<String> = plain
        .iter()
        .zip(nodes)
        .map(|(plain, node)| if is_overloaded(plain) { name(node, true) } else { plain.clone() })
        .collect();
    let mut seen: HashMap<&str, usize> = HashMap::new();
    named
        .iter()
        .map(|one| {
            let count = seen.entry(one.as_str()).or_default();
            *count += 1;
            if *count == 1 { one.clone() } else { format!("{one} #{count}") }
        })
        .collect()
}

/// Returns the name of one test: `Namespace.Type.Method`, followed by the row's values if the display name
/// has them, or by the display name in brackets if that is a different text.
fn name(node: &TestNode, has_parameters: bool) -> String {
    let (Some(kind), Some(method)) = (&node.location_type, &node.location_method) else {
        return if node.display_name.is_empty() { node.uid.clone() } else { node.display_name.clone() };
    };
    let display = node.display_name.strip_prefix(&format!("{kind}.")).unwrap_or(&node.display_name);
    let function = bare(method);
    let shown = if has_parameters { method.as_str() } else { function };
    match display.strip_prefix(function) {
        Some("") => format!("{kind}.{shown}"),
        Some(row) if row.starts_with([' ', '(', '<']) => format!("{kind}.{shown}{row}"),
        _ => format!("{kind}.{shown} [{display}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(display: &str, method: &str) -> TestNode {
        TestNode {
            uid: format!("uid of {display}"),
            display_name: display.into(),
            location_type: Some("N.T".into()),
            location_method: Some(method.into()),
            ..TestNode::default()
        }
    }

    #[test]
    fn name_has_type_method_and_row() {
        let nodes = [
            node("One", "One"),
            node("N.T.Two", "Two"),
            node("Adds (1,2)", "Adds(System.Int32,System.Int32)"),
            node("N.T.Adds(a: 1)", "Adds(System.Int32)"),
            node("a text", "Shown"),
            node("twin", "Rows(System.String)"),
            node("twin", "Rows(System.String)"),
            node("Same", "Same"),
            node("Same", "Same(System.Int32)"),
        ];
        let expected = [
            "N.T.One",
            "N.T.Two",
            "N.T.Adds (1,2)",
            "N.T.Adds(a: 1)",
            "N.T.Shown [a text]",
            "N.T.Rows [twin]",
            "N.T.Rows [twin] #2",
            "N.T.Same",
            "N.T.Same(System.Int32)",
        ];
        assert_eq!(names(&nodes), expected);
        let plain = TestNode { uid: "u".into(), ..TestNode::default() };
        assert_eq!(names(&[plain]), ["u"]);
    }

    #[test]
    fn selector_round_trips() {
        let selector = Selector::of(&node("ü \"x\"", "Rows(System.String)"));
        assert_eq!(selector.function.as_deref(), Some("N.T.Rows"));
        assert_eq!(Selector::read(&selector.to_text()), Some(selector));
        assert_eq!(Selector::read("x"), None);
    }
}
