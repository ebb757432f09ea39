//! The syntax trees of filters. The syntax is in `expression`, `graph` and `show`, the evaluation in
//! `matches`.

use super::WildcardPattern;
use heeler_core::Outcome;

/// Conditions joined by and, or, not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoolExpr<L> {
    /// A single condition.
    Leaf(L),
    /// Holds when the inner expression does not.
    Not(Box<Self>),
    /// Holds when all parts hold; at least two parts.
    And(Vec<Self>),
    /// Holds when at least one part holds; at least two parts.
    Or(Vec<Self>),
}

impl<L> BoolExpr<L> {
    pub(super) fn negated(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// Joins parts by and; a single part stays as it is.
    pub(super) fn all_of(first: Self, rest: Vec<Self>) -> Self {
        if rest.is_empty() { first } else { Self::And(std::iter::once(first).chain(rest).collect()) }
    }

    /// Joins parts by or; a single part stays as it is.
    pub(super) fn any_of(first: Self, rest: Vec<Self>) -> Self {
        if rest.is_empty() { first } else { Self::Or(std::iter::once(first).chain(rest).collect()) }
    }

    /// Evaluates the expression by the values of its conditions, in three-valued logic; `None` means unknown.
    pub fn evaluate(&self, condition: &impl Fn(&L) -> Option<bool>) -> Option<bool> {
        match self {
            Self::Leaf(leaf) => condition(leaf),
            Self::Not(inner) => inner.evaluate(condition).map(|holds| !holds),
            Self::And(all) => evaluate_parts(all, false, condition),
            Self::Or(any) => evaluate_parts(any, true, condition),
        }
    }

    /// Returns whether the expression holds, with every condition known.
    pub fn holds(&self, condition: &impl Fn(&L) -> bool) -> bool {
        self.evaluate(&|leaf| Some(condition(leaf))).unwrap_or_default()
    }

    /// Returns whether any condition satisfies `is_such`.
    pub(crate) fn contains_condition(&self, is_such: &impl Fn(&L) -> bool) -> bool {
        match self {
            Self::Leaf(leaf) => is_such(leaf),
            Self::Not(inner) => inner.contains_condition(is_such),
            Self::And(all) | Self::Or(all) => all.iter().any(|one| one.contains_condition(is_such)),
        }
    }
}

/// Returns `decisive` when one part evaluates to it; otherwise the opposite, unless a part is unknown.
fn evaluate_parts<L>(
    parts: &[BoolExpr<L>],
    decisive: bool,
    condition: &impl Fn(&L) -> Option<bool>,
) -> Option<bool> {
    let mut whole = Some(!decisive);
    for part in parts {
        match part.evaluate(condition) {
            Some(found) if found == decisive => return Some(decisive),
            Some(_) => {}
            None => whole = None,
        }
    }
    whole
}

/// One condition of a filter expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterPredicate {
    /// `all()`: every test.
    All,
    /// `none()`: no test.
    None,
    /// `test(…)`: compares the uid.
    Test(TextMatcher),
    /// `suite(…)`: compares the suite's name.
    Suite(TextMatcher),
    /// `program(…)`: compares the program's path.
    Program(TextMatcher),
    /// `tag(…)`: compares the names and values of the traits that the framework reports.
    Tag {
        /// Compared with the name.
        key: TextMatcher,
        /// Compared with the value; `None` accepts any.
        value: Option<TextMatcher>,
    },
    /// `state(…)`: compares the recorded outcome of the last run.
    State(HistoryState),
}

/// A text and how it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextMatcher {
    /// `=text`: equal to the text.
    Equals(String),
    /// `~text`: contains the text.
    Contains(String),
    /// `/text/`: a regular expression, not anchored.
    Regex(CompiledRegex),
    /// `#text`: a glob with `*` and `?`.
    Glob(WildcardPattern),
}

/// A compiled regular expression; two are equal when their sources are equal.
#[derive(Debug, Clone)]
pub struct CompiledRegex(pub(super) regex::Regex);

impl PartialEq for CompiledRegex {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for CompiledRegex {}

/// The recorded outcome of a test, from the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryState {
    /// The test ended with this outcome when it last ran.
    Ended(Outcome),
    /// The history has no outcome of the test.
    NeverRan,
}

impl HistoryState {
    /// The names of all states, in the order in which they are shown.
    pub const WORDS: [(&'static str, Self); 7] = [
        ("failed", Self::Ended(Outcome::Failed)),
        ("crashed", Self::Ended(Outcome::Crashed)),
        ("timed-out", Self::Ended(Outcome::TimedOut)),
        ("passed", Self::Ended(Outcome::Passed)),
        ("skipped", Self::Ended(Outcome::Skipped)),
        ("new", Self::NeverRan),
        ("never-run", Self::NeverRan),
    ];
}

/// One condition of a graph query on a node of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    /// Matched against the node's name.
    pub name: WildcardPattern,
    /// Evaluated on the test's traits.
    pub properties: Option<BoolExpr<PropertyCondition>>,
}

/// One condition of a graph query on the traits: holds when some trait matches both name and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyCondition {
    /// Matched against the name.
    pub key: WildcardPattern,
    /// Matched against the value.
    pub value: WildcardPattern,
}
