//! The form of a language's table.

use crate::{cfg::Configuration, guard::GuardForm, walk::Lexis};
use heeler_mutant_model::Mutator;
use std::sync::Arc;
use tree_sitter::Node;

/// What a kind of node is to the walker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its children are walked.
    Through,
    /// Nothing below it is mutated: types, patterns, constants, arguments of macros.
    Skip,
    /// Only the children in these fields are walked.
    Fields(&'static [&'static str]),
    /// Its children are walked but for those in these fields.
    WithoutFields(&'static [&'static str]),
    Comment,
    /// An attribute before what it belongs to.
    Attribute,
    /// An attribute inside of what it belongs to.
    InnerAttribute,
    /// A type, trait or module whose name begins the names of the functions inside.
    Container,
    Function,
    /// A sequence of statements.
    Block,
    /// It has a condition, which can be true or false.
    Conditional,
    /// A pattern that may have a condition; only the condition is walked.
    GuardedPattern,
    /// It has a condition, and repeats as long as it is true.
    Loop,
    Binary,
    CompoundAssignment,
    Unary,
    Boolean,
    /// An arm of a match, which can be left out where another is for all that is left. An attribute among its
    /// children counts for all that follow.
    MatchArm,
    /// A struct expression with a base (`..base`).
    Structure,
    /// `break` or `continue`.
    LoopControl,
    Number,
    /// A node of Python whose parts have no names in the grammar, or whose mutants need a form of their own.
    Python,
    /// A call; its arguments are not walked if it may be a macro that needs them as they are.
    Call,
    /// A declaration; not walked if its value must be a constant.
    Declaration,
}

/// Whether code is mutated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// Its mutants are listed with this reason, and not tested.
    Ignored(Arc<str>),
    /// It is test code: it has no mutants.
    Closed,
}

impl Gate {
    /// Returns what two gates of the same code are together.
    pub(crate) fn and(&self, other: Self) -> Self {
        match (self, other) {
            (Self::Closed, _) | (_, Self::Closed) => Self::Closed,
            (Self::Ignored(reason), _) => Self::Ignored(reason.clone()),
            (Self::Open, other) => other,
        }
    }
}

/// Who computes the values of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evaluation {
    /// As for any other code.
    Usual,
    /// The program, although the compiler would if it could.
    Program,
    /// The compiler: it needs them.
    Compiler,
}

/// An operator and what stands for it.
pub(crate) struct Operator {
    pub(crate) text: &'static str,
    pub(crate) mutator: Mutator,
    pub(crate) replacements: &'static [&'static str],
    /// Further replacements with `--operators all`.
    pub(crate) further: &'static [&'static str],
}

/// What the walker must know of a function.
#[derive(Debug)]
pub(crate) struct FunctionFacts<'tree> {
    pub(crate) name: Node<'tree>,
    pub(crate) body: Node<'tree>,
    /// Whether it can run when the program is compiled: it is not mutated.
    pub(crate) is_constant: bool,
    /// The word without which it runs with the program only.
    pub(crate) constant_word: Option<Node<'tree>>,
    /// What it can return instead of running.
    pub(crate) values: Vec<String>,
}

/// A language's table.
pub(crate) struct Syntax {
    pub(crate) grammar: tree_sitter::Language,
    /// Roles by the number of a node's kind.
    pub(super) roles: Vec<Role>,
    pub(crate) binary: &'static [Operator],
    pub(crate) compound: &'static [Operator],
    /// Whether further replacements of operators are in the standard set, as cargo-mutants has them for Rust.
    pub(crate) has_further_operators: bool,
    /// Operators with two operands that bind equally, those that bind least first.
    pub(crate) bindings: &'static [&'static [&'static str]],
    /// Kinds of loops whose bodies are blocks.
    pub(crate) loops: &'static [&'static str],
    /// Unary operators that can be dropped.
    pub(crate) unary: &'static [&'static str],
    /// True and false.
    pub(crate) booleans: [&'static str; 2],
    /// Whether blocks are told by their indentation, statements have lines of their own, and code outside of
    /// functions runs.
    pub(crate) is_indented: bool,
    /// Returns where a guard at the beginning of a body is written.
    pub(crate) body_start: fn(Node<'_>, &str) -> Option<usize>,
    /// Returns the facts of a function with a body.
    pub(crate) function: for<'tree> fn(Node<'tree>, &str) -> Option<FunctionFacts<'tree>>,
    /// Returns the name of a type, trait or module.
    pub(crate) container: fn(Node<'_>, &str) -> String,
    /// Returns whether a statement of a block can be left out.
    pub(crate) is_deletable: fn(Node<'_>, &str) -> bool,
    /// Returns what an attribute says.
    pub(crate) attribute: fn(Node<'_>, &str, &Configuration) -> Gate,
    /// Returns whether a call or declaration is walked.
    pub(crate) is_walked: fn(Node<'_>, &str) -> bool,
    /// Returns who computes the values of a declaration.
    pub(crate) evaluation: fn(Node<'_>, &str) -> Evaluation,
    /// Returns whether an operator with two operands is one for which another can stand.
    pub(crate) is_mutated_operator: fn(Node<'_>, &str) -> bool,
    /// Returns whether a condition must be a constant.
    pub(crate) has_constant_condition: fn(Node<'_>, &str) -> bool,
    /// Returns code of a function before its body.
    pub(crate) before_body: for<'tree> fn(Node<'tree>) -> Option<Node<'tree>>,
    /// Returns the expression around an operator or a literal that a guard must not divide.
    pub(crate) undivided: for<'tree> fn(Node<'tree>) -> Option<Node<'tree>>,
    /// What its literals and comments look like. Functions of C return their values by a statement.
    pub(crate) lexis: Lexis,
    /// Returns whether `continue` can stand for a `break`, or the other way round: it is about a loop.
    pub(crate) is_loop_jump: fn(Node<'_>, &str) -> bool,
    /// How guards of `break` and `continue` are written.
    pub(crate) jump_form: GuardForm,
    /// How guards of conditions are written.
    pub(crate) condition_form: GuardForm,
    /// What is written before the operand of a negation that is dropped.
    pub(crate) dropped_negation: &'static str,
    /// The macro of the runtime that checks that a mutant has the type of the original, where the type of
    /// both would otherwise be a third one.
    pub(crate) type_check: Option<&'static str>,
    /// Returns the text as the parser reads it, of the same length; `None` if it reads the text itself.
    pub(crate) readable: fn(&str) -> Option<String>,
}

impl Syntax {
    pub(crate) fn new(grammar: tree_sitter::Language, roles: &[(&str, Role)]) -> Self {
        let kinds = u16::try_from(grammar.node_kind_count()).expect("kinds are numbered with 16 bits");
        let role_of = |kind: u16| {
            let name = grammar.node_kind_for_id(kind).unwrap_or_default();
            let is_named = grammar.node_kind_is_named(kind);
            let found = roles.iter().find(|(one, _)| is_named && *one == name);
            found.map_or(Role::Through, |&(_, role)| role)
        };
        let roles = (0..kinds).map(role_of).collect();
        Self {
            grammar,
            roles,
            binary: &[],
            compound: &[],
            bindings: &[],
            loops: &[],
            unary: &[],
            booleans: ["true", "false"],
            has_further_operators: false,
            is_indented: false,
            body_start: |body, _| Some(body.start_byte() + 1),
            function: |_, _| None,
            container: |_, _| String::new(),
            is_deletable: |_, _| false,
            attribute: |_, _, _| Gate::Open,
            is_walked: |_, _| true,
            evaluation: |_, _| Evaluation::Usual,
            is_mutated_operator: |_, _| true,
            has_constant_condition: |_, _| false,
            before_body: |_| None,
            undivided: |_| None,
            lexis: Lexis::C,
            is_loop_jump: |_, _| false,
            jump_form: GuardForm::Jump,
            condition_form: GuardForm::Expression,
            dropped_negation: "",
            type_check: None,
            readable: |_| None,
        }
    }

    pub(crate) fn role(&self, node: Node<'_>) -> Role {
        // The kind of an error is beyond the grammar's own.
        self.roles.get(usize::from(node.kind_id())).copied().unwrap_or(Role::Skip)
    }
}

/// Returns the text of a node.
pub(crate) fn text_of<'text>(node: Node<'_>, text: &'text str) -> &'text str {
    &text[node.byte_range()]
}

/// The operators with two operands of C and C++. What Rust has in its standard set is asked for here:
/// pointers and streams have `+` and `<<`, and few others.
pub(super) const BINARY: &[Operator] = &[
    operator_with("+", Mutator::ARITHMETIC_OPERATOR, &["-"], &["*"]),
    operator_with("-", Mutator::ARITHMETIC_OPERATOR, &["+"], &["/"]),
    operator_with("*", Mutator::ARITHMETIC_OPERATOR, &["/"], &["+"]),
    operator_with("/", Mutator::ARITHMETIC_OPERATOR, &["*"], &["%"]),
    operator_with("%", Mutator::ARITHMETIC_OPERATOR, &["*"], &["/", "+"]),
    operator_with("<", Mutator::EQUALITY_OPERATOR, &["<=", ">="], &["==", ">"]),
    operator("<=", Mutator::EQUALITY_OPERATOR, &["<", ">"]),
    operator_with(">", Mutator::EQUALITY_OPERATOR, &[">=", "<="], &["==", "<"]),
    operator(">=", Mutator::EQUALITY_OPERATOR, &[">", "<"]),
    operator("==", Mutator::EQUALITY_OPERATOR, &["!="]),
    operator("!=", Mutator::EQUALITY_OPERATOR, &["=="]),
    operator("&&", Mutator::LOGICAL_OPERATOR, &["||"]),
    operator("||", Mutator::LOGICAL_OPERATOR, &["&&"]),
    operator_with("&", Mutator::BITWISE_OPERATOR, &["|"], &["^"]),
    operator_with("|", Mutator::BITWISE_OPERATOR, &["&"], &["^"]),
    operator_with("^", Mutator::BITWISE_OPERATOR, &["&"], &["|"]),
    operator("<<", Mutator::BITWISE_OPERATOR, &[">>"]),
    operator(">>", Mutator::BITWISE_OPERATOR, &["<<"]),
];

/// The assignments with an operator of C and C++.
pub(super) const COMPOUND: &[Operator] = &[
    operator_with("+=", Mutator::ASSIGNMENT_OPERATOR, &["-="], &["*="]),
    operator_with("-=", Mutator::ASSIGNMENT_OPERATOR, &["+="], &["/="]),
    operator_with("*=", Mutator::ASSIGNMENT_OPERATOR, &["/="], &["+="]),
    operator_with("/=", Mutator::ASSIGNMENT_OPERATOR, &["*="], &["%="]),
    operator_with("%=", Mutator::ASSIGNMENT_OPERATOR, &["*="], &["/=", "+="]),
    operator_with("&=", Mutator::ASSIGNMENT_OPERATOR, &["|="], &["^="]),
    operator_with("|=", Mutator::ASSIGNMENT_OPERATOR, &["&="], &["^="]),
    operator_with("^=", Mutator::ASSIGNMENT_OPERATOR, &["&="], &["|="]),
    operator("<<=", Mutator::ASSIGNMENT_OPERATOR, &[">>="]),
    operator(">>=", Mutator::ASSIGNMENT_OPERATOR, &["<<="]),
];

/// How the operators of C and C++ bind.
pub(super) const BINDINGS_OF_C: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<=>"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

pub(super) const fn operator(
    text: &'static str,
    mutator: Mutator,
    replacements: &'static [&'static str],
) -> Operator {
    Operator { text, mutator, replacements, further: &[] }
}

/// Returns an operator with replacements that are asked for.
pub(super) const fn operator_with(
    text: &'static str,
    mutator: Mutator,
    replacements: &'static [&'static str],
    further: &'static [&'static str],
) -> Operator {
    Operator { text, mutator, replacements, further }
}
