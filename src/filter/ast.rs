//! The syntax trees of filters. The syntax is in `expression`, `graph` and `show`, the evaluation in
//! `matches`.

use super::Wildcard;
use crate::history::LastOutcome;

/// Conditions joined by and, or, not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr<L> {
    /// A single condition.
    Leaf(L),
    /// Holds when the inner expression does not.
    Not(Box<Self>),
    /// Holds when all parts hold; at least two parts.
    And(Vec<Self>),
    /// Holds when at least one part holds; at least two parts.
    Or(Vec<Self>),
}

impl<L> Expr<L> {
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
    pub fn judge(&self, condition: &impl Fn(&L) -> Option<bool>) -> Option<bool> {
        match self {
            Self::Leaf(leaf) => condition(leaf),
            Self::Not(inner) => inner.judge(condition).map(|holds| !holds),
            Self::And(all) => decided(all, false, condition),
            Self::Or(any) => decided(any, true, condition),
        }
    }

    /// Returns whether the expression holds, with every condition known.
    pub fn holds(&self, condition: &impl Fn(&L) -> bool) -> bool {
        self.judge(&|leaf| Some(condition(leaf))).unwrap_or_default()
    }

    /// Returns whether any condition satisfies `is_such`.
    pub fn mentions(&self, is_such: &impl Fn(&L) -> bool) -> bool {
        match self {
            Self::Leaf(leaf) => is_such(leaf),
            Self::Not(inner) => inner.mentions(is_such),
            Self::And(all) | Self::Or(all) => all.iter().any(|one| one.mentions(is_such)),
        }
    }
}

/// Returns `decisive` when one part evaluates to it; otherwise the opposite, unless a part is unknown.
fn decided<L>(parts: &[Expr<L>], decisive: bool, condition: &impl Fn(&L) -> Option<bool>) -> Option<bool> {
    let mut whole = Some(!decisive);
    for part in parts {
        match part.judge(condition) {
            Some(found) if found == decisive => return Some(decisive),
            Some(_) => {}
            None => whole = None,
        }
    }
    whole
}

/// One condition of a filter expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Predicate {
    /// `all()`.
    All,
    /// `none()`.
    None,
    /// `test(…)`: compares the uid.
    Test(Text),
    /// `suite(…)`: compares the suite's name.
    Suite(Text),
    /// `program(…)`: compares the program's path.
    Program(Text),
    /// `tag(…)`: compares the names and values of the traits that the framework reports.
    Tag {
        /// Compared with the name.
        key: Text,
        /// Compared with the value; `None` accepts any.
        value: Option<Text>,
    },
    /// `state(…)`: compares the recorded outcome of the last run.
    State(Past),
}

/// A text and how it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// `=text`: equality.
    Equals(String),
    /// `~text`: substring.
    Contains(String),
    /// `/text/`: a regular expression, not anchored.
    Regex(Regex),
    /// `#text`: a glob with `*` and `?`.
    Glob(Wildcard),
}

/// A compiled regular expression; two are equal when their sources are equal.
#[derive(Debug, Clone)]
pub struct Regex(pub(super) regex::Regex);

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Regex {}

/// The recorded outcome of a test, from the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// The test ended with this outcome when it last ran.
    Ended(LastOutcome),
    /// The history has no outcome of the test.
    Never,
}

impl Past {
    /// The names of all states, in the order in which they are shown.
    pub const WORDS: [(&'static str, Self); 7] = [
        ("failed", Self::Ended(LastOutcome::Failed)),
        ("crashed", Self::Ended(LastOutcome::Crashed)),
        ("timed-out", Self::Ended(LastOutcome::TimedOut)),
        ("passed", Self::Ended(LastOutcome::Passed)),
        ("skipped", Self::Ended(LastOutcome::Skipped)),
        ("new", Self::Never),
        ("never-run", Self::Never),
    ];
}

/// One condition of a graph query on a node of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTest {
    /// Matched against the node's name.
    pub name: Wildcard,
    /// Evaluated on the test's traits.
    pub properties: Option<Expr<Property>>,
}

/// One condition of a graph query on the traits: holds when some trait matches both name and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// Matched against the name.
    pub key: Wildcard,
    /// Matched against the value.
    pub value: Wildcard,
}
