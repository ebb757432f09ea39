//! Handles places where the parser sees a binary operator, and the compiler a unary one:
//!
//! ```text
//! break -n;            the value of the loop is -n
//! m! { a } -n          the macro is a statement, and so is a block with a label
//! ```

use super::table::text_of;
use std::borrow::Cow;
use tree_sitter::Node;

/// Replaces binary-looking operators at the beginning of a `break` value with `!`, which can only be unary;
/// `None` if there are none. Replacements inside comments and strings are harmless.
pub(super) fn with_values_of_breaks(text: &str) -> Option<String> {
    let mut read = Cow::Borrowed(text);
    for (at, word) in text.match_indices("break") {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let rest = &text[at + word.len()..];
        if text[..at].ends_with(is_part) || rest.starts_with(is_part) {
            continue;
        }
        let value = without_label(rest.trim_start());
        let start = text.len() - value.len();
        let length = value.bytes().take_while(|byte| matches!(byte, b'-' | b'&' | b'*')).count();
        // The parser handles these correctly.
        let behind = value[length..].trim_start();
        if ["mut", "raw", "'"].iter().any(|word| behind.starts_with(word)) {
            continue;
        }
        read.to_mut().replace_range(start..start + length, &"!".repeat(length));
    }
    match read {
        Cow::Borrowed(_) => None,
        Cow::Owned(read) => (read != text).then_some(read),
    }
}

/// Skips a label, if there is one.
fn without_label(text: &str) -> &str {
    let Some(label) = text.strip_prefix('\'') else { return text };
    let behind = label.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == '_');
    // Otherwise it is a character literal.
    if behind.starts_with('\'') { text } else { behind.trim_start() }
}

/// Returns whether an operator is really binary.
pub(super) fn is_between_operands(operator: Node<'_>, text: &str) -> bool {
    let Some(first) = operator.child_by_field_name("left") else { return false };
    if first.kind() == "break_expression" {
        return false;
    }
    let first = leftmost(first);
    let is_whole_statement = match first.kind() {
        "macro_invocation" => text_of(first, text).ends_with('}'),
        "block" => first.child(0).is_some_and(|child| child.kind() == "label"),
        _ => false,
    };
    !(is_whole_statement && begins_statement(operator))
}

/// Returns the leftmost operand of nested binary expressions.
fn leftmost(node: Node<'_>) -> Node<'_> {
    let mut node = node;
    while node.kind() == "binary_expression" {
        let Some(left) = node.child_by_field_name("left") else { break };
        node = left;
    }
    node
}

/// Returns whether an expression begins a statement or the value of a block.
fn begins_statement(expression: Node<'_>) -> bool {
    let mut node = expression;
    while let Some(around) = node.parent() {
        if around.kind() == "block" {
            return true;
        }
        if around.start_byte() != node.start_byte() {
            return false;
        }
        node = around;
    }
    false
}

/// Returns whether a `break` and a `continue` are both valid here. Excludes blocks, which have no next
/// iteration, and loops with a value, because a plain `break` has none.
pub(super) fn is_loop_jump(jump: Node<'_>, text: &str) -> bool {
    let Some(target) = target_of(jump, text) else { return false };
    target.kind() != "block" && !has_value(jump) && !leaves_with_value(target, target, text)
}

/// Returns the loop or block that a `break` or `continue` targets.
fn target_of<'tree>(jump: Node<'tree>, text: &str) -> Option<Node<'tree>> {
    let label = label_of(jump, text);
    let around = std::iter::successors(jump.parent(), |node| node.parent());
    let mut inside = around.take_while(|node| !matches!(node.kind(), "function_item" | "closure_expression"));
    inside.find(|node| match (node.kind(), label) {
        ("loop_expression" | "while_expression" | "for_expression", None) => true,
        ("loop_expression" | "while_expression" | "for_expression" | "block", Some(label)) => {
            label_of(*node, text) == Some(label)
        }
        _ => false,
    })
}

fn label_of<'text>(node: Node<'_>, text: &'text str) -> Option<&'text str> {
    let mut cursor = node.walk();
    let label = node.named_children(&mut cursor).find(|child| child.kind() == "label");
    label.map(|label| text_of(label, text))
}

fn has_value(jump: Node<'_>) -> bool {
    let mut cursor = jump.walk();
    jump.named_children(&mut cursor).any(|child| child.kind() != "label")
}

/// Returns whether a `break` inside a node leaves the loop with a value.
fn leaves_with_value(target: Node<'_>, node: Node<'_>, text: &str) -> bool {
    if node.kind() == "break_expression" && has_value(node) && target_of(node, text) == Some(target) {
        return true;
    }
    let mut cursor = node.walk();
    node.named_children(&mut cursor).any(|child| leaves_with_value(target, child, text))
}
