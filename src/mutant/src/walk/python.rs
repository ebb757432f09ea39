//! Mutants of Python nodes whose parts have no field names in the grammar, or that need a special form.

use super::{
    found_guards::Place,
    mutations::{self, NodeMutants},
};
use crate::{
    guard::{AssignmentParts, AssignmentTarget, Guard, GuardForm},
    syntax::{is_dunder, text_of},
};
use heeler_mutant_model::{Change, Mutator};
use std::collections::BTreeMap;
use tree_sitter::Node;

/// Maximum nesting of expression guards. Python rejects more than about a hundred nested parentheses.
const NESTED_GUARDS: usize = 20;
const TOO_DEEP: &str = "the expression is nested too deeply";

pub(super) struct PythonMutants<'w, 'a> {
    pub(super) mutants: NodeMutants<'w, 'a>,
    /// Parts of guarded assignments, by first byte.
    pub(super) assignments: &'w mut BTreeMap<usize, AssignmentParts>,
}

impl PythonMutants<'_, '_> {
    /// Adds the mutants of a node. Returns whether to walk its children.
    pub(super) fn visit(&mut self, node: Node<'_>) -> bool {
        self.visit_further(node);
        match node.kind() {
            // Strings and patterns contain no code to mutate.
            "string" => return false,
            "if_statement" | "elif_clause" | "while_statement" => {
                let Some(condition) = node.child_by_field_name("condition") else { return true };
                let words = self.mutants.source.text_of(condition);
                if words.ends_with("TYPE_CHECKING") {
                    // Only type checkers read the body.
                    return false;
                }
                let is_loop = node.kind() == "while_statement";
                self.truth(condition, &self.mutants.source.syntax.booleans[usize::from(is_loop)..]);
            }
            "if_clause" | "conditional_expression" => {
                let place = if node.kind() == "if_clause" { 0 } else { 1 };
                let condition = parts(node).into_iter().nth(place);
                if let Some(condition) = condition {
                    self.truth(condition, &self.mutants.source.syntax.booleans);
                }
            }
            "comparison_operator" => self.comparison(node),
            "binary_operator" if !joins_literals(node, self.mutants.source.text) => self.mutants.binary(node),
            "assignment" | "augmented_assignment" => {
                if node
                    .child_by_field_name("left")
                    .is_some_and(|left| is_dunder(left, self.mutants.source.text))
                {
                    return false;
                }
                if node.kind() == "augmented_assignment" {
                    self.assignment(node);
                }
            }
            _ => {}
        }
        true
    }

    /// Makes a condition always true or always false.
    fn truth(&mut self, condition: Node<'_>, values: &[&'static str]) {
        // A name bound by `:=` would have no value, and a literal already has a mutant.
        let words = self.mutants.source.text_of(condition);
        let is_left_alone = words.contains(":=") || words.contains("__name__");
        if condition.has_error() || is_left_alone || matches!(condition.kind(), "true" | "false") {
            return;
        }
        for value in values {
            let change = Change::new(&condition.byte_range(), *value);
            let arm = mutations::arm(Mutator::CONDITIONAL_EXPRESSION, change, (*value).to_owned());
            self.mutants.add(Place::around(GuardForm::Expression, condition), arm);
        }
    }

    /// Replaces one operator of a chain of comparisons.
    fn comparison(&mut self, node: Node<'_>) {
        let words = self.mutants.source.text_of(node);
        if node.has_error() || words.contains("__name__") {
            return;
        }
        let mut cursor = node.walk();
        let operators: Vec<Node<'_>> = node.children_by_field_name("operators", &mut cursor).collect();
        let operands: Vec<&str> =
            parts(node).into_iter().map(|part| self.mutants.source.text_of(part)).collect();
        if operands.len() != operators.len() + 1 {
            return;
        }
        for (place, operator) in operators.iter().enumerate() {
            let Some(found) =
                self.mutants.source.syntax.binary.iter().find(|one| one.text == operator.kind())
            else {
                continue;
            };
            for other in self.mutants.source.replacements(found) {
                let mut code = format!("({})", self.mutants.source.on_one_line(operands[0]));
                for (at, operand) in operands[1..].iter().enumerate() {
                    let operator = if at == place { other } else { operators[at].kind() };
                    code += &format!(" {operator} ({})", self.mutants.source.on_one_line(operand));
                }
                let change = Change::new(&operator.byte_range(), other);
                let arm = mutations::arm(found.mutator.clone(), change, code);
                self.mutants.add(Place::around(GuardForm::Expression, node), arm);
            }
        }
    }

    /// Replaces the operator of an augmented assignment.
    fn assignment(&mut self, node: Node<'_>) {
        let fields = ["left", "operator", "right"].map(|field| node.child_by_field_name(field));
        let [Some(left), Some(operator), Some(right)] = fields else { return };
        let is_statement = node.parent().is_some_and(|parent| parent.kind() == "expression_statement");
        if !is_statement || node.has_error() || is_text(right) {
            return;
        }
        let Some(found) = self.mutants.source.syntax.compound.iter().find(|one| one.text == operator.kind())
        else {
            return;
        };
        let Some(target) = assignment_target(left, self.mutants.source.text) else { return };
        for other in self.mutants.source.replacements(found) {
            let code = format!("{:?}", other.trim_end_matches('='));
            let change = Change::new(&operator.byte_range(), other);
            let arm = mutations::arm(found.mutator.clone(), change, code);
            self.mutants.add(Place::around(GuardForm::Assignment, node), arm);
        }
        let operator = found.text.trim_end_matches('=').to_owned();
        let parts = AssignmentParts { target, operator, right: right.byte_range() };
        self.assignments.insert(node.start_byte(), parts);
    }
}

/// Ignores mutants whose guards would be nested too deeply for Python.
pub(super) fn limit_nesting(guards: &mut [Guard]) {
    let mut around: Vec<usize> = Vec::new();
    for guard in guards {
        around.retain(|&end| guard.bytes.start < end);
        if guard.form != GuardForm::Expression {
            continue;
        }
        if around.len() >= NESTED_GUARDS {
            for arm in &mut guard.arms {
                arm.ignored.get_or_insert_with(|| TOO_DEEP.into());
            }
        } else {
            around.push(guard.bytes.end);
        }
    }
}

/// Returns the named children of a node, without comments.
fn parts(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    let is_part = |child: &Node<'_>| child.is_named() && child.kind() != "comment";
    node.children(&mut cursor).filter(is_part).collect()
}

/// Returns whether an operator has string or list operands. Any other operator would only raise an error.
fn joins_literals(node: Node<'_>, text: &str) -> bool {
    let fields = ["left", "operator", "right"].map(|field| node.child_by_field_name(field));
    let [Some(left), Some(operator), Some(right)] = fields else { return false };
    match text_of(operator, text) {
        "+" | "*" => is_text(left) || is_text(right),
        "%" => is_text(left),
        _ => false,
    }
}

fn is_text(node: Node<'_>) -> bool {
    match node.kind() {
        "string" | "concatenated_string" | "list" | "list_comprehension" | "tuple" => true,
        "parenthesized_expression" => node.named_child(0).is_some_and(is_text),
        "binary_operator" => {
            ["left", "right"].iter().any(|field| node.child_by_field_name(field).is_some_and(is_text))
        }
        _ => false,
    }
}

/// Returns the target of an assignment, if the target can be written as an expression.
fn assignment_target(left: Node<'_>, text: &str) -> Option<AssignmentTarget> {
    match left.kind() {
        "identifier" => Some(AssignmentTarget::Name(left.byte_range())),
        "attribute" => {
            let object = left.child_by_field_name("object")?.byte_range();
            let name = text_of(left.child_by_field_name("attribute")?, text).to_owned();
            // Python mangles such a name with the class name.
            let is_private = name.starts_with("__") && !name.ends_with("__");
            (!is_private).then_some(AssignmentTarget::Attribute { object, name })
        }
        "subscript" => {
            let object = left.child_by_field_name("value")?.byte_range();
            let mut cursor = left.walk();
            let keys: Vec<_> = left.children_by_field_name("subscript", &mut cursor).collect();
            match keys.as_slice() {
                [key] if !matches!(key.kind(), "slice" | "list_splat") => {
                    // A trailing comma makes the key a tuple.
                    let end = text[key.end_byte()..left.end_byte()].contains(',');
                    (!end).then(|| AssignmentTarget::Item { object, key: key.byte_range() })
                }
                _ => None,
            }
        }
        _ => None,
    }
}
