//! Finds the known word closest to a misspelt one, and tells the user.

/// Returns the candidate that `word` is most likely a misspelling of, if any.
pub fn closest_match<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let score = |candidate: &str| match strsim::osa_distance(word, candidate) {
        // In a short word, Jaro-Winkler penalises swapped letters too much.
        0 | 1 => 1.0,
        _ => strsim::jaro_winkler(word, candidate),
    };
    let scored = candidates.into_iter().map(|candidate| (score(candidate), candidate));
    scored
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Returns the end of a message about an unknown word: the known word that it resembles, or all known words.
pub(crate) fn known_words_hint(word: &str, known: &[&str]) -> String {
    match closest_match(word, known.iter().copied()) {
        Some(near) => format!("; did you mean \"{near}\"?"),
        None => format!(" (available: {})", known.join(", ")),
    }
}
