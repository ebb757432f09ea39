//! Python mutants of `--operators all`: literals, arguments, lambda bodies, string methods and cases.

use super::{found_guards::Place, mutations::arm, python::PythonMutants};
use crate::guard::GuardForm;
use heeler_mutant_model::{Change, Mutator};
use std::ops::Range;
use tree_sitter::Node;

/// String methods and their replacements.
const METHODS: [(&str, &str); 10] = [
    ("lower", "upper"),
    ("lstrip", "rstrip"),
    ("find", "rfind"),
    ("index", "rindex"),
    ("ljust", "rjust"),
    ("partition", "rpartition"),
    ("removeprefix", "removesuffix"),
    ("startswith", "endswith"),
    ("split", "rsplit"),
    ("encode", "decode"),
];

impl PythonMutants<'_, '_> {
    pub(super) fn visit_further(&mut self, node: Node<'_>) {
        if !self.mutants.source.configuration.has_all_operators() || node.has_error() {
            return;
        }
        match node.kind() {
            "float" => {
                let code = format!("({} + 1)", self.mutants.source.text_of(node));
                self.replaced(node, node.byte_range(), code, Mutator::NUMBER_LITERAL);
            }
            "string" => self.string(node),
            "call" => {
                self.method(node);
                self.arguments(node);
            }
            "lambda" => {
                let Some(body) = node.child_by_field_name("body") else { return };
                let value = if self.mutants.source.text_of(body) == "None" { "0" } else { "None" };
                self.replaced(body, body.byte_range(), value.to_owned(), Mutator::LAMBDA_BODY);
            }
            "case_clause" => self.case(node),
            _ => {}
        }
    }

    /// Adds a mutant that replaces a part of an expression.
    fn replaced(&mut self, node: Node<'_>, part: Range<usize>, with: String, mutator: Mutator) {
        let (before, behind) = (
            &self.mutants.source.text[node.start_byte()..part.start],
            &self.mutants.source.text[part.end..node.end_byte()],
        );
        let code = self.mutants.source.on_one_line(&[before, &with, behind].concat());
        self.mutants
            .add(Place::around(GuardForm::Expression, node), arm(mutator, Change::new(&part, with), code));
    }

    /// Adds letters at both ends of a string.
    fn string(&mut self, node: Node<'_>) {
        let is_alone = node
            .parent()
            .is_none_or(|parent| matches!(parent.kind(), "expression_statement" | "concatenated_string"));
        let ends = (node.child(0), node.child_count().checked_sub(1).and_then(|last| node.child(last)));
        let (Some(start), Some(end)) = ends else { return };
        let prefix = self.mutants.source.text_of(start).trim_end_matches(['"', '\'']).to_ascii_lowercase();
        // Values in an f-string are not text, and a string statement is a comment.
        if is_alone || prefix.contains(['f', 't']) || self.mutants.source.text_of(node).contains('\n') {
            return;
        }
        let content = start.end_byte()..end.start_byte();
        let with = format!("XX{}XX", &self.mutants.source.text[content.clone()]);
        self.replaced(node, content, with, Mutator::STRING_LITERAL);
    }

    /// Replaces a string method.
    fn method(&mut self, node: Node<'_>) {
        let function = node.child_by_field_name("function").filter(|function| function.kind() == "attribute");
        let Some(name) = function.and_then(|function| function.child_by_field_name("attribute")) else {
            return;
        };
        let word = self.mutants.source.text_of(name);
        let other = METHODS.iter().find_map(|&(one, other)| match word {
            word if word == one => Some(other),
            word if word == other => Some(one),
            _ => None,
        });
        if let Some(other) = other {
            self.replaced(node, name.byte_range(), other.to_owned(), Mutator::METHOD_EXPRESSION);
        }
    }

    /// Replaces an argument by `None`, or drops it.
    fn arguments(&mut self, node: Node<'_>) {
        let arguments = node.child_by_field_name("arguments").filter(|list| list.kind() == "argument_list");
        let Some(arguments) = arguments else { return };
        let mut cursor = arguments.walk();
        let is_argument = |child: &Node<'_>| child.is_named() && child.kind() != "comment";
        let list: Vec<Node<'_>> = arguments.children(&mut cursor).filter(is_argument).collect();
        for &argument in &list {
            if matches!(argument.kind(), "list_splat" | "dictionary_splat") {
                continue;
            }
            let value =
                argument.child_by_field_name("value").filter(|_| argument.kind() == "keyword_argument");
            let value = value.unwrap_or(argument);
            if self.mutants.source.text_of(value) != "None" {
                self.replaced(node, value.byte_range(), "None".to_owned(), Mutator::ARGUMENT);
            }
            if list.len() > 1 {
                let rest = &self.mutants.source.text[argument.end_byte()..arguments.end_byte()];
                let comma = rest.find(|letter: char| !letter.is_whitespace());
                let comma = comma.filter(|&at| rest[at..].starts_with(',')).map_or(0, |at| at + 1);
                let bytes = argument.start_byte()..argument.end_byte() + comma;
                self.replaced(node, bytes, String::new(), Mutator::ARGUMENT);
            }
        }
    }

    /// Disables a `case`.
    fn case(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let patterns = node.children(&mut cursor).filter(|child| child.kind() == "case_pattern");
        let Some(last) = patterns.last().filter(|_| node.child_by_field_name("guard").is_none()) else {
            return;
        };
        let place = Place { form: GuardForm::Arm, bytes: node.byte_range(), insert_at: last.end_byte() };
        self.mutants.add(place, arm(Mutator::MATCH_ARM, Change::new(&node.byte_range(), ""), String::new()));
    }
}
