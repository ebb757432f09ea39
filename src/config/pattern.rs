//! Names of tests by substring or glob, as `--filter` and `[[profile.NAME.override]]` take them. The glob is our
//! own because test names are full of `[`, `{` and `/`, which must stand for themselves.

use std::{fmt, str::FromStr};

/// A substring or a glob over uids.
///
/// With `*` (any text) or `?` (any one character) it is a glob, which must match the whole uid or the whole of what
/// follows one of its `::`; else it is a substring of the uid. Every other character stands for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    is_glob: bool,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It would match everything by accident.
    #[error("an empty filter; leave it out to take all tests, or write \"*\"")]
    Empty,
    /// An expression such as `test(name)`, which would silently match nothing.
    #[error("filter expressions such as {function}(…) are not built yet; write a substring or a glob (*, ?)")]
    Expression {
        /// The function's name.
        function: &'static str,
    },
}

const FUNCTIONS: &[&str] =
    &["test", "package", "binary", "binary_id", "kind", "platform", "deps", "rdeps", "all", "none"];

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let word = text.trim_start_matches(['!', '(', ' ']);
        let word = word.strip_prefix("not ").unwrap_or(word);
        let function = FUNCTIONS.iter().find(|name| {
            word.strip_prefix(**name).is_some_and(|behind| behind.starts_with('(') && behind.contains(')'))
        });
        match function {
            Some(function) => Err(PatternError::Expression { function }),
            None => Ok(Self { text: text.to_owned(), is_glob: text.contains(['*', '?']) }),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    /// Returns whether the test of this uid is meant.
    #[must_use]
    pub fn is_match(&self, uid: &str) -> bool {
        if !self.is_glob {
            return uid.contains(&self.text);
        }
        glob(&self.text, uid) || uid.match_indices("::").any(|(place, _)| glob(&self.text, &uid[place + 2..]))
    }
}

/// Matches the whole of `text`, in time proportional to the product of the lengths at worst: on a mismatch only the
/// last `*` takes one character more.
fn glob(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut last_star = None;
    loop {
        let mut next = pattern.clone();
        match (next.next(), text.clone().next()) {
            (Some('*'), _) => {
                last_star = Some((next.clone(), text.clone()));
                pattern = next;
            }
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                pattern = next;
                text.next();
            }
            _ => {
                let Some((behind_star, mut taken)) = last_star.take() else { return false };
                if taken.next().is_none() {
                    return false;
                }
                last_star = Some((behind_star.clone(), taken.clone()));
                pattern = behind_star;
                text = taken;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, uid: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().is_match(uid)
    }

    #[test]
    fn a_word_without_wildcards_is_a_substring() {
        assert!(is_match("herd", "kennel::herd::counts"));
        assert!(is_match("param[1]", "suite::test_x[param[1]]"));
        assert!(!is_match("Herd", "kennel::herd::counts"));
    }

    #[test]
    fn a_glob_matches_the_whole_uid_or_all_behind_a_separator() {
        for (pattern, uid, expected) in [
            ("*", "a", true),
            ("kennel::*", "kennel::herd::counts", true),
            ("Big.*", "suite::Big.Case", true),
            ("Big.*", "suite::NotBig.Case", false),
            ("*counts", "kennel::herd::counts", true),
            ("*count", "kennel::herd::counts", false),
            ("herd::count?", "kennel::herd::counts", true),
            ("?", "a::é", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("Inst/P.Works/?", "s::Inst/P.Works/0", true),
            ("x[*]", "s::x[1]", true),
        ] {
            assert_eq!(is_match(pattern, uid), expected, "{pattern} on {uid}");
        }
    }

    #[test]
    fn a_glob_made_to_be_slow_is_not() {
        let uid = "a".repeat(4_000);
        assert!(!is_match(&format!("{}b", "a*".repeat(40)), &uid));
    }

    #[test]
    fn an_expression_or_nothing_is_refused_instead_of_matching_nothing() {
        assert_eq!("".parse::<Pattern>(), Err(PatternError::Empty));
        for text in ["test(herd)", "not test(/x/)", "!package(a)"] {
            assert!(matches!(text.parse::<Pattern>(), Err(PatternError::Expression { .. })), "{text}");
        }
        assert!(is_match("contest", "a::contest()"));
    }
}
