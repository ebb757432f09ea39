//! Comments that exclude code from mutation.

use super::source_view::{SourceView, each_node};
use crate::syntax::Gate;
use std::{collections::BTreeSet, ops::Range};
use tree_sitter::Node;

/// Excludes the next statement or item, or the code on the comment's line.
const SUPPRESSION: &str = "heeler: no-mutate";
/// Comments that do the same in Python; other tools use the second one.
const PYTHON_SUPPRESSIONS: [&str; 2] = [SUPPRESSION, "pragma: no mutate"];
pub(super) const SUPPRESSED: &str = "suppressed by a comment";

/// Lines whose code is excluded by comments. Lines count from 0.
#[derive(Default)]
pub(super) struct Suppressions {
    /// Lines with a comment after code.
    lines: BTreeSet<usize>,
    /// First lines of statements with a comment before them.
    statements: BTreeSet<usize>,
}

impl Suppressions {
    /// Reads the comments of a Python source. A comment on its own line applies to the statement on the next
    /// line with code, any other comment to its own line.
    pub(super) fn read_python(source: &SourceView<'_>, root: Node<'_>) -> Self {
        let mut own_lines = Vec::new();
        let mut read = Self::default();
        each_node(root, &mut |node| {
            if node.kind() == "comment"
                && PYTHON_SUPPRESSIONS.iter().any(|word| source.text_of(node).contains(word))
            {
                let row = node.start_position().row;
                if source.is_first_in_line(node) {
                    own_lines.push(row);
                } else {
                    read.lines.insert(row);
                }
            }
        });
        let lines: Vec<&str> = source.text.lines().collect();
        for row in own_lines {
            let is_code =
                |row: &usize| !lines[*row].trim().is_empty() && !lines[*row].trim().starts_with('#');
            read.statements.extend((row + 1..lines.len()).find(is_code));
        }
        read
    }

    /// Reads a comment among the children of a node; returns the gate of the next child.
    pub(super) fn on_comment(&mut self, source: &SourceView<'_>, node: Node<'_>) -> Gate {
        if !source.text_of(node).contains(SUPPRESSION) {
            return Gate::Open;
        }
        if source.is_first_in_line(node) {
            return Gate::Ignored(SUPPRESSED.into());
        }
        self.lines.insert(node.start_position().row);
        Gate::Open
    }

    /// Returns the gate set by a comment before the statement.
    pub(super) fn statement_gate(&self, statement: Node<'_>) -> Gate {
        if self.statements.contains(&statement.start_position().row) {
            Gate::Ignored(SUPPRESSED.into())
        } else {
            Gate::Open
        }
    }

    /// Returns whether a comment suppresses mutants on any of these lines.
    pub(super) fn has_line_in(&self, lines: Range<usize>) -> bool {
        self.lines.range(lines).next().is_some()
    }
}
