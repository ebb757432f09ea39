//! Decides whether the compiler or the program evaluates a `const` variable of C++.
//!
//! The compiler evaluates a `const` integer if it can, and a guard in the value would have no effect. Unless
//! the value is needed at compile time, the guard is written so that the compiler can't evaluate it.

use super::table::{Evaluation, text_of};
use std::collections::BTreeSet;
use tree_sitter::Node;

/// Returns whether the compiler or the program evaluates the values of a declaration.
pub(super) fn evaluation(declaration: Node<'_>, text: &str) -> Evaluation {
    if !is_constant(declaration, text) {
        return Evaluation::Usual;
    }
    let mut around = std::iter::successors(declaration.parent(), |node| node.parent());
    let Some(function) = around.find(|node| node.kind() == "function_definition") else {
        return Evaluation::Usual;
    };
    if has_word(function, text, "constexpr") {
        // The compiler may evaluate the whole function.
        return Evaluation::Usual;
    }
    let needed = needed_names(function, text);
    match names(declaration, text).iter().any(|name| needed.contains(name)) {
        true => Evaluation::Compiler,
        false => Evaluation::Program,
    }
}

fn is_constant(declaration: Node<'_>, text: &str) -> bool {
    declaration.kind() == "declaration" && has_word(declaration, text, "const")
}

/// Returns whether a qualifier or specifier appears next to the type of a function or variable.
fn has_word(node: Node<'_>, text: &str, word: &str) -> bool {
    let mut cursor = node.walk();
    node.children(&mut cursor).any(|child| {
        matches!(child.kind(), "type_qualifier" | "storage_class_specifier") && text_of(child, text) == word
    })
}

fn names<'text>(declaration: Node<'_>, text: &'text str) -> Vec<&'text str> {
    let mut cursor = declaration.walk();
    let declarators = declaration.children_by_field_name("declarator", &mut cursor);
    let name = |declarator: Node<'_>| {
        let mut names = BTreeSet::new();
        let declared = declarator.child_by_field_name("declarator").unwrap_or(declarator);
        add_identifiers(declared, text, &mut names);
        names
    };
    declarators.flat_map(name).collect()
}

/// Returns the names whose values a function needs at compile time, including names used in these values.
fn needed_names<'text>(function: Node<'_>, text: &'text str) -> BTreeSet<&'text str> {
    let mut needed = BTreeSet::new();
    let mut constants = Vec::new();
    add_needed(function, text, &mut needed, &mut constants);
    loop {
        let known = needed.len();
        for declaration in &constants {
            if names(*declaration, text).iter().any(|name| needed.contains(name)) {
                add_identifiers(*declaration, text, &mut needed);
            }
        }
        if needed.len() == known {
            return needed;
        }
    }
}

fn add_needed<'tree, 'text>(
    node: Node<'tree>,
    text: &'text str,
    needed: &mut BTreeSet<&'text str>,
    constants: &mut Vec<Node<'tree>>,
) {
    let part = match node.kind() {
        "array_declarator" => node.child_by_field_name("size"),
        "case_statement" => node.child_by_field_name("value"),
        "if_statement" if has_constant_condition(node) => node.child_by_field_name("condition"),
        "declaration" if has_word(node, text, "constexpr") || has_word(node, text, "constinit") => Some(node),
        // Code inside a local class can use only constants of the function.
        "class_specifier" | "struct_specifier" | "union_specifier" | "enum_specifier" => Some(node),
        // The same applies to a lambda without a default capture.
        "lambda_expression" if !captures_all(node, text) => node.child_by_field_name("body"),
        "template_argument_list"
        | "static_assert_declaration"
        | "bitfield_clause"
        | "alignas_qualifier"
        | "noexcept" => Some(node),
        _ => None,
    };
    if let Some(part) = part {
        add_identifiers(part, text, needed);
    }
    if is_constant(node, text) {
        constants.push(node);
    }
    let mut cursor = node.walk();
    for child in node.named_children(&mut cursor) {
        add_needed(child, text, needed, constants);
    }
}

/// Returns whether a statement is `if constexpr` or `if consteval`.
pub(super) fn has_constant_condition(node: Node<'_>) -> bool {
    let mut cursor = node.walk();
    node.kind() == "if_statement"
        && node.children(&mut cursor).any(|child| matches!(child.kind(), "constexpr" | "consteval"))
}

fn captures_all(lambda: Node<'_>, text: &str) -> bool {
    let captures = lambda.child_by_field_name("captures").map_or("", |captures| text_of(captures, text));
    let first = captures.trim_start_matches('[').split([',', ']']).next().unwrap_or_default();
    matches!(first.trim(), "&" | "=")
}

fn add_identifiers<'text>(node: Node<'_>, text: &'text str, found: &mut BTreeSet<&'text str>) {
    // The parser mistakes a variable in template arguments for a type.
    if matches!(node.kind(), "identifier" | "type_identifier") {
        found.insert(text_of(node, text));
    }
    let mut cursor = node.walk();
    for child in node.named_children(&mut cursor) {
        add_identifiers(child, text, found);
    }
}
