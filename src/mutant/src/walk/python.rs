//! The mutants of nodes of Python whose parts have no names in its grammar, or that need a form of their own.

use super::{Place, SUPPRESSIONS, Scope, Walker, mutations};
use crate::{
    guard::{AssignmentParts, AssignmentTarget, GuardForm},
    mutant::{Change, Mutator},
    syntax::{is_dunder, text_of},
};
use tree_sitter::Node;

/// How many guards of expressions may be around each other: Python refuses more than a hundred parentheses or
/// two.
const NESTED_GUARDS: usize = 20;
const TOO_DEEP: &str = "its expression is nested too deeply";

impl Walker<'_> {
    /// Notes the mutants of a node. Returns whether its children are walked.
    pub(super) fn python(&mut self, node: Node<'_>, scope: &Scope) -> bool {
        self.python_further(node, scope);
        match node.kind() {
            // Strings and patterns contain no code to mutate.
            "string" => return false,
            "if_statement" | "elif_clause" | "while_statement" => {
                let Some(condition) = node.child_by_field_name("condition") else { return true };
                let words = text_of(condition, self.text);
                if words.ends_with("TYPE_CHECKING") {
                    // Only type checkers read what is inside.
                    return false;
                }
                let is_loop = node.kind() == "while_statement";
                self.truth(condition, scope, &self.syntax.booleans[usize::from(is_loop)..]);
            }
            "if_clause" | "conditional_expression" => {
                let place = if node.kind() == "if_clause" { 0 } else { 1 };
                let condition = parts(node).into_iter().nth(place);
                if let Some(condition) = condition {
                    self.truth(condition, scope, &self.syntax.booleans);
                }
            }
            "comparison_operator" => self.comparison(node, scope),
            "binary_operator" if !joins_literals(node, self.text) => self.binary(node, scope),
            "assignment" | "augmented_assignment" => {
                if node.child_by_field_name("left").is_some_and(|left| is_dunder(left, self.text)) {
                    return false;
                }
                if node.kind() == "augmented_assignment" {
                    self.python_assignment(node, scope);
                }
            }
            _ => {}
        }
        true
    }

    /// A condition that is always true or always false.
    fn truth(&mut self, condition: Node<'_>, scope: &Scope, values: &[&'static str]) {
        // A name that it binds would have no value; and a literal has a mutant already.
        let words = text_of(condition, self.text);
        let is_left_alone = words.contains(":=") || words.contains("__name__");
        if condition.has_error() || is_left_alone || matches!(condition.kind(), "true" | "false") {
            return;
        }
        for value in values {
            let change = Change::new(&condition.byte_range(), *value);
            let arm = mutations::arm(Mutator::CONDITIONAL_EXPRESSION, change, (*value).to_owned());
            self.add(Place::around(GuardForm::Expression, condition), scope, arm);
        }
    }

    /// A comparison, of which any operator of a chain can be another one.
    fn comparison(&mut self, node: Node<'_>, scope: &Scope) {
        let words = text_of(node, self.text);
        if node.has_error() || words.contains("__name__") {
            return;
        }
        let mut cursor = node.walk();
        let operators: Vec<Node<'_>> = node.children_by_field_name("operators", &mut cursor).collect();
        let operands: Vec<&str> = parts(node).into_iter().map(|part| text_of(part, self.text)).collect();
        if operands.len() != operators.len() + 1 {
            return;
        }
        for (place, operator) in operators.iter().enumerate() {
            let Some(found) = self.syntax.binary.iter().find(|one| one.text == operator.kind()) else {
                continue;
            };
            for other in self.replacements(found) {
                let mut code = format!("({})", self.on_one_line(operands[0]));
                for (at, operand) in operands[1..].iter().enumerate() {
                    let operator = if at == place { other } else { operators[at].kind() };
                    code += &format!(" {operator} ({})", self.on_one_line(operand));
                }
                let change = Change::new(&operator.byte_range(), other);
                let arm = mutations::arm(found.mutator.clone(), change, code);
                self.add(Place::around(GuardForm::Expression, node), scope, arm);
            }
        }
    }

    /// An assignment with another operator.
    fn python_assignment(&mut self, node: Node<'_>, scope: &Scope) {
        let fields = ["left", "operator", "right"].map(|field| node.child_by_field_name(field));
        let [Some(left), Some(operator), Some(right)] = fields else { return };
        let is_statement = node.parent().is_some_and(|parent| parent.kind() == "expression_statement");
        if !is_statement || node.has_error() || is_text(right) {
            return;
        }
        let Some(found) = self.syntax.compound.iter().find(|one| one.text == operator.kind()) else { return };
        let Some(target) = assignment_target(left, self.text) else { return };
        for other in self.replacements(found) {
            let code = format!("{:?}", other.trim_end_matches('='));
            let change = Change::new(&operator.byte_range(), other);
            let arm = mutations::arm(found.mutator.clone(), change, code);
            self.add(Place::around(GuardForm::Assignment, node), scope, arm);
        }
        let operator = found.text.trim_end_matches('=').to_owned();
        let parts = AssignmentParts { target, operator, right: right.byte_range() };
        self.assignments.insert(node.start_byte(), parts);
    }

    /// Reads what comments suppress: a comment on a line of its own is about the statement that begins in the
    /// next line with code, any other about what begins in its line.
    pub(super) fn read_comments(&mut self, root: Node<'_>) {
        let mut own_lines = Vec::new();
        each_node(root, &mut |node| {
            if node.kind() == "comment"
                && SUPPRESSIONS.iter().any(|word| text_of(node, self.text).contains(word))
            {
                let line_start = self.text[..node.start_byte()].rfind('\n').map_or(0, |at| at + 1);
                let row = node.start_position().row;
                if self.text[line_start..node.start_byte()].trim().is_empty() {
                    own_lines.push(row);
                } else {
                    self.suppressed_lines.insert(row);
                }
            }
        });
        let lines: Vec<&str> = self.text.lines().collect();
        for row in own_lines {
            let is_code =
                |row: &usize| !lines[*row].trim().is_empty() && !lines[*row].trim().starts_with('#');
            self.suppressed_statements.extend((row + 1..lines.len()).find(is_code));
        }
    }

    /// Takes out what is nested so deeply that Python would refuse its guards.
    pub(super) fn limit_nesting(&mut self) {
        let mut around: Vec<usize> = Vec::new();
        for guard in &mut self.guards {
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
}

/// Returns code that stands in parentheses without line breaks and comments, but for those in texts: what
/// follows stays in its line. A text inside of another, as in f-strings, may end it too early: with a comment
/// the code stays as it is then.
pub(super) fn on_one_line(code: &str) -> String {
    let has_comment = code.contains('#');
    let is_simple = !code.contains('\n') || (has_comment && (code.contains("f\"") || code.contains("f'")));
    if is_simple {
        return code.to_owned();
    }
    let mut joined = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'', '#', '\\', '\n']) {
        joined.push_str(rest[..at].trim_end_matches('\r'));
        rest = &rest[at..];
        if rest.starts_with(['"', '\'']) {
            let Some(end) = text_end(rest) else { return code.to_owned() };
            joined.push_str(&rest[..end]);
            rest = &rest[end..];
        } else if rest.starts_with('#') {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else {
            // Of a backslash, only the line break behind it is left.
            joined.push(' ');
            rest = rest[1..].trim_start_matches([' ', '\t']);
        }
    }
    joined.push_str(rest);
    joined
}

/// Returns where a text ends that begins with a quotation mark.
fn text_end(code: &str) -> Option<usize> {
    let quote = &code[..1];
    let triple = quote.repeat(3);
    let mark = if code.starts_with(&triple) { triple.as_str() } else { quote };
    let mut at = mark.len();
    while !code[at..].starts_with(mark) {
        let letter = code[at..].chars().next()?;
        at += letter.len_utf8();
        if letter == '\\' {
            at += code[at..].chars().next()?.len_utf8();
        }
    }
    Some(at + mark.len())
}

/// Calls a function for each node.
pub(crate) fn each_node<'tree>(root: Node<'tree>, take: &mut dyn FnMut(Node<'tree>)) {
    let mut cursor = root.walk();
    loop {
        take(cursor.node());
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}

/// Returns the parts of a node that are no words of the grammar and no comments.
fn parts(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    let is_part = |child: &Node<'_>| child.is_named() && child.kind() != "comment";
    node.children(&mut cursor).filter(is_part).collect()
}

/// Returns whether an operator's operands are texts or lists: any other operator between them only raises an
/// error.
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

/// Returns what is assigned to, where it can be written as an expression.
fn assignment_target(left: Node<'_>, text: &str) -> Option<AssignmentTarget> {
    match left.kind() {
        "identifier" => Some(AssignmentTarget::Name(left.byte_range())),
        "attribute" => {
            let object = left.child_by_field_name("object")?.byte_range();
            let name = text_of(left.child_by_field_name("attribute")?, text).to_owned();
            // Python adds the name of the class to it.
            let is_private = name.starts_with("__") && !name.ends_with("__");
            (!is_private).then_some(AssignmentTarget::Attribute { object, name })
        }
        "subscript" => {
            let object = left.child_by_field_name("value")?.byte_range();
            let mut cursor = left.walk();
            let keys: Vec<_> = left.children_by_field_name("subscript", &mut cursor).collect();
            match keys.as_slice() {
                [key] if !matches!(key.kind(), "slice" | "list_splat") => {
                    // A comma behind it makes a tuple of it.
                    let end = text[key.end_byte()..left.end_byte()].contains(',');
                    (!end).then(|| AssignmentTarget::Item { object, key: key.byte_range() })
                }
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_and_comments_are_left_out_but_for_those_in_texts() {
        for (code, expected) in [
            ("a +\n    b", "a + b"),
            ("a + \\\r\n  b", "a +   b"),
            ("f(  # why\n  'x # y',\n)", "f(   'x # y', )"),
            ("a + \"\"\"x\n\\\"\"y\"\"\" +\n b", "a + \"\"\"x\n\\\"\"y\"\"\" + b"),
            ("a +\n 'x", "a +\n 'x"),
            ("f'{a[\"#\"]}' +\n b", "f'{a[\"#\"]}' +\n b"),
            ("a # b", "a # b"),
        ] {
            assert_eq!(on_one_line(code), expected);
        }
    }
}
