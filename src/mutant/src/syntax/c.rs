//! The syntax table of C.

use super::table::{BINARY, BINDINGS_OF_C, COMPOUND, FunctionFacts, Gate, Role, Syntax, text_of};
use tree_sitter::Node;

pub(super) const ROLES: &[(&str, Role)] = &[
    ("comment", Role::Comment),
    ("function_definition", Role::Function),
    ("compound_statement", Role::Block),
    ("if_statement", Role::Conditional),
    ("conditional_expression", Role::Conditional),
    ("while_statement", Role::Loop),
    ("for_statement", Role::Loop),
    ("do_statement", Role::Loop),
    ("binary_expression", Role::Binary),
    ("assignment_expression", Role::CompoundAssignment),
    ("unary_expression", Role::Unary),
    ("true", Role::Boolean),
    ("false", Role::Boolean),
    ("call_expression", Role::Call),
    ("declaration", Role::Declaration),
    ("break_statement", Role::LoopControl),
    ("continue_statement", Role::LoopControl),
    ("init_declarator", Role::Fields(&["value"])),
    ("cast_expression", Role::Fields(&["value"])),
    ("compound_literal_expression", Role::Fields(&["value"])),
    ("initializer_pair", Role::Fields(&["value"])),
    // The label must be a constant.
    ("case_statement", Role::WithoutFields(&["value"])),
    ("preproc_if", Role::WithoutFields(&["condition"])),
    ("preproc_elif", Role::WithoutFields(&["condition"])),
    // Evaluated by the compiler, or not code.
    ("preproc_def", Role::Skip),
    ("preproc_function_def", Role::Skip),
    ("preproc_call", Role::Skip),
    ("preproc_include", Role::Skip),
    ("sizeof_expression", Role::Skip),
    ("alignof_expression", Role::Skip),
    ("offsetof_expression", Role::Skip),
    ("generic_expression", Role::Skip),
    ("gnu_asm_expression", Role::Skip),
    ("type_definition", Role::Skip),
    ("struct_specifier", Role::Skip),
    ("union_specifier", Role::Skip),
    ("enum_specifier", Role::Skip),
    ("type_descriptor", Role::Skip),
    ("parameter_list", Role::Skip),
    ("array_declarator", Role::Skip),
    ("attribute_specifier", Role::Skip),
    ("string_literal", Role::Skip),
];

pub(super) fn table() -> Syntax {
    Syntax {
        binary: BINARY,
        compound: COMPOUND,
        bindings: BINDINGS_OF_C,
        unary: &["!", "-", "~"],
        booleans: ["1", "0"],
        function,
        is_deletable,
        attribute: |_, _, _| Gate::Open,
        is_walked,
        is_loop_jump,
        readable: with_continued_lines,
        ..Syntax::new(tree_sitter_c::LANGUAGE.into(), ROLES)
    }
}

/// Replaces `\` followed by CR LF with a one-byte line break; `None` if there are none. The parser misreads
/// the code after a two-byte break inside a string. All positions stay the same.
pub(super) fn with_continued_lines(text: &str) -> Option<String> {
    text.contains("\\\r\n").then(|| text.replace("\\\r\n", " \\\n"))
}

fn function<'tree>(node: Node<'tree>, text: &str) -> Option<FunctionFacts<'tree>> {
    let body = node.child_by_field_name("body")?;
    let returned = text_of(node.child_by_field_name("type")?, text);
    let mut declarator = node.child_by_field_name("declarator")?;
    let mut is_pointer = false;
    while declarator.kind() != "function_declarator" {
        is_pointer |= declarator.kind() == "pointer_declarator";
        declarator = declarator.child_by_field_name("declarator")?;
    }
    let name = declarator.child_by_field_name("declarator")?;
    let words: Vec<&str> = returned.split_whitespace().collect();
    let values: &[&str] = match words.as_slice() {
        _ if text_of(name, text) == "main" => &[],
        _ if is_pointer => &["0"],
        ["void"] => &[""],
        ["float" | "double"] | ["long", "double"] => &["0.0", "1.0"],
        ["bool" | "_Bool"] => &["1", "0"],
        _ if words.iter().all(|word| is_integer(word)) => &["0", "1"],
        // A structure, or a name of unknown type.
        _ => &[],
    };
    let values = values.iter().map(|&value| value.to_owned()).collect();
    let values = without_same(values, body, text);
    Some(FunctionFacts { name, body, is_constant: false, constant_word: None, values })
}

/// Removes values that the function returns anyway.
pub(super) fn without_same(mut values: Vec<String>, body: Node<'_>, text: &str) -> Vec<String> {
    let block = text_of(body, text);
    let statement = block.trim_start_matches('{').trim_end_matches('}').trim();
    values.retain(|value| match value.as_str() {
        "" => !statement.is_empty(),
        value => statement != format!("return {value};"),
    });
    values
}

pub(super) fn is_integer(word: &str) -> bool {
    let names = ["char", "short", "int", "long", "signed", "unsigned", "size_t", "ssize_t", "ptrdiff_t"];
    let fixed = |word: &str| {
        let bits = word.strip_suffix("_t")?.trim_start_matches("u").strip_prefix("int")?;
        Some(bits.bytes().all(|byte| byte.is_ascii_digit()) || bits == "ptr" || bits == "max")
    };
    names.contains(&word) || fixed(word).unwrap_or(false)
}

/// Returns whether a statement is a call or an assignment.
fn is_deletable(statement: Node<'_>, text: &str) -> bool {
    if statement.kind() != "expression_statement" {
        return false;
    }
    let Some(expression) = statement.named_child(0) else { return false };
    match expression.kind() {
        "assignment_expression" | "update_expression" => true,
        "call_expression" => is_walked(expression, text),
        _ => false,
    }
}

/// Returns whether to walk a call or declaration. Excludes arguments of likely macros, which may need
/// constants or plain text, and values of static variables.
pub(super) fn is_walked(node: Node<'_>, text: &str) -> bool {
    if node.kind() == "call_expression" {
        let Some(name) = node.child_by_field_name("function") else { return false };
        let name = text_of(name, text);
        return name.bytes().any(|byte| byte.is_ascii_lowercase()) && !name.contains("assert");
    }
    let mut cursor = node.walk();
    !node.children(&mut cursor).any(|child| {
        let is_constant = ["static", "constexpr", "_Thread_local", "extern"].contains(&text_of(child, text));
        child.kind() == "storage_class_specifier" && is_constant
    })
}

/// Returns whether a `break` or `continue` applies to a loop that can run more than once. A `break` in a
/// `switch` applies to the `switch`; in a loop that runs once, both jumps do the same.
pub(super) fn is_loop_jump(jump: Node<'_>, text: &str) -> bool {
    let around = std::iter::successors(jump.parent(), |node| node.parent());
    let is_end =
        |kind: &str| matches!(kind, "function_definition" | "lambda_expression" | "switch_statement");
    let mut inside = around.take_while(|node| !is_end(node.kind()));
    let is_loop =
        |kind: &str| matches!(kind, "while_statement" | "for_statement" | "do_statement" | "for_range_loop");
    inside.find(|node| is_loop(node.kind())).is_some_and(|around| {
        let condition = around.child_by_field_name("condition").filter(|_| around.kind() == "do_statement");
        !condition.is_some_and(|condition| {
            matches!(text_of(condition, text).trim_matches(['(', ')', ' ']), "0" | "false")
        })
    })
}
