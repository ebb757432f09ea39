//! Verdicts about mutants that a later run may take over, as a file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::StatusName;

/// The version of the file. Another one is not read.
pub const CACHE_VERSION: u32 = 1;

/// The verdicts of earlier runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedVerdicts {
    pub version: u32,
    /// A hash of everything but the code of functions with mutants: of tests, types and dependencies.
    pub fingerprint: String,
    /// By id.
    pub mutants: BTreeMap<String, CachedVerdict>,
}

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedVerdict {
    pub status: StatusName,
    /// A hash of its function's code.
    pub function: String,
    /// A hash of the tests that reach it.
    pub covering: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Uid of the test that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests_completed: Option<u32>,
    /// Microseconds that the tests took.
    pub duration_us: u64,
}

impl CachedVerdicts {
    /// Reads a file; `None` if it is damaged, or of another version.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|read: &Self| read.version == CACHE_VERSION)
    }

    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has only text, numbers and maps by text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_as_it_was_written_and_no_other() {
        let verdict = CachedVerdict {
            status: StatusName::Killed,
            function: "1".into(),
            covering: "2".into(),
            reason: Some("é\n".into()),
            killed_by: Some("s::t".into()),
            tests_completed: Some(3),
            duration_us: 4,
        };
        let verdicts = CachedVerdicts {
            version: CACHE_VERSION,
            fingerprint: "f".into(),
            mutants: [("00".to_owned(), verdict)].into(),
        };
        let bytes = verdicts.to_bytes();
        assert_eq!(CachedVerdicts::read(&bytes), Some(verdicts.clone()));
        for end in 0..bytes.len() {
            assert_eq!(CachedVerdicts::read(&bytes[..end]), None);
        }
        let newer = CachedVerdicts { version: CACHE_VERSION + 1, ..verdicts };
        assert_eq!(CachedVerdicts::read(&newer.to_bytes()), None);
    }
}
