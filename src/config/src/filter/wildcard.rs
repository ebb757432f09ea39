//! The wildcards `*` and `?`. No glob crate is used, because test names often contain `[`, `{` and `/`, which
//! must be literal.

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WildcardPattern(pub(super) Vec<PatternPart>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternPart {
    /// A literal character.
    Char(char),
    /// `?`: any single character.
    One,
    /// `*`: any text.
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LetterCase {
    Exact,
    Ignored,
}

impl WildcardPattern {
    /// Returns whether the pattern matches the whole text.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.is_match_in(LetterCase::Exact, text)
    }

    /// Returns whether the pattern matches the whole text, ignoring letter case.
    pub(super) fn is_match_in_any_case(&self, text: &str) -> bool {
        self.is_match_in(LetterCase::Ignored, text)
    }

    /// Worst case O(pattern × text): after a mismatch, only the last `*` is extended by one character.
    fn is_match_in(&self, case: LetterCase, text: &str) -> bool {
        let mut parts = self.0.as_slice();
        let mut text = text.chars();
        let mut last_star = None;
        loop {
            match (parts.split_first(), text.clone().next()) {
                (Some((PatternPart::Any, behind)), _) => {
                    last_star = Some((behind, text.clone()));
                    parts = behind;
                }
                (None, None) => return true,
                (Some((part, behind)), Some(found)) if part.matches_char(case, found) => {
                    parts = behind;
                    text.next();
                }
                _ => {
                    let Some((behind_star, mut taken)) = last_star.take() else { return false };
                    if taken.next().is_none() {
                        return false;
                    }
                    last_star = Some((behind_star, taken.clone()));
                    parts = behind_star;
                    text = taken;
                }
            }
        }
    }

    /// Returns whether the pattern contains a wildcard.
    pub(super) fn has_wildcards(&self) -> bool {
        self.0.iter().any(|part| !matches!(part, PatternPart::Char(_)))
    }
}

impl PatternPart {
    fn matches_char(self, case: LetterCase, found: char) -> bool {
        match self {
            Self::Char(wanted) if case == LetterCase::Ignored => {
                wanted == found || wanted.to_lowercase().eq(found.to_lowercase())
            }
            Self::Char(wanted) => wanted == found,
            Self::One => true,
            Self::Any => false,
        }
    }
}
