//! Describes C++ functions: name, body, and the values that mutants return.

use super::{
    c::{is_integer, without_same},
    table::{FunctionFacts, text_of},
};
use tree_sitter::Node;

/// How a declarator changes the type before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Indirection {
    None,
    Pointer,
    Reference,
    /// No type, or a type that is not understood.
    Unknown,
}

/// The parts of a declarator.
struct Declared<'tree> {
    name: Node<'tree>,
    indirection: Indirection,
    /// Trailing return type, or the target type of a conversion operator.
    own_type: Option<Node<'tree>>,
}

pub(super) fn function<'tree>(node: Node<'tree>, text: &str) -> Option<FunctionFacts<'tree>> {
    let body = node.child_by_field_name("body").filter(|body| body.kind() == "compound_statement")?;
    // The parser may have inserted a missing `}`.
    let text_of_body = text_of(body, text);
    if text_of_body.len() < 2 || !text_of_body.ends_with('}') {
        return None;
    }
    // Read the declarator and the specifiers.
    let declared = declared(node.child_by_field_name("declarator")?)?;
    let name = text_of(declared.name, text);
    let words = specifiers(node, text);
    let has = |word: &str| words.iter().any(|one| one.contains(word));
    let is_constant =
        has("consteval") || name.starts_with("operator\"\"") || name.starts_with("operator \"\"");
    let mut cursor = node.walk();
    let is_understood = node.children(&mut cursor).all(|child| child == body || !child.has_error());
    let statement = text_of_body.trim_start_matches('{').trim_start();
    // In C++11, a `constexpr` function may contain only its `return` statement.
    let is_one_statement = has("constexpr") && statement.starts_with("return");
    // Choose values by return type.
    let mut values = Vec::new();
    if is_understood && !is_one_statement && !has("noreturn") && name != "main" {
        let written = node.child_by_field_name("type");
        let returned = match declared.own_type {
            Some(own) => Some(own),
            None => written,
        };
        values = returned.map_or_else(Vec::new, |returned| of_type(returned, declared.indirection, text));
    }
    let values = without_same(values, body, text);
    Some(FunctionFacts { name: declared.name, body, is_constant, constant_word: None, values })
}

/// Returns the specifiers before a function's type.
fn specifiers<'text>(node: Node<'_>, text: &'text str) -> Vec<&'text str> {
    let mut cursor = node.walk();
    let is_specifier = |kind: &str| {
        matches!(
            kind,
            "storage_class_specifier"
                | "type_qualifier"
                | "attribute_declaration"
                | "attribute_specifier"
                | "ms_declspec_modifier"
        )
    };
    node.children(&mut cursor)
        .filter(|child| is_specifier(child.kind()))
        .map(|child| text_of(child, text))
        .collect()
}

fn declared(declarator: Node<'_>) -> Option<Declared<'_>> {
    let mut node = declarator;
    let mut indirection = Indirection::None;
    loop {
        match node.kind() {
            "function_declarator" => {
                let name = node.child_by_field_name("declarator")?;
                let mut cursor = node.walk();
                let trailing =
                    node.children(&mut cursor).find(|child| child.kind() == "trailing_return_type");
                // The name of a function that returns a function pointer is nested deeper.
                let is_name = !name.kind().ends_with("_declarator");
                return Some(Declared {
                    name,
                    indirection: if is_name { indirection } else { Indirection::Unknown },
                    own_type: trailing.and_then(|trailing| trailing.named_child(0)),
                });
            }
            "operator_cast" => {
                let own_type = node.child_by_field_name("type");
                let target = node.child_by_field_name("declarator").map_or("", |target| target.kind());
                let is_plain = target == "abstract_function_declarator";
                let indirection = if is_plain { Indirection::None } else { Indirection::Unknown };
                return Some(Declared { name: node, indirection, own_type });
            }
            "pointer_declarator" => {
                indirection = Indirection::Pointer;
                node = node.child_by_field_name("declarator")?;
            }
            "reference_declarator" => {
                indirection = Indirection::Reference;
                node = node.named_child(0)?;
            }
            "qualified_identifier" => node = node.child_by_field_name("name")?,
            "parenthesized_declarator" | "attributed_declarator" => node = node.named_child(0)?,
            _ => return None,
        }
    }
}

/// Returns values of a type; none if a value can't be made easily.
fn of_type(returned: Node<'_>, indirection: Indirection, text: &str) -> Vec<String> {
    let mut node = returned;
    let mut indirection = indirection;
    if node.kind() == "type_descriptor" {
        match node.child_by_field_name("declarator").map(|declarator| declarator.kind()) {
            None => {}
            Some("abstract_pointer_declarator") => indirection = Indirection::Pointer,
            Some(_) => indirection = Indirection::Reference,
        }
        let Some(inner) = node.child_by_field_name("type") else { return Vec::new() };
        node = inner;
    }
    let values: &[&str] = match indirection {
        // `0` is valid in C too, because C code may include the same header.
        Indirection::Pointer => &["0"],
        Indirection::Reference | Indirection::Unknown => &[],
        Indirection::None => match node.kind() {
            "primitive_type" | "sized_type_specifier" => of_arithmetic(text_of(node, text)),
            "type_identifier" | "qualified_identifier" | "template_type" | "dependent_type" => {
                of_named(text_of(node, text))
            }
            // Deduced types, and types written as `struct NAME`.
            _ => &[],
        },
    };
    values.iter().map(|&value| value.to_owned()).collect()
}

fn of_arithmetic(name: &str) -> &'static [&'static str] {
    match name {
        "void" => &[""],
        "bool" => &["true", "false"],
        "float" | "double" | "long double" => &["0.0", "1.0"],
        _ => &["0", "1"],
    }
}

fn of_named(name: &str) -> &'static [&'static str] {
    let last = name.rsplit("::").next().unwrap_or(name).trim();
    match name {
        "std::string" | "string" => &["\"\""],
        _ if !name.contains('<') && is_integer(last) => &["0", "1"],
        _ => &["{}"],
    }
}
