//! Mutants: one change of one place of a source each.

use std::{borrow::Cow, fmt, ops::Range, str::FromStr, sync::Arc};

/// The id of a mutant: the same as long as its function keeps its name and the mutated code its text.
///
/// As text, 16 hexadecimal digits, which no client takes for a missing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MutantId(pub u64);

impl fmt::Display for MutantId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// A text that is no id of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseMutantIdError(String);

impl fmt::Display for ParseMutantIdError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "expected the id of a mutant, 16 hexadecimal digits, got {:?}", self.0)
    }
}

impl std::error::Error for ParseMutantIdError {}

impl FromStr for MutantId {
    type Err = ParseMutantIdError;

    fn from_str(text: &str) -> Result<Self, ParseMutantIdError> {
        let is_id = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = if is_id { u64::from_str_radix(text, 16).ok() } else { None };
        number.map(Self).ok_or_else(|| ParseMutantIdError(text.to_owned()))
    }
}

/// A programming language that can be mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    Rust,
    C,
    Cpp,
    Python,
    /// Mutated by StrykerJS, and so is TypeScript.
    JavaScript,
    TypeScript,
}

impl Language {
    /// Returns the name that reports of mutation testing use, which is that of syntax highlighters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::C => "c",
            Self::Cpp => "cpp",
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
        }
    }

    /// Returns the language of a source file by its extension.
    pub fn of_path(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        match name.rsplit_once('.')?.1 {
            "rs" => Some(Self::Rust),
            "c" => Some(Self::C),
            "cc" | "cpp" | "cxx" | "c++" | "C" | "hpp" | "hh" | "hxx" | "ipp" | "inl" => Some(Self::Cpp),
            "py" => Some(Self::Python),
            "js" | "jsx" | "mjs" | "cjs" => Some(Self::JavaScript),
            "ts" | "tsx" | "mts" | "cts" => Some(Self::TypeScript),
            _ => None,
        }
    }
}

/// A kind of change, by the name that the mutation testing tools of other languages use for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mutator(Cow<'static, str>);

impl Mutator {
    pub const ARITHMETIC_OPERATOR: Self = Self(Cow::Borrowed("ArithmeticOperator"));
    pub const ASSIGNMENT_OPERATOR: Self = Self(Cow::Borrowed("AssignmentOperator"));
    pub const BITWISE_OPERATOR: Self = Self(Cow::Borrowed("BitwiseOperator"));
    pub const BOOLEAN_LITERAL: Self = Self(Cow::Borrowed("BooleanLiteral"));
    pub const CONDITIONAL_EXPRESSION: Self = Self(Cow::Borrowed("ConditionalExpression"));
    pub const EQUALITY_OPERATOR: Self = Self(Cow::Borrowed("EqualityOperator"));
    pub const FUNCTION_VALUE: Self = Self(Cow::Borrowed("FunctionValue"));
    pub const LOGICAL_OPERATOR: Self = Self(Cow::Borrowed("LogicalOperator"));
    pub const STATEMENT_DELETION: Self = Self(Cow::Borrowed("StatementDeletion"));
    pub const UNARY_OPERATOR: Self = Self(Cow::Borrowed("UnaryOperator"));

    /// Returns a kind of change of another tool.
    pub fn named(name: impl Into<Cow<'static, str>>) -> Self {
        Self(name.into())
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Mutator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A place in a source as people and protocols count: lines and columns from 1, columns in UTF-16 units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// A part of a source. Both ends are exclusive: `end` is the position of the character behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Byte offsets in the source.
    pub bytes: Range<usize>,
    pub start: Position,
    pub end: Position,
}

/// One change of one place of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    pub id: MutantId,
    /// Path of the source relative to the workspace, with `/` between its parts.
    pub path: Arc<str>,
    pub language: Language,
    /// The text that is replaced.
    pub span: Span,
    pub mutator: Mutator,
    /// The text at `span`.
    pub original: Arc<str>,
    /// The text that stands for it: empty if the mutant deletes.
    pub replacement: String,
    /// The function or method that encloses the place, as in `List::push`; empty at the top of a file.
    pub item: Arc<str>,
    /// What the mutant does, where replacement and mutator do not say it.
    pub description: Option<String>,
}
