//! What a report of mutation testing is written from, and the short texts about a mutant.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use heeler_mutant::{Mutant, MutantResult, MutantStatus, MutationCounts};

use crate::sanitise::one_line;

/// Maximum number of characters of a text that stands in a line with others.
const SHORT_CHARS: usize = 80;

/// What a report of mutation testing is written from.
#[derive(Debug, Clone, Copy)]
pub struct MutationReport<'a> {
    pub results: &'a [MutantResult],
    /// The texts of the sources as they were mutated, by the paths of the mutants.
    pub sources: &'a BTreeMap<Arc<str>, Arc<str>>,
    /// The absolute directory to which the paths of the mutants are relative.
    pub directory: &'a Path,
    pub bounds: ScoreBounds,
    /// Where tests begin, by uid, as far as it is known.
    pub tests: &'a BTreeMap<Arc<str>, TestPlace>,
    pub phases: Option<MutationPhases>,
}

/// Percentages from which a score is good (`high`), and below which it is bad (`low`).
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

/// Where a test begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestPlace {
    pub file: String,
    pub line: Option<u32>,
}

/// How long each phase took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutationPhases {
    /// Parsing and building.
    pub setup: Duration,
    /// The run of the tests without a mutant.
    pub initial_run: Duration,
    /// The runs with mutants.
    pub mutation: Duration,
}

impl<'a> MutationReport<'a> {
    /// Returns the results by file, each file's in the order of their places.
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

    /// Returns the survivors: first the mutants that tests ran through, then those that no test reaches.
    pub(super) fn survivors(&self) -> Vec<&'a MutantResult> {
        let files = self.by_file();
        let of = |status| files.values().flatten().copied().filter(move |result| result.status == status);
        of(MutantStatus::Survived).chain(of(MutantStatus::NoCoverage)).collect()
    }
}

/// Returns what a mutant changes, as one short line.
#[must_use]
pub fn change_text(mutant: &Mutant) -> String {
    if let Some(description) = mutant.description() {
        return shortened(&description);
    }
    let original = shortened(mutant.original());
    match mutant.replacement().trim() {
        "" => format!("{original} removed"),
        replacement => format!("{original} → {}", shortened(replacement)),
    }
}

/// Returns why a survivor is one.
pub(super) fn survival_text(result: &MutantResult) -> String {
    match (result.status, result.covered_by.len()) {
        (MutantStatus::NoCoverage, _) => "no test reaches it".to_owned(),
        (_, 0) => "no test failed".to_owned(),
        (_, 1) => "1 test covers it and did not fail".to_owned(),
        (_, count) => format!("{count} tests cover it and none failed"),
    }
}

/// Returns a text as one line without control characters, cut where it is long.
fn shortened(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    let line = one_line(&line);
    match line.char_indices().nth(SHORT_CHARS) {
        None => line.into_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}
