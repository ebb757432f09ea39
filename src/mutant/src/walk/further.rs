//! Mutants of match arms, struct expressions, loops and literals.

use super::{
    found_guards::Place,
    mutations::{NodeMutants, arm},
};
use crate::{guard::GuardForm, syntax::Role};
use heeler_mutant_model::{Change, Mutator};
use tree_sitter::Node;

impl NodeMutants<'_, '_> {
    /// Disables a match arm, if a later arm matches everything.
    pub(super) fn match_arm(&mut self, node: Node<'_>) {
        let Some(pattern) = node.child_by_field_name("pattern") else { return };
        // An arm with a condition is disabled by the mutant that makes the condition false.
        let has_condition = pattern.child_by_field_name("condition").is_some();
        if has_condition || node.has_error() || self.is_for_everything(node) || !self.has_default(node) {
            return;
        }
        // In the syntax tree, an arm's attributes are its children.
        let mut scope = self.scope.clone();
        let mut cursor = node.walk();
        for attribute in node.children(&mut cursor).filter(|one| self.source.role(*one) == Role::Attribute) {
            scope.gate = scope.gate.and(self.source.attribute(attribute));
        }
        let change = Change::new(&node.byte_range(), "");
        let bytes = node.byte_range();
        let place = Place { form: GuardForm::Arm, bytes, insert_at: pattern.end_byte() };
        self.guards.add(place, &scope, arm(Mutator::MATCH_ARM, change, String::new()));
    }

    fn is_for_everything(&self, arm: Node<'_>) -> bool {
        arm.child_by_field_name("pattern").is_some_and(|pattern| self.source.text_of(pattern).trim() == "_")
    }

    /// Returns whether a later arm matches everything.
    fn has_default(&self, arm: Node<'_>) -> bool {
        let arms = std::iter::successors(arm.next_named_sibling(), |arm| arm.next_named_sibling());
        arms.filter(|arm| arm.kind() == "match_arm").any(|arm| self.is_for_everything(arm))
    }

    /// Drops a field of a struct expression with a base (`..base`).
    pub(super) fn structure(&mut self, node: Node<'_>) {
        let Some(body) = node.child_by_field_name("body").filter(|_| !node.has_error()) else { return };
        let mut cursor = body.walk();
        let fields: Vec<Node<'_>> = body.named_children(&mut cursor).collect();
        if !fields.iter().any(|field| field.kind() == "base_field_initializer") {
            return;
        }
        let is_field = |kind: &str| matches!(kind, "field_initializer" | "shorthand_field_initializer");
        for field in fields.iter().filter(|field| is_field(field.kind())) {
            let comma = self.source.text[field.end_byte()..].find(',').map_or(0, |at| at + 1);
            let bytes = field.start_byte()..field.end_byte() + comma;
            let before = self.source.part_on_one_line(node.start_byte()..bytes.start);
            let code = before + &self.source.part_on_one_line(bytes.end..node.end_byte());
            self.add_expression(node, arm(Mutator::OBJECT_LITERAL, Change::new(&bytes, ""), code));
        }
    }

    /// Swaps `break` and `continue`.
    pub(super) fn loop_control(&mut self, node: Node<'_>) {
        let word = node.child(0).unwrap_or(node);
        let other = match self.source.text_of(word) {
            "break" => "continue",
            "continue" => "break",
            _ => return,
        };
        if node.has_error() || !(self.source.syntax.is_loop_jump)(node, self.source.text) {
            return;
        }
        let code = other.to_owned() + &self.source.text[word.end_byte()..node.end_byte()];
        let arm = arm(Mutator::LOOP_CONTROL, Change::new(&word.byte_range(), other), code);
        match self.source.syntax.jump_form {
            GuardForm::Expression => self.add_expression(node, arm),
            form => self.add(Place::around(form, node), arm),
        }
    }

    /// Adds one to a number.
    pub(super) fn number(&mut self, node: Node<'_>) {
        // A tuple field such as `t.0` is a name, not a number.
        let is_field = node.parent().is_some_and(|parent| parent.kind() == "field_expression");
        if is_field || !self.source.configuration.has_all_operators() {
            return;
        }
        let Some(other) = next_number(self.source.text_of(node)) else { return };
        let arm = arm(Mutator::NUMBER_LITERAL, Change::new(&node.byte_range(), other.clone()), other);
        self.add_expression(node, arm);
    }
}

/// Returns the next number in decimal, with the same suffix.
pub(super) fn next_number(text: &str) -> Option<String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '_').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number.replace('_', "").parse().ok()?;
    // Rejects other bases and fractions.
    let is_suffix = suffix.is_empty() || suffix.starts_with(['u', 'i']);
    is_suffix.then(|| format!("{}{suffix}", number.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_on() {
        for (text, next) in [("0", Some("1")), ("1_000u8", Some("1001u8")), ("0x1f", None), ("1.5", None)] {
            assert_eq!(next_number(text).as_deref(), next);
        }
    }
}
