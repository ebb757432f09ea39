//! Names of evidence files, and what a lost guard leaves of them.

use std::{fs, path::Path};

/// The number of characters of a name used in the names of its files.
const MAX_NAME_CHARS: usize = 80;

/// Returns a file name that every file system accepts and that users recognise.
pub(crate) fn plain_file_name(name: &str) -> String {
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() || "._-".contains(character) { character } else { '_' }
    };
    name.chars().map(plain).take(MAX_NAME_CHARS).collect()
}

/// Removes the partial files of a guard that was lost; their names begin with `prefix`.
pub(crate) fn remove_partial_files(dir: &Path, prefix: &str) {
    let beginning = format!("{prefix}-");
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&beginning)) {
            // A file that can't be removed is deleted with its run's directory, or is small beside a run's.
            drop(fs::remove_file(entry.path()));
        }
    }
}
