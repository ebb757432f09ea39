//! Copies projects whose builds write files next to the sources.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use heeler_mutate::{CopiedTree, GuardedProject, TreeCopy};

use crate::{error::MutateError, work_place::WorkPlace};

/// File next to the copy with the paths that were copied.
const COPIED: &str = "copied";

/// Copies what a build reads, except `left_out`. C builds must leave out all build output: make would mistake
/// a newer object file for one that was built from a guarded source. Build output in the copy stays.
pub(super) fn copy_kept(
    root: &Path,
    place: &WorkPlace,
    left_out: &[PathBuf],
    guarded: &GuardedProject,
) -> Result<CopiedTree, MutateError> {
    let list = place.directory().join(COPIED);
    let before: BTreeSet<PathBuf> =
        fs::read_to_string(&list).unwrap_or_default().lines().map(PathBuf::from).collect();
    let (tree, replaced) = (place.tree(), guarded.texts());
    let copy = TreeCopy {
        left_out,
        left_out_files: place.left_out_files(),
        copied_before: Some(&before),
        ..TreeCopy::new(root, &tree, &replaced)
    };
    let copied = copy.update().map_err(MutateError::Copy)?;
    let lines: Vec<String> = copied.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    fs::write(&list, lines.join("\n"))
        .map_err(|source| MutateError::WriteFile { path: list.clone(), source })?;
    Ok(copied)
}
