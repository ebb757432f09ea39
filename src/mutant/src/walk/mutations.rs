//! The mutants of each kind of node.

use super::{
    Place, Scope, Walker,
    one_line::{Lexis, on_one_line},
};
use crate::{
    guard::{Arm, GuardForm},
    mutant::{Change, Mutator},
    syntax::{FunctionFacts, text_of},
};
use tree_sitter::Node;

impl Walker<'_> {
    /// A statement that can be left out.
    pub(super) fn statement(&mut self, node: Node<'_>, scope: &Scope) {
        if (self.syntax.is_deletable)(node, self.text) && !node.has_error() {
            let change = Change::new(&node.byte_range(), "");
            let arm = arm(Mutator::STATEMENT_DELETION, change, String::new());
            self.add(Place::around(GuardForm::Statement, node), scope, arm);
        }
    }

    /// A condition that is always true or always false.
    pub(super) fn condition(&mut self, node: Node<'_>, scope: &Scope, values: &[&'static str]) {
        let Some(mut condition) = node.child_by_field_name("condition") else { return };
        // In C++, the parentheses may hold a statement before it.
        if condition.kind() == "condition_clause" {
            let Some(value) = condition.child_by_field_name("value") else { return };
            condition = value;
        }
        if matches!(condition.kind(), "let_chain" | "let_condition" | "comma_expression" | "declaration")
            || condition.has_error()
        {
            return;
        }
        // The parentheses of C belong to the statement.
        if node.kind().ends_with("_statement") && condition.kind() == "parenthesized_expression" {
            let Some(inner) = condition.named_child(0).filter(|_| condition.named_child_count() == 1) else {
                return;
            };
            condition = inner;
        }
        let text = text_of(condition, self.text);
        for value in values.iter().filter(|value| **value != text) {
            let change = Change::new(&condition.byte_range(), *value);
            let arm = arm(Mutator::CONDITIONAL_EXPRESSION, change, (*value).to_owned());
            self.add(Place::around(self.syntax.condition_form, condition), scope, arm);
        }
    }

    /// Another operator between the same operands.
    pub(super) fn binary(&mut self, node: Node<'_>, scope: &Scope) {
        self.operator(node, scope, self.syntax.binary, Parentheses::BothOperands);
    }

    /// An assignment with another operator.
    pub(super) fn compound_assignment(&mut self, node: Node<'_>, scope: &Scope) {
        self.operator(node, scope, self.syntax.compound, Parentheses::RightOperand);
    }

    /// Returns code without line breaks, where that changes nothing.
    pub(super) fn on_one_line(&self, code: &str) -> String {
        if self.syntax.is_indented {
            super::python::on_one_line(code)
        } else {
            on_one_line(code, self.syntax.lexis)
        }
    }

    fn operator(
        &mut self,
        node: Node<'_>,
        scope: &Scope,
        operators: &'static [crate::syntax::Operator],
        parentheses: Parentheses,
    ) {
        let fields = ["left", "operator", "right"].map(|field| node.child_by_field_name(field));
        let [Some(left_node), Some(operator), Some(right_node)] = fields else { return };
        if node.has_error() {
            return;
        }
        if !(self.syntax.is_mutated_operator)(node, self.text) {
            return;
        }
        let found = operators.iter().find(|one| one.text == text_of(operator, self.text));
        let Some(found) = found else { return };
        let (left, right) = (text_of(left_node, self.text), text_of(right_node, self.text));
        for other in self.replacements(found) {
            let nodes = [left_node, operator, right_node];
            let needed = match parentheses {
                Parentheses::BothOperands => self.with_needed_parentheses(node, nodes, other),
                Parentheses::RightOperand => None,
            };
            let change = match needed {
                Some((bytes, code)) => Change::new(&bytes, code),
                None => Change::new(&operator.byte_range(), other),
            };
            let code = match parentheses {
                Parentheses::BothOperands => {
                    let (left, right) = (self.on_one_line(left), self.on_one_line(right));
                    let code = format!("({left}) {other} ({right})");
                    self.with_type_check(code, node)
                }
                Parentheses::RightOperand => {
                    format!("{} {other} ({})", self.on_one_line(left), self.on_one_line(right))
                }
            };
            self.add_expression(node, scope, arm(found.mutator.clone(), change, code));
        }
    }

    /// Returns what stands for an operator.
    pub(super) fn replacements(
        &self,
        operator: &'static crate::syntax::Operator,
    ) -> impl Iterator<Item = &'static str> + use<> {
        let has_further = self.syntax.has_further_operators || self.configuration.has_all_operators();
        let further = if has_further { operator.further } else { &[] };
        operator.replacements.iter().chain(further).copied()
    }

    /// Notes a mutant of an expression.
    pub(super) fn add_expression(&mut self, node: Node<'_>, scope: &Scope, mut arm: Arm) {
        let whole = (self.syntax.undivided)(node).unwrap_or(node);
        if whole != node {
            let part = |bytes: std::ops::Range<usize>| self.on_one_line(&self.text[bytes]);
            let before = part(whole.start_byte()..node.start_byte());
            let behind = part(node.end_byte()..whole.end_byte());
            arm.code = format!("{before}({}){behind}", arm.code);
        }
        self.add(Place::around(GuardForm::Expression, whole), scope, arm);
    }

    /// Returns code with the check that it has the type of the original. A class may have `+` and no `-`, and
    /// be converted to a number for it: then the original would be converted as well.
    fn with_type_check(&self, code: String, original: Node<'_>) -> String {
        let text = text_of(original, self.text);
        match self.syntax.type_check {
            // A lambda can't be where it is not evaluated.
            Some(check) if !(text.contains('[') && contains_lambda(original)) => {
                format!("{check}(({code}), ({})) ({code})", self.on_one_line(text))
            }
            Some(_) | None => code,
        }
    }

    /// The operand without its operator.
    pub(super) fn unary(&mut self, node: Node<'_>, scope: &Scope) {
        let Some(operator) = node.child(0) else { return };
        let operand = &self.text[operator.end_byte()..node.end_byte()];
        if !self.syntax.unary.contains(&text_of(operator, self.text)) || node.has_error() {
            return;
        }
        let operand = operand.trim_start();
        let dropped = operator.start_byte()..node.end_byte() - operand.len();
        let is_negation = text_of(operator, self.text) == "!";
        let kept = if is_negation { self.syntax.dropped_negation } else { "" };
        let code = format!("{kept}({})", self.on_one_line(operand));
        let arm = arm(Mutator::UNARY_OPERATOR, Change::new(&dropped, ""), code);
        self.add_expression(node, scope, arm);
    }

    pub(super) fn boolean(&mut self, node: Node<'_>, scope: &Scope) {
        let [yes, no] = self.syntax.booleans;
        let other = if text_of(node, self.text) == yes { no } else { yes };
        let change = Change::new(&node.byte_range(), other);
        let arm = arm(Mutator::BOOLEAN_LITERAL, change, other.to_owned());
        self.add_expression(node, scope, arm);
    }

    /// Values that a function returns instead of running.
    pub(super) fn values(&mut self, facts: &FunctionFacts<'_>, insert_at: usize, scope: &Scope) {
        for value in &facts.values {
            let replacement = match value.as_str() {
                value if self.syntax.is_indented => format!("return {value}").trim_end().to_owned(),
                "" => "{}".to_owned(),
                value if self.syntax.lexis == Lexis::C => format!("{{ return {value}; }}"),
                value => format!("{{ {value} }}"),
            };
            let mut bytes = facts.body.byte_range();
            if self.syntax.is_indented {
                // Behind the docstring.
                bytes.start = insert_at;
            }
            let change = Change::new(&bytes, replacement);
            let arm = Arm { is_value: true, ..arm(Mutator::FUNCTION_VALUE, change, value.clone()) };
            let place = Place { form: GuardForm::Body, bytes, insert_at };
            self.add(place, scope, arm);
        }
    }
}

/// Which operands of an operator are put into parentheses. `a as i64 << b` is no expression: the operator
/// that takes another's place may bind in another way.
#[derive(Clone, Copy)]
enum Parentheses {
    BothOperands,
    /// The left side of an assignment binds more than any operator.
    RightOperand,
}

pub(super) fn arm(mutator: Mutator, change: Change, code: String) -> Arm {
    Arm { mutator, change, code, is_value: false, ignored: None }
}

fn contains_lambda(node: Node<'_>) -> bool {
    let mut cursor = node.walk();
    node.kind() == "lambda_expression" || node.named_children(&mut cursor).any(contains_lambda)
}
