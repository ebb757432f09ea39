//! C++, and headers shared by C and C++: the code written into a header is valid in both.

use super::{
    c, cpp_constants, cpp_macros, cpp_values,
    table::{BINARY, BINDINGS_OF_C, COMPOUND, Role, Syntax, text_of},
};
use crate::guard::GuardForm;
use tree_sitter::Node;

const ROLES: &[(&str, Role)] = &[
    ("namespace_definition", Role::Container),
    ("class_specifier", Role::Container),
    ("struct_specifier", Role::Container),
    ("union_specifier", Role::Container),
    // Evaluated by the compiler, or not code.
    ("static_assert_declaration", Role::Skip),
    ("template_argument_list", Role::Skip),
    ("template_parameter_list", Role::Skip),
    ("template_instantiation", Role::Skip),
    // May declare a class.
    ("field_declaration", Role::Fields(&["type"])),
    ("bitfield_clause", Role::Skip),
    ("alias_declaration", Role::Skip),
    ("using_declaration", Role::Skip),
    ("concept_definition", Role::Skip),
    ("requires_clause", Role::Skip),
    ("requires_expression", Role::Skip),
    ("noexcept", Role::Skip),
    ("throw_specifier", Role::Skip),
    ("trailing_return_type", Role::Skip),
    ("explicit_function_specifier", Role::Skip),
    ("decltype", Role::Skip),
    ("dependent_type", Role::Skip),
    ("alignas_qualifier", Role::Skip),
    ("attribute_declaration", Role::Skip),
    ("raw_string_literal", Role::Skip),
    ("concatenated_string", Role::Skip),
    ("user_defined_literal", Role::Skip),
];

/// Operators that look like calls, but are evaluated by the compiler.
const UNEVALUATED: [&str; 4] = ["noexcept", "typeid", "__builtin_constant_p", "__builtin_choose_expr"];

/// Common names of streams. Replacing `<<` on a stream does not compile.
const STREAMS: [&str; 15] =
    ["cout", "cerr", "clog", "cin", "os", "oss", "ss", "is", "iss", "in", "out", "ifs", "ofs", "log", "sstr"];

pub(super) fn table() -> Syntax {
    // The first entry of a kind counts.
    let roles: Vec<_> = ROLES.iter().chain(c::ROLES).copied().collect();
    Syntax {
        binary: BINARY,
        compound: COMPOUND,
        bindings: BINDINGS_OF_C,
        unary: &["!", "-", "~"],
        function: cpp_values::function,
        container,
        is_deletable,
        is_walked,
        is_loop_jump: c::is_loop_jump,
        is_mutated_operator,
        has_constant_condition: |node, _| cpp_constants::has_constant_condition(node),
        evaluation: cpp_constants::evaluation,
        before_body,
        condition_form: GuardForm::Condition,
        dropped_negation: "!!",
        type_check: Some("__HG_TYPE"),
        readable,
        ..Syntax::new(tree_sitter_cpp::LANGUAGE.into(), &roles)
    }
}

fn readable(text: &str) -> Option<String> {
    let continued = c::with_continued_lines(text);
    cpp_macros::without_specifiers(continued.as_deref().unwrap_or(text)).or(continued)
}

/// Returns the name of a namespace or class, without template arguments.
fn container(node: Node<'_>, text: &str) -> String {
    let Some(name) = node.child_by_field_name("name") else { return String::new() };
    let name = text_of(name, text);
    name.split('<').next().unwrap_or(name).trim().to_owned()
}

/// Returns the initializer list of a constructor.
fn before_body(function: Node<'_>) -> Option<Node<'_>> {
    let mut cursor = function.walk();
    function.children(&mut cursor).find(|child| child.kind() == "field_initializer_list")
}

/// Returns whether a statement is a call, an assignment or a write to a stream.
fn is_deletable(statement: Node<'_>, text: &str) -> bool {
    if statement.kind() != "expression_statement" {
        return false;
    }
    let Some(expression) = statement.named_child(0) else { return false };
    match expression.kind() {
        "assignment_expression" | "update_expression" => true,
        "call_expression" => is_walked(expression, text),
        "binary_expression" => is_stream(expression, text),
        _ => false,
    }
}

/// Returns whether to walk a call or declaration: as in C, except unevaluated calls and constant
/// declarations.
fn is_walked(node: Node<'_>, text: &str) -> bool {
    if node.kind() == "call_expression" {
        let name = node.child_by_field_name("function").map(|name| text_of(name, text));
        return name.is_some_and(|name| !UNEVALUATED.contains(&name)) && c::is_walked(node, text);
    }
    let mut cursor = node.walk();
    let is_constant = |child: Node<'_>| {
        matches!(child.kind(), "type_qualifier" | "storage_class_specifier")
            && matches!(text_of(child, text), "constexpr" | "constinit" | "thread_local")
    };
    !node.children(&mut cursor).any(is_constant) && c::is_walked(node, text)
}

/// Returns whether an operator may be replaced. Excludes stream operators, and unused values, which are
/// really declarations that look like expressions.
fn is_mutated_operator(node: Node<'_>, text: &str) -> bool {
    let is_statement = || node.parent().is_some_and(|parent| parent.kind() == "expression_statement");
    node.kind() != "binary_expression" || (!is_statement() && !is_stream(node, text))
}

/// Guesses whether `<<` or `>>` writes to or reads from a stream.
fn is_stream(node: Node<'_>, text: &str) -> bool {
    let Some(operator) = shift(node, text) else { return false };
    let mut top = node;
    while let Some(parent) = top.parent().filter(|parent| shift(*parent, text) == Some(operator)) {
        top = parent;
    }
    let mut operands = Vec::new();
    let mut leftmost = top;
    while shift(leftmost, text) == Some(operator) {
        operands.extend(leftmost.child_by_field_name("right"));
        let Some(left) = leftmost.child_by_field_name("left") else { break };
        leftmost = left;
    }
    let is_written = |operand: &Node<'_>| {
        matches!(operand.kind(), "string_literal" | "raw_string_literal" | "concatenated_string")
            || operand.kind() == "char_literal"
            || text_of(*operand, text).contains("endl")
    };
    let parent = top.parent().map_or("", |parent| parent.kind());
    operands.len() > 1
        || parent == "expression_statement"
        || (operator == ">>" && parent == "condition_clause")
        || operands.iter().any(is_written)
        || is_stream_name(text_of(leftmost, text))
        || is_stream_operator(top, text)
}

fn shift<'text>(node: Node<'_>, text: &'text str) -> Option<&'text str> {
    let operator = node.child_by_field_name("operator").filter(|_| node.kind() == "binary_expression")?;
    Some(text_of(operator, text)).filter(|operator| matches!(*operator, "<<" | ">>"))
}

fn is_stream_name(operand: &str) -> bool {
    let name = operand.rsplit([':', '.', '>']).next().unwrap_or(operand).trim_end_matches("()");
    let name = name.trim_matches('_').to_lowercase();
    STREAMS.contains(&name.as_str()) || name.contains("stream")
}

/// Returns whether an expression is inside the definition of a stream operator.
fn is_stream_operator(node: Node<'_>, text: &str) -> bool {
    let mut around = node.parent();
    while let Some(one) = around {
        if one.kind() == "function_definition" {
            let declarator = one.child_by_field_name("declarator").map_or("", |node| text_of(node, text));
            let name = declarator.split('(').next().unwrap_or_default().replace(' ', "");
            return name.ends_with("operator<<") || name.ends_with("operator>>");
        }
        around = one.parent();
    }
    false
}
