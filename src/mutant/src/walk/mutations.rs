//! The mutants of each kind of node.

use super::{
    found_guards::{FoundGuards, Place, Scope},
    one_line::Lexis,
    source_view::SourceView,
};
use crate::{
    guard::{Arm, GuardForm},
    syntax::{FunctionFacts, Operator},
};
use heeler_mutant_model::{Change, Mutator};
use tree_sitter::Node;

pub(super) struct NodeMutants<'w, 'a> {
    pub(super) source: SourceView<'a>,
    pub(super) guards: &'w mut FoundGuards<'a>,
    pub(super) scope: &'w Scope,
}

impl NodeMutants<'_, '_> {
    pub(super) fn add(&mut self, place: Place, arm: Arm) {
        self.guards.add(place, self.scope, arm);
    }

    /// Deletes a statement.
    pub(super) fn statement(&mut self, node: Node<'_>) {
        if (self.source.syntax.is_deletable)(node, self.source.text) && !node.has_error() {
            let change = Change::new(&node.byte_range(), "");
            let arm = arm(Mutator::STATEMENT_DELETION, change, String::new());
            self.add(Place::around(GuardForm::Statement, node), arm);
        }
    }

    /// Makes a condition always true or always false.
    pub(super) fn condition(&mut self, node: Node<'_>, values: &[&'static str]) {
        let Some(mut condition) = node.child_by_field_name("condition") else { return };
        // In C++, the parentheses can also contain a statement.
        if condition.kind() == "condition_clause" {
            let Some(value) = condition.child_by_field_name("value") else { return };
            condition = value;
        }
        if matches!(condition.kind(), "let_chain" | "let_condition" | "comma_expression" | "declaration")
            || condition.has_error()
        {
            return;
        }
        // In C, the parentheses belong to the statement.
        if node.kind().ends_with("_statement") && condition.kind() == "parenthesized_expression" {
            let Some(inner) = condition.named_child(0).filter(|_| condition.named_child_count() == 1) else {
                return;
            };
            condition = inner;
        }
        let text = self.source.text_of(condition);
        for value in values.iter().filter(|value| **value != text) {
            let change = Change::new(&condition.byte_range(), *value);
            let arm = arm(Mutator::CONDITIONAL_EXPRESSION, change, (*value).to_owned());
            self.add(Place::around(self.source.syntax.condition_form, condition), arm);
        }
    }

    /// Replaces a binary operator.
    pub(super) fn binary(&mut self, node: Node<'_>) {
        self.operator(node, self.source.syntax.binary, Parentheses::BothOperands);
    }

    /// Replaces the operator of a compound assignment.
    pub(super) fn compound_assignment(&mut self, node: Node<'_>) {
        self.operator(node, self.source.syntax.compound, Parentheses::RightOperand);
    }

    fn operator(&mut self, node: Node<'_>, operators: &'static [Operator], parentheses: Parentheses) {
        let fields = ["left", "operator", "right"].map(|field| node.child_by_field_name(field));
        let [Some(left_node), Some(operator), Some(right_node)] = fields else { return };
        if node.has_error() {
            return;
        }
        if !(self.source.syntax.is_mutated_operator)(node, self.source.text) {
            return;
        }
        let found = operators.iter().find(|one| one.text == self.source.text_of(operator));
        let Some(found) = found else { return };
        let (left, right) = (self.source.text_of(left_node), self.source.text_of(right_node));
        for other in self.source.replacements(found) {
            let nodes = [left_node, operator, right_node];
            let needed = match parentheses {
                Parentheses::BothOperands => self.source.with_needed_parentheses(node, nodes, other),
                Parentheses::RightOperand => None,
            };
            let change = match needed {
                Some((bytes, code)) => Change::new(&bytes, code),
                None => Change::new(&operator.byte_range(), other),
            };
            let code = match parentheses {
                Parentheses::BothOperands => {
                    let (left, right) = (self.source.on_one_line(left), self.source.on_one_line(right));
                    let code = format!("({left}) {other} ({right})");
                    self.with_type_check(code, node)
                }
                Parentheses::RightOperand => {
                    format!("{} {other} ({})", self.source.on_one_line(left), self.source.on_one_line(right))
                }
            };
            self.add_expression(node, arm(found.mutator.clone(), change, code));
        }
    }

    /// Adds a mutant of an expression, extended to the part that a guard must not divide.
    pub(super) fn add_expression(&mut self, node: Node<'_>, mut arm: Arm) {
        let whole = (self.source.syntax.undivided)(node).unwrap_or(node);
        if whole != node {
            let before = self.source.part_on_one_line(whole.start_byte()..node.start_byte());
            let behind = self.source.part_on_one_line(node.end_byte()..whole.end_byte());
            arm.code = format!("{before}({}){behind}", arm.code);
        }
        self.add(Place::around(GuardForm::Expression, whole), arm);
    }

    /// Wraps code with a check that it has the original's type. A class may define `+` but not `-`, and
    /// convert to a number for `-`. The guard would then convert the original too.
    fn with_type_check(&self, code: String, original: Node<'_>) -> String {
        let text = self.source.text_of(original);
        match self.source.syntax.type_check {
            // A lambda can't be in an unevaluated context.
            Some(check) if !(text.contains('[') && contains_lambda(original)) => {
                format!("{check}(({code}), ({})) ({code})", self.source.on_one_line(text))
            }
            Some(_) | None => code,
        }
    }

    /// Drops a unary operator.
    pub(super) fn unary(&mut self, node: Node<'_>) {
        let Some(operator) = node.child(0) else { return };
        let operand = &self.source.text[operator.end_byte()..node.end_byte()];
        if !self.source.syntax.unary.contains(&self.source.text_of(operator)) || node.has_error() {
            return;
        }
        let operand = operand.trim_start();
        let dropped = operator.start_byte()..node.end_byte() - operand.len();
        let is_negation = self.source.text_of(operator) == "!";
        let kept = if is_negation { self.source.syntax.dropped_negation } else { "" };
        let code = format!("{kept}({})", self.source.on_one_line(operand));
        let arm = arm(Mutator::UNARY_OPERATOR, Change::new(&dropped, ""), code);
        self.add_expression(node, arm);
    }

    pub(super) fn boolean(&mut self, node: Node<'_>) {
        let [yes, no] = self.source.syntax.booleans;
        let other = if self.source.text_of(node) == yes { no } else { yes };
        let change = Change::new(&node.byte_range(), other);
        let arm = arm(Mutator::BOOLEAN_LITERAL, change, other.to_owned());
        self.add_expression(node, arm);
    }

    /// Returns a value instead of running the function.
    pub(super) fn values(&mut self, facts: &FunctionFacts<'_>, insert_at: usize) {
        for value in &facts.values {
            let replacement = match value.as_str() {
                value if self.source.syntax.is_indented => format!("return {value}").trim_end().to_owned(),
                "" => "{}".to_owned(),
                value if self.source.syntax.lexis == Lexis::C => format!("{{ return {value}; }}"),
                value => format!("{{ {value} }}"),
            };
            let mut bytes = facts.body.byte_range();
            if self.source.syntax.is_indented {
                // Insert after the docstring.
                bytes.start = insert_at;
            }
            let change = Change::new(&bytes, replacement);
            let arm = Arm { is_value: true, ..arm(Mutator::FUNCTION_VALUE, change, value.clone()) };
            let place = Place { form: GuardForm::Body, bytes, insert_at };
            self.add(place, arm);
        }
    }
}

/// Which operands get parentheses. The new operator can have another precedence: `a as i64 << b` does not
/// parse.
#[derive(Clone, Copy)]
enum Parentheses {
    BothOperands,
    /// The left side of an assignment never needs them.
    RightOperand,
}

pub(super) fn arm(mutator: Mutator, change: Change, code: String) -> Arm {
    Arm { mutator, change, code, is_value: false, ignored: None }
}

fn contains_lambda(node: Node<'_>) -> bool {
    let mut cursor = node.walk();
    node.kind() == "lambda_expression" || node.named_children(&mut cursor).any(contains_lambda)
}
