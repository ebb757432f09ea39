//! The walker, which is shared by all languages. It visits the nodes of a source and finds guards with their
//! mutants.

mod binding;
mod found_guards;
mod further;
mod mutations;
mod one_line;
mod python;
mod python_further;
mod python_one_line;
mod source_view;
mod suppressions;

use crate::{
    cfg::Configuration,
    guard::{AssignmentParts, Function, Guard, GuardForm, ModuleDeclaration},
    syntax::{Evaluation, Gate, Role, Syntax},
};
use found_guards::{FoundGuards, Place, Scope};
use mutations::NodeMutants;
use python::PythonMutants;
use source_view::SourceView;
use std::{collections::BTreeMap, sync::Arc};
use suppressions::{SUPPRESSED, Suppressions};
use tree_sitter::Node;

pub(crate) use one_line::Lexis;
pub(crate) use source_view::each_node;

/// Maximum nesting depth of nodes with mutants. Compilers reject deeper sources too.
const DEPTH: usize = 300;
const EVALUATED: &str = "evaluated at compile time";

/// The guards and functions of one file.
pub(crate) struct WalkedFile {
    pub(crate) guards: Vec<Guard>,
    pub(crate) functions: Vec<Function>,
    pub(crate) modules: Vec<ModuleDeclaration>,
    /// Parts of guarded assignments, by first byte.
    pub(crate) assignments: BTreeMap<usize, AssignmentParts>,
}

/// Walks a file. If `ignored` is given, nothing in the file is tested for this reason.
pub(crate) fn walk_file(
    syntax: &Syntax,
    text: &str,
    configuration: &Configuration,
    root: Node<'_>,
    ignored: Option<&Arc<str>>,
) -> WalkedFile {
    Walker::new(SourceView { syntax, text, configuration }, root).walk_file(root, ignored)
}

struct Walker<'a> {
    source: SourceView<'a>,
    suppressions: Suppressions,
    guards: FoundGuards<'a>,
    functions: Vec<Function>,
    modules: Vec<ModuleDeclaration>,
    assignments: BTreeMap<usize, AssignmentParts>,
}

impl<'a> Walker<'a> {
    fn new(source: SourceView<'a>, root: Node<'_>) -> Self {
        let is_python = source.syntax.is_indented;
        Self {
            source,
            suppressions: if is_python {
                Suppressions::read_python(&source, root)
            } else {
                Suppressions::default()
            },
            guards: FoundGuards::new(source.text),
            functions: Vec::new(),
            modules: Vec::new(),
            assignments: BTreeMap::new(),
        }
    }

    fn walk_file(mut self, root: Node<'_>, ignored: Option<&Arc<str>>) -> WalkedFile {
        let gate = ignored.map_or(Gate::Open, |reason| Gate::Ignored(reason.clone()));
        let mut function = None;
        if self.source.syntax.is_indented {
            // Python code outside of functions runs too. The entry for this code has no bytes.
            function = Some(self.functions.len());
            self.functions.push(Function { item: "".into(), bytes: 0..0, is_constant: false });
        }
        self.children(root, &Scope { item: "".into(), function, gate, is_run: false }, 0);
        let Self { source, suppressions, guards, functions, modules, assignments } = self;
        let mut guards = guards.into_sorted();
        let starts: Vec<_> = source.text.match_indices('\n').map(|(at, _)| at + 1).collect();
        for guard in &mut guards {
            let line = starts.partition_point(|&start| start <= guard.bytes.start);
            let mut lines = line..line + 1;
            if source.syntax.is_indented && guard.form == GuardForm::Body {
                let head = functions[guard.function].bytes.start;
                lines = starts.partition_point(|&start| start <= head)..line;
            }
            if suppressions.has_line_in(lines) {
                for arm in &mut guard.arms {
                    arm.ignored.get_or_insert_with(|| SUPPRESSED.into());
                }
            }
        }
        if source.syntax.is_indented {
            python::limit_nesting(&mut guards);
        }
        WalkedFile { guards, functions, modules, assignments }
    }

    /// Returns the finder for mutants of nodes in this scope.
    fn mutants<'w>(&'w mut self, scope: &'w Scope) -> NodeMutants<'w, 'a> {
        NodeMutants { source: self.source, guards: &mut self.guards, scope }
    }

    fn python<'w>(&'w mut self, scope: &'w Scope) -> PythonMutants<'w, 'a> {
        let mutants = NodeMutants { source: self.source, guards: &mut self.guards, scope };
        PythonMutants { mutants, assignments: &mut self.assignments }
    }

    fn walk(&mut self, node: Node<'_>, scope: &Scope, depth: usize) {
        // Code with syntax errors is not understood.
        if depth > DEPTH || node.is_error() || scope.gate == Gate::Closed {
            return;
        }
        let depth = depth + 1;
        let SourceView { syntax, text, .. } = self.source;
        if syntax.loops.contains(&node.kind()) {
            self.loop_body(node, scope);
        }
        match self.source.role(node) {
            Role::Skip | Role::Comment | Role::Attribute | Role::InnerAttribute => return,
            Role::Container => {
                if node.child_by_field_name("body").is_none() {
                    return self.module(node, scope);
                }
                let name = (syntax.container)(node, text);
                let scope = Scope { item: joined(&scope.item, &name), ..scope.clone() };
                return self.children(node, &scope, depth);
            }
            Role::Function => return self.function(node, scope, depth),
            Role::Fields(fields) => {
                for child in fields.iter().filter_map(|field| node.child_by_field_name(field)) {
                    self.walk(child, scope, depth);
                }
                return;
            }
            Role::GuardedPattern => {
                self.mutants(scope).condition(node, &syntax.booleans);
                if let Some(condition) = node.child_by_field_name("condition") {
                    self.walk(condition, scope, depth);
                }
                return;
            }
            Role::Call | Role::Declaration if !(syntax.is_walked)(node, text) => return,
            Role::Declaration => {
                let mut scope = scope.clone();
                match (syntax.evaluation)(node, text) {
                    Evaluation::Usual => {}
                    Evaluation::Program => scope.is_run = true,
                    Evaluation::Compiler => scope.gate = scope.gate.and(Gate::Ignored(EVALUATED.into())),
                }
                return self.children(node, &scope, depth);
            }
            Role::Through | Role::WithoutFields(_) | Role::Block | Role::Call => {}
            Role::Conditional if (syntax.has_constant_condition)(node, text) => {
                let branches = ["consequence", "alternative"];
                for child in branches.iter().filter_map(|field| node.child_by_field_name(field)) {
                    self.walk(child, scope, depth);
                }
                return;
            }
            Role::Conditional => self.mutants(scope).condition(node, &syntax.booleans),
            Role::Loop => self.mutants(scope).condition(node, &syntax.booleans[1..]),
            Role::Binary => self.mutants(scope).binary(node),
            Role::CompoundAssignment => self.mutants(scope).compound_assignment(node),
            Role::Unary => self.mutants(scope).unary(node),
            Role::Boolean => self.mutants(scope).boolean(node),
            Role::MatchArm => self.mutants(scope).match_arm(node),
            Role::Structure => self.mutants(scope).structure(node),
            Role::LoopControl => self.mutants(scope).loop_control(node),
            Role::Number => self.mutants(scope).number(node),
            Role::Python if !self.python(scope).visit(node) => return,
            Role::Python => {}
        }
        self.children(node, scope, depth);
    }

    /// Walks the children of a node. Attributes and comments among them affect the next child.
    fn children(&mut self, node: Node<'_>, scope: &Scope, depth: usize) {
        let role = self.source.role(node);
        let skipped: &[&str] = if let Role::WithoutFields(fields) = role { fields } else { &[] };
        let mut scope = scope.clone();
        let mut next = Gate::Open;
        let mut cursor = node.walk();
        if !cursor.goto_first_child() {
            return;
        }
        loop {
            let child = cursor.node();
            // Comments and attributes set the gate; other children are walked.
            match self.source.role(child) {
                Role::Comment => next = next.and(self.suppressions.on_comment(&self.source, child)),
                Role::Attribute => next = next.and(self.source.attribute(child)),
                Role::InnerAttribute => {
                    scope.gate = scope.gate.and(self.source.attribute(child));
                }
                _ if cursor.field_name().is_some_and(|field| skipped.contains(&field)) => {}
                _ if child.child_count() > 0 || child.is_named() => {
                    let gate = scope.gate.and(next.clone());
                    if role != Role::MatchArm {
                        next = Gate::Open;
                    }
                    let mut scope = Scope { gate, ..scope.clone() };
                    if role == Role::Block {
                        scope.gate = scope.gate.and(self.suppressions.statement_gate(child));
                        self.mutants(&scope).statement(child);
                    }
                    self.walk(child, &scope, depth);
                }
                _ => {}
            }
            if !cursor.goto_next_sibling() {
                return;
            }
        }
    }

    /// Records a module in another file.
    fn module(&mut self, node: Node<'_>, scope: &Scope) {
        // Types without a body are only named here.
        let name = node.child_by_field_name("name").filter(|_| node.kind() == "mod_item");
        let Some(name) = name else { return };
        let mut path = None;
        let mut before = node.prev_sibling();
        while let Some(sibling) = before.filter(|one| self.source.role(*one) == Role::Attribute) {
            let words = self.source.text_of(sibling).trim_start_matches("#[").trim_start();
            if let Some(value) = words.strip_prefix("path") {
                path = value.split('"').nth(1).map(str::to_owned);
            }
            before = sibling.prev_sibling();
        }
        let ignored = if let Gate::Ignored(reason) = &scope.gate { Some(reason.clone()) } else { None };
        let inside = scope.item.clone();
        let name = self.source.text_of(name).to_owned();
        self.modules.push(ModuleDeclaration { inside, name, path, ignored });
    }

    fn function(&mut self, node: Node<'_>, scope: &Scope, depth: usize) {
        let SourceView { syntax, text, .. } = self.source;
        let Some(facts) = (syntax.function)(node, text) else { return };
        if facts.is_constant {
            return;
        }
        // Register the function.
        let item = joined(&scope.item, self.source.text_of(facts.name));
        let function = self.functions.len();
        let is_constant = facts.constant_word.is_some();
        self.functions.push(Function { item: item.clone(), bytes: node.byte_range(), is_constant });
        if let Some(word) = facts.constant_word {
            self.guards.add_place(Place::around(GuardForm::Constant, word), function);
        }
        let mut scope = Scope { item, function: Some(function), ..scope.clone() };
        // Find where the body's guard goes: after inner attributes.
        let mut insert_at = (syntax.body_start)(facts.body, text);
        let mut cursor = facts.body.walk();
        for child in facts.body.children(&mut cursor) {
            if self.source.role(child) == Role::InnerAttribute {
                scope.gate = scope.gate.and(self.source.attribute(child));
                insert_at = Some(child.end_byte());
            }
        }
        // Walk what belongs to the function.
        if let Some(before) = (syntax.before_body)(node) {
            self.walk(before, &scope, depth);
        }
        if let Some(insert_at) = insert_at {
            self.mutants(&scope).values(&facts, insert_at);
            let place = Place { form: GuardForm::Body, bytes: facts.body.byte_range(), insert_at };
            self.guards.add_entry(place, function, &scope);
        }
        let parameters = node.child_by_field_name("parameters").filter(|_| syntax.is_indented);
        if let Some(parameters) = parameters {
            // Default values are code.
            self.walk(parameters, &scope, depth);
        }
        self.walk(facts.body, &scope, depth);
    }

    /// Records the body of a loop, to count its iterations.
    fn loop_body(&mut self, node: Node<'_>, scope: &Scope) {
        let body = node.child_by_field_name("body").filter(|body| self.source.role(*body) == Role::Block);
        let Some((body, function)) = body.zip(scope.function) else { return };
        let source = self.source;
        let Some(mut insert_at) = (source.syntax.body_start)(body, source.text) else { return };
        let mut cursor = body.walk();
        for child in body.children(&mut cursor) {
            if self.source.role(child) == Role::InnerAttribute {
                insert_at = child.end_byte();
            }
        }
        let place = Place { form: GuardForm::Loop, bytes: body.byte_range(), insert_at };
        self.guards.add_place(place, function);
    }
}

fn joined(outer: &str, name: &str) -> Arc<str> {
    match (outer, name) {
        (outer, "") => outer.into(),
        ("", name) => name.into(),
        (outer, name) => format!("{outer}::{name}").into(),
    }
}
