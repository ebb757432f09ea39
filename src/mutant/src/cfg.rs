//! Evaluates `#[cfg]` conditions against a configuration.

use heeler_mutant_model::OperatorLevel;
use std::collections::BTreeSet;

/// The configuration of a build: names and `key="value"` pairs in the format of `rustc --print cfg`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    set: BTreeSet<String>,
    operators: OperatorLevel,
}

/// Which builds contain a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The code is part of the product.
    Product,
    /// Only test builds contain the code.
    TestOnly,
    /// No build of this configuration contains the code.
    Absent,
}

impl Configuration {
    /// Parses the output of `rustc --print cfg`.
    pub fn of_rustc(lines: &str) -> Self {
        Self {
            operators: OperatorLevel::default(),
            set: lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        }
    }

    /// Returns the configuration with another operator level.
    #[must_use]
    pub fn with_operators(self, operators: OperatorLevel) -> Self {
        Self { operators, ..self }
    }

    pub(crate) fn has_all_operators(&self) -> bool {
        self.operators == OperatorLevel::All
    }

    pub fn add_feature(&mut self, feature: &str) {
        self.set.insert(format!("feature=\"{feature}\""));
    }

    /// Evaluates a condition, given the text between the parentheses of `#[cfg(…)]`. Code with an unreadable
    /// condition counts as part of the product.
    pub(crate) fn presence(&self, condition: &str) -> Presence {
        let decide = |is_test| Conditions { rest: condition, set: &self.set, is_test }.decide();
        match (decide(false), decide(true)) {
            (Some(true), _) | (None, _) | (_, None) => Presence::Product,
            (Some(false), Some(true)) => Presence::TestOnly,
            (Some(false), Some(false)) => Presence::Absent,
        }
    }
}

/// Maximum nesting depth of conditions.
const DEPTH: usize = 32;

struct Conditions<'a> {
    rest: &'a str,
    set: &'a BTreeSet<String>,
    is_test: bool,
}

impl<'a> Conditions<'a> {
    fn decide(mut self) -> Option<bool> {
        let decided = self.condition(DEPTH)?;
        self.rest = self.rest.trim_start().trim_start_matches(',').trim_start();
        self.rest.is_empty().then_some(decided)
    }

    fn skip(&mut self, token: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn word(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start();
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end = self.rest.find(|letter| !is_word(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn condition(&mut self, depth: usize) -> Option<bool> {
        let depth = depth.checked_sub(1)?;
        let name = self.word()?;
        if self.skip('=') {
            let value = self.rest.trim_start().strip_prefix('"')?;
            let (value, rest) = value.split_once('"')?;
            self.rest = rest;
            return Some(self.set.contains(&format!("{name}=\"{value}\"")));
        }
        if !self.skip('(') {
            return Some(match name {
                "test" => self.is_test,
                "true" => true,
                _ => self.set.contains(name),
            });
        }
        let mut parts = Vec::new();
        while !self.skip(')') {
            parts.push(self.condition(depth)?);
            if !self.skip(',') && !self.rest.trim_start().starts_with(')') {
                return None;
            }
        }
        match (name, parts.as_slice()) {
            ("all", parts) => Some(parts.iter().all(|&part| part)),
            ("any", parts) => Some(parts.iter().any(|&part| part)),
            ("not", &[part]) => Some(!part),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_decided_as_rustc_does() {
        let mut configuration = Configuration::of_rustc("unix\ntarget_os=\"linux\"\n");
        configuration.add_feature("std");
        for (condition, presence) in [
            ("unix", Presence::Product),
            ("windows", Presence::Absent),
            ("test", Presence::TestOnly),
            ("not(test)", Presence::Product),
            ("all(test, unix)", Presence::TestOnly),
            ("all(test, feature = \"no\")", Presence::Absent),
            ("any(feature = \"no\", feature=\"std\",)", Presence::Product),
            ("not(any(target_os = \"linux\"))", Presence::Absent),
            ("any()", Presence::Absent),
            ("all()", Presence::Product),
            ("version(\"1.80\")", Presence::Product),
            ("", Presence::Product),
            ("any(unix", Presence::Product),
        ] {
            assert_eq!(configuration.presence(condition), presence, "{condition}");
        }
        let deep = format!("{}unix{}", "not(".repeat(10_000), ")".repeat(10_000));
        assert_eq!(configuration.presence(&deep), Presence::Product);
    }
}
