//! Input of mutation testing reports, and short texts about a mutant.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use heeler_mutant_model::{Mutant, MutantResult, MutantStatus, MutationCounts};

use crate::sanitise::one_line;

/// Maximum length, in characters, of a source text quoted within a line.
const SHORT_CHARS: usize = 80;
/// Number of characters shown around the difference in a longer text.
const CONTEXT_CHARS: usize = 20;
/// Maximum number of covering tests named for a survivor.
const NAMED_TESTS: usize = 3;

/// Input of a mutation testing report.
#[derive(Debug, Clone, Copy)]
pub struct MutationReport<'a> {
    pub results: &'a [MutantResult],
    /// Source texts at the time of mutation, by mutant path.
    pub sources: &'a BTreeMap<Arc<str>, Arc<str>>,
    /// Absolute directory that mutant paths are relative to.
    pub directory: &'a Path,
    pub bounds: ScoreBounds,
    /// Places of the tests' definitions, by uid, if known.
    pub tests: &'a BTreeMap<Arc<str>, TestPlace>,
    pub phases: Option<MutationPhases>,
}

/// Score bounds in percent: good from `high`, bad below `low`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScoreBounds {
    pub high: u8,
    pub low: u8,
}

impl Default for ScoreBounds {
    fn default() -> Self {
        Self { high: 80, low: 60 }
    }
}

/// Place of a test's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestPlace {
    pub file: String,
    pub line: Option<u32>,
}

/// Duration of each phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutationPhases {
    /// Parsing and building.
    pub setup: Duration,
    /// Baseline run: the tests without a mutant.
    pub initial_run: Duration,
    /// Runs with mutants.
    pub mutation: Duration,
}

impl<'a> MutationReport<'a> {
    /// Returns the results by file, sorted by place in the file.
    pub(super) fn by_file(&self) -> BTreeMap<&'a str, Vec<&'a MutantResult>> {
        let mut files: BTreeMap<&str, Vec<&MutantResult>> = BTreeMap::new();
        for result in self.results {
            files.entry(result.mutant.path()).or_default().push(result);
        }
        for results in files.values_mut() {
            results.sort_by(|one, other| {
                let (one, other) = (&one.mutant, &other.mutant);
                let place = |mutant: &Mutant| (mutant.bytes().start, mutant.bytes().end);
                place(one)
                    .cmp(&place(other))
                    .then_with(|| one.mutator.name().cmp(other.mutator.name()))
                    .then_with(|| one.replacement().cmp(&other.replacement()))
            });
        }
        files
    }

    pub(super) fn source(&self, path: &str) -> &'a str {
        self.sources.get(path).map_or("", |text| text)
    }

    pub(super) fn counts(&self) -> MutationCounts {
        self.results.iter().map(|result| result.status).collect()
    }

    /// Returns the survivors: covered mutants first, then uncovered mutants.
    pub(super) fn survivors(&self) -> Vec<&'a MutantResult> {
        let files = self.by_file();
        let of = |status| files.values().flatten().copied().filter(move |result| result.status == status);
        of(MutantStatus::Survived).chain(of(MutantStatus::NoCoverage)).collect()
    }
}

/// Returns a mutant's change as one short line.
#[must_use]
pub fn change_text(mutant: &Mutant) -> String {
    if let Some(description) = mutant.description() {
        return shortened(&description);
    }
    let (original, replacement) = (in_one_line(mutant.original()), in_one_line(&mutant.replacement()));
    if replacement.is_empty() {
        return format!("{} removed", shortened(&original));
    }
    let is_long = |text: &str| text.chars().count() > SHORT_CHARS;
    if !is_long(&original) && !is_long(&replacement) {
        return format!("{original} → {replacement}");
    }
    let [original, replacement] = around_difference(&original, &replacement);
    format!("{} → {}", shortened(&original), shortened(&replacement))
}

/// Returns why a mutant survived, its function, and the first tests that cover it.
#[must_use]
pub fn survival_text(result: &MutantResult) -> String {
    let item = in_one_line(&result.mutant.item);
    let function = if item.is_empty() { String::new() } else { format!("in `{item}`: ") };
    let named: Vec<_> = result.covered_by.iter().take(NAMED_TESTS).map(|uid| in_one_line(uid)).collect();
    let more = if result.covered_by.len() > named.len() { ", …" } else { "" };
    let tests = format!(": {}{more}", named.join(", "));
    match (result.status, result.covered_by.len()) {
        (MutantStatus::NoCoverage, _) => format!("{function}no test reaches it"),
        (_, 0) => format!("{function}no test failed"),
        (_, 1) => format!("{function}1 test covers it and did not fail{tests}"),
        (_, count) => format!("{function}{count} tests cover it and none failed{tests}"),
    }
}

/// Returns the differing parts of two texts, with some common text around them.
fn around_difference(one: &str, other: &str) -> [String; 2] {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let equal = |pairs: &mut dyn Iterator<Item = (&char, &char)>| pairs.take_while(|(a, b)| a == b).count();
    let before = equal(&mut one.iter().zip(&other));
    let least = one.len().min(other.len()) - before;
    let behind = equal(&mut one.iter().rev().zip(other.iter().rev())).min(least);
    let (before, behind) = (before.saturating_sub(CONTEXT_CHARS), behind.saturating_sub(CONTEXT_CHARS));
    [one, other].map(|text| {
        let middle: String = text[before..text.len() - behind].iter().collect();
        let mark = |cut: usize| if cut > 0 { "…" } else { "" };
        format!("{}{middle}{}", mark(before), mark(behind))
    })
}

/// Returns a text as one line without control characters.
fn in_one_line(text: &str) -> String {
    one_line(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

/// Returns a text as one line without control characters, cut if it is long.
fn shortened(text: &str) -> String {
    let line = in_one_line(text);
    match line.char_indices().nth(SHORT_CHARS) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}
