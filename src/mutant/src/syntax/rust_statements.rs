//! Places where the parser reads an operator between two operands, and the compiler one before the operand
//! that follows:
//!
//! ```text
//! break -n;            the value of the loop is -n
//! m! { a } -n          the macro is a statement, and so is a block with a label
//! ```

use super::table::text_of;
use std::borrow::Cow;
use tree_sitter::Node;

/// Returns the text with an operator that can only be before an operand wherever the value of a `break`
/// begins with one that the parser takes for one between operands; `None` if it has none. In comments and
/// texts, what is replaced has no meaning.
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
        // The parser knows these.
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

/// Returns what follows a label, if there is one.
fn without_label(text: &str) -> &str {
    let Some(label) = text.strip_prefix('\'') else { return text };
    let behind = label.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == '_');
    // Otherwise it is a character.
    if behind.starts_with('\'') { text } else { behind.trim_start() }
}

/// Returns whether an operator is between its two operands.
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

/// Returns the first operand of an operator expression.
fn leftmost(node: Node<'_>) -> Node<'_> {
    let mut node = node;
    while node.kind() == "binary_expression" {
        let Some(left) = node.child_by_field_name("left") else { break };
        node = left;
    }
    node
}

/// Returns whether a statement, or the value of a block, begins with an expression.
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
