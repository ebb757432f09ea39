//! Syntax trees of filters. They are parsed in `expression` and `graph`, printed in `print` and evaluated in
//! `matches`.

use super::WildcardPattern;
use heeler_core::Outcome;

/// Conditions combined with and, or, not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoolExpr<L> {
    /// A single condition.
    Leaf(L),
    /// True if the inner expression is false.
    Not(Box<Self>),
    /// True if all parts are true. At least two parts.
    And(Vec<Self>),
    /// True if any part is true. At least two parts.
    Or(Vec<Self>),
}

impl<L> BoolExpr<L> {
    pub(super) fn negated(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// Combines parts with and. A single part is returned unchanged.
    pub(super) fn all_of(first: Self, rest: Vec<Self>) -> Self {
        if rest.is_empty() { first } else { Self::And(std::iter::once(first).chain(rest).collect()) }
    }

    /// Combines parts with or. A single part is returned unchanged.
    pub(super) fn any_of(first: Self, rest: Vec<Self>) -> Self {
        if rest.is_empty() { first } else { Self::Or(std::iter::once(first).chain(rest).collect()) }
    }

    /// Evaluates the expression in three-valued logic; `None` means unknown.
    pub fn evaluate(&self, condition: &impl Fn(&L) -> Option<bool>) -> Option<bool> {
        match self {
            Self::Leaf(leaf) => condition(leaf),
            Self::Not(inner) => inner.evaluate(condition).map(|holds| !holds),
            Self::And(all) => evaluate_parts(all, false, condition),
            Self::Or(any) => evaluate_parts(any, true, condition),
        }
    }

    /// Evaluates the expression when the value of every condition is known.
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

/// Returns `decisive` if a part evaluates to it. Otherwise returns the opposite, or `None` if a part is
/// unknown.
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
    /// `test(…)`: matches the uid.
    Test(TextMatcher),
    /// `suite(…)`: matches the suite name, or the name of the configured suite.
    Suite(TextMatcher),
    /// `program(…)`: matches the program path.
    Program(TextMatcher),
    /// `tag(…)`: matches names and values of the traits reported by the framework.
    Tag {
        /// Matched against the name.
        key: TextMatcher,
        /// Matched against the value; `None` accepts any value.
        value: Option<TextMatcher>,
    },
    /// `state(…)`: compares the recorded outcome of the last run.
    State(HistoryState),
}

/// A text and how to match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextMatcher {
    /// `=text`: equal to the text.
    Equals(String),
    /// `~text`: contains the text.
    Contains(String),
    /// `/text/`: an unanchored regular expression.
    Regex(CompiledRegex),
    /// `#text`: a glob with `*` and `?`.
    Glob(WildcardPattern),
}

/// A compiled regular expression. Two are equal if their sources are equal.
#[derive(Debug, Clone)]
pub struct CompiledRegex(pub(super) regex::Regex);

impl PartialEq for CompiledRegex {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for CompiledRegex {}

/// The recorded outcome of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryState {
    /// The outcome of the test's last run.
    Ended(Outcome),
    /// The history contains no outcome of the test.
    NeverRan,
}

impl HistoryState {
    /// Names of all states, in display order.
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

/// A condition of a graph query on a node of the test tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    /// Matched against the node's name.
    pub name: WildcardPattern,
    /// Evaluated against the test's traits.
    pub properties: Option<BoolExpr<PropertyCondition>>,
}

/// A condition of a graph query on traits. Holds if a trait matches both name and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyCondition {
    /// Matched against the name.
    pub key: WildcardPattern,
    /// Matched against the value.
    pub value: WildcardPattern,
}
