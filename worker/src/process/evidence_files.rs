//! Names of evidence files, and cleanup after a lost guard.

use std::{fs, path::Path};

/// Maximum number of characters of a test name used in file names.
const MAX_NAME_CHARS: usize = 80;

/// Returns a recognizable file name that every file system accepts.
pub(crate) fn plain_file_name(name: &str) -> String {
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() || "._-".contains(character) { character } else { '_' }
    };
    name.chars().map(plain).take(MAX_NAME_CHARS).collect()
}

/// Removes the partial files of a lost guard, whose names begin with `prefix`.
pub(crate) fn remove_partial_files(dir: &Path, prefix: &str) {
    let beginning = format!("{prefix}-");
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&beginning)) {
            // Ignore errors: the file is small and is deleted with its run's directory.
            drop(fs::remove_file(entry.path()));
        }
    }
}
