//! Rust attributes that exclude code from a build, from the product, or from mutation testing.

use super::table::{Gate, text_of};
use crate::cfg::{Configuration, Presence};
use tree_sitter::Node;

/// Returns how an attribute affects its item.
pub(super) fn gate(attribute: Node<'_>, text: &str, configuration: &Configuration) -> Gate {
    let mut cursor = attribute.walk();
    let Some(inner) = attribute.named_children(&mut cursor).find(|child| child.kind() == "attribute") else {
        return Gate::Open;
    };
    let words = text_of(inner, text).trim();
    let (path, rest) = words.split_at(words.find(['(', '=', '[', '{']).unwrap_or(words.len()));
    let (path, rest) = (path.trim(), rest.trim());
    if path == "cfg" {
        let condition = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or_default();
        return match configuration.presence(condition) {
            Presence::Product => Gate::Open,
            Presence::TestOnly => Gate::Closed,
            Presence::Absent => Gate::Ignored(format!("not compiled: #[cfg({condition})]").into()),
        };
    }
    // Also matches inside `cfg_attr`, which is used if the attribute's crate is an optional dependency.
    if words.split(|letter: char| letter.is_whitespace()).collect::<String>().contains("mutants::skip") {
        return Gate::Ignored("suppressed by #[mutants::skip]".into());
    }
    match path.rsplit("::").next().unwrap_or(path).trim() {
        "test" | "bench" | "rstest" | "test_case" | "quickcheck" | "panic_handler" | "naked" => Gate::Closed,
        _ => Gate::Open,
    }
}
