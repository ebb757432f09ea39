//! The walked source, as shared by the mutants of all languages.

use super::{one_line::on_one_line, python_one_line};
use crate::{
    cfg::Configuration,
    syntax::{Gate, Operator, Role, Syntax, text_of},
};
use std::ops::Range;
use tree_sitter::Node;

/// A source with its language and configuration.
#[derive(Clone, Copy)]
pub(super) struct SourceView<'a> {
    pub(super) syntax: &'a Syntax,
    pub(super) text: &'a str,
    pub(super) configuration: &'a Configuration,
}

impl<'a> SourceView<'a> {
    pub(super) fn role(&self, node: Node<'_>) -> Role {
        self.syntax.role(node)
    }

    pub(super) fn text_of(&self, node: Node<'_>) -> &'a str {
        text_of(node, self.text)
    }

    /// Returns the gate that an attribute sets for its item.
    pub(super) fn attribute(&self, node: Node<'_>) -> Gate {
        (self.syntax.attribute)(node, self.text, self.configuration)
    }

    /// Returns whether a node is the first on its line.
    pub(super) fn is_first_in_line(&self, node: Node<'_>) -> bool {
        let before = &self.text[..node.start_byte()];
        before[before.rfind('\n').map_or(0, |at| at + 1)..].trim().is_empty()
    }

    /// Returns code without line breaks, if that does not change its meaning.
    pub(super) fn on_one_line(&self, code: &str) -> String {
        if self.syntax.is_indented {
            python_one_line::on_one_line(code)
        } else {
            on_one_line(code, self.syntax.lexis)
        }
    }

    /// Returns a part of the source without line breaks, if that does not change its meaning.
    pub(super) fn part_on_one_line(&self, bytes: Range<usize>) -> String {
        self.on_one_line(&self.text[bytes])
    }

    /// Returns the replacements of an operator.
    pub(super) fn replacements(
        &self,
        operator: &'static Operator,
    ) -> impl Iterator<Item = &'static str> + use<> {
        let has_further = self.syntax.has_further_operators || self.configuration.has_all_operators();
        let further = if has_further { operator.further } else { &[] };
        operator.replacements.iter().chain(further).copied()
    }
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
