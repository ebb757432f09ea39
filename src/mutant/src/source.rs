//! A source with its mutants.

use crate::{
    cfg::Configuration,
    conditional::conditional_parts,
    guard::{AssignmentParts, Function, Guard, GuardForm, ModuleDeclaration},
    line_index::LineIndex,
    mutant::{Language, Mutant, MutantId},
    syntax::{Role, Syntax, table_of},
    walk::{Walker, each_node},
};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};
use tree_sitter::{Node, Parser, Tree};

/// A source and where it is.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path relative to the workspace, with `/` between its parts.
    pub path: Arc<str>,
    pub language: Language,
    pub text: Arc<str>,
    /// Why nothing in it is tested, if so: its module is not compiled.
    pub ignored: Option<Arc<str>>,
}

/// A mutant of a source as found: it is pending or ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMutant {
    pub mutant: Arc<Mutant>,
    /// Why it is not tested.
    pub ignored: Option<Arc<str>>,
    /// Index of its function in [`MutatedSource::functions`].
    pub function: usize,
}

/// A source that has been searched for mutants.
#[derive(Debug)]
pub struct MutatedSource {
    pub(crate) file: SourceFile,
    pub(crate) guards: Vec<Guard>,
    functions: Vec<Function>,
    modules: Vec<ModuleDeclaration>,
    mutants: Vec<FoundMutant>,
    /// Where a declaration can be written before all items.
    pub(crate) first_item: usize,
    /// The parts of assignments with guards, by their first byte.
    pub(crate) assignments: BTreeMap<usize, AssignmentParts>,
    /// Whole lines without code, where statements have lines of their own: without them, what follows is in
    /// the line of the original again.
    pub(crate) empty_lines: Vec<Range<usize>>,
}

impl MutatedSource {
    /// Searches a source for mutants.
    pub fn search(file: SourceFile, configuration: &Configuration) -> Self {
        let syntax = table_of(file.language);
        let tree = parse(syntax, &file.text);
        let mut walker = Walker::new(syntax, &file.text, configuration);
        walker.walk_file(tree.root_node(), file.ignored.as_ref());
        let first_item = first_item(tree.root_node(), syntax, &file.text);
        let Walker { guards, functions, modules, assignments, .. } = walker;
        let mutants = mutants_of(&file, &guards, &functions);
        let empty_lines =
            if syntax.is_indented { empty_lines(tree.root_node(), &file.text) } else { Vec::new() };
        Self { file, guards, functions, modules, mutants, first_item, assignments, empty_lines }
    }

    pub fn file(&self) -> &SourceFile {
        &self.file
    }

    /// Returns the mutants in the order of their places. A mutant's index here is its number less the first
    /// number of the source.
    pub fn mutants(&self) -> &[FoundMutant] {
        &self.mutants
    }

    /// Returns the functions that were searched.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Returns the innermost function around a byte; that of the code outside of functions, if there is one.
    pub fn function_at(&self, byte: usize) -> Option<usize> {
        let around = self.functions.iter().enumerate().filter(|(_, one)| one.bytes.contains(&byte));
        let innermost = around.min_by_key(|(_, one)| one.bytes.len()).map(|(index, _)| index);
        innermost.or_else(|| self.functions.iter().position(|one| one.item.is_empty()))
    }

    /// Returns the mutants that the preprocessor of C may take out.
    pub fn conditional_mutants(&self) -> Vec<usize> {
        if self.file.language == Language::Rust {
            return Vec::new();
        }
        let parts = conditional_parts(&self.file.text);
        let is_inside = |found: &FoundMutant| {
            let start = found.mutant.span.bytes.start;
            parts.iter().any(|part| part.contains(&start))
        };
        let mutants = self.mutants.iter().enumerate();
        mutants.filter(|(_, found)| is_inside(found)).map(|(index, _)| index).collect()
    }

    /// Returns the modules whose sources are other files. Those of test builds are not among them.
    pub fn modules(&self) -> &[ModuleDeclaration] {
        &self.modules
    }
}

pub(crate) fn parse(syntax: &Syntax, text: &str) -> Tree {
    let mut parser = Parser::new();
    parser.set_language(&syntax.grammar).expect("the grammars are of a version that the parser reads");
    let readable = (syntax.readable)(text);
    let text = readable.as_deref().unwrap_or(text);
    parser.parse(text, None).expect("a parser with a language and without limits parses everything")
}

fn mutants_of(file: &SourceFile, guards: &[Guard], functions: &[Function]) -> Vec<FoundMutant> {
    let lines = LineIndex::new(&file.text);
    let mut ordinals: HashMap<u64, u64> = HashMap::new();
    let mut mutants = Vec::new();
    for guard in guards {
        let original: Arc<str> = file.text[guard.bytes.clone()].into();
        let item = &functions[guard.function].item;
        for arm in &guard.arms {
            let hash = Fnv::of([&*file.path, arm.mutator.name(), &original, &arm.replacement, item]);
            let mutant = Mutant {
                id: MutantId(hash.numbered(&mut ordinals)),
                path: file.path.clone(),
                language: file.language,
                span: lines.span(guard.bytes.clone()),
                mutator: arm.mutator.clone(),
                original: original.clone(),
                replacement: arm.replacement.clone(),
                item: item.clone(),
                description: arm.description.clone(),
            };
            let ignored = arm.ignored.clone();
            mutants.push(FoundMutant { mutant: Arc::new(mutant), ignored, function: guard.function });
        }
    }
    mutants
}

/// Returns the lines, with their ends, that are blank or hold a comment only, and are in no text.
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
        // The first lines may say which encoding the source has.
        let is_whole = row > 1 && line.ends_with('\n');
        if is_whole && !is_continued && (code.is_empty() || code.starts_with('#')) && !is_in_text() {
            lines.push(at..at + line.len());
        }
        is_continued = code.ends_with('\\');
        at += line.len();
    }
    lines
}

/// FNV-1a with 64 bits: stable across versions and machines.
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Returns the hash of the parts of a mutant.
    pub(crate) fn of(parts: [&str; 5]) -> Self {
        let mut hash = Self::default();
        parts.iter().for_each(|part| hash.add(part.as_bytes()));
        hash
    }

    /// Returns the hash with the number of equal ones before it, which tells equal mutants apart.
    pub(crate) fn numbered(mut self, ordinals: &mut HashMap<u64, u64>) -> u64 {
        let ordinal = ordinals.entry(self.0).or_default();
        self.add(&ordinal.to_le_bytes());
        *ordinal += 1;
        self.0
    }

    /// Adds a part, with an end that no text has.
    fn add(&mut self, part: &[u8]) {
        for byte in part.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Returns where the first item begins, behind what must stay first: inner attributes and their comments.
fn first_item(root: Node<'_>, syntax: &Syntax, text: &str) -> usize {
    let mut cursor = root.walk();
    let is_first = |node: &Node<'_>| match syntax.role(*node) {
        Role::InnerAttribute => true,
        // A comment with `///` belongs to the item behind it.
        Role::Comment => node.child_by_field_name("outer").is_none(),
        _ => node.kind() == "shebang",
    };
    let first = root.children(&mut cursor).find(|node| !is_first(node));
    let at = first.map_or(text.len(), |node| node.start_byte());
    // Attributes of an item that could not be parsed are found in errors; nothing is written there.
    debug_assert!(text.is_char_boundary(at), "nodes begin at characters");
    at
}

impl GuardForm {
    /// Returns whether the form is written around its bytes.
    pub(crate) const fn is_around(self) -> bool {
        match self {
            Self::Statement | Self::Assignment | Self::Condition | Self::Expression => true,
            Self::Body | Self::Loop => false,
        }
    }
}
