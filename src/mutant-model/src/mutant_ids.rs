//! Ids of mutants, which are stable across versions and machines.

use crate::mutant::MutantId;
use std::collections::HashMap;

/// Assigns ids to the mutants of a source, in order.
#[derive(Debug, Default)]
pub struct MutantIds {
    /// Number of earlier mutants with the same hash, to distinguish equal mutants.
    ordinals: HashMap<u64, u64>,
}

impl MutantIds {
    /// Returns the id of the next mutant. `parts` are path, mutator, original code, replacement and
    /// function.
    pub fn next_id(&mut self, parts: [&str; 5]) -> MutantId {
        let mut hash = Fnv::default();
        parts.iter().for_each(|part| hash.add(part.as_bytes()));
        let ordinal = self.ordinals.entry(hash.0).or_default();
        hash.add(&ordinal.to_le_bytes());
        *ordinal += 1;
        MutantId(hash.0)
    }
}

/// FNV-1a with 64 bits.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds a part, followed by a byte that never occurs in UTF-8.
    fn add(&mut self, part: &[u8]) {
        for byte in part.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
