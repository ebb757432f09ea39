//! Evaluates filters and graph queries.

use std::borrow::Cow;

use heeler_core::test_path::TestPath;

use super::{
    Filter, FilterPredicate, GraphQuery, HistoryState, NodeCondition, PropertyCondition, TextMatcher,
    WildcardPattern,
};
use heeler_core::Outcome;

/// Properties of a test that filters can match. A program that can't be listed is represented by its suite
/// name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterSubject<'a> {
    /// The uid, `<suite>::<name>`.
    pub uid: &'a str,
    pub suite: &'a str,
    /// Name of the configured suite that the test's program comes from.
    pub config_suite: Option<&'a str>,
    pub program: Cow<'a, str>,
    /// Names and values of traits reported by the framework.
    pub tags: Vec<(&'a str, &'a str)>,
    /// Recorded outcome of the last run, if any.
    pub last: Option<Outcome>,
}

impl Filter {
    /// Returns whether the filter selects the test.
    #[must_use]
    pub fn is_match(&self, subject: &FilterSubject<'_>) -> bool {
        self.expr.holds(&|predicate| predicate.holds(subject))
    }

    /// Returns whether the filter may select any tests of `suite`, one of the configured suites named `all`,
    /// before its programs are known. A `suite(…)` with the name of configured suites means these suites.
    #[must_use]
    pub fn may_match_suite(&self, suite: &str, all: &[&str]) -> bool {
        let judged = self.expr.evaluate(&|predicate| match predicate {
            FilterPredicate::All => Some(true),
            FilterPredicate::None => Some(false),
            FilterPredicate::Suite(text) if text.matches_suffix(suite, "::") => Some(true),
            // A part of a name or a regular expression may match other suites by the names of their programs.
            FilterPredicate::Suite(text @ (TextMatcher::Equals(_) | TextMatcher::Glob(_))) => {
                all.iter().any(|name| text.matches_suffix(name, "::")).then_some(false)
            }
            FilterPredicate::Suite(_)
            | FilterPredicate::Program(_)
            | FilterPredicate::Test(_)
            | FilterPredicate::Tag { .. }
            | FilterPredicate::State(_) => None,
        });
        judged != Some(false)
    }

    /// Returns whether the filter may select any tests of a program that could not be listed.
    #[must_use]
    pub fn may_match(&self, subject: &FilterSubject<'_>) -> bool {
        let judged = self.expr.evaluate(&|predicate| match predicate {
            FilterPredicate::Test(_) | FilterPredicate::Tag { .. } | FilterPredicate::State(_) => None,
            FilterPredicate::All
            | FilterPredicate::None
            | FilterPredicate::Suite(_)
            | FilterPredicate::Program(_) => Some(predicate.holds(subject)),
        });
        judged != Some(false)
    }
}

impl FilterPredicate {
    fn holds(&self, subject: &FilterSubject<'_>) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Test(text) => text.matches_suffix(subject.uid, "::"),
            Self::Suite(text) => {
                let mut names = [Some(subject.suite), subject.config_suite].into_iter().flatten();
                names.any(|name| text.matches_suffix(name, "::"))
            }
            Self::Program(text) => text.matches_suffix(&subject.program, "/"),
            Self::Tag { key, value } => subject.tags.iter().any(|(name, found)| {
                key.matches_whole(name) && value.as_ref().is_none_or(|value| value.matches_whole(found))
            }),
            Self::State(HistoryState::NeverRan) => subject.last.is_none(),
            Self::State(HistoryState::Ended(outcome)) => subject.last == Some(*outcome),
        }
    }
}

impl TextMatcher {
    /// Returns whether the text matches. An exact text or a glob must match the whole name, or its part
    /// after a separator.
    fn matches_suffix(&self, name: &str, separator: &str) -> bool {
        match self {
            Self::Contains(_) | Self::Regex(_) => self.matches_whole(name),
            Self::Equals(text) => name
                .strip_suffix(text.as_str())
                .is_some_and(|before| before.is_empty() || before.ends_with(separator)),
            Self::Glob(glob) => {
                let mut behind =
                    name.match_indices(separator).map(|(place, _)| &name[place + separator.len()..]);
                glob.is_match(name) || behind.any(|tail| glob.is_match(tail))
            }
        }
    }

    fn matches_whole(&self, text: &str) -> bool {
        match self {
            Self::Equals(wanted) => wanted == text,
            Self::Contains(part) => text.contains(part.as_str()),
            Self::Regex(regex) => regex.0.is_match(text),
            Self::Glob(glob) => glob.is_match(text),
        }
    }
}

impl GraphQuery {
    /// Returns whether the query selects the test with this path and these traits. Letter case is ignored, as
    /// in Microsoft Testing Platform.
    #[must_use]
    pub fn is_match(&self, path: &TestPath<'_>, tags: &[(&str, &str)]) -> bool {
        let mut nodes = path.segments();
        let is_so_far = self
            .segments
            .iter()
            .all(|segment| nodes.next().is_some_and(|name| segment.holds(&|test| test.holds(name, tags))));
        match (&self.rest, nodes.next()) {
            (None, None) => is_so_far,
            (Some(rest), Some(_)) => {
                is_so_far && rest.properties.as_ref().is_none_or(|one| one.holds(&|one| one.holds(tags)))
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Returns whether the query may select any tests of a suite that could not be listed.
    #[must_use]
    pub fn may_match(&self, suite: &str) -> bool {
        let Some(root) = self.segments.first() else { return self.rest.is_some() };
        let judged = root.evaluate(&|test| match (test.name.is_match_in_any_case(suite), &test.properties) {
            (true, Some(_)) => None,
            (is_match, _) => Some(is_match),
        });
        judged != Some(false)
    }
}

impl NodeCondition {
    fn holds(&self, name: &str, tags: &[(&str, &str)]) -> bool {
        self.name.is_match_in_any_case(name)
            && self.properties.as_ref().is_none_or(|all| all.holds(&|one| one.holds(tags)))
    }
}

impl PropertyCondition {
    fn holds(&self, tags: &[(&str, &str)]) -> bool {
        let fits = |wildcard: &WildcardPattern, text| wildcard.is_match_in_any_case(text);
        tags.iter().any(|(name, value)| fits(&self.key, name) && fits(&self.value, value))
    }
}
