//! The syntax table of Python.

use super::{
    python_values,
    table::{FunctionFacts, Operator, Role, Syntax, operator, text_of},
};
use heeler_mutant_model::Mutator;
use tree_sitter::Node;

const ROLES: &[(&str, Role)] = &[
    ("module", Role::Block),
    ("block", Role::Block),
    ("class_definition", Role::Container),
    ("function_definition", Role::Function),
    ("boolean_operator", Role::Binary),
    ("not_operator", Role::Unary),
    ("unary_operator", Role::Unary),
    ("true", Role::Boolean),
    ("false", Role::Boolean),
    // Parts without field names in the grammar, or mutants in a special form.
    ("if_statement", Role::Python),
    ("elif_clause", Role::Python),
    ("while_statement", Role::Python),
    ("if_clause", Role::Python),
    ("conditional_expression", Role::Python),
    ("comparison_operator", Role::Python),
    ("binary_operator", Role::Python),
    ("assignment", Role::Python),
    ("augmented_assignment", Role::Python),
    ("integer", Role::Number),
    ("float", Role::Python),
    ("string", Role::Python),
    ("call", Role::Python),
    ("lambda", Role::Python),
    ("break_statement", Role::LoopControl),
    ("continue_statement", Role::LoopControl),
    ("case_clause", Role::Python),
    // Comments are read by line before the walk, because the grammar puts a block's leading comment outside
    // of the block.
    ("comment", Role::Skip),
    // Not code, or not product code.
    ("type", Role::Skip),
    ("type_parameter", Role::Skip),
    ("type_alias_statement", Role::Skip),
    ("decorator", Role::Skip),
    ("case_pattern", Role::Skip),
    ("import_statement", Role::Skip),
    ("import_from_statement", Role::Skip),
    ("future_import_statement", Role::Skip),
    ("global_statement", Role::Skip),
    ("nonlocal_statement", Role::Skip),
    ("assert_statement", Role::Skip),
    ("print_statement", Role::Skip),
    ("exec_statement", Role::Skip),
];

const BINARY: &[Operator] = &[
    operator("+", Mutator::ARITHMETIC_OPERATOR, &["-"]),
    operator("-", Mutator::ARITHMETIC_OPERATOR, &["+"]),
    operator("*", Mutator::ARITHMETIC_OPERATOR, &["/"]),
    operator("/", Mutator::ARITHMETIC_OPERATOR, &["*"]),
    operator("//", Mutator::ARITHMETIC_OPERATOR, &["/"]),
    operator("%", Mutator::ARITHMETIC_OPERATOR, &["*"]),
    operator("**", Mutator::ARITHMETIC_OPERATOR, &["*"]),
    operator("<", Mutator::EQUALITY_OPERATOR, &["<=", ">="]),
    operator("<=", Mutator::EQUALITY_OPERATOR, &["<", ">"]),
    operator(">", Mutator::EQUALITY_OPERATOR, &[">=", "<="]),
    operator(">=", Mutator::EQUALITY_OPERATOR, &[">", "<"]),
    operator("==", Mutator::EQUALITY_OPERATOR, &["!="]),
    operator("!=", Mutator::EQUALITY_OPERATOR, &["=="]),
    operator("is", Mutator::EQUALITY_OPERATOR, &["is not"]),
    operator("is not", Mutator::EQUALITY_OPERATOR, &["is"]),
    operator("in", Mutator::EQUALITY_OPERATOR, &["not in"]),
    operator("not in", Mutator::EQUALITY_OPERATOR, &["in"]),
    operator("and", Mutator::LOGICAL_OPERATOR, &["or"]),
    operator("or", Mutator::LOGICAL_OPERATOR, &["and"]),
    operator("&", Mutator::BITWISE_OPERATOR, &["|"]),
    operator("|", Mutator::BITWISE_OPERATOR, &["&"]),
    operator("^", Mutator::BITWISE_OPERATOR, &["&"]),
    operator("<<", Mutator::BITWISE_OPERATOR, &[">>"]),
    operator(">>", Mutator::BITWISE_OPERATOR, &["<<"]),
];

const COMPOUND: &[Operator] = &[
    operator("+=", Mutator::ASSIGNMENT_OPERATOR, &["-="]),
    operator("-=", Mutator::ASSIGNMENT_OPERATOR, &["+="]),
    operator("*=", Mutator::ASSIGNMENT_OPERATOR, &["/="]),
    operator("/=", Mutator::ASSIGNMENT_OPERATOR, &["*="]),
    operator("//=", Mutator::ASSIGNMENT_OPERATOR, &["/="]),
    operator("%=", Mutator::ASSIGNMENT_OPERATOR, &["*="]),
    operator("**=", Mutator::ASSIGNMENT_OPERATOR, &["*="]),
    operator("&=", Mutator::ASSIGNMENT_OPERATOR, &["|="]),
    operator("|=", Mutator::ASSIGNMENT_OPERATOR, &["&="]),
    operator("^=", Mutator::ASSIGNMENT_OPERATOR, &["&="]),
    operator("<<=", Mutator::ASSIGNMENT_OPERATOR, &[">>="]),
    operator(">>=", Mutator::ASSIGNMENT_OPERATOR, &["<<="]),
];

const BINDINGS: &[&[&str]] = &[
    &["or"],
    &["and"],
    &["<", "<=", ">", ">=", "==", "!=", "is", "is not", "in", "not in"],
    &["|"],
    &["^"],
    &["&"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "//", "%", "@"],
    &["**"],
];

pub(super) fn table() -> Syntax {
    Syntax {
        binary: BINARY,
        compound: COMPOUND,
        bindings: BINDINGS,
        loops: &["for_statement", "while_statement"],
        unary: &["not", "-", "~"],
        booleans: ["True", "False"],
        is_indented: true,
        body_start,
        function,
        container,
        is_deletable,
        is_mutated_operator,
        is_loop_jump,
        ..Syntax::new(tree_sitter_python::LANGUAGE.into(), ROLES)
    }
}

/// Returns whether a `break` or `continue` is on its own line, because the guard is a statement before it.
fn is_loop_jump(jump: Node<'_>, text: &str) -> bool {
    let line_start = text[..jump.start_byte()].rfind('\n').map_or(0, |at| at + 1);
    text[line_start..jump.start_byte()].trim().is_empty()
}

/// Returns whether the parser gives an operator the right precedence: it wrongly lets `^` bind tighter than
/// `&`.
fn is_mutated_operator(node: Node<'_>, text: &str) -> bool {
    let operator = |node: Node<'_>| {
        let operator = node.child_by_field_name("operator").filter(|_| node.kind() == "binary_operator");
        operator.map_or("", |operator| text_of(operator, text))
    };
    match operator(node) {
        "^" => node.parent().is_none_or(|parent| operator(parent) != "&"),
        "&" => ["left", "right"]
            .iter()
            .filter_map(|side| node.child_by_field_name(side))
            .all(|operand| operator(operand) != "^"),
        _ => true,
    }
}

/// Returns whether a statement is alone on its lines, except for a trailing comment.
fn is_own_line(statement: Node<'_>, text: &str) -> bool {
    let (before, behind) = (&text[..statement.start_byte()], &text[statement.end_byte()..]);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let rest = behind.lines().next().unwrap_or_default().trim();
    before[line_start..].trim_start_matches('\u{feff}').trim().is_empty()
        && (rest.is_empty() || rest.starts_with('#'))
}

/// Returns where the first statement after the docstring begins, if it is on its own line.
fn body_start(body: Node<'_>, text: &str) -> Option<usize> {
    let first = statements(body).into_iter().find(|statement| !is_docstring(*statement))?;
    let line_start = text[..first.start_byte()].rfind('\n').map_or(0, |at| at + 1);
    text[line_start..first.start_byte()].trim().is_empty().then(|| first.start_byte())
}

fn statements(block: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = block.walk();
    block.named_children(&mut cursor).filter(|child| child.kind() != "comment").collect()
}

fn is_docstring(statement: Node<'_>) -> bool {
    let is_string = |inner: Node<'_>| matches!(inner.kind(), "string" | "concatenated_string");
    statement.kind() == "expression_statement" && statement.named_child(0).is_some_and(is_string)
}

fn function<'tree>(node: Node<'tree>, text: &str) -> Option<FunctionFacts<'tree>> {
    let name = node.child_by_field_name("name")?;
    let body = node.child_by_field_name("body")?;
    let code: Vec<Node<'_>> =
        statements(body).into_iter().filter(|statement| !is_docstring(*statement)).collect();
    let is_stub =
        code.iter().all(|statement| is_placeholder(*statement, text)) || is_declared_only(node, text);
    let mut values = match () {
        () if is_stub => Vec::new(),
        // An early return ends the iteration; the function stays a generator because its body still contains
        // `yield`.
        () if is_generator(body) => vec![String::new()],
        () => python_values::of_annotation(node.child_by_field_name("return_type"), text),
    };
    if let [only] = code.as_slice() {
        let only = text_of(*only, text);
        values.retain(|value| only != format!("return {value}") && !(value == "None" && only == "return"));
    }
    Some(FunctionFacts { name, body, is_constant: false, constant_word: None, values })
}

/// Returns whether a statement is a placeholder for a missing body.
fn is_placeholder(statement: Node<'_>, text: &str) -> bool {
    let words = text_of(statement, text);
    statement.kind() == "pass_statement" || words == "..." || is_not_implemented(statement, text)
}

fn is_not_implemented(statement: Node<'_>, text: &str) -> bool {
    statement.kind() == "raise_statement" && text_of(statement, text).contains("NotImplementedError")
}

/// Returns whether decorators show that the body never runs.
fn is_declared_only(function: Node<'_>, text: &str) -> bool {
    let Some(outer) = function.parent().filter(|parent| parent.kind() == "decorated_definition") else {
        return false;
    };
    let mut cursor = outer.walk();
    outer.children(&mut cursor).filter(|child| child.kind() == "decorator").any(|decorator| {
        let words = text_of(decorator, text);
        ["abstractmethod", "overload", "abstractproperty"].iter().any(|one| words.contains(one))
    })
}

/// Returns whether a body contains `yield`, ignoring nested functions.
fn is_generator(body: Node<'_>) -> bool {
    let mut cursor = body.walk();
    loop {
        let node = cursor.node();
        if node.kind() == "yield" && node.is_named() {
            return true;
        }
        let is_inner =
            matches!(node.kind(), "function_definition" | "lambda" | "class_definition" | "string");
        if !is_inner && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() || cursor.node() == body {
                return false;
            }
        }
    }
}

fn container(node: Node<'_>, text: &str) -> String {
    node.child_by_field_name("name").map_or_else(String::new, |name| text_of(name, text).to_owned())
}

/// Returns whether a statement can be deleted: a call, an assignment to an existing variable, `raise`,
/// `yield` or `del`, alone on its lines.
fn is_deletable(statement: Node<'_>, text: &str) -> bool {
    let is_wanted = match statement.kind() {
        "delete_statement" => true,
        "raise_statement" => !is_not_implemented(statement, text),
        "expression_statement" if statement.named_child_count() == 1 => {
            statement.named_child(0).is_some_and(|inner| is_deletable_expression(inner, text))
        }
        _ => false,
    };
    is_wanted && is_own_line(statement, text)
}

fn is_deletable_expression(expression: Node<'_>, text: &str) -> bool {
    match expression.kind() {
        "yield" => true,
        "await" => expression
            .named_child(0)
            .is_some_and(|inner| inner.kind() != "call" || is_checked_call(inner, text)),
        "call" => is_checked_call(expression, text),
        "augmented_assignment" => {
            expression.child_by_field_name("left").is_some_and(|left| !is_dunder(left, text))
        }
        "assignment" => is_deletable_assignment(expression, text),
        _ => false,
    }
}

/// Returns whether a call is not an assertion.
fn is_checked_call(call: Node<'_>, text: &str) -> bool {
    call.child_by_field_name("function").is_some_and(|name| !text_of(name, text).contains("assert"))
}

fn is_deletable_assignment(assignment: Node<'_>, text: &str) -> bool {
    let fields = ["left", "right", "type"].map(|field| assignment.child_by_field_name(field));
    let [Some(left), Some(_), None] = fields else { return false };
    match left.kind() {
        "attribute" | "subscript" => true,
        // Without the first assignment of a name, its use would always fail.
        "identifier" => !is_dunder(left, text) && has_earlier_name(assignment, text_of(left, text), text),
        _ => false,
    }
}

/// Returns whether an assignment's target is a name such as `__all__`, which tools or Python itself read.
pub(crate) fn is_dunder(target: Node<'_>, text: &str) -> bool {
    let name = text_of(target, text);
    target.kind() == "identifier" && name.starts_with("__") && name.ends_with("__")
}

/// Returns whether a name occurs earlier in the surrounding function, class or module.
fn has_earlier_name(place: Node<'_>, name: &str, text: &str) -> bool {
    let mut around = place;
    while let Some(parent) = around.parent() {
        around = parent;
        if matches!(around.kind(), "function_definition" | "class_definition" | "lambda") {
            break;
        }
    }
    let before = &text[around.start_byte()..place.start_byte()];
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    before.match_indices(name).any(|(at, _)| {
        let (left, right) = (&before[..at], &before[at + name.len()..]);
        !left.chars().next_back().is_some_and(is_part) && !right.chars().next().is_some_and(is_part)
    })
}
