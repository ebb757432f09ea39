//! Asks Git for the lines changed since a commit.

use std::path::Path;

use heeler_cargo::{BuildSupervision, CargoError, read_tool_output};
use heeler_mutate::ChangedLines;

use crate::error::MutateError;

/// Returns the lines that differ from a commit. New files count as changed.
///
/// # Errors
/// Git fails.
pub fn changed_lines(reference: &str, root: &Path) -> Result<ChangedLines, MutateError> {
    let ask = |words: &[&str]| -> Result<String, CargoError> {
        let words = words.iter().map(std::ffi::OsString::from).collect();
        let output = read_tool_output("git", words, root, BuildSupervision::default())?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    };
    let failed = |source| MutateError::Diff { reference: reference.to_owned(), source };
    let diff = [
        "-c",
        "core.quotePath=false",
        "diff",
        "--relative",
        "--unified=0",
        "--no-prefix",
        "--no-color",
        "--no-ext-diff",
        "--no-renames",
        reference,
        "--",
        ".",
    ];
    let mut changed = ChangedLines::read(&ask(&diff).map_err(failed)?);
    let new = ["-c", "core.quotePath=false", "ls-files", "--others", "--exclude-standard"];
    changed.add_new_files(&ask(&new).map_err(failed)?);
    Ok(changed)
}
