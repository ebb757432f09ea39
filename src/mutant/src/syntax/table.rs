//! The structure of a language's table.

use crate::{cfg::Configuration, guard::GuardForm, walk::Lexis};
use heeler_mutant_model::Mutator;
use std::sync::Arc;
use tree_sitter::Node;

/// How the walker treats a kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Walk the children.
    Through,
    /// Mutate nothing below: types, patterns, constants, macro arguments.
    Skip,
    /// Walk only the children in these fields.
    Fields(&'static [&'static str]),
    /// Walk all children except those in these fields.
    WithoutFields(&'static [&'static str]),
    Comment,
    /// An attribute before its item.
    Attribute,
    /// An attribute inside its item.
    InnerAttribute,
    /// A type, trait or module. Its name prefixes the names of the functions inside.
    Container,
    Function,
    /// A sequence of statements.
    Block,
    /// Has a condition, which a mutant makes true or false.
    Conditional,
    /// A pattern with an optional condition. Only the condition is walked.
    GuardedPattern,
    /// Has a condition, and repeats while it is true.
    Loop,
    Binary,
    CompoundAssignment,
    Unary,
    Boolean,
    /// A match arm. A mutant disables it if a later arm matches everything. An attribute among its children
    /// applies to all following children.
    MatchArm,
    /// A struct expression with a base (`..base`).
    Structure,
    /// `break` or `continue`.
    LoopControl,
    Number,
    /// A Python node whose parts have no field names in the grammar, or whose mutants need a special form.
    Python,
    /// A call. Its arguments are not walked if it may be a macro that needs them unchanged.
    Call,
    /// A declaration. Not walked if its value must be constant.
    Declaration,
}

/// Whether code is mutated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// Mutants are listed with this reason, but not tested.
    Ignored(Arc<str>),
    /// Test code: has no mutants.
    Closed,
}

impl Gate {
    /// Combines two gates of the same code.
    pub(crate) fn and(&self, other: Self) -> Self {
        match (self, other) {
            (Self::Closed, _) | (_, Self::Closed) => Self::Closed,
            (Self::Ignored(reason), _) => Self::Ignored(reason.clone()),
            (Self::Open, other) => other,
        }
    }
}

/// Evaluator of a declaration's values: the compiler or the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evaluation {
    /// Compiler or program, as for any other code.
    Usual,
    /// The program. The guard must prevent the compiler from evaluating it.
    Program,
    /// The compiler, which needs the values.
    Compiler,
}

/// An operator and its replacements.
pub(crate) struct Operator {
    pub(crate) text: &'static str,
    pub(crate) mutator: Mutator,
    pub(crate) replacements: &'static [&'static str],
    /// Additional replacements with `--operators all`.
    pub(crate) further: &'static [&'static str],
}

/// The walker's information about a function.
#[derive(Debug)]
pub(crate) struct FunctionFacts<'tree> {
    pub(crate) name: Node<'tree>,
    pub(crate) body: Node<'tree>,
    /// Whether the function can only be evaluated by the compiler, so it is not mutated.
    pub(crate) is_constant: bool,
    /// The `const` keyword, which is removed if the function has mutants.
    pub(crate) constant_word: Option<Node<'tree>>,
    /// Values that mutants return instead of running the body.
    pub(crate) values: Vec<String>,
}

pub(crate) struct Syntax {
    pub(crate) grammar: tree_sitter::Language,
    /// Roles by node kind id.
    pub(super) roles: Vec<Role>,
    pub(crate) binary: &'static [Operator],
    pub(crate) compound: &'static [Operator],
    /// Whether additional replacements belong to the standard level, as in cargo-mutants for Rust.
    pub(crate) has_further_operators: bool,
    /// Groups of binary operators with equal precedence, lowest first.
    pub(crate) bindings: &'static [&'static [&'static str]],
    /// Kinds of loops whose bodies are blocks.
    pub(crate) loops: &'static [&'static str],
    /// Unary operators that a mutant can drop.
    pub(crate) unary: &'static [&'static str],
    /// The literals for true and false.
    pub(crate) booleans: [&'static str; 2],
    /// Whether indentation delimits blocks. Then statements are on their own lines, and code outside of
    /// functions runs too.
    pub(crate) is_indented: bool,
    /// Returns where to write a guard at the beginning of a body.
    pub(crate) body_start: fn(Node<'_>, &str) -> Option<usize>,
    /// Returns the facts of a function with a body.
    pub(crate) function: for<'tree> fn(Node<'tree>, &str) -> Option<FunctionFacts<'tree>>,
    /// Returns the name of a type, trait or module.
    pub(crate) container: fn(Node<'_>, &str) -> String,
    /// Returns whether a mutant may delete a statement of a block.
    pub(crate) is_deletable: fn(Node<'_>, &str) -> bool,
    /// Returns the gate that an attribute sets.
    pub(crate) attribute: fn(Node<'_>, &str, &Configuration) -> Gate,
    /// Returns whether to walk a call or declaration.
    pub(crate) is_walked: fn(Node<'_>, &str) -> bool,
    /// Returns whether the compiler or the program evaluates the values of a declaration.
    pub(crate) evaluation: fn(Node<'_>, &str) -> Evaluation,
    /// Returns whether a binary operator may be replaced.
    pub(crate) is_mutated_operator: fn(Node<'_>, &str) -> bool,
    /// Returns whether a condition must be constant.
    pub(crate) has_constant_condition: fn(Node<'_>, &str) -> bool,
    /// Returns the part of a function before its body that contains code.
    pub(crate) before_body: for<'tree> fn(Node<'tree>) -> Option<Node<'tree>>,
    /// Returns the expression around an operator or literal that a guard must not divide.
    pub(crate) undivided: for<'tree> fn(Node<'tree>) -> Option<Node<'tree>>,
    /// Syntax of literals and comments. Functions of C return values with a statement.
    pub(crate) lexis: Lexis,
    /// Returns whether a mutant may swap `continue` and `break`: the jump applies to a loop.
    pub(crate) is_loop_jump: fn(Node<'_>, &str) -> bool,
    /// Guard form of `break` and `continue`.
    pub(crate) jump_form: GuardForm,
    pub(crate) condition_form: GuardForm,
    /// Written before the operand of a dropped negation.
    pub(crate) dropped_negation: &'static str,
    /// Runtime macro that checks that a mutant has the original's type. Otherwise the compiler could convert
    /// both to a common third type.
    pub(crate) type_check: Option<&'static str>,
    /// Returns the text to parse, of equal length; `None` if the parser can read the original.
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
        // Error nodes have an id beyond the grammar's own kinds.
        self.roles.get(usize::from(node.kind_id())).copied().unwrap_or(Role::Skip)
    }
}

pub(crate) fn text_of<'text>(node: Node<'_>, text: &'text str) -> &'text str {
    &text[node.byte_range()]
}

/// Binary operators of C and C++. Some replacements that are standard for Rust need `--operators all` here,
/// because pointers and streams support `+` and `<<`, but few other operators.
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

/// Compound assignments of C and C++.
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

/// Precedence of the operators of C and C++.
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

/// Returns an operator with additional replacements.
pub(super) const fn operator_with(
    text: &'static str,
    mutator: Mutator,
    replacements: &'static [&'static str],
    further: &'static [&'static str],
) -> Operator {
    Operator { text, mutator, replacements, further }
}
