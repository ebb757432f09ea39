//! Shards: mutants divided among machines by id.

use std::{num::NonZeroU32, str::FromStr};

use heeler_mutant_model::MutantId;

/// One shard of the mutants. A mutant stays in its shard when other mutants are added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutantShard {
    /// Number of this shard, from 1.
    number: u32,
    count: NonZeroU32,
}

/// The text is not a valid shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected K/N with K from 1 to N, such as 1/4, got \"{0}\"")]
pub struct ParseShardError(String);

impl FromStr for MutantShard {
    type Err = ParseShardError;

    fn from_str(text: &str) -> Result<Self, ParseShardError> {
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(number, count)| {
            Some((number.parse::<u32>().ok()?, count.parse::<NonZeroU32>().ok()?))
        });
        let valid = parsed.filter(|(number, count)| (1..=count.get()).contains(number));
        valid.map(|(number, count)| Self { number, count }).ok_or_else(|| ParseShardError(text.to_owned()))
    }
}

impl MutantShard {
    #[must_use]
    pub fn contains(self, id: MutantId) -> bool {
        // Ids are hashes, so the remainder spreads them evenly.
        id.0 % u64::from(self.count.get()) == u64::from(self.number - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_is_in_exactly_one_part() {
        let shards = ["1/3", "2/3", "3/3"].map(|text| text.parse::<MutantShard>().unwrap());
        for id in (0..200).map(|number: u64| MutantId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))) {
            assert_eq!(shards.iter().filter(|shard| shard.contains(id)).count(), 1);
        }
    }

    #[test]
    fn other_texts_are_refused_with_what_was_expected() {
        for text in ["0/3", "4/3", "1/0", "1", "a/b", "1/2/3", "-1/2", ""] {
            let error = text.parse::<MutantShard>().unwrap_err().to_string();
            assert_eq!(error, format!("expected K/N with K from 1 to N, such as 1/4, got \"{text}\""));
        }
    }
}
