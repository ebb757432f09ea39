//! Remembers the reports that runs have written. A report below the project is not a source file, so writing
//! one does not discard the verdicts of earlier runs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use heeler_mutate::Fingerprint;

/// Number of most recent reports to remember.
const MAX_REPORTS: usize = 64;

/// Written reports with hashes of their contents. A file that the user changed since is part of the project.
pub(crate) struct KeptReports {
    reports: Vec<(String, PathBuf)>,
}

impl KeptReports {
    /// Reads a list; empty if it is missing.
    pub(crate) fn read(list: &Path) -> Self {
        let text = fs::read_to_string(list).unwrap_or_default();
        let report = |line: &str| {
            let (hash, path) = line.split_once(' ')?;
            Some((hash.to_owned(), PathBuf::from(path)))
        };
        Self { reports: text.lines().filter_map(report).collect() }
    }

    /// Returns the reports that have not been modified since.
    pub(crate) fn unchanged(self) -> Vec<PathBuf> {
        let reports = self.reports.into_iter();
        reports.filter(|(hash, path)| hash_of(path).as_ref() == Some(hash)).map(|(_, path)| path).collect()
    }

    /// Adds reports that were just written.
    pub(crate) fn add(mut self, files: &[PathBuf]) -> Self {
        for file in files {
            let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            self.reports.retain(|(_, one)| *one != path);
            if let Some(hash) = hash_of(&path) {
                self.reports.push((hash, path));
            }
        }
        let surplus = self.reports.len().saturating_sub(MAX_REPORTS);
        self.reports.drain(..surplus);
        self
    }

    /// Writes the list.
    ///
    /// # Errors
    /// The file can't be written.
    pub(crate) fn write(&self, list: &Path) -> io::Result<()> {
        let line = |(hash, path): &(String, PathBuf)| format!("{hash} {}\n", path.display());
        fs::write(list, self.reports.iter().map(line).collect::<String>())
    }
}

/// Returns the hash of a regular file.
fn hash_of(path: &Path) -> Option<String> {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    let content = fs::read(path).ok().filter(|_| is_file)?;
    Some(Fingerprint::of([content.as_slice()]).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_known_as_long_as_they_are_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let (list, report) = (dir.path().join("reports"), dir.path().join("m.json"));
        fs::write(&report, "{}").unwrap();
        KeptReports::read(&list).add(std::slice::from_ref(&report)).write(&list).unwrap();
        assert_eq!(KeptReports::read(&list).unchanged(), std::slice::from_ref(&report));
        fs::write(&report, "[]").unwrap();
        assert!(KeptReports::read(&list).unchanged().is_empty());
    }
}
