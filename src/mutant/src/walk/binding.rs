//! Adds the parentheses that a mutant's displayed text needs: replacing the first operator of `a & b ^ c`
//! gives `(a | b) ^ c`.

use super::source_view::SourceView;
use std::ops::Range;
use tree_sitter::Node;

/// The side of an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

impl SourceView<'_> {
    /// Returns the text of an expression with another operator, and its byte range, if the text needs
    /// parentheses that the original does not.
    pub(super) fn with_needed_parentheses(
        &self,
        node: Node<'_>,
        [left, operator, right]: [Node<'_>; 3],
        other: &str,
    ) -> Option<(Range<usize>, String)> {
        let binds = self.binding(other)?;
        let is_needed = |operand: Node<'_>, side: Side| match self.operator_of(operand) {
            Some(inner) => self.needs_parentheses(self.binding(inner), binds, side),
            // `a as u8 < b` would parse as generic arguments.
            None => false,
        };
        let is_cast = matches!(other, "<" | "<<") && ends_with_cast(left);
        let needed = [is_needed(left, Side::Left) || is_cast, is_needed(right, Side::Right)];
        let around = node.parent().and_then(|parent| Some((parent, self.operator_of(parent)?)));
        let is_whole_needed = around.is_some_and(|(parent, outer)| {
            let is_first = parent.start_byte() == node.start_byte();
            let side = if is_first { Side::Left } else { Side::Right };
            let outer = self.binding(outer);
            outer.is_none_or(|outer| self.needs_parentheses(Some(binds), outer, side))
        });
        if needed == [false, false] && !is_whole_needed {
            return None;
        }
        let written = |operand: Node<'_>, is_needed: bool| {
            let text = self.text_of(operand);
            if is_needed { format!("({text})") } else { text.to_owned() }
        };
        let between = |from: Node<'_>, to: Node<'_>| &self.text[from.end_byte()..to.start_byte()];
        let code = [
            written(left, needed[0]).as_str(),
            between(left, operator),
            other,
            between(operator, right),
            written(right, needed[1]).as_str(),
        ]
        .concat();
        let code = if is_whole_needed { format!("({code})") } else { code };
        Some((node.byte_range(), code))
    }

    /// Returns whether an operand with an operator needs parentheses next to another operator.
    fn needs_parentheses(&self, inner: Option<usize>, outer: usize, side: Side) -> bool {
        let Some(inner) = inner else { return true };
        let group = self.syntax.bindings[outer];
        // Rust has no `a < b == c`, and in Python it means `a < b and b == c`.
        let is_comparison = group.contains(&"<") && group.contains(&"==");
        let divided = if group.contains(&"**") { Side::Left } else { Side::Right };
        inner < outer || (inner == outer && (is_comparison || side == divided))
    }

    /// Returns the precedence of an operator.
    fn binding(&self, operator: &str) -> Option<usize> {
        self.syntax.bindings.iter().position(|group| group.contains(&operator))
    }

    /// Returns the operator of a binary expression.
    fn operator_of(&self, node: Node<'_>) -> Option<&str> {
        if !matches!(
            node.kind(),
            "binary_expression" | "binary_operator" | "boolean_operator" | "comparison_operator"
        ) {
            return None;
        }
        let operator = node.child_by_field_name("operator").or_else(|| node.child_by_field_name("operators"));
        operator.map(|operator| self.text_of(operator))
    }
}

/// Returns whether an operand ends with a Rust cast.
fn ends_with_cast(operand: Node<'_>) -> bool {
    let mut node = Some(operand);
    while let Some(one) = node.filter(|one| one.end_byte() == operand.end_byte()) {
        if one.kind() == "type_cast_expression" {
            return true;
        }
        let last = one.child_count().checked_sub(1);
        node = last.and_then(|last| one.child(last));
    }
    false
}
