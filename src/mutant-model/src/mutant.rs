//! Mutants: single changes to a source.

use crate::line_index::LineIndex;
use std::{borrow::Cow, fmt, ops::Range, str::FromStr, sync::Arc};

/// Id of a mutant. Stays the same as long as the mutated code and the function's name do.
///
/// Displayed as 16 hexadecimal digits, so that no client mistakes an id for a missing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MutantId(pub u64);

impl fmt::Display for MutantId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// The text is not a mutant id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseMutantIdError(String);

impl fmt::Display for ParseMutantIdError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "expected a mutant id (16 hexadecimal digits), got {:?}", self.0)
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
    /// Mutated by StrykerJS, like TypeScript.
    JavaScript,
    TypeScript,
}

impl Language {
    /// Returns the language name used in mutation testing reports, which is the name that syntax
    /// highlighters know.
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

    /// Returns the language of a source file, judged by its extension.
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

/// A kind of change. Names match other mutation testing tools.
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
    pub const ARGUMENT: Self = Self(Cow::Borrowed("Argument"));
    pub const LAMBDA_BODY: Self = Self(Cow::Borrowed("LambdaBody"));
    pub const LOOP_CONTROL: Self = Self(Cow::Borrowed("LoopControl"));
    pub const MATCH_ARM: Self = Self(Cow::Borrowed("MatchArm"));
    pub const METHOD_EXPRESSION: Self = Self(Cow::Borrowed("MethodExpression"));
    pub const NUMBER_LITERAL: Self = Self(Cow::Borrowed("NumberLiteral"));
    pub const OBJECT_LITERAL: Self = Self(Cow::Borrowed("ObjectLiteral"));
    pub const STATEMENT_DELETION: Self = Self(Cow::Borrowed("StatementDeletion"));
    pub const STRING_LITERAL: Self = Self(Cow::Borrowed("StringLiteral"));
    pub const UNARY_OPERATOR: Self = Self(Cow::Borrowed("UnaryOperator"));

    /// Returns another tool's kind of change.
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

/// Which operators to use for mutants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorLevel {
    /// Changes that the tests of the code should notice.
    #[default]
    Standard,
    /// Also changes to literals, arguments and strings, whose survivors often do not matter.
    All,
}

/// A line and column, both from 1. Columns count UTF-16 units, as in editors and protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// Byte offsets in a source. 32 bits suffice, because parsers have the same limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    start: u32,
    end: u32,
}

impl ByteRange {
    /// Returns the range; larger offsets are capped at the 32-bit maximum.
    pub fn new(bytes: &Range<usize>) -> Self {
        let offset = |byte: usize| u32::try_from(byte).unwrap_or(u32::MAX);
        Self { start: offset(bytes.start), end: offset(bytes.end) }
    }

    /// Returns the offsets as a range for slicing.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A source text shared by its mutants.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceText {
    /// Path relative to the workspace, with `/` as separator.
    pub path: Arc<str>,
    pub language: Language,
    pub text: Arc<str>,
    lines: LineIndex,
}

impl SourceText {
    pub fn new(path: Arc<str>, language: Language, text: Arc<str>) -> Self {
        let lines = LineIndex::new(&text);
        Self { path, language, text, lines }
    }

    /// Returns the position of a byte at a character boundary.
    pub fn position(&self, byte: usize) -> Position {
        self.lines.position(&self.text, byte)
    }

    /// Returns the byte offset of a position; `None` if the position is outside of the text or inside a
    /// character.
    pub(crate) fn byte(&self, position: Position) -> Option<usize> {
        self.lines.byte(&self.text, position)
    }

    fn part(&self, bytes: Range<usize>) -> &str {
        self.text.get(bytes).unwrap_or_default()
    }
}

/// A replacement. Contains only the part that differs; the rest is in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The bytes that differ.
    pub bytes: ByteRange,
    /// Replacement of these bytes; empty for a deletion.
    pub text: Cow<'static, str>,
}

impl Change {
    /// Returns a change of these bytes.
    pub fn new(bytes: &Range<usize>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { bytes: ByteRange::new(bytes), text: text.into() }
    }

    /// Returns the code of the range `around`, with the change applied.
    pub fn applied<'a>(&'a self, source: &'a str, around: &Range<usize>) -> Cow<'a, str> {
        let bytes = self.bytes.range();
        if bytes == *around {
            return Cow::Borrowed(&self.text);
        }
        let part = |bytes: Range<usize>| source.get(bytes).unwrap_or_default();
        let (before, after) = (part(around.start..bytes.start), part(bytes.end..around.end));
        match (before, &*self.text) {
            ("", "") => Cow::Borrowed(after),
            (before, text) => Cow::Owned([before, text, after].concat()),
        }
    }
}

/// Description of a mutant, if replacement and mutator do not explain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Description {
    None,
    /// The function returns the value in the replacement.
    OfValue,
    Text(Box<str>),
}

/// A single change to a source. Texts are borrowed from the source or built on demand, because there may be
/// a hundred thousand mutants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    pub id: MutantId,
    pub source: Arc<SourceText>,
    pub mutator: Mutator,
    /// The enclosing function or method, such as `List::push`; empty at the top of a file.
    pub item: Arc<str>,
    /// The replaced code.
    pub bytes: ByteRange,
    /// The part that differs.
    pub change: Change,
    /// Description of the mutant, if replacement and mutator do not explain it.
    pub description: Description,
}

impl Mutant {
    /// Returns the path of the source relative to the workspace, with `/` as separator.
    pub fn path(&self) -> &Arc<str> {
        &self.source.path
    }

    pub fn language(&self) -> Language {
        self.source.language
    }

    /// Returns the byte offsets of the replaced code.
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.range()
    }

    /// Returns the position of the first character of the replaced code.
    pub fn start(&self) -> Position {
        self.source.position(self.bytes().start)
    }

    /// Returns the position after the replaced code.
    pub fn end(&self) -> Position {
        self.source.position(self.bytes().end)
    }

    /// Returns the replaced code.
    pub fn original(&self) -> &str {
        self.source.part(self.bytes())
    }

    /// Returns the replacement code; empty for a deletion.
    pub fn replacement(&self) -> Cow<'_, str> {
        self.change.applied(&self.source.text, &self.bytes())
    }

    /// Returns a description of the mutant, if replacement and mutator do not explain it.
    pub fn description(&self) -> Option<Cow<'_, str>> {
        match &self.description {
            Description::None => None,
            Description::Text(text) => Some(Cow::Borrowed(text)),
            Description::OfValue => Some(Cow::Owned(match self.value() {
                "" => format!("the body of {} does nothing", self.item),
                value => format!("{} returns {value}", self.item),
            })),
        }
    }

    /// Returns the value in a replacement such as `{ 0 }`, `{ return 0; }` or `return 0`.
    fn value(&self) -> &str {
        let text = &*self.change.text;
        let braced = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).map_or(text, str::trim);
        let statement = braced.strip_prefix("return").map(|rest| rest.strip_suffix(';').unwrap_or(rest));
        statement.unwrap_or(braced).trim()
    }
}
