//! Reads the runtime's notes about modules that tests imported from outside the mutated copy.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Extension of the runtime's note files, which are in the directory of the coverage files.
const NOTES: &str = "imports";

/// A project module that was not imported from the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignModule {
    pub name: String,
    /// Path of the module that was imported.
    pub path: PathBuf,
    /// Path below the root of the source that should have been imported.
    pub source: String,
}

/// Returns the notes of all processes that wrote coverage to a directory.
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
