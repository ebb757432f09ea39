//! Guards: places where mutants are written next to the original code. The walker finds them, and the emitter
//! writes them.

use heeler_mutant_model::{Change, Mutator};
use std::{ops::Range, sync::Arc};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum GuardForm {
    // Guards of the same bytes are written in this order.
    /// Replaces `const` before a function. Has no mutant. A `const fn` can't call the runtime.
    Constant,
    /// At the beginning of a function's body: mutants return a value. The guard's bytes are the body.
    Body,
    /// At the beginning of a loop's body, to count iterations and so detect endless loops. Has no mutant.
    /// The guard's bytes are the body.
    Loop,
    /// After the pattern of a match arm: the mutant disables the arm. The guard's bytes are the arm.
    Arm,
    /// Before `break` or `continue`: the mutant executes the other one.
    Jump,
    /// Around a statement: the mutant deletes it.
    Statement,
    /// Around a Python augmented assignment, which is not an expression.
    Assignment,
    /// Around a condition of any type: only its truth matters.
    Condition,
    /// Around an expression.
    Expression,
}

/// A mutant of a guard.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) mutator: Mutator,
    /// Change to the guard's bytes, as shown to the user.
    pub(crate) change: Change,
    /// Code to compile in place of the guard's bytes, with operands in parentheses. For a body, only the
    /// returned value.
    pub(crate) code: String,
    /// Whether the mutant is a value that the function returns.
    pub(crate) is_value: bool,
    /// Why the mutant is not tested.
    pub(crate) ignored: Option<Arc<str>>,
}

/// A place with its mutants.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) form: GuardForm,
    pub(crate) bytes: Range<usize>,
    /// Where to write a body's guard: after bytes that must stay first.
    pub(crate) insert_at: usize,
    pub(crate) arms: Vec<Arm>,
    /// Index of the containing function.
    pub(crate) function: usize,
    /// Whether to prevent the compiler from evaluating the guard, as it would do with the original.
    pub(crate) is_run: bool,
}

/// The parts of an augmented assignment.
#[derive(Clone, Debug)]
pub(crate) struct AssignmentParts {
    pub(crate) target: AssignmentTarget,
    /// The operator without `=`.
    pub(crate) operator: String,
    pub(crate) right: Range<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum AssignmentTarget {
    Name(Range<usize>),
    Attribute { object: Range<usize>, name: String },
    Item { object: Range<usize>, key: Range<usize> },
}

/// A function in a searched source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Qualified name, with types, traits, modules and outer functions.
    pub item: Arc<str>,
    pub bytes: Range<usize>,
    /// Whether the function is `const`. With mutants it can't be.
    pub is_constant: bool,
}

/// A Rust module in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleDeclaration {
    /// Names of the modules around the declaration in its file, joined by `::`.
    pub inside: Arc<str>,
    pub name: String,
    /// The value of `#[path]`.
    pub path: Option<String>,
    /// Why the module's mutants are not tested; `None` if they are.
    pub ignored: Option<Arc<str>>,
}
