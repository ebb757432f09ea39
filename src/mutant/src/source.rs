//! A source and its mutants.

use crate::{
    cfg::Configuration,
    conditional::conditional_parts,
    guard::{Arm, AssignmentParts, Function, Guard, GuardForm, ModuleDeclaration},
    syntax::{Syntax, table_of},
    walk::{WalkedFile, each_node, walk_file},
};
use heeler_mutant_model::{ByteRange, Description, Language, Mutant, MutantIds, SourceText};
use std::{collections::BTreeMap, ops::Range, sync::Arc};
use tree_sitter::{Node, Parser, Tree};

/// A source to search.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path relative to the workspace, with `/` as separator.
    pub path: Arc<str>,
    pub language: Language,
    pub text: Arc<str>,
    /// Why the source's mutants are not tested: its module is not compiled. `None` if they are tested.
    pub ignored: Option<Arc<str>>,
}

/// A mutant as found: pending or ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMutant {
    pub mutant: Arc<Mutant>,
    /// Why the mutant is not tested.
    pub ignored: Option<Arc<str>>,
    /// Index in [`MutatedSource::functions`].
    pub function: usize,
}

/// A source that has been searched for mutants.
#[derive(Debug)]
pub struct MutatedSource {
    pub(crate) file: Arc<SourceText>,
    /// Why the source's mutants are not tested; `None` if they are.
    ignored: Option<Arc<str>>,
    configuration: Arc<Configuration>,
    functions: Vec<Function>,
    modules: Vec<ModuleDeclaration>,
    mutants: Vec<FoundMutant>,
}

/// The guards of a source. Found again for each emission instead of stored: guards take several times as
/// much memory as mutants, and parsing handles megabytes per second.
#[derive(Debug)]
pub(crate) struct SourceGuards {
    pub(crate) guards: Vec<Guard>,
    /// Parts of guarded assignments, by first byte.
    pub(crate) assignments: BTreeMap<usize, AssignmentParts>,
    /// Whole lines without code, for languages where guards add lines. Dropping such a line brings the
    /// following code back to its original line number.
    pub(crate) empty_lines: Vec<Range<usize>>,
    /// Number of syntax errors.
    pub(crate) errors: usize,
}

impl MutatedSource {
    /// Searches a source for mutants.
    pub fn search(file: SourceFile, configuration: impl Into<Arc<Configuration>>) -> Self {
        let SourceFile { path, language, text, ignored } = file;
        let file = Arc::new(SourceText::new(path, language, text));
        let mut source = Self {
            file,
            ignored,
            configuration: configuration.into(),
            functions: Vec::new(),
            modules: Vec::new(),
            mutants: Vec::new(),
        };
        let tree = SourceParser::new(source.file.language).parse(&source.file.text);
        let WalkedFile { guards, mut functions, modules, .. } = source.walk(&tree);
        functions.shrink_to_fit();
        source.mutants = mutants_of(&source.file, guards, &functions);
        (source.functions, source.modules) = (functions, modules);
        source
    }

    fn walk(&self, tree: &Tree) -> WalkedFile {
        let (syntax, root) = (table_of(self.file.language), tree.root_node());
        walk_file(syntax, &self.file.text, &self.configuration, root, self.ignored.as_ref())
    }

    /// Finds the guards of the mutants.
    pub(crate) fn guards(&self, parser: &mut SourceParser) -> SourceGuards {
        let (syntax, text) = (table_of(self.file.language), &*self.file.text);
        let tree = parser.parse(text);
        let WalkedFile { guards, assignments, .. } = self.walk(&tree);
        let root = tree.root_node();
        let empty_lines = if syntax.is_indented { empty_lines(root, text) } else { Vec::new() };
        SourceGuards { guards, assignments, empty_lines, errors: errors_of(&tree).len() }
    }

    pub fn file(&self) -> &Arc<SourceText> {
        &self.file
    }

    /// Returns the line of the first syntax error, from 1. No mutants are found around syntax errors.
    pub fn first_syntax_error(&self) -> Option<usize> {
        let tree = SourceParser::new(self.file.language).parse(&self.file.text);
        let first = errors_of(&tree).into_iter().next()?;
        Some(self.file.text.get(..first.start)?.bytes().filter(|byte| *byte == b'\n').count() + 1)
    }

    /// Returns the mutants ordered by position. A mutant's number is its index here plus the first number of
    /// the source.
    pub fn mutants(&self) -> &[FoundMutant] {
        &self.mutants
    }

    /// Returns the functions that were searched.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Returns the functions outside of other functions, ordered by position.
    pub fn outermost_functions(&self) -> Vec<&Function> {
        let mut functions: Vec<_> = self.functions.iter().collect();
        functions.sort_by_key(|one| (one.bytes.start, std::cmp::Reverse(one.bytes.end)));
        let mut end = 0;
        functions.retain(|one| {
            let is_outermost = one.bytes.start >= end;
            if is_outermost {
                end = one.bytes.end;
            }
            is_outermost
        });
        functions
    }

    /// Returns the innermost function around a byte, or else the entry for code outside of functions, if
    /// there is one.
    pub(crate) fn function_at(&self, byte: usize) -> Option<usize> {
        let around = self.functions.iter().enumerate().filter(|(_, one)| one.bytes.contains(&byte));
        let innermost = around.min_by_key(|(_, one)| one.bytes.len()).map(|(index, _)| index);
        innermost.or_else(|| self.functions.iter().position(|one| one.item.is_empty()))
    }

    /// Returns the mutants that the C preprocessor may remove.
    pub fn conditional_mutants(&self) -> Vec<usize> {
        if self.file.language == Language::Rust {
            return Vec::new();
        }
        let parts = conditional_parts(&self.file.text);
        let is_inside = |found: &FoundMutant| {
            let start = found.mutant.bytes().start;
            parts.iter().any(|part| part.contains(&start))
        };
        let mutants = self.mutants.iter().enumerate();
        mutants.filter(|(_, found)| is_inside(found)).map(|(index, _)| index).collect()
    }

    /// Returns the modules in other files, without modules of test builds.
    pub fn modules(&self) -> &[ModuleDeclaration] {
        &self.modules
    }
}

pub(crate) struct SourceParser {
    syntax: &'static Syntax,
    parser: Parser,
}

impl SourceParser {
    pub(crate) fn new(language: Language) -> Self {
        let (syntax, mut parser) = (table_of(language), Parser::new());
        parser.set_language(&syntax.grammar).expect("the grammars are of a version that the parser reads");
        Self { syntax, parser }
    }

    pub(crate) fn parse(&mut self, text: &str) -> Tree {
        let readable = (self.syntax.readable)(text);
        let text = readable.as_deref().unwrap_or(text);
        self.parser.parse(text, None).expect("a parser with a language and without limits parses everything")
    }

    /// Returns the byte ranges of syntax errors.
    pub(crate) fn errors(&mut self, text: &str) -> Vec<Range<usize>> {
        errors_of(&self.parse(text))
    }
}

fn errors_of(tree: &Tree) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        let is_broken = node.is_error() || node.is_missing();
        if is_broken {
            found.push(node.byte_range());
        }
        if node.has_error() && !is_broken && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return found;
            }
        }
    }
}

fn mutants_of(file: &Arc<SourceText>, guards: Vec<Guard>, functions: &[Function]) -> Vec<FoundMutant> {
    let mut ids = MutantIds::default();
    let mut mutants = Vec::with_capacity(guards.iter().map(|guard| guard.arms.len()).sum());
    for guard in guards {
        let original = &file.text[guard.bytes.clone()];
        let item = &functions[guard.function].item;
        for Arm { mutator, change, is_value, ignored, .. } in guard.arms {
            let replacement = change.applied(&file.text, &guard.bytes);
            let mutant = Mutant {
                id: ids.next_id([&*file.path, mutator.name(), original, &replacement, item]),
                source: Arc::clone(file),
                mutator,
                item: Arc::clone(item),
                bytes: ByteRange::new(&guard.bytes),
                description: if is_value { Description::OfValue } else { Description::None },
                change,
            };
            mutants.push(FoundMutant { mutant: Arc::new(mutant), ignored, function: guard.function });
        }
    }
    mutants
}

/// Returns the lines that are blank or contain only a comment, with their line breaks. Lines inside
/// multi-line strings do not count.
fn empty_lines(root: Node<'_>, text: &str) -> Vec<Range<usize>> {
    let mut texts = Vec::new();
    each_node(root, &mut |node| {
        if node.kind() == "string" && node.start_position().row != node.end_position().row {
            texts.push(node.byte_range());
        }
    });
    let mut lines = Vec::new();
    let mut at = 0;
    let mut is_continued = false;
    for (row, line) in text.split_inclusive('\n').enumerate() {
        let code = line.trim();
        let is_in_text = || {
            let behind = texts.partition_point(|one| one.start < at);
            behind.checked_sub(1).is_some_and(|before| at < texts[before].end)
        };
        // The first two lines may declare the encoding.
        let is_whole = row > 1 && line.ends_with('\n');
        if is_whole && !is_continued && (code.is_empty() || code.starts_with('#')) && !is_in_text() {
            lines.push(at..at + line.len());
        }
        is_continued = code.ends_with('\\');
        at += line.len();
    }
    lines
}

impl GuardForm {
    /// Returns whether the guard is written around its bytes.
    pub(crate) const fn is_around(self) -> bool {
        match self {
            Self::Constant | Self::Statement | Self::Assignment | Self::Condition | Self::Expression => true,
            Self::Body | Self::Loop | Self::Arm | Self::Jump => false,
        }
    }
}
