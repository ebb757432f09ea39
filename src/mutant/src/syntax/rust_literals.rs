//! Finds Rust literals whose meaning depends on their context. Guards must enclose the whole expression.
//!
//! ```text
//! -3_000_000_000 as i64    the literal has the type of the cast; through a `match` it would be an i32
//! &(1 + 2), &[true]        the compiler makes the value static, but not the result of a `match`
//! ```

use tree_sitter::Node;

/// Maximum length of such an expression in bytes. Each mutant contains a copy of it.
const LONGEST: usize = 200;

/// Returns the surrounding expression that a guard must not divide; `None` if there is none.
pub(super) fn undivided(node: Node<'_>) -> Option<Node<'_>> {
    static_reference(node).or_else(|| cast(node))
}

/// Returns the cast around a literal with unary operators.
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

/// Returns whether a node is a unary operator or parentheses.
fn is_sign(node: Node<'_>) -> bool {
    matches!(node.kind(), "unary_expression" | "parenthesized_expression")
}

/// Returns the outermost surrounding reference to a value that consists only of literals.
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
