//! YAML documents as trees of nodes, each with its line. Anchors, aliases and tags are refused: suites have
//! none, and an alias may stand for any amount of text.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// Maximum depth of a document: the suites' deepest nodes are fifteen levels down.
const MAX_DEPTH: usize = 64;

/// The text is not a document of the messages that were expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TextError {
    /// Line of the text, from 1.
    pub line: usize,
    /// What was found, and what was expected.
    pub problem: String,
}

impl TextError {
    pub(crate) fn new(line: usize, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }
}

/// A node of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) content: Content,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Scalar { text: String, is_plain: bool },
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// An entry of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) value: Node,
}

impl Node {
    /// Returns whether the node is null, which a plain scalar only can be.
    pub(crate) fn is_null(&self) -> bool {
        match &self.content {
            Content::Scalar { text, is_plain } => {
                *is_plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            Content::Sequence(_) | Content::Mapping(_) => false,
        }
    }

    /// Returns what the node is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.content {
            Content::Scalar { .. } if self.is_null() => "null",
            Content::Scalar { .. } => "a scalar",
            Content::Sequence(_) => "a sequence",
            Content::Mapping(_) => "a mapping",
        }
    }
}

/// A node whose end is not read yet.
enum OpenNode {
    Sequence { line: usize, items: Vec<Node> },
    Mapping { line: usize, entries: Vec<Entry>, key: Option<(String, usize)> },
}

/// Reads a text of one document.
///
/// # Errors
/// The text is no YAML, has no document or several, or has anchors, aliases or tags.
pub(crate) fn parse(text: &str) -> Result<Node, TextError> {
    let mut tree = TreeBuilder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| TextError::new(error.marker().line(), error.info()))?;
        tree.handle(event, span)?;
    }
    tree.root.ok_or_else(|| TextError::new(1, "no document"))
}

#[derive(Default)]
struct TreeBuilder {
    open: Vec<OpenNode>,
    root: Option<Node>,
}

impl TreeBuilder {
    fn handle(&mut self, event: Event<'_>, span: Span) -> Result<(), TextError> {
        let line = span.start.line();
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => match self.root {
                None => Ok(()),
                Some(_) => Err(TextError::new(line, "a second document, expected one")),
            },
            Event::Alias(_) => Err(TextError::new(line, "an alias, which is not supported")),
            Event::Scalar(text, style, anchor, tag) => {
                refuse_properties(anchor, tag.is_some(), line)?;
                self.add(Node { line, content: scalar(text, style, span) })
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_properties(anchor, tag.is_some(), line)?;
                self.open_node(OpenNode::Sequence { line, items: Vec::new() }, line)
            }
            Event::MappingStart(anchor, tag) => {
                refuse_properties(anchor, tag.is_some(), line)?;
                self.open_node(OpenNode::Mapping { line, entries: Vec::new(), key: None }, line)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.open.pop().expect("the parser balances starts and ends") {
                    OpenNode::Sequence { line, items } => Node { line, content: Content::Sequence(items) },
                    OpenNode::Mapping { line, entries, key: _ } => {
                        Node { line, content: Content::Mapping(entries) }
                    }
                };
                self.add(node)
            }
        }
    }

    fn open_node(&mut self, node: OpenNode, line: usize) -> Result<(), TextError> {
        if self.open.len() == MAX_DEPTH {
            return Err(TextError::new(line, format!("a node more than {MAX_DEPTH} levels down")));
        }
        self.open.push(node);
        Ok(())
    }

    fn add(&mut self, node: Node) -> Result<(), TextError> {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(OpenNode::Sequence { items, .. }) => items.push(node),
            Some(OpenNode::Mapping { entries, key, .. }) => match key.take() {
                Some((key, line)) => entries.push(Entry { key, line, value: node }),
                None => *key = Some(key_of(node, entries)?),
            },
        }
        Ok(())
    }
}

fn key_of(node: Node, entries: &[Entry]) -> Result<(String, usize), TextError> {
    let Content::Scalar { text, .. } = node.content else {
        return Err(TextError::new(node.line, format!("{} as a key, expected a name", node.kind())));
    };
    if entries.iter().any(|entry| entry.key == text) {
        return Err(TextError::new(node.line, format!("{text:?} for a second time")));
    }
    Ok((text, node.line))
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle, span: Span) -> Content {
    let is_plain = style == ScalarStyle::Plain;
    // The parser writes `~` where nothing is written.
    let is_absent = is_plain && span.is_empty();
    Content::Scalar { text: if is_absent { String::new() } else { text.into_owned() }, is_plain }
}

fn refuse_properties(anchor: usize, has_tag: bool, line: usize) -> Result<(), TextError> {
    match (anchor, has_tag) {
        (0, false) => Ok(()),
        (0, true) => Err(TextError::new(line, "a tag, which is not supported")),
        _ => Err(TextError::new(line, "an anchor, which is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(line: usize, text: &str) -> Node {
        Node { line, content: Content::Scalar { text: text.to_owned(), is_plain: true } }
    }

    #[test]
    fn document_becomes_nodes_with_lines() {
        let root = parse("# comment\na:\n- 1\n- \"2\"\nb:\nc: ~\nd: |\n  x\n  y\n").unwrap();
        let Content::Mapping(entries) = &root.content else { panic!("{root:?}") };
        let keys: Vec<_> = entries.iter().map(|entry| (entry.key.as_str(), entry.line)).collect();
        assert_eq!(keys, [("a", 2), ("b", 5), ("c", 6), ("d", 7)]);
        let quoted = Node { line: 4, content: Content::Scalar { text: "2".to_owned(), is_plain: false } };
        assert_eq!(entries[0].value.content, Content::Sequence(vec![plain(3, "1"), quoted]));
        let nulls: Vec<_> = entries.iter().map(|entry| entry.value.is_null()).collect();
        assert_eq!(nulls, [false, true, true, false]);
        let Content::Scalar { text, .. } = &entries[3].value.content else { panic!() };
        assert_eq!(text, "x\ny\n");
        let Content::Scalar { text, .. } = &entries[1].value.content else { panic!() };
        assert_eq!(text, "");
    }

    #[test]
    fn what_suites_do_not_have_is_refused_with_its_line() {
        let deep = "[".repeat(MAX_DEPTH + 1);
        for (text, expected) in [
            ("", "line 1: no document"),
            ("a: 1\n---\nb: 2", "line 2: a second document, expected one"),
            ("a: &x 1", "line 1: an anchor, which is not supported"),
            ("a: !!int 1", "line 1: a tag, which is not supported"),
            ("a: 1\na: 2", "line 2: \"a\" for a second time"),
            ("? [a]\n: 1", "line 1: a sequence as a key, expected a name"),
            (&deep, "line 1: a node more than 64 levels down"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        assert!(parse("a: *x").is_err());
    }
}
