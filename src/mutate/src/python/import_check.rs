//! Modules that tests import from elsewhere than the copy with mutants, as the runtime has noted them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What the names of the runtime's notes end with, beside the files in which it counts.
const NOTES: &str = "imports";

/// A module of the project that was not imported from its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignModule {
    pub name: String,
    /// Where it was imported from.
    pub path: PathBuf,
    /// The source of the project that should have been imported, by its path below the root.
    pub source: String,
}

/// Returns what processes that counted in a directory have noted.
///
/// # Errors
/// The directory or a file can't be read.
pub fn foreign_modules(directory: &Path) -> io::Result<Vec<ForeignModule>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != NOTES) {
            continue;
        }
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        for line in text.lines() {
            let [name, path, source] = line.split('\t').collect::<Vec<_>>()[..] else { continue };
            let (name, source) = (name.to_owned(), source.to_owned());
            found.push(ForeignModule { name, path: PathBuf::from(path), source });
        }
    }
    found.sort_by(|one, other| (&one.source, &one.path).cmp(&(&other.source, &other.path)));
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_all_processes_are_read_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("0-1"), [0; 4]).unwrap();
        for name in ["0-1.imports", "0-2.imports"] {
            fs::write(dir.path().join(name), "a\t/w/src/a.py\tsrc/a.py\nbroken\n").unwrap();
        }
        let expected =
            ForeignModule { name: "a".into(), path: "/w/src/a.py".into(), source: "src/a.py".into() };
        assert_eq!(foreign_modules(dir.path()).unwrap(), [expected]);
        assert!(foreign_modules(&dir.path().join("missing")).is_err());
    }
}
