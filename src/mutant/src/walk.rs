//! The walker: one for all languages. It visits the nodes of a source and finds guards with their mutants.

mod binding;
mod further;
mod mutations;
mod one_line;
mod python;
mod python_further;

use crate::{
    cfg::Configuration,
    guard::{Arm, AssignmentParts, Function, Guard, GuardForm, ModuleDeclaration},
    syntax::{Evaluation, Gate, Role, Syntax, text_of},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};
use tree_sitter::Node;

pub(crate) use one_line::Lexis;
pub(crate) use python::each_node;

/// How deep nodes may be nested. What is deeper has no mutants: compilers reject deeper sources as well.
const DEPTH: usize = 300;
/// What a comment says to take the next statement or item out, or what begins in its line.
const SUPPRESSION: &str = "heeler: no-mutate";
/// The same in Python, where tools have a word of their own for it.
const SUPPRESSIONS: [&str; 2] = [SUPPRESSION, "pragma: no mutate"];

/// What is around a node.
#[derive(Clone)]
struct Scope {
    /// Name of the item around it.
    item: Arc<str>,
    /// Index of the function around it; none at the top of a file.
    function: Option<usize>,
    gate: Gate,
    /// Whether the compiler must not compute the value.
    is_run: bool,
}

/// The walker and what it has found.
pub(crate) struct Walker<'a> {
    syntax: &'a Syntax,
    text: &'a str,
    configuration: &'a Configuration,
    pub(crate) guards: Vec<Guard>,
    pub(crate) functions: Vec<Function>,
    pub(crate) modules: Vec<ModuleDeclaration>,
    by_place: HashMap<(GuardForm, usize, usize), usize>,
    /// Lines whose mutants a comment at their end suppresses, from 0.
    suppressed_lines: BTreeSet<usize>,
    /// Lines in which statements begin that a comment before them suppresses.
    suppressed_statements: BTreeSet<usize>,
    /// The parts of assignments that have guards, by their first byte.
    pub(crate) assignments: BTreeMap<usize, AssignmentParts>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(syntax: &'a Syntax, text: &'a str, configuration: &'a Configuration) -> Self {
        Self {
            syntax,
            text,
            configuration,
            guards: Vec::new(),
            functions: Vec::new(),
            modules: Vec::new(),
            by_place: HashMap::new(),
            suppressed_lines: BTreeSet::new(),
            suppressed_statements: BTreeSet::new(),
            assignments: BTreeMap::new(),
        }
    }

    /// Walks a file.
    pub(crate) fn walk_file(&mut self, root: Node<'_>, ignored: Option<&Arc<str>>) {
        let gate = ignored.map_or(Gate::Open, |reason| Gate::Ignored(reason.clone()));
        let mut function = None;
        if self.syntax.is_indented {
            self.read_comments(root);
            // Code outside of functions, which is no piece of its own.
            function = Some(self.functions.len());
            self.functions.push(Function { item: "".into(), bytes: 0..0, is_constant: false });
        }
        self.children(root, &Scope { item: "".into(), function, gate, is_run: false }, 0);
        self.guards.sort_by_key(|guard| (guard.bytes.start, std::cmp::Reverse(guard.bytes.end), guard.form));
        let starts: Vec<_> = self.text.match_indices('\n').map(|(at, _)| at + 1).collect();
        for guard in &mut self.guards {
            let line = starts.partition_point(|&start| start <= guard.bytes.start);
            let mut lines = line..line + 1;
            if self.syntax.is_indented && guard.form == GuardForm::Body {
                let head = self.functions[guard.function].bytes.start;
                lines = starts.partition_point(|&start| start <= head)..line;
            }
            if self.suppressed_lines.range(lines).next().is_some() {
                for arm in &mut guard.arms {
                    arm.ignored.get_or_insert_with(|| SUPPRESSED.into());
                }
            }
        }
        if self.syntax.is_indented {
            self.limit_nesting();
        }
    }

    fn walk(&mut self, node: Node<'_>, scope: &Scope, depth: usize) {
        // What could not be parsed is not understood.
        if depth > DEPTH || node.is_error() || scope.gate == Gate::Closed {
            return;
        }
        let depth = depth + 1;
        if self.syntax.loops.contains(&node.kind()) {
            self.loop_body(node, scope);
        }
        match self.syntax.role(node) {
            Role::Skip | Role::Comment | Role::Attribute | Role::InnerAttribute => return,
            Role::Container => {
                if node.child_by_field_name("body").is_none() {
                    return self.module(node, scope);
                }
                let name = (self.syntax.container)(node, self.text);
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
                self.condition(node, scope, &self.syntax.booleans);
                if let Some(condition) = node.child_by_field_name("condition") {
                    self.walk(condition, scope, depth);
                }
                return;
            }
            Role::Call | Role::Declaration if !(self.syntax.is_walked)(node, self.text) => return,
            Role::Declaration => {
                let mut scope = scope.clone();
                match (self.syntax.evaluation)(node, self.text) {
                    Evaluation::Usual => {}
                    Evaluation::Program => scope.is_run = true,
                    Evaluation::Compiler => scope.gate = scope.gate.and(Gate::Ignored(EVALUATED.into())),
                }
                return self.children(node, &scope, depth);
            }
            Role::Through | Role::WithoutFields(_) | Role::Block | Role::Call => {}
            Role::Conditional if (self.syntax.has_constant_condition)(node, self.text) => {
                let branches = ["consequence", "alternative"];
                for child in branches.iter().filter_map(|field| node.child_by_field_name(field)) {
                    self.walk(child, scope, depth);
                }
                return;
            }
            Role::Conditional => self.condition(node, scope, &self.syntax.booleans),
            Role::Loop => self.condition(node, scope, &self.syntax.booleans[1..]),
            Role::Binary => self.binary(node, scope),
            Role::CompoundAssignment => self.compound_assignment(node, scope),
            Role::Unary => self.unary(node, scope),
            Role::Boolean => self.boolean(node, scope),
            Role::MatchArm => self.match_arm(node, scope),
            Role::Structure => self.structure(node, scope),
            Role::LoopControl => self.loop_control(node, scope),
            Role::Number => self.number(node, scope),
            Role::Python if !self.python(node, scope) => return,
            Role::Python => {}
        }
        self.children(node, scope, depth);
    }

    /// Walks the children of a node. Attributes and comments among them say what happens to the next one.
    fn children(&mut self, node: Node<'_>, scope: &Scope, depth: usize) {
        let role = self.syntax.role(node);
        let skipped: &[&str] = if let Role::WithoutFields(fields) = role { fields } else { &[] };
        let mut scope = scope.clone();
        let mut next = Gate::Open;
        let mut cursor = node.walk();
        if !cursor.goto_first_child() {
            return;
        }
        loop {
            let child = cursor.node();
            match self.syntax.role(child) {
                Role::Comment => next = next.and(self.comment(child)),
                Role::Attribute => {
                    next = next.and((self.syntax.attribute)(child, self.text, self.configuration));
                }
                Role::InnerAttribute => {
                    let said = (self.syntax.attribute)(child, self.text, self.configuration);
                    scope.gate = scope.gate.and(said);
                }
                _ if cursor.field_name().is_some_and(|field| skipped.contains(&field)) => {}
                _ if child.child_count() > 0 || child.is_named() => {
                    let gate = scope.gate.and(next.clone());
                    if role != Role::MatchArm {
                        next = Gate::Open;
                    }
                    let mut scope = Scope { gate, ..scope.clone() };
                    if role == Role::Block {
                        if self.suppressed_statements.contains(&child.start_position().row) {
                            scope.gate = scope.gate.and(Gate::Ignored(SUPPRESSED.into()));
                        }
                        self.statement(child, &scope);
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

    /// A module in a file of its own.
    fn module(&mut self, node: Node<'_>, scope: &Scope) {
        // Types without a body are only named here.
        let name = node.child_by_field_name("name").filter(|_| node.kind() == "mod_item");
        let Some(name) = name else { return };
        let mut path = None;
        let mut before = node.prev_sibling();
        while let Some(sibling) = before.filter(|one| self.syntax.role(*one) == Role::Attribute) {
            let words = text_of(sibling, self.text).trim_start_matches("#[").trim_start();
            if let Some(value) = words.strip_prefix("path") {
                path = value.split('"').nth(1).map(str::to_owned);
            }
            before = sibling.prev_sibling();
        }
        let ignored = if let Gate::Ignored(reason) = &scope.gate { Some(reason.clone()) } else { None };
        let inside = scope.item.clone();
        let name = text_of(name, self.text).to_owned();
        self.modules.push(ModuleDeclaration { inside, name, path, ignored });
    }

    /// Returns what a comment says about what follows it.
    fn comment(&mut self, node: Node<'_>) -> Gate {
        if !text_of(node, self.text).contains(SUPPRESSION) {
            return Gate::Open;
        }
        let line_start = self.text[..node.start_byte()].rfind('\n').map_or(0, |at| at + 1);
        if self.text[line_start..node.start_byte()].trim().is_empty() {
            return Gate::Ignored(SUPPRESSED.into());
        }
        self.suppressed_lines.insert(node.start_position().row);
        Gate::Open
    }

    fn function(&mut self, node: Node<'_>, scope: &Scope, depth: usize) {
        let Some(facts) = (self.syntax.function)(node, self.text) else { return };
        if facts.is_constant {
            return;
        }
        let item = joined(&scope.item, text_of(facts.name, self.text));
        let function = self.functions.len();
        let is_constant = facts.constant_word.is_some();
        self.functions.push(Function { item: item.clone(), bytes: node.byte_range(), is_constant });
        if let Some(word) = facts.constant_word {
            let Place { form, bytes, insert_at } = Place::around(GuardForm::Constant, word);
            self.guards.push(Guard { form, bytes, insert_at, arms: Vec::new(), function, is_run: false });
        }
        let mut scope = Scope { item, function: Some(function), ..scope.clone() };
        let mut insert_at = (self.syntax.body_start)(facts.body, self.text);
        let mut cursor = facts.body.walk();
        for child in facts.body.children(&mut cursor) {
            if self.syntax.role(child) == Role::InnerAttribute {
                let said = (self.syntax.attribute)(child, self.text, self.configuration);
                scope.gate = scope.gate.and(said);
                insert_at = Some(child.end_byte());
            }
        }
        if let Some(before) = (self.syntax.before_body)(node) {
            self.walk(before, &scope, depth);
        }
        if let Some(insert_at) = insert_at {
            self.values(&facts, insert_at, &scope);
            self.entry(&facts, insert_at, function, &scope);
        }
        let parameters = node.child_by_field_name("parameters").filter(|_| self.syntax.is_indented);
        if let Some(parameters) = parameters {
            // Their default values.
            self.walk(parameters, &scope, depth);
        }
        self.walk(facts.body, &scope, depth);
    }

    /// Notes the beginning of a body, so that calls are seen of which no mutant knows.
    fn entry(
        &mut self,
        facts: &crate::syntax::FunctionFacts<'_>,
        insert_at: usize,
        function: usize,
        scope: &Scope,
    ) {
        if scope.gate == Gate::Closed {
            return;
        }
        let bytes = facts.body.byte_range();
        self.by_place.entry((GuardForm::Body, bytes.start, bytes.end)).or_insert_with(|| {
            let form = GuardForm::Body;
            self.guards.push(Guard { form, bytes, insert_at, arms: Vec::new(), function, is_run: false });
            self.guards.len() - 1
        });
    }

    /// Notes the body of a loop.
    fn loop_body(&mut self, node: Node<'_>, scope: &Scope) {
        let body = node.child_by_field_name("body").filter(|body| self.syntax.role(*body) == Role::Block);
        let Some((body, function)) = body.zip(scope.function) else { return };
        let Some(mut insert_at) = (self.syntax.body_start)(body, self.text) else { return };
        let mut cursor = body.walk();
        for child in body.children(&mut cursor) {
            if self.syntax.role(child) == Role::InnerAttribute {
                insert_at = child.end_byte();
            }
        }
        let bytes = body.byte_range();
        let form = GuardForm::Loop;
        self.guards.push(Guard { form, bytes, insert_at, arms: Vec::new(), function, is_run: false });
    }

    /// Notes a mutant of a place, beside those that the place has already.
    fn add(&mut self, place: Place, scope: &Scope, mut arm: Arm) {
        let Some(function) = scope.function else { return };
        match &scope.gate {
            Gate::Closed => return,
            Gate::Open => {}
            Gate::Ignored(reason) => arm.ignored = Some(reason.clone()),
        }
        let is_run = scope.is_run;
        let key = (place.form, place.bytes.start, place.bytes.end);
        let index = *self.by_place.entry(key).or_insert_with(|| {
            let Place { form, bytes, insert_at } = place;
            self.guards.push(Guard { form, bytes, insert_at, arms: Vec::new(), function, is_run });
            self.guards.len() - 1
        });
        let guard = &mut self.guards[index];
        let replacement = |arm: &Arm| arm.change.applied(self.text, &guard.bytes).trim().to_owned();
        let is_known = |one: &Arm| one.mutator == arm.mutator && replacement(one) == replacement(&arm);
        if !guard.arms.iter().any(is_known) {
            guard.arms.push(arm);
        }
    }
}

/// Where a guard is.
struct Place {
    form: GuardForm,
    bytes: Range<usize>,
    insert_at: usize,
}

impl Place {
    fn around(form: GuardForm, node: Node<'_>) -> Self {
        Self { form, bytes: node.byte_range(), insert_at: node.start_byte() }
    }
}

const SUPPRESSED: &str = "suppressed by a comment";
const EVALUATED: &str = "evaluated by the compiler, which needs the value";

fn joined(outer: &str, name: &str) -> Arc<str> {
    match (outer, name) {
        (outer, "") => outer.into(),
        ("", name) => name.into(),
        (outer, name) => format!("{outer}::{name}").into(),
    }
}
