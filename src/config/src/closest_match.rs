//! The nearest known word to a misspelt one.

/// Returns the candidate that `keyword` may be a misspelling of.
pub fn closest_match<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let score = |candidate: &str| match strsim::osa_distance(word, candidate) {
        // Jaro-Winkler weighs a slip of two letters too heavily in a short word.
        0 | 1 => 1.0,
        _ => strsim::jaro_winkler(word, candidate),
    };
    let scored = candidates.into_iter().map(|candidate| (score(candidate), candidate));
    scored
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
