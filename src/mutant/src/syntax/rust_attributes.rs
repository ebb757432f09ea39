//! Attributes of Rust that take code out of a build, out of the product, or out of mutation testing.

use super::table::{Gate, text_of};
use crate::cfg::{Configuration, Presence};
use tree_sitter::Node;

/// Returns what an attribute says about what it belongs to.
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
    // Also behind `cfg_attr`, where it is usually written because the attribute's crate is optional.
    if words.split(|letter: char| letter.is_whitespace()).collect::<String>().contains("mutants::skip") {
        return Gate::Ignored("suppressed by #[mutants::skip]".into());
    }
    match path.rsplit("::").next().unwrap_or(path).trim() {
        "test" | "bench" | "rstest" | "test_case" | "quickcheck" | "panic_handler" | "naked" => Gate::Closed,
        _ => Gate::Open,
    }
}
