//! The files of programs at one point in time, and the difference between two of them.

use std::{collections::BTreeMap, path::PathBuf};

use heeler_protocol::{
    control::OsText,
    mtp::{ProgramChange, ProgramChangeKind, ProgramsChangedParams},
};

use super::super::{
    file_identity::{FileIdentity, file_identity},
    program_finder::CurrentProgram,
};

/// Maximum number of programs in one notification, to bound its size. The notification says if there are
/// more.
const MAX_REPORTED_PROGRAMS: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProgramSnapshot(BTreeMap<PathBuf, ProgramFile>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ProgramFile {
    suite: Option<String>,
    /// `None` if the file does not exist.
    identity: Option<FileIdentity>,
}

impl ProgramSnapshot {
    pub(super) fn read(programs: Vec<CurrentProgram>) -> Self {
        let file = |program: CurrentProgram| {
            let identity = file_identity(&program.path);
            (program.path, ProgramFile { suite: program.suite, identity })
        };
        Self(programs.into_iter().map(file).collect())
    }

    /// Returns the changes since an earlier snapshot; `None` if nothing has changed. `is_incomplete` means
    /// that further changes may have been missed.
    pub(super) fn changes_since(&self, earlier: &Self, is_incomplete: bool) -> Option<ProgramsChangedParams> {
        let paths: std::collections::BTreeSet<_> = earlier.0.keys().chain(self.0.keys()).collect();
        let mut programs = Vec::new();
        for path in paths {
            let (before, after) = (earlier.0.get(path), self.0.get(path));
            let identity = |file: Option<&ProgramFile>| file.and_then(|file| file.identity);
            let change = match (identity(before), identity(after)) {
                (None, Some(_)) => ProgramChangeKind::Appeared,
                (Some(_), None) => ProgramChangeKind::Removed,
                (Some(before), Some(after)) if before != after => ProgramChangeKind::Changed,
                (Some(_), Some(_)) | (None, None) => continue,
            };
            let suite = after.or(before).and_then(|file| file.suite.clone());
            let path = OsText::from(path.as_path()).to_text().into_owned();
            programs.push(ProgramChange { path, suite, change });
        }
        let is_incomplete = is_incomplete || programs.len() > MAX_REPORTED_PROGRAMS;
        programs.truncate(MAX_REPORTED_PROGRAMS);
        (is_incomplete || !programs.is_empty()).then_some(ProgramsChangedParams { programs, is_incomplete })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn snapshot(dir: &Path, names: &[&str]) -> ProgramSnapshot {
        let program = |name: &&str| CurrentProgram {
            path: dir.join(name),
            suite: Some((*name).to_owned()).filter(|name| name != "new"),
        };
        ProgramSnapshot::read(names.iter().map(program).collect())
    }

    #[test]
    fn difference_names_each_program_that_changed() {
        let dir = tempfile::tempdir().unwrap();
        let all = ["same", "rebuilt", "replaced", "gone", "missing", "late"];
        for name in ["same", "rebuilt", "replaced", "gone", "other"] {
            fs::write(dir.path().join(name), "one").unwrap();
        }
        let before = snapshot(dir.path(), &all);
        assert_eq!(snapshot(dir.path(), &all).changes_since(&before, false), None);
        fs::write(dir.path().join("rebuilt"), "longer").unwrap();
        fs::rename(dir.path().join("other"), dir.path().join("replaced")).unwrap();
        fs::remove_file(dir.path().join("gone")).unwrap();
        fs::write(dir.path().join("late"), "").unwrap();
        fs::write(dir.path().join("new"), "").unwrap();
        // A glob no longer finds a removed file.
        let after = snapshot(dir.path(), &["same", "rebuilt", "replaced", "missing", "late", "new"]);
        let changes = after.changes_since(&before, false).unwrap();
        let found: Vec<_> = changes
            .programs
            .iter()
            .map(|one| (one.path.rsplit('/').next().unwrap(), one.suite.as_deref(), one.change))
            .collect();
        assert_eq!(
            found,
            [
                ("gone", Some("gone"), ProgramChangeKind::Removed),
                ("late", Some("late"), ProgramChangeKind::Appeared),
                ("new", None, ProgramChangeKind::Appeared),
                ("rebuilt", Some("rebuilt"), ProgramChangeKind::Changed),
                ("replaced", Some("replaced"), ProgramChangeKind::Changed),
            ]
        );
        assert!(!changes.is_incomplete);
    }

    #[test]
    fn lost_events_are_reported_without_a_difference() {
        let none = ProgramSnapshot::default();
        let changes = none.changes_since(&none, true).unwrap();
        assert_eq!(changes, ProgramsChangedParams { programs: Vec::new(), is_incomplete: true });
    }
}
