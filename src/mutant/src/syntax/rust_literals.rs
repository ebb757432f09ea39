//! Operators on literals of Rust whose meaning depends on what is around them: guards stand around all of it.
//!
//! ```text
//! -3_000_000_000 as i64    the literal has the type of the cast; through a `match` it would be an i32
//! &(1 + 2), &[true]        the value is a static one, made by the compiler; behind a `match` it is none
//! ```

use tree_sitter::Node;

/// Of how many bytes such an expression is at most: each mutant of it holds a copy.
const LONGEST: usize = 200;

/// Returns the expression around a node that a guard must not divide; `None` if that is the node itself.
pub(super) fn undivided(node: Node<'_>) -> Option<Node<'_>> {
    static_reference(node).or_else(|| cast(node))
}

/// Returns the cast of a literal with operators before it.
fn cast(node: Node<'_>) -> Option<Node<'_>> {
    let mut operand = node;
    while is_sign(operand) {
        operand = operand.named_child(0)?;
    }
    if !matches!(operand.kind(), "integer_literal" | "float_literal") {
        return None;
    }
    let mut around = node.parent()?;
    while is_sign(around) {
        around = around.parent()?;
    }
    (around.kind() == "type_cast_expression").then_some(around)
}

/// Returns whether a node is an operator before its operand, or parentheses.
fn is_sign(node: Node<'_>) -> bool {
    matches!(node.kind(), "unary_expression" | "parenthesized_expression")
}

/// Returns the outermost reference to a value of literals only that a node is a part of.
fn static_reference(node: Node<'_>) -> Option<Node<'_>> {
    let mut found = None;
    let mut around = node.parent();
    while let Some(one) = around.filter(|one| one.byte_range().len() <= LONGEST && is_made_of_literals(*one))
    {
        if one.kind() == "reference_expression" {
            found = Some(one);
        }
        around = one.parent();
    }
    found
}

fn is_made_of_literals(node: Node<'_>) -> bool {
    match node.kind() {
        "boolean_literal" | "integer_literal" | "float_literal" | "char_literal" | "string_literal" => true,
        "reference_expression" => {
            let mut cursor = node.walk();
            let is_mutable = node.children(&mut cursor).any(|child| child.kind() == "mutable_specifier");
            !is_mutable && node.child_by_field_name("value").is_some_and(is_made_of_literals)
        }
        "type_cast_expression" => node.child_by_field_name("value").is_some_and(is_made_of_literals),
        "unary_expression"
        | "parenthesized_expression"
        | "binary_expression"
        | "array_expression"
        | "tuple_expression" => {
            let mut cursor = node.walk();
            node.named_children(&mut cursor).all(is_made_of_literals)
        }
        _ => false,
    }
}
