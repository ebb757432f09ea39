//! Values that a function of Rust can return instead of running, by its return type.

use super::table::text_of;
use tree_sitter::Node;

/// Returns values of a type; none for types that have no value everybody can make.
pub(super) fn of_type(returned: Option<Node<'_>>, text: &str) -> Vec<String> {
    let Some(node) = returned else { return vec![String::new()] };
    let values: &[&str] = match node.kind() {
        "unit_type" => &[""],
        "primitive_type" => of_primitive(text_of(node, text)),
        "reference_type" => of_reference(node, text),
        "generic_type" | "type_identifier" | "scoped_type_identifier" => of_named(node, text),
        "tuple_type" => &["Default::default()"],
        _ => &[],
    };
    values.iter().map(|&value| value.to_owned()).collect()
}

fn of_primitive(name: &str) -> &'static [&'static str] {
    match name {
        "bool" => &["true", "false"],
        "f32" | "f64" => &["0.0", "1.0"],
        "char" => &["Default::default()"],
        "str" => &[],
        _ => &["0", "1"],
    }
}

fn of_reference(node: Node<'_>, text: &str) -> &'static [&'static str] {
    let mut cursor = node.walk();
    let is_mutable = node.named_children(&mut cursor).any(|child| child.kind() == "mutable_specifier");
    let Some(target) = node.child_by_field_name("type").filter(|_| !is_mutable) else { return &[] };
    match target.kind() {
        "primitive_type" if text_of(target, text) == "str" => &["\"\""],
        // An array without length is a slice.
        "array_type" if target.child_by_field_name("length").is_none() => &["&[]"],
        _ => &[],
    }
}

fn of_named(node: Node<'_>, text: &str) -> &'static [&'static str] {
    let name = node.child_by_field_name("type").filter(|_| node.kind() == "generic_type").unwrap_or(node);
    let name = text_of(name, text);
    match name.rsplit("::").next().unwrap_or(name).trim() {
        "Option" => &["None"],
        "Result" => &["Ok(Default::default())"],
        "Vec" => &["Vec::new()"],
        "String" => &["String::new()"],
        _ => &["Default::default()"],
    }
}
