//! Hashes and ids: 16 hexadecimal digits in files, a number in memory.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A hash, or the id of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HexHash(pub u64);

impl Serialize for HexHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for HexHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_hash = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = if is_hash { u64::from_str_radix(&text, 16).ok() } else { None };
        number
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("expected 16 hexadecimal digits, got {text:?}")))
    }
}
