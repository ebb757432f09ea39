//! Filters, parsed. How they are written lives in `expression`, `graph` and `show`, what they mean in `matches`.

use super::Wildcard;
use crate::history::LastOutcome;

/// Conditions joined by and, or, not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr<L> {
    /// One condition.
    Leaf(L),
    /// It does not hold.
    Not(Box<Self>),
    /// All hold; at least two.
    And(Vec<Self>),
    /// One holds at least; at least two.
    Or(Vec<Self>),
}

impl<L> Expr<L> {
    pub(super) fn negated(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// Joins by and; a single one stays as it is.
    pub(super) fn all_of(first: Self, rest: Vec<Self>) -> Self {
        if rest.is_empty() { first } else { Self::And(std::iter::once(first).chain(rest).collect()) }
    }

    /// Joins by or; a single one stays as it is.
    pub(super) fn any_of(first: Self, rest: Vec<Self>) -> Self {
        if rest.is_empty() { first } else { Self::Or(std::iter::once(first).chain(rest).collect()) }
    }

    /// Returns whether the whole holds, by what holds of the conditions; `None` is "not known", in and out.
    pub fn judge(&self, condition: &impl Fn(&L) -> Option<bool>) -> Option<bool> {
        match self {
            Self::Leaf(leaf) => condition(leaf),
            Self::Not(inner) => inner.judge(condition).map(|holds| !holds),
            Self::And(all) => decided(all, false, condition),
            Self::Or(any) => decided(any, true, condition),
        }
    }

    /// Returns whether the whole holds, when everything is known.
    pub fn holds(&self, condition: &impl Fn(&L) -> bool) -> bool {
        self.judge(&|leaf| Some(condition(leaf))).unwrap_or_default()
    }

    /// Returns whether any condition is such a one.
    pub fn mentions(&self, is_such: &impl Fn(&L) -> bool) -> bool {
        match self {
            Self::Leaf(leaf) => is_such(leaf),
            Self::Not(inner) => inner.mentions(is_such),
            Self::And(all) | Self::Or(all) => all.iter().any(|one| one.mentions(is_such)),
        }
    }
}

/// One part that comes out as `decisive` decides; else the whole is its opposite, unless a part is not known.
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
    /// `test(…)`: of the uid.
    Test(Text),
    /// `suite(…)`: of the suite's name.
    Suite(Text),
    /// `program(…)`: of the program's path.
    Program(Text),
    /// `tag(…)`: of the names and values that the framework gives a test.
    Tag {
        /// Of the name.
        key: Text,
        /// Of the value; `None` takes any.
        value: Option<Text>,
    },
    /// `state(…)`: of what the history says.
    State(Past),
}

/// How a text is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// `=text`: nothing but this.
    Equals(String),
    /// `~text`: this, anywhere.
    Contains(String),
    /// `/text/`: a regular expression that fits somewhere.
    Regex(Regex),
    /// `#text`: with `*` and `?`.
    Glob(Wildcard),
}

/// A compiled regular expression; two are equal when they are written the same.
#[derive(Debug, Clone)]
pub struct Regex(pub(super) regex::Regex);

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Regex {}

/// What the history says of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// How it ended last.
    Ended(LastOutcome),
    /// It never ended here.
    Never,
}

impl Past {
    /// The words of all, in the order in which people should read them.
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
    /// Of the node's name.
    pub name: Wildcard,
    /// Of the test's traits.
    pub properties: Option<Expr<Property>>,
}

/// One condition of a graph query on a trait: one there is has this name and this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// Of the name.
    pub key: Wildcard,
    /// Of the value.
    pub value: Wildcard,
}
