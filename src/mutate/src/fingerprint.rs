//! Hashes that detect changes; equal on every machine and in every version.

use std::fmt;

use heeler_protocol::mutation::HexHash;

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// An FNV-1a hash (64 bits) of pieces of text; their order and boundaries matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(OFFSET)
    }
}

impl Fingerprint {
    pub fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        pieces.into_iter().fold(Self::default(), Self::with)
    }

    /// Returns the hash extended by one piece.
    #[must_use]
    pub fn with(self, piece: &[u8]) -> Self {
        let length = (piece.len() as u64).to_le_bytes();
        let bytes = piece.iter().chain(&length);
        Self(bytes.fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)))
    }
}

impl From<Fingerprint> for HexHash {
    fn from(fingerprint: Fingerprint) -> Self {
        Self(fingerprint.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_of_pieces_count() {
        let of = |pieces: &[&str]| Fingerprint::of(pieces.iter().map(|piece| piece.as_bytes())).to_string();
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        assert_ne!(of(&["ab"]), of(&["a", "b"]));
        assert_ne!(of(&["a", ""]), of(&["", "a"]));
        assert_eq!(of(&[]), "cbf29ce484222325");
    }
}
