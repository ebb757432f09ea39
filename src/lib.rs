//! Heeler's coordinator, its client library and its command line.

pub mod cli;
pub mod client;
pub mod config;
pub mod discover;
pub mod filter;
pub mod front;
pub mod history;
pub mod pool;
pub mod report;
pub mod run;
pub mod runs;

/// Returns an error with its causes, joined by colons.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut out = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        out.push_str(": ");
        out.push_str(&source.to_string());
        cause = source.source();
    }
    out
}

/// Returns the candidate of which `word` may be a misspelling.
pub(crate) fn closest_match<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let score = |candidate: &str| match strsim::osa_distance(word, candidate) {
        // In short words, the similarity penalises a single edit, such as two swapped letters, too much.
        0 | 1 => 1.0,
        _ => strsim::jaro_winkler(word, candidate),
    };
    let scored = candidates.into_iter().map(|candidate| (score(candidate), candidate));
    scored
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
