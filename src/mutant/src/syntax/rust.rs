//! The syntax table of Rust.

use super::{
    rust_attributes, rust_literals, rust_statements, rust_values,
    table::{BINARY, COMPOUND, FunctionFacts, Role, Syntax, text_of},
};
use crate::{guard::GuardForm, walk::Lexis};
use tree_sitter::Node;

const ROLES: &[(&str, Role)] = &[
    ("line_comment", Role::Comment),
    ("block_comment", Role::Comment),
    ("attribute_item", Role::Attribute),
    ("inner_attribute_item", Role::InnerAttribute),
    ("mod_item", Role::Container),
    ("impl_item", Role::Container),
    ("trait_item", Role::Container),
    ("function_item", Role::Function),
    ("block", Role::Block),
    ("if_expression", Role::Conditional),
    ("match_pattern", Role::GuardedPattern),
    ("while_expression", Role::Loop),
    ("binary_expression", Role::Binary),
    ("compound_assignment_expr", Role::CompoundAssignment),
    ("unary_expression", Role::Unary),
    ("boolean_literal", Role::Boolean),
    ("let_declaration", Role::Fields(&["value", "alternative"])),
    ("let_condition", Role::Fields(&["value"])),
    ("for_expression", Role::Fields(&["value", "body"])),
    ("closure_expression", Role::Fields(&["body"])),
    ("type_cast_expression", Role::Fields(&["value"])),
    ("array_expression", Role::WithoutFields(&["length"])),
    ("field_initializer", Role::Fields(&["value"])),
    ("match_arm", Role::MatchArm),
    ("struct_expression", Role::Structure),
    ("break_expression", Role::LoopControl),
    ("continue_expression", Role::LoopControl),
    ("integer_literal", Role::Number),
    ("generic_function", Role::Fields(&["function"])),
    // Evaluated by the compiler, or not code.
    ("const_item", Role::Skip),
    ("static_item", Role::Skip),
    ("const_block", Role::Skip),
    ("const_parameter", Role::Skip),
    ("enum_item", Role::Skip),
    ("struct_item", Role::Skip),
    ("union_item", Role::Skip),
    ("type_item", Role::Skip),
    ("associated_type", Role::Skip),
    ("function_signature_item", Role::Skip),
    ("foreign_mod_item", Role::Skip),
    ("use_declaration", Role::Skip),
    ("extern_crate_declaration", Role::Skip),
    ("macro_definition", Role::Skip),
    ("macro_invocation", Role::Skip),
    ("token_tree", Role::Skip),
    ("type_arguments", Role::Skip),
    ("type_parameters", Role::Skip),
    ("where_clause", Role::Skip),
    ("trait_bounds", Role::Skip),
    ("parameters", Role::Skip),
    ("array_type", Role::Skip),
    ("generic_type", Role::Skip),
    ("qualified_type", Role::Skip),
    ("bracketed_type", Role::Skip),
    ("string_literal", Role::Skip),
    ("scoped_identifier", Role::Skip),
];

const BINDINGS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["==", "!=", "<", "<=", ">", ">="],
    &["|"],
    &["^"],
    &["&"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Macros whose calls are not deleted, because they end the program or the build.
const KEPT_MACROS: [&str; 5] = ["panic", "unreachable", "todo", "unimplemented", "compile_error"];

pub(super) fn table() -> Syntax {
    Syntax {
        binary: BINARY,
        compound: COMPOUND,
        has_further_operators: true,
        bindings: BINDINGS,
        loops: &["loop_expression", "while_expression", "for_expression"],
        unary: &["!", "-"],
        function,
        container,
        is_deletable,
        attribute: rust_attributes::gate,
        is_mutated_operator: rust_statements::is_between_operands,
        is_loop_jump: rust_statements::is_loop_jump,
        jump_form: GuardForm::Expression,
        undivided: rust_literals::undivided,
        readable: rust_statements::with_values_of_breaks,
        lexis: Lexis::Rust,
        ..Syntax::new(tree_sitter_rust::LANGUAGE.into(), ROLES)
    }
}

fn function<'tree>(node: Node<'tree>, text: &str) -> Option<FunctionFacts<'tree>> {
    let name = node.child_by_field_name("name")?;
    let body = node.child_by_field_name("body")?;
    let mut cursor = node.walk();
    let modifiers = node.children(&mut cursor).find(|child| child.kind() == "function_modifiers");
    let constant_word = modifiers.and_then(|modifiers| {
        let mut cursor = modifiers.walk();
        modifiers.children(&mut cursor).find(|word| word.kind() == "const")
    });
    // `Default::default()` would call itself.
    let is_default = text_of(name, text) == "default";
    let mut values = rust_values::of_type(node.child_by_field_name("return_type"), text);
    values.retain(|value| !(is_default && value.contains("Default::default()")));
    let returned = text_of(body, text).trim_start_matches('{').trim_end_matches('}').trim();
    values.retain(|value| value != returned);
    Some(FunctionFacts { name, body, is_constant: false, constant_word, values })
}

fn container(node: Node<'_>, text: &str) -> String {
    let field = if node.kind() == "impl_item" { "type" } else { "name" };
    let Some(mut name) = node.child_by_field_name(field) else { return String::new() };
    if let Some(generic) = name.child_by_field_name("type").filter(|_| name.kind() == "generic_type") {
        name = generic;
    }
    let name = text_of(name, text);
    match node.child_by_field_name("trait") {
        Some(implemented) if node.kind() == "impl_item" => {
            format!("<{name} as {}>", text_of(implemented, text))
        }
        _ => name.to_owned(),
    }
}

/// Returns whether a statement can be deleted: a call, an assignment, or a macro that is not an assertion.
fn is_deletable(statement: Node<'_>, text: &str) -> bool {
    // Without a semicolon, it is a value, or a block whose own statements can be deleted.
    if statement.kind() != "expression_statement" || !text_of(statement, text).ends_with(';') {
        return false;
    }
    let Some(mut expression) = statement.named_child(0) else { return false };
    while matches!(expression.kind(), "await_expression" | "try_expression") {
        let Some(inner) = expression.named_child(0) else { return false };
        expression = inner;
    }
    match expression.kind() {
        "call_expression" | "assignment_expression" | "compound_assignment_expr" => true,
        "macro_invocation" => {
            let Some(name) = expression.child_by_field_name("macro") else { return false };
            let name = text_of(name, text).rsplit("::").next().unwrap_or_default().trim();
            !name.contains("assert") && !KEPT_MACROS.contains(&name)
        }
        _ => false,
    }
}
