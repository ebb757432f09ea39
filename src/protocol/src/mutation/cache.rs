//! File of verdicts about mutants that a later run may reuse.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{HexHash, StatusName};

/// Version of the file; other versions are not read.
pub const CACHE_VERSION: u32 = 1;

/// Verdicts of earlier runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedVerdicts {
    pub version: u32,
    /// Hash of everything except the code of functions with mutants: tests, types and dependencies.
    pub fingerprint: HexHash,
    /// Verdicts by mutant id.
    pub mutants: BTreeMap<HexHash, CachedVerdict>,
}

/// Verdict on a mutant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedVerdict {
    pub status: StatusName,
    /// Hash of the code of the mutant's function.
    pub function: HexHash,
    /// Hash of the tests that reach the mutant.
    pub covering: HexHash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// Uid of the test that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed_by: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests_completed: Option<u32>,
    /// Duration of the tests in microseconds.
    pub duration_us: u64,
}

impl CachedVerdicts {
    /// Reads a file; `None` if it is damaged or has another version.
    #[must_use]
    pub fn read(file: impl Read) -> Option<Self> {
        serde_json::from_reader(file).ok().filter(|read: &Self| read.version == CACHE_VERSION)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The writer fails.
    pub fn write(&self, file: impl Write) -> io::Result<()> {
        Ok(serde_json::to_writer(file, self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_as_it_was_written_and_no_other() {
        let verdict = CachedVerdict {
            status: StatusName::Killed,
            function: HexHash(1),
            covering: HexHash(u64::MAX),
            reason: Some("é\n".into()),
            killed_by: Some("s::t".into()),
            tests_completed: Some(3),
            duration_us: 4,
        };
        let verdicts = CachedVerdicts {
            version: CACHE_VERSION,
            fingerprint: HexHash(15),
            mutants: [(HexHash(0), verdict)].into(),
        };
        let bytes = |verdicts: &CachedVerdicts| {
            let mut bytes = Vec::new();
            verdicts.write(&mut bytes).unwrap();
            bytes
        };
        let written = bytes(&verdicts);
        let text = String::from_utf8_lossy(&written);
        assert!(
            text.contains("\"0000000000000000\":{\"status\":\"Killed\",\"function\":\"0000000000000001\""),
            "{text}"
        );
        assert_eq!(CachedVerdicts::read(&*written), Some(verdicts.clone()));
        for end in 0..written.len() {
            assert_eq!(CachedVerdicts::read(&written[..end]), None);
        }
        let no_hash = text.replace("000000000000000f", "00000000000000+f");
        assert_eq!(CachedVerdicts::read(no_hash.as_bytes()), None);
        let newer = CachedVerdicts { version: CACHE_VERSION + 1, ..verdicts };
        assert_eq!(CachedVerdicts::read(&*bytes(&newer)), None);
    }
}
