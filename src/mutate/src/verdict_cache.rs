//! Verdicts of earlier runs, and which of them are still valid.
//!
//! A verdict is reused only if the code of the mutant's function, everything outside of functions with
//! mutants (tests, types, manifests, data) and the set of covering tests are all unchanged. Effects of
//! changes in other functions go unnoticed. Timeouts are never reused, because the machine may have caused
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufReader},
    path::Path,
    sync::Arc,
};

use heeler_mutant_model::{MutantId, MutantStatus};
use heeler_protocol::mutation::{
    HexHash, StatusName,
    cache::{CACHE_VERSION, CachedVerdict, CachedVerdicts},
};

use crate::{fingerprint::Fingerprint, shared_texts::SharedTexts};

/// Inputs that decide whether a mutant's verdict is still valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictBasis {
    pub function: Fingerprint,
    /// A hash of the covering tests' uids.
    pub covering: Fingerprint,
}

impl VerdictBasis {
    /// Returns the basis for a mutant of a function; `covering` has the uids of the covering tests, in any
    /// order.
    #[must_use]
    pub fn new<'a>(function: Fingerprint, covering: impl IntoIterator<Item = &'a str>) -> Self {
        let uids: BTreeSet<&str> = covering.into_iter().collect();
        Self { function, covering: Fingerprint::of(uids.into_iter().map(str::as_bytes)) }
    }
}

/// A verdict that later runs may reuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptVerdict {
    pub status: MutantStatus,
    pub reason: Option<Arc<str>>,
    /// Uid of the failed test.
    pub killed_by: Option<Arc<str>>,
    pub tests_completed: Option<u32>,
    pub duration_us: u64,
}

/// Verdicts of earlier runs and of this run.
#[derive(Debug)]
pub struct VerdictCache {
    verdicts: CachedVerdicts,
    is_changed: bool,
}

impl VerdictCache {
    /// Reads the file of an earlier run; empty if the file is missing, damaged or has another fingerprint.
    #[must_use]
    pub fn read(path: &Path, fingerprint: Fingerprint) -> Self {
        let fingerprint = HexHash::from(fingerprint);
        let read = File::open(path).ok().and_then(|file| CachedVerdicts::read(BufReader::new(file)));
        let mut verdicts = read.filter(|read| read.fingerprint == fingerprint).unwrap_or(CachedVerdicts {
            version: CACHE_VERSION,
            fingerprint,
            mutants: BTreeMap::new(),
        });
        // A test kills many mutants, often with the same message.
        let mut texts = SharedTexts::default();
        for verdict in verdicts.mutants.values_mut() {
            for text in [&mut verdict.reason, &mut verdict.killed_by].into_iter().flatten() {
                *text = texts.share(Arc::clone(text));
            }
        }
        Self { verdicts, is_changed: false }
    }

    /// Returns the verdict of a mutant, if it is still valid.
    #[must_use]
    pub fn get(&self, id: MutantId, basis: VerdictBasis) -> Option<KeptVerdict> {
        let cached = self.verdicts.mutants.get(&HexHash(id.0))?;
        let is_same = cached.function == basis.function.into() && cached.covering == basis.covering.into();
        let status = MutantStatus::ALL.into_iter().find(|status| kept_name(*status) == Some(cached.status));
        Some(KeptVerdict {
            status: status.filter(|_| is_same)?,
            reason: cached.reason.clone(),
            killed_by: cached.killed_by.clone(),
            tests_completed: cached.tests_completed,
            duration_us: cached.duration_us,
        })
    }

    /// Adds a verdict; removes the old one if the new one can't be reused.
    pub fn add(&mut self, id: MutantId, basis: VerdictBasis, verdict: KeptVerdict) {
        let id = HexHash(id.0);
        let Some(status) = kept_name(verdict.status) else {
            self.is_changed |= self.verdicts.mutants.remove(&id).is_some();
            return;
        };
        let cached = CachedVerdict {
            status,
            function: basis.function.into(),
            covering: basis.covering.into(),
            reason: verdict.reason,
            killed_by: verdict.killed_by,
            tests_completed: verdict.tests_completed,
            duration_us: verdict.duration_us,
        };
        self.verdicts.mutants.insert(id, cached);
        self.is_changed = true;
    }

    /// Writes the file atomically, if anything has changed.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&mut self, path: &Path) -> io::Result<()> {
        if std::mem::take(&mut self.is_changed) {
            // A leftover of a process that was killed while writing.
            let _none = std::fs::remove_file(path.with_added_extension("part"));
            heeler_sys::dirs::stream_file_atomically(path, |file| self.verdicts.write(file))?;
        }
        Ok(())
    }
}

/// Returns the name of a status that later runs may reuse.
fn kept_name(status: MutantStatus) -> Option<StatusName> {
    match status {
        MutantStatus::Killed => Some(StatusName::Killed),
        MutantStatus::Survived => Some(StatusName::Survived),
        MutantStatus::RuntimeError => Some(StatusName::RuntimeError),
        // Never reused: the next baseline or build finds these again, and timeouts may be the machine's
        // fault.
        MutantStatus::NoCoverage
        | MutantStatus::Timeout
        | MutantStatus::CompileError
        | MutantStatus::Ignored
        | MutantStatus::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(text: &str) -> Fingerprint {
        Fingerprint::of([text.as_bytes()])
    }

    fn verdict(status: MutantStatus) -> KeptVerdict {
        let killed_by = (status == MutantStatus::Killed).then(|| "s::a".into());
        KeptVerdict {
            status,
            reason: Some("1 is not 2".into()),
            killed_by,
            tests_completed: Some(2),
            duration_us: 7,
        }
    }

    #[test]
    fn verdict_holds_while_function_tests_and_everything_else_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("verdicts.json");
        let id = MutantId(7);
        let basis = VerdictBasis::new(hash("f"), ["s::a", "s::b"]);
        let mut cache = VerdictCache::read(&path, hash("rest"));
        assert_eq!(cache.get(id, basis), None);
        cache.add(id, basis, verdict(MutantStatus::Killed));
        cache.write(&path).unwrap();
        let cache = VerdictCache::read(&path, hash("rest"));
        assert_eq!(
            cache.get(id, VerdictBasis::new(hash("f"), ["s::b", "s::a"])),
            Some(verdict(MutantStatus::Killed))
        );
        assert_eq!(cache.get(MutantId(8), basis), None);
        assert_eq!(cache.get(id, VerdictBasis::new(hash("g"), ["s::a", "s::b"])), None);
        assert_eq!(cache.get(id, VerdictBasis::new(hash("f"), ["s::a"])), None);
        assert_eq!(VerdictCache::read(&path, hash("other")).get(id, basis), None);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(VerdictCache::read(&path, hash("rest")).get(id, basis), None);
    }

    #[test]
    fn only_verdicts_of_tests_are_kept() {
        use MutantStatus::{Killed, RuntimeError, Survived};
        let dir = tempfile::tempdir().unwrap();
        let basis = VerdictBasis::new(hash("f"), []);
        for status in MutantStatus::ALL {
            let mut cache = VerdictCache::read(&dir.path().join("none"), hash("rest"));
            cache.add(MutantId(1), basis, verdict(Survived));
            cache.add(MutantId(1), basis, verdict(status));
            let expected = [Killed, Survived, RuntimeError].contains(&status).then(|| verdict(status));
            assert_eq!(cache.get(MutantId(1), basis), expected, "{status:?}");
        }
    }
}
