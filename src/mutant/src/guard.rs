//! Guards: places of a source where mutants stand beside the original code, as found by the walker and
//! written by the emitter.

use heeler_mutant_model::{Change, Mutator};
use std::{ops::Range, sync::Arc};

/// How a guard is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum GuardForm {
    // The order in which guards of the same bytes are written.
    /// In the place of `const` before a function, without a mutant: a constant function can't call the
    /// runtime.
    Constant,
    /// At the beginning of a function's body, which its mutants leave with a value. The guard's bytes are
    /// the body.
    Body,
    /// At the beginning of a loop's body, without a mutant: by its rounds an endless loop is noticed. The
    /// guard's bytes are the body.
    Loop,
    /// Behind the pattern of an arm of a match, which its one mutant leaves out. The guard's bytes are the
    /// arm.
    Arm,
    /// Before a statement that leaves a loop or begins its next round: its one mutant does the other.
    Jump,
    /// Around a statement, which its one mutant leaves out.
    Statement,
    /// Around an assignment of Python with an operator, which is no expression there.
    Assignment,
    /// Around a condition, of which only counts whether it is true: where it may have any type.
    Condition,
    /// Around an expression.
    Expression,
}

/// One mutant of a guard.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) mutator: Mutator,
    /// What differs from the guard's bytes, for people.
    pub(crate) change: Change,
    /// What stands for the guard's bytes, for the compiler: operands in parentheses; only the value for a
    /// body.
    pub(crate) code: String,
    /// Whether it is a value that the function returns.
    pub(crate) is_value: bool,
    /// Why it is not tested.
    pub(crate) ignored: Option<Arc<str>>,
}

/// A place with its mutants.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) form: GuardForm,
    pub(crate) bytes: Range<usize>,
    /// Where a body's guard is written: behind the bytes that must stay first.
    pub(crate) insert_at: usize,
    pub(crate) arms: Vec<Arm>,
    /// Index of the function around it.
    pub(crate) function: usize,
    /// Whether the compiler must not compute the value, which it would do without a mutant.
    pub(crate) is_run: bool,
}

/// What an assignment with an operator consists of.
#[derive(Clone, Debug)]
pub(crate) struct AssignmentParts {
    pub(crate) target: AssignmentTarget,
    /// Without `=`.
    pub(crate) operator: String,
    pub(crate) right: Range<usize>,
}

/// What is assigned to.
#[derive(Clone, Debug)]
pub(crate) enum AssignmentTarget {
    Name(Range<usize>),
    Attribute { object: Range<usize>, name: String },
    Item { object: Range<usize>, key: Range<usize> },
}

/// A function of a source that has mutants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name with those of the types, traits, modules and functions around it.
    pub item: Arc<str>,
    pub bytes: Range<usize>,
    /// Whether the compiler can run it. With mutants, the program only can.
    pub is_constant: bool,
}

/// A module of Rust whose source is another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleDeclaration {
    /// Names of the modules around the declaration in its file, joined by `::`.
    pub inside: Arc<str>,
    pub name: String,
    /// The value of its `#[path]`.
    pub path: Option<String>,
    /// Why nothing in it is tested, if so.
    pub ignored: Option<Arc<str>>,
}
